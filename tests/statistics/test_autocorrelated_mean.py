"""The mean of a stretch of logged values: as numpy and scipy have it, and honest under noise that follows itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import signal, stats
from slow_cases import first_fast

from ptt.diagnostics.statistics import autocorrelated_mean
from ptt.diagnostics.statistics.autocorrelated_mean import (
    MIN_MEAN_VALUES,
    MeanEstimate,
    between_seed_variance,
    estimate_means,
    pool_seeds,
    subtract_means,
)


def noise(count: int, likeness: float, seed: int) -> np.ndarray:
    white = np.random.default_rng(seed).normal(size=count + 100)
    found: np.ndarray = signal.lfilter([1.0], [1.0, -likeness], white)[100:]
    return found


@pytest.mark.parametrize(
    ("count", "likeness", "least"), first_fast([(40, 0.0, 0.92), (80, 0.4, 0.92), (120, 0.8, 0.9), (26, 0.8, 0.86)])
)
def test_the_interval_holds_the_true_mean_as_often_as_it_says(count: int, likeness: float, least: float) -> None:
    held = 0
    for seed in range(300):
        low, high = estimate_means(np.array_split(noise(3 * count, likeness, seed), 3))[1].bounds()
        held += low <= 0 <= high
    assert least <= held / 300 <= 0.995


def test_of_white_noise_the_error_is_near_the_textbook_one() -> None:
    found = [estimate_means([noise(24, 0.0, seed)])[0] for seed in range(200)]
    expected = [float(stats.sem(noise(24, 0.0, seed))) for seed in range(200)]
    assert np.mean([level.error for level in found]) == pytest.approx(np.mean(expected), rel=0.15)
    assert found[0].mean == pytest.approx(float(noise(24, 0.0, 0).mean()))


def test_a_trend_is_no_noise() -> None:
    flat = estimate_means([noise(100, 0.0, 1)])[0]
    trending = estimate_means([noise(100, 0.0, 1) + np.linspace(0, 50, 100)])[0]
    assert trending.error == pytest.approx(flat.error, rel=0.01)


def test_a_constant_and_a_schedule_are_known_exactly() -> None:
    constant, schedule = estimate_means([np.full(50, 0.2), np.linspace(1e-4, 0, 50)])
    assert constant == MeanEstimate(mean=0.2, error=0.0, freedom=48, noise=0.0, values=50)
    assert schedule.error == 0.0


def test_too_few_values_and_none_have_no_interval_and_are_no_zero() -> None:
    few, none = estimate_means([np.arange(MIN_MEAN_VALUES - 1.0), np.full(30, np.nan)])
    assert few.mean == pytest.approx((MIN_MEAN_VALUES - 2) / 2)
    assert math.isnan(few.error)
    assert math.isnan(few.bounds()[0])
    assert math.isnan(none.mean)
    assert none.values == 0


def test_a_difference_has_the_freedom_of_welch() -> None:
    one = MeanEstimate(mean=3.0, error=0.5, freedom=9, noise=1.0, values=10)
    other = MeanEstimate(mean=1.0, error=0.2, freedom=14, noise=1.0, values=15)
    expected = (0.5**2 + 0.2**2) ** 2 / (0.5**4 / 9 + 0.2**4 / 14)
    found = subtract_means(one, other)
    assert found.mean == 2.0
    assert found.error == pytest.approx(math.hypot(0.5, 0.2))
    assert found.freedom == int(expected)


def test_seeds_that_lie_apart_widen_the_interval_and_seeds_that_agree_do_not_narrow_it() -> None:
    def seed(mean: float) -> MeanEstimate:
        return MeanEstimate(mean=mean, error=0.1, freedom=20, noise=1.0, values=50)

    apart = [seed(1.0), seed(2.0), seed(3.0)]
    variance, freedom = between_seed_variance([apart])
    assert variance == pytest.approx(np.var([1.0, 2.0, 3.0], ddof=1))
    assert freedom == 2
    wide = pool_seeds(apart, variance, freedom)
    assert wide.error == pytest.approx(float(stats.sem([1.0, 2.0, 3.0])))
    assert wide.freedom == 2
    agreeing = [seed(2.0), seed(2.0), seed(2.0)]
    assert pool_seeds(agreeing, *between_seed_variance([agreeing])).error == pytest.approx(0.1 / math.sqrt(3))


def test_the_table_of_students_t_is_scipys() -> None:
    found = [float(stats.t.ppf(0.95, freedom)) for freedom in range(1, len(autocorrelated_mean.T95) + 1)]
    assert pytest.approx(found, abs=6e-4) == autocorrelated_mean.T95
