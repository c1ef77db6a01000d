"""Two groups of runs: Welch's test for single runs, spread between seeds by hand, Holm by brute force."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from builders import repeatable
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ptt.diagnostics.statistics.autocorrelated_mean import WindowMean
from ptt.diagnostics.statistics.group_difference import SeedPrior, group_difference, holm_adjust


def run(mean: float, error: float = 0.1, freedom: float = 20.0) -> WindowMean:
    return WindowMean(mean=mean, error=error, freedom=freedom, n=40, scatter=1.0)


def test_two_single_runs_are_welchs_test() -> None:
    found = group_difference([run(1.3, 0.2, 11)], [run(0.9, 0.1, 30)])
    wanted = stats.ttest_ind_from_stats(
        1.3, 0.2 * math.sqrt(12), 12, 0.9, 0.1 * math.sqrt(31), 31, equal_var=False, alternative="greater"
    )
    assert found.p_higher() == pytest.approx(wanted.pvalue, rel=1e-9)
    assert found.p_lower() == pytest.approx(1 - wanted.pvalue, rel=1e-9)
    assert found.between == 0.0
    low, high = found.interval()
    half = stats.t.isf(0.025, found.freedom) * math.hypot(0.2, 0.1)
    assert (low, high) == pytest.approx((0.4 - half, 0.4 + half))


def test_spread_of_three_seeds_is_counted() -> None:
    means = np.array([1.0, 1.3, 0.8])
    found = group_difference([run(2.0)], [run(mean) for mean in means])
    between = means.var(ddof=1) - 0.1**2
    assert found.difference == pytest.approx(2.0 - means.mean())
    assert found.between == pytest.approx(math.sqrt(between), rel=0.01)
    assert found.error == pytest.approx(math.sqrt(0.01 + 0.01 / 3 + between * (1 + 1 / 3)), rel=0.01)


def test_seeds_that_lie_as_close_as_their_noise_add_nothing() -> None:
    found = group_difference([run(1.0)], [run(1.0), run(1.0)])
    assert found.between == 0.0
    assert found.error == pytest.approx(math.sqrt(0.01 + 0.005))


@pytest.mark.parametrize("between", [0.0, 0.1, 0.15])
@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_seeds_of_one_setting_seldom_differ(between: float, seeds: int) -> None:
    rng = np.random.default_rng(11)

    def drawn() -> WindowMean:
        return run(float(rng.normal() * math.hypot(0.1, between)))

    prior = SeedPrior(sd=0.1, freedom=6.0)
    alarms = [
        group_difference([drawn()], [drawn() for _ in range(seeds)], seeds=prior).p_higher() < 0.01 for _ in range(3000)
    ]
    assert np.mean(alarms) < 0.03  # where seeds lie further apart than the prior has it, up to three times


def test_swapping_the_sides_turns_the_sign() -> None:
    ones, others = [run(1.0), run(1.4)], [run(2.0, 0.3), run(2.2, 0.2), run(1.9)]
    there, back = group_difference(ones, others), group_difference(others, ones)
    assert there.difference == pytest.approx(-back.difference)
    assert there.p_higher() == pytest.approx(back.p_lower())
    assert there.interval() == pytest.approx(tuple(-edge for edge in reversed(back.interval())))


def test_what_is_not_known_is_never_small() -> None:
    found = group_difference([run(1.0, math.nan)], [run(5.0)])
    assert math.isnan(found.p_lower())
    assert found.interval() == (-math.inf, math.inf)
    assert math.isnan(group_difference([run(math.nan)], [run(5.0)]).p_lower())


def test_without_noise_any_difference_is_one() -> None:
    found = group_difference([run(1.0, 0.0)], [run(2.0, 0.0)])
    assert (found.p_higher(), found.p_lower()) == (1.0, 0.0)
    assert found.interval() == (-1.0, -1.0)
    assert group_difference([run(1.0, 0.0)], [run(1.0, 0.0)]).p_lower() == 1.0


@repeatable
@given(st.lists(st.floats(0, 1) | st.just(math.nan), max_size=8))
def test_holm_is_the_step_down(p_values: list[float]) -> None:
    found = holm_adjust(p_values)
    asked = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    for limit in (0.001, 0.01, 0.05, 0.5):
        refused = set()
        for done, (p, place) in enumerate(asked):
            if p * (len(asked) - done) > limit:
                break
            refused.add(place)
        assert {place for place, p in enumerate(found) if p <= limit} == refused
    assert [math.isnan(p) for p in found] == [math.isnan(p) for p in p_values]
    assert all(found[a] <= found[b] for (_, a), (_, b) in pairwise(asked))
