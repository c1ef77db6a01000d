"""Describe what a store holds and was made from: settings merged, the manifest written, read back and checked."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from ptt.diagnostics.budget_limits import DEFAULT_LIMITS, BudgetLimits
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.documents import Count, convert_document, parse_json, read_at_most
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.schema import TABLES, VERSION

NAME: Final = "manifest.json"
MAX_BYTES: Final = 256 << 20  # a run of a hundred thousand files lists them in some 40 MB
DEPTHS: Final = ("*/", "*/*/")  # below the output of a gate, and of a comparison

MAX_STATED: Final = 20_000  # settings or packages of a run: those of ten frameworks together
MAX_FACT: Final = 2**64  # seeds are drawn from 64 bits; a longer integer converts to no number
Fact = str | int | float | bool | None
Facts = dict[str, Fact]


@dataclass(frozen=True, kw_only=True)
class InPlaceFile:
    """A recorder Parquet file of the run, read where it lies."""

    path: str  # below the run dir
    rows: Count
    columns: tuple[str, ...]
    kind: str  # the parser that recognised it


@dataclass(frozen=True, kw_only=True)
class Part:
    """A Parquet file of sequences in the store, and the file of the run whose rows it holds."""

    name: str  # below sequences/
    source: str
    kind: str
    first_row: Count  # in the source
    rows: Count
    columns: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class WideColumn:
    """One metric of a wide part, which is stored as `column`."""

    column: str
    raw: str  # as the writer spelt it
    name: str | None  # canonical
    values: Count  # not null


@dataclass(frozen=True, kw_only=True)
class WidePart:
    """A Parquet file of dense training metrics in the store: step, wall_time, seq, and a column each."""

    file: str  # below wide/
    source: str
    priority: Count
    rows: Count
    columns: tuple[WideColumn, ...]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a store holds and what it was made from."""

    schema_version: int
    ptt_version: str
    fingerprint: str
    in_place: tuple[InPlaceFile, ...]
    parts: tuple[Part, ...]
    wide: tuple[WidePart, ...]
    facts: Mapping[str, str | int | float | bool | None]
    notes: tuple[str, ...]
    settings: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)  # by dotted names
    settings_in_part: bool = False  # no file states all of them
    packages: Mapping[str, str] = field(default_factory=dict)  # distribution -> version
    metric_names: Mapping[str, str] = field(default_factory=dict)  # from the settings: raw -> canonical, "" for none
    faults: Mapping[str, str] = field(default_factory=dict)  # parser or step -> the error, for our own bugs
    guessed_names: Mapping[str, str] = field(default_factory=dict)  # raw -> canonical, by the words of the name
    guess_reasons: Mapping[str, str] = field(default_factory=dict)  # raw -> reason, where the words alone do not say it
    offsets: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    """By file, the UTC offsets in minutes that its stamps name; None if some name none and were read as UTC."""


