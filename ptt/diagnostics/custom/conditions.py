"""Where a condition surely holds and where it may, for want of data: all and any over three answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ptt.diagnostics.custom.terms import (
    RELATIVE,
    SPIKE_WIDTH,
    AllOf,
    AnyOf,
    Between,
    Bound,
    Change,
    Comparison,
    Condition,
    Direction,
    Last,
    Moving,
    Outside,
    Part,
    Spike,
    Statement,
    TimesEarly,
)
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.schema import Flag
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray

Interval = tuple[int, int]
Intervals = tuple[Interval, ...]

MAX_STEP: Final = 1 << 60  # beyond any step
NEVER: Final[Intervals] = ()
ALWAYS: Final[Intervals] = ((-MAX_STEP, MAX_STEP),)


def intervals_where(steps: IntArray, holds: BoolArray, *, end: int) -> Intervals:
    """Return where `holds` is true, a value counting until the next one is logged, and the last one until `end`."""
    if not len(steps):
        return NEVER
    until = np.append(steps[1:] - 1, max(end, int(steps[-1])))
    change = np.diff(holds.astype(np.int8), prepend=0, append=0)
    firsts, lasts = np.flatnonzero(change == 1), np.flatnonzero(change == -1) - 1
    return tuple((int(steps[first]), int(until[last])) for first, last in zip(firsts, lasts, strict=True))


def union(sets: Iterable[Intervals]) -> Intervals:
    """Return where at least one holds; neighbours grow together."""
    merged: list[Interval] = []
    for first, last in sorted(stretch for intervals in sets for stretch in intervals):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


def intersection(sets: Sequence[Intervals]) -> Intervals:
    """Return where all hold."""
    shared = sets[0] if sets else ALWAYS
    for other in sets[1:]:
        shared = _both(shared, other)
    return shared


def _both(left_set: Intervals, right_set: Intervals) -> Intervals:
    shared: list[Interval] = []
    left_at = right_at = 0
    while left_at < len(left_set) and right_at < len(right_set):
        first, last = (
            max(left_set[left_at][0], right_set[right_at][0]),
            min(left_set[left_at][1], right_set[right_at][1]),
        )
        if first <= last:
            shared.append((first, last))
        if left_set[left_at][1] < right_set[right_at][1]:
            left_at += 1
        else:
            right_at += 1
    return tuple(shared)


def lasting(found: Intervals, steps: int) -> Intervals:
    """Return the stretches that are at least so many steps long."""
    return tuple(stretch for stretch in found if stretch[1] - stretch[0] + 1 >= steps)


CHUNK: Final = 4_000_000  # values in windows that are worked on at a time: 32 MB
NOT_A_NUMBER: Final = (Flag.NAN, Flag.POS_INF, Flag.NEG_INF, Flag.DROPPED_BY_WRITER)  # a null may be a row without it
COMPARE: Final[dict[Direction, Callable[[FloatArray, FloatArray], BoolArray]]] = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """One entry for each place a window may end, (places,) each; of a fixed window there is one place.

    since: the first step of the place's window; limits: the bound nearest to the value; early: the level compared
    with, where the comparison has one.
    """

    steps: IntArray
    since: IntArray
    values: FloatArray
    limits: FloatArray
    holds: BoolArray
    early: float | None = None


def evaluate(series: Series, test: Statement, *, least: int) -> Evaluated | str:
    """Work a test out over a series, or say why it cannot be."""
    steps, values = aggregated_values(series, test.aggregate)
    if len(values) < least:
        return f"{len(values)} values of {series.raw_name} are logged; {least} are needed"
    match test.window:
        case Moving(width=width) | Last(width=width):
            evaluated = _moving(steps, values, test, width)
        case part:
            evaluated = _part(steps, values, test, part.name)
    if isinstance(evaluated, str):
        return f"{series.raw_name}: {evaluated}"
    if not np.isfinite(evaluated.values).any():
        return f"{series.raw_name}: its values are too large to compute with"
    return evaluated


def aggregated_values(series: Series, aggregate: str) -> tuple[IntArray, FloatArray]:
    """Return what is aggregated: the finite values, or for a count of NaN one for each that is not a number."""
    if aggregate == "nan_count":
        return series.steps, np.isin(series.flags, NOT_A_NUMBER).astype(np.float64)
    return series.finite()


def _moving(steps: IntArray, values: FloatArray, test: Statement, width: int) -> Evaluated | str:
    comparison = test.comparison
    if isinstance(comparison, Spike):
        return _spikes(steps, values, comparison, width)
    needed = 2 * width if isinstance(comparison, RELATIVE) else width
    if len(values) < needed:
        return f"{len(values)} values are logged; {needed} are needed for windows of {width}"
    rolled = rolling(steps, values, test.aggregate, width)
    early = float(rolled[0])
    skip = width if isinstance(comparison, RELATIVE) else 0  # windows that overlap the early one tell little
    places = np.arange(width - 1 + skip, len(values))
    return hold_against(comparison, early, steps=steps[places], since=steps[places - width + 1], values=rolled[skip:])


def _part(steps: IntArray, values: FloatArray, test: Statement, name: str) -> Evaluated | str:
    thirds = np.array_split(np.arange(len(values)), 3)
    chosen = {"early": thirds[0], "mid": thirds[1], "late": thirds[2], "whole": np.arange(len(values))}
    fewest = min(len(chosen[name]), len(thirds[0]))
    if fewest < 2:
        return f"{len(values)} values are logged; too few for thirds"

    def of(places: IntArray) -> FloatArray:
        return rolling(steps[places], values[places], test.aggregate, len(places))

    column = chosen[name]
    early = float(of(thirds[0])[0])
    return hold_against(test.comparison, early, steps=steps[column[:1]], since=steps[column[:1]], values=of(column))


def _spikes(steps: IntArray, values: FloatArray, comparison: Spike, width: int) -> Evaluated | str:
    if len(values) < width + SPIKE_WIDTH:
        return f"{len(values)} values are logged; {width + SPIKE_WIDTH} are needed for spikes"
    base = rolling(steps, values, "mean", width)[:-SPIKE_WIDTH]
    peak = rolling(steps, values, "max", SPIKE_WIDTH)[width:]
    if not (base > 0).any():
        return "its level is never above 0: a spike is a multiple of it"
    limits = comparison.factor * base
    places = np.arange(width + SPIKE_WIDTH - 1, len(values))
    holds = (base > 0) & (peak >= limits)
    return Evaluated(
        steps=steps[places], since=steps[places - SPIKE_WIDTH + 1], values=peak, limits=limits, holds=holds
    )


def hold_against(
    comparison: Comparison, early: float, *, steps: IntArray, since: IntArray, values: FloatArray
) -> Evaluated | str:
    """Compare values with their bound; refuse a share or a multiple of an early level if there is no such level."""
    level: float | None = None
    match comparison:
        case Bound(direction=direction, value=value):
            limits = np.full(len(values), value)
            holds = COMPARE[direction](values, limits)
        case TimesEarly(direction=direction, factor=factor):
            if not early > 0:
                return f"its early level is {early:.4g}, too close to 0 for a multiple of it"
            level, limits = early, np.full(len(values), factor * early)
            holds = COMPARE[direction](values, limits)
        case Change(share=share):
            if early == 0 or not np.isfinite(early):
                return f"its early level is {early:.4g}, too close to 0 for a share of it"
            level, limits = early, np.full(len(values), early + share * abs(early))
            holds = values >= limits if share > 0 else values <= limits
        case Between(low=low, high=high) | Outside(low=low, high=high):
            limits = np.where(np.abs(values - low) < np.abs(values - high), low, high)
            inside = (values >= low) & (values <= high)
            holds = inside if isinstance(comparison, Between) else ~inside
        case Spike():
            raise AssertionError("spikes have bounds of their own")
    return Evaluated(
        steps=steps, since=since, values=values, limits=limits, holds=holds & ~np.isnan(values), early=level
    )


def rolling(steps: IntArray, values: FloatArray, aggregate: str, width: int) -> FloatArray:
    """Return an aggregate of every full window of `width` values."""
    rows = max(1, CHUNK // width)
    reduce = AGGREGATES.get(aggregate) or (
        lambda _, values: np.percentile(values, float(aggregate.removeprefix("p")), axis=1)
    )
    times, windows = sliding_window_view(steps.astype(np.float64), width), sliding_window_view(values, width)
    with np.errstate(over="ignore", invalid="ignore"):
        parts = [reduce(times[at : at + rows], windows[at : at + rows]) for at in range(0, len(windows), rows)]
    return np.concatenate(parts)


def _slope(times: FloatArray, values: FloatArray) -> FloatArray:
    from_middle = times - times.mean(axis=1, keepdims=True)
    slopes: FloatArray = (from_middle * values).sum(axis=1) / np.square(from_middle).sum(axis=1)
    return slopes


AGGREGATES: Final[dict[str, Callable[[FloatArray, FloatArray], FloatArray]]] = {
    "mean": lambda _, values: values.mean(axis=1),
    "median": lambda _, values: np.median(values, axis=1),
    "min": lambda _, values: values.min(axis=1),
    "max": lambda _, values: values.max(axis=1),
    "std": lambda _, values: values.std(axis=1, ddof=1),
    "slope": _slope,
    "last": lambda _, values: values[:, -1].copy(),
    "nan_count": lambda _, values: values.sum(axis=1),
}
"""Of windows of values, (windows, width), and the steps they are logged at; others are percentiles."""


@dataclass(frozen=True, kw_only=True)
class TestOutcome:
    """One test on its series; `evaluated` is None where it could not be worked out, and `reason` says why."""

    test: Statement
    series: Series | None
    evaluated: Evaluated | None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A condition over the run.

    sure, maybe: the steps on which it holds, and on which it does or may (a fixed window speaks of all steps);
    onset: from which step a condition on fixed windows alone is seen to hold; tests: what was looked at.
    """

    sure: Intervals
    maybe: Intervals
    onset: int | None
    tests: tuple[TestOutcome, ...]

    def lasting_onset(self, steps: int) -> int | None:
        """Return the first step of the first stretch of at least `steps` steps on which it surely holds."""
        intervals = lasting(self.sure, steps)
        if not intervals:
            return None
        return intervals[0][0] if intervals[0][0] > -MAX_STEP else self.onset

    def may_last(self, steps: int) -> bool:
        """Return whether what is missing could make it hold for so many steps."""
        return bool(lasting(self.maybe, steps))


