"""The causes outside of the policy that a finding names, by the signs that the run's files hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
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
        (folder / ".".join(name.rsplit("_", 1))).write_text(text, "utf-8")
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
    assert ("groups of one sample" in found.likely_cause) == named


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
    assert named[0].likely_cause


@pytest.mark.parametrize(("evaluated", "named"), [(50, True), (45, False)])
def test_nothing_generated_from_an_evaluation_on_is_an_engine_that_stays_paused(
    evaluated: int, named: bool, tmp_path: Path
) -> None:
    def row(step: int) -> Row:
        gone = {"reward": 0.0, "response_length/mean": 0.0} if step > 50 else {"response_length/mean": 300.0 + step % 7}
        return gone | ({"eval/accuracy": 0.5} if step % 60 == evaluated else {})

    found = found_in(tmp_path, row).values()
    assert any("an engine that stays paused" in one.likely_cause for one in found) == named


@pytest.mark.parametrize(
    ("kind", "trouble", "usual"),
    [
        ("paused", "gateway paused >600s, giving up", "generation paused for weight update, resumed in 0.2s"),
        ("paused", "engine is asleep: wake_up() was never called", "wake_up() took 0.3s"),
        ("quota", "sandbox sessions leak: 56 are open", "GPU memory is leaking"),
    ],
)
def test_a_line_of_what_works_or_of_memory_speaks_of_no_such_trouble(kind: str, trouble: str, usual: str) -> None:
    assert LINES[kind].search(trouble)
    assert not LINES[kind].search(usual)


def test_nothing_outside_of_the_policy_is_named_without_a_sign(tmp_path: Path) -> None:
    found = found_in(tmp_path, fell)
    assert not found["reward-fell"].likely_cause
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
    assert not found_in(tmp_path, fell, config_yaml=settings)["reward-fell"].likely_cause


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


@pytest.mark.parametrize("level", [0, 40])
def test_groups_aborted_at_every_step_are_generated_again(level: int, tmp_path: Path) -> None:
    said = "[2026-11-06 21:23:02] arguments.py:1412 - args: Namespace(rollout_batch_size=32, n_samples_per_prompt=8)\n"
    said += "".join(
        f"[2026-11-06 21:{24 + step // 2}:{30 * (step % 2):02}] rollout_metrics.py:268 - perf {step}: "
        f"{{'rollout/fully_async/aborted_groups_filtered': {level + step % 3}, 'rollout/raw_reward': 0.5}}\n"
        for step in range(60)
    )
    (tmp_path / "train.log").write_text(said, "utf-8")
    lost = [one for one in ptt.diagnose(tmp_path).findings if one.id == "samples-lost"]
    assert [one.evidence.get("cause_1") for one in lost] == ["generated-again"] * (level > 0)


def test_episodes_saved_by_step_name_the_judge_that_fails(tmp_path: Path) -> None:
    for step in range(5, STEPS + 1, 5):
        failed = step in range(40, 61)
        rows = [
            {"_ng_task_index": at // 4, "_ng_rollout_index": at, "reward": 0.0 if failed and at % 2 else at % 3 / 2}
            | {"failure_reason": "judge_unparseable" if failed and at % 2 else None}
            for at in range(32)
        ]
        (tmp_path / "rollouts").mkdir(exist_ok=True)
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "rollouts" / f"train_step{step}.jsonl").write_text(lines, "utf-8")
    found = found_in(tmp_path, lambda _step: {})["trained-on-failures"]
    assert (found.onset_step, found.evidence["cause_1"]) == (40, "scorer-fails")
    assert found.evidence["cause_1_for"] == '80 recorded episodes end with "judge_unparseable"'


@pytest.mark.parametrize(("entropy", "cause"), [(0.4, "scorer-misreads"), (2.5, None)])
def test_a_reward_that_vanishes_while_the_texts_stay_is_the_scorers_doing(
    entropy: float, cause: str | None, tmp_path: Path
) -> None:
    def row(step: int) -> Row:
        late = step > 40
        texts = {
            "response_length/mean": 400.0 + step % 7,
            "actor/entropy": entropy if late else 0.4 + 0.001 * (step % 5),
        }
        return texts | ({"reward": 0.0, "grad_norm": 0.0} if late else {})

    found = found_in(tmp_path, row)["reward-stuck"]
    assert found.onset_step == 41
    assert found.evidence.get("cause_1") == cause


@pytest.mark.parametrize("share", [1.0, 0.7])
def test_groups_that_are_equal_at_once_share_one_reward(share: float, tmp_path: Path) -> None:
    def row(step: int) -> Row:
        late = step > 40
        reward = 0.3 + 0.07 * (step % 7) if late else 0.45 + 0.02 * (step % 7)
        return {"frac_reward_zero_std": share if late else 0.1, "reward": reward}

    found = found_in(tmp_path, row)["no-signal-groups"]
    assert ("one reward that all answers of a group share" in found.likely_cause) == (share == 1.0)


def test_tokens_a_step_tell_which_samples_are_missing_from_the_batch(tmp_path: Path) -> None:
    settings = "data: {train_batch_size: 16}\nactor_rollout_ref: {rollout: {n: 4, val_kwargs: {n: 1}}}\nlr: 0.1\n"
    settings += "sft_train_batch_size: 48\ncritic: {train_batch_size: 32}\n"  # of something else

    def row(step: int) -> Row:
        left = 64 - 2 * (10 + step % 5) if step > 40 else 64
        means = {"prompt_length/mean": 100.0, "response_length/mean": 400.0}
        return means | {"perf/total_num_tokens": 500.0 * left, "training/global_step": step}

    found = found_in(tmp_path, row, config_yaml=settings)["samples-lost"]
    assert found.onset_step == 41
    assert found.observed == pytest.approx(24 / 64, abs=0.01)
    assert "missing from batches that were full before" in found.claim


@pytest.mark.parametrize(("falls", "named"), [(True, True), (False, False)])
def test_cut_answers_that_are_masked_dilute_the_gradient(falls: bool, named: bool, tmp_path: Path) -> None:
    def row(step: int) -> Row:
        norm = 0.4 - 0.004 * step if falls else 0.3 + 0.01 * (step % 3)
        return {"completions/clipped_ratio": 0.005 * step, "grad_norm": norm, **fell(step)}

    settings = '{"mask_truncated_completions": true, "loss_type": "dapo", "num_generations": 8, "learning_rate": 1e-6}'
    found = found_in(tmp_path, row, training_args_json=settings)["reward-fell"]
    assert ("loss's denominator" in found.likely_cause) == named


def test_dynamic_sampling_on_a_shaped_reward_explains_its_fall(tmp_path: Path) -> None:
    for on in (True, False):
        shaping = f"reward_shaping: {{enabled: {str(on).lower()}, overlong_buffer_length: 4096}}"
        settings = f"grpo:\n  num_prompts_per_step: 20\n  use_dynamic_sampling: true\n  {shaping}\n"
        found = found_in(tmp_path / str(on), fell, config_yaml=settings)["reward-fell"]
        assert ("group filter on the shaped reward" in found.likely_cause) == on


def test_of_several_settings_that_are_on_the_first_by_name_is_told(tmp_path: Path) -> None:
    switches = "".join(
        f"{name}:\n  use_dynamic_sampling: true\n  reward_shaping: {{enabled: true}}\n" for name in "fedcba"
    )
    found = found_in(tmp_path, fell, config_yaml=switches)["reward-fell"]
    assert "a.use_dynamic_sampling and a.reward_shaping.enabled are on" in str(found.context)


@pytest.mark.parametrize(("booked", "others"), [(True, ()), (True, ("code",)), (True, ("qa",)), (False, ())])
def test_a_source_that_is_never_short_while_another_loses_all_is_booked_wrongly(
    booked: bool, others: Sequence[str], tmp_path: Path
) -> None:
    def row(step: int) -> Row:
        chat = 96 - step // 2 - 16 * (step % 2)
        beside = {"code": 20 + 40 * (step % 2), "qa": 150 - chat}  # short as well; what chat loses
        beside = {f"env/{name}/total_episodes": beside[name] for name in others}
        short = {"env/math/total_episodes": 128, "env/chat/total_episodes": chat} | beside
        left = short if booked else dict.fromkeys(short, 128)
        rewards = {"env/math/reward/total": 0.65 - 0.001 * step, "env/chat/reward/total": 0.5}
        tested = {"test/env/math/reward/total": 0.6 + 0.004 * step} if step % 5 == 0 else {}
        return left | rewards | tested

    found = found_in(tmp_path, row).get("split-gap")
    assert (found is not None) == (booked and not others)
    assert found is None or "booked under another source" in found.likely_cause
