"""Dips and spikes that recover: quiet on noise of every kind, known where they are, and exact in what they go with."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations, pairwise

import numpy as np
import pytest
from builders import Array
from hypothesis import given
from hypothesis import strategies as st
from slow_cases import first_fast

from ptt.diagnostics.statistics.recurring_excursions import (
    Excursions,
    are_beyond_noise,
    binomial_bound,
    departures,
    find_coincidences,
    find_excursions,
    find_period,
    hypergeometric_tail,
    joint_departure,
    t3_tail,
)

RATE = 0.01
RUNS = 100
Generator = np.random.Generator


def ar1(generator: Generator, count: int, like: float, draws: Array | None = None) -> Array:
    steps = generator.normal(size=count + 50) if draws is None else draws
    values = np.zeros(count + 50)
    for place in range(1, count + 50):
        values[place] = like * values[place - 1] + math.sqrt(1 - like**2) * steps[place]
    return values[50:]


NOISE: dict[str, Callable[[Generator, int], Array]] = {
    "white": lambda draw, n: draw.normal(size=n),
    "follows itself": lambda draw, n: ar1(draw, n, 0.8),
    "hardly leaves itself": lambda draw, n: ar1(draw, n, 0.95),
    "t3": lambda draw, n: draw.standard_t(3, size=n),
    "t3 that follows itself": lambda draw, n: ar1(draw, n, 0.6, draw.standard_t(3, size=n + 50)),
    "lognormal": lambda draw, n: draw.lognormal(0, 1, size=n),
    "lognormal that follows itself": lambda draw, n: np.exp(ar1(draw, n, 0.8)),
    "exponential": lambda draw, n: draw.exponential(size=n),
    "counts": lambda draw, n: draw.poisson(3, size=n).astype(float),
    "small counts": lambda draw, n: draw.poisson(1, size=n).astype(float),
    "rare rewards": lambda draw, n: draw.binomial(8, 0.1, size=n) / 8,
    "eight answers of a prompt": lambda draw, n: draw.binomial(8, draw.beta(0.5, 0.5, size=n)) / 8,
    "nearly solved": lambda draw, n: draw.binomial(16, 0.93, size=n) / 16,
    "random walk": lambda draw, n: np.cumsum(draw.normal(size=n)),
    "learning": lambda draw, n: 1 / (1 + np.exp(-np.linspace(-6, 6, n))) + 0.05 * draw.normal(size=n),
    "a loss": lambda draw, n: 6 * np.exp(-np.linspace(0, 20, n)) + 0.2 + 0.03 * draw.normal(size=n),
    "a jump that stays": lambda draw, n: draw.normal(size=n) + 8 * (np.arange(n) > n / 3),
    "a saw": lambda draw, n: 1 + 0.1 * (np.arange(n) % 25) + 0.1 * draw.normal(size=n),
    "noise that dies away": lambda draw, n: draw.normal(size=n) * np.exp(np.linspace(0, -3, n)),
    "volatile": lambda draw, n: draw.normal(size=n) * np.exp(0.7 * ar1(draw, n, 0.9)),
}


@pytest.mark.parametrize("count", first_fast([40, 100, 300]))
@pytest.mark.parametrize("kind", NOISE)
def test_noise_raises_no_more_alarms_than_stated(kind: str, count: int) -> None:
    generator = np.random.default_rng([count, len(kind)])
    alarms = sum(
        any(are_beyond_noise(one, rate=RATE) for one in find_excursions(NOISE[kind](generator, count)))
        for _ in range(RUNS)
    )
    assert alarms <= 3  # 1 is expected at most; more than 3 has a chance of 2%


@pytest.mark.parametrize("kind", first_fast(["white", "t3", "follows itself", "rare rewards"]))
def test_with_a_timing_of_chance_the_rate_still_holds(kind: str) -> None:
    generator = np.random.default_rng(len(kind))
    steps, events = np.arange(1, 201), {"evaluation": np.arange(10, 201, 10)}
    alarms = 0
    for _ in range(RUNS):
        for one in find_excursions(NOISE[kind](generator, 200)):
            begins = steps[[span.first for span in one.spans]]
            found = find_coincidences(steps, begins, events, rate=0.05)
            alarms += are_beyond_noise(one, timing=min([1.0, *(each.p_value for each in found)]), rate=RATE)
    assert alarms <= 3


def test_one_outlier_of_a_heavy_tail_is_none_however_long_the_series() -> None:
    values = np.random.default_rng(1).standard_t(3, size=400)
    values[200] = 12 * np.std(values)
    assert not [one for one in find_excursions(values) if are_beyond_noise(one, rate=RATE)]


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(100),
        np.where(np.arange(100) % 10 == 0, 1.0, 0.0),  # logged as 0 but now and then
        np.where(np.arange(100) % 2 == 0, 0.4, 0.0),  # 0 at every second step
        1e-5 * (1 + np.cos(np.pi * (np.arange(300) % 50) / 50)),  # a learning rate with restarts
        np.linspace(0, 1, 100),
        np.ones(10),
    ],
    ids=["constant", "mostly 0", "every second step", "rate with restarts", "line", "too short"],
)
def test_what_has_no_noise_of_its_own_has_no_excursions(values: Array) -> None:
    assert not [one for one in find_excursions(values) if are_beyond_noise(one, rate=RATE)]


def found(values: Array, side: int) -> Excursions:
    (one,) = [one for one in find_excursions(values) if one.side == side and are_beyond_noise(one, rate=RATE)]
    return one


def test_zeros_among_a_rising_reward_are_found_where_they_are() -> None:
    values = np.linspace(0.3, 0.7, 100) + 0.04 * np.random.default_rng(2).normal(size=100)
    values[10::10] = 0.0
    dips = found(values, -1)
    assert dips.places.tolist() == list(range(10, 100, 10))
    assert np.allclose(dips.level[dips.places], np.linspace(0.3, 0.7, 100)[dips.places], atol=0.06)
    assert not dips.alone


def test_a_quarter_of_the_steps_of_any_height_is_found() -> None:
    generator = np.random.default_rng(3)
    values = 1.012 + 0.001 * generator.normal(size=240)
    high = np.sort(generator.choice(np.arange(5, 235), size=58, replace=False))
    values[high] += generator.lognormal(-1, 1.5, size=58) + 0.05
    assert found(values, 1).places.tolist() == high.tolist()


@pytest.mark.parametrize(("first", "last"), [(60, 79), (100, 104), (60, 104)])
def test_a_span_is_found_from_end_to_end(first: int, last: int) -> None:
    values = 0.5 + 0.03 * np.random.default_rng(4).normal(size=200)
    values[first : last + 1] -= 0.4
    (span,) = found(values, -1).spans
    assert (span.first, span.last) == (first, last)


def test_what_bends_back_slowly_is_a_curve() -> None:
    bump = 3 * np.exp(-np.square((np.arange(200) - 100) / 12))
    values = bump + 0.05 * np.random.default_rng(5).normal(size=200)
    assert not [one for one in find_excursions(values) if are_beyond_noise(one, rate=RATE)]


@given(st.lists(st.floats(-10, 10), min_size=24, max_size=60), st.integers(3, 8))
def test_a_departure_lies_outside_of_the_levels_on_both_sides(values: list[float], half: int) -> None:
    held = np.array(values)
    off, _, _ = departures(held, half)
    for place in np.flatnonzero(off).tolist():
        before, after = held[max(0, place - half) : place], held[place + 1 : place + 1 + half]
        assert min(len(before), len(after)) >= 3
        assert (held[place] - min(held)) >= 0 if off[place] > 0 else (max(held) - held[place]) >= 0
    assert not off[:3].any()
    assert not off[-3:].any()


def test_a_departure_is_measured_from_the_nearer_level() -> None:
    values = np.concatenate([np.full(20, 1.0), [5.0], np.full(20, 2.0)])
    off, _, _ = departures(values, 5)
    assert off[20] == pytest.approx(3.0)
    assert np.count_nonzero(off) == 1


@given(st.floats(0, 50))
def test_the_tail_of_t3_is_that_of_its_density(distance: float) -> None:
    x = distance * 1.4826 * 0.7649
    grid = np.linspace(0, 1, 20_001)[1:]  # t = x + (1 - u) / u
    density = 6 * math.sqrt(3) / (math.pi * np.square(3 + np.square(x + (1 - grid) / grid)))
    assert t3_tail(distance) == pytest.approx(float(np.mean(density / np.square(grid))), rel=2e-3)


@given(st.integers(1, 40), st.integers(0, 40), st.floats(0.01, 0.99))
def test_the_bound_lies_above_the_binomial_tail(trials: int, hits: int, chance: float) -> None:
    hits = min(hits, trials)
    exact = sum(math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in range(hits, trials + 1))
    assert binomial_bound(hits, trials, chance) >= exact - 1e-12


def test_the_hypergeometric_tail_is_that_of_counting() -> None:
    marked = {0, 3, 6, 9}
    draws = list(combinations(range(11), 5))
    for hits in range(6):
        share = sum(len(marked & set(draw)) >= hits for draw in draws) / len(draws)
        assert hypergeometric_tail(hits, 5, 4, 11) == pytest.approx(share)


def test_a_period_is_that_of_all_steps_and_its_chance_that_of_drawing() -> None:
    steps = np.arange(1, 61)
    period = find_period(steps, np.array([11, 21, 31, 41, 51]), rate=0.01)
    assert period is not None
    assert (period.every, period.rest, period.shared) == (10, 1, 5)
    few = np.arange(1, 25)
    known = find_period(few, np.array([4, 10, 16, 22]), rate=1.0)
    assert known is not None
    assert known.every == 6
    drawn = list(combinations(few.tolist(), 4))
    share = sum(math.gcd(*(late - early for early, late in pairwise(draw))) >= 6 for draw in drawn) / len(drawn)
    assert known.p_value == pytest.approx(share)


@given(st.integers(0, 1000))
def test_random_steps_have_no_period(seed: int) -> None:
    steps = np.arange(0, 200)
    drawn = np.sort(np.random.default_rng(seed).choice(steps, size=6, replace=False))
    assert find_period(steps, drawn, rate=1e-4) is None


def test_what_repeats_but_for_one_is_periodic_still() -> None:
    at = np.sort(np.append(np.arange(10, 300, 10), 137))
    period = find_period(np.arange(300), at, rate=0.01)
    assert period is not None
    assert (period.every, period.shared) == (10, 29)


def test_excursions_are_laid_to_the_events_they_follow() -> None:
    steps = np.arange(1, 101)
    events = {"evaluation": np.arange(10, 101, 10), "restart": np.array([37]), "epoch": np.arange(7, 101, 13)}
    first = find_coincidences(steps, np.array([11, 21, 31, 41, 51, 61]), events, rate=0.05)[0]
    assert (first.kind, first.lag, first.together, first.events) == ("evaluation", 1, 6, 9)
    assert first.p_value < 1e-5
    assert find_coincidences(steps, np.array([13, 38, 55, 72]), {"epoch": events["epoch"]}, rate=0.05) == ()


def test_holm_keeps_the_rate_over_all_kinds() -> None:
    generator = np.random.default_rng(7)
    steps = np.arange(200)
    events = {f"kind {k}": np.sort(generator.choice(steps, size=20, replace=False)) for k in range(6)}
    hits = sum(
        bool(find_coincidences(steps, np.sort(generator.choice(steps, size=8, replace=False)), events, rate=0.05))
        for _ in range(200)
    )
    assert hits <= 18  # 10 are expected at most


def test_series_that_depart_together_are_measured_without_the_steps_themselves() -> None:
    values = 10 + np.random.default_rng(8).normal(size=200)
    places = np.arange(20, 200, 20)
    values[places] += 4
    joint = joint_departure(values, places)
    assert joint is not None
    assert joint.sds > 8
    assert joint.value - joint.level == pytest.approx(4, abs=1)
    beside = joint_departure(values, places + 3)
    assert beside is not None
    assert abs(beside.sds) < 4
