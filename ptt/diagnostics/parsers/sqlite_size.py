"""Whether an SQLite database is as long as its header says; where it is cut, SQLite itself may just skip a table."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Iterator

from ptt.diagnostics.parsers.interface import Lost, Piece, RunFile
from ptt.diagnostics.parsers.sqlite_files import DAMAGE, open_database, unreadable, wal_note

HEADER_BYTES = 100


def cut_note(file: RunFile) -> Lost | None:
    """Say how much is missing at the end; None where nothing is, or the header does not tell.

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
