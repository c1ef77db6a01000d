"""When a falling series reaches zero if it goes on as in its last part, with an interval."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray

LAST_SHARE: Final = 0.5  # of the values: the trend is that of the run as it is now, not of its warm-up
MIN_VALUES: Final = 20  # of that part: of fewer no line has a slope
BLOCK: Final = 5  # values: residuals of neighbouring steps are alike
DRAWS: Final = 400
SEED: Final = 20_260_128


@dataclass(frozen=True, kw_only=True)
class ZeroCrossing:
    """Where a straight line through the last part reaches zero; high is None where it may never do so."""

    step: int
    low: int
    high: int | None
    slope: float  # a step


def zero_crossing(steps: IntArray, values: FloatArray) -> ZeroCrossing | None:
    """Return where the line through the last half of finite values, (n,), falls to zero, with a 95% interval.

    Residuals are resampled in circular blocks (moving-block bootstrap, Kunsch 1989) and the line fitted anew. None
    where fewer than 20 values are left, or one draw in forty does not fall: then nothing runs out.
    """
    first = len(values) - max(MIN_VALUES, int(LAST_SHARE * len(values)))
    if first < 0:
        return None
    at, last = steps[first:].astype(np.float64), values[first:]
    centre = at.mean()
    offset = at - centre
    square = float((offset * offset).sum())
    if square <= 0:
        return None
    slope = float((offset * last).sum()) / square
    residuals = last - last.mean() - slope * offset
    starts = np.random.default_rng(SEED).integers(0, len(last), size=(DRAWS, -(-len(last) // BLOCK)))
    places = (starts[..., None] + np.arange(BLOCK)).reshape(DRAWS, -1)[:, : len(last)] % len(last)
    drawn = residuals[places]
    slopes = slope + (drawn * offset).sum(axis=1) / square
    levels = float(last.mean()) + drawn.mean(axis=1)
    if slope >= 0 or np.quantile(slopes, 0.975) >= 0:
        return None
    falling = slopes < 0
    reached = np.full(DRAWS, np.inf)
    reached[falling] = centre - levels[falling] / slopes[falling]
    low, high = np.quantile(reached, [0.025, 0.975], method="nearest")
    end = int(steps[-1])
    return ZeroCrossing(
        step=max(end, round(centre - float(last.mean()) / slope)),
        low=max(end, math.floor(low)),
        high=max(end, math.ceil(high)) if np.isfinite(high) else None,
        slope=slope,
    )
