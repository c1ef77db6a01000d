"""Files that hold records: conversations or exports of tracers, on lines, in a list, in a document or in a table."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, TypeVar

import pyarrow as pa
import pyarrow.types as pat

from ptt.diagnostics.parsers.io.interface import HEAD_BYTES, Lost, RunFile
from ptt.diagnostics.parsers.io.json_documents import document_head, members
from ptt.diagnostics.parsers.io.lines import (
    BOM,
    FIRST_BYTES,
    SUFFIXES,
    blocks,
    first_objects,
    is_torn,
    json_object,
    line_objects,
    pieces,
    text_head,
)
from ptt.diagnostics.parsers.io.parquet_files import cut_note, is_cut, row_batches, schema_of
from ptt.diagnostics.parsers.io.trajectories import objects
from ptt.diagnostics.parsers.io.values import as_json, dicts_in, nested

Layout = Literal["lines", "list", "object", "table", ""]
Found = TypeVar("Found")
CHAT_COLUMNS: Final = frozenset(
    {"messages", "conversations", "conversation", "trajectory", "traj", "chat", "dialogue"}
)  # columns of a table
BATCH_ROWS: Final = 256
LONG_HEAD_BYTES: Final = 1 << 20  # looked at if the first bytes hold only part of one text
DOCUMENTS: Final = (".json", ".json.gz", ".json.zst")
LOOKED: Final = 3  # records looked at to recognise a file
RECORD_LISTS: Final = ("samples", "conversations", "trajectories", "episodes", "rollouts", "results", "data", "records",
                       "items", "rows", "traces", "sessions", "examples", "train", "test", "runs")  # fmt: skip
"""Members of a document that may hold its records."""


def layout(file: RunFile) -> Layout:
    """Tell how records lie in a file by its beginning; empty where it is no JSON. Lines may be named `.json`."""
    name = file.name.lower()
    if name.endswith(SUFFIXES):
        return "lines"
    if name.endswith(".parquet"):
        return "table" if is_cut(file) and _chat_columns(file) else ""
    if not name.endswith(DOCUMENTS):
        return ""
    return file.look("layout", lambda: _layout(file, text_head(file).removeprefix(BOM).lstrip()))


def _chat_columns(file: RunFile) -> bool:
    """Return whether a table has a column that may hold conversations: lists of messages, or their JSON."""
    footer = schema_of(file)
    kinds = [column.type for column in footer[0] if column.name in CHAT_COLUMNS] if footer else []
    return any(bool(pat.is_string(kind) or pat.is_large_string(kind)) or _is_list(kind) for kind in kinds)


def _is_list(kind: pa.DataType) -> bool:
    return bool((pat.is_list(kind) or pat.is_large_list(kind)) and pat.is_struct(kind.value_type))


def _layout(file: RunFile, head: bytes) -> Layout:
    if head.startswith(b"["):
        return "list"
    if not head.startswith(b"{"):
        return ""
    first, end, rest = head.partition(b"\n")
    if not end and file.size > len(head):
        return "lines" if _has_second_line(file) else "object"
    return "lines" if end and rest.strip() and json_object(first) is not None else "object"


def _has_second_line(file: RunFile) -> bool:
    """Return whether another object follows a first line longer than what is usually read."""
    seen, ended = 0, False
    for piece in pieces(file):
        if isinstance(piece, Lost) or seen > FIRST_BYTES:
            return False
        seen += len(piece)
        rest = piece if ended else piece.partition(b"\n")[2]
        ended = ended or b"\n" in piece
        if rest.strip():
            return rest.lstrip().startswith(b"{")
    return False


def first_records(file: RunFile) -> list[Any]:
    """Return the first records, those of a document from its first bytes only; elements of a list may be lists."""
    return file.look("first records", lambda: _first_records(file))


def _first_records(file: RunFile) -> list[Any]:
    kind = layout(file)
    if kind == "lines" and file.name.lower().endswith(SUFFIXES):
        return first_objects(file)
    if kind == "table":
        return [row for row in itertools.islice(_rows(file, LOOKED), LOOKED) if isinstance(row, dict)]
    head = text_head(file) if kind else b""
    lines = head.split(b"\n")[:LOOKED] if kind == "lines" else []
    if rows := [row for line in lines if (row := json_object(line)) is not None]:
        return rows
    found = _head_value(head)
    if len(head) >= HEAD_BYTES and len(as_json(found)) < len(head) // 2:  # one text fills it: a long system prompt
        found = _head_value(_long_head(file))
    if isinstance(found, list):
        return found[:LOOKED]
    return [found] if isinstance(found, dict) else []


def _head_value(head: bytes) -> Any:
    return document_head(head.removeprefix(BOM).decode("utf-8", "replace"), whole=len(head) < HEAD_BYTES)


def _long_head(file: RunFile) -> bytes:
    """Return the beginning of a file, enough to hold a few long texts."""
    head = bytearray()
    for piece in pieces(file):
        if isinstance(piece, Lost) or len(head) >= LONG_HEAD_BYTES:
            break
        head += piece
    return bytes(head[:LONG_HEAD_BYTES])


def holds(file: RunFile, is_record: Callable[[Any], bool]) -> bool:
    """Return whether a file begins with records, or is an object that holds a list of them."""
    rows = first_records(file)
    if layout(file) == "object":
        return bool(rows) and (is_record(rows[0]) or bool(_list_of_records(rows[0], is_record)))
    whole = rows[: max(1, len(rows) - 1)]  # the last one may be cut
    return bool(whole) and all(map(is_record, whole))


def records(file: RunFile, is_record: Callable[[Any], bool]) -> Iterator[Any]:
    """Yield the records of a file that `holds` them, other values among them, and what is lost."""
    kind = layout(file)
    if kind in ("lines", "table"):
        yield from line_objects(file) if kind == "lines" else _rows(file, BATCH_ROWS)
        return
    rows = first_records(file)
    key = _list_of_records(rows[0], is_record) if kind == "object" and rows and not is_record(rows[0]) else ""
    whole: dict[str, Any] = {}
    for member in members(file, frozenset({key} if key else ())):
        if isinstance(member, Lost):
            yield member
        elif kind == "list" or (key and member[0] == key):
            yield member[1]
        else:
            whole[member[0]] = member[1]
    if whole and not key:
        yield whole


def _rows(file: RunFile, batch_rows: int) -> Iterator[Any]:
    """Yield the rows of a table as records; columns that hold nothing in a row are left out of it."""
    footer = schema_of(file)
    if footer is None:
        yield cut_note(file)
        return
    for batch in row_batches(file, footer[0].names, footer[1], rows=batch_rows):
        if isinstance(batch, Lost):
            yield batch
        else:
            yield from ({key: value for key, value in row.items() if value is not None} for row in batch)


def splits(before: bytes, after: bytes) -> bool:
    """Let a file be split between two lines that are records; a document's lines end in commas, so never there."""
    return before.startswith(b"{") and before.rstrip().endswith(b"}") and after.startswith(b"{")


