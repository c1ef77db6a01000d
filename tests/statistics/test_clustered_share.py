"""Intervals of shares in clusters, and shifts over an order: against scipy, brute force, and how often they hold."""

import itertools

import numpy as np
import pytest
import scipy.stats
from slow_cases import first_fast

from ptt.diagnostics.statistics.clustered_share import clustered_share, student_t, wilson
from ptt.diagnostics.statistics.order_change import Scale, block_edges, find_change, order_p_value, smallest_seen
from ptt.diagnostics.statistics.within_groups import pair_order


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (3, 10), (10, 10), (17, 240)])
def test_wilson_is_scipys(hits: int, trials: int) -> None:
    reference = scipy.stats.binomtest(hits, trials).proportion_ci(0.95, "wilson")
    assert wilson(hits / trials, trials) == pytest.approx((reference.low, reference.high), abs=1e-6)


@pytest.mark.parametrize("freedom", [1, 4, 22, 23, 40, 200])
def test_student_is_scipys(freedom: int) -> None:
    assert student_t(freedom) == pytest.approx(float(scipy.stats.t.ppf(0.975, freedom)), rel=0.003)


def test_few_clusters_have_no_interval() -> None:
    assert clustered_share(np.ones(40), np.ones(40), np.repeat(np.arange(4), 10)).interval is None


def test_clusters_that_agree_within_are_worth_one_trial_each() -> None:
    cluster = np.repeat(np.arange(20), 10)
    hits = (cluster % 2).astype(np.float64)
    low, high = clustered_share(hits, np.ones(200), cluster).interval or (0.0, 0.0)
    alone = clustered_share(hits[::10], np.ones(20), np.arange(20)).interval or (0.0, 0.0)
    assert (low, high) == pytest.approx(alone, abs=0.01)


def test_the_interval_covers_the_share_of_clustered_trials() -> None:
    generator = np.random.default_rng(3)
    covered = 0
    for _ in range(400):
        shares = generator.beta(1, 4, size=30)
        trials = generator.integers(1, 12, size=30).astype(np.float64)
        hits = generator.binomial(trials.astype(np.int64), shares).astype(np.float64)
        low, high = clustered_share(hits, trials, np.arange(30)).interval or (0.0, 0.0)
        covered += low <= 0.2 <= high
    assert covered >= 0.92 * 400


def test_the_place_is_the_one_of_least_squares() -> None:
    generator = np.random.default_rng(5)
    weights = generator.integers(1, 9, size=20).astype(np.float64)
    means = np.where(np.arange(20) < 13, 0.1, 0.6) + generator.normal(0, 0.1, 20)

    def squares(place: int) -> float:
        parts = (slice(None, place), slice(place, None))
        return sum(
            float((weights[part] * (means[part] - np.average(means[part], weights=weights[part])) ** 2).sum())
            for part in parts
        )

    change = find_change(means * weights, weights)
    assert change is not None
    assert change.block == min(range(2, 19), key=squares) == 13
    assert (change.before, change.after) == pytest.approx((0.1, 0.6), abs=0.1)
    assert change.low <= 13 <= change.high


def test_the_p_value_is_that_of_all_orders() -> None:
    values = np.array([0.0, 0.1, 0.0, 0.2, 0.9, 1.0, 0.8])
    ones = np.ones(7)

    def statistic(order: np.ndarray) -> float:
        scatter = float(np.square(order - order.mean()).sum()) / 6
        likelier = []
        for place in range(2, 6):
            before, after = order[:place], order[place:]
            rise = max(0.0, float(after.mean() - before.mean()))
            likelier.append(np.exp(rise**2 * place * (7 - place) / 7 / scatter / 2))
        return float(np.mean(likelier))

    observed = statistic(values)
    exact = np.mean([statistic(np.array(order)) >= observed - 1e-12 for order in itertools.permutations(values)])
    assert order_p_value(values, ones, rises=True) == pytest.approx(float(exact), abs=0.012)


def test_no_change_is_found_as_often_as_the_p_value_says() -> None:
    generator = np.random.default_rng(11)
    values = [
        order_p_value(generator.binomial(5, 0.3, size=40).astype(np.float64), np.full(40, 5.0), rises=True, draws=199)
        for _ in range(300)
    ]
    assert np.mean(np.array(values) <= 0.05) == pytest.approx(0.05, abs=0.03)


@pytest.mark.parametrize(("share", "rises"), first_fast([(0.6, False), (0.05, True)]))
def test_the_smallest_change_to_be_seen_is_found_nine_times_out_of_ten(share: float, *, rises: bool) -> None:
    weights, levels = np.full(60, 4.0), np.linspace(share, 1.0 if rises else 0.0, 400)
    spread = np.sqrt(levels * (1 - levels))
    seen = smallest_seen(
        weights, levels, spread, scale=Scale.SHARE, limit=0.01, matters=lambda early, late: early != late
    )
    assert seen is not None
    generator = np.random.default_rng(5)
    rates = np.where(np.arange(60) < 30, share, seen)
    found = [
        order_p_value(
            generator.binomial(4, rates).astype(np.float64), weights, rises=rises, scale=Scale.SHARE, draws=999
        )
        <= 0.01
        for _ in range(300)
    ]
    assert np.mean(found) == pytest.approx(0.9, abs=0.06)


def test_blocks_do_not_tear_what_belongs_together() -> None:
    whole = np.repeat(np.arange(10), 7)
    edges = block_edges(70, 60, whole)
    assert edges.tolist() == list(range(0, 70, 7))
    assert block_edges(1000, 60).size == 60
    assert block_edges(5, 60).tolist() == [0, 1, 2, 3, 4]


def test_the_order_of_pairs_is_scipys_rank_sum() -> None:
    generator = np.random.default_rng(2)
    values, kind = generator.integers(0, 9, size=80).astype(np.float64), generator.random(80) < 0.4
    found = pair_order(values, kind, np.zeros(80, np.int64))
    assert found is not None
    reference = scipy.stats.mannwhitneyu(values[kind], values[~kind]).statistic / (kind.sum() * (~kind).sum())
    assert found.share == pytest.approx(float(reference))


def test_the_order_of_pairs_is_that_of_all_pairs_within_groups() -> None:
    generator = np.random.default_rng(4)
    values, kind = generator.integers(0, 5, size=60).astype(np.float64), generator.random(60) < 0.5
    group = generator.integers(0, 9, size=60)
    won = [
        float(values[one] > values[other]) + 0.5 * float(values[one] == values[other])
        for one in range(60)
        for other in range(60)
        if kind[one] and not kind[other] and group[one] == group[other]
    ]
    found = pair_order(values, kind, group)
    assert found is not None
    assert found.pairs == len(won)
    assert found.share == pytest.approx(np.mean(won))


@pytest.mark.parametrize("groups", [1, 20])
def test_the_interval_of_pairs_covers_a_half_where_nothing_differs(groups: int) -> None:
    generator = np.random.default_rng(6)
    covered = 0
    for _ in range(300):
        group = np.repeat(np.arange(groups), 120 // groups)
        found = pair_order(generator.normal(size=120), generator.random(120) < 0.5, group)
        assert found is not None
        covered += found.interval[0] <= 0.5 <= found.interval[1]
    assert covered >= 0.92 * 300
