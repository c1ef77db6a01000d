"""The spread of three seeds, against numpy by hand."""

from __future__ import annotations

import numpy as np
import pytest
from measured_runs import baseline_with, curves_at, made, measured, noisy, with_tails

from ptt.diagnostics.gate.baseline.moves import spreads


def test_spread_of_three_seeds_is_that_of_their_late_means() -> None:
    values = [noisy(np.random.default_rng(seed)) + 0.1 * seed for seed in range(3)]
    (found,) = spreads(made(*[measured({"entropy": held}, name=f"{n}") for n, held in enumerate(values)]))
    means = [held[80:].mean() for held in values]
    assert found.mean == pytest.approx(np.mean(means), rel=1e-5)
    assert found.between == pytest.approx(np.std(means, ddof=1), rel=1e-3)
    assert (found.runs, found.counts) == (3, (40, 40, 40))


def test_spread_of_tails_is_that_of_their_late_levels() -> None:
    levels = np.linspace(1.0, 2.0, 12)
    runs = [with_tails(f"{factor}", curves_at(levels * factor)) for factor in (1.0, 1.1, 1.3)]
    p95, p99 = spreads(baseline_with(*runs))
    late = np.exp(np.log(levels[8:]).mean()) * np.array([1.0, 1.1, 1.3])
    assert p95.mean == pytest.approx(late.mean())
    assert p95.between == pytest.approx(late.std(ddof=1))
    assert p99.mean == pytest.approx(2 * late.mean())
    assert p95.counts == p99.counts == (16_000,) * 3  # four late spans of each run, not all twelve, nor the runs' sum


def test_one_run_has_no_spread() -> None:
    (found,) = spreads(made(measured({"entropy": noisy(np.random.default_rng(1))})))
    assert found.between is None