def outcome_of(condition: Condition, find: Callable[[str], Series | str], *, least: int, end: int) -> Outcome:
    """Work a condition out; `find` gives a series or why there is none, `end` is the last step of the run."""
    match condition:
        case Statement():
            return _of_test(condition, find(condition.metric), least=least, end=end)
        case AllOf(parts=parts):
            outcomes = [outcome_of(part, find, least=least, end=end) for part in parts]
            onsets = [outcome.onset for outcome in outcomes if outcome.onset is not None]
            return Outcome(
                sure=intersection([outcome.sure for outcome in outcomes]),
                maybe=intersection([outcome.maybe for outcome in outcomes]),
                onset=max(onsets, default=None),
                tests=tuple(test for outcome in outcomes for test in outcome.tests),
            )
        case AnyOf(parts=parts):
            outcomes = [outcome_of(part, find, least=least, end=end) for part in parts]
            onsets = [outcome.onset for outcome in outcomes if outcome.onset is not None and outcome.sure]
            return Outcome(
                sure=union(outcome.sure for outcome in outcomes),
                maybe=union(outcome.maybe for outcome in outcomes),
                onset=min(onsets, default=None),
                tests=tuple(test for outcome in outcomes for test in outcome.tests),
            )


def _of_test(test: Statement, series: Series | str, *, least: int, end: int) -> Outcome:
    evaluated = series if isinstance(series, str) else evaluate(series, test, least=least)
    if isinstance(series, str) or isinstance(evaluated, str):
        known = None if isinstance(series, str) else series
        tested = TestOutcome(test=test, series=known, evaluated=None, reason=str(evaluated))
        return Outcome(sure=NEVER, maybe=ALWAYS, onset=None, tests=(tested,))
    lost = None if test.aggregate == "nan_count" else lost_from(series)
    reason = "" if lost is None else f"{series.raw_name} is NaN or infinite from step {lost} to the end"
    tested = TestOutcome(test=test, series=series, evaluated=evaluated, reason=reason)
    match test.window:
        case Moving():
            sure = intervals_where(evaluated.steps, evaluated.holds, end=end if lost is None else lost - 1)
            maybe = sure if lost is None else union([sure, ((lost, MAX_STEP),)])
            return Outcome(sure=sure, maybe=maybe, onset=sure[0][0] if sure else None, tests=(tested,))
        case Last() | Part():
            holds = bool(evaluated.holds[-1])
            touched = lost is not None and not (isinstance(test.window, Part) and test.window.name in {"early", "mid"})
            return Outcome(
                sure=ALWAYS if holds else NEVER,
                maybe=ALWAYS if holds or touched else NEVER,
                onset=held_since(evaluated) if holds else None,
                tests=(tested,),
            )


def held_since(evaluated: Evaluated) -> int:
    """Return the step from which on a window's value holds at every step up to the last."""
    broken = np.flatnonzero(~evaluated.holds)
    return int(evaluated.steps[broken[-1] + 1 if len(broken) else 0])


def lost_from(series: Series) -> int | None:
    """Return the step from which a metric is logged but never again a number; None if its last value is one."""
    bad = np.isin(series.flags, NOT_A_NUMBER)
    if not len(bad) or not bad[-1]:
        return None
    good = np.flatnonzero(np.isfinite(series.values))
    return int(series.steps[good[-1] + 1 if len(good) else 0])
