"""Keep the results of recorder files that are scanned in place, for when the run has grown by others.

A file is recognised by its path, size and time. The results are in one file of the store, which may be torn or written
by anybody: they are used if its checksum and mark are right, and otherwise files are read again."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterator
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Final

import polars as pl
from msgspec import Meta

from ptt.diagnostics.budget_limits import BudgetLimits
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.documents import Count, convert_document, parse_json, read_at_most
from ptt.diagnostics.errors import is_caught
from ptt.diagnostics.parsers.io.interface import InPlace, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.parquet_files import JUDGING, known_schema, polars_schema, schema_of, share_schema
from ptt.diagnostics.parsers.recorder import usable_columns
from ptt.diagnostics.schema import VERSION
from ptt.diagnostics.scrub.scrub import Scrubber
from ptt.diagnostics.store.manifest import MAX_BYTES
from ptt.diagnostics.store.run_identity import code_state
from ptt.diagnostics.store.scan import STEPS

NAME: Final = "readings.json"
Seconds = Annotated[float, Meta(ge=0)]  # below 0, a file would add to the time of the others
CHECK_DIGITS: Final = 8  # of the CRC-32 at its beginning, plus a line end


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """Files of one schema, read by one parser."""

    parser: str
    columns: tuple[str, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """One file as it was, and its results."""

    size: Count
    changed: int  # nanoseconds
    kind: Count  # index into the list of kinds
    rows: Count
    seconds: Seconds  # CPU time that judging the file is expected to take
    steps: tuple[int, ...] | None  # None: nobody asked


@dataclass(frozen=True, kw_only=True)
class _Document:
    mark: str
    kinds: tuple[_Kind, ...]
    files: dict[str, _Reading]


class KeptReadings:
    """The results for a run's files in the previous store, and those to keep in the new one."""

    def __init__(self, folder: Path, *, ptt_version: str, limits: BudgetLimits) -> None:
        """`folder`: of the store before; `limits`: how much of a file is read depends on them."""
        said = (VERSION, ptt_version, code_state(), repr(limits))
        self._mark = sha256(repr(said).encode()).hexdigest()
        self._before = self._read(folder / NAME)
        self._schemas: dict[int, pl.Schema] = {}  # of the previous kinds, as read now from their first file
        self._kinds: dict[tuple[_Kind, int], int] = {}  # with their shared schema, by its id in memory
        self._held: list[pl.Schema] = []  # keeps them alive, so that no id is reused
        self._files: dict[str, _Reading] = {}

    def _read(self, path: Path) -> _Document | None:
        try:
            if path.is_symlink():
                return None
            content = read_at_most(path, MAX_BYTES)
            if f"{zlib.crc32(content[CHECK_DIGITS + 1 :]):08x}".encode() != content[:CHECK_DIGITS]:
                return None
            document = convert_document(parse_json(content[CHECK_DIGITS + 1 :], bounded=False), _Document)
        except (OSError, ValueError):
            return None
        sound = all(reading.kind < len(document.kinds) for reading in document.files.values())
        return document if sound and document.mark == self._mark else None

    def take(self, file: RunFile, parsers: Collection[Parser], scrubber: Scrubber) -> tuple[Parser, InPlace] | None:
        """Return what an unchanged file came to, its cost charged to the budget; None where it has to be read."""
        reading = None if self._before is None else self._before.files.get(file.rel)
        if self._before is None or reading is None or (reading.size, reading.changed) != _state(file):
            return None
        if reading.seconds > file.budget.seconds_left:
            return None
        kind = self._before.kinds[reading.kind]
        parser = next((known for known in parsers if known.name == kind.parser), None)
        if parser is None or not self._share_schema(file, reading.kind):
            return None
        file.budget.charge(reading.seconds)
        file.looks[JUDGING] = reading.seconds
        if reading.steps is not None:
            file.looks[STEPS] = list(reading.steps)
        found = InPlace(rows=reading.rows, columns=kind.columns, texts=kind.texts)
        self._add(file, parser, found, reading.changed, scrubber)
        return parser, found

    def _share_schema(self, file: RunFile, kind: int) -> bool:
        """Let files of one kind share the schema that the first of them has, if its columns are what was kept of it.

        Where texts are looked for secrets must not rest on what anybody may write.
        """
        if kind in self._schemas:
            share_schema(file.path, self._schemas[kind])
            return True
        try:
            if not self._is_of_kind(file, kind):
                return False
            self._schemas[kind] = polars_schema(file)
        except BaseException as error:  # reading the file says what is wrong with it
            if not is_caught(error):
                raise
            return False
        return True

    def _is_of_kind(self, file: RunFile, kind: int) -> bool:
        if self._before is None or (footer := schema_of(file)) is None:
            return False
        usable, _, texts = usable_columns(footer[0])
        return (usable, texts) == (self._before.kinds[kind].columns, self._before.kinds[kind].texts)

    def watch(self, file: RunFile, parser: Parser, pieces: Iterator[Piece], scrubber: Scrubber) -> Iterator[Piece]:
        """Yield a file's pieces, and keep what it came to if all of it is scanned where it lies."""
        before, found, count = _state(file), None, 0
        for piece in pieces:
            found, count = piece, count + 1
            yield piece
        if count == 1 and isinstance(found, InPlace) and before is not None and before == _state(file):
            self._add(file, parser, found, before[1], scrubber)

    def _add(self, file: RunFile, parser: Parser, found: InPlace, changed: int, scrubber: Scrubber) -> None:
        schema = known_schema(file.path)
        if schema is None or JUDGING not in file.looks:
            return
        kind = _Kind(parser=parser.name, columns=found.columns, texts=found.texts)
        if (place := self._kinds.get((kind, id(schema)))) is None:
            if scrubber.names(schema.names()) != schema.names():
                return  # no secret is kept, not even as a name of a column
            place = self._kinds[kind, id(schema)] = len(self._kinds)
            self._held.append(schema)
        steps = file.looks.get(STEPS)
        self._files[file.rel] = _Reading(
            size=file.size,
            changed=changed,
            kind=place,
            rows=found.rows,
            seconds=file.looks[JUDGING],
            steps=None if steps is None else tuple(steps),
        )

    def write(self, folder: Path) -> None:
        """Write what was added into a store that is being made."""
        if not self._files:
            return
        document = {"mark": self._mark, "kinds": [asdict(kind) for kind, _ in self._kinds], "files": self._files}
        content = json.dumps(document, default=vars).encode("ascii")
        (folder / NAME).write_bytes(f"{zlib.crc32(content):08x}\n".encode("ascii") + content)


def _state(file: RunFile) -> tuple[int, int] | None:
    """Return size and time of a file; None where it is no longer what was listed."""
    try:
        status = file.path.stat()
    except OSError:
        return None
    return (status.st_size, status.st_mtime_ns) if status.st_size == file.size else None
