"""Seeded damage to files of any format, for `benchmarks.fuzz`: of bytes, of lines, of JSON leaves, and inside archives.

A mutation is `held` where a sound file's rows cannot go without a word: behind a cut through a row, a line that is no
longer one, a leaf too deep to read, a byte under a checksum. Not held is what may turn one sound file into another: a
digit into a digit, a key into another key, a line taken out.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import sqlite3
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

MAX_STACKED: Final = 3  # mutations of one file
MAX_COPIES: Final = 200  # of a repeated block
MAX_GROWN: Final = 1 << 20  # bytes that a block repeated may come to
DEPTHS: Final = (3, 17, 40, 63, 70, 300, 2000)
NUMBERS: Final = (
    "1e308", "-1.7976931348623157e308", "1e999", "1e-320", "NaN", "-Infinity", "9223372036854775807",
    "-9223372036854775809", "18446744073709551616", "9" * 400, "9" * 6000, "-0.0", "1e400", "0.1" + "1" * 900,
)  # fmt: skip
TEXTS: Final = (
    '"\\ud800"', '"\\udfff\\ud83d"', '"\\u0000"', '"\\u202e"', '""', '"' + "x" * 5000 + '"', '"1"', '"nan"',
    '"../../etc"',
)  # fmt: skip
KINDS: Final = ("null", "true", "{}", "[]", '"x"', "7", "[[]]", '{"a": 1}', "[1, 2]", '["a"]')
JUNK: Final = (
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\r",
    b"\n\n",
    b"}",
    b"[",
    b'{"',
    b"{" * 200,
    b"\x80\x81",
    b"[1,",
)
LENGTHS: Final = (0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)
SQL_VALUES: Final = (None, 1e308, float("inf"), "x", b"\xff\x00", 2**63 - 1, "\x00", "9" * 400, -1)
MARK: Final = '"\x01leaf\x01"'  # stands where a leaf goes that no Python value spells


@dataclass(frozen=True)
class Mutant:
    """A damaged file, what was done to it, and whether its rows may not go without a word."""

    data: bytes
    done: str
    held: bool


Mutation = Callable[[bytes, random.Random], Mutant | None]
"""None: it does not apply to these bytes."""


def mutate(rel: str, data: bytes, dice: random.Random) -> Mutant:
    """Damage a file one to three times, each time at a place and in a way that `dice` gives."""
    done: list[str] = []
    held = True
    for _ in range(dice.choice((1, 1, 1, 2, MAX_STACKED))):
        mutant = None
        while mutant is None:
            mutant = dice.choice(_mutations(rel, data))(data, dice)
        data, held = mutant.data, held and mutant.held
        done.append(mutant.done)
    return Mutant(data, ", ".join(done), held)


def _mutations(rel: str, data: bytes) -> tuple[Mutation, ...]:
    if data.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd")):
        return (_inside_stream, *BYTES)
    if data.startswith(b"PK"):
        return (_inside_zip, _inside_zip, *BYTES)
    if data.startswith(b"SQLite"):
        return (_inside_sqlite, _inside_sqlite, _other_kind, *BYTES)
    if data.startswith(b"PAR1"):
        return (_inside_parquet, _inside_parquet, *BYTES)
    if b"\0" in data[:4096] or "tfevents" in rel or not data:
        return BYTES
    if data.lstrip()[:1] in (b"{", b"["):
        return (_leaf, _leaf, _leaf, *LINES, *BYTES)
    return (*LINES, *BYTES)


def _at(data: bytes, dice: random.Random) -> int:
    """Draw a place, as often near an end as anywhere: headers and footers stand there."""
    size = len(data)
    near = min(size, 96)
    return dice.choice((dice.randrange(size + 1), dice.randrange(near + 1), size - dice.randrange(near + 1)))


def _cut(data: bytes, dice: random.Random) -> Mutant:
    at = _at(data, dice)
    inside = 0 < at < len(data) and data[at : at + 1] not in b"\r\n" and data[at - 1 : at] != b"\n"
    return Mutant(data[:at], f"cut at {at}", held=inside)


def _flip(data: bytes, dice: random.Random) -> Mutant:
    damaged = bytearray(data or b"\0")
    for _ in range(dice.choice((1, 1, 4, 30))):
        at = min(_at(data, dice), len(damaged) - 1)
        damaged[at] = dice.choice((0, 0xFF, 0x22, 0x5C, damaged[at] ^ (1 << dice.randrange(8)), dice.randrange(256)))
    return Mutant(bytes(damaged), "flip", held=False)


def _insert(data: bytes, dice: random.Random) -> Mutant:
    at, junk = _at(data, dice), dice.choice((*JUNK, dice.randbytes(dice.choice((1, 8, 300)))))
    return Mutant(data[:at] + junk + data[at:], f"insert {len(junk)} at {at}", held=False)


def _repeat(data: bytes, dice: random.Random) -> Mutant:
    start, stop = sorted((_at(data, dice), _at(data, dice)))
    count = min(dice.choice((1, 2, MAX_COPIES)), MAX_GROWN // max(1, stop - start))
    return Mutant(data[:stop] + data[start:stop] * count + data[stop:], f"repeat {start}:{stop}", held=False)


def _swap(data: bytes, dice: random.Random) -> Mutant:
    first, second, third = sorted(_at(data, dice) for _ in range(3))
    swapped = data[:first] + data[second:third] + data[first:second] + data[third:]
    return Mutant(swapped, f"swap {first}:{second}:{third}", held=False)


def _blank(data: bytes, dice: random.Random) -> Mutant:
    start, stop = sorted((_at(data, dice), _at(data, dice)))
    return Mutant(data[:start] + bytes(stop - start) + data[stop:], f"blank {start}:{stop}", held=False)


def _length(data: bytes, dice: random.Random) -> Mutant:
    """Write a number where the file may keep a length."""
    width, at = dice.choice((1, 2, 4, 8)), _at(data, dice)
    value = dice.choice(LENGTHS) & ((1 << (8 * width)) - 1)
    written = value.to_bytes(width, dice.choice(("little", "big")))
    return Mutant(data[:at] + written + data[at + width :], f"length {value} at {at}", held=False)


BYTES: Final[tuple[Mutation, ...]] = (_cut, _flip, _insert, _repeat, _swap, _blank, _length)


def _foreign_line(data: bytes, dice: random.Random) -> Mutant:
    lines = data.split(b"\n")
    at = dice.randrange(1, len(lines) + 1)
    line = dice.choice((b"nonsense", b"{}", b"[]", b"null", b'{"a": ', b"\xff\xfe\x00", b"x" * 100_000, b"[" * 5000))
    return Mutant(b"\n".join([*lines[:at], line, *lines[at:]]), f"foreign line {at}", held=_is_lines(data))


def _torn_line(data: bytes, dice: random.Random) -> Mutant | None:
    lines = data.split(b"\n")
    at = dice.randrange(len(lines))
    if len(lines[at]) < 3:
        return None
    torn = lines[at][: dice.randrange(1, len(lines[at]) - 1)]
    return Mutant(b"\n".join([*lines[:at], torn, *lines[at + 1 :]]), f"torn line {at}", held=_is_lines(data))


def _repeat_lines(data: bytes, dice: random.Random) -> Mutant:
    lines = data.split(b"\n")
    start, stop = sorted((dice.randrange(len(lines) + 1), dice.randrange(len(lines) + 1)))
    count = min(dice.choice((1, 2, MAX_COPIES)), MAX_GROWN // max(1, sum(map(len, lines[start:stop]))))
    repeated = [*lines[:stop], *lines[start:stop] * count, *lines[stop:]]
    return Mutant(b"\n".join(repeated), f"repeat lines {start}:{stop}", held=_is_lines(data))


def _swap_lines(data: bytes, dice: random.Random) -> Mutant:
    lines = data.split(b"\n")
    one, other = dice.randrange(len(lines)), dice.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return Mutant(b"\n".join(lines), f"swap lines {one}, {other}", held=False)  # a result may stand before its call


def _line_ends(data: bytes, dice: random.Random) -> Mutant:
    end = dice.choice((b"\r\n", b"\n\n", b"\r", b"\n\x00", b" \n"))
    return Mutant(data.replace(b"\n", end), f"line ends {end!r}", held=False)


def _encoding(data: bytes, dice: random.Random) -> Mutant:
    encoding = dice.choice(("utf-16", "utf-8-sig", "utf-32-le"))
    return Mutant(data.decode("utf-8", "replace").encode(encoding), encoding, held=False)


LINES: Final[tuple[Mutation, ...]] = (
    _foreign_line, _torn_line, _torn_line, _repeat_lines, _swap_lines, _line_ends, _encoding,
)  # fmt: skip


def _is_lines(data: bytes) -> bool:
    """Whether each line is a JSON object: what is no such line cannot be overlooked."""
    lines = [line for line in data.split(b"\n") if line.strip()]
    return bool(lines) and all(line[:1] == b"{" and line.rstrip()[-1:] == b"}" for line in lines)


def _leaf(data: bytes, dice: random.Random) -> Mutant | None:
    """Change one leaf, key or container of a line of JSON lines, or of a document."""
    lines = data.split(b"\n") if _is_lines(data) else [data]
    at = dice.randrange(len(lines))
    try:
        document = json.loads(lines[at])
    except (ValueError, RecursionError):  # damaged before
        return None
    places = _places(document)
    if not places:
        return None
    inside, key = dice.choice(places)
    kind, text, held = dice.choice(
        (
            ("type", dice.choice(KINDS), False),
            ("number", dice.choice(NUMBERS), False),
            ("text", dice.choice(TEXTS), False),
            ("nest", _nested(dice, json.dumps(inside[key])), False),
            ("repeat", json.dumps(inside[key]), True),
        )
    )
    held &= not isinstance(inside[key], list)  # given twice it is as long again
    inside[key] = json.loads(MARK.replace("\x01", "\\u0001"))
    dumped = json.dumps(document)
    mark = json.dumps(inside[key])
    if kind == "repeat" and isinstance(inside, dict):
        text = f"{text}, {json.dumps(key)}: {text}"
    elif kind == "repeat":
        text, held = ", ".join([text] * dice.choice((2, 100))), False
    lines[at] = dumped.replace(mark, text).encode("utf-8", "surrogatepass")
    return Mutant(b"\n".join(lines), f"{kind} of leaf {key!r} in line {at}", held=held)


def _nested(dice: random.Random, text: str) -> str:
    depth = dice.choice(DEPTHS)
    if dice.random() < 0.5:
        return "[" * depth + text + "]" * depth
    return '{"a": ' * depth + text + "}" * depth


def _places(document: Any) -> list[tuple[Any, Any]]:
    """List container and key of every value below a document."""
    found: list[tuple[Any, Any]] = []
    pending = [document]
    while pending:
        value = pending.pop()
        if not isinstance(value, dict | list):
            continue
        keys = list(value) if isinstance(value, dict) else range(len(value))
        found += [(value, key) for key in keys]
        pending += [value[key] for key in keys]
    return found


def _inside_stream(data: bytes, dice: random.Random) -> Mutant | None:
    """Damage what a gzip or zstd file holds, and pack it again."""
    is_gzip = data.startswith(b"\x1f\x8b")
    try:
        inner = gzip.decompress(data) if is_gzip else pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
    except (OSError, EOFError, ValueError, zlib.error):
        return None
    mutant = dice.choice(_mutations("", inner))(inner, dice)
    if mutant is None:
        return None
    packed = gzip.compress(mutant.data, mtime=0) if is_gzip else pa.compress(mutant.data, codec="zstd", asbytes=True)
    return Mutant(packed, f"inside: {mutant.done}", mutant.held)


def _inside_zip(data: bytes, dice: random.Random) -> Mutant | None:
    """Damage one member of a zip file, so that its checksum is right."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(info, archive.read(info)) for info in archive.infolist()]
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, NotImplementedError, RuntimeError, zlib.error):
        return None
    if not members:
        return None
    victim = dice.randrange(len(members))
    target = io.BytesIO()
    done = ""
    with zipfile.ZipFile(target, "w") as archive:
        for number, (info, content) in enumerate(members):
            fresh = zipfile.ZipInfo(info.filename, date_time=(1980, 1, 1, 0, 0, 0))
            fresh.compress_type = info.compress_type if info.compress_type in (0, 8) else 8
            if number == victim:
                mutant = dice.choice(_mutations(info.filename, content))(content, dice)
                if mutant is None:
                    return None
                content, done = mutant.data, mutant.done
            archive.writestr(fresh, content)
    return Mutant(target.getvalue(), f"inside {members[victim][0].filename}: {done}", held=False)


