"""Scores of ranks against a plain reckoning, and what they must not depend on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from builders import Array, repeatable
from hypothesis import given
from hypothesis import strategies as st

from ptt.diagnostics.statistics.rank_scores import WINDOW_STEPS, score_ranks, weighted_share

IntArray = npt.NDArray[np.int64]


def times_of(ranks: int, steps: int, seed: int) -> dict[str, tuple[IntArray, Array]]:
    values = np.exp(0.3 * np.random.default_rng(seed).normal(size=(ranks, steps)))
    return {f"rank {rank}": (np.arange(1, steps + 1), values[rank]) for rank in range(ranks)}


@repeatable
@given(st.integers(2, 6), st.integers(10, 90), st.integers(0, 10_000))
def test_scores_are_those_of_a_plain_reckoning(ranks: int, steps: int, seed: int) -> None:
    times = times_of(ranks, steps, seed)
    scores = score_ranks(times)
    assert scores is not None
    size = min(WINDOW_STEPS, steps)
    best: dict[str, float] = {}
    for row in range(steps // size):
        part = slice(row * size, (row + 1) * size)
        off = {}
        for place, (_, values) in times.items():
            others = np.array([np.log(held[1][part]) for held in times.values()])
            off[place] = float(np.median(np.log(values[part]) - np.median(others, axis=0)))
        for column, (place, (_, values)) in enumerate(times.items()):
            level = float(np.median(np.log(values[part])))
            best[place] = min(best.get(place, level), level)
            assert scores.relative[row, column] == pytest.approx(np.exp(min(off.values()) - off[place]))
            assert scores.own[row, column] == pytest.approx(np.exp(best[place] - level))


@repeatable
@given(st.integers(2, 6), st.integers(10, 60), st.integers(0, 10_000))
def test_steps_that_are_longer_for_all_change_no_relative_score(ranks: int, steps: int, seed: int) -> None:
    times = times_of(ranks, steps, seed)
    longer = np.exp(np.random.default_rng(seed).normal(size=steps))
    stretched = {place: (at, values * longer) for place, (at, values) in times.items()}
    one, other = score_ranks(times), score_ranks(stretched)
    assert one is not None
    assert other is not None
    np.testing.assert_allclose(one.relative, other.relative)
    np.testing.assert_array_equal(one.beyond, other.beyond)


def test_only_steps_that_all_ranks_recorded_count() -> None:
    steps = np.arange(1, 31)
    holes = np.where(steps % 3 == 0, np.nan, 2.0)
    scores = score_ranks({"a": (steps, np.ones(30)), "b": (steps, holes)})
    assert scores is not None
    assert scores.overall.tolist() == [1.0, 0.5]
    assert score_ranks({"a": (steps, np.ones(30)), "b": (steps, np.zeros(30))}) is None
    assert score_ranks({"a": (steps, np.ones(30))}) is None


def test_the_weighted_share_forgets() -> None:
    assert weighted_share(np.array([True] * 20)) == pytest.approx(1.0, abs=0.01)
    assert weighted_share(np.array([True] * 10 + [False] * 10)) < 0.05
    assert weighted_share(np.array([False] * 10 + [True] * 3)) > 0.5
