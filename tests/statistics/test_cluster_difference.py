"""Differences between two sets of clusters: as scipy and closed forms have them, and honest where little is seen."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from ptt.diagnostics.statistics.clustered_share import paired_difference, share_difference, welch_difference, wilson


def test_a_paired_difference_is_that_of_the_paired_t_test() -> None:
    draws = np.random.default_rng(1)
    first = draws.uniform(size=40)
    second = first + draws.normal(0.05, 0.2, size=40)
    found = paired_difference(first, second)
    assert found is not None
    reference = stats.ttest_rel(second, first)
    interval = reference.confidence_interval()
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=2e-3)
    assert found.p_value == pytest.approx(reference.pvalue, abs=0.02)


def test_sign_flips_of_few_clusters_are_counted_exactly() -> None:
    first, second = np.zeros(6), np.array([0.3, 0.1, 0.2, 0.4, 0.1, 0.2])
    found = paired_difference(first, second)
    reference = stats.permutation_test((second - first,), np.sum, permutation_type="samples", n_resamples=np.inf)
    assert found is not None
    assert found.p_value == pytest.approx(reference.pvalue) == pytest.approx(2 / 64)


def test_equal_sets_show_no_difference_and_no_false_sureness() -> None:
    found = paired_difference(np.ones(20), np.ones(20))
    assert found is not None
    assert found.p_value == 1.0
    assert (found.low, found.high) == pytest.approx((-0.15, 0.15))  # the rule of three


def test_few_clusters_give_no_answer() -> None:
    assert paired_difference(np.zeros(4), np.ones(4)) is None
    assert welch_difference(np.zeros(4), np.ones(40)) is None
    assert welch_difference(np.zeros(40), np.ones(40)) is None  # nothing varies


def test_a_difference_of_means_is_welchs() -> None:
    draws = np.random.default_rng(2)
    first, second = draws.normal(3, 1, size=50), draws.normal(3.4, 2, size=80)
    found = welch_difference(first, second)
    reference = stats.ttest_ind(second, first, equal_var=False)
    interval = reference.confidence_interval()
    assert found is not None
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=5e-3)
    assert found.p_value == pytest.approx(reference.pvalue, rel=0.1)


def test_a_difference_of_shares_is_newcombes() -> None:
    # Newcombe (1998), table II, method 10: 56/70 and 48/80 differ by 0.2, interval 0.0524 to 0.3339
    first, second = 48 / 80, 56 / 70
    found = share_difference(first, wilson(first, 80), second, wilson(second, 70), clusters=70)
    assert (found.low, found.high) == pytest.approx((0.0524, 0.3339), abs=2e-4)


def test_differences_are_called_as_often_as_they_should_be() -> None:
    draws = np.random.default_rng(3)
    hits, rounds = 0, 400
    for _ in range(rounds):
        shares = draws.uniform(0.1, 0.9, size=20)
        sides = [draws.binomial(4, shares) / 4 for _ in range(2)]
        found = paired_difference(*sides)
        hits += found is not None and found.p_value < 0.05
    assert hits / rounds < 0.08
