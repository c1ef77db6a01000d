"""Statistics of a stretch of logged values, against numpy, scipy and simulated noise."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy import signal, stats

from ptt.diagnostics.evidence.baseline_shift import step_noise
from ptt.diagnostics.statistics.autocorrelated_mean import PERCENTILES, STATISTICS, Summary, min_values, summarize

Array = npt.NDArray[np.float64]
VALUES = np.random.default_rng(5).lognormal(size=90)
STEPS = np.arange(90.0) * 2 + 7


def of(
    statistic: str, values: Array = VALUES, steps: Array = STEPS, *, spread: float = 1.0, ar1: float = 0.0
) -> Summary:
    found = summarize(steps, values, statistic, spread=spread, ar1=ar1)
    assert isinstance(found, Summary)
    return found


def test_values_are_those_of_numpy_and_scipy() -> None:
    assert of("mean").value == pytest.approx(VALUES.mean())
    for name, q in PERCENTILES.items():
        assert of(name).value == pytest.approx(np.quantile(VALUES, q))
    assert of("change").value == pytest.approx(VALUES[-30:].mean() - VALUES[:30].mean())
    assert of("ratio").value == pytest.approx(VALUES[-30:].mean() / VALUES[:30].mean())
    assert of("slope").value == pytest.approx(stats.linregress(STEPS, VALUES).slope)


def test_intervals_of_independent_noise_are_the_textbooks() -> None:
    sd = 1.3
    mean = of("mean", spread=sd)
    assert mean.high - mean.value == pytest.approx(1.96 * sd / math.sqrt(90), rel=1e-3)
    slope = of("slope", spread=sd)
    assert slope.high - slope.value == pytest.approx(1.96 * sd / (STEPS.std() * math.sqrt(90)), rel=1e-3)
    few = summarize(STEPS[:12], VALUES[:12], "mean", spread=sd, ar1=0.0)
    assert isinstance(few, Summary)
    assert few.high - few.value == pytest.approx(stats.t.ppf(0.975, 10) * sd / math.sqrt(12), rel=5e-3)


@pytest.mark.parametrize("ar1", [0.3, 0.8])
@pytest.mark.parametrize("statistic", ["mean", "median", "p90", "change", "slope"])
def test_intervals_hold_the_truth_where_steps_follow_one_another(statistic: str, ar1: float) -> None:
    """AR(1) noise about a level; spread and AR(1) are measured on the whole run, of which a third is summed up."""
    generator = np.random.default_rng(11)
    window, held, runs = 100, 0, 500
    truth = stats.norm.ppf(0.9) if statistic == "p90" else 0.0
    for _ in range(runs):
        shocks = generator.standard_normal(3 * window + 200) * math.sqrt(1 - ar1**2)
        run = signal.lfilter([1.0], [1.0, -ar1], shocks)[200:]
        spread, like = step_noise(run)
        found = of(statistic, run[-window:], np.arange(float(window)), spread=spread, ar1=like)
        held += found.low <= truth <= found.high
    assert held / runs >= 0.9


def test_an_end_that_no_value_reaches_is_open() -> None:
    found = of("p95", VALUES[:40], STEPS[:40], ar1=0.8)
    assert found.high == math.inf
    assert math.isfinite(found.low)


def test_one_wild_value_decides_no_statistic_that_stands_near_an_end() -> None:
    for statistic in ("p05", "p95", "p10", "p90"):
        count = min_values(statistic)
        calm = np.linspace(1.0, 2.0, count)
        for wild in (1e9, -1e9):
            found = of(statistic, np.append(calm[:-1], wild), np.arange(float(count)))
            assert 0.9 < found.value < 2.1


@pytest.mark.parametrize("statistic", STATISTICS)
def test_too_few_values_are_said(statistic: str) -> None:
    least = min_values(statistic)
    told = summarize(STEPS[: least - 1], VALUES[: least - 1], statistic, spread=1.0, ar1=0.0)
    assert told == f"{least - 1} finite values are logged there; {least} are needed for this"
    assert isinstance(summarize(STEPS[:least], VALUES[:least], statistic, spread=1.0, ar1=0.0), Summary)


def test_a_ratio_to_nothing_is_refused_and_one_of_nothing_is_zero() -> None:
    early = np.concatenate([np.zeros(30), np.ones(60)])
    assert isinstance(summarize(STEPS, early, "ratio", spread=1.0, ar1=0.0), str)
    assert of("ratio", early[::-1].copy(), spread=0.1).value == 0.0


def test_values_without_noise_have_no_interval_to_speak_of() -> None:
    found = of("mean", np.full(90, 0.3), spread=0.0)
    assert found.low == found.value == found.high == pytest.approx(0.3)
