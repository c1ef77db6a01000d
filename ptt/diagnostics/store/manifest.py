"""Open a store that is given by itself, without its run: nothing in it may lead elsewhere, and it must hold tokens."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.schema import VERSION

NAME: Final = "manifest.json"
MAX_BYTES: Final = 256 << 20  # a run of a hundred thousand files lists them in some 40 MB
DEPTHS: Final = ("*/", "*/*/")  # below the output of a gate, and of a comparison


@dataclass(frozen=True, kw_only=True)
class InPlaceFile:
    """A recorder Parquet file of the run, read where it lies."""

    path: str  # below the run dir
    rows: int
    columns: tuple[str, ...]
    kind: str  # the parser that recognised it


@dataclass(frozen=True, kw_only=True)
class Part:
    """A Parquet file of sequences in the store, and the file of the run whose rows it holds."""

    name: str  # below sequences/
    source: str
    kind: str
    first_row: int  # of the source
    rows: int
    columns: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class WideColumn:
    """One metric of a wide part, which stands there under `column`."""

    column: str
    raw: str  # as the writer spelt it
    name: str | None  # canonical
    values: int  # not null


@dataclass(frozen=True, kw_only=True)
class WidePart:
    """A Parquet file of dense training metrics in the store: step, wall_time, seq, and a column each."""

    file: str  # below wide/
    source: str
    priority: int
    rows: int
    columns: tuple[WideColumn, ...]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a store holds and from what."""

    schema_version: int
    ptt_version: str
    fingerprint: str
    in_place: tuple[InPlaceFile, ...]
    parts: tuple[Part, ...]
    wide: tuple[WidePart, ...]
    facts: dict[str, str | int | float | bool | None]
    notes: tuple[str, ...]


def fingerprint(files: Sequence[RunFile]) -> str:
    """Name the state of a run's files: path, size and time of change of each, and which we may not read by now."""
    digest = hashlib.sha256(f"schema {VERSION}\n".encode())
    for file in files:
        closed = "" if os.access(file.path, os.R_OK) else "\0closed"
        mark = f"{file.rel}\0{file.size}\0{file.path.stat().st_mtime_ns}{closed}\n"
        digest.update(mark.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a store that is being made."""
    text = json.dumps(asdict(manifest), indent=1, sort_keys=True, ensure_ascii=True)
    (folder / NAME).write_text(text + "\n", encoding="ascii")


def is_store(folder: Path) -> bool:
    """Tell whether a folder is a store, of this version or another."""
    try:
        document = _document(folder)
    except _UNREADABLE:
        return False
    return isinstance(document, dict) and {"schema_version", "ptt_version", "fingerprint", "in_place"} <= set(document)


def stores_below(folder: Path) -> list[str]:
    """Name what lies in a folder with a store of its own: output of ours over one run or several, and no run."""
    found = (place for depth in DEPTHS for place in folder.glob(f"{depth}store/{NAME}"))
    return sorted({place.parents[1].name for place in found if is_store(place.parent)})


def read_manifest(folder: Path) -> Manifest | None:
    """Give the manifest of a store, or None where there is none this version can use."""
    try:
        document = _document(folder)
        in_place = tuple(
            InPlaceFile(**{**item, "columns": tuple(item["columns"])}) for item in document.pop("in_place")
        )
        parts = tuple(Part(**{**item, "columns": tuple(item["columns"])}) for item in document.pop("parts"))
        wide = tuple(
            WidePart(**{**item, "columns": tuple(WideColumn(**column) for column in item["columns"])})
            for item in document.pop("wide")
        )
        notes = tuple(document.pop("notes"))
        manifest = Manifest(in_place=in_place, parts=parts, wide=wide, notes=notes, **document)
        if manifest.schema_version != VERSION or not _sound(manifest):
            return None
    except (*_UNREADABLE, KeyError, TypeError, AttributeError):  # absent, or written by another version: made anew
        return None
    return manifest


_UNREADABLE: Final = (OSError, ValueError, RecursionError)


def _document(folder: Path) -> Any:
    """Parse the manifest; a trainer's own file of that name may be anything."""
    place = folder / NAME
    if not place.is_file():  # a pipe would be waited for
        raise FileNotFoundError(place)
    with place.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError("larger than any manifest")
    return json.loads(content.decode("ascii"))


def _sound(manifest: Manifest) -> bool:
    """Tell whether a manifest is one of ours: what it counts are numbers, and what it names lies below its folder."""
    names = [*(part.name for part in manifest.parts), *(part.file for part in manifest.wide)]
    if any("/" in name or "\\" in name or name.startswith(".") for name in names):
        return False
    ways = [PurePosixPath(item.path) for item in manifest.in_place]
    if any(way.is_absolute() or ".." in way.parts for way in ways):
        return False
    counts = [item.rows for item in manifest.in_place]
    counts += [count for part in manifest.parts for count in (part.first_row, part.rows)]
    counts += [count for part in manifest.wide for count in (part.priority, part.rows)]
    counts += [column.values for part in manifest.wide for column in part.columns]
    facts = manifest.facts.values()
    return (
        all(type(count) is int and 0 <= count < 1 << 53 for count in counts)
        and all(fact is None or isinstance(fact, str | int | float) for fact in facts)
        and all(isinstance(note, str) for note in manifest.notes)
        and isinstance(manifest.fingerprint, str)
    )
