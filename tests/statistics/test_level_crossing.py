"""When a rising curve passed a level: as an independent isotonic regression has it, and as often covered as said."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from ptt.diagnostics.statistics.change_point import (
    crossing_interval,
    isotonic_fit,
    level_crossing,
    share_crossing_interval,
)


def test_the_fit_and_where_it_passes_a_level_are_those_of_scipy() -> None:
    for seed in range(30):
        generator = np.random.default_rng(seed)
        values = np.linspace(0, 2, 40) + generator.normal(scale=0.8, size=40)
        reference = isotonic_regression(values).x
        assert isotonic_fit(values) == pytest.approx(reference)
        above = np.flatnonzero(reference > 1.0 + 1e-12)
        assert level_crossing(values, 1.0) == (int(above[0]) if len(above) else None)


def test_a_level_that_is_never_passed_or_from_the_start() -> None:
    assert level_crossing(np.zeros(10), 1.0) is None
    assert level_crossing(np.full(10, 2.0), 1.0) == 0
    assert level_crossing(np.array([1.0, 1.0, 2.0]), 1.0) == 2


def test_without_noise_the_interval_is_the_step() -> None:
    values = np.where(np.arange(50) >= 20, 2.0, 0.0)
    assert level_crossing(values, 1.0) == 20
    assert crossing_interval(values, 1.0) == (20, 20)


def test_the_interval_holds_the_true_crossing_as_often_as_it_says() -> None:
    held = []
    for seed in range(80):
        generator = np.random.default_rng(seed)
        place = int(generator.integers(15, 85))
        values = (np.arange(100) - place) * 0.03 + generator.normal(scale=0.3, size=100)
        low, high = crossing_interval(values, 0.0)
        held.append(low <= place <= high)
    assert np.mean(held) >= 0.93


def test_the_weighted_fit_is_that_of_scipy() -> None:
    for seed in range(30):
        generator = np.random.default_rng(seed)
        values, weights = generator.normal(size=40), generator.integers(1, 9, size=40).astype(np.float64)
        reference = isotonic_regression(values, weights=weights).x
        assert isotonic_fit(values, weights) == pytest.approx(reference)


def _crossed(hits: np.ndarray, trials: np.ndarray, level: float) -> tuple[int, int, int] | None:
    first = level_crossing(hits - level * trials, 0.0)
    return None if first is None else (first, *share_crossing_interval(hits, trials, level, first))


def test_a_share_that_jumps_is_dated_to_the_step() -> None:
    trials = np.full(60, 20.0)
    assert _crossed(np.where(np.arange(60) >= 33, 12.0, 0.0), trials, 0.1) == (33, 33, 33)


@pytest.mark.parametrize("mixed", [0.0, 0.25])  # by how much steps differ in their share: prompts do
def test_the_interval_of_a_share_holds_the_true_crossing(mixed: float) -> None:
    held, width = [], []
    for seed in range(200):
        generator = np.random.default_rng(seed)
        place = int(generator.integers(25, 75))
        share = np.clip(0.02 + 0.03 * np.maximum(0, np.arange(100) - place + 3), 0, 0.7)  # 0.11 at `place`
        trials = generator.integers(5, 25, size=100).astype(np.float64)
        each = np.clip(share * (1 + mixed * generator.normal(size=100)), 0, 1)
        hits = generator.binomial(trials.astype(int), each).astype(np.float64)
        crossed = _crossed(hits, trials, 0.105)
        assert crossed is not None
        held.append(crossed[1] <= place <= crossed[2])
        width.append(crossed[2] - crossed[1])
    assert np.mean(held) >= 0.93
    assert np.mean(width) < 20
