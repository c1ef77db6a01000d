"""Whether a mismatch leaves the level that the run itself began with, though it stays within its limit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from ptt.diagnostics.evidence.series import Series

GREW: Final = 3.0  # times the level of the first steps
EARLY: Final = 5  # a rise before it is the first updates' and no jump: these values are the run's own level
OWN_FLOOR: Final = 0.01  # of the limit: what stays below it harms nothing, whatever it was before
FIRST_VALUES: Final = 3  # the level at the start
BESIDE: Final = {"length": "len/response_mean", "entropy": "entropy", "lag": "staleness/mean", "rate": "lr"}


def own_limit(level: Series, metrics: Mapping[str, Series], limit: float) -> float | None:
    """Return the size below `limit` that the last values exceed, and the run's own first values do not by far, or None.

    It is `GREW` times the first values and above all of them, and by as much more as what may move the mismatch has
    grown: the policy's entropy, the length, the lag and the learning rate. It lies at least halfway, in factors, to the
    last values: noise of a low level does not reach it. level: sizes, 0 where both sides agree.
    """
    values = level.finite()[1]
    late = float(np.median(values[-level.width :]))
    if len(values) < EARLY + level.width or late > limit:
        return None
    own = max(GREW * float(np.median(values[:FIRST_VALUES])), float(values[:EARLY].max()))
    own *= max((growth_of(metrics[name]) for name in BESIDE.values() if name in metrics), default=1.0)
    own = max(own, math.sqrt(float(np.median(values[:FIRST_VALUES])) * late), OWN_FLOOR * limit)
    return own if own < min(late, limit) else None


def growth_of(series: Series) -> float:
    """Return the factor by which a metric is higher at the end than at the start, at least 1; infinite from 0 on."""
    values = series.finite()[1]
    if not len(values):
        return 1.0
    first, late = float(np.median(values[:EARLY])), float(np.median(values[-series.width :]))
    return max(late / first, 1.0) if first > 0 else math.inf if late > 0 else 1.0
