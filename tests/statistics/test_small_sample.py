"""The change over a few points, against least squares by another road, and on noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from builders import repeatable
from hypothesis import given
from hypothesis import strategies as st

from ptt.diagnostics.statistics.small_sample import MIN_POINTS, STEP_FACTOR, T975, T999, estimate_change

levels = st.floats(-1e3, 1e3).map(lambda value: round(value, 6))


@repeatable
@given(st.lists(levels, min_size=MIN_POINTS, max_size=24))
def test_the_line_is_that_of_least_squares(values: list[float]) -> None:
    found = estimate_change(np.array(values))
    assert found is not None
    slope = np.polyfit(np.arange(len(values)), values, 1)[0]
    assert found.amount == pytest.approx(slope * (len(values) - 1), abs=1e-6)
    assert found.error >= 0
    assert found.lowest <= found.amount <= found.highest


@repeatable
@given(st.lists(levels, min_size=MIN_POINTS, max_size=40), st.floats(0.1, 10), levels)
def test_the_change_follows_scale_and_place(values: list[float], scale: float, place: float) -> None:
    one, other = estimate_change(np.array(values)), estimate_change(np.array(values) * scale + place)
    assert one is not None
    assert other is not None
    assert other.amount == pytest.approx(one.amount * scale, abs=1e-6)


def test_percentiles_are_those_of_student() -> None:
    stats = pytest.importorskip("scipy.stats")
    assert pytest.approx([stats.t.ppf(0.975, df) for df in range(1, 23)], rel=2e-3) == list(T975)
    assert pytest.approx([stats.t.ppf(0.999, df) for df in range(1, 23)], rel=2e-3) == list(T999)


def test_fewer_than_six_points_and_missing_ones_do_not_count() -> None:
    assert estimate_change(np.arange(5.0)) is None
    assert estimate_change(np.array([1, 2, 3, 4, 5, math.nan])) is None
    assert estimate_change(np.array([1, 2, math.nan, 3, 4, 5, 6, math.inf])) is not None


@pytest.mark.parametrize("count", [6, 12, 40])
def test_noise_rarely_moves(count: int) -> None:
    generator = np.random.default_rng(count)
    sure = [estimate_change(generator.normal(size=count)) for _ in range(2000)]
    assert sum(found is not None and found.significant_sign != 0 for found in sure) <= 20


def test_a_step_that_no_line_fits_is_a_sure_rise() -> None:
    noise = np.random.default_rng(3).normal(size=24) * 0.01
    found = estimate_change(np.where(np.arange(24) < 12, 0.5, 0.8) + noise)
    assert found is not None
    assert found.significant_sign == 1
    turned = estimate_change(np.where(np.arange(24) < 12, 0.8, 0.5) + noise)
    assert turned is not None
    assert turned.significant_sign == -1


@pytest.mark.parametrize("count", [12, 24])
def test_noise_that_follows_itself_is_rarely_a_step(count: int) -> None:
    generator = np.random.default_rng(count)
    steps = 0
    for _ in range(1000):
        values = generator.normal(size=count)
        for place in range(1, count):
            values[place] = 0.8 * values[place - 1] + 0.6 * values[place]
        found = estimate_change(values)
        assert found is not None
        steps += abs(found.late - found.early) > STEP_FACTOR * found.noise
    assert steps <= 5
