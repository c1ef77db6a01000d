"""Look for change over the order of the episodes: in blocks, within one model and environment, and dated."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import Steps
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.order_change import (
    MIN_BLOCKS,
    Matters,
    OrderChange,
    Scale,
    block_edges,
    find_change,
    order_p_value,
    smallest_seen,
)
from ptt.diagnostics.statistics.ramp_change import rise_onset
from ptt.diagnostics.statistics.windows import Span

MAX_BLOCKS: Final = 120  # of a test: enough for noise to be known well, and few enough for thousands of orders
DATED_BLOCKS: Final = 24  # in which the foot of a slow rise is looked for: its time grows with their fourth power
FALSE_ALARMS: Final = 0.01  # of all rates of one set together, where nothing changes
ALONE: Final = 0.0005  # the p-value that counts of what is asked beside the rates, and must agree with another change
MIN_KEPT: Final = 0.2  # of a shift: where tasks come early or late, and hardly any both, none can be seen within them
MAX_FACTOR: Final = 10.0  # times the mean of all: a change to more needs no test to be seen
LEVELS: Final = 201  # that are tried for the smallest change to be seen
FEW: Final = 5  # hits: with fewer, how they scatter is not known
TINY: Final = 1e-9
SORTED_LENGTHS: Final = 4  # of episodes without one out of order: what grows in time also falls back
CONTIGUOUS: Final = 1.5  # runs a task (or model) up to which episodes of it follow each other; mixed ones have many


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the order of the episodes is worth: which of them are compared, and which stay together."""

    timed: bool  # by training step or time; else by files, whose order may be arbitrary
    arbitrary: bool  # only by files, of which there are several, or one that is sorted: then it is no order in time
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
    arbitrary = not timed and (episodes["source"].n_unique() > 1 or _is_sorted(episodes))
    return Order(
        timed=timed,
        arbitrary=arbitrary,
        place=place,
        compared=compared,
        whole=whole,
        mixed=bool(by_task) and not follow,
    )


def _is_sorted(episodes: pl.DataFrame) -> bool:
    """Tell whether a file lists episodes by length: then what changes along it changes with length, not with time."""
    turns = episodes["n_turns"].drop_nulls()
    return turns.n_unique() >= SORTED_LENGTHS and (turns.is_sorted() or turns.is_sorted(descending=True))


def _follow_each_other(names: IntArray) -> bool:
    """Tell whether there are several names, and all rows of a name stand together, or nearly so."""
    several = len(np.unique(names))
    return several > 1 and 1 + int(np.count_nonzero(np.diff(names))) <= CONTIGUOUS * several


def shift_of(order: Order, sums: FloatArray, weights: FloatArray, matters: Matters) -> Shift | None:
    """Return the shift of a mean over the order, if it matters and chance does not explain it.

    sums, weights: of each episode; those of weight 0 say nothing. matters: of the early mean and the late one.
    """
    found = _find(_Blocks.of(order, sums, weights), matters, Scale.LEVEL)
    return found[1](found[0]) if found is not None and found[0] <= ALONE else None


@dataclass(frozen=True, kw_only=True)
class Rate:
    """One rate or mean over the episodes, and what a change of it for the worse must come to."""

    label: str
    sums: FloatArray
    weights: FloatArray
    matters: Matters
    importance: float  # its part of FALSE_ALARMS, set against those of the other rates
    rises: bool = True  # for the worse
    scale: Scale = Scale.SHARE
    unit: IntArray | None = None  # compared within these, where they come both early and late


@dataclass(frozen=True, kw_only=True)
class Change:
    """What a rate did over the order: its shift, or else how far it must have come to be seen."""

    label: str
    scale: Scale
    rises: bool
    level: float  # of the whole set
    shift: Shift | None
    seen: float | None  # the level nearest to `level` that it must reach half-way to be found nine times out of ten
    p_value: float | None = None  # None where what it did does not matter, whatever chance makes of it


def changes_of(order: Order, rates: Mapping[str, Rate]) -> dict[str, Change]:
    """Test every rate for a change for the worse; all tests of one set raise a false alarm in FALSE_ALARMS of sets.

    Each is held to its part of them by importance. A rate that never varies cannot alarm, and gives its part to the
    others; so does one whose change was found (Holm 1979).
    """
    blocks = {name: _Blocks.of(order, rate.sums, rate.weights, rate.unit) for name, rate in rates.items()}
    blocks = {name: block for name, block in blocks.items() if len(block.edges) >= MIN_BLOCKS}
    varies = [name for name, block in blocks.items() if block.varies]
    whole = sum(rates[name].importance for name in varies)
    found = {
        name: one for name in varies if (one := _find(blocks[name], rates[name].matters, rates[name].scale)) is not None
    }
    shifts: dict[str, Shift] = {}
    left = whole
    for name in sorted(found, key=lambda name: found[name][0] / rates[name].importance):
        if found[name][0] > FALSE_ALARMS * rates[name].importance / left:
            break
        left -= rates[name].importance
        shifts[name] = found[name][1](found[name][0])
    return {
        name: Change(
            label=rates[name].label,
            scale=rates[name].scale,
            rises=rates[name].rises,
            level=block.level,
            shift=shifts.get(name),
            seen=_seen(block, rates[name], FALSE_ALARMS / (whole + (0 if block.varies else rates[name].importance))),
            p_value=found[name][0] if name in found else None,
        )
        for name, block in blocks.items()
    }


