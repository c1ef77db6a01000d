"""k-hat equals arviz-stats' on single weights, comes near it on grouped ones, and knows what it cannot say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from arviz_stats.base import array_stats
from builders import Array

from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.ess import k_hat, k_threshold, tail_size
from ptt.diagnostics.statistics.histograms import largest_log_ratios


def reference(log_weights: Array) -> float:
    return float(array_stats.psislw(-log_weights)[1])


def drawn(kind: str, n: int, seed: int) -> Array:
    generator = np.random.default_rng(seed)
    match kind:
        case "gaussian":
            return 0.5 * generator.normal(size=n)
        case "student":
            return 0.2 * generator.standard_t(4, size=n)
        case "wide":
            return 4.0 * generator.normal(size=n)
        case _:
            return np.log(generator.uniform(size=n))


@pytest.mark.parametrize("kind", ["gaussian", "student", "wide", "bounded"])
@pytest.mark.parametrize("n", [25, 60, 224, 226, 1000, 50_000])
def test_single_weights_give_what_arviz_gives(kind: str, n: int) -> None:
    logs = drawn(kind, n, seed=n)
    assert k_hat(logs) == pytest.approx(reference(logs), abs=1e-8)


@pytest.mark.parametrize("k", [-0.2, 0.1, 0.5, 1.0, 1.5])
def test_a_generalized_pareto_tail_gives_its_own_shape_back(k: float) -> None:
    u = np.random.default_rng(7).uniform(size=100_000)
    weights = (u**-k - 1) / k
    assert k_hat(np.log(weights)) == pytest.approx(k, abs=0.1)  # of 948 weights: three standard errors of (1 + k)/30.8


def test_the_largest_weights_are_enough() -> None:
    logs = drawn("student", 5000, seed=3)
    assert k_hat(np.sort(logs)[-1001:], n=5000) == k_hat(logs)


@pytest.mark.parametrize("kind", ["gaussian", "student", "wide"])
@pytest.mark.parametrize("n", [2000, 200_000])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_weights_known_to_their_bin_come_within_two_hundredths(kind: str, n: int, sign: float) -> None:
    logs = drawn(kind, n, seed=n)
    bin_ = bins.bin_of(np.abs(logs))
    counted, s_r, s_abs = (
        np.bincount(bin_, w, bins.OVERFLOW + 1).astype(np.float64) for w in (np.ones(n), logs, np.abs(logs))
    )
    tail = largest_log_ratios(counted, s_r, s_abs, sign=sign, wanted=tail_size(n) + 1)
    assert len(tail) > tail_size(n)
    assert k_hat(tail, n=n) == pytest.approx(reference(sign * logs), abs=0.02)


def test_where_few_tokens_rose_the_largest_are_completed_by_those_that_fell_least() -> None:
    r = np.array([3.0, -1.0, -2.0, -0.5, 0.0])
    bin_ = bins.bin_of(np.abs(r))
    counted, s_r, s_abs = (
        np.bincount(bin_, w, bins.OVERFLOW + 1).astype(np.float64) for w in (np.ones(5), r, np.abs(r))
    )
    assert largest_log_ratios(counted, s_r, s_abs, sign=1.0, wanted=5).tolist() == [3.0, 0.0, -0.5, -1.0, -2.0]
    assert largest_log_ratios(counted, s_r, s_abs, sign=-1.0, wanted=2).tolist() == [2.0, 1.0]


def test_the_scale_of_weights_does_not_matter_and_their_order_neither() -> None:
    logs = drawn("student", 500, seed=1)
    assert k_hat(logs + 1e4) == pytest.approx(k_hat(logs), abs=1e-6)
    assert k_hat(logs[::-1].copy()) == k_hat(logs)


@pytest.mark.parametrize("logs", [np.zeros(1000), np.empty(0), np.arange(24.0), np.append(np.zeros(1000), [1.0, 2, 3])])
def test_constant_and_too_few_weights_are_not_judged(logs: Array) -> None:
    assert math.isnan(k_hat(logs))


def test_weights_equal_to_the_cutoff_count_as_arviz_counts_them_unless_they_are_most() -> None:
    logs = np.round(drawn("student", 2000, seed=5), 2)
    assert len(np.unique(np.sort(logs)[-135:])) < 100
    assert k_hat(logs) == pytest.approx(reference(logs), abs=1e-8)
    moved = np.random.default_rng(5).uniform(size=100) ** -1.5 / 1.5 + 1 / 3  # 1 and a Pareto excess of shape 1.5
    mostly_still = np.append(np.zeros(9000), np.log(moved))
    assert tail_size(9100) > 2 * len(moved)
    assert k_hat(mostly_still) == pytest.approx(1.5, abs=0.5)  # two standard errors


def test_one_weight_beside_which_all_others_vanish_is_heavier_than_any_fit() -> None:
    assert k_hat(np.append(np.linspace(0, 1, 500), 5000.0)) == math.inf


def test_the_tail_and_the_threshold_are_those_of_the_paper() -> None:
    assert [tail_size(n) for n in (25, 225, 10_000)] == [5, 45, 300]
    assert k_threshold(100) == pytest.approx(0.5)
    assert k_threshold(10**6) == 0.7
    assert math.isnan(k_threshold(10))
