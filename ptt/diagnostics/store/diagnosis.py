"""Write a diagnosis, its tables and its profile into the store, and read them back without the run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from hashlib import file_digest, sha256
from io import BytesIO
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import numpy as np
import polars as pl
import pyarrow.parquet as pq

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.documents import convert_document, parse_json, read_at_most
from ptt.diagnostics.errors import InputError
from ptt.diagnostics.model import Diagnosis, DiagnosisRecord
from ptt.diagnostics.statistics.cells import CELL, SEQUENCE
from ptt.diagnostics.statistics.tail_curves import Profile
from ptt.diagnostics.store.findings_file import MAX_BYTES, check_chains
from ptt.diagnostics.store.folders import replaced
from ptt.diagnostics.store.manifest import read_manifest
from ptt.diagnostics.store.scan import read_table, read_trajectories
from ptt.diagnostics.store.wide_metrics import read_wide

FOLDER: Final = "kept"
DOCUMENT: Final = "diagnosis.json"
VERSION: Final = 2
STORE_TABLES: Final = ("metrics", "trajectories", "tool_calls")
"""Tables of a diagnosis that the store has anyway, and that grow with the run."""
MAX_ROWS: Final = 200_000_000  # in one table: thirty metrics over a million steps are a sixth of it

Parts = Callable[[], Iterable[pl.DataFrame]]


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """The conditions of a diagnosis, apart from the run itself."""

    settings: str  # names the settings and custom rules
    version: str  # of ptt


@dataclass(frozen=True, kw_only=True)
class KeptDiagnosis:
    """What a store keeps: a diagnosis, its source's hash, and what it was made under."""

    diagnosis: Diagnosis
    source: str
    conditions: Conditions
    of_run: bool  # made with the run at hand, not of its store alone


@dataclass(frozen=True, kw_only=True)
class _Document:
    version: int
    mark: str
    source: str
    asked: Conditions
    tables: tuple[str, ...]
    hashes: Mapping[str, str]  # of the tables stored next to the document
    diagnosis: DiagnosisRecord


def write_kept(
    store: Path,
    mark: str,
    source: str,
    conditions: Conditions,
    diagnosis: Diagnosis,
    *,
    write_beside: Callable[[Path], object] | None = None,
) -> None:
    """Write a diagnosis under `mark`; it takes the place of the one before in one move.

    `write_beside` writes into the same folder what belongs to it.
    """
    with replaced(store / FOLDER) as part:
        hashes = {}
        for name in diagnosis.tables:
            if name not in STORE_TABLES:
                file = part / f"{name}.parquet"
                write_table(diagnosis.tables, name, file)
                with file.open("rb") as written:  # which may be hundreds of MB
                    hashes[name] = file_digest(written, "sha256").hexdigest()
        document = _Document(
            version=VERSION,
            mark=mark,
            source=source,
            asked=conditions,
            tables=tuple(diagnosis.tables),
            hashes=hashes,
            diagnosis=DiagnosisRecord(**_record(diagnosis)),
        )
        text = json.dumps(msgspec.to_builtins(document, enc_hook=_builtin))  # with NaN and the infinities
        (part / DOCUMENT).write_text(text, encoding="ascii")
        if write_beside is not None:
            write_beside(part)


def _record(diagnosis: DiagnosisRecord) -> dict[str, Any]:
    return {field.name: getattr(diagnosis, field.name) for field in fields(DiagnosisRecord)}


def _builtin(value: Any) -> Any:
    """Convert what msgspec leaves to us: other mappings than dicts, and NumPy's scalars."""
    return dict(value) if isinstance(value, Mapping) else value.item()


