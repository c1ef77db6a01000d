"""Stretches of a share above its usual level, and when a falling share reaches zero, against known values."""

from __future__ import annotations

import numpy as np

from ptt.diagnostics.statistics.excess_stretches import stretches_above
from ptt.diagnostics.statistics.zero_crossing import zero_crossing


def test_a_stretch_is_found_at_its_places_with_its_mean_and_excess() -> None:
    values = np.full(100, 0.02)
    values[40:60] = 0.52
    (found,) = stretches_above(values, margin=0.1)
    assert (found.first, found.last, found.lasting) == (40, 59, False)
    assert np.isclose(found.mean, 0.52)
    assert np.isclose(found.excess, 20 * 0.5)


def test_a_stretch_of_three_quarters_of_a_run_leaves_the_usual_level_alone() -> None:
    values = np.concatenate([np.full(30, 0.02), np.full(70, 0.6)])
    (found,) = stretches_above(values, margin=0.1)
    assert (found.first, found.last, found.lasting) == (30, 99, True)


def test_short_gaps_do_not_end_a_stretch_and_longer_ones_do() -> None:
    values = np.zeros(60)
    values[[20, 21, 24, 25, 29, 30]] = 0.5
    assert [(found.first, found.last) for found in stretches_above(values, margin=0.1)] == [(20, 25), (29, 30)]


def test_noise_alone_is_no_stretch() -> None:
    generator = np.random.default_rng(5)
    found = [stretches_above(generator.binomial(64, 0.05, 200) / 64, margin=0.1) for _ in range(200)]
    worth = [max((stretch.excess for stretch in stretches), default=0.0) for stretches in found]
    assert max(worth) < 0.5


def test_the_crossing_of_a_noisy_line_lies_in_its_interval() -> None:
    generator = np.random.default_rng(3)
    steps = np.arange(1, 201)
    covered = 0
    for _ in range(40):
        values = 0.8 - 0.0025 * steps + 0.05 * generator.normal(size=200)  # zero at step 320
        found = zero_crossing(steps, values)
        assert found is not None
        covered += found.low <= 320 <= (found.high or 10**9)
    assert covered >= 34


def test_a_level_share_never_runs_out() -> None:
    generator = np.random.default_rng(4)
    steps = np.arange(1, 201)
    found = [zero_crossing(steps, 0.5 + 0.05 * generator.normal(size=200)) for _ in range(40)]
    assert sum(one is not None for one in found) <= 3
    assert zero_crossing(steps[:10], np.linspace(1, 0.5, 10)) is None
