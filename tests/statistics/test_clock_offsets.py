"""Clocks that name no offset: counted on where they were set back, and joined where one offset fits."""

from __future__ import annotations

import numpy as np
import pytest

from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.statistics.rank_scores import HOUR, OFFSETS, counted_on, fitting_shifts, set_forward

START = 1.79e9


def every(seconds: float, count: int, *, since: float = 0.0) -> FloatArray:
    return START + since + seconds * np.arange(count, dtype=np.float64)


@pytest.mark.parametrize("change", [HOUR, HOUR / 2])
@pytest.mark.parametrize("spacing", [7.0, 300.0])
def test_times_are_counted_on_behind_a_clock_that_was_set_back(change: float, spacing: float) -> None:
    true = every(spacing, 200)
    read = np.append(true[:90], true[90:] - change)
    times, place, by = counted_on(read)
    assert (place, by) == (90, change)
    np.testing.assert_allclose(times, true)


@pytest.mark.parametrize(
    "steps", [[60.0] * 20, [60.0, -5.0, 70.0], [60.0, -2 * HOUR, 60.0], [60.0, -HOUR, 60.0, -HOUR, 60.0]]
)
def test_times_that_rise_or_go_back_otherwise_stay_as_they_are(steps: list[float]) -> None:
    times = START + np.cumsum(steps)
    found, place, by = counted_on(times)
    assert (place, by) == (0, 0.0)
    np.testing.assert_array_equal(found, times)


@pytest.mark.parametrize("offset", OFFSETS)
def test_one_offset_of_all_zones_places_a_log_within_the_samples_of_its_run(offset: float) -> None:
    samples = every(10.0, 720)
    log = every(60.0, 115, since=180.0 + offset)
    assert fitting_shifts(log, samples, [-one for one in OFFSETS]) == [-offset]
    assert fitting_shifts(log, samples, [-one for one in OFFSETS], around=True) == []
    assert fitting_shifts(samples + offset, log - offset, [-one for one in OFFSETS], around=True) == [-offset]


def test_no_offset_fits_another_day_and_several_fit_samples_of_a_whole_day() -> None:
    samples = every(10.0, 720)
    log = every(60.0, 100, since=48 * HOUR)
    assert fitting_shifts(log, samples, OFFSETS) == []
    day = every(60.0, 24 * 60, since=-12 * HOUR)
    assert len(fitting_shifts(log - 48 * HOUR, day, OFFSETS)) > 10


def test_a_longest_pause_may_be_a_clock_that_was_set_forward() -> None:
    true = every(30.0, 100)
    read = np.append(true[:40], true[40:] + HOUR)
    assert [by for _, by in set_forward(read)] == [HOUR]
    np.testing.assert_allclose(set_forward(read)[0][0], true)
    assert set_forward(true) == []
    assert set_forward(np.append(true[:40], true[40:] + 5000.0)) == []  # a pause of its own length
