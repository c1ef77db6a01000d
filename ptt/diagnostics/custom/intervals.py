"""Stretches of steps on which something holds: sorted, apart from each other, both ends included."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Stretch = tuple[int, int]
Stretches = tuple[Stretch, ...]

FAR: Final = 1 << 60  # beyond any step
NEVER: Final[Stretches] = ()
ALWAYS: Final[Stretches] = ((-FAR, FAR),)


def stretches(steps: npt.NDArray[np.int64], holds: npt.NDArray[np.bool_], *, end: int) -> Stretches:
    """Give where `holds` is true, a value counting until the next one is logged, and the last one until `end`."""
    if not len(steps):
        return NEVER
    until = np.append(steps[1:] - 1, max(end, int(steps[-1])))
    change = np.diff(holds.astype(np.int8), prepend=0, append=0)
    firsts, lasts = np.flatnonzero(change == 1), np.flatnonzero(change == -1) - 1
    return tuple((int(steps[first]), int(until[last])) for first, last in zip(firsts, lasts, strict=True))


def union(sets: Iterable[Stretches]) -> Stretches:
    """Give where at least one holds; neighbours grow together."""
    found: list[Stretch] = []
    for first, last in sorted(stretch for one in sets for stretch in one):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def intersection(sets: Sequence[Stretches]) -> Stretches:
    """Give where all hold."""
    found = sets[0] if sets else ALWAYS
    for other in sets[1:]:
        found = _both(found, other)
    return found


def _both(one: Stretches, other: Stretches) -> Stretches:
    found: list[Stretch] = []
    left = right = 0
    while left < len(one) and right < len(other):
        first, last = max(one[left][0], other[right][0]), min(one[left][1], other[right][1])
        if first <= last:
            found.append((first, last))
        if one[left][1] < other[right][1]:
            left += 1
        else:
            right += 1
    return tuple(found)


def lasting(found: Stretches, steps: int) -> Stretches:
    """Give the stretches that are at least so many steps long."""
    return tuple(stretch for stretch in found if stretch[1] - stretch[0] + 1 >= steps)
