"""What recorder files keep of rewards is used: `reward`, `rewards` and `advantage`, in Parquet and in lines."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console
from slow_cases import first_fast

import ptt
from ptt.diagnostics.model import Finding
from ptt.reports.run.terminal import print_diagnosis

STEPS, GROUPS, SIZE = 30, 4, 4
Row = dict[str, Any]


def rows(*, centred: bool = True, since: int = 1) -> list[Row]:
    """Give samples of prompt groups; from a step on, or never, their advantages are their rewards."""
    generator = np.random.default_rng(7)
    made: list[Row] = []
    for step in range(1, STEPS + 1):
        for group in range(GROUPS):
            right = generator.random(SIZE) < 0.3 + 0.5 * step / STEPS
            rewards = right + 0.1 * (generator.random(SIZE) < 0.8)
            own = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
            advantages = own if (centred and step >= since) or step < since else rewards
            for place in range(SIZE):
                policy = -generator.exponential(size=24)
                made.append(
                    {
                        "step": step,
                        "sample_id": f"{step}-{group}-{place}",
                        "group_id": f"{step}-{group}",
                        "model_mask": [True] * 24,
                        "policy_logp": policy.tolist(),
                        "ref_logp": (policy + 0.01 * generator.normal(size=24)).tolist(),
                        "reward": float(rewards[place]),
                        "rewards": {"correct": float(right[place]), "form": float(rewards[place] - right[place])},
                        "advantage": float(advantages[place]),
                    }
                )
    return made


def run(folder: Path, made: list[Row], form: str) -> Path:
    (folder / "run" / "tokens").mkdir(parents=True)
    if form == "parquet":
        for step in range(1, STEPS + 1):
            part = pl.DataFrame([row for row in made if row["step"] == step])
            part.write_parquet(folder / "run" / "tokens" / f"step_{step:06d}.parquet")
    else:
        lines = "".join(json.dumps(row) + "\n" for row in made)
        (folder / "run" / "tokens" / "steps.jsonl").write_text(lines, encoding="ascii")
    return folder / "run"


def without_baseline(found: ptt.Diagnosis) -> list[Finding]:
    assert found.crashes == ()
    return [one for one in found.findings if one.id == "advantages-without-baseline"]


@pytest.mark.parametrize("form", first_fast(["parquet", "jsonl"]))
def test_single_advantages_that_are_the_rewards_are_found_without_any_log(form: str, tmp_path: Path) -> None:
    (finding,) = without_baseline(ptt.diagnose(run(tmp_path, rows(centred=False), form)))
    assert finding.held_from_step == 1
    assert finding.onset_step is None
    assert finding.observed == 1.0


@pytest.mark.parametrize("form", first_fast(["parquet", "jsonl"]))
def test_centred_advantages_are_none_and_single_rewards_are_judged(form: str, tmp_path: Path) -> None:
    found = ptt.diagnose(run(tmp_path, rows(), form))
    assert without_baseline(found) == []
    answered = {one.id for one in found.healthy}
    assert {"advantages-without-baseline", "reward-outliers", "no-signal-groups"} <= answered


def test_rewards_without_advantages_leave_the_baseline_to_the_log(tmp_path: Path) -> None:
    made = [{name: value for name, value in row.items() if name != "advantage"} for row in rows()]
    found = ptt.diagnose(run(tmp_path, made, "parquet"))
    assert without_baseline(found) == []
    assert "advantages-without-baseline" in {one.id for one in found.not_judged}


def test_a_baseline_that_is_lost_in_mid_run_is_dated(tmp_path: Path) -> None:
    (finding,) = without_baseline(ptt.diagnose(run(tmp_path, rows(centred=False, since=16), "parquet")))
    assert finding.onset_step == 16
    assert finding.onset_interval == (16, 16)


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_sources_names_the_components_that_recorder_files_keep(form: str, tmp_path: Path) -> None:
    coverage = ptt.sources(run(tmp_path, rows(), form))
    (question,) = [one for one in coverage.questions if "component" in one.title]
    assert question.answered
    assert question.by == f"correct, form of {STEPS * GROUPS * SIZE} sequences"


def alone(made: list[Row]) -> list[Row]:
    """Leave one logprob, as a trainer without reference, engine or reuse of samples has it."""
    return [{name: value for name, value in row.items() if name != "ref_logp"} for row in made]


@pytest.mark.parametrize("form", first_fast(["parquet", "jsonl"]))
def test_one_logprob_gives_no_ratio_but_the_same_rewards_advantages_and_groups(form: str, tmp_path: Path) -> None:
    about_rewards = {"advantages-without-baseline", "reward-outliers", "no-signal-groups", "advantage-scale"}

    def told(found: ptt.Diagnosis) -> list[str]:
        parts = (found.findings, found.healthy, found.not_judged)
        return sorted(repr(one) for part in parts for one in part if one.id in about_rewards)

    made = rows(centred=False, since=16)
    one, two = (ptt.diagnose(run(tmp_path / name, rows, form)) for name, rows in (("a", alone(made)), ("b", made)))
    assert one.crashes == ()
    assert told(one) == told(two)
    assert (one.run.sequences, one.run.model_tokens) == (two.run.sequences, two.run.model_tokens) == (480, 11520)
    assert one.outcome == two.outcome


def test_a_run_with_one_logprob_says_what_is_missing_and_how_to_get_it(tmp_path: Path) -> None:
    found = ptt.diagnose(run(tmp_path, alone(rows()), "parquet"))
    assert (found.signature.status, found.signature.pair) == ("cannot_say", None)
    (growth,) = [one for one in found.not_judged if one.id == "tool-tail-growth"]
    assert growth.reason.startswith("only policy_logp is recorded, and a log-ratio takes two")
    assert growth.missing == ("old_logp", "rollout_logp", "ref_logp")
    assert growth.enable.startswith("in your training loop: record old_logp, rollout_logp, ref_logp beside policy_logp")
    (validity,) = [one for one in found.not_judged if one.id == "shifted-logprobs"]
    assert validity.missing == growth.missing  # what is recorded is not asked for again
    assert not [one for one in found.not_judged if "Recorder(" in one.enable]


def test_a_kept_store_and_a_grown_run_with_one_logprob_are_judged_as_anew(tmp_path: Path) -> None:
    made = alone(rows())
    folder = run(tmp_path, made, "parquet")
    late = sorted((folder / "tokens").iterdir())[20:]
    held = {path: path.read_bytes() for path in late}
    for path in late:
        path.unlink()
    store = tmp_path / "out"
    assert ptt.diagnose(folder, out=store).run.last_step == 20
    for path, content in held.items():
        path.write_bytes(content)
    grown, again, anew = (ptt.diagnose(folder, out=out) for out in (store, store, tmp_path / "other"))
    assert grown.findings == again.findings == anew.findings
    assert grown.run == again.run == anew.run
    assert grown.run.last_step == STEPS


def test_a_surprisal_far_off_the_entropy_is_found_without_a_pair(tmp_path: Path) -> None:
    made = [row | {"entropy": [0.05] * len(row["model_mask"])} for row in alone(rows())]
    found = ptt.diagnose(run(tmp_path, made, "parquet"))
    assert "surprisal-off-entropy" in {one.id for one in found.findings}


def test_the_terminal_says_what_a_ratio_lacks_once_also_below_other_findings(tmp_path: Path) -> None:
    lacks = "Only policy_logp is recorded, and a log-ratio takes two"
    for name, made in (("found", rows(centred=False)), ("quiet", rows())):
        console = Console(file=io.StringIO(), width=1000)
        print_diagnosis(ptt.diagnose(run(tmp_path / name, alone(made), "parquet")), console, "report.html")
        text = console.file.getvalue()  # type: ignore[attr-defined]
        where = text.partition("Not judged")[2] if name == "found" else text
        assert lacks in where, text
        assert "ecord old_logp, rollout_logp, ref_logp beside policy_logp" in where, text
        assert name == "quiet" or text.count(lacks) == 1
