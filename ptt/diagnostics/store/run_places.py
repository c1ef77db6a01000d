"""Compare the records of places in a folder: which may lie in one run, by their metrics and their steps."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum, auto
from functools import cached_property
from itertools import combinations, pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.metrics.aliases import canonical
from ptt.diagnostics.metrics.catalogue import kind_of
from ptt.diagnostics.parsers import PARSERS
from ptt.diagnostics.parsers.io.interface import Rows, RunFile, Wide, parser_of, pieces_of
from ptt.diagnostics.parsers.io.metric_blocks import long_rows
from ptt.diagnostics.parsers.io.metric_rows import UNNUMBERED
from ptt.diagnostics.store.folder_roles import NUMBER, RANK

MAX_VALUES: Final = 50_000  # read of one record: its beginning tells, and an event file may hold millions
MAX_RECORDS: Final = 8  # files of one place that are read: MLflow keeps a file a metric
SHARED_ROWS: Final = 3  # equal rows before two histories diverge: then the second was resumed from the first
SHARED_SHARE: Final = 0.05  # of the rows they share, at least: two seeds may agree on the first row or two
LEAD_INTERVALS: Final = 3  # logging intervals by which a record must begin later than one that precedes it
FIRST_INTERVALS: Final = 1.5  # logging intervals within which a record begins at the run's own beginning
CLOSE: Final = 0.01  # relative: precision of trackers' 32-bit floats and rounded texts
CLOSE_TO_ZERO: Final = 1e-6
APART: Final = 0.1  # relative: two ways to average one metric are usually closer
APART_SHARE: Final = 0.5  # of shared points that chance may bring this close
MIN_DIFFERING: Final = 3  # metrics that two writers share: with fewer, the difference may be how they average
AGREEING_SHARE: Final = 0.8  # of shared points, if two writers logged one run: they average over different windows
MIN_SHARED: Final = 3  # shared points, below which records that any part of a run may have prove nothing
STEP_NUMBER: Final = re.compile(r"\d{1,12}")


SET_BEFORE: Final = frozenset({"epoch", "percentage", "total_steps", "progress", "progress/epoch", "progress/step"})
"""What follows from the settings, as schedules do: it is the same in any run of them."""

Ints = npt.NDArray[np.int64]
EVERY: Final = 3
"""One in this many points of a history is compared first. Copies of one history differ in at most a fifth of their
points, so a third of them rules out nearly all others."""
ROUNDING: Final = 1e-6  # points: whatever remains is compared exactly

STATE: Final = "trl_state"
WANDB: Final = "wandb"
TENSORBOARD: Final = "tensorboard"
MLFLOW: Final = "mlflow_files"
TOKENS: Final = (
    "recorder", "recorder_jsonl", "nemo_tokens", "prime_tokens", "slime_dumps", "skyrl_batches", "verl_batches",
    "token_tensors", "token_tables",
)  # fmt: skip
STRONG: Final = (STATE, WANDB, TENSORBOARD, MLFLOW, *TOKENS)
"""Kinds that a run has of its own; a CSV, JSON lines or a console log may be of a part of it, or of many."""
MARKS: Final = {
    STATE: "trainer_state.json",
    WANDB: "a W&B log",
    TENSORBOARD: "TensorBoard events",
    MLFLOW: "an MLflow run",
    **dict.fromkeys(TOKENS, "token records"),
}
MAX_NAMED: Final = 5  # spelt out in a sentence
MIN_ALIKE: Final = 2  # metrics shared by two logs whose names differ by a number: beta0.1, beta0.3
MIN_UNLIKE: Final = 3  # and by other logs: the losses of an actor and a critic belong to one run
MIN_STEPS: Final = 4  # in a log that is a run of its own
MIN_SHARE: Final = 0.1  # of the longest log's steps, below which a start was given up
MAX_COMPARED: Final = 64  # places compared with one another: with more, two that conflict were found long before


class Relation(Enum):
    """How two records of training relate."""

    UNRELATED = auto()  # they share nothing that decides
    PART = auto()  # one history, of which one record holds only a part
    COPY = auto()  # the same from the first row to the last
    CONTINUES = auto()  # one starts where the other ended, or shares its beginning: a resumed run
    CONFLICT = auto()  # the same steps from the start, but another history


@dataclass(frozen=True, kw_only=True)
class Span:
    """The steps at which something was recorded."""

    steps: tuple[int, ...] = ()  # ascending
    names: frozenset[str] = frozenset()  # of files, if those name no step

    @classmethod
    def of_names(cls, names: Iterable[str]) -> Span:
        """Take the steps from the names of dumps; if all files have the same name, from what else is given."""
        listed = list(names)
        steps = sorted({int(match[0]) for name in listed if (match := STEP_NUMBER.search(name))})
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
    """The content of a training record, from its beginning: name -> step -> value."""

    values: dict[str, dict[int, float]] = field(default_factory=dict)
    span: Span = field(default_factory=Span)
    times: tuple[float, float] | None = None  # of its first and last row, if logged

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
    """Relate two sets of dumps by their steps."""
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
    """Return whether two writers' records cannot belong to one run: many metrics, none near the other's.

    One writer may average what another logs raw, so a few differing metrics prove nothing.
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


