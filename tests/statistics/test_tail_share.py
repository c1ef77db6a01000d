"""Shares of a tail: against brute force, closed forms, and how often their intervals hold the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest, norm

from ptt.diagnostics.statistics.clustered_share import TailShare, tail_shares, wilson_interval


def share_of(
    tail: list[int], value: list[str], *, looks: int = 1, cluster: list[int] | None = None
) -> TailShare | None:
    size = len(tail)
    return tail_shares(
        np.array(value, dtype=object),
        np.arange(size) if cluster is None else np.array(cluster),
        np.array(tail),
        np.full(size, 10),
        sequence=np.arange(size),
        wanted=["a"],
        looks=looks,
    )[0]


@pytest.mark.parametrize(("hits", "count"), [(3, 10), (9, 10), (40, 80), (1, 50)])
def test_the_interval_is_wilsons(hits: int, count: int) -> None:
    z = float(norm.ppf(0.975))
    known = binomtest(hits, count).proportion_ci(0.95, method="wilson")
    assert wilson_interval(hits / count, count, z) == pytest.approx((known.low, known.high), abs=1e-9)


def test_independent_clusters_of_one_token_are_independent_trials() -> None:
    share = share_of([1] * 40, ["a"] * 30 + ["b"] * 10)
    assert share is not None
    assert (share.share, share.token_share, share.lift) == (0.75, 0.75, 1.0)
    known = binomtest(30, 40).proportion_ci(0.95, method="wilson")
    assert share.interval == pytest.approx((known.low, known.high), abs=0.01)


def test_one_sequence_that_carries_the_tail_is_no_evidence() -> None:
    assert share_of([500, *[0] * 39], ["a"] * 20 + ["b"] * 20) is None
    wild = share_of([500, *[1] * 39], ["a"] * 20 + ["b"] * 20)
    assert wild is not None
    assert wild.share > 0.9
    assert wild.lift_interval[0] < 1.0


def test_tokens_of_a_cluster_are_one() -> None:
    apart = share_of([1] * 80, ["a"] * 60 + ["b"] * 20)
    alike = share_of([1] * 80, ["a"] * 60 + ["b"] * 20, cluster=[place // 4 for place in range(80)])
    assert apart is not None
    assert alike is not None
    assert np.diff(alike.interval) > 1.5 * np.diff(apart.interval)


def test_more_looks_widen_the_interval() -> None:
    one, many = (share_of([1] * 40, ["a"] * 30 + ["b"] * 10, looks=looks) for looks in (1, 50))
    assert one is not None
    assert many is not None
    assert many.interval[0] < one.interval[0]
    assert many.interval[1] > one.interval[1]


def test_no_tail_and_no_value_give_no_share() -> None:
    assert share_of([0] * 20, ["a"] * 10 + ["b"] * 10) is None
    assert share_of([1] * 20, ["b"] * 20) is None


@pytest.mark.parametrize(("true_share", "clusters"), [(0.25, 60), (0.5, 40), (0.75, 60)])
def test_intervals_hold_the_share_of_overdispersed_clusters(true_share: float, clusters: int) -> None:
    generator = np.random.default_rng(20_261_122)
    held = 0
    for _ in range(400):
        value = np.where(generator.random(clusters) < true_share, "a", "b").astype(object)
        tail = generator.poisson(generator.gamma(0.7, 6.0, clusters))
        share = tail_shares(
            value, np.arange(clusters), tail, np.full(clusters, 50), sequence=np.arange(clusters), wanted=["a"], looks=1
        )[0]
        if share is None:
            held += 1
            continue
        assert math.isclose(share.lift, share.share / share.token_share)
        held += share.interval[0] <= true_share <= share.interval[1]
    assert held / 400 >= 0.92
