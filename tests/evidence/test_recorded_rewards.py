"""What recorder files keep of rewards is used: `reward`, `rewards` and `advantage`, in Parquet and in lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import ptt
from ptt.diagnostics.model import Finding

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


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_single_advantages_that_are_the_rewards_are_found_without_any_log(form: str, tmp_path: Path) -> None:
    (finding,) = without_baseline(ptt.diagnose(run(tmp_path, rows(centred=False), form)))
    assert finding.held_from_step == 1
    assert finding.onset_step is None
    assert finding.observed == 1.0


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
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
