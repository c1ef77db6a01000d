"""Whether several levels leave where they were at one and the same step, at once and together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.ratio_jump import scatter_of

BEFORE: Final = 10  # values whose median is the level that is left: a burst of a few is none
LEAST_BEFORE: Final = 6
AFTER: Final = 4  # values that lie there at once: what falls to nothing climbs again soon
MIN_SDS: Final = 3.0  # of single values about their running median; medians of several scatter half as much
LOOSE_SDS: Final = 2.0  # likewise, of a series that need only follow the others
LASTING: Final = 20  # values from the jump on, whose median keeps
KEPT: Final = 0.5  # of a rise, in the logarithm
AT_ONCE: Final = 0.65  # of the jump, from the last values before it to the first of it: a climb makes a third
PARTED: Final = 0.5  # of the way, that values on either side keep to their side of
NOTHING: Final = 1 / 8  # of the level before: a distance that starts over from 0
STILL_BELOW: Final = 1 / 1.4  # of the level before, after that: what is 0 for one step alone does not start over
FLOOR_SHARE: Final = 1e-3  # of the usual level: what is nearer to 0 is the same nothing


@dataclass(frozen=True, kw_only=True)
class LevelJump:
    """A place at which all levels jump; `factors` are new over old, in the order of the series."""

    place: int
    factors: tuple[float, ...]


def find_level_jump(series: Sequence[FloatArray], least: Sequence[float], *, followers: int = 0) -> LevelJump | None:
    """Return where all series of one length jump the same way by at least `least` times, the clearest place; or None.

    All values are 0 or above. A rise must last, and a fall may climb again. followers: so many of the last series need
    only have another level than before, as a noisy mean does.
    """
    if len(series[0]) < LEAST_BEFORE + AFTER:
        return None
    logs, contrasts = _logs(series), np.stack([_contrasts(values) for values in _logs(series)])
    share = contrasts / np.log(np.asarray(least))[:, None]
    together = np.where((np.sign(share) == np.sign(share[0])).all(axis=0), np.abs(share).min(axis=0), 0.0)
    leading = len(logs) - followers
    for place in np.argsort(-together, kind="stable").tolist():
        if together[place] < 1.0:
            return None
        jumps = contrasts[:, place].tolist()
        sure = all(_is_jump(logs[at], place, jumps[at]) for at in range(leading))
        if sure and all(abs(jumps[at]) >= LOOSE_SDS * _noise(logs[at], place) for at in range(leading, len(logs))):
            return LevelJump(place=place, factors=tuple(np.exp(jumps).tolist()))
    return None


def fresh_starts(series: Sequence[FloatArray]) -> IntArray:
    """Return the places at which all series of one length fall to about nothing at once, to climb from there again."""
    count = len(series[0])
    if count < LEAST_BEFORE + AFTER:
        return np.empty(0, np.int64)
    falls = np.ones(count, np.bool_)
    for values, contrast in ((own, _contrasts(own)) for own in _logs(series)):
        before = np.full(count, np.nan)
        for size in range(LEAST_BEFORE, min(BEFORE, count - 1) + 1):
            before[size:] = np.median(sliding_window_view(values, size), axis=1)[: count - size]
        with np.errstate(invalid="ignore"):
            falls &= (values - before <= math.log(NOTHING)) & (contrast <= math.log(STILL_BELOW))
    places = np.flatnonzero(falls)
    return places[np.diff(places, prepend=-AFTER) >= AFTER]


def _logs(series: Sequence[FloatArray]) -> list[FloatArray]:
    """Return logarithms, none of them below that of the floor of its series."""
    logs: list[FloatArray] = []
    for values in series:
        usual = float(np.median(values[values > 0])) if (values > 0).any() else 0.0
        logs.append(np.log(np.maximum(values, max(FLOOR_SHARE * usual, np.finfo(np.float64).tiny))))
    return logs


def _contrasts(values: FloatArray) -> FloatArray:
    """Return the median of AFTER values from each place on less that of up to BEFORE before it; 0 at the ends."""
    count = len(values)
    result = np.zeros(count)
    after = np.median(sliding_window_view(values, AFTER), axis=1)
    for size in range(LEAST_BEFORE, min(BEFORE, count - AFTER) + 1):
        before = np.median(sliding_window_view(values, size), axis=1)
        places = np.arange(size, count - AFTER + 1)
        result[places] = after[places] - before[places - size]
    return result


def _noise(values: FloatArray, place: int) -> float:
    nearby = values[max(0, place - 2 * BEFORE) : place], values[place : place + 2 * BEFORE]
    return max(scatter_of(part) for part in nearby if len(part) >= LEAST_BEFORE)


def _is_jump(values: FloatArray, place: int, jump: float) -> bool:
    """Return whether the change is made at once and beyond noise, and lasts where it is a rise."""
    sign = math.copysign(1.0, jump)
    before, after = sign * values[max(0, place - BEFORE) : place], sign * values[place : place + AFTER]
    level = float(np.median(before))
    at_once = float(after[:2].mean() - np.median(before[-3:]))
    parted = level + abs(jump) * PARTED
    left = float(np.median(sign * values[place : place + LASTING])) - level
    return (
        abs(jump) >= MIN_SDS * _noise(values, place)
        and at_once >= AT_ONCE * abs(jump)
        and bool((before <= parted).mean() >= 0.9 and (after >= parted).all())
        and (sign < 0 or left >= KEPT * abs(jump))
    )