def fingerprint(
    files: Sequence[RunFile], metric_names: Mapping[str, str] | None = None, limits: BudgetLimits = DEFAULT_LIMITS
) -> str:
    """Hash the state of a run's files: path, size and modification time of each, and which are not readable now.

    `metric_names`, the names set for metrics, and `limits`, how much is read, are hashed too, since the store depends
    on them.
    """
    digest = hashlib.sha256(f"schema {VERSION} {' '.join(TABLES)} scrubbed\n".encode())  # earlier stores were not
    if metric_names:
        digest.update(f"{sorted(metric_names.items())!r}\n".encode("utf-8", "surrogatepass"))
    if limits != DEFAULT_LIMITS:
        digest.update(f"{limits!r}\n".encode())
    for file in files:
        closed = "" if os.access(file.path, os.R_OK) else "\0closed"
        own = f"\0{file.own!r}" if file.own else ""
        mark = f"{file.rel}\0{file.size}\0{file.path.stat().st_mtime_ns}{closed}{own}\n"
        digest.update(mark.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a store that is being made."""
    text = json.dumps(vars(manifest), default=vars, sort_keys=True, ensure_ascii=True)
    (folder / NAME).write_text(text + "\n", encoding="ascii")


def is_store(folder: Path) -> bool:
    """Return whether a folder is a store, of this version or another."""
    try:
        document = _parse(folder)
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and {"schema_version", "ptt_version", "fingerprint", "in_place"} <= set(document)


def stores_below(folder: Path) -> list[str]:
    """Name what lies in a folder with a store of its own: output of ours over one run or several, and no run."""
    manifests = (path for depth in DEPTHS for path in folder.glob(f"{depth}store/{NAME}"))
    return sorted({path.parents[1].name for path in manifests if is_store(path.parent)})


def read_manifest(folder: Path) -> Manifest | None:
    """Read the manifest of a store; None if this version cannot use it, so that the store is made again."""
    try:
        manifest = convert_document(_parse(folder), Manifest)
    except (OSError, ValueError):
        return None
    return manifest if manifest.schema_version == VERSION and _stays_inside(manifest) else None


def _parse(folder: Path) -> Any:
    """Parse the manifest; a trainer's own file of that name may be anything."""
    path = folder / NAME
    if not path.is_file():  # a pipe would be waited for
        raise FileNotFoundError(path)
    return parse_json(read_at_most(path, MAX_BYTES), finite=False, bounded=False)  # facts: a seed may be any number


def _stays_inside(manifest: Manifest) -> bool:
    """Return whether all that a manifest names lies below its folder, or the run's."""
    names = [*(part.name for part in manifest.parts), *(part.file for part in manifest.wide)]
    paths = [item.path for item in manifest.in_place]
    return not any("/" in name or "\\" in name or name.startswith(".") for name in names) and not any(
        path.startswith("/") or ".." in path.split("/") for path in paths
    )


@dataclass
class RunFacts:
    """The settings stated by the files read so far, each with the rank of its source."""

    _stated: list[tuple[tuple[int, float], Facts]] = field(default_factory=list)

    def add(self, facts: Mapping[str, str | float | bool | None], priority: int) -> list[str]:
        """Add what one file states; return the names of the values that no file can hold."""
        kept: Facts = {key: fact for key, value in facts.items() if (fact := _storable(value)) is not None}
        step = kept.get("global_step")
        self._stated.append(((priority, -float(step) if isinstance(step, int | float) else 0.0), kept))
        return sorted(key for key, value in facts.items() if value is not None and key not in kept)

    def merged(self) -> Facts:
        """Return what the files state of the run; on conflict the better source, and the later checkpoint, wins."""
        merged: Facts = {}
        for _, facts in sorted(self._stated, key=lambda ranked: ranked[0], reverse=True):
            merged.update({key: value for key, value in facts.items() if _is_setting(key, value)})
        return merged


@dataclass
class RunSetup:
    """The settings and package versions stated by the files read so far; on conflict the better source wins."""

    settings: Facts = field(default_factory=dict)
    whole: bool = False
    packages: dict[str, str] = field(default_factory=dict)
    _ranks: dict[str, int] = field(default_factory=dict)

    def add(self, settings: Mapping[str, Fact], packages: Mapping[str, str], rank: int) -> None:
        """Add what one file states; `rank`: lower is better, and the first of a rank stays."""
        for name, value in settings.items():
            kept = _storable(value)
            if (kept is not None or value is None) and self._is_better(name, rank):
                self.settings[name] = kept
        for name, version in packages.items():
            if self._is_better(f"{name}==", rank):
                self.packages[name] = version

    def _is_better(self, name: str, rank: int) -> bool:
        before = self._ranks.get(name)
        better = len(self._ranks) < MAX_STATED if before is None else rank < before
        if better:
            self._ranks[name] = rank
        return better


def _is_setting(key: str, value: object) -> bool:
    """Return whether a fact says something; trainers write -1 for a number of steps that follows from the epochs."""
    return value is not None and not (key == "max_steps" and isinstance(value, int | float) and value <= 0)


def _storable(value: str | float | bool | None) -> str | int | float | bool | None:
    """Return a fact in a form that any file can hold; None for a number that cannot be a setting."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and not isinstance(value, bool):
        return value if abs(value) < MAX_FACT else None
    return value
