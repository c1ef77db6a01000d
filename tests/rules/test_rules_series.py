"""Series: what of a metric counts, and from when on it lies above a limit for good."""

from __future__ import annotations

import math

import numpy as np
import pytest
from builders import series_of

from ptt.diagnostics.evidence.series import excess_interval

NAN = math.nan


def test_only_finite_values_count_and_keep_their_steps() -> None:
    steps, values = series_of("kl/ref", [1.0, NAN, math.inf, 4.0], steps=[10, 20, 30, 40]).finite()
    assert steps.tolist() == [10, 40]
    assert values.tolist() == [1.0, 4.0]


@pytest.mark.parametrize(("count", "width"), [(10, 5), (15, 5), (30, 10), (60, 20), (1000, 20)])
def test_a_window_is_a_third_of_a_short_run_and_at_most_twenty_values(count: int, width: int) -> None:
    assert series_of("kl/ref", np.ones(count)).width == width
    assert series_of("kl/ref", np.r_[np.ones(count), np.full(50, NAN)]).width == width


def test_an_excess_starts_where_mean_and_half_of_the_values_lie_above() -> None:
    values = np.r_[np.zeros(50), np.ones(50)]
    series = series_of("kl/ref", values)
    assert series.excess(0.3) == 60  # ten of the last twenty
    assert series.excess(0.7) == 65  # the mean passes 0.7 with 15 of them
    assert series.excess(1.0) is None


def test_a_single_wild_value_is_no_excess_however_large() -> None:
    values = np.zeros(100)
    values[50] = 1e9
    assert series_of("kl/ref", values).excess(0.3) is None


def test_a_burst_shorter_than_half_a_window_is_no_excess() -> None:
    values = np.zeros(100)
    values[40:49] = 5.0
    assert series_of("kl/ref", values).excess(0.3) is None


def test_values_that_are_above_half_of_the_time_for_one_window_only_are_no_excess() -> None:
    values = np.zeros(100)
    values[40:60:2] = 5.0
    assert series_of("kl/ref", values).excess(0.3) is None
    values[40:100:2] = 5.0
    assert series_of("kl/ref", values).excess(0.3) == 59


def test_an_excess_is_found_at_the_step_it_was_logged_at() -> None:
    values = np.r_[np.zeros(50), np.ones(50)]
    series = series_of("kl/ref", values, steps=[10 * place for place in range(100)])
    assert series.excess(0.3) == 590


def test_rolling_mean_and_median_are_those_of_the_finite_values() -> None:
    values = np.random.default_rng(1).normal(size=40)
    holed = np.insert(values, [3, 17, 30], NAN)
    series = series_of("kl/ref", holed)
    steps, mean = series.rolling()
    assert steps.tolist() == [place + 1 for place in range(43) if math.isfinite(holed[place])]
    assert np.isnan(mean[:4]).all()
    assert mean[-1] == pytest.approx(values[-series.width :].mean())
    assert series.rolling_median()[-1] == np.median(values[-series.width :])
    assert len(series.rolling_median()) == 40 - series.width + 1


def test_an_interval_is_given_even_of_fewer_values_than_a_window_has() -> None:
    series = series_of("kl/ref", [0.1, 0.2, 0.9])
    low, high = excess_interval(series, 0.5, 3)
    assert 1 <= low <= 3 <= high
