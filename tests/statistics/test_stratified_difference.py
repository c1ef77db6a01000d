"""The stratified gap: a trend over the run is no gap, and what goes with load is."""

from __future__ import annotations

import numpy as np
import pytest

from ptt.diagnostics.statistics.strata import stratified_difference


def test_by_hand() -> None:
    gap = stratified_difference(
        stratum=np.repeat([0, 1], 20),
        by=np.tile(np.repeat([1.0, 5.0], 10), 2),
        hits=np.concatenate(
            [np.repeat([0, 1], [9, 1]), np.repeat([0, 1], [5, 5]), np.zeros(10), np.repeat([0, 1], [7, 3])]
        ),
        trials=np.ones(40),
    )
    assert gap is not None
    assert gap.strata == 2
    assert (gap.low, gap.high) == pytest.approx((0.05, 0.4))
    assert (gap.load_low, gap.load_high) == (1.0, 5.0)
    assert gap.error == pytest.approx(np.std([0.4, 0.3], ddof=1) / 2**0.5)


def test_entries_at_the_median_belong_to_neither_half() -> None:
    even = np.ones(40)
    assert stratified_difference(stratum=np.repeat([0, 1], 20), by=even, hits=even, trials=even) is None


def test_a_trend_of_both_is_no_gap() -> None:
    """Load and failures rise together over the run; within a stratum they have nothing to do with each other."""
    wide = []
    for seed in range(50):
        chance = np.random.default_rng(seed)
        stratum = np.repeat(np.arange(20), 30)
        by = stratum + chance.random(600)
        hits = (chance.random(600) < 0.02 * (1 + stratum)).astype(float)
        gap = stratified_difference(stratum=stratum, by=by, hits=hits, trials=np.ones(600))
        assert gap is not None
        wide.append(abs(gap.high - gap.low) > 4 * gap.error)
    assert sum(wide) <= 1