def read_kept(store: Path, mark: str | None = None) -> KeptDiagnosis | None:
    """Return the diagnosis kept under `mark` (None: any), or None if it is not complete.

    Everything is read at once, so that a diagnosis written in the meantime does not change what was returned.
    """
    try:
        content = parse_json(read_at_most(store / FOLDER / DOCUMENT, MAX_BYTES), finite=False)
        document = convert_document(content, _Document)
        if document.version != VERSION or (mark is not None and document.mark != mark):
            return None
        check_chains(document.diagnosis.findings)
        if not all(name.isidentifier() for name in document.tables):
            return None  # no table of ours: it could lie anywhere
        tables = _Tables(store, document.tables, _contents(store, document.tables, document.hashes))
    except (OSError, ValueError, KeyError):
        return None  # absent, torn, of another version, or not ours: made again
    diagnosis = Diagnosis(**_record(document.diagnosis), tables=tables)
    return KeptDiagnosis(
        diagnosis=diagnosis, source=document.source, conditions=document.asked, of_run=bool(document.mark)
    )


def _contents(store: Path, names: tuple[str, ...], hashes: Mapping[str, str]) -> dict[str, bytes]:
    """Read the tables' files unchanged; ValueError if one is not the file that was written."""
    contents = {}
    for name in names:
        if name not in STORE_TABLES:
            contents[name] = (store / FOLDER / f"{name}.parquet").read_bytes()
            if sha256(contents[name]).hexdigest() != hashes[name]:
                raise ValueError(f"the table {name} is not the one that was kept")
    return contents


def no_table(name: str, names: Iterable[str]) -> KeyError:
    """Return the error for a table that is not there: it lists those that are."""
    return KeyError(f"no table {name}; the tables are {', '.join(sorted(names)) or 'none'}")


class NamedTables(dict[str, pl.DataFrame]):
    """Tables by name; a name that is not among them is answered with those that are."""

    def __missing__(self, name: str) -> pl.DataFrame:
        """Raise the error that lists the names."""
        raise no_table(name, self)