def _inside_sqlite(data: bytes, dice: random.Random) -> Mutant | None:
    """Write odd values into a database, or change its tables."""

    def change(connection: sqlite3.Connection) -> str:
        table = _table_of(connection, dice).replace('"', '""')
        columns = [row[1].replace('"', '""') for row in connection.execute(f'PRAGMA table_info("{table}")')]
        column = dice.choice(columns)
        statement, values = dice.choice(
            (
                (f'UPDATE "{table}" SET "{column}" = ? WHERE rowid % 3 = ?', (dice.choice(SQL_VALUES), 1)),
                (f'UPDATE "{table}" SET "{column}" = CAST("{column}" AS BLOB) WHERE rowid % 2 = ?', (0,)),
                (f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "x y"', ()),
                (f'ALTER TABLE "{table}" DROP COLUMN "{column}"', ()),
            )
        )
        connection.execute(statement, values)
        connection.commit()
        return statement.split(" SET")[0]

    return _changed_sqlite(data, change, held=False)


def _other_kind(data: bytes, dice: random.Random) -> Mutant | None:
    """Put a view, a virtual table or a generated column in the place of a table: none of these is read."""

    def change(connection: sqlite3.Connection) -> str:
        table = _table_of(connection, dice)
        columns = ", ".join(f'"{row[1]}"' for row in connection.execute(f'PRAGMA table_info("{table}")'))
        renamed = f'ALTER TABLE "{table}" RENAME TO "{table} 2";'
        statement = dice.choice(
            (
                f'{renamed} CREATE VIEW "{table}" AS SELECT * FROM "{table} 2"',
                f'{renamed} CREATE VIRTUAL TABLE "{table}" USING fts5({columns})',
                f'ALTER TABLE "{table}" ADD COLUMN generated AS (1)',
            )
        )
        connection.executescript(statement)
        return statement

    return _changed_sqlite(data, change, held=True)


def _table_of(connection: sqlite3.Connection, dice: random.Random) -> str:
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return str(dice.choice(tables))


def _changed_sqlite(data: bytes, change: Callable[[sqlite3.Connection], str], *, held: bool) -> Mutant | None:
    """Change a database; None where it has no table, or does not let itself be changed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "db"
        path.write_bytes(data)
        connection = sqlite3.connect(path)
        try:
            done = change(connection)
        except (sqlite3.Error, IndexError, UnicodeError):
            return None
        finally:
            connection.close()
        return Mutant(path.read_bytes(), f"sqlite {done}", held=held)


def _inside_parquet(data: bytes, dice: random.Random) -> Mutant | None:
    """Write a table again with a column of another type, twice, renamed, without values, or without rows."""
    try:
        table = pq.read_table(pa.BufferReader(data))
        at = dice.randrange(table.num_columns)
        name, column = table.schema.names[at], table.column(at)
        what = dice.choice(("texts", "nulls", "twice", "renamed", "list", "bytes", "no rows", "huge", "flat"))
        changed: Any = column
        if what == "texts":
            changed = pa.array([str(value) for value in column.to_pylist()])
        elif what == "nulls":
            changed = pa.nulls(table.num_rows, column.type)
        elif what == "list":
            changed = pa.array([[value] for value in column.to_pylist()])
        elif what == "bytes":
            changed = pa.array([repr(value).encode() + b"\xff" for value in column.to_pylist()])
        elif what == "huge":
            changed = pa.array([dice.choice((2**63 - 1, -(2**63), 0)) for _ in range(table.num_rows)])
        elif what == "flat":
            changed = pa.array([1.5] * table.num_rows)
        if what == "twice":
            table = table.append_column(name, column)
        elif what == "no rows":
            table = table.slice(0, 0)
        else:
            table = table.set_column(at, "\u202e x" if what == "renamed" else name, changed)
        target = io.BytesIO()
        pq.write_table(table, target)
    except (pa.ArrowException, ValueError, OSError, TypeError):
        return None
    return Mutant(target.getvalue(), f"parquet column {name!r}: {what}", held=False)
