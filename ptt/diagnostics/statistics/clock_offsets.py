"""Times of clocks that name no offset from UTC: where one was set back, and the offset at which two fit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from ptt.diagnostics.statistics.arrays import FloatArray

HOUR: Final = 3600.0
OFFSETS: Final = tuple(
    HOUR * hours
    for hours in sorted([*range(-12, 15), -9.5, -3.5, -2.5, 3.5, 4.5, 5.5, 5.75, 6.5, 8.75, 9.5, 10.5, 12.75, 13.75])
)
"""Seconds from UTC of the zones that are in use, in summer time too."""
CHANGES: Final = (HOUR, HOUR / 2)  # of summer time; half an hour on Lord Howe Island
MIN_SET_BACK: Final = HOUR / 4  # less is the disorder of writers that log side by side
MIN_SLACK: Final = (
    60.0  # seconds by which a span may reach beyond the other: clocks differ, and samples are seconds apart
)
MAX_SLACK: Final = HOUR / 8  # half of the least difference of two offsets


def counted_on(times: FloatArray) -> tuple[FloatArray, int, float]:
    """Return times in the order of writing, (n,), counted on behind the one place where their clock was set back.

    Also returns that place and by how many seconds; 0 and 0 where the clock was not set back once, by an hour at most.
    """
    steps = np.diff(times)
    places = np.flatnonzero(steps <= -MIN_SET_BACK)
    if len(places) != 1 or steps[places[0]] < -HOUR:
        return times, 0, 0.0
    place, usual = int(places[0]) + 1, _usual_step(times)
    took = [change + float(steps[place - 1]) for change in CHANGES]
    change = min((abs(passed - usual), change) for passed, change in zip(took, CHANGES, strict=True) if passed >= 0)[1]
    return np.append(times[:place], times[place:] + change), place, change


def set_forward(times: FloatArray) -> list[tuple[FloatArray, float]]:
    """Return times, (n,), as they would be had their clock been set forward in their longest pause, and by how much.

    None where that pause, but for the change, is longer than they usually are.
    """
    steps = np.diff(times)
    place = int(np.argmax(steps)) + 1 if len(steps) else 0
    usual = max(MIN_SLACK, 2 * _usual_step(times))
    return [
        (np.append(times[:place], times[place:] - change), change)
        for change in CHANGES
        if place and 0 <= steps[place - 1] - change <= usual
    ]


def fitting_shifts(
    times: FloatArray, others: FloatArray, shifts: Iterable[float], *, around: bool = False
) -> list[float]:
    """Return the seconds that, added to the times of one clock, place them within those of another, or around them."""
    slack = min(MAX_SLACK, max(MIN_SLACK, 2 * _usual_step(times), 2 * _usual_step(others)))
    inner, outer, sign = (others, times, -1.0) if around else (times, others, 1.0)
    early, late = float(outer.min() - inner.min()) - slack, float(outer.max() - inner.max()) + slack
    return [shift for shift in shifts if early <= sign * shift <= late]


def _usual_step(times: FloatArray) -> float:
    steps = np.diff(times)
    return float(np.median(steps[steps > 0])) if (steps > 0).any() else 0.0