def _list_of_records(document: Any, is_record: Callable[[Any], bool]) -> str:
    lists = ((key, nested(document, key)) for key in RECORD_LISTS)
    return next((key for key, found in lists if isinstance(found, list) and found and is_record(found[0])), "")


HEAD: Final = "document head"
CSV: Final = ".csv"
MAX_HEADER: Final = 8192
MIN_COMMAS: Final = 4  # in the header of an export
MAX_CELL: Final = 16 << 20  # characters; a conversation is shorter
ERROR_CHARS: Final = 100  # of an error's text, in which its kind may be named


def first_rows(file: RunFile, holders: frozenset[str], *, tables: bool = False) -> list[dict[str, Any]]:
    """Return the first objects of an export, to recognise its format; the last one may lack its end.

    `holders`: keys under which a document may hold them; without any, the document itself is the object. `tables`: the
    writer exports CSV too.
    """
    name = file.name.lower()
    if name.endswith(SUFFIXES):
        return first_objects(file)
    if name.endswith(CSV) and tables:
        return _table_head(file)
    if not name.endswith(".json"):
        return []
    if HEAD not in file.looks:
        head = file.readable_head
        starts = head.lstrip()[:1] in (b"[", b"{")
        whole = file.size <= HEAD_BYTES
        file.looks[HEAD] = document_head(head.decode("utf-8", "replace"), whole=whole) if starts else None
    found = file.looks[HEAD]
    if isinstance(found, dict):
        held = next((rows for key in sorted(holders) if (rows := dicts_in(found.get(key)))), None)
        return [found] if held is None else held
    return dicts_in(found)


