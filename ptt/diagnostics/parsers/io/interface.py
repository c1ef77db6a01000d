"""What a parser is: it recognises its files by name and first bytes, and reads them into canonical rows.

An exception in a parser loses the rest of its file, not other files, and is reported. Damaged data is an ordinary loss.
Any other exception is our bug: it is kept under the parser's name, shown in the report, and fails the exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.errors import describe, first_line, is_caught, is_damage
from ptt.diagnostics.log_entries import LogEntry
from ptt.diagnostics.parsers.io.budget import Budget, BudgetSpent
from ptt.diagnostics.parsers.io.values import as_seconds, as_stamp
from ptt.diagnostics.wording import counted

if TYPE_CHECKING:
    import polars as pl

Seen = TypeVar("Seen")
HEAD_BYTES = 65536
BEGINNING_BYTES = 4096
REFUSED = "refused"  # what a parser notes among the looks at a file that it would read, and why it does not
OFFSETS = "offsets"  # key in a file's looks: UTC offsets of the stamps read so far


@dataclass(frozen=True)
class RunFile:
    """One regular file below the run dir; `rel` is its path from there, with forward slashes.

    `keep_text`: the user asked for the texts of samples to be kept. `keep_messages`: whole conversations are, for an
    export. `own`: what the user's `[[logs]]` say of it. `looks`: what parsers saw of the file's beginning, so that
    fifty of them read it once; emptied when the file has been read, since a run may hold 100,000 files. `budget`: what
    reading it may cost, shared by all files of a run.
    """

    path: Path
    rel: str
    size: int
    keep_text: bool = False
    keep_messages: bool = False
    own: tuple[LogEntry, ...] = ()
    span: tuple[int, int] | None = None  # bytes of it to read, from line end to line end; None: all
    looks: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    budget: Budget = field(default_factory=Budget, compare=False, repr=False)

    @cached_property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.name

    @property
    def beginning(self) -> bytes:
        """The very first bytes: a format's mark, and that the file can be opened."""
        if "beginning" not in self.looks:
            with self.path.open("rb") as handle:
                self.looks["beginning"] = handle.read(BEGINNING_BYTES)
        content: bytes = self.looks["beginning"]
        return content

    @property
    def head(self) -> bytes:
        """The first bytes, enough to tell a format by."""
        if "head" not in self.looks:
            with self.path.open("rb") as handle:
                self.looks["head"] = handle.read(HEAD_BYTES)
            self.looks["beginning"] = self.looks["head"][:BEGINNING_BYTES]
        content: bytes = self.looks["head"]
        return content

    def look(self, name: str, see: Callable[[], Seen]) -> Seen:
        """Return what `see` finds in the file; it looks once, the answer is kept under `name`."""
        if name not in self.looks:
            self.looks[name] = see()
        found: Seen = self.looks[name]
        return found

    def begins(self, mark: bytes) -> bool:
        """Return whether a file can be read and begins with a format's mark."""
        try:
            return self.beginning.startswith(mark)
        except OSError:
            return False

    @property
    def readable_head(self) -> bytes:
        """The first bytes; empty where the file cannot be read, so that no parser takes it."""
        try:
            return self.head
        except OSError:
            return b""

    def seconds(self, found: object) -> float | None:
        """Read a wall time as `as_seconds`, and keep among the looks what offset its stamp names, in minutes."""
        stamp = as_stamp(found)
        if stamp is not None:
            offset = stamp.utcoffset()
            self.looks.setdefault(OFFSETS, set()).add(None if offset is None else round(offset.total_seconds() / 60))
        return as_seconds(found if stamp is None else stamp)


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A piece of one canonical table: columns are a subset of the schema's, of the schema's types."""

    table: str
    frame: pl.DataFrame


@dataclass(frozen=True, kw_only=True)
class Wide:
    """Metrics of training, a column each, in the order of the file: for logs too long for a row a value.

    `frame`: __step, __time and __seq, then one Float64 column a metric under its raw name; null = not logged.
    """

    frame: pl.DataFrame
    names: Mapping[str, str | None]  # raw -> canonical


@dataclass(frozen=True, kw_only=True)
class InPlace:
    """A Parquet file that already holds canonical sequences: scanned where it lies, never copied.

    `columns` are the usable ones; the others are missing or of a type that cannot be read.
    """

    rows: int
    columns: tuple[str, ...]
    texts: tuple[str, ...] = ()  # columns of texts among all that it holds, used or not: they may have to be masked


@dataclass(frozen=True, kw_only=True)
class Lost:
    """What could not be read: rows that are damaged or foreign, bytes behind a tear, and why."""

    rows: int = 0
    bytes: int = 0
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class Context:
    """Facts about the run that do not fit a table: framework, algorithm, sizes, settings that are shown.

    `settings`: all of them, by dotted names, null as None; `packages`: versions by distribution. `offsets`: UTC
    offsets, in minutes, that the file's timestamps name; None among them if some name none.
    """

    facts: dict[str, str | int | float | bool | None]
    settings: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    in_part: bool = False  # the settings may be some of all
    unresolved: int = 0  # settings whose value is a variable of the shell
    packages: Mapping[str, str] = field(default_factory=dict)
    offsets: frozenset[int | None] = frozenset()


Piece = Rows | Wide | InPlace | Lost | Context


def read_error(file: RunFile, error: OSError, *, done: int = 0, end: str = "") -> Lost:
    """Report a file that is gone or whose disk fails after `done` bytes."""
    return Lost(bytes=max(0, file.size - done), note=f"{file.rel} could not be read{end}: {error.strerror}.")


def count_notes(file: RunFile, counts: Mapping[str, int], *, lost: tuple[str, ...] = ()) -> Iterator[Lost]:
    """Yield `{path}: {count} {text}` for each count above 0, in order; counts in `lost` are of lost rows."""
    for text, count in counts.items():
        if count:
            yield Lost(rows=count if text in lost else 0, note=f"{file.rel}: {counted(count, text)}")


def lost_notes(file: RunFile, counts: Mapping[str, int]) -> Iterator[Lost]:
    """Yield `count_notes` of rows that are lost."""
    yield from count_notes(file, counts, lost=tuple(counts))


def any_line(_before: bytes, _after: bytes) -> bool:
    """Let a file be split after any line: its lines are independent."""
    return True


@dataclass(frozen=True, kw_only=True)
class Parser:
    """One format. `read` raises nothing for damaged input: it yields what it could, and `Lost`.

    Before it takes memory that the size of the file does not bound it asks `file.budget`, and lets BudgetSpent pass.
    """

    name: str
    describes: str  # one line for the docs: whose file it is and what it yields
    held_against: str  # for the docs: "real: " files of the writer itself, or "source: " its code, read field by field
    priority: int  # on the same metric at the same step the lower number wins
    general: bool = False  # True: takes any file of its shape that no parser before it takes
    last_resort: bool = False  # True: takes files only of a run in which no other file is a training log
    of_training: bool = True  # False: only samples, spans or evaluations; a lost file counts by its size
    splits: Callable[[bytes, bytes], bool] | None = (
        None  # whether a file may be cut between these two lines; None: never
    )
    recognises: Callable[[RunFile], bool]
    read: Callable[[RunFile], Iterator[Piece]]


OnFault = Callable[[str, str], object]
"""Called with the name of a parser that failed by a fault of ours, and with the error."""


def _pass(_: str, __: str) -> None:
    """Drop a fault: the ingest meets it again, and reports it."""


def parser_of(
    file: RunFile, parsers: Iterable[Parser], on_fault: OnFault = _pass, *, last_resort: bool = False
) -> Parser | None:
    """Return the first parser that recognises a file; a parser that fails on the file's beginning does not count.

    `last_resort`: ask only parsers for what is left of a run without a training log; else only the others.
    """
    for parser in parsers:
        if parser.last_resort != last_resort:
            continue
        try:
            if parser.recognises(file):
                return parser
        except (BudgetSpent, KeyboardInterrupt):
            raise
        except BaseException as error:  # of any parser: ask the next; a Polars panic is not an Exception
            if not is_caught(error):
                raise
            if not is_damage(error):
                on_fault(parser.name, describe(error))
    return None


def pieces_of(file: RunFile, parser: Parser, on_fault: OnFault = _pass) -> Iterator[Piece]:
    """Yield what a parser reads, and the offsets of its stamps; where it fails, the rest of the file is lost."""
    named = 0
    try:
        for piece in parser.read(file):
            yield piece
            if len(offsets := file.looks.get(OFFSETS, ())) > named:
                named = len(offsets)
                yield Context(facts={}, offsets=frozenset(offsets))
    except (BudgetSpent, GeneratorExit):
        raise
    except OSError as error:
        yield read_error(file, error, done=file.budget.done)
    except BaseException as error:  # a file costs itself alone; a panic of Polars is no Exception
        if not is_caught(error):
            raise
        yield unread(file, f"{parser.name} stopped at {first_line(error)}")
        if not is_damage(error):
            on_fault(parser.name, describe(error))


def unread(file: RunFile, why: str) -> Lost:
    """Return the loss of what was not read of a file: a byte at least."""
    return Lost(bytes=max(1, file.size - file.budget.done), note=f"{file.rel}: {why}; the rest is lost.")
