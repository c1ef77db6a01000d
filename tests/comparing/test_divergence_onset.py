"""From which step on a difference stays away from zero: steps that are known, and noise alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import signal

from ptt.diagnostics.compare.divergence_onset import divergence_onset


def noise(count: int, likeness: float, seed: int) -> np.ndarray:
    white = np.random.default_rng(seed).normal(size=count + 100) * np.sqrt(1 - likeness**2)
    found: np.ndarray = signal.lfilter([1.0], [1.0, -likeness], white)[100:]
    return found


@pytest.mark.parametrize("likeness", [0.0, 0.5, 0.8])
def test_noise_alone_leaves_in_hardly_any_run(likeness: float) -> None:
    found = sum(divergence_onset(np.arange(200), noise(200, likeness, seed)) is not None for seed in range(150))
    assert found <= 2


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_step_is_found_where_it_is(sign: float) -> None:
    held = near = 0
    for seed in range(40):
        values = noise(300, 0.3, seed)
        values[120:] += 3.0
        found = divergence_onset(np.arange(1, 301), sign * values)
        assert found is not None
        assert found.last * sign > 2
        held += found.low <= 121 <= found.high
        near += abs(found.step - 121) <= 3
    assert held >= 38
    assert near >= 36


def test_what_is_far_above_at_every_step_is_so_from_the_first_one() -> None:
    found = divergence_onset(np.arange(10, 50), 3.0 + noise(40, 0.0, 9))
    assert found is not None
    assert (found.step, found.low, found.high) == (10, 10, 10)


def test_what_comes_back_did_not_leave() -> None:
    values = noise(300, 0.0, 1)
    values[100:180] += 4.0
    assert divergence_onset(np.arange(300), values) is None


def test_what_leaves_in_the_last_steps_cannot_be_called_lasting() -> None:
    values = noise(300, 0.0, 1)
    values[290:] += 30.0
    assert divergence_onset(np.arange(300), values) is None


def test_one_wild_step_is_no_departure() -> None:
    values = noise(300, 0.0, 2)
    values[150] += 1000.0
    assert divergence_onset(np.arange(300), values) is None


def test_a_schedule_leaves_at_its_first_other_value() -> None:
    values = np.zeros(200)
    values[80:] = 1e-4
    found = divergence_onset(np.arange(200), values)
    assert found is not None
    assert found.step == 80


def test_few_values_and_values_that_are_no_numbers_say_nothing() -> None:
    assert divergence_onset(np.arange(20), np.full(20, 9.0)) is None
    assert divergence_onset(np.arange(200), np.full(200, np.nan)) is None


def test_a_long_series_is_told_by_the_steps_of_its_blocks() -> None:
    values = noise(4000, 0.0, 3)
    values[2000:] += 2.0
    found = divergence_onset(np.arange(4000), values)
    assert found is not None
    assert found.low <= 2000 <= found.high
    assert abs(found.step - 2000) < 60
