"""Shares by step: pooled without losing a trial, and quiet where only chance moves them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from builders import repeatable
from hypothesis import given
from hypothesis import strategies as st

from ptt.diagnostics.evidence.counts import MIN_POOLED_TRIALS, Counts, wilson_lower_bound


def counts_of(hits: list[int], trials: list[int]) -> Counts:
    return Counts(
        name="things that happen",
        steps=np.arange(1, len(hits) + 1),
        hits=np.array(hits, dtype=np.float64),
        trials=np.array(trials, dtype=np.float64),
    )


@repeatable
@given(st.lists(st.tuples(st.integers(1, 30), st.floats(0, 1)), min_size=1, max_size=80))
def test_pooling_keeps_every_trial_and_the_order(rows: list[tuple[int, float]]) -> None:
    trials = [count for count, _ in rows]
    hits = [int(share * count) for count, share in rows]
    counts = counts_of(hits, trials)
    pooled = counts.pooled
    if sum(trials) < MIN_POOLED_TRIALS:
        assert len(pooled.steps) == 0
        return
    assert (pooled.hits.sum(), pooled.trials.sum()) == (sum(hits), sum(trials))
    assert (pooled.trials >= MIN_POOLED_TRIALS).all()
    assert (np.diff(pooled.steps) > 0).all()
    assert pooled.steps[-1] == len(rows)
    assert ((pooled.series.values >= 0) & (pooled.series.values <= 1)).all()


def test_steps_with_enough_trials_stay_as_they_are() -> None:
    counts = counts_of([1, 2, 3], [10, 10, 10])
    assert counts.pooled.steps.tolist() == [1, 2, 3]
    assert counts.series.values.tolist() == [0.1, 0.2, 0.3]


@pytest.mark.parametrize(("hits", "trials", "low"), [(0, 10, 0.0), (10, 10, 0.7225), (5, 10, 0.2366), (0, 0, 0.0)])
def test_wilson_by_the_book(hits: int, trials: int, low: float) -> None:
    assert wilson_lower_bound(hits, trials) == pytest.approx(low, abs=1e-4)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("each", [2, 16])
def test_chance_alone_is_no_change(share: float, each: int) -> None:
    found = 0
    for seed in range(100):
        chance = np.random.default_rng(seed)
        hits = chance.binomial(each, share, size=200)
        counts = counts_of(hits.tolist(), [each] * 200)
        found += counts.rise(floor=0.0, factor=1.0) is not None
        found += counts.fall(ceiling=1.0, factor=1.0) is not None
    assert found <= 1


def test_a_rise_of_rare_events_is_found() -> None:
    chance = np.random.default_rng(1)
    hits = np.concatenate([chance.binomial(16, 0.02, 60), chance.binomial(16, 0.25, 60)])
    departure = counts_of(hits.tolist(), [16] * 120).rise(floor=0.1, factor=2.0)
    assert departure is not None
    assert 61 <= departure.onset <= 75
    assert not departure.ended


@pytest.mark.parametrize("rises", [True, False])
def test_a_change_that_leaves_no_overlap_is_found_among_few_values(rises: bool) -> None:
    chance = np.random.default_rng(2)
    shares = np.repeat([0.02, 0.95] if rises else [0.95, 0.02], [11, 12])
    counts = counts_of(chance.binomial(10, shares).tolist(), [10] * 23)
    shift = counts.rise(floor=0.1, factor=2.0) if rises else counts.fall(ceiling=1.0, factor=0.5)
    assert not counts.shows_change
    assert shift is not None
    assert shift.onset == 12


def test_chance_alone_is_no_change_among_few_values() -> None:
    found = 0
    for seed in range(2000):
        chance = np.random.default_rng(seed)
        counts = counts_of(chance.binomial(10, 0.5, 23).tolist(), [10] * 23)
        found += counts.rise(floor=0.0, factor=1.0) is not None
        found += counts.fall(ceiling=1.0, factor=1.0) is not None
    assert found <= 4


def test_without_a_trial_there_is_no_share() -> None:
    nothing = counts_of([], [])
    assert math.isnan(nothing.share)
    assert nothing.lower_bound == 0.0
    assert not nothing.shows_change


def test_a_share_that_rose_within_its_first_values_is_dated_there() -> None:
    counts = counts_of([0] * 12 + [5, 9] + [15] * 100, [15] * 114)
    rise = counts.jump(floor=0.1, factor=2.0)
    assert rise is not None
    assert rise.interval is not None
    assert (rise.interval[0] <= 13 <= rise.interval[1], rise.early, rise.last) == (True, 0.0, 1.0)


@pytest.mark.parametrize("share", [0.05, 0.45, 0.9])
def test_a_share_that_is_high_from_the_start_did_not_rise(share: float) -> None:
    found = 0
    for seed in range(100):
        hits = np.random.default_rng(seed).binomial(12, share, size=120)
        found += counts_of(hits.tolist(), [12] * 120).jump(floor=0.1, factor=2.0) is not None
    assert found == 0
