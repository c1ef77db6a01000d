"""Ranks above the others: against scipy's binomial test, and ranks that are exchangeable."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from ptt.diagnostics.statistics.rank_scores import MAX_BLOCKS, STARTS, middle_of_others, p_above_others, rank_levels


def test_levels_are_those_of_the_steps_that_all_ranks_share() -> None:
    steps = np.repeat([1, 1, 2, 2, 3], 20)
    ranks = np.repeat([0, 1, 0, 1, 0], 20)
    magnitude = np.repeat([0.1, 0.3, 0.0, 0.5, 9.0], 20)
    levels = rank_levels(steps, ranks, magnitude, beyond=0.2, least=2)
    assert levels is not None
    assert levels.steps.tolist() == [1, 2]
    assert levels.mean == pytest.approx(np.array([[0.1, 0.3], [0.0, 0.5]]))
    assert levels.large.tolist() == [[0.0, 1.0], [0.0, 1.0]]
    assert levels.others(0).tolist() == pytest.approx([0.3, 0.5])
    assert rank_levels(steps, ranks, magnitude, beyond=0.2, least=3) is None
    assert rank_levels(steps, 0 * ranks, magnitude, beyond=0.2, least=2) is None


def test_the_middle_of_an_even_number_of_others_is_the_higher_of_two() -> None:
    assert middle_of_others(np.array([[1.0, 2.0, 5.0]]), 0).tolist() == [5.0]
    assert middle_of_others(np.array([[1.0, 2.0, 5.0, 9.0]]), 0).tolist() == [5.0]


def test_the_whole_run_is_a_binomial_test_over_blocks() -> None:
    levels = np.zeros((120, 2))
    levels[:, 1] = np.where(np.arange(120) < 100, 1.0, -1.0)  # 20 of 24 blocks above
    tail = binomtest(20, MAX_BLOCKS, 0.5, alternative="greater").pvalue
    assert p_above_others(levels)[1] == pytest.approx(2 * 2 * tail)


def test_a_start_in_mid_run_is_paid_for_by_all_that_could_be() -> None:
    levels = np.zeros((120, 2))
    levels[:, 0] = np.where(np.arange(120) >= 60, 1.0, -1.0)  # the last 12 of 24 blocks
    tail = binomtest(12, 12, 0.5, alternative="greater").pvalue
    assert p_above_others(levels)[0] == pytest.approx(2 * 2 * len(STARTS) * tail)


def test_lying_above_all_of_many_ranks_is_rarer_than_above_their_middle() -> None:
    levels = np.tile(np.arange(4.0), (30, 1))  # 6 blocks
    tail = binomtest(6, 6, 0.25, alternative="greater").pvalue
    assert p_above_others(levels)[3] == pytest.approx(2 * 4 * 2 * tail)


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_exchangeable_ranks_are_rarely_told_apart(ranks: int) -> None:
    draw = np.random.default_rng(5)
    hits = sum(min(p_above_others(draw.lognormal(0, 2, (120, ranks)))) <= 0.05 for _ in range(400))
    assert hits <= 0.05 * 400


def test_equal_ranks_lie_above_nobody() -> None:
    assert p_above_others(np.ones((60, 3))) == (1.0, 1.0, 1.0)
