"""Find, among the histories of many runs, the few that may be of one run: a thousand have half a million pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.store.run_histories import AGREEING_SHARE, CLOSE, CLOSE_TO_ZERO, MIN_SHARED, History

Ints = npt.NDArray[np.int64]
EVERY: Final = 3
"""Of the points of a history one in so many is compared first. Two that are one differ in a fifth of them at most, so a
third is enough to tell nearly all others."""
ROUNDING: Final = 1e-6  # points: what is left in is compared exactly


def owners_before(histories: Sequence[tuple[int, History]]) -> dict[int, set[int]]:
    """Return for each owner of histories those before it of whose one may agree with one of its own but for rounding.

    All that do agree (see relate_histories, not `exact`) are among them.
    """
    points = _Points([history for _, history in histories])
    owners = np.array([owner for owner, _ in histories], np.int64)
    before: dict[int, set[int]] = {}
    for number, (owner, _) in enumerate(histories):
        before.setdefault(owner, set()).update(owners[points.earlier(number)].tolist())
    return before


class _Points:
    """Points of histories, by metric and step, so that one is compared with all before it in a few array operations."""

    def __init__(self, histories: Sequence[History]) -> None:
        """`histories`: compared by their numbers, from 0 on."""
        names: dict[str, int] = {}
        points = [_finite_points(history, names) for history in histories]
        self._size = np.array([len(value) for _, _, value in points], np.int64)
        rows = np.repeat(np.arange(len(points)), self._size)
        name, step, value = (np.concatenate([of[at] for of in points]) if points else np.zeros(0) for at in range(3))
        steps, step_at = np.unique(step, return_inverse=True)
        place = np.unique(name * max(1, len(steps)) + step_at, return_inverse=True)[1]
        self._place, self._bounds, self._own = place, np.append(0, np.cumsum(self._size)), value
        order = np.lexsort((rows, place))
        self._row, self._value = rows[order], value[order]
        self._key = place[order] * max(1, len(points)) + self._row

    def earlier(self, number: int) -> Ints:
        """Return the histories before one that may agree with it but for rounding; all that do are among them."""
        own = slice(self._bounds[number], self._bounds[number + 1])
        place, value = self._place[own], self._own[own]
        most = np.minimum(self._size[:number], len(place))
        shared, close = self._compared(number, place[::EVERY], value[::EVERY])
        left = shared - close <= (1 - AGREEING_SHARE) * most + ROUNDING
        if not (left & (most >= MIN_SHARED)).any():
            return np.zeros(0, np.int64)
        shared, close = self._compared(number, place, value)
        return np.flatnonzero((shared >= MIN_SHARED) & (close + ROUNDING >= AGREEING_SHARE * shared))

    def _compared(self, number: int, place: Ints, value: npt.NDArray[np.float64]) -> tuple[Ints, Ints]:
        """Return how many points each earlier history shares with these, and how many of them are close."""
        histories = max(1, len(self._size))
        first = np.searchsorted(self._key, place * histories)
        count = np.searchsorted(self._key, place * histories + number) - first
        at = np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())
        row, one, other = self._row[at], np.repeat(value, count), self._value[at]
        scale = np.maximum(np.abs(one), np.abs(other))
        near = np.abs(one - other) <= np.maximum(CLOSE * scale, CLOSE_TO_ZERO)
        return np.bincount(row, minlength=number), np.bincount(row[near], minlength=number)


def _finite_points(history: History, names: dict[str, int]) -> tuple[Ints, Ints, npt.NDArray[Any]]:
    """Return the number of the metric, the step and the value of each point."""
    numbers = [np.full(len(series), names.setdefault(name, len(names))) for name, series in history.values.items()]
    steps = [np.fromiter(series.keys(), np.int64, len(series)) for series in history.values.values()]
    values = [np.fromiter(series.values(), np.float64, len(series)) for series in history.values.values()]
    nothing = np.zeros(0, np.int64)
    value = np.concatenate([*values, np.zeros(0)])
    finite = np.isfinite(value)
    return np.concatenate([*numbers, nothing])[finite], np.concatenate([*steps, nothing])[finite], value[finite]
