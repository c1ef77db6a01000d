"""Shifts of a level: rank sums against counting pairs, places of changes against trying every one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptt.diagnostics.statistics.change_point import (
    mean_change,
    permutation_p_value,
    rank_shift,
    rate_change,
    spread_change,
)

SMALL = st.lists(st.integers(0, 4), min_size=2, max_size=12)


@given(SMALL, SMALL)
def test_rank_sums_count_pairs(early: list[int], late: list[int]) -> None:
    first, second = np.array(early, float), np.array(late, float)
    pairs = float((second[:, None] > first[None, :]).sum() + 0.5 * (second[:, None] == first[None, :]).sum())
    expected = len(early) * len(late) / 2
    found = rank_shift(first, second)
    assert found == pytest.approx(-rank_shift(second, first))
    if pairs != expected:
        assert math.copysign(1, found) == math.copysign(1, pairs - expected)


def test_rank_sums_without_ties_have_the_known_spread() -> None:
    early, late = np.arange(10.0), np.arange(10.0, 20.0)
    assert rank_shift(early, late) == pytest.approx(50 / math.sqrt(10 * 10 * 21 / 12))
    assert rank_shift(early, early) == 0.0
    assert rank_shift(np.ones(5), np.ones(5)) == 0.0
    assert rank_shift(np.empty(0), late) == 0.0


def poisson(hits: np.ndarray, trials: np.ndarray) -> float:
    rate = hits.sum() / trials.sum()
    return float(sum(h * math.log(rate * t) - rate * t for h, t in zip(hits, trials, strict=True) if rate > 0))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=2, max_size=15))
def test_the_place_of_a_change_is_the_likeliest_of_all(rows: list[tuple[int, int]]) -> None:
    hits, trials = (np.array(column, float) for column in zip(*rows, strict=True))
    found = rate_change(hits, trials)
    if not hits.sum():
        assert found is None
        return
    assert found is not None
    tried = [
        poisson(hits[:place], trials[:place]) + poisson(hits[place:], trials[place:]) for place in range(1, len(hits))
    ]
    assert tried[found[0] - 1] == pytest.approx(max(tried))
    assert 0 <= found[1] < found[0] <= found[2] < len(hits)


@given(st.lists(st.floats(0.01, 9), min_size=3, max_size=15))
def test_the_place_of_another_spread_is_the_likeliest_of_all(values: list[float]) -> None:
    squares = np.square(values)
    found = spread_change(squares)
    assert found is not None
    count = len(squares)
    tried = [
        -place * math.log(squares[:place].mean()) - (count - place) * math.log(squares[place:].mean())
        for place in range(1, count)
    ]
    assert tried[found[0] - 1] == pytest.approx(max(tried), abs=1e-5)


def test_a_change_is_placed_and_its_reach_covers_it() -> None:
    generator = np.random.default_rng(5)
    covered = 0
    for _ in range(200):
        at = int(generator.integers(8, 32))
        hits = generator.poisson(np.where(np.arange(40) < at, 2.0, 8.0)).astype(float)
        found = rate_change(hits, np.ones(40))
        assert found is not None
        covered += found[1] < at <= found[2]
        assert abs(found[0] - at) <= 6
    assert covered >= 190


def test_the_chance_of_a_change_is_even_where_there_is_none() -> None:
    generator = np.random.default_rng(7)
    none = [permutation_p_value(generator.gamma(0.5, size=40), draws=199) for _ in range(200)]
    assert 0.05 <= np.mean(np.array(none) <= 0.1) <= 0.16
    assert permutation_p_value(np.repeat([1.0, 0.05], 20)) == 0.001
    assert permutation_p_value(np.ones(40)) == 1.0


def test_nothing_has_no_place() -> None:
    assert rate_change(np.zeros(9), np.ones(9)) is None
    assert rate_change(np.ones(1), np.ones(1)) is None
    assert spread_change(np.zeros(9)) is None


@given(st.lists(st.floats(-3, 3).map(lambda value: round(value, 2)), min_size=4, max_size=15))
def test_the_place_of_a_change_of_mean_leaves_the_least_squares(values: list[float]) -> None:
    drawn = np.array(values)
    change = mean_change(drawn)
    if change is None:
        assert np.ptp(drawn) == 0
        return

    def left(place: int) -> float:
        return float(sum(np.square(part - part.mean()).sum() for part in (drawn[:place], drawn[place:])))

    assert left(change[0]) == pytest.approx(min(left(place) for place in range(1, len(drawn))), abs=1e-9)
    assert change[1] < change[0] <= change[2]
