"""The causes outside of the policy that a finding names, by the signs that the run's files hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptt
from ptt.diagnostics.evidence.mismatch_causes import rank_causes, table_of
from ptt.diagnostics.model import Finding
from ptt.diagnostics.verdict.failure_causes import KINDS, LINES, TABLE

STEPS = 80
Row = Mapping[str, Any]


def found_in(folder: Path, row: Callable[[int], Row], **files: str) -> Mapping[str, Finding]:
    """Judge a run of STEPS rows; `files` by name, with `_` for the dot. The findings by their ids."""
    noise = np.random.default_rng(3).normal(size=STEPS + 1)
    rows = [
        {"step": step, "reward": 0.5 + 0.01 * noise[step], "grad_norm": 0.3 + 0.01 * noise[step], "loss": 0.1}
        | dict(row(step))
        for step in range(1, STEPS + 1)
    ]
    folder.mkdir(exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows), "utf-8")
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text, "utf-8")
    return {finding.id: finding for finding in ptt.diagnose(folder).findings}


def test_every_sign_weighs_causes_of_the_table_and_every_cause_has_a_sign() -> None:
    table = table_of(TABLE)
    causes = {name for name in table if name != "signs"}
    weighed = {name for sign in table["signs"].values() for name in sign["weights"]}
    assert weighed <= causes
    assert causes - weighed == set()
    assert {f"line_{name}" for name in LINES} <= table["signs"].keys()
    assert {kind for name in causes for kind in table[name]["of"]} == KINDS.keys()
    assert rank_causes((), framework=None, table=TABLE, names=sorted(causes)) is None


@pytest.mark.parametrize(("size", "named"), [(1, True), (8, False)])
def test_groups_of_one_explain_gradients_that_are_exactly_0(size: int, named: bool, tmp_path: Path) -> None:
    settings = f"adv_estimator: grpo\nlearning_rate: 0.001\nmax_steps: 900\ntrain_env:\n  group_size: {size}\n"
    found = found_in(tmp_path, lambda _step: {"grad_norm": 0.0}, config_yaml=settings)["gradient-vanished"]
    assert (found.evidence.get("cause_1") == "group-of-one") == named
    assert ("groups of one sample" in found.claim) == named


def fell(step: int) -> Row:
    return {"reward": 0.2 + 0.01 * (step % 3)} if step > 50 else {}


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("Sandbox creation failed: workspace has reached its limit of 56 concurrent sandboxes", "quota-used-up"),
        ("ERROR judge server: request for sample timed out", "scorer-fails"),
        ("WARNING episode failed: aiohttp.ClientConnectorError: Cannot connect to host", "environment-down"),
        ("WARNING No triplets found for training rollout ro-44543b70c4bf, skipping.", "rows-skipped"),
        ("WARNING No traces found - returning episode without token data", "not-captured"),
        ("WARNING turn=3 gateway paused >600s, giving up: rollout ro-8", "engine-paused"),
        ("ERROR Agent task failed (KeyError: 'obs'). This trajectory will be rejected.", "failed-scored-zero"),
        ("ERROR Sandbox API call failed on attempt 3 of 3", "environment-down"),
        ("WARNING session 81f3 was orphaned by an earlier episode", "quota-used-up"),
        ("ERROR reward worker: BrokenProcessPool: a process was terminated abruptly", "scorer-fails"),
        ("ERROR Exception in gsm8k_reward_fn", "scorer-fails"),
        ("WARNING judge response had no parseable score (defaulting to 0)", "scorer-fails"),
    ],
)
def test_a_line_that_begins_where_the_reward_falls_names_the_cause(line: str, cause: str, tmp_path: Path) -> None:
    said = "".join(
        f"step:{step} - entropy:0.5\n" + (f"{line}\n" * 9 if step >= 50 else "") for step in range(1, STEPS + 1)
    )
    found = found_in(tmp_path, fell, train_log=said)
    named = [one for one in found.values() if one.evidence.get("cause_1") == cause]
    assert named, {one.id: one.claim for one in found.values()}
    assert "likely cause" in named[0].claim


@pytest.mark.parametrize(("evaluated", "named"), [(50, True), (45, False)])
def test_nothing_generated_from_an_evaluation_on_is_an_engine_that_stays_paused(
    evaluated: int, named: bool, tmp_path: Path
) -> None:
    def row(step: int) -> Row:
        gone = {"reward": 0.0, "response_length/mean": 0.0} if step > 50 else {"response_length/mean": 300.0 + step % 7}
        return gone | ({"eval/accuracy": 0.5} if step % 60 == evaluated else {})

    found = found_in(tmp_path, row).values()
    assert any("an engine that stays paused" in one.claim for one in found) == named


def test_nothing_outside_of_the_policy_is_named_without_a_sign(tmp_path: Path) -> None:
    found = found_in(tmp_path, fell)
    assert "likely cause" not in found["reward-fell"].claim
    assert "cause_1" not in found["reward-fell"].evidence


@pytest.mark.parametrize(
    "name", ["rewards/format_error_rate", "verifier/invalid_answer_frac", "rollout/context_length_error_ratio"]
)
def test_answers_that_the_policy_spoils_are_no_scorer_that_fails(name: str, tmp_path: Path) -> None:
    found = found_in(tmp_path, lambda step: {name: 0.7 if step > 50 else 0.01, **fell(step)})
    assert "cause_1" not in found["reward-fell"].evidence


def test_a_filter_that_is_off_and_a_limit_of_no_evaluation_explain_nothing(tmp_path: Path) -> None:
    settings = (
        "algorithm:\n  filter_groups: {enable: false, metric: seq_reward}\n"
        "generator:\n  sampling_params: {max_generate_length: 8192}\n"
        "  eval_sampling_params: {max_generate_length: 2048}\n"
    )
    assert "likely cause" not in found_in(tmp_path, fell, config_yaml=settings)["reward-fell"].claim


@pytest.mark.parametrize(("limit", "told"), [(512, True), (4096, False)])
def test_an_evaluation_with_a_shorter_limit_is_the_cause_of_its_fall(limit: int, told: bool, tmp_path: Path) -> None:
    settings = (
        "generator:\n  n_samples_per_prompt: 8\n  sampling_params: {max_generate_length: 4096}\n"
        f"  eval_sampling_params: {{max_generate_length: {limit}}}\n"
    )

    def row(step: int) -> Row:
        grown = {"reward": 0.3 + 0.004 * step, "response_length/mean": 300.0 + 20 * step}
        return grown | ({"eval/accuracy": 0.4 - 0.002 * step} if step % 5 == 0 else {})

    found = found_in(tmp_path, row, config_yaml=settings)
    assert ("eval-unlike-training" in found) == told
    if told:
        assert found["eval-unlike-training"].evidence["in_training"] == 4096
