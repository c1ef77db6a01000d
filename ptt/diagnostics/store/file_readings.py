"""Read files in pieces, in any process, and join the results as if one process had read everything.

Small files are grouped, and a large line file is cut between two lines. Cuts depend only on file sizes, never on the
number of processes, so the store is the same whichever process reads what."""

from __future__ import annotations

import mmap
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

import polars as pl

from ptt.diagnostics.budget_limits import BudgetLimits
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.parsers import PARSERS
from ptt.diagnostics.parsers.io.budget import Budget, BudgetSpent, Key
from ptt.diagnostics.parsers.io.interface import Parser, Piece, Rows, RunFile, any_line, parser_of, pieces_of, unread
from ptt.diagnostics.parsers.io.lines import GZIP_MAGIC, ZSTD_MAGIC

TASK_BYTES: Final = 6 << 20  # of files, or of part of one, in a task: ten times as much still fits in a process
TASK_FILES: Final = 256
SEARCH_BYTES: Final = 8 << 20  # how far to look for a place to cut; a file without one there is read whole
HASHED: Final = re.compile(r"([0-9a-f]{16})(?:-\d+)?")  # an id that `Samples.new_id` gave
Outcomes = Iterator[tuple[int, Any]]
RunTasks = Callable[[Sequence["Task"]], Outcomes]
"""Reads tasks and yields (number, readings) as they come; of one whose process died, how it did."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """Files, or one span of one, for a process to read."""

    files: tuple[RunFile, ...]
    limits: BudgetLimits


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What was read of a file or of a span of it."""

    rel: str
    parser: str | None
    pieces: tuple[Piece, ...] = ()
    faults: tuple[tuple[str, str], ...] = ()
    spent: tuple[str, Key] | None = None  # why reading stopped
    died: str = ""  # how its process ended, where it was not read at all
    seconds: float = 0.0  # CPU time
    done: int = 0
    deep_rows: int = 0
    lone_surrogates: int = 0


def plan_tasks(
    files: Iterable[RunFile], limits: BudgetLimits, whole: Collection[str] = (), *, cut: bool = True
) -> list[Task]:
    """Cut files into tasks, in the order of the files; those named in `whole` stay whole, and all without `cut`."""
    tasks: list[Task] = []
    waiting: list[RunFile] = []

    def close() -> None:
        if waiting:
            tasks.append(Task(files=tuple(waiting), limits=limits))
            waiting.clear()

    for file in files:
        bare = replace(file, looks={}, budget=Budget())
        if file.size > TASK_BYTES:
            close()
            spans = _spans(file) if cut and file.rel not in whole else [None]
            tasks += [Task(files=(replace(bare, span=span),), limits=limits) for span in spans]
            continue
        waiting.append(bare)
        if len(waiting) >= TASK_FILES or sum(held.size for held in waiting) >= TASK_BYTES:
            close()
    close()
    return tasks


def _spans(file: RunFile) -> list[tuple[int, int] | None]:
    """Return where a large file is cut; [None] where it is read whole."""
    try:
        if file.readable_head.startswith((GZIP_MAGIC, ZSTD_MAGIC)):
            return [None]
        parser = parser_of(file, PARSERS)
        if parser is None or parser.splits is None:
            return [None]
        return _cut(file, parser.splits)
    except (OSError, ValueError, BudgetSpent):  # whoever reads the file reports the reason
        return [None]
    finally:
        file.looks.clear()


