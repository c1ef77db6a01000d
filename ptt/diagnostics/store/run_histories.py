"""Relate two records of training: one history, one that goes on from the other, or two that no single run has."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import pairwise
from statistics import median
from typing import Final

import polars as pl

from ptt.diagnostics.metrics.aliases import canonical
from ptt.diagnostics.metrics.catalogue import kind_of
from ptt.diagnostics.parsers import PARSERS
from ptt.diagnostics.parsers.console_log import UNNUMBERED
from ptt.diagnostics.parsers.io.file_edge import parser_of, pieces_of
from ptt.diagnostics.parsers.io.interface import Rows, RunFile, Wide
from ptt.diagnostics.parsers.io.metric_blocks import long_rows

MAX_VALUES: Final = 50_000  # read of one record: its beginning tells, and an event file may hold millions
MAX_RECORDS: Final = 8  # files of one place that are read: MLflow keeps a file a metric
SHARED_ROWS: Final = 3  # rows that are equal before two histories part: the second was resumed from the first
SHARED_SHARE: Final = 0.05  # of the rows they share, at least: two seeds may agree on a first row or two
LEAD_INTERVALS: Final = 3  # logging intervals by which a record begins later than another that goes before it
FIRST_INTERVALS: Final = 1.5  # logging intervals within which a record begins at the run's own beginning
CLOSE: Final = 0.01  # relative: what trackers keep of a number as 32-bit floats or rounded texts
CLOSE_TO_ZERO: Final = 1e-6
APART: Final = 0.1  # relative: further apart than two ways to average one metric usually are
APART_SHARE: Final = 0.5  # of shared points that chance may bring so close
MIN_DIFFERING: Final = 3  # metrics that two writers share, below which it may be the way they average
AGREEING_SHARE: Final = 0.8  # of shared points, where two writers logged one run: they average over other windows
MIN_SHARED: Final = 3  # shared points below which records that any part of a run may have tell nothing
NUMBER: Final = re.compile(r"\d{1,12}")


SET_BEFORE: Final = frozenset({"epoch", "percentage", "total_steps", "progress", "progress/epoch", "progress/step"})
"""What follows from the settings, as schedules do: it is the same in any run of them."""


class Relation(Enum):
    """How two records of training stand to each other."""

    UNRELATED = auto()  # they share nothing that tells
    PART = auto()  # one history, of which one of them holds no more than the other
    COPY = auto()  # the same from the first row to the last
    CONTINUES = auto()  # one goes on from where the other was, or shares its beginning: a resumed run
    CONFLICT = auto()  # the same steps from the start, and another history


@dataclass(frozen=True, kw_only=True)
class Span:
    """The steps at which something was recorded."""

    steps: tuple[int, ...] = ()  # ascending
    names: frozenset[str] = frozenset()  # of files, where those name no step

    @classmethod
    def of_names(cls, names: Iterable[str]) -> Span:
        """Take the steps from the names of dumps; of files that are all called alike, from what else is given."""
        listed = list(names)
        steps = sorted({int(match[0]) for name in listed if (match := NUMBER.search(name))})
        return cls(steps=tuple(steps), names=frozenset(listed))

    @property
    def interval(self) -> float:
        """The usual distance of two logged steps."""
        return median(later - earlier for earlier, later in pairwise(self.steps)) if len(self.steps) > 1 else 1.0

    @property
    def from_start(self) -> bool:
        """Whether the first of them is the first that a run logs at this interval."""
        return bool(self.steps) and self.steps[0] <= max(1.0, FIRST_INTERVALS * self.interval)


@dataclass(frozen=True, kw_only=True)
class History:
    """What a record of training says, from its beginning: name -> step -> value."""

    values: dict[str, dict[int, float]] = field(default_factory=dict)
    span: Span = field(default_factory=Span)
    times: tuple[float, float] | None = None  # of its first and its last row, where these are logged

    @classmethod
    def joined(cls, histories: Iterable[History]) -> History:
        """Put what several records of one place say together."""
        values: dict[str, dict[int, float]] = {}
        for history in histories:
            for name, series in history.values.items():
                values.setdefault(name, {}).update(series)
        return cls._of(values)

    @classmethod
    def _of(cls, values: dict[str, dict[int, float]], times: Sequence[float] = ()) -> History:
        steps = sorted({step for series in values.values() for step in series})
        known = (min(times), max(times)) if times else None
        return cls(values=values, span=Span(steps=tuple(steps)), times=known)

    def only(self, names: Collection[str]) -> History:
        """Return what it says of some metrics."""
        return self._of({name: self.values[name] for name in names if name in self.values})

    @property
    def measured(self) -> frozenset[str]:
        """The names of what training measures: no counter, no schedule, nothing that is the same at each step."""
        return frozenset(
            name
            for name, series in self.values.items()
            if len(set(series.values())) > 1
            and name.removeprefix(UNNUMBERED) not in SET_BEFORE
            and kind_of(canonical(name) or name) not in ("schedule", "counter")
        )

    @classmethod
    def read(cls, files: Sequence[RunFile]) -> History:
        """Read the beginnings of the files; of checkpoints the last, which holds the most."""
        values: dict[str, dict[int, float]] = {}
        times: list[float] = []
        states = [file for file in files if file.name.endswith("trainer_state.json")]
        for file in states[-1:] or files[:MAX_RECORDS]:
            _read_into(values, file, times)
        return cls._of(values, times)


def _read_into(values: dict[str, dict[int, float]], file: RunFile, times: list[float]) -> None:
    parser = parser_of(file, PARSERS)
    count = 0
    for piece in pieces_of(file, parser) if parser else ():
        if isinstance(piece, Rows) and piece.table == "metrics":
            counted = pl.col("name_raw").str.starts_with(UNNUMBERED)  # rows, which no other writer's steps are
            name = pl.when(counted).then("name_raw").otherwise(pl.coalesce("name", "name_raw"))
            ends = piece.frame.select(pl.col("wall_time").min().alias("a"), pl.col("wall_time").max().alias("b")).row(0)
            times += [end for end in ends if end is not None]
            frame = piece.frame.select("step", name.alias("name"), "value")
        elif isinstance(piece, Wide):
            names = {raw: name or raw for raw, name in piece.names.items()}
            columns = pl.DataFrame({name: piece.frame[name] for name in ("__step", *names)})  # names may be patterns
            long = long_rows(columns, ["__step"])
            clock = piece.frame["__time"].drop_nulls()
            times += [float(clock[0]), float(clock[-1])] if len(clock) else []
            name = pl.col("name_raw").replace_strict(names, return_dtype=pl.String)
            frame = long.select(pl.col("__step").alias("step"), name.alias("name"), "value")
        else:
            continue
        for step, name, value in frame.drop_nulls("step").head(MAX_VALUES - count).iter_rows():
            values.setdefault(name, {})[step] = math.nan if value is None else value
        count += frame.height
        if count >= MAX_VALUES:
            break
    file.looks.clear()


def relate_histories(first: History, second: History, *, strong: bool, exact: bool = True) -> Relation:
    """Relate two records of one kind; not `exact` where two writers logged them, each with its own rounding.

    `strong`: only a run itself has such a record, so that a single row tells.
    """
    if not (first.span.steps and second.span.steps):
        return Relation.UNRELATED
    names = first.values.keys() & second.values.keys()
    shared = sorted({step for name in names for step in first.values[name].keys() & second.values[name].keys()})
    if not exact:
        return _relate_rounded(first, second, sorted(names))
    if _goes_before(first.span, second.span) or _goes_before(second.span, first.span):
        return Relation.CONTINUES
    if not shared:
        return Relation.CONFLICT if names and strong else Relation.UNRELATED
    equal = 0
    while equal < len(shared) and _row_equal(first, second, names, shared[equal]):
        equal += 1
    if equal == len(shared):
        return Relation.COPY if first.span.steps == second.span.steps else Relation.PART
    if equal >= max(SHARED_ROWS, SHARED_SHARE * len(shared)):
        return Relation.CONTINUES
    return Relation.CONFLICT if strong or len(shared) >= MIN_SHARED else Relation.UNRELATED


def relate_spans(first: Span, second: Span) -> Relation:
    """Relate two sets of dumps by the steps they are of."""
    if not (first.steps and second.steps):
        return Relation.CONFLICT if first.names & second.names else Relation.UNRELATED
    if _goes_before(first, second) or _goes_before(second, first):
        return Relation.CONTINUES
    return Relation.CONFLICT


def _goes_before(first: Span, second: Span) -> bool:
    """Return whether the second begins well within the first, or behind it: it was resumed from there."""
    if first.from_start and second.from_start:
        return False
    lead = second.steps[0] - first.steps[0]
    return lead >= LEAD_INTERVALS * max(1.0, min(first.interval, second.interval))


def _row_equal(first: History, second: History, names: Iterable[str], step: int) -> bool:
    pairs = [(first.values[name].get(step), second.values[name].get(step)) for name in names]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    return all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in known)


def _relate_rounded(first: History, second: History, names: Sequence[str]) -> Relation:
    shares = [share for name in names if (share := _share_close(first.values[name], second.values[name], CLOSE))]
    points = sum(count for _, count in shares)
    if points < MIN_SHARED:
        return Relation.UNRELATED
    agreeing = sum(share * count for share, count in shares) / points
    return Relation.PART if agreeing >= AGREEING_SHARE else Relation.UNRELATED


def differ_throughout(first: History, second: History) -> bool:
    """Return whether two writers' records cannot be of one run: many metrics, and none of them near the other's.

    One writer may average what another logs as it is, so that a few metrics that differ tell nothing.
    """
    if not (first.span.from_start and second.span.from_start):
        return False
    shares = [
        share
        for name in first.values.keys() & second.values.keys()
        if len(set(first.values[name].values())) > 1  # a constant is a setting, which runs may share
        and (share := _share_close(first.values[name], second.values[name], APART))
        and share[1] >= MIN_SHARED
    ]
    return len(shares) >= MIN_DIFFERING and all(share <= APART_SHARE for share, _ in shares)


def _share_close(first: Mapping[int, float], second: Mapping[int, float], tolerance: float) -> tuple[float, int] | None:
    """Return the share of shared steps at which two series are close, and how many those are; None without any."""
    pairs = [(first[step], second[step]) for step in first.keys() & second.keys()]
    known = [(a, b) for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
    if not known:
        return None
    return sum(math.isclose(a, b, rel_tol=tolerance, abs_tol=CLOSE_TO_ZERO) for a, b in known) / len(known), len(known)
