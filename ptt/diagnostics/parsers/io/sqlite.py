"""Read SQLite databases, and check their length against the header: of one that is cut SQLite may just skip a table."""

from __future__ import annotations

import sqlite3
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from ptt.diagnostics.parsers.io.interface import Lost, Piece, RunFile

MAGIC: Final = b"SQLite format 3\0"
CELL_BYTES: Final = 256 << 20  # of one text or blob; SQLite refuses larger ones by itself
CACHE_KIB: Final = 65_536
SQL_BYTES: Final = 1 << 20
SECONDS: Final = 600.0  # for one query; a view or a damaged tree can go on for ever
STEPS: Final = 20_000  # of SQLite's machine between two looks at the clock
DAMAGE: Final = (sqlite3.Error, MemoryError, OverflowError, UnicodeError, OSError)
TABLES_SQL: Final = "SELECT name FROM sqlite_master WHERE type = 'table' AND name IS NOT NULL ORDER BY name"


def is_database(file: RunFile) -> bool:
    """Return whether a file begins as an SQLite database."""
    try:
        with file.path.open("rb") as handle:
            return handle.read(len(MAGIC)) == MAGIC
    except OSError:  # unreadable: nobody's
        return False


@contextmanager
def open_database(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database for reading alone; raise sqlite3.Error or OSError where it cannot be."""
    if not path.is_file():
        raise FileNotFoundError(2, "No such file or directory", str(path))
    connection = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1", uri=True)
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, CELL_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, SQL_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.text_factory = _text
        for pragma in ("trusted_schema=OFF", "query_only=ON", "mmap_size=0", f"cache_size=-{CACHE_KIB}"):
            connection.execute(f"PRAGMA {pragma}")
        yield connection
    finally:
        connection.close()


def tables(connection: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """Return the real tables (no views) and their columns by name; empty where the schema itself is damaged."""
    columns: dict[str, tuple[str, ...]] = {}
    try:
        names = [name for (name,) in connection.execute(TABLES_SQL) if isinstance(name, str)]
    except DAMAGE:
        return {}
    for name in names:
        try:
            table_info = connection.execute("SELECT name FROM pragma_table_info(?)", (name,)).fetchall()
        except DAMAGE:
            continue
        columns[name] = tuple(str(column) for (column,) in table_info)
    return columns


def tables_of(file: RunFile) -> dict[str, tuple[str, ...]]:
    """Return the tables of a file, for telling its format; empty if it is no readable database."""
    if not is_database(file):
        return {}
    try:
        with open_database(file.path) as connection:
            return tables(connection)
    except DAMAGE:
        return {}


def rows(
    connection: sqlite3.Connection, sql: str, parameters: Sequence[Any] = (), *, until: float | None = None
) -> Iterator[tuple[Any, ...] | Lost]:
    """Yield what a query gives; where the database is damaged, what could be read and then one Lost.

    Raises nothing. A query that runs past its time (`until`, by the monotonic clock) is cut off, and that is told too.
    """
    until = time.monotonic() + SECONDS if until is None else until
    connection.set_progress_handler(lambda: int(time.monotonic() > until), STEPS)
    done = 0
    try:
        for row in connection.execute(sql, parameters):
            done += 1
            yield row
    except DAMAGE as error:
        late = time.monotonic() > until
        why = "it took too long" if late else _reason(error)
        yield Lost(rows=1, note=f"the database gave {done} row(s) and then failed: {why}.")
    finally:
        connection.set_progress_handler(None, 0)


def file_rows(
    connection: sqlite3.Connection, file: RunFile, sql: str, parameters: Sequence[Any] = ()
) -> Iterator[tuple[Any, ...] | Lost]:
    """Yield `rows`, and what is lost under the name of the file."""
    for row in rows(connection, sql, parameters):
        yield replace(row, note=f"{file.rel}: {row.note}") if isinstance(row, Lost) else row


def rows_past_damage(connection: sqlite3.Connection, sql: str) -> Iterator[tuple[Any, ...] | Lost]:
    """Yield what a query `SELECT key, ... WHERE key > ? ORDER BY key` gives, going on behind each damaged part.

    The key is the table's row number, 0 or more.
    """
    until = time.monotonic() + SECONDS
    last, stride = -1, 1
    while stride < 1 << 62 and time.monotonic() < until:
        failed = None
        for row in rows(connection, sql, (last,), until=until):
            if isinstance(row, Lost):
                failed = row
            else:
                last, stride = int(row[0]), 1
                yield row
        if failed is None:
            return
        if stride == 1:
            yield failed
        last, stride = min(last + stride, (1 << 63) - 1), stride * 2


def wal_note(file: RunFile) -> Lost | None:
    """Report a log of unfinished writes beside the database, which is not read."""
    try:
        size = file.path.with_name(file.path.name + "-wal").stat().st_size
    except OSError:
        return None
    if not size:
        return None
    note = f"{file.rel}: {size} bytes of its -wal are not read: the writer had not yet moved them into the database."
    return Lost(bytes=size, note=note)


def unreadable(file: RunFile, error: Exception) -> Lost:
    """Report a database that could not be opened at all."""
    return Lost(bytes=file.size, note=f"{file.rel}: its database could not be read: {_reason(error)}.")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


HEADER_BYTES = 100


def cut_note(file: RunFile) -> Lost | None:
    """Return how much is missing at the end; None where nothing is, or the header does not say.

    Fields after https://www.sqlite.org/fileformat2.html, section 1.3: the size in pages counts if the two change
    counters agree.
    """
    try:
        with file.path.open("rb") as handle:
            head = handle.read(HEADER_BYTES)
    except OSError:  # told by whoever opens the database
        return None
    if len(head) < HEADER_BYTES:
        return Lost(bytes=len(head), note=f"{file.rel} ends inside the header of its database.")
    page = struct.unpack_from(">H", head, 16)[0]
    changed, pages = struct.unpack_from(">II", head, 24)
    if changed != struct.unpack_from(">I", head, 92)[0]:
        return None
    missing = (65536 if page == 1 else page) * pages - file.size
    if missing <= 0:
        return None
    return Lost(bytes=missing, note=f"{file.rel} is cut: the last {missing} bytes of its database are missing.")


def of_database(file: RunFile, pieces: Callable[[sqlite3.Connection, RunFile], Iterator[Piece]]) -> Iterator[Piece]:
    """Yield what `pieces` reads of a database, and what is missing at its end or lies in a log beside it."""
    try:
        with open_database(file.path) as connection:
            yield from pieces(connection, file)
    except DAMAGE as error:
        yield unreadable(file, error)
        return
    for note in (cut_note(file), wal_note(file)):
        if note is not None:
            yield note