def rows_of(file: RunFile, holders: frozenset[str]) -> Iterator[dict[str, Any] | Lost | None]:
    """Yield the objects of an export, None for other values; a document with some comes last, without them."""
    if file.name.lower().endswith(SUFFIXES):
        yield from objects(file)
        return
    if file.name.lower().endswith(CSV):
        yield from _table_rows(file)
        return
    whole: dict[str, Any] = {}
    for member in members(file, holders):
        if isinstance(member, Lost):
            yield member
        elif member[0] == "" or member[0] in holders:
            yield member[1] if isinstance(member[1], dict) else None
        else:
            whole[member[0]] = member[1]
    if whole:
        yield whole


def _table_head(file: RunFile) -> list[dict[str, Any]]:
    """Return the first row of a table whose beginning holds one."""
    head = file.readable_head.decode("utf-8", "replace").removeprefix("\ufeff")
    first, _, rest = head.partition("\n")
    if not rest or len(first) > MAX_HEADER or first.count(",") < MIN_COMMAS:
        return []
    row = _row(csv.DictReader(io.StringIO(head, newline="")))
    return [row] if row else []


def _table_rows(file: RunFile) -> Iterator[dict[str, Any] | Lost | None]:
    """Yield the rows of a table; an empty cell is nothing."""
    lost: list[Lost] = []
    table = csv.DictReader(_text_lines(file, lost))
    count = 0
    while (row := _row(table)) is not None:
        count += 1
        file.budget.tick()
        torn = any(value is None for value in row.values())  # a row that is cut lacks cells
        yield None if torn else {key: value or None for key, value in row.items()}
    if not count:
        yield Lost(note=f"{file.rel} contains no rows below its header.")
    if _is_unread(table):
        yield Lost(rows=1, note=f"{file.rel}: a cell is too long, or the table is damaged; the rest was not read.")
    yield from lost


def _is_unread(table: csv.DictReader[str]) -> bool:
    """Return whether a table goes on behind the last row that could be read."""
    try:
        return next(table.reader, None) is not None
    except csv.Error:
        return True


def _row(table: csv.DictReader[str]) -> dict[str, Any] | None:
    """Return the next row of a table; None at its end, or where it cannot be read further."""
    limit = csv.field_size_limit(MAX_CELL)  # of the whole process, so it is restored
    try:
        row = next(table, None)
    except csv.Error:
        return None
    finally:
        csv.field_size_limit(limit)
    return None if row is None else {key: value for key, value in row.items() if isinstance(key, str)}


def _text_lines(file: RunFile, lost: list[Lost]) -> Iterator[str]:
    for block in blocks(file):
        if isinstance(block, Lost):
            lost.append(block)
            continue
        yield from io.StringIO(block.decode("utf-8", "replace"), newline="")
        if is_torn(block):
            lost.append(Lost(note=f"{file.rel} ends without a line end: its last row may be cut."))


def error_kind(text: Any) -> str | None:
    """Return the class that an error's text begins with; `error` where it begins otherwise."""
    if not isinstance(text, str) or not text.strip():
        return None
    begins = text.strip()[:ERROR_CHARS].partition("(")[0].partition(":")[0].strip()
    return begins if begins.isascii() and begins.replace("_", "").replace(".", "").isalnum() else "error"
