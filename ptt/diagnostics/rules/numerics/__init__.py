"""What the rules on numbers share: the first step at which one is none, and stretches of a series."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import NAN_FLAGS, Series
from ptt.diagnostics.metrics.catalogue import listed
from ptt.diagnostics.statistics.arrays import IntArray

CORE: Final = listed("core")
DEAD_NULLS: Final = 3  # nulls at the very end: a single one may be a row that does not log the metric


def core_series(evidence: Evidence) -> list[Series]:
    """Give the metrics that every run should have finite, as far as they are logged."""
    return [evidence.metrics[name] for name in CORE if name in evidence.metrics]


def first_not_a_number(held: Iterable[Series]) -> tuple[int, str] | None:
    """Give the first step at which a series is NaN or infinite, and what it is logged as.

    Nulls from a step to the end count as well: so some writers spell a metric that is NaN from there on.
    """
    found = []
    for series in held:
        bad = np.flatnonzero(np.isin(series.flags, NAN_FLAGS))
        tail = dead_tail(series)
        places = [int(part[0]) for part in (bad, tail) if len(part)]
        if places:
            found.append((int(series.steps[min(places)]), series.raw_name))
    return min(found, default=None)


def dead_tail(series: Series) -> IntArray:
    """Give the places behind the last finite value, where they show that there will be no other; else none."""
    finite = np.flatnonzero(np.isfinite(series.values))
    tail = np.arange(int(finite[-1]) + 1 if len(finite) else 0, len(series.steps))
    proven = bool(np.isin(series.flags[tail], NAN_FLAGS).any())
    return tail if len(tail) >= (1 if proven else DEAD_NULLS) else tail[:0]


def longest_true(mask: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """Give place and length of the first longest stretch of True; (0, 0) where there is none."""
    return max(stretches(mask), key=lambda one: one[1], default=(0, 0))


def stretches(mask: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Give place and length of every stretch of True, in order."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    return [(int(start), int(end - start)) for start, end in zip(edges[::2], edges[1::2], strict=True)]
