"""Read only the ordinary tables of SQLite databases: views, virtual tables and generated columns run code of the file.

A database's length is checked against its header, because SQLite may silently skip a table of a truncated one."""

from __future__ import annotations

import sqlite3
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from ptt.diagnostics.parsers.io.budget import Budget
from ptt.diagnostics.parsers.io.interface import Lost, Piece, RunFile
from ptt.diagnostics.wording import counted

MAGIC: Final = b"SQLite format 3\0"
CELL_BYTES: Final = 64 << 20  # for one text or blob; a traced rollout of 128k tokens takes 8 MB
HEAP_BYTES: Final = 256 << 20  # for all that SQLite holds: a cell as read and as handed on, and the cache
CACHE_KIB: Final = 65_536
SQL_BYTES: Final = 1 << 20
STEPS: Final = 20_000  # of SQLite's virtual machine, between two checks of the clock
DAMAGE: Final = (sqlite3.Error, MemoryError, OverflowError, UnicodeError, OSError)
# SQLite itself writes down every ordinary table as `CREATE TABLE `, whatever was typed.
TABLES_SQL: Final = (
    "SELECT name FROM sqlite_master WHERE type = 'table' AND name IS NOT NULL AND rootpage > 0 "
    "AND substr(sql, 1, 13) = 'CREATE TABLE ' ORDER BY name"
)
NAMES_SQL: Final = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
MAX_NAMED: Final = 3
MAX_NAME: Final = 64
COLUMNS_SQL: Final = "SELECT name, hidden FROM pragma_table_xinfo(?)"  # hidden: not an ordinary column
ROW_BYTES: Final = 256  # for a short row as a Python object
LOOK_SECONDS: Final = 2.0  # of wall time, for recognising a format; reading a schema takes milliseconds


def is_database(file: RunFile) -> bool:
    """Return whether a file begins as an SQLite database."""
    return file.readable_head.startswith(MAGIC)


@contextmanager
def open_database(path: Path, budget: Budget | None = None) -> Iterator[sqlite3.Connection]:
    """Open a database for reading alone, for as long as the budget goes; raise sqlite3.Error or OSError."""
    if not path.is_file():
        raise FileNotFoundError(2, "No such file or directory", str(path))
    until = time.monotonic() + LOOK_SECONDS
    connection = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1", uri=True)
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, CELL_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, SQL_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.text_factory = _text
        for pragma in ("trusted_schema=OFF", "query_only=ON", "mmap_size=0", f"cache_size=-{CACHE_KIB}"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute(f"PRAGMA hard_heap_limit={HEAP_BYTES}")  # of this process; an older SQLite ignores it
        connection.set_progress_handler(
            lambda: int(time.monotonic() > until if budget is None else budget.seconds_left <= 0), STEPS
        )
        connection.set_authorizer(_authorize)
        yield connection
    finally:
        connection.close()


def _authorize(_action: int, _first: str | None, _second: str | None, _database: str | None, inner: str | None) -> int:
    """Refuse what is reached by way of a view or a trigger: our own queries name tables."""
    return sqlite3.SQLITE_OK if inner is None else sqlite3.SQLITE_DENY


def tables(connection: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """Return the ordinary tables and their columns by name; empty where the schema itself is damaged."""
    columns: dict[str, tuple[str, ...]] = {}
    try:
        names = [name for (name,) in connection.execute(TABLES_SQL) if isinstance(name, str)]
    except DAMAGE:
        return {}
    for name in names:
        try:
            info = connection.execute(COLUMNS_SQL, (name,)).fetchall()
        except DAMAGE:
            continue
        if not any(hidden for _, hidden in info):
            columns[name] = tuple(str(column) for column, _ in info)
    return columns


def tables_of(file: RunFile) -> dict[str, tuple[str, ...]]:
    """Return the ordinary tables of a file, for telling its format; empty if it is no readable database."""
    return file.look("tables", lambda: _tables_of(file))


def _tables_of(file: RunFile) -> dict[str, tuple[str, ...]]:
    if not is_database(file):
        return {}
    try:
        with open_database(file.path) as connection:
            return tables(connection)
    except DAMAGE:
        return {}


def not_read(file: RunFile) -> str:
    """Say which tables of a database are not read because they are not ordinary; "" if there are none."""
    if not is_database(file):
        return ""
    try:
        with open_database(file.path) as connection:
            names = {str(name) for (name,) in connection.execute(NAMES_SQL)}
            others = sorted(names - tables(connection).keys())
    except DAMAGE as error:
        return f"{file.rel}: its database could not be read: {_reason(error)}."
    shown = ", ".join(name[:MAX_NAME] for name in others[:MAX_NAMED])
    more = f" and {len(others) - MAX_NAMED} more" if len(others) > MAX_NAMED else ""
    return f"{file.rel}: only ordinary tables are read; {len(others)} skipped: {shown}{more}." if others else ""


def rows(
    connection: sqlite3.Connection, file: RunFile, sql: str, parameters: Sequence[Any] = (), *, held: bool = False
) -> Iterator[tuple[Any, ...] | Lost]:
    """Yield a query's rows; if the database is damaged, those that could be read and then one Lost.

    `held`: the caller keeps all rows, so the budget is asked: a damaged tree may contain one page many times.
    """
    done = nbytes = 0
    try:
        for row in connection.execute(sql, parameters):
            done += 1
            if held:
                nbytes += ROW_BYTES + sum(len(cell) for cell in row if isinstance(cell, str | bytes))
                file.budget.take(nbytes=nbytes, what="a list of its rows")
            yield row
    except DAMAGE as error:
        file.budget.tick()
        yield Lost(rows=1, note=f"{file.rel}: the database failed after {counted(done, 'row(s)')}: {_reason(error)}.")


def rows_past_damage(connection: sqlite3.Connection, file: RunFile, sql: str) -> Iterator[tuple[Any, ...] | Lost]:
    """Yield what a query `SELECT key, ... WHERE key > ? ORDER BY key` gives, going on behind each damaged part.

    The key is the table's row number, 0 or more.
    """
    last, stride = -1, 1
    while stride < 1 << 62:
        failed = None
        for row in rows(connection, file, sql, (last,)):
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
    note = f"{file.rel}: {size} bytes of its -wal were not read: the writer had not yet moved them into the database."
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
    """Return how much is missing at the end; None if nothing is, or the header does not say.

    Fields after https://www.sqlite.org/fileformat2.html, section 1.3: the size in pages counts if the two change
    counters agree.
    """
    try:
        with file.path.open("rb") as handle:
            head = handle.read(HEADER_BYTES)
    except OSError:  # reported by whoever opens the database
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


def missing_notes(file: RunFile) -> Iterator[Lost]:
    """Yield what of a database is not read: what is missing at its end, in a log beside it, or no ordinary table."""
    for note in (cut_note(file), wal_note(file)):
        if note is not None:
            yield note
    if others := not_read(file):
        yield Lost(note=others)


def of_database(file: RunFile, pieces: Callable[[sqlite3.Connection, RunFile], Iterator[Piece]]) -> Iterator[Piece]:
    """Yield what `pieces` reads of a database, and what is missing at its end or lies in a log beside it."""
    try:
        with open_database(file.path, file.budget) as connection:
            yield from pieces(connection, file)
    except DAMAGE as error:
        yield unreadable(file, error)
        return
    yield from missing_notes(file)
