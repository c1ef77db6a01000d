"""Logged metrics beside the tokens of the same steps: what is sound, what is miscounted, and what proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from audited_runs import (
    Row,
    audited,
    entropy,
    everywhere,
    gap,
    judged,
    k3,
    log_of,
    mean,
    over,
    positions,
    ratio,
    run_rows,
)
from builders import evidence_of
from slow_cases import first_fast

from ptt import Diagnosis
from ptt.diagnostics.model import Agreement, Finding, NotJudged, Severity
from ptt.diagnostics.rules.data_validity.miscounted_metric import RULE

Steps = Sequence[Sequence[Row]]
FIRST_OFF = 8
RATIO = "sampling/importance_sampling_ratio/mean"
GAP = "sampling/sampling_logp_difference/mean"


def findings(diagnosis: Diagnosis) -> list[Finding]:
    return [one for one in diagnosis.findings if one.id == RULE.id]


def changed(
    log: Mapping[str, Sequence[float]], steps: Steps, name: str, value: Callable[[Sequence[Row]], float], since: int = 1
) -> dict[str, Any]:
    wrong = [value(rows) if step >= since else log[name][step - 1] for step, rows in enumerate(steps, start=1)]
    return {**log, name: wrong}


def padded(rows: Sequence[Row]) -> float:
    width = max(len(row["model_mask"]) for row in rows)
    total = sum(over(rows, entropy))
    return total / sum(len(positions(row)) + width - len(row["model_mask"]) for row in rows)


def test_what_a_trainer_logs_is_named_by_formula_and_reduction(tmp_path: Path) -> None:
    steps = run_rows()
    diagnosis = judged(tmp_path / "run", steps, log_of(steps))
    assert not findings(diagnosis)
    expected = {
        "kl": ("k3 policy/ref", "token_mean/model_mask"),
        "entropy": ("entropy", "token_mean/model_mask"),
        "reward": ("reward", "mean/rows"),
        "completions/mean_length": ("own_length", "mean/rows"),
        GAP: ("abs old/rollout", "token_mean/model_mask"),
        RATIO: ("ratio old/rollout", "token_mean/model_mask"),
    }
    for name, (formula, reduction) in expected.items():
        row = audited(diagnosis, name)
        assert row.agreement is Agreement.AGREES, row
        assert (row.formula, row.reduction) == (formula, reduction)
        assert row.agreeing == row.steps == len(steps)
    assert "tool output left out" in audited(diagnosis, "kl").said
    assert "outside of 1 - 0.2 and 1 + 0.2" in audited(diagnosis, "clip_ratio/region_mean").said


def sequence_means(rows: Sequence[Row]) -> float:
    return mean(mean(over([row], k3)) for row in rows)


def test_a_mean_of_sequence_means_is_sound(tmp_path: Path) -> None:
    steps = run_rows(seed=1)
    diagnosis = judged(tmp_path / "run", steps, changed(log_of(steps), steps, "kl", sequence_means))
    row = audited(diagnosis, "kl")
    assert (row.agreement, row.reduction) == (Agreement.AGREES, "sequence_mean/model_mask")
    assert not findings(diagnosis)


MISCOUNTS: dict[str, tuple[str, Callable[[Sequence[Row]], float], str]] = {
    "tool output in a KL": ("kl", lambda rows: mean(over(rows, k3, where=everywhere)), "counts tool output"),
    "padding in an entropy": ("entropy", padded, "counts padding"),
    "a sum for a KL": ("kl", lambda rows: sum(over(rows, k3)), "is a sum where a mean is named"),
    "a negative entropy": ("entropy", lambda rows: -mean(over(rows, entropy)), "has the wrong sign"),
    "tool output in a mismatch": (GAP, lambda rows: mean(over(rows, gap, where=everywhere)), "counts tool output"),
    "a squared mismatch": (GAP, lambda rows: mean(one**2 for one in over(rows, gap)), "is squared"),
    "a ratio times the rows": (
        RATIO,
        lambda rows: len(rows) / 2 * mean(over(rows, ratio)),
        "is 4.0 times it",
    ),
    "a ratio upside down": (RATIO, lambda rows: mean(1 / one for one in over(rows, ratio)), "upside down"),
}


@pytest.mark.parametrize("case", first_fast(MISCOUNTS, 2))
def test_a_known_way_of_miscounting_is_a_finding(case: str, tmp_path: Path) -> None:
    name, value, words = MISCOUNTS[case]
    steps = run_rows(seed=2)
    diagnosis = judged(tmp_path / "run", steps, changed(log_of(steps), steps, name, value))
    (finding,) = findings(diagnosis)
    assert finding.severity is (Severity.HIGH if name == RATIO else Severity.MEDIUM)
    assert finding.evidence["logged_as"] == name
    row = audited(diagnosis, name)
    assert (row.agreement, row.finding) == (Agreement.DIFFERS, RULE.id)
    assert words in finding.claim or "times the rows" in finding.claim or "by the rows" in finding.claim
    right = log_of(steps)[name]
    assert row.recomputed == pytest.approx(sorted(right)[len(right) // 2], rel=0.2)


def test_a_miscount_that_begins_later_has_its_step(tmp_path: Path) -> None:
    steps = run_rows(seed=3)
    log = changed(log_of(steps), steps, "entropy", padded, since=FIRST_OFF)
    (finding,) = findings(judged(tmp_path / "run", steps, log))
    assert finding.onset_step == FIRST_OFF
    assert finding.onset_interval == (FIRST_OFF, FIRST_OFF)
    assert "counts padding from step 8 on" in finding.claim


def test_a_metric_that_stops_agreeing_is_a_finding_where_others_go_on(tmp_path: Path) -> None:
    steps = run_rows(seed=4)
    noise = iter(range(1, 99))
    log = changed(log_of(steps), steps, "kl", lambda rows: 0.3 + next(noise) ** 0.5, since=FIRST_OFF)
    (finding,) = findings(judged(tmp_path / "run", steps, log))
    assert finding.onset_step == FIRST_OFF
    assert "kl is not what the rows give from step 8 on" in finding.claim


def test_a_metric_that_no_way_gives_is_told_and_is_no_finding(tmp_path: Path) -> None:
    steps = run_rows(seed=5)
    odd = iter(0.1 + 0.013 * at**1.7 for at in range(1, 99))
    diagnosis = judged(tmp_path / "run", steps, changed(log_of(steps), steps, "kl", lambda rows: next(odd)))
    row = audited(diagnosis, "kl")
    assert row.agreement is Agreement.DIFFERS
    assert row.said.startswith("none of the usual; the nearest is")
    assert not findings(diagnosis)


def test_rows_of_another_step_are_a_finding_where_other_metrics_are_of_their_own(tmp_path: Path) -> None:
    steps = run_rows(seed=6)
    log = log_of(steps)
    late = {**log, "entropy": [*log["entropy"][1:], log["entropy"][0]]}
    (finding,) = findings(judged(tmp_path / "run", steps, late))
    assert "entropy is that of the step after" in finding.claim


HALVES = {
    "every other row": pl.int_range(pl.len()).over("step") % 2 == 0,
    "one of two ranks": pl.int_range(pl.len()).over("step") < 4,
    "half of the rows from a step on": (pl.col("step") < FIRST_OFF) | (pl.int_range(pl.len()).over("step") < 4),
}


@pytest.mark.parametrize("kept", first_fast(HALVES))
def test_a_part_of_each_batch_is_accused_of_nothing(kept: str, tmp_path: Path) -> None:
    steps = run_rows(seed=7)
    diagnosis = judged(tmp_path / "run", steps, log_of(steps), kept=HALVES[kept])
    assert not findings(diagnosis)
    of_metrics = [row for row in diagnosis.audit or () if row.quantity != "advantage"]
    wrong = [row for row in of_metrics if row.agreement is Agreement.DIFFERS]
    assert not wrong
    row = audited(diagnosis, "kl")
    assert row.agreement is Agreement.NOT_CHECKABLE
    assert "they may be a part of each batch" in row.reason


def test_steps_left_out_of_the_dump_change_nothing(tmp_path: Path) -> None:
    steps = run_rows(seed=8, steps=40)
    diagnosis = judged(tmp_path / "run", steps, log_of(steps), kept=pl.col("step") % 4 == 0)
    row = audited(diagnosis, "kl")
    assert (row.agreement, row.steps, row.agreeing) == (Agreement.AGREES, 10, 10)
    assert not findings(diagnosis)


def test_a_log_of_every_fifth_step_is_the_mean_of_the_five(tmp_path: Path) -> None:
    steps = run_rows(seed=9, steps=40)
    log = {
        name: [mean(values[at - 4 : at + 1]) if at % 5 == 4 else float("nan") for at in range(40)]
        for name, values in log_of(steps).items()
    }
    row = audited(judged(tmp_path / "run", steps, log), "entropy")
    assert row.agreement is Agreement.AGREES, row
    assert "mean of the 5 steps up to it" in row.said


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    steps = [[{**row, "ref_logp": None} for row in rows] for rows in run_rows(seed=10)]
    log = log_of(run_rows(seed=10))
    row = audited(judged(tmp_path / "run", steps, log), "kl")
    assert (row.agreement, row.missing) == (Agreement.NOT_CHECKABLE, ("ref_logp",))


def test_without_tokens_nothing_is_judged_and_sound_metrics_are_healthy(tmp_path: Path) -> None:
    verdict = RULE.run(evidence_of(metrics={"kl/ref": [0.1] * 20}))
    assert isinstance(verdict, NotJudged)
    steps = run_rows(seed=11)
    diagnosis = judged(tmp_path / "run", steps, log_of(steps))
    assert RULE.id in [one.id for one in diagnosis.healthy]
