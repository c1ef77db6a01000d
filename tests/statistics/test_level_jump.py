"""Several levels that jump at one step: all of them together, at once, and not for a moment alone."""

from __future__ import annotations

import numpy as np

from ptt.diagnostics.statistics.level_jump import LevelJump, find_level_jump, fresh_starts

Array = np.ndarray


def noisy(levels: Array, seed: int, sd: float = 0.2) -> Array:
    generator = np.random.default_rng(seed)
    noise, push = np.zeros(len(levels)), generator.normal(size=len(levels))
    for at in range(1, len(levels)):
        noise[at] = 0.5 * noise[at - 1] + 0.85 * push[at]
    return np.asarray(levels * np.exp(sd * noise))


def stepped(factor: float, at: int = 30, count: int = 60) -> Array:
    return np.where(np.arange(count) < at, 0.1, 0.1 * factor)


def found(first: Array, second: Array) -> LevelJump | None:
    return find_level_jump([first, second], [2.0, 2.0])


def test_levels_that_leap_together_are_found_at_their_step() -> None:
    places = [found(noisy(stepped(4.0), seed), noisy(stepped(3.0), seed + 100)) for seed in range(40)]
    near = [one for one in places if one is not None and abs(one.place - 30) <= 1]
    assert len(near) >= 35
    assert all(min(one.factors) > 1.9 for one in near)


def test_levels_that_stay_or_climb_do_not_leap() -> None:
    climbing = np.linspace(0.02, 0.4, 60)
    for levels in (stepped(1.0), climbing):
        leaps = [found(noisy(levels, seed), noisy(levels, seed + 100)) for seed in range(200)]
        assert sum(one is not None for one in leaps) <= 1


def test_one_that_leaps_alone_or_a_burst_is_none() -> None:
    burst = np.where(np.abs(np.arange(60) - 30) <= 2, 0.5, 0.1)
    for seed in range(20):
        assert found(noisy(stepped(4.0), seed), noisy(stepped(1.0), seed + 100)) is None
        assert found(noisy(burst, seed), noisy(burst, seed + 100)) is None


def test_a_distance_that_starts_over_from_nothing_is_a_fresh_start() -> None:
    steps = np.arange(60)
    course = 0.05 * np.sqrt(np.where(steps < 25, steps + 1, np.maximum(steps - 25, 1e-6)))
    for seed in range(10):
        assert fresh_starts([noisy(course, seed), noisy(course, seed + 100)]).tolist() == [25]
    lone = np.where(steps == 25, 1e-6, 0.1)
    assert fresh_starts([noisy(lone, 1), noisy(lone, 2)]).tolist() == []
