"""Look for change over the order of the episodes: in blocks, within one model and environment, and dated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.model import Steps
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.ramp_change import (
    MIN_BLOCKS,
    OrderChange,
    block_edges,
    find_change,
    order_p_value,
    rise_onset,
)
from ptt.diagnostics.statistics.windows import Span

MAX_BLOCKS: Final = 60  # of a test: short enough to date a change, and few enough for noise of neighbours to cancel
DATED_BLOCKS: Final = 24  # in which the foot of a slow rise is looked for: its time grows with their fourth power
FALSE_ALARMS: Final = 0.01  # of all tests of one set together, where nothing changes
SLOW_BLOCKS: Final = 3  # before the likeliest place of a sudden change: a rise that begins earlier is a slow one
TESTS: Final = 20
"""Tests of change that a set may be put to: twelve of all its episodes, and eight of single tools. Each is held to its
share of FALSE_ALARMS (Bonferroni), so that asking much costs nothing."""
MAX_TOOLS_TESTED: Final = 8
CONTIGUOUS: Final = 1.5  # runs a task (or model) up to which episodes of it follow each other; mixed ones have many


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the order of the episodes is worth: which of them are compared, and which stay together."""

    timed: bool  # by training step or time; else by files, whose order may be arbitrary
    joined: bool  # only by files, of which there are several: then it is no order in time
    place: IntArray  # of each episode
    compared: BoolArray  # those of the largest model and environment, where one follows the other
    whole: IntArray | None  # a number for each episode; neighbours of one number share a step, or a task
    mixed: bool  # tasks do not follow each other: each may come early and late

    @property
    def left_out(self) -> bool:
        """Whether some episodes are not compared, for another model or environment made them."""
        return not bool(self.compared.all())


@dataclass(frozen=True, kw_only=True)
class Shift:
    """A change of a mean over the order, beyond chance."""

    early: float
    late: float
    onset: int
    interval: Steps
    p_value: float

    @property
    def levels(self) -> dict[str, float]:
        """What a finding keeps of it as evidence."""
        return {"early": self.early, "late": self.late, "p_value": self.p_value}


def order_of(episodes: pl.DataFrame, *, timed: bool) -> Order:
    """Return what the order of the episodes is worth."""
    maker = episodes.select(pl.struct("model", "env").rank("dense"))["model"].to_numpy().astype(np.int64)
    compared = np.ones(len(maker), bool)
    if _follow_each_other(maker):
        sizes = np.bincount(maker)
        compared = maker == int(np.argmax(sizes))
    unit = episodes["unit"].to_numpy().astype(np.int64)
    step = episodes["step"].to_numpy().astype(np.int64) if episodes["step"].null_count() == 0 else None
    by_task = len(unit) and int(unit.max()) + 1 < len(unit)
    follow = bool(by_task) and _follow_each_other(unit)
    whole = unit if follow else None
    if whole is None and step is not None and len(np.unique(step[compared])) >= MIN_BLOCKS:
        whole = step
    place = episodes["place"].to_numpy().astype(np.int64)
    joined = not timed and episodes["source"].n_unique() > 1
    return Order(
        timed=timed, joined=joined, place=place, compared=compared, whole=whole, mixed=bool(by_task) and not follow
    )


def _follow_each_other(names: IntArray) -> bool:
    """Tell whether there are several names, and all rows of a name stand together, or nearly so."""
    several = len(np.unique(names))
    return several > 1 and 1 + int(np.count_nonzero(np.diff(names))) <= CONTIGUOUS * several


def shift_of(
    order: Order, sums: FloatArray, weights: FloatArray, matters: Callable[[float, float], bool]
) -> Shift | None:
    """Return the shift of a mean over the order, if it matters and chance does not explain it.

    sums, weights: of each episode; those of weight 0 say nothing. matters: of the early mean and the late one.
    """
    rows = np.flatnonzero(order.compared & (weights > 0))
    whole = None if order.whole is None else order.whole[rows]
    edges = block_edges(len(rows), MAX_BLOCKS, whole) if len(rows) else np.empty(0, np.int64)
    if len(edges) < MIN_BLOCKS:
        return None
    total, of = (np.add.reduceat(values[rows], edges) for values in (sums, weights))
    change = find_change(total, of)
    if change is None or not matters(change.early, change.late):
        return None
    p_value = order_p_value(total, of)
    if p_value > FALSE_ALARMS / TESTS:
        return None
    place = order.place[rows]
    onset, interval = _dated(change, place, edges)
    foot = _foot(total, of, place, edges, rises=change.late > change.early)
    if foot is not None:
        slow = foot[0] < place[edges[max(0, change.low - SLOW_BLOCKS)]]
        onset = foot[0] if slow else onset  # the middle of its way is where a slow change shows most, not its beginning
        interval = min(onset, interval[0], foot[1][0]), max(onset, foot[1][1] if slow else interval[1])
    return Shift(early=change.early, late=change.late, onset=onset, interval=interval, p_value=p_value)


def _dated(change: OrderChange, place: IntArray, edges: IntArray) -> tuple[int, Steps]:
    """Return where the second level begins, and between which places: a block that holds a change lies on either."""
    ends = np.append(edges[1:], len(place)) - 1
    low, high = int(edges[max(0, change.low - 1)]), int(ends[change.high])
    return int(place[edges[change.block]]), (int(place[low]), int(place[high]))


def _foot(
    sums: FloatArray, weights: FloatArray, place: IntArray, edges: IntArray, *, rises: bool
) -> tuple[int, Steps] | None:
    """Return where a slow change began, and the interval of that."""
    kept = block_edges(len(sums), DATED_BLOCKS)
    total, of = (np.add.reduceat(values, kept) for values in (sums, weights))
    means = total / of
    starts = edges[kept]
    ends = np.append(starts[1:], len(place)) - 1
    spans = [Span(first=int(place[low]), last=int(place[high])) for low, high in zip(starts, ends, strict=True)]
    if any(later.first <= earlier.last for earlier, later in pairwise(spans)):
        return None  # steps that are torn
    scatter = float(np.square(np.diff(means)).mean() / 2) * float(of.mean())
    onset = rise_onset(
        (means if rises else -means)[:, None],
        scatter / of,
        spans,
        recorded=np.unique(place),
        steps=max(1.0, len(np.unique(place)) / len(spans)),
        draws=100,
    )
    if onset is None:
        return None
    width = (spans[-1].last - spans[0].first) // len(spans)  # a block that holds the foot may lie on either side of it
    return onset.step, (max(spans[0].first, onset.interval[0] - width), onset.interval[1])
