"""Stretches of steps in which a share lies above its usual level, whether or not it came back."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import MAD_TO_SD, FloatArray

USUAL_QUANTILE: Final = 0.25  # of the values: as much as three quarters of a run may lie in a stretch
NOISE_SDS: Final = 4.0  # of single values about the usual level: among a thousand values none by chance
MAX_GAP: Final = 2  # values at the usual level between two parts of one stretch


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Places of the first and last value above the limit, both included, and what they hold."""

    first: int
    last: int
    mean: float  # of its values
    excess: float  # sum of what its values lie above the usual level: in whole steps' worth, for a share
    lasting: bool  # whether it goes on to the end


def usual_level(values: FloatArray) -> tuple[float, float]:
    """Return the usual level of finite values, (n,), and the standard deviation of single values about it.

    The level is the lower quartile, which a stretch of three quarters of the run leaves alone; the deviation is that of
    neighbouring values from each other, by their median, so that a stretch does not count as noise.
    """
    level = float(np.quantile(values, USUAL_QUANTILE))
    return level, MAD_TO_SD * float(np.median(np.abs(np.diff(values, prepend=values[:1])))) / math.sqrt(2)


def stretches_above(values: FloatArray, *, margin: float) -> list[Stretch]:
    """Return the stretches of finite values, (n,), above their usual level by `margin` and by noise, in their order."""
    if not len(values):
        return []
    level, noise = usual_level(values)
    above = np.flatnonzero(values > level + max(margin, NOISE_SDS * noise))
    if not len(above):
        return []
    breaks = np.flatnonzero(np.diff(above) > MAX_GAP + 1)
    firsts, lasts = above[np.concatenate([[0], breaks + 1])], above[np.concatenate([breaks, [len(above) - 1]])]
    return [
        Stretch(
            first=int(first),
            last=int(last),
            mean=float(values[first : last + 1].mean()),
            excess=float((values[first : last + 1] - level).sum()),
            lasting=bool(len(values) - 1 - last <= MAX_GAP),
        )
        for first, last in zip(firsts, lasts, strict=True)
    ]