def _cut(file: RunFile, splits: Callable[[bytes, bytes], bool]) -> list[tuple[int, int] | None]:
    """Find the line ends, about TASK_BYTES apart, at which the parser lets a file be split."""
    cuts = [0]
    with file.path.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as text:
        for wanted in range(TASK_BYTES, len(text) - TASK_BYTES // 2, TASK_BYTES):
            at = _next_cut(text, max(wanted, cuts[-1] + 1), splits)
            if at is not None and cuts[-1] < at < len(text):
                cuts.append(at)
        ends = [*cuts[1:], len(text)]
    return list(zip(cuts, ends, strict=True)) if len(cuts) > 1 else [None]


def _next_cut(text: mmap.mmap, begin: int, splits: Callable[[bytes, bytes], bool]) -> int | None:
    before_end = text.find(b"\n", begin, begin + SEARCH_BYTES)
    if before_end < 0:
        return None
    start = text.rfind(b"\n", max(0, begin - SEARCH_BYTES), begin) + 1
    before = text[start:before_end]
    while before_end < begin + SEARCH_BYTES:
        end = text.find(b"\n", before_end + 1, begin + 2 * SEARCH_BYTES)
        after = text[before_end + 1 : end if end >= 0 else len(text)]
        if not after:
            return None
        if splits(before, after):
            return before_end + 1
        if end < 0:
            return None
        before, before_end = after, end
    return None


def read_task(task: Task) -> list[Reading]:
    """Read the files of a task, each within a budget of its own."""
    return [_read(file, task.limits) for file in task.files]


def read_here(tasks: Sequence[Task]) -> Outcomes:
    """Read tasks in this process, one after another."""
    return enumerate(map(read_task, tasks))


def _read(file: RunFile, limits: BudgetLimits) -> Reading:
    size = file.size if file.span is None else file.span[1] - file.span[0]
    budget = Budget(limits, nbytes=size, files=1)
    file = replace(file, budget=budget, looks={})
    faults: dict[str, str] = {}
    parser: Parser | None = None
    pieces: list[Piece] = []
    spent: BudgetSpent | None = None
    begun = time.process_time()
    budget.begin(size)
    try:
        parser = parser_of(file, PARSERS, faults.setdefault)
        if parser is not None:
            for piece in pieces_of(file, parser, faults.setdefault):
                budget.tick()
                if isinstance(piece, Rows):
                    budget.rows(piece.frame.height)
                pieces.append(piece)
    except BudgetSpent as error:
        spent = error
    return Reading(
        rel=file.rel,
        parser=parser.name if parser else None,
        pieces=tuple(pieces),
        faults=tuple(faults.items()),
        spent=(spent.reason, spent.key) if spent else None,
        seconds=time.process_time() - begun,
        done=budget.done,
        deep_rows=budget.deep_rows,
        lone_surrogates=budget.lone_surrogates,
    )


@dataclass(frozen=True, kw_only=True)
class ReadApart:
    """Reads files in other processes.

    cut: cut large files of lines, whose answers are then drawn of each part.
    largest: bytes; a larger file is read by the process that writes the store, since a reading is held whole.
    """

    run_tasks: RunTasks
    cut: bool = True
    largest: int | None = None

    def takes(self, file: RunFile) -> bool:
        """Tell whether a file is read apart."""
        return self.largest is None or file.size <= self.largest

    def readings(self, files: Sequence[RunFile], whole: Collection[str]) -> Iterator[Iterator[Reading]]:
        """Yield the readings of each file, in the order of the files; they must be taken before the next file's."""
        tasks = plan_tasks(files, files[0].budget.limits, whole, cut=self.cut) if files else []
        for _, readings in groupby(_in_order(tasks, self.run_tasks(tasks)), key=lambda reading: reading.rel):
            yield readings


def _in_order(tasks: Sequence[Task], outcomes: Outcomes) -> Iterator[Reading]:
    """Yield readings in the order of their tasks; a process that died leaves one that says so for each of its files."""
    held: dict[int, Any] = {}
    following = 0
    for number, result in outcomes:
        held[number] = result
        while following in held:
            found = held.pop(following)
            yield from found if isinstance(found, list) else _died(tasks[following], found)
            following += 1


def _died(task: Task, how: Any) -> Iterator[Reading]:
    for file in task.files:
        yield Reading(rel=file.rel, parser=None, died=str(getattr(how, "how", "its process ended")))


def why_unread(first: Reading) -> str:
    """Return why nothing of a file was read, by its first reading; empty where something was."""
    return first.died or (str(BudgetSpent(*first.spent)) if first.spent and first.parser is None else "")


def joined_pieces(
    file: RunFile, parser: Parser, readings: Iterable[Reading], fault: Callable[[str, str], None]
) -> Iterator[Piece]:
    """Yield what other processes read of a file; raises BudgetSpent where one had to stop."""
    split = SplitFile(file.rel, parser)
    for reading in readings:
        for name, error in reading.faults:
            fault(name, error)
        file.budget.charge(reading.seconds)
        file.budget.deep_rows += reading.deep_rows
        file.budget.lone_surrogates += reading.lone_surrogates
        yield from split.joined(reading.pieces)
        file.budget.done = file.budget.position = file.budget.done + reading.done
        if reading.died:
            yield unread(file, reading.died)
        elif reading.spent:
            raise BudgetSpent(*reading.spent)
    yield from split.close()


class TornApartError(Exception):
    """A file was cut between lines of one sample, and must be read whole."""

    def __init__(self, rel: str) -> None:
        super().__init__(rel)
        self.rel = rel


class SplitFile:
    """Joins the spans of one file: ids that two spans share are made distinct, means of evaluations are combined."""

    def __init__(self, rel: str, parser: Parser) -> None:
        self._rel = rel
        self._may_tear = parser.splits is not None and parser.splits is not any_line
        self._seen: Counter[str] = Counter()
        self._samples: set[str] = set()
        self._evals: list[pl.DataFrame] = []

    def joined(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """Yield the pieces of the next span; raises TornApartError where it goes on with an earlier sample."""
        pieces = list(pieces)
        ids = [name for frame in _trajectories(pieces) for name in frame["trajectory_id"].to_list()]
        if self._may_tear:
            self._refuse_torn(pieces)
        renamed: dict[str, str] = {}
        for name in ids:
            if (ours := HASHED.fullmatch(name)) is None:  # the writer's own id, which numbers no repeats
                continue
            base = ours[1]
            number, self._seen[base] = self._seen[base], self._seen[base] + 1
            if (fresh := f"{base}-{number}" if number else base) != name:
                renamed[name] = fresh
        for piece in pieces:
            if isinstance(piece, Rows) and piece.table == "evals":
                self._evals.append(piece.frame)
            elif isinstance(piece, Rows) and renamed and "trajectory_id" in piece.frame.columns:
                yield replace(piece, frame=piece.frame.with_columns(pl.col("trajectory_id").replace(renamed)))
            else:
                yield piece

    def close(self) -> Iterator[Piece]:
        """Yield the evaluations of all spans as those of one file."""
        if not self._evals:
            return
        rows = pl.concat(self._evals)
        keys = [name for name in rows.columns if name not in ("value", "n")]
        weight = pl.col("n").fill_null(1)
        mean = (pl.col("value") * weight).sum() / weight.sum()
        merged = rows.group_by(keys, maintain_order=True).agg(mean.alias("value"), pl.col("n").sum())
        yield Rows(table="evals", frame=merged.select(rows.columns))

    def _refuse_torn(self, pieces: Iterable[Piece]) -> None:
        names = {
            name
            for frame in _trajectories(pieces)
            if "sample_id" in frame.columns
            for name in frame["sample_id"].drop_nulls().to_list()
        }
        if names & self._samples:
            raise TornApartError(self._rel)
        self._samples |= names


def _trajectories(pieces: Iterable[Piece]) -> Iterator[pl.DataFrame]:
    return (piece.frame for piece in pieces if isinstance(piece, Rows) and piece.table == "trajectories")
