"""From which step on a difference of two runs stays away from zero, and how closely that step is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from ptt.diagnostics.evidence.departures import step_noise
from ptt.diagnostics.statistics.trend import first_lasting

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

LEAST: Final = 30  # differences: with fewer, half of what there is would be the window that tells
WIDTH: Final = 20  # a window's mean tells, never a step
NARROWEST: Final = 5
MOST: Final = 400  # a longer series is judged by the means of so many blocks
SDS: Final = 4.0  # of a window's mean: it is looked at some hundred times in each of some twenty figures
FEW: Final = 10
"""Values: a short series tells its noise and its likeness badly, so limits lie higher by so many over their number."""
NO_NOISE: Final = 1e-9  # of the largest difference: a schedule leaves at its first other value
DRAWS: Final = 100
SEED: Final = 20_260_611


@dataclass(frozen=True, kw_only=True)
class Leaving:
    """The first step away, its 95 % interval, and how far away the end is."""

    step: int
    low: int
    high: int
    last: float  # mean over the last window
    since: int  # the first step of that window
    until: int  # and its last


def leaving(
    steps: IntArray, values: FloatArray, *, ends: IntArray | None = None, between: float = 0.0
) -> Leaving | None:
    """Give where differences leave zero for good, or None; `between`: the standard error that seeds add to them.

    steps, ends: the first and the last step that each difference is of, where it is of more than one.

    A window's mean must lie beyond four of its standard errors, at four of five places from there on and at the end,
    always to the same side, and a window of values must follow. The step is where the values up to the window are
    best cut in two, zero before and the later level after; the interval is that of a moving-block bootstrap (Kunsch
    1989), and begins with the step before, since a figure of a step is taken from weights that the steps before made.
    """
    usable = np.isfinite(values)
    if usable.sum() < LEAST:
        return None
    firsts, lasts, levels = _condensed(steps[usable], (steps if ends is None else ends)[usable], values[usable])
    spread, likeness = step_noise(levels)
    spread = max(spread, NO_NOISE * float(np.abs(levels).max()))
    width = min(WIDTH, max(NARROWEST, len(levels) // 3))
    errors = np.hypot(_errors(len(levels), width, spread, likeness), between)
    found = _first(levels[None], width, errors)[0]
    if found is None:
        return None
    seen = [len(levels) - 1 if place is None else place for place in _first(_redrawn(levels, width), width, errors)]
    low, high = (int(place) for place in np.percentile([found, *seen], [2.5, 97.5], method="nearest"))
    low = min(low, _last_within(levels, found, width, errors))
    return Leaving(
        step=int(firsts[found]),
        low=int(firsts[max(0, min(low, found) - 1)]),
        high=int(lasts[max(high, found)]),
        last=float(levels[-width:].mean()),
        since=int(firsts[-width]),
        until=int(lasts[-1]),
    )


def _condensed(firsts: IntArray, lasts: IntArray, values: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Give the first steps, the last steps and the means of at most MOST blocks."""
    size = -(-len(values) // MOST)
    starts = np.arange(0, len(values), size)
    stops = np.append(starts[1:], len(values))
    return firsts[starts], lasts[stops - 1], np.add.reduceat(values, starts) / (stops - starts)


def _redrawn(levels: FloatArray, width: int) -> FloatArray:
    """Give (draws, n): the running median, with what the values lie off it redrawn in blocks."""
    half = width // 2
    centre = np.median(sliding_window_view(np.pad(levels, half, mode="edge"), 2 * half + 1), axis=1)
    starts = np.random.default_rng(SEED).integers(0, len(levels) - width + 1, size=(DRAWS, -(-len(levels) // width)))
    places = (starts[..., None] + np.arange(width)).reshape(DRAWS, -1)[:, : len(levels)]
    redrawn: FloatArray = centre + (levels - centre)[places]
    return redrawn


def _errors(count: int, width: int, spread: float, likeness: float) -> FloatArray:
    """Give the standard error of the mean over the last `width` values at each place; inf before there are five."""
    held = np.minimum(np.arange(1, count + 1), width)
    error: FloatArray = spread * np.sqrt((1 + likeness) / (1 - likeness) / held) * (1 + FEW / count)
    error[: NARROWEST - 1] = np.inf
    return error


def _means(rows: FloatArray, width: int) -> FloatArray:
    """Give the mean over the last `width` values, or as many as there are, at each place of each row."""
    sums = np.cumsum(np.pad(rows, ((0, 0), (1, 0))), axis=1)
    ends = np.arange(1, rows.shape[1] + 1)
    begins = np.maximum(0, ends - width)
    means: FloatArray = (sums[:, ends] - sums[:, begins]) / (ends - begins)
    return means


def _first(rows: FloatArray, width: int, errors: FloatArray) -> list[int | None]:
    """Give for each row the place at which it leaves zero for good."""
    found: list[int | None] = []
    for row, mean in zip(rows, _means(rows, width), strict=True):
        sign = float(np.sign(mean[-1]))
        beyond = sign * mean > SDS * errors
        place = first_lasting(beyond) if beyond[-1] else None
        onset = None if place is None else _cut(row, place, width, sign)
        found.append(onset if onset is not None and len(row) - onset >= width else None)
    return found


def _last_within(levels: FloatArray, found: int, width: int, errors: FloatArray) -> int:
    """Give the place that the departure may go back to: half a window before the last mean within its error of zero.

    A small departure passes the limit late; it began when the mean was last where noise leaves it.
    """
    mean = _means(levels[None], width)[0]
    within = np.flatnonzero((np.sign(mean[-1]) * mean <= errors)[:found])
    return max(0, int(within[-1]) - width // 2) if len(within) else 0


def _cut(row: FloatArray, place: int, width: int, sign: float) -> int:
    """Give the place that best cuts the values around a window into zero before and the later level after."""
    begin, end = max(0, place - 2 * width + 1), min(len(row), place + width)
    level = float((sign * row[place:end]).mean())
    gain = np.cumsum((sign * row[begin : place + 1] - level / 2)[::-1])[::-1]
    return begin + int(np.argmax(gain))