def owners_before(histories: Sequence[tuple[int, History]]) -> dict[int, set[int]]:
    """Return, for each owner of histories, the earlier owners with one that may equal one of its own up to rounding.

    All that do equal one (see relate_histories, not `exact`) are among them.
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
        """Return the earlier histories that may equal this one up to rounding; all that do are among them."""
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


@dataclass(kw_only=True)
class Place:
    """Where a run may lie: a folder or a file, with the records in it by kind."""

    rel: str
    mark: str = ""
    tracker: str = ""  # the tracker's id of the run
    records: dict[str, list[RunFile]] = field(default_factory=dict)
    tracked_only: bool = False  # a tracker's folder, or a lone log, which may be of a run that lies elsewhere
    beside: bool = False  # a log among others in one folder, each of a run of its own
    _histories: dict[str, History] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.rel.rsplit("/", 1)[-1]

    def history(self, kind: str) -> History:
        """Return the content of its records of one kind, read once."""
        if kind not in self._histories:
            self._histories[kind] = History.read(self.records[kind])
        return self._histories[kind]

    @cached_property
    def merged(self) -> History:
        """What all its metrics say together."""
        return History.joined(self.history(kind) for kind in self.records if kind not in TOKENS)


Conflict = tuple[Place, Place, str]
"""Two places that cannot be one run, and the kind of record that shows it; "" if they share none."""


def conflicts(places: list[Place], *, weak: bool) -> Iterator[Conflict]:
    """Yield pairs of places that cannot be one run; `weak`: by records that a part of a run may have as well."""
    compared = places[:MAX_COMPARED]
    if len(compared) > 1 and all(RANK.fullmatch(place.name) for place in compared):
        return
    for kind in (*STRONG, *sorted({kind for place in compared for kind in place.records} - set(STRONG))):
        if kind not in STRONG and not weak:
            continue
        holders = [place for place in compared if kind in place.records]
        for first, second in combinations(holders, 2):
            if _relation(first, second, kind) in (Relation.CONFLICT, Relation.COPY):
                yield first, second, kind
    whole = [place for place in compared if not place.tracked_only]
    for first, second in combinations(whole, 2) if weak else ():
        if not first.records.keys() & second.records.keys() and differ_throughout(first.merged, second.merged):
            yield first, second, ""


def _relation(first: Place, second: Place, kind: str) -> Relation:
    if kind in TOKENS:
        return relate_spans(_span(first, kind), _span(second, kind))
    relation = relate_histories(first.history(kind), second.history(kind), strong=kind in STRONG)
    if relation is Relation.UNRELATED and _same_bytes(first.records[kind], second.records[kind]):
        relation = Relation.COPY
    if first.tracker and first.tracker == second.tracker:  # resumed under one id, or the whole folder was copied
        copied = relation is Relation.COPY and not (first.tracked_only or second.tracked_only)
        return Relation.COPY if copied else Relation.PART
    return relation


def run_beside(places: list[Place], kind: str) -> Conflict | None:
    """Return two logs in one folder that belong to two runs, whatever their names; None if none surely do.

    They log the same metrics over the same steps from the start, with different values. Event files written at the same
    time belong to ranks of one run.
    """
    for first, second in combinations(places[:MAX_COMPARED], 2):
        one, other = first.history(kind), second.history(kind)
        shared = one.measured & other.measured
        alike = NUMBER.sub("#", first.name) == NUMBER.sub("#", second.name)
        if kind != TENSORBOARD and len(shared) < (MIN_ALIKE if alike else MIN_UNLIKE):
            continue
        if not (shared and _both_from_start(one.span, other.span)) or (kind == TENSORBOARD and _at_once(one, other)):
            continue
        if relate_histories(one.only(shared), other.only(shared), strong=kind == TENSORBOARD) is Relation.CONFLICT:
            return first, second, kind
    return None


def _both_from_start(one: Span, other: Span) -> bool:
    """Return whether both begin where a run does, and neither was given up after a few steps."""
    least, most = sorted((len(one.steps), len(other.steps)))
    return one.from_start and other.from_start and least >= max(MIN_STEPS, MIN_SHARE * most)


def _at_once(one: History, other: History) -> bool:
    """Return whether two records were written at one time, or at nobody knows what time."""
    if one.times is None or other.times is None:
        return True
    return max(one.times[0], other.times[0]) < min(one.times[1], other.times[1])


def _same_bytes(first: list[RunFile], second: list[RunFile]) -> bool:
    """Return whether two places hold the same files, as far as names, sizes and beginnings tell."""
    if [(file.name, file.size) for file in first] != [(file.name, file.size) for file in second]:
        return False
    same = all(a.size and a.readable_head == b.readable_head for a, b in zip(first, second, strict=True))
    for file in (*first, *second):
        file.looks.clear()
    return same


def _span(place: Place, kind: str) -> Span:
    """Return the steps that the names of a place's token files name; those of its folder where they name none."""
    return Span.of_names(_dump_names(place.records[kind]))