class _Tables(Mapping[str, pl.DataFrame]):
    """The tables of a kept diagnosis, each made when it is first asked for."""

    def __init__(self, store: Path, names: tuple[str, ...], contents: dict[str, bytes]) -> None:
        self._store, self._names, self._contents = store, names, contents
        self._manifest = read_manifest(store)
        self._frames: dict[str, pl.DataFrame] = {}

    def __getitem__(self, name: str) -> pl.DataFrame:
        if name not in self._names:
            raise no_table(name, self._names)
        if name not in self._frames:
            try:
                self._frames[name] = self._read_kept(name) if name in self._contents else self._read_store(name)
            except (OSError, pl.exceptions.PolarsError) as error:
                raise InputError(
                    f"{self._store}: its table {name} cannot be read; delete the store and judge the run again."
                ) from error
        return self._frames[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _read_kept(self, name: str) -> pl.DataFrame:
        content = BytesIO(self._contents[name])
        if pl.scan_parquet(content).select(pl.len()).collect().item() > MAX_ROWS:
            raise OSError("more rows than any run has")
        content.seek(0)
        frame = pl.read_parquet(content)
        del self._contents[name]
        return frame

    def _read_store(self, name: str) -> pl.DataFrame:
        if name == "trajectories" and self._manifest is not None:
            wide = read_wide(self._store, self._manifest)
            frame = read_trajectories(self._store, wide, read_table(self._store, "metrics"))
        else:
            frame = read_table(self._store, name)
            if name == "metrics" and "priority" not in frame.columns:
                frame = frame.with_columns(pl.lit(0, pl.Int32).alias("priority"))
        if read_manifest(self._store) != self._manifest:
            raise InputError(f"{self._store}: was replaced while being read; run the command again.")
        return frame


@dataclass(frozen=True, kw_only=True)
class LoadedRun:
    """A path given on the command line, resolved and judged."""

    diagnosis: Diagnosis
    profile: Profile | None
    why_no_profile: str  # "" if there is one
    source: str  # sha256 of what the diagnosis was made from, the same on every machine
    kind: Literal["run", "archive", "store", "findings"]


@dataclass(frozen=True, kw_only=True)
class _ProfileFacts:
    pair: str
    slices: tuple[str, ...]
    unit: str
    tokens: str  # the key of the token tables it belongs to


UNITS: Final = "units.parquet"
FACTS: Final = "profile.json"
CELLS: Final = pl.Schema(CELL)


def write_profile(folder: Path, *, store: Path, profile: Profile) -> None:
    """Write into `folder` what the store's token tables lack: units, and the names of the slices."""
    units = profile.sequences.select("seq", "unit").unique(maintain_order=True)
    units.write_parquet(folder / UNITS, compression="lz4", statistics=False)
    facts = _ProfileFacts(
        pair=profile.pair, slices=tuple(profile.slices.values()), unit=profile.unit, tokens=_key(store)
    )
    (folder / FACTS).write_text(json.dumps(asdict(facts)), encoding="ascii")


def read_profile(store: Path) -> Profile | None:
    """Read the profile of a store, or None where its tokens were not kept."""
    try:
        content = (store / FOLDER / FACTS).read_bytes()
        facts = convert_document(parse_json(content), _ProfileFacts)
        if facts.tokens != _key(store):  # another look at the run left other tokens here
            return None
        cells = pl.read_parquet(store / "tokens" / "cells.parquet", glob=False)
        if "wide" not in cells.columns:  # a store from before runs with many steps had wider cells
            cells = cells.with_columns(wide=pl.lit(0, pl.UInt8)).select(list(CELLS))
        sequences = pl.read_parquet(store / "tokens" / "sequences.parquet", glob=False)
        units = pl.read_parquet(store / FOLDER / UNITS, glob=False).sort("seq")
        rows = np.searchsorted(units["seq"].to_numpy(), sequences["seq"].to_numpy())
        if cells.schema != CELLS or sequences.schema != pl.Schema(SEQUENCE):
            return None
        if not units["seq"].gather(rows).equals(sequences["seq"]):
            return None
        if facts.tokens != _key(store) or content != (store / FOLDER / FACTS).read_bytes():
            return None  # another look at the run wrote here while these were read
        return Profile(
            pair=facts.pair,
            slices=dict(enumerate(facts.slices)),
            cells=cells.filter(pl.col("pair") == 0).drop("pair"),
            sequences=sequences.with_columns(units["unit"].gather(rows)),
            unit=facts.unit,
        )
    except (OSError, ValueError, pl.exceptions.PolarsError):  # absent, or torn
        return None


def _key(store: Path) -> str:
    return (store / "tokens" / "key.json").read_text(encoding="ascii")


@dataclass(frozen=True)
class Tables(Mapping[str, pl.DataFrame]):
    """Tables of a diagnosis; those of `parts` are made anew each time, in frames of the same columns."""

    made: Mapping[str, pl.DataFrame]
    parts: Mapping[str, Parts]

    def __getitem__(self, name: str) -> pl.DataFrame:
        """Return a table whole."""
        if name not in self.parts and name not in self.made:
            raise no_table(name, self)
        return pl.concat(self.parts[name]()) if name in self.parts else self.made[name]

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        yield from self.made
        yield from self.parts

    def __len__(self) -> int:
        """Return how many tables there are."""
        return len(self.made) + len(self.parts)


def with_tables(tables: Mapping[str, pl.DataFrame], more: Mapping[str, pl.DataFrame]) -> Mapping[str, pl.DataFrame]:
    """Return tables with others beside them, which take the place of those of their names."""
    if not isinstance(tables, Tables):
        return {**tables, **more}
    return Tables({**tables.made, **more}, {name: part for name, part in tables.parts.items() if name not in more})


def write_table(tables: Mapping[str, pl.DataFrame], name: str, file: Path) -> None:
    """Write one table as Parquet, part by part where it is made in parts."""
    if not isinstance(tables, Tables) or name not in tables.parts:
        tables[name].write_parquet(file, compression="lz4", statistics=False)
        return
    writer: pq.ParquetWriter | None = None
    for part in tables.parts[name]():
        rows = part.to_arrow(compat_level=pl.CompatLevel.oldest())
        writer = writer or pq.ParquetWriter(file, rows.schema, compression="lz4", write_statistics=False)
        writer.write_table(rows)
    if writer is not None:
        writer.close()
