"""A baseline of three sound seeds: what it takes, what it can bound, and what a sound or a worse fourth gets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from measured_runs import baseline_with, curves_at, with_tails
from scipy import stats

from benchmarks.seed_stability import raise_late_tail
from ptt.diagnostics.gate.against_baseline import against
from ptt.diagnostics.gate.baseline.measure import NOTHING_SAID, refusals
from ptt.diagnostics.gate.baseline.tails import reach
from ptt.diagnostics.gate.baseline.values import Baseline, BaselineComparison, Figures
from ptt.diagnostics.model import (
    Aggregates,
    Answer,
    Diagnosis,
    Healthy,
    Link,
    Run,
    RunVerdict,
    Signature,
    Status,
)
from ptt.diagnostics.statistics.group_difference import SeedPrior, f_survival, shrunk_prior
from ptt.diagnostics.statistics.tail_curves import SPAN_COUNT

LATE = np.arange(SPAN_COUNT) >= 8


def seed(name: str, late: float = 1.0, *, noise: float = 0.05, tokens: int = 4000) -> Figures:
    """A run whose post-tool p99 is 1 nat, and `late` times that in its last third."""
    return with_tails(name, curves_at(np.where(LATE, late, 1.0) / 2, noise=noise, tokens=tokens))


def late_tail(run: Figures, baseline: Baseline) -> BaselineComparison:
    return next(one for one in against(run, baseline) if one.id == "tails.post_tool.late")


def raised(run: Figures, factor: float) -> Figures:
    lift = np.where(LATE, math.log(factor), 0.0)
    return replace(run, tails=tuple(replace(curve, log_value=curve.log_value + lift) for curve in run.tails))


def test_a_run_of_the_baseline_is_not_failed_by_a_spread_that_the_baseline_itself_shows() -> None:
    wide = baseline_with(seed("a"), seed("b", 1.1), seed("c", 2.8))
    found = late_tail(wide.runs[2], wide)
    assert found.outcome == "passed"
    assert "the seeds lie a log-SD of 0.568 apart, not the 0.11 assumed" in found.words
    assert found.extra["seeds_apart"] == pytest.approx(np.log([1, 1.1, 2.8]).std(ddof=1), rel=0.02)


def test_seeds_that_spread_wide_and_are_noisy_pass_each_other_and_a_fourth() -> None:
    wide = baseline_with(*[seed(name, late, noise=0.5) for name, late in (("a", 1), ("b", 1.1), ("c", 2.8))])
    assert {late_tail(run, wide).outcome for run in (*wide.runs, seed("d", 1.2, noise=0.5))} == {"passed"}


def test_a_spread_that_was_assumed_changes_nothing_and_is_not_told() -> None:
    usual = baseline_with(seed("a"), seed("b", 1.05), seed("c", 1.1))
    assert late_tail(seed("d", 2.8), usual).outcome == "failed"
    found = late_tail(seed("e"), usual)
    assert found.extra["seeds_apart"] is None
    assert "log-SD" not in found.words


@pytest.mark.parametrize(
    ("seeds", "tokens", "late", "outcome"),
    [
        (3, 4000, 1.25, "passed"),
        (3, 1500, 1.25, "blind"),  # it records too little, whatever the baseline could bound
        (2, 4000, 1.25, "blind"),  # a third seed tells what their spread is
        (3, 4000, 4.0, "failed"),
    ],
)
def test_a_sound_fourth_passes_with_what_three_seeds_can_bound(
    seeds: int, tokens: int, late: float, outcome: str
) -> None:
    noisy = baseline_with(*[seed(f"{number}", 1 + 0.1 * number, noise=0.4) for number in range(seeds)])
    found = late_tail(seed("fourth", late, noise=0.4, tokens=tokens), noisy)
    assert found.outcome == outcome
    if outcome == "passed":
        assert "3 seeds cannot exclude 1.6 times here" in found.words
    if outcome == "blind":
        assert ("add a third seed" in found.next[0]) == (seeds == 2)


@pytest.mark.parametrize("level", [0.2, 1.0, 2.0])
def test_a_tail_as_high_as_is_said_to_fail_fails_and_one_well_below_does_not(level: float) -> None:
    """Below the floor too, where a tail must first rise to it."""
    a, b, c, fourth = (
        with_tails(name, curves_at(np.full(SPAN_COUNT, level * by / 2)))
        for name, by in (("a", 1.0), ("b", 1.1), ("c", 0.9), ("d", 1.0))
    )
    baseline = baseline_with(a, b, c)
    found = late_tail(fourth, baseline)
    factor = found.extra["fails_from"]
    assert isinstance(factor, float)
    assert f"a tail {factor:g} times as high as this would fail" in found.words
    assert late_tail(raised(fourth, factor), baseline).outcome == "failed"
    assert late_tail(raised(fourth, factor / 1.5), baseline).outcome != "failed"


def test_a_baseline_says_what_it_can_bound() -> None:
    narrow = reach(baseline_with(seed("a"), seed("b"), seed("c")))
    wide = reach(baseline_with(seed("a"), seed("b", 1.1), seed("c", 2.8)))
    assert [(one.window, one.open, one.apart) for one in narrow] == [("all", (), None), ("late", (), None)]
    late = wide[1]
    assert late.open == ("p95", "p99")
    assert late.apart == pytest.approx(0.57, abs=0.01)
    assert late.fails_from is not None
    assert narrow[1].fails_from is not None
    assert late.fails_from > narrow[1].fails_from


@pytest.mark.parametrize("variance", [0.001, 0.02, 0.05, 0.4])
@pytest.mark.parametrize("freedom", [1, 2, 4])
def test_a_prior_is_moved_where_an_f_test_contradicts_it(variance: float, freedom: int) -> None:
    prior = SeedPrior(sd=0.1, freedom=8.0)
    p_value = float(stats.f.sf(variance / 0.01, freedom, 8))
    assert f_survival(variance / 0.01, freedom, 8.0) == pytest.approx(p_value)
    moved = (2 * 0.01 + freedom * variance) / (2 + freedom)
    assert shrunk_prior(prior, variance, freedom).sd == pytest.approx(math.sqrt(moved) if p_value < 0.05 else 0.1)
    assert shrunk_prior(prior, variance, 0) is prior


def test_a_run_whose_verdict_cannot_be_said_is_taken_where_rules_judged_it() -> None:
    judged = (Healthy(id="entropy-collapse", link=Link.EXPLORATION, reason="it stays"),)
    assert refusals(unsure(judged)) == ()
    assert refusals(unsure(())) == (NOTHING_SAID,)


def unsure(healthy: Sequence[Healthy]) -> Diagnosis:
    nothing = Aggregates(status="cannot_say", metrics={}, alarms={})
    return Diagnosis(
        run=Run(name="run", framework="trl", algorithm=None, first_step=1, last_step=99, step_count=99, sequences=9,
                model_tokens=99),
        verdict=RunVerdict(status=Status.CANNOT_SAY, headline="", first_broken_link=None, next=()),
        signature=Signature(status=Answer.CANNOT_SAY, reason="too noisy", pair="policy/ref", aggregates=nothing),
        findings=(), healthy=tuple(healthy), not_judged=(), crashes=(), sources=(), tables={},
    )  # fmt: skip


def test_a_late_tail_is_raised_in_a_copy_and_nothing_else(tmp_path: Path) -> None:
    rows = {
        "step": [1, 9],
        "model_mask": [[True, False, False, True, True]] * 2,
        "policy_logp": [[-1.0, 0.0, 0.0, -2.0, -0.5]] * 2,
        "old_logp": [[-1.1, 0.0, 0.0, -2.1, -0.6]] * 2,
        "ref_logp": [[-1.5, 0.0, 0.0, -1.0, -0.75]] * 2,
    }
    run = tmp_path / "run"
    (run / "tokens").mkdir(parents=True)
    pl.DataFrame(rows).write_parquet(run / "tokens" / "step_000001.parquet")
    raise_late_tail(run, tmp_path / "copy", factor=3.0, first=5)
    found = pl.read_parquet(tmp_path / "copy" / "tokens" / "step_000001.parquet")
    policy = np.array(found["policy_logp"].to_list())
    r = {name: policy - np.array(found[name].to_list()) for name in ("old_logp", "ref_logp")}
    assert r["ref_logp"].tolist() == [[0.5, 0, 0, -1, 0.25], [0.5, 0, 0, -3, 0.75]]
    assert r["old_logp"] == pytest.approx(np.array([[0.1, 0, 0, 0.1, 0.1]] * 2), abs=1e-6)
    assert max(map(max, found["ref_logp"].to_list())) <= 0
