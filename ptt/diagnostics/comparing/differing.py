"""Whether a metric differs between two arms in a window: higher, lower, alike, or it cannot be said."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ptt.diagnostics.comparing.logged import Logged
from ptt.diagnostics.statistics.levels import T95, Level, between_seeds, levels_of, minus, pooled

ALIKE_SHARE: Final = 0.1
"""Of the baseline's mean: two runs of one setting differ by as much, and nobody would act on it."""
ALIKE_NOISE: Final = 0.5
"""Of a single step's standard deviation, for metrics that go below zero: the loss has no level to take a share of."""
PRECISION: Final = 1e-6  # of a value that was not measured: single precision in one file, all digits in another
COMMON_SHARE: Final = 0.8  # of the steps are logged by both: then they are set against each other step by step


@dataclass(frozen=True, kw_only=True)
class Apart:
    """Arm minus baseline in one window, with its 95 % interval; NaN where it is not known."""

    difference: float = math.nan
    low: float = math.nan
    high: float = math.nan
    words: str = "cannot_say"
    margin: float = math.nan  # a difference up to here is none that matters


def told_apart(
    place: int,
    mine: Sequence[Level],
    theirs: Sequence[Level],
    arm_parts: Sequence[Sequence[Logged]],
    base_parts: Sequence[Sequence[Logged]],
) -> Apart:
    """Tell the arm from the baseline in the window at `place`; levels are of that window, parts of all of them."""
    parts = [run[place] for run in (*arm_parts, *base_parts)]
    if any(part.lost for part in parts) or not all(level.values for level in (*mine, *theirs)):
        return Apart()
    difference = _difference(place, mine, theirs, arm_parts, base_parts)
    low, high = difference.bounds()
    measured = noise_of(mine, theirs) > 0  # of a schedule or a constant any difference is one
    margin = (ALIKE_SHARE if measured else PRECISION) * abs(pooled(theirs).mean)
    if all(bool((part.values[np.isfinite(part.values)] > 0).all()) for part in parts):
        # factors: one spike of a long-tailed metric then decides nothing
        logs = [[[_in_logs(piece) for piece in run] for run in side] for side in (arm_parts, base_parts)]
        arm, base = ([levels_of([piece.values for piece in run])[place] for run in side] for side in logs)
        factor = _difference(place, arm, base, *logs)
        words = words_of(factor, math.log1p(ALIKE_SHARE if measured else PRECISION))
        if words in ("higher", "lower") and factor.mean * difference.mean < 0:
            words = "cannot_say"  # the typical value and the mean went to opposite sides
    else:
        if any(bool((part.values < 0).any()) for part in parts):
            margin = max(margin, ALIKE_NOISE * noise_of(mine, theirs)) if measured else margin
        words = words_of(difference, margin)
    return Apart(difference=difference.mean, low=low, high=high, words=words, margin=margin)


def words_of(difference: Level, margin: float) -> str:
    """Say higher, lower, alike or cannot_say of a difference.

    alike: its 90 % interval lies within the margin (two one-sided tests), so that no difference is taken for
    likeness; higher, lower: its 99.8 % interval leaves out 0, since so many metrics and windows are asked at once,
    and it is larger than the margin.
    """
    if math.isnan(difference.error):
        return "cannot_say"
    low, high = difference.bounds(T95)
    if max(-low, high) <= margin:
        return "alike"
    sign = difference.exceeds_zero()
    if sign and abs(difference.mean) > margin:
        return "higher" if sign > 0 else "lower"
    return "cannot_say"


def noise_of(mine: Sequence[Level], theirs: Sequence[Level]) -> float:
    """Give the standard deviation of a single step, of the noisier side."""
    return max(level.noise if math.isfinite(level.noise) else 0.0 for level in (*mine, *theirs))


def _difference(
    place: int,
    mine: Sequence[Level],
    theirs: Sequence[Level],
    arm_parts: Sequence[Sequence[Logged]],
    base_parts: Sequence[Sequence[Logged]],
) -> Level:
    """Give arm minus baseline: of two single runs step by step where they log the same steps, else of their means."""
    if len(mine) == len(theirs) == 1:
        return _paired(arm_parts[0], base_parts[0], place) or minus(mine[0], theirs[0])
    spread, freedom = between_seeds([mine, theirs])
    return minus(pooled(mine, spread, freedom), pooled(theirs, spread, freedom))


def _paired(arm: Sequence[Logged], base: Sequence[Logged], place: int) -> Level | None:
    """Give the mean difference step by step, where most steps are logged by both: what steps share then cancels."""
    pieces = []
    for mine, theirs in zip(arm, base, strict=True):
        common, at, there = np.intersect1d(mine.steps, theirs.steps, return_indices=True)
        if len(common) < COMMON_SHARE * max(len(mine.steps), len(theirs.steps)):
            return None
        pieces.append(mine.values[at] - theirs.values[there])
    found = levels_of(pieces)[place]
    return found if found.values else None


def _in_logs(piece: Logged) -> Logged:
    values = np.full(len(piece.values), math.nan)
    usable = piece.values > 0
    values[usable] = np.log(piece.values[usable])
    return replace(piece, values=values)
