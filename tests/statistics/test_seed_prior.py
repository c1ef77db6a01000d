"""What is known beforehand of how far seeds lie apart: Student's predictive interval, and more seeds that tell more."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from builders import repeatable
from hypothesis import given
from hypothesis import strategies as st
from measured_runs import curves_at
from scipy import stats

from ptt.diagnostics.statistics.autocorrelated_mean import WindowMean
from ptt.diagnostics.statistics.group_difference import SeedPrior, group_difference, hommel_adjust, simes
from ptt.diagnostics.statistics.noninferiority import (
    SEED_PRIORS,
    compare_percentiles,
    decide_percentiles,
    joint_p_value,
    noninferiority_test,
)
from ptt.diagnostics.statistics.tail_curves import SPAN_COUNT, Curve

P_VALUES = st.lists(st.floats(0, 1) | st.just(math.nan), max_size=6)
PRIOR = SeedPrior(sd=0.1, freedom=8.0)


def seed(level: float, *, noise: float = 0.002) -> Curve:
    """A run whose p99 lies at `level` (log) all along, with next to no noise of its own."""
    return curves_at(np.full(SPAN_COUNT, math.exp(level)), noise=noise)[1]


@pytest.mark.parametrize("levels", [(0.0,), (0.05, -0.05), (0.1, -0.15, 0.05), (0.3, -0.3, 0.1, -0.2, 0.1)])
def test_seeds_alone_give_students_predictive_interval(levels: tuple[float, ...]) -> None:
    """Closed form: a normal sample under a scaled inverse chi-squared prior of its variance (Gelman et al., 3.3)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ptt.diagnostics.statistics.noninferiority.PERSISTENT_SHARES", (1.0,))
        patch.setattr("ptt.diagnostics.statistics.noninferiority.STEP_NOISE_SDS", (0.001,))
        found = noninferiority_test([seed(0.2)], [seed(level) for level in levels], floor=None, seeds=PRIOR)
    count = len(levels)
    squares = float(np.square(np.array(levels) - np.mean(levels)).sum())
    freedom = PRIOR.freedom + count - 1
    scale = math.sqrt((PRIOR.freedom * PRIOR.sd**2 + squares) / freedom * (1 + 1 / count))
    ahead = 0.2 - float(np.mean(levels))
    assert math.log(found.ratio) == pytest.approx(ahead, abs=0.002)
    assert math.log(found.high) == pytest.approx(ahead + stats.t.ppf(0.975, freedom) * scale, rel=0.03)
    assert found.p_value == pytest.approx(float(stats.t.sf(ahead / scale, freedom)), rel=0.05)


def test_more_seeds_that_lie_alike_never_tell_less() -> None:
    highs, p_values = [], []
    for count in (1, 2, 3, 5, 8):
        levels = 0.08 * np.linspace(-1, 1, count) if count > 1 else [0.0]
        same = noninferiority_test([seed(0.0)], [seed(float(level)) for level in levels], floor=None, seeds=PRIOR)
        larger = noninferiority_test([seed(0.47)], [seed(float(level)) for level in levels], floor=None, seeds=PRIOR)
        highs.append(same.high)
        p_values.append(larger.p_value)
    assert highs == sorted(highs, reverse=True)
    assert p_values == sorted(p_values, reverse=True)


def test_seeds_that_lie_far_apart_overrule_the_prior() -> None:
    near, far = (
        noninferiority_test([seed(0.47)], [seed(by), seed(0.0), seed(-by)], floor=None, seeds=PRIOR)
        for by in (0.05, 0.6)
    )
    assert near.p_value < 0.005
    assert far.p_value > 0.05


def test_a_p99_that_grew_is_not_diluted_by_a_p95_below_its_floor() -> None:
    """p99 at 1.76 nats against 0.5, p95 at 0.18 against 0.13: what one figure of both would call 1.6 times."""
    levels = np.full(SPAN_COUNT, 1.0)
    quiet = [
        replace(curve, log_value=np.log(levels * by)) for curve, by in zip(curves_at(levels), (0.13, 0.5), strict=True)
    ]
    grown = [
        replace(curve, log_value=np.log(levels * by)) for curve, by in zip(curves_at(levels), (0.18, 1.76), strict=True)
    ]
    (found,) = compare_percentiles([grown], [quiet] * 2, windows=("late",))
    decided = decide_percentiles(found)
    assert decided == {"p95": "not_worse", "p99": "worse"}
    assert found["p95"].ratio == pytest.approx(1.0, abs=0.01)
    assert found["p99"].ratio == pytest.approx(1.76 / math.log(2), rel=0.02)
    assert joint_p_value(found) == pytest.approx(2 * found["p99"].p_value)


def test_each_percentile_has_a_prior_of_its_own() -> None:
    levels = np.full(SPAN_COUNT, 2.0)
    (found,) = compare_percentiles([curves_at(levels)], [curves_at(levels)], windows=("all",))
    widths = {name: math.log(one.high / one.low) for name, one in found.items()}
    assert SEED_PRIORS["p99"].sd < SEED_PRIORS["p95"].sd
    assert widths["p99"] < widths["p95"]


@repeatable
@given(P_VALUES)
def test_simes_is_the_least_of_what_benjamini_and_hochberg_adjust(p_values: list[float]) -> None:
    known = [p for p in p_values if not math.isnan(p)]
    if known:
        assert simes(p_values) == pytest.approx(float(stats.false_discovery_control(known).min()))
    else:
        assert math.isnan(simes(p_values))


@repeatable
@given(P_VALUES)
def test_hommel_is_the_closed_test_by_simes(p_values: list[float]) -> None:
    """By brute force: the largest Simes p-value of all subsets that hold a test."""
    found = hommel_adjust(p_values)
    asked = [place for place, p in enumerate(p_values) if not math.isnan(p)]
    for place, p in enumerate(p_values):
        if math.isnan(p):
            assert math.isnan(found[place])
            continue
        subsets = [
            part for size in range(1, len(asked) + 1) for part in itertools.combinations(asked, size) if place in part
        ]
        wanted = max(simes([p_values[other] for other in part]) for part in subsets)
        assert found[place] == pytest.approx(min(1.0, wanted), abs=1e-12)


def test_metrics_of_one_seed_know_what_the_prior_knows() -> None:
    def run(mean: float) -> WindowMean:
        return WindowMean(mean=mean, error=0.0, freedom=20.0, n=40, scatter=1.0)

    for others in ((1.0,), (0.9, 1.1), (0.9, 1.1, 1.3)):
        found = group_difference([run(1.5)], [run(mean) for mean in others], seeds=PRIOR)
        squares = float(np.square(np.array(others) - np.mean(others)).sum())
        freedom = PRIOR.freedom + len(others) - 1
        scale = math.sqrt((PRIOR.freedom * PRIOR.sd**2 + squares) / freedom * (1 + 1 / len(others)))
        assert found.freedom == pytest.approx(freedom)
        assert found.p_higher() == pytest.approx(float(stats.t.sf((1.5 - np.mean(others)) / scale, freedom)))
