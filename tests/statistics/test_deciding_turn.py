"""The evidence of a split against brute force over all ways to hand outcomes out, and where a turn is located."""

from __future__ import annotations

from itertools import combinations
from math import exp

import numpy as np
import polars as pl
import pytest
from scipy.special import betaln
from scipy.stats import fisher_exact
from scipy.stats.contingency import odds_ratio

from ptt.diagnostics.statistics.strata import Splits, locate, log_evidence, permutation_p, rate_differences


def brute_evidence(size: int, successes: int, side: int, hits: int) -> float:
    def own(a: int) -> float:
        first = betaln(a + 0.5, side - a + 0.5) - betaln(0.5, 0.5)
        return float(first + betaln(successes - a + 0.5, size - side - successes + a + 0.5) - betaln(0.5, 0.5))

    ways = [sum(place < side for place in chosen) for chosen in combinations(range(size), successes)]
    return exp(own(hits)) / float(np.mean([exp(own(a)) for a in ways]))


@pytest.mark.parametrize(("size", "successes", "side"), [(4, 2, 2), (6, 1, 3), (8, 4, 2), (9, 5, 4), (7, 6, 5)])
def test_evidence_equals_brute_force_and_averages_one(size: int, successes: int, side: int) -> None:
    lowest, highest = max(0, side + successes - size), min(side, successes)
    hits = np.arange(lowest, highest + 1)
    shape = [np.full(len(hits), value) for value in (size, successes, side)]
    found = np.exp(log_evidence(shape[0], shape[1], shape[2], hits))
    assert found == pytest.approx([brute_evidence(size, successes, side, int(a)) for a in hits])
    draws = [sum(place < side for place in chosen) for chosen in combinations(range(size), successes)]
    assert np.mean(found[np.array(draws) - lowest]) == pytest.approx(1.0)


def splits_of(groups: list[list[tuple[int, int, list[int]]]], sizes: list[int]) -> Splits:
    """Make splits from (turn, kind, members) of each group; members are numbered within their group."""
    begins = np.cumsum([0, *sizes])
    rows = [
        (g, turn, kind, [begins[g] + e for e in members]) for g, of in enumerate(groups) for turn, kind, members in of
    ]
    counts = [len(members) for *_, members in rows]
    return Splits(
        group=np.array([g for g, *_ in rows], np.int64),
        turn=np.array([turn for _, turn, *_ in rows], np.int64),
        kind=np.array([kind for _, _, kind, _ in rows], np.int64),
        prior=np.ones(len(rows)),
        starts=np.cumsum([0, *counts])[:-1].astype(np.int64),
        episode=np.array([e for *_, members in rows for e in members], np.int64),
        episode_group=np.repeat(np.arange(len(sizes)), sizes),
    )


def test_what_follows_from_a_choice_does_not_hide_it() -> None:
    # turn 1 decides but for one episode; the last turn tells the outcome in full
    success = np.array([True] * 16 + [False] * 16)
    groups = [[(0, 0, [0, 1, 18, 19]), (1, 0, [*range(15), 18]), (5, 0, list(range(16)))]]
    found = locate(splits_of(groups, [32]), success)
    assert found.turn.tolist() == [1]
    assert found.split.tolist() == [1]


def test_a_kind_that_decides_elsewhere_counts_for_more() -> None:
    # in the last group two turns split alike well; one is of the kind that decides all others
    sure = [(0, 0, [0, 1, 2, 3, 8, 9, 10, 11]), (2, 1, list(range(8)))]
    even = [(0, 0, [*range(7), 8]), (1, 1, [*range(7), 9])]
    success = np.tile(np.array([True] * 8 + [False] * 8), 9)
    found = locate(splits_of([sure] * 8 + [even], [16] * 9), success)
    assert found.turn.tolist() == [2] * 8 + [1]
    assert locate(splits_of([even], [16]), success[:16]).turn.tolist() == [0]


def test_a_group_without_candidates_has_no_turn() -> None:
    success = np.array([True, False, True, True, False, False])
    found = locate(splits_of([[], [(3, 0, [0, 1])]], [2, 4]), success)
    assert found.turn.tolist() == [-1, 3]
    assert permutation_p(splits_of([[]], [2]), success[:2], draws=9, seed=1) == 1.0


def test_the_permutation_p_value_is_uniform_where_nothing_decides() -> None:
    generator = np.random.default_rng(3)
    p_values = []
    for seed in range(60):
        groups = [
            [(turn, 0, sorted(generator.choice(8, 4, replace=False).tolist())) for turn in range(5)] for _ in range(12)
        ]
        success = np.concatenate([generator.permutation(np.arange(8) < 4) for _ in range(12)])
        p_values.append(permutation_p(splits_of(groups, [8] * 12), success, draws=39, seed=seed))
    assert np.mean(np.array(p_values) <= 0.1) <= 0.2
    assert 0.35 <= float(np.mean(p_values)) <= 0.65


def test_pooled_differences_equal_the_formulas_of_mantel_and_haenszel() -> None:
    rows = [(8.0, 4.0, 3.0, 1.0), (6.0, 3.0, 2.0, 2.0), (10.0, 5.0, 5.0, 4.0)]
    tables = pl.DataFrame([{"key": "x", "n": n, "s": s, "k": k, "a": a} for n, s, k, a in rows])
    (found,) = rate_differences(tables, ["key"]).to_dicts()
    weight = sum(k * (n - k) / n for n, s, k, a in rows)
    difference = sum((a * (n - k) - (s - a) * k) / n for n, s, k, a in rows) / weight
    assert found["difference"] == pytest.approx(difference)
    assert (found["groups"], found["episodes"], found["side"]) == (3, 24, 10)


def test_one_stratum_is_near_fishers_test() -> None:
    table = [[30, 10], [15, 25]]
    tables = pl.DataFrame([{"key": "x", "n": 80.0, "s": 45.0, "k": 40.0, "a": 30.0}])
    (found,) = rate_differences(tables, ["key"]).to_dicts()
    assert found["p_value"] == pytest.approx(fisher_exact(table).pvalue, rel=0.8)
    assert odds_ratio(table).statistic > 1
    assert found["difference"] == pytest.approx(30 / 40 - 15 / 40)
