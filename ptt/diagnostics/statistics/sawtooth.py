"""A level that climbs and falls back at regular steps: so does a distance to what is reset every N steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray

MIN_PERIODS: Final = 3  # falls: two are an accident,
MIN_COUNTED: Final = 2  # unless the interval is counted from the first step, as trainers count theirs
MIN_VALUES_A_PERIOD: Final = 4  # recorded in it: fewer show no climb
MAX_POINTS: Final = 600  # that are searched at a time: intervals of up to a third of them
RESOLUTION: Final = 4 * MAX_POINTS
"""Divides a span or an interval: phases and intervals less than a quarter of a point apart cannot be distinguished.
Without it the search would grow with the square of the number of steps, whatever the number of points."""
MAX_SIDE: Final = 5  # values on either side of a fall whose medians are compared; a third of a period at most
FLOOR_SHARE: Final = 0.02  # of the median level: smaller values all count as 0
MIN_FALL: Final = math.log(1.5)  # of the level, in the mean over the falls
MIN_EACH: Final = math.log(1.15)  # at nearly every one
ROUNDING: Final = 1e-9  # rounding error by which a mean may exceed all of its values
MIN_MEDIAN_SHARE: Final = 0.5  # of the mean fall, the least that the median may be: one outlier makes no pattern
FEW_FALLS: Final = 3  # with so few, one could make up the mean, the median and the whole pattern
MIN_LEAST_SHARE: Final = 0.4  # of the mean fall, the least that the smallest of so few may be
KEPT_SHARE: Final = 0.8  # of the falls and of the climbs, how many must be there
MIN_Z: Final = 6.0  # of the mean fall over its error: some 10^4 intervals and phases are tried
LIKE_SHARE: Final = 0.7  # of the mean fall: as large a fall elsewhere, or as regular a rise, refutes a reset
MANY_SD: Final = 3.0  # and too large for noise
MAX_ELSEWHERE: Final = 1 / 3  # of the number of falls


@dataclass(frozen=True, kw_only=True)
class Sawtooth:
    """Regular falls of a level: every `interval` steps, at `falls` (the first recorded step after each)."""

    interval: int
    falls: tuple[int, ...]
    factor: float  # by which the level falls, as a geometric mean
    z: float  # the mean fall over its error


def find_sawtooth(steps: IntArray, values: FloatArray) -> Sawtooth | None:
    """Return the clearest sawtooth of a level that is never negative but by noise, or None."""
    usable = np.isfinite(values)
    steps, values = steps[usable], np.maximum(values[usable], 0.0)
    if len(steps) < MIN_COUNTED * MIN_VALUES_A_PERIOD or not (values > 0).any():
        return None
    levels = np.log(values + FLOOR_SHARE * float(np.median(values[values > 0])))
    found = _search(steps[-MAX_POINTS:], levels[-MAX_POINTS:])
    if len(steps) > MAX_POINTS:
        size = -(-len(steps) // MAX_POINTS)
        starts = np.arange(0, len(steps), size)
        means = np.add.reduceat(levels, starts) / np.diff(np.append(starts, len(levels)))
        coarse = _search(steps[starts], means)
        found = coarse if found is None or (coarse is not None and coarse.z > found.z) else found
    return found


def _search(steps: IntArray, levels: FloatArray) -> Sawtooth | None:
    span = int(steps[-1]) - int(steps[0])
    rate = (len(steps) - 1) / max(1, span)  # recorded values a step
    best: Sawtooth | None = None
    contrasts = {side: _contrasts(levels, side) for side in range(1, MAX_SIDE + 1)}
    if max(map(_largest, contrasts.values())) <= MIN_FALL - ROUNDING:  # no mean of falls can lie above it
        return None
    noise = {side: _spread(contrast) for side, contrast in contrasts.items()}
    shortest = max(2, math.ceil(MIN_VALUES_A_PERIOD / rate))
    for interval in _intervals(shortest, span // MIN_COUNTED):
        side = min(MAX_SIDE, max(1, int(interval * rate) // 3))
        phases = _phases(int(steps[0]) + 1, interval, max(1, span // RESOLUTION))
        places, valid = _places(steps, phases, interval, side)
        count = valid.sum(axis=1)
        falls = np.where(valid, contrasts[side][np.clip(places, 0, len(levels))], 0.0)
        mean = falls.sum(axis=1) / np.maximum(count, 1)
        z = mean * np.sqrt(count) / noise[side]
        kept = ((falls > MIN_EACH) & valid).sum(axis=1) >= KEPT_SHARE * count
        counted = phases % interval <= 1  # resets at N, 2N, ..., or at the steps after
        enough = count >= np.where(counted, MIN_COUNTED, MIN_PERIODS)
        fits = enough & (mean > MIN_FALL) & kept & (z > MIN_Z)
        if not fits.any():
            continue
        phase = int(np.argmax(np.where(fits, z, -np.inf)))
        if best is not None and z[phase] <= best.z:
            continue
        at = places[phase][valid[phase]]
        rise = -float(np.min(mean[count >= MIN_COUNTED]))  # at the phase with the largest rise
        typical = _are_alike(contrasts[side][at], float(mean[phase]))
        regular = typical and rise < LIKE_SHARE * mean[phase] and _climbs(levels, at)
        if regular and _alone(contrasts[side], at, side, max(LIKE_SHARE * float(mean[phase]), MANY_SD * noise[side])):
            best = Sawtooth(
                interval=interval,
                falls=tuple(steps[at].tolist()),
                factor=math.exp(float(mean[phase])),
                z=float(z[phase]),
            )
    return best


def _are_alike(falls: FloatArray, mean: float) -> bool:
    """Return whether the falls have about one size, so that no single one makes the pattern."""
    few = len(falls) <= FEW_FALLS
    return float(np.median(falls)) > MIN_MEDIAN_SHARE * mean and not (few and falls.min() < MIN_LEAST_SHARE * mean)


def _intervals(shortest: int, longest: int) -> Iterator[int]:
    """Yield the intervals to try: every one, or the roundest of those that cannot be distinguished."""
    interval = shortest
    while interval <= longest:
        width = max(1, interval // RESOLUTION)
        unit = 10 ** (len(str(width)) - 1)
        yield min(longest, -(-interval // unit) * unit)
        interval += width


def _phases(first: int, interval: int, width: int) -> IntArray:
    """Return where the first reset may be, from `first` on: any step, or every `width` and where trainers count."""
    phases = np.arange(first, first + interval, width)
    if width > 1:
        counted = first + (-first) % interval  # at N, 2N, ..., or one step later
        phases = np.unique(np.append(phases, [counted, first + (1 - first) % interval]))
    return phases


def _contrasts(levels: FloatArray, side: int) -> FloatArray:
    """Return, for each place, by how much the level falls there; NaN at the ends.

    Half of it is the median of the `side` levels before it less that of those from it on, which noise moves little;
    half is the level before it less the one at it, which dates the fall.
    """
    result = np.full(len(levels) + 1, np.nan)
    if len(levels) >= 2 * side:
        medians = np.median(sliding_window_view(levels, side), axis=1)
        inner = slice(side, len(levels) - side + 1)
        at_once = np.append(np.nan, np.append(levels[:-1] - levels[1:], np.nan))
        result[inner] = (medians[:-side] - medians[side:] + at_once[inner]) / 2
    return result


def _largest(contrasts: FloatArray) -> float:
    """Return the largest fall; minus infinity if no contrast is finite."""
    return float(np.max(contrasts, where=np.isfinite(contrasts), initial=-math.inf))


def _spread(contrasts: FloatArray) -> float:
    """Return the robust standard deviation of changes from place to place; regular falls are too few to matter."""
    finite = contrasts[np.isfinite(contrasts)]
    if not len(finite):
        return math.inf
    return max(1.4826 * float(np.median(np.abs(finite - np.median(finite)))), 0.02)


def _places(steps: IntArray, phases: IntArray, interval: int, side: int) -> tuple[IntArray, BoolArray]:
    """Return, by phase, the places of the first recorded steps at or after each reset, and which can be compared."""
    number = int(steps[-1] - steps[0]) // interval + 1
    resets = phases[:, None] + interval * np.arange(number)[None, :]
    places = np.searchsorted(steps, resets)
    valid = (places >= side) & (places <= len(steps) - side) & (resets <= steps[-1])
    valid[:, 1:] &= places[:, 1:] > places[:, :-1]
    return places, valid


def _alone(contrasts: FloatArray, at: IntArray, side: int, large_from: float) -> bool:
    """Return whether falls as large are rare away from these."""
    near = np.zeros(len(contrasts), np.bool_)
    for shift in range(-side, side + 1):
        near[np.clip(at + shift, 0, len(contrasts) - 1)] = True
    with np.errstate(invalid="ignore"):
        large = (contrasts > large_from) & ~near
    first = large & ~np.append(False, large[:-1])  # neighbouring places share their change
    return int(first.sum()) <= MAX_ELSEWHERE * len(at)


def _climbs(levels: FloatArray, at: IntArray) -> bool:
    """Return whether the level climbs from fall to fall."""
    climbs = []
    for start, stop in pairwise(at.tolist()):
        third = max(1, (stop - start) // 3)
        climbs.append(np.median(levels[stop - third : stop]) > np.median(levels[start : start + third]))
    return float(np.mean(climbs)) >= KEPT_SHARE
