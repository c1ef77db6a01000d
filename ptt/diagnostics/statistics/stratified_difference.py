"""Whether a share is higher in the upper half of something than in the lower, stratum by stratum of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ptt.diagnostics.statistics.arrays import FloatArray, IntArray

MIN_TRIALS: Final = 5.0  # trials on either side of a stratum


@dataclass(frozen=True, kw_only=True)
class StratifiedDifference:
    """The share above and below each stratum's own median, over the strata that have both."""

    strata: int
    low: float
    high: float
    load_low: float  # mean of what was split by
    load_high: float
    error: float  # standard error of high - low, from how the strata differ among themselves


def stratified_difference(
    *, stratum: IntArray, by: FloatArray, hits: FloatArray, trials: FloatArray
) -> StratifiedDifference | None:
    """Split each stratum at its median of `by` and compare the share of hits; None with fewer than two strata.

    Entries at the median belong to neither half. What changes from stratum to stratum (the run's trend) cancels; what
    is alike within one (a bad hour) shows in how the strata differ, and so in the error.
    """
    rows = []
    for name in np.unique(stratum):
        members = stratum == name
        middle = float(np.median(by[members]))
        halves = [members & (by < middle), members & (by > middle)]
        counts = [float(trials[half].sum()) for half in halves]
        if min(counts) < MIN_TRIALS:
            continue
        shares = [float(hits[half].sum()) / count for half, count in zip(halves, counts, strict=True)]
        loads = [float(np.average(by[half], weights=trials[half])) for half in halves]
        rows.append((*shares, *loads))
    if len(rows) < 2:
        return None
    table = np.array(rows)
    gaps = table[:, 1] - table[:, 0]
    error = float(gaps.std(ddof=1)) / len(rows) ** 0.5
    low, high, load_low, load_high = table.mean(axis=0).tolist()
    return StratifiedDifference(
        strata=len(rows), low=low, high=high, load_low=load_low, load_high=load_high, error=error
    )