def _dump_names(files: list[RunFile]) -> list[str]:
    """List the names that give dumps' steps: numbered folders if there are several, else all files of that shape."""
    folders = {file.path.parent for file in files}
    if len(folders) > 1 and all(NUMBER.search(folder.name) for folder in folders):
        return [folder.name for folder in folders]
    shapes = {NUMBER.sub("#", file.name) for file in files}
    return [name for folder in folders for name in _names(folder) if NUMBER.sub("#", name) in shapes]


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:  # gone by now
        return []


def same_history(tracked: Place, run: Place) -> bool:
    """Return whether a tracker's log and a run's own records say the same."""
    if tracked.tracker and tracked.tracker == run.tracker:
        return True
    kinds = [kind for kind in run.records if kind not in TOKENS]
    return any(
        relate_histories(tracked.history(kind), run.history(own), strong=False, exact=False)
        in (Relation.PART, Relation.COPY)
        for kind in tracked.records
        for own in kinds[:2]
    )


def conflict_reason(first: Place, second: Place, kind: str) -> str:
    """Say why two places cannot be one run, by the kind of record that tells."""
    if not kind:
        return f"{first.rel} ({first.mark}) and {second.rel} ({second.mark}) log different values at the same steps"
    record = MARKS.get(kind) or first.records[kind][0].name
    both = f"{first.rel} and {second.rel} each have {record}"
    if first.tracker and second.tracker:
        both = f"{first.rel} and {second.rel} are {first.mark} and {second.mark}"
    if kind in TOKENS:
        return f"{both} of the same steps"
    relation = relate_histories(first.history(kind), second.history(kind), strong=kind in STRONG)
    same = relation is Relation.COPY
    if (first.tracked_only or first.beside) and kind not in STRONG:
        both = f"{first.rel} and {second.rel} log the same metrics"
    return f"{both} from the start on, {'as copies of one another' if same else 'with different values'}"


def why_one_run(places: list[Place]) -> str:
    """Say why places with records are one run; "" if there is nothing to say."""
    holders = [place for place in places if place.records and not place.tracked_only]
    if len(holders) < 2:
        return ""
    for first, second in combinations(holders[:MAX_COMPARED], 2):
        for kind in first.records.keys() & second.records.keys():
            if _relation(first, second, kind) is Relation.CONTINUES:
                return f"{first.rel} and {second.rel} are parts of one history: one continues the other"
    return f"{some([place.rel for place in holders])} have no records that contradict being one run"


def some(names: list[str]) -> str:
    """List the first names, and how many more there are."""
    named = ", ".join(names[:MAX_NAMED])
    return named if len(names) <= MAX_NAMED else f"{named} and {len(names) - MAX_NAMED} more"
