"""Where a metric leaves its own early behaviour for good: limits relative to the run, and against its own noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ptt.diagnostics.evidence.series import Series, excess_interval
from ptt.diagnostics.model import Steps

LEAST: Final = 30  # finite values: fewer have no early part that could be told from the rest
EARLY_SHARE: Final = 0.2
EARLY_LEAST: Final = 20
EARLY_MOST: Final = 200  # values: a long run's early behaviour is its beginning, not its first fifth
MOST_POINTS: Final = 2000  # a longer series is judged by the means of so many blocks: windows then grow with the run
STEP_LIKENESS: Final = 0.8  # AR(1) of step noise that a bound is wide enough for (docs/statistics.md)
SDS: Final = 4.0  # of a window's mean: with AR(1) noise of 0.8, no more than a few runs in a thousand pass by chance
MAD_TO_SD: Final = 1.4826


@dataclass(frozen=True, kw_only=True)
class Level:
    """How a series behaves at first."""

    median: float
    spread: float  # robust standard deviation of single values
    values: int
    last_step: int


@dataclass(frozen=True, kw_only=True)
class Departure:
    """A lasting departure from the early level."""

    onset: int
    interval: Steps  # 95 %, of the onset
    early: float
    extreme: float  # the mean over a window that lies furthest off
    last: float  # the mean over the last window
    limit: float
    ended: bool  # the last window is back within the limit

    @property
    def ratio(self) -> float:
        """The extreme over the early level; NaN for a level of zero."""
        return self.extreme / self.early if self.early else math.nan


def condensed(series: Series) -> Series:
    """Give the means of at most MOST_POINTS blocks of equal size, each at its last step; a short series as it is."""
    steps, values = series.finite()
    size = -(-len(values) // MOST_POINTS)
    if size <= 1:
        return series
    starts = np.arange(0, len(values), size)
    counts = np.diff(np.append(starts, len(values)))
    means = np.add.reduceat(values, starts) / counts
    return replace(
        series, steps=steps[starts + counts - 1], values=means, flags=np.zeros(len(means), series.flags.dtype)
    )


def early_level(series: Series) -> Level | None:
    """Give the level of the first fifth, of 20 values at least and 200 at most; None where nothing follows it."""
    steps, values = series.finite()
    if len(values) < LEAST:
        return None
    count = min(max(EARLY_LEAST, int(EARLY_SHARE * len(values))), EARLY_MOST)
    early = values[:count]
    median = float(np.median(early))
    spread = MAD_TO_SD * float(np.median(np.abs(early - median)))
    return Level(median=median, spread=spread, values=count, last_step=int(steps[count - 1]))


def rise(
    series: Series, *, floor: float, factor: float = 1.0, margin: float = 0.0, sds: float = SDS
) -> Departure | None:
    """Give the lasting rise above early * factor + margin, above the noise of a window, and above `floor`, or None.

    `floor`: what the level must reach to matter at all, in the metric's own unit; `factor` >= 1 applies to positive
    levels. The bound is the highest of the three. Raises nothing; a series of fewer than LEAST values gives None.
    """
    small = condensed(series)
    level = early_level(small)
    if level is None:
        return None
    noise = sds * level.spread * math.sqrt((1 + STEP_LIKENESS) / (1 - STEP_LIKENESS) / small.width)
    relative = level.median * factor if level.median > 0 else level.median
    return _beyond(small, level, max(floor, relative + margin, level.median + noise))


def fall(
    series: Series, *, ceiling: float, factor: float = 1.0, margin: float = 0.0, sds: float = SDS
) -> Departure | None:
    """Give the lasting fall below early * factor - margin, below the noise of a window, and below `ceiling`, or None."""
    small = condensed(series)
    level = early_level(small)
    if level is None:
        return None
    noise = sds * level.spread * math.sqrt((1 + STEP_LIKENESS) / (1 - STEP_LIKENESS) / small.width)
    relative = level.median * factor if level.median > 0 else level.median
    bound = min(ceiling, relative - margin, level.median - noise)
    turned = replace(level, median=-level.median)
    found = _beyond(replace(small, values=-small.values), turned, -bound)
    if found is None:
        return None
    return replace(found, early=level.median, extreme=-found.extreme, last=-found.last, limit=bound)


def _beyond(series: Series, level: Level, bound: float) -> Departure | None:
    """Give the first lasting excess after the first half of the early part."""
    steps, _ = series.finite()
    later = replace(
        series,
        steps=series.steps[series.steps > steps[level.values // 2]],
        values=series.values[series.steps > steps[level.values // 2]],
        flags=series.flags[series.steps > steps[level.values // 2]],
    )
    onset = later.excess(bound)
    if onset is None:
        return None
    means = later.rolling()[1]
    means = means[np.isfinite(means)]
    return Departure(
        onset=onset,
        interval=excess_interval(later, bound, onset),
        early=level.median,
        extreme=float(means.max()),
        last=float(means[-1]),
        limit=bound,
        ended=bool(means[-1] <= bound),
    )
