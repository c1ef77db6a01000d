"""Read what the pages of a Parquet file claim to hold from their headers alone: no page is unpacked.

A footer may lie, and a reader allocates by what the pages say. Fields after `src/main/thrift/parquet.thrift`
(`FileMetaData`, `PageHeader`) of apache/parquet-format, in Thrift's compact protocol."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

from ptt.diagnostics.parsers.io.protobuf import varint

HEADER_BYTES: Final = 1024  # read at first; with statistics of numbers a header takes a hundred
LONG_HEADER_BYTES: Final = 1 << 20  # statistics may hold texts
KIND, UNPACKED, PACKED, DATA, DICTIONARY, DATA_V2 = 1, 2, 3, 5, 7, 8  # fields of a page header
STOP, TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
INTEGERS: Final = (4, 5, 6)
LONG_LIST: Final = 15  # in four bits: the length follows
MAX_PLACE: Final = 1 << 62  # in a file; beyond it no system seeks
MAX_NESTED: Final = 16  # structs within structs in these headers; there are three levels
SCHEMA, CHILDREN = 2, 5  # of the footer, and of an element of its schema
_INTEGER: Final = rb"\x15([\x80-\xff]{0,4}[\x00-\x7f])"
_USUAL: Final = re.compile(
    rb"\x15[\x00-\x7f]%b%b"  # the kind of page, what it unpacks to, what it takes
    rb"([\x2c\x4c\x5c]|\x15[\x80-\xff]{0,4}[\x00-\x7f][\x1c\x3c\x4c])%b"  # its own header, behind a checksum or not
    rb"(?:\x15[\x80-\xff]{0,4}[\x00-\x7f]|[\x11\x12])*(\x00\x00|\x1c)"  # encodings, levels, flags; statistics follow
    % ((_INTEGER,) * 3)
)
"""A page header in the usual layout, read with one match; any other is read field by field."""
_OF_DICTIONARIES: Final = (0x4C, 0x3C)  # the mark of such a header, and of one behind a checksum
SCHEMAS_KEPT: Final = 8
SCHEMA_BYTES: Final = 1 << 16  # of a schema that is kept
_depths: Final[list[tuple[bytes, int]]] = []
"""Recent footers, up to the end of their schemas, with their depth: files of a run share theirs."""


class Page(NamedTuple):
    """What one page claims: how many values of a dictionary (`is_dictionary`) or of the column, and its sizes."""

    is_dictionary: bool
    values: int
    packed: int
    unpacked: int


def pages(handle: BinaryIO, start: int, values: int) -> Iterator[Page]:
    """Yield the pages of a column chunk until they hold `values`, as readers do; ValueError or IndexError where not."""
    at = start
    while values > 0:
        if not 0 <= at < MAX_PLACE:
            raise ValueError("a page that lies in no file")
        handle.seek(at)
        raw = handle.read(HEADER_BYTES)
        found = _usual_page(raw)
        if found is None:
            try:
                found = _page(raw)
            except IndexError:
                found = _page(raw + handle.read(LONG_HEADER_BYTES))
        page, length = found
        yield page
        values -= 0 if page.is_dictionary else page.values
        at += length + page.packed


def _usual_page(data: bytes) -> tuple[Page, int] | None:
    """Read a header that is laid out as usual; None where it has to be read field by field."""
    if (found := _USUAL.match(data)) is None:
        return None
    at = found.end()
    if found[5] == b"\x1c":
        at = _behind_statistics(data, at)
        if at < 0 or data[at : at + 2] != b"\0\0":
            return None
        at += 2
    unpacked, packed, values = _small(found[1]), _small(found[2]), _small(found[4])
    if unpacked & 1 or packed & 1 or values & 1:  # below 0
        return None
    is_dictionary = found[3][-1] == _OF_DICTIONARIES[len(found[3]) > 1]
    return Page(is_dictionary, values >> 1, packed >> 1, unpacked >> 1), at


def _small(data: bytes) -> int:
    if len(data) == 1:
        return data[0]
    value = 0
    for byte in reversed(data):
        value = value << 7 | byte & 127
    return value


def _behind_statistics(data: bytes, at: int) -> int:
    """Return the place after a struct of texts, numbers and booleans; -1 if it holds anything else."""
    try:
        while head := data[at]:
            if head < 16:
                return -1
            kind, at = head & 15, at + 1
            if kind == BINARY and data[at] < 128:
                at += 1 + data[at]
            elif kind in INTEGERS:
                while data[at] > 127:
                    at += 1
                at += 1
            elif kind not in (TRUE, FALSE):
                return -1
    except IndexError:
        return -1
    return at + 1


def schema_size(footer: bytes) -> int:
    """Return how many columns and groups of columns a schema lists, itself among them."""
    return _schema(footer)[0]


def _schema(footer: bytes) -> tuple[int, int]:
    """Return how many elements a schema has, and where they begin."""
    kind, at = _find(footer, SCHEMA)
    if kind != LIST:
        raise ValueError("a footer without a schema")
    count, _, at = _list_header(footer, at)
    return count, at


def schema_depth(footer: bytes) -> int:
    """Return how deeply the groups of a schema nest: libraries build them by calling themselves."""
    for beginning, depth in tuple(_depths):
        if footer.startswith(beginning):
            return depth
    count, at = _schema(footer)
    open_groups: list[int] = []  # how many children each still has to come
    deepest = 0
    for _ in range(count):
        children, at = _children(footer, at)
        while open_groups and not open_groups[-1]:
            open_groups.pop()
        if open_groups:
            open_groups[-1] -= 1
        if children > 0:
            open_groups.append(children)
        deepest = max(deepest, len(open_groups))
    if at <= SCHEMA_BYTES:
        _depths.append((footer[:at], deepest))
        del _depths[:-SCHEMAS_KEPT]
    return deepest


def schema_bytes(footer: bytes) -> bytes | None:
    """Return a footer up to the end of its schema, once `schema_depth` looked at it; None where that is too long."""
    return next((beginning for beginning, _ in _depths if footer.startswith(beginning)), None)


def _children(data: bytes, at: int) -> tuple[int, int]:
    field = children = 0
    while True:
        field, kind, at = _field(data, at, field)
        if kind == STOP:
            return children, at
        if field == CHILDREN and kind in INTEGERS:
            children, at = _integer(data, at)
        else:
            at = _skip(data, at, kind)


def _page(data: bytes) -> tuple[Page, int]:
    found: dict[int, int] = {}
    content, values = 0, 0
    at = field = 0
    while True:
        field, kind, at = _field(data, at, field)
        if kind == STOP:
            break
        if field in (UNPACKED, PACKED) and kind in INTEGERS:
            found[field], at = _integer(data, at)
        elif field in (DATA, DICTIONARY, DATA_V2) and kind == STRUCT:
            content = field
            first, first_kind, inside = _field(data, at, 0)
            if first != 1 or first_kind not in INTEGERS:
                raise ValueError("a page that does not say how many values it has")
            values, _ = _integer(data, inside)
            at = _skip(data, at, kind)
        else:
            at = _skip(data, at, kind)
    sizes = found.get(PACKED, -1), found.get(UNPACKED, -1)
    if min(*sizes, values) < 0:
        raise ValueError("a page with a negative size")
    return Page(content == DICTIONARY, values, *sizes), at


def _find(data: bytes, wanted: int) -> tuple[int, int]:
    """Return the kind and the place of a field of the struct that `data` begins with."""
    at = field = 0
    while True:
        field, kind, at = _field(data, at, field)
        if kind == STOP or field == wanted:
            return kind, at
        at = _skip(data, at, kind)


def _field(data: bytes, at: int, before: int) -> tuple[int, int, int]:
    """Return number and kind of the next field, and the place of its value."""
    head = data[at]
    if head >> 4:
        return before + (head >> 4), head & 15, at + 1
    if not head:
        return 0, STOP, at + 1
    number, at = _integer(data, at + 1)
    return number, head & 15, at


def _integer(data: bytes, at: int) -> tuple[int, int]:
    coded, at = varint(data, at)
    return (coded >> 1) ^ -(coded & 1), at


def _list_header(data: bytes, at: int) -> tuple[int, int, int]:
    count, kind, at = data[at] >> 4, data[at] & 15, at + 1
    if count == LONG_LIST:
        count, at = varint(data, at)
    return count, kind, at


def _skip(data: bytes, at: int, kind: int, depth: int = 0) -> int:
    """Return the place behind a value; IndexError where the data ends first."""
    if depth > MAX_NESTED:
        raise ValueError("a header that is nested too deeply")
    if kind in (TRUE, FALSE):
        return at
    if kind in INTEGERS:
        return varint(data, at)[1]
    if kind in (BYTE, DOUBLE):
        return at + (1 if kind == BYTE else 8)
    if kind == BINARY:
        size, at = varint(data, at)
        return at + size
    if kind == STRUCT:
        field = 0
        while True:
            field, inner, at = _field(data, at, field)
            if inner == STOP:
                return at
            at = _skip(data, at, inner, depth + 1)
    if kind in (LIST, SET):
        count, inner, at = _list_header(data, at)
        for _ in range(count):
            if at >= len(data):
                raise IndexError
            at = at + 1 if inner in (TRUE, FALSE) else _skip(data, at, inner, depth + 1)
        return at
    raise ValueError("a field of an unknown kind")
