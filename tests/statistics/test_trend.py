"""Trends: the three answers on movement, rolling means, the first lasting excess."""

from __future__ import annotations

import math

import numpy as np
import pytest
from builders import Array, repeatable
from hypothesis import given
from hypothesis import strategies as st

from ptt.diagnostics.statistics.trend import (
    StepNoise,
    block_correlation,
    block_covariance,
    classify_trend,
    first_lasting_excess,
    rolling_mean,
    scan_shifts,
)


def moved(values: Array) -> str:
    return classify_trend(values)


def noise(seed: int, count: int = 240) -> Array:
    return np.random.default_rng(seed).normal(size=count)


def test_noise_about_a_level_is_flat_nearly_always() -> None:
    found = [moved(5.0 + noise(seed)) for seed in range(100)]
    assert found.count("flat") >= 97


def test_a_clear_rise_rose_and_a_clear_fall_fell() -> None:
    ramp = np.linspace(0, 8, 240)
    for seed in range(20):
        assert moved(ramp + noise(seed)) == "rose"
        assert moved(-ramp + noise(seed)) == "fell"


def test_a_step_up_rose() -> None:
    assert moved(np.repeat([0.0, 10.0], 120) + noise(1)) == "rose"


def test_a_jump_in_the_last_block_alone_cannot_be_told_from_a_trend() -> None:
    assert moved(np.repeat([0.0] * 11 + [1.0], 10)) == "cannot_say"


def test_too_few_values_cannot_say_and_nan_does_not_count() -> None:
    assert moved(noise(3, 23)) == "cannot_say"
    holed = np.concatenate([noise(3, 23), np.full(100, math.nan)])
    assert moved(holed) == "cannot_say"
    assert moved(np.full(60, math.nan)) == "cannot_say"


@pytest.mark.parametrize("count", [24, 25, 30, 41, 100])
@pytest.mark.parametrize("level", [0.0, 0.1, -1e-7, 1e9 / 3])
def test_a_constant_is_flat_whatever_its_last_bit(level: float, count: int) -> None:
    assert moved(np.full(count, level)) == "flat"


def test_a_movement_does_not_depend_on_the_unit() -> None:
    values = np.linspace(0, 3, 100) + noise(4, 100)
    assert {moved(scale * values + 7 * scale) for scale in (1e-6, 1.0, 1e6)} == {moved(values)}


floats = st.one_of(st.just(math.nan), st.just(math.inf), st.floats(-1e3, 1e3))


@repeatable
@given(st.lists(floats, max_size=30), st.integers(1, 12), st.one_of(st.none(), st.integers(1, 12)))
def test_a_rolling_mean_is_that_of_the_finite_ones_of_the_last_few(
    values: list[float], width: int, minimum: int | None
) -> None:
    found = rolling_mean(np.array(values), width, minimum=minimum)
    assert len(found) == len(values)
    for place in range(len(values)):
        held = [value for value in values[max(0, place - width + 1) : place + 1] if math.isfinite(value)]
        if place + 1 < (width if minimum is None else minimum) or not held:
            assert math.isnan(found[place])
        else:
            assert found[place] == pytest.approx(sum(held) / len(held), rel=1e-9, abs=1e-9)


def test_one_huge_value_leaves_no_trace_once_it_is_out_of_the_window() -> None:
    values = np.array([1e20, *[0.5] * 30])
    assert rolling_mean(values, 10)[-1] == 0.5
    assert values[0] == 1e20


def test_rows_are_averaged_as_each_is_alone() -> None:
    rows = np.exp(np.random.default_rng(3).normal(size=(7, 50)))
    rows[2, 10:14] = np.nan
    for width, minimum in ((1, None), (5, 1), (20, 5)):
        each = [rolling_mean(row, width, minimum=minimum) for row in rows]
        np.testing.assert_array_equal(rolling_mean(rows, width, minimum=minimum), each)


@repeatable
@given(st.lists(st.booleans(), max_size=20), st.sampled_from([0.5, 0.8, 1.0]))
def test_the_first_lasting_place_is_that_of_a_plain_search(exceeds: list[bool], share: float) -> None:
    wanted = next(
        (
            place
            for place in range(len(exceeds))
            if exceeds[place] and sum(exceeds[place:]) / len(exceeds[place:]) >= share
        ),
        None,
    )
    assert first_lasting_excess(np.array(exceeds, np.bool_), share=share) == wanted


def test_blocks_of_unequal_length_covary_as_the_means_of_their_steps_do() -> None:
    steps, likeness = np.array([1, 4, 2, 7]), 0.6
    apart = np.abs(np.subtract.outer(np.arange(14), np.arange(14)))
    means = np.repeat(np.eye(4), steps, axis=1) / steps[:, None]
    assert block_covariance(steps, likeness) == pytest.approx(means @ likeness**apart @ means.T)
    equal = block_covariance(np.full(3, 5), likeness)
    assert block_correlation(3, 5, likeness) == pytest.approx(equal / equal[0, 0])


@pytest.mark.parametrize("count", [6, 7, 8, 9, 20])
def test_a_shift_is_never_shown_by_two_blocks_against_two(count: int) -> None:
    """Ranks of two against two differ by 1.55 standard deviations at most, and no growth passes 1.645."""
    own, noise = np.full(count, np.nan), StepNoise(observations=np.ones(count, np.int64))
    for seed in range(20):
        values = np.random.default_rng(seed).normal(size=count)
        scan = scan_shifts(values, values[:1], [], own=own, noise=noise, most_own=0.8, seed=1, draws=9)
        assert scan.contrast is not None
        first, second = len(scan.contrast.before), len(scan.contrast.after)
        assert math.sqrt(3 * first * second / (first + second + 1)) > 1.645
