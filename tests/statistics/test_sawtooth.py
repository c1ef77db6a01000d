"""A level that falls back at regular steps is found, dated and told from what only looks like it."""

from __future__ import annotations

import numpy as np
import pytest
from rule_cases import wander
from slow_cases import first_fast

from ptt.diagnostics.statistics.sawtooth import find_sawtooth

Values = np.ndarray[tuple[int], np.dtype[np.float64]]


def sawtooth(seed: int, *, interval: int, steps: int = 300, noise: float = 0.3, kept: float = 0.0) -> Values:
    """Return a KL that grows with the square root of the steps since the last sync, which leaves `kept` of it."""
    generator = np.random.default_rng(seed)
    value, values = 0.0, np.zeros(steps)
    for step in range(steps):
        if step and step % interval == 0:
            value *= kept
        value += 0.01 * generator.uniform(0.5, 1.5)
        values[step] = value * np.exp(noise * generator.normal())
    return values


@pytest.mark.parametrize("interval", first_fast([20, 90, 8, 50], 2))
@pytest.mark.parametrize("kept", [0.0, 0.16])
def test_every_interval_is_found_to_the_step(interval: int, kept: float) -> None:
    steps = np.arange(1, 301)
    found = [find_sawtooth(steps, sawtooth(seed, interval=interval, kept=kept)) for seed in range(10)]
    right = [one for one in found if one is not None and one.interval == interval]
    assert len(right) >= (9 if interval < 90 else 7)
    for one in right:
        assert {(step - 1) % interval for step in one.falls} == {0}
        assert one.factor > 1.5


def test_two_falls_do_where_the_interval_is_counted_from_the_first_step() -> None:
    steps = np.arange(1, 141)
    found = find_sawtooth(steps, sawtooth(5, interval=50, steps=140, noise=0.2))
    assert found is not None
    assert (found.interval, found.falls) == (50, (51, 101))
    assert find_sawtooth(steps[:100], sawtooth(5, interval=50, steps=130, noise=0.2)[30:]) is None  # at 21 and 71


def test_steps_recorded_in_bursts_show_it_too() -> None:
    steps = np.array([step for step in range(1, 601) if (step - 1) % 8 < 2])
    found = find_sawtooth(steps, sawtooth(1, interval=64, steps=600, noise=0.2)[steps - 1])
    assert found is not None
    assert abs(found.interval - 64) <= 1


@pytest.mark.parametrize("likeness", first_fast([0.0, 0.5, 0.9]))
def test_a_growing_level_with_noise_and_spikes_is_none(likeness: float) -> None:
    steps = np.arange(1, 301)
    for seed in range(40):
        generator = np.random.default_rng(seed)
        values = np.sqrt(steps / 300) * np.exp(0.5 * wander(seed, count=300, likeness=likeness))
        values[generator.integers(0, 300, 5)] *= 10
        assert find_sawtooth(steps, values) is None, seed


def test_data_that_comes_again_every_epoch_is_none() -> None:
    """A level that depends on the prompts rises as sharply as it falls."""
    steps = np.arange(1, 301)
    assert find_sawtooth(steps, np.where(steps % 60 < 20, 1.0, 0.3)) is None


def test_too_few_values_and_nothing_at_all_are_none() -> None:
    assert find_sawtooth(np.arange(8), np.ones(8)) is None
    assert find_sawtooth(np.arange(100), np.zeros(100)) is None
    assert find_sawtooth(np.arange(100), np.full(100, np.nan)) is None


@pytest.mark.slow
@pytest.mark.parametrize(("count", "apart", "interval"), [(50_000, 1, 5_000), (2_000, 10**9, 10**11)])
def test_long_runs_are_searched_as_fast_as_short_ones(count: int, apart: int, interval: int) -> None:
    steps = np.arange(1, count + 1) * apart
    values = ((steps - apart) % interval + apart).astype(np.float64) * np.exp(
        0.1 * np.random.default_rng(1).normal(size=count)
    )
    found = find_sawtooth(steps, values)
    assert found is not None
    assert abs(found.interval / interval - 1) < 0.005
