"""Whether few values fell from their best, against noise that remembers: five values are enough for a clear answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ptt.diagnostics.statistics.arrays import FloatArray

MIN_FEW: Final = 5  # values: two that are best, two at the end, and one between
MAX_FEW: Final = 60  # values: of more, noise and its correlation are known from the series itself
NULL_AR1: Final = 0.5  # AR(1) of the noise that a fall is held against; few values do not show their own
NULL_FREEDOM: Final = 5.0  # Student t of that noise: a wild value decides nothing
DRAWS: Final = 9999  # of noise without any fall: p-values come down to 0.0001
SEED: Final = 20_261_127
STEP_BENDS: Final = 2  # second differences that a step makes: they are no noise
BEND_VARIANCE: Final = 6.0  # of a second difference, in that of one value of white noise
WINDOW_SHARE: Final = 5  # a window takes a fifth of the values
MIN_WINDOW: Final = 2  # values: one alone is no level
TINY: Final = 1e-12  # of the values' size: differences of equal values


@dataclass(frozen=True, kw_only=True)
class FewFall:
    """The fall of few values from their best window to their last one."""

    best: float
    late: float
    best_place: int  # the last value of the best window
    onset: int  # the first value from which on all lie below halfway
    p_value: float

    @property
    def share(self) -> float:
        """How far it fell, of the larger of both levels; 0 where both are 0."""
        scale = max(abs(self.best), abs(self.late))
        return (self.best - self.late) / scale if scale > 0 else 0.0


def fall_from_best(values: FloatArray) -> FewFall | None:
    """Return the fall from the best window of few finite values, (n,), to the last; None for fewer than MIN_FEW.

    The statistic is the difference of both means in standard errors, the noise taken from how far values lie off the
    middle of their neighbours: a slope is no noise, nor are the two largest bends, which a step makes. Its null is
    drawn: heavy-tailed AR(1) noise of as many values, with the best window chosen likewise.
    """
    count = len(values)
    if count < MIN_FEW:
        return None
    width = _width(count)
    means = sliding_window_view(values, width).mean(axis=-1)
    best = int(np.argmax(means))
    late = float(values[-width:].mean())
    observed = float(_statistics(values[None])[0])
    null = _null(count)
    above = np.flatnonzero(values > (float(means[best]) + late) / 2)
    return FewFall(
        best=float(means[best]),
        late=late,
        best_place=best + width - 1,
        onset=min(int(above[-1]) + 1, count - 1) if len(above) else count - 1,
        p_value=float((1 + np.count_nonzero(null >= observed - TINY)) / (1 + len(null))),
    )


def _width(count: int) -> int:
    return max(MIN_WINDOW, count // WINDOW_SHARE)


def _statistics(values: FloatArray) -> FloatArray:
    """Return the fall of each row, (draws, n), in standard errors."""
    width = _width(values.shape[-1])
    bends = np.sort(np.square(np.diff(values, n=2, axis=-1)), axis=-1)
    squares = bends[:, : -min(STEP_BENDS, (bends.shape[-1] + 1) // 3)]
    noise = np.sqrt(squares.mean(axis=-1) / BEND_VARIANCE)
    best = sliding_window_view(values, width, axis=-1).mean(axis=-1).max(axis=-1)
    floor = TINY * np.maximum(np.abs(values).max(axis=-1), np.finfo(np.float64).tiny)
    fall: FloatArray = (best - values[:, -width:].mean(axis=-1)) / np.maximum(noise * math.sqrt(2 / width), floor)
    return fall


@lru_cache(maxsize=MAX_FEW)
def _null(count: int) -> FloatArray:
    """Draw the statistic of so many values of noise alone."""
    drawn = np.random.default_rng(SEED).standard_t(NULL_FREEDOM, size=(DRAWS, count))
    noise = np.empty_like(drawn)
    noise[:, 0] = drawn[:, 0]
    for place in range(1, count):
        noise[:, place] = NULL_AR1 * noise[:, place - 1] + math.sqrt(1 - NULL_AR1**2) * drawn[:, place]
    return _statistics(noise)