def _find(blocks: _Blocks, matters: Matters, scale: Scale) -> tuple[float, Callable[[float], Shift]] | None:
    """Return the p-value of the likeliest shift, and what dates it; None where it does not matter."""
    change = find_change(blocks.sums, blocks.weights) if blocks.varies else None
    if change is None:
        return None
    steps, ends = ((blocks.unshrunk(*pair)) for pair in ((change.before, change.after), (change.early, change.late)))
    shown = [pair for pair in (steps, ends) if matters(*map(np.asarray, pair))]
    if not shown:
        return None
    p_value = order_p_value(blocks.sums, blocks.weights, rises=change.after > change.before, scale=scale)
    return p_value, partial(_shift, blocks, change, shown)


def _shift(blocks: _Blocks, change: OrderChange, shown: Sequence[tuple[float, float]], p_value: float) -> Shift:
    """Date a shift: `shown` are levels that matter, those of before and after first, those of the ends last."""
    place, edges = blocks.place, blocks.edges
    onset, interval = _dated(change, place, edges)
    foot = _foot(blocks.sums, blocks.weights, place, edges, rises=change.after > change.before)
    slow = foot is not None and foot[1][1] < place[edges[change.low]]
    if foot is not None:
        onset = foot[0] if slow else onset  # the middle of its way is where a slow change shows most, not its beginning
        interval = min(onset, interval[0], foot[1][0]), max(onset, foot[1][1] if slow else interval[1])
    early, late = shown[-1] if slow else shown[0]
    return Shift(early=early, late=late, onset=onset, interval=interval, p_value=p_value)


@dataclass(frozen=True, kw_only=True)
class _Blocks:
    """Values of neighbouring episodes added up."""

    sums: FloatArray
    weights: FloatArray
    edges: IntArray
    place: IntArray  # of each episode that has a value
    kept: float  # share of a shift that is left where the means of tasks were taken out

    @classmethod
    def of(cls, order: Order, sums: FloatArray, weights: FloatArray, unit: IntArray | None = None) -> _Blocks:
        """Add the episodes that are compared up in blocks; with `unit`, what is beyond the mean of theirs."""
        rows = np.flatnonzero(order.compared & (weights > 0))
        whole = None if order.whole is None else order.whole[rows]
        edges = block_edges(len(rows), MAX_BLOCKS, whole) if len(rows) else np.empty(0, np.int64)
        sums, weights, kept = sums[rows], weights[rows], 1.0
        if unit is not None and len(rows):
            late = (np.arange(len(rows)) >= len(rows) / 2).astype(np.float64)
            rest, kept = _within(sums, weights, unit[rows]), float(np.var(_within(late, weights, unit[rows])))
            sums, kept = rest + weights * (sums.sum() / weights.sum()), kept / max(float(np.var(late)), 1e-12)
        total, of = (np.add.reduceat(values, edges) if len(rows) else values for values in (sums, weights))
        return cls(sums=total, weights=of, edges=edges, place=order.place[rows], kept=kept)

    @property
    def level(self) -> float:
        """The mean of all."""
        return float(self.sums.sum() / self.weights.sum())

    @property
    def varies(self) -> bool:
        """Whether there is anything to find, and enough to find it in."""
        return len(self.sums) >= MIN_BLOCKS and self.kept > MIN_KEPT and float(np.ptp(self.sums / self.weights)) > TINY

    def unshrunk(self, early: float, late: float) -> tuple[float, float]:
        """Return levels as they are where no task's mean is taken out."""
        return self.level + (early - self.level) / self.kept, self.level + (late - self.level) / self.kept


def _within(sums: FloatArray, weights: FloatArray, unit: IntArray) -> FloatArray:
    of = np.bincount(unit, weights=weights)
    rest: FloatArray = sums - weights * (np.bincount(unit, weights=sums) / np.where(of > 0, of, 1.0))[unit]
    return rest


def _seen(blocks: _Blocks, rate: Rate, alarms: float) -> float | None:
    """Return the level that a rate must reach half-way to be found nine times out of ten."""
    level, sums, weights = blocks.level, blocks.sums, blocks.weights
    if blocks.kept <= MIN_KEPT:
        return None
    variance = float((np.square(sums - weights * level) / weights).sum()) / (len(sums) - 1)
    match rate.scale:
        case Scale.SHARE:
            level = min(max(level, 0.0), 1.0)
            levels = np.linspace(level, 1.0 if rate.rises else 0.0, LEVELS)
            alone, few = level * (1 - level), min(level, 1 - level) * weights.sum() < FEW
            effect = variance / alone if alone > TINY else 1.0
            spread = np.sqrt(np.maximum(effect, 1.0 if few else 0.0) * levels * (1 - levels))
        case Scale.MEAN:
            levels = level * np.geomspace(1.0, MAX_FACTOR if rate.rises else 1 / MAX_FACTOR, LEVELS)
            spread = math.sqrt(variance) * levels / level if level > TINY else np.zeros(LEVELS)
        case Scale.LEVEL | Scale.LOG:
            way = MAX_FACTOR * math.sqrt(variance)
            levels = np.linspace(level, level + (way if rate.rises else -way), LEVELS)
            spread = np.full(LEVELS, math.sqrt(variance))
    if abs(levels[-1] - levels[0]) <= TINY:
        return None
    return smallest_seen(
        weights, levels, spread,
        scale=rate.scale, limit=alarms * rate.importance, matters=rate.matters, signal=blocks.kept,
    )  # fmt: skip


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
