"""What a test sees: its aggregate at every place a window ends, the bound it is held against, and where it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from ptt.diagnostics.custom.terms import (
    RELATIVE,
    SPIKE_WIDTH,
    Between,
    Bound,
    Change,
    Comparison,
    Direction,
    Last,
    Moving,
    Outside,
    Spike,
    Statement,
    TimesEarly,
)
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.schema import Flag

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

CHUNK: Final = 4_000_000  # values in windows that are worked on at a time: 32 MB
NOT_A_NUMBER: Final = (Flag.NAN, Flag.POS_INF, Flag.NEG_INF, Flag.DROPPED_BY_WRITER)  # a null may be a row without it
COMPARE: Final[dict[Direction, Callable[[FloatArray, FloatArray], BoolArray]]] = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Seen:
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


def look(series: Series, test: Statement, *, least: int) -> Seen | str:
    """Work a test out over a series, or say why it cannot be."""
    steps, values = counted(series, test.aggregate)
    if len(values) < least:
        return f"{len(values)} values of {series.raw_name} are logged; {least} are needed"
    match test.window:
        case Moving(width=width) | Last(width=width):
            seen = _moving(steps, values, test, width)
        case part:
            seen = _part(steps, values, test, part.name)
    if isinstance(seen, str):
        return f"{series.raw_name}: {seen}"
    if not np.isfinite(seen.values).any():
        return f"{series.raw_name}: its values are too large to be worked with"
    return seen


def counted(series: Series, aggregate: str) -> tuple[IntArray, FloatArray]:
    """Give what is aggregated: the finite values, or for a count of NaN one for each that is not a number."""
    if aggregate == "nan_count":
        return series.steps, np.isin(series.flags, NOT_A_NUMBER).astype(np.float64)
    return series.finite()


def _moving(steps: IntArray, values: FloatArray, test: Statement, width: int) -> Seen | str:
    comparison = test.comparison
    if isinstance(comparison, Spike):
        return _spikes(steps, values, comparison, width)
    needed = 2 * width if isinstance(comparison, RELATIVE) else width
    if len(values) < needed:
        return f"{len(values)} values are logged; {needed} are needed for windows of {width}"
    found = rolling(steps, values, test.aggregate, width)
    early = float(found[0])
    skip = width if isinstance(comparison, RELATIVE) else 0  # windows that overlap the early one tell little
    places = np.arange(width - 1 + skip, len(values))
    return compared(comparison, early, steps=steps[places], since=steps[places - width + 1], values=found[skip:])


def _part(steps: IntArray, values: FloatArray, test: Statement, name: str) -> Seen | str:
    thirds = np.array_split(np.arange(len(values)), 3)
    chosen = {"early": thirds[0], "mid": thirds[1], "late": thirds[2], "whole": np.arange(len(values))}
    fewest = min(len(chosen[name]), len(thirds[0]))
    if fewest < 2:
        return f"{len(values)} values are logged; too few for thirds"

    def of(places: IntArray) -> FloatArray:
        return rolling(steps[places], values[places], test.aggregate, len(places))

    mine = chosen[name]
    early = float(of(thirds[0])[0])
    return compared(test.comparison, early, steps=steps[mine[:1]], since=steps[mine[:1]], values=of(mine))


def _spikes(steps: IntArray, values: FloatArray, comparison: Spike, width: int) -> Seen | str:
    if len(values) < width + SPIKE_WIDTH:
        return f"{len(values)} values are logged; {width + SPIKE_WIDTH} are needed for spikes"
    base = rolling(steps, values, "mean", width)[:-SPIKE_WIDTH]
    peak = rolling(steps, values, "max", SPIKE_WIDTH)[width:]
    if not (base > 0).any():
        return "its level is never above 0: a spike is a multiple of it"
    limits = comparison.factor * base
    places = np.arange(width + SPIKE_WIDTH - 1, len(values))
    holds = (base > 0) & (peak >= limits)
    return Seen(steps=steps[places], since=steps[places - SPIKE_WIDTH + 1], values=peak, limits=limits, holds=holds)


def compared(
    comparison: Comparison, early: float, *, steps: IntArray, since: IntArray, values: FloatArray
) -> Seen | str:
    """Hold values against their bound; a share or a multiple of an early level that has none is refused."""
    level: float | None = None
    match comparison:
        case Bound(direction=direction, value=value):
            limits = np.full(len(values), value)
            holds = COMPARE[direction](values, limits)
        case TimesEarly(direction=direction, factor=factor):
            if not early > 0:
                return f"its early level is {early:.4g}: a multiple of it says nothing"
            level, limits = early, np.full(len(values), factor * early)
            holds = COMPARE[direction](values, limits)
        case Change(share=share):
            if early == 0 or not np.isfinite(early):
                return f"its early level is {early:.4g}: a share of it says nothing"
            level, limits = early, np.full(len(values), early + share * abs(early))
            holds = values >= limits if share > 0 else values <= limits
        case Between(low=low, high=high) | Outside(low=low, high=high):
            limits = np.where(np.abs(values - low) < np.abs(values - high), low, high)
            inside = (values >= low) & (values <= high)
            holds = inside if isinstance(comparison, Between) else ~inside
        case Spike():
            raise AssertionError("spikes have bounds of their own")
    return Seen(steps=steps, since=since, values=values, limits=limits, holds=holds & ~np.isnan(values), early=level)


def rolling(steps: IntArray, values: FloatArray, aggregate: str, width: int) -> FloatArray:
    """Give an aggregate of every full window of `width` values."""
    rows = max(1, CHUNK // width)
    times, held = sliding_window_view(steps.astype(np.float64), width), sliding_window_view(values, width)
    with np.errstate(over="ignore", invalid="ignore"):
        found = [
            _aggregated(times[at : at + rows], held[at : at + rows], aggregate) for at in range(0, len(held), rows)
        ]
    return np.concatenate(found)


def _aggregated(times: FloatArray, values: FloatArray, aggregate: str) -> FloatArray:
    found: FloatArray
    match aggregate:
        case "mean":
            found = values.mean(axis=1)
        case "median":
            found = np.median(values, axis=1)
        case "min":
            found = values.min(axis=1)
        case "max":
            found = values.max(axis=1)
        case "std":
            found = values.std(axis=1, ddof=1)
        case "slope":
            from_middle = times - times.mean(axis=1, keepdims=True)
            found = (from_middle * values).sum(axis=1) / np.square(from_middle).sum(axis=1)
        case "last":
            found = values[:, -1].copy()
        case "nan_count":
            found = values.sum(axis=1)
        case _:
            found = np.percentile(values, float(aggregate.removeprefix("p")), axis=1)
    return found
