"""Write a diagnosis with its tables into the store, and read it back: figures and all, without the run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Final

import polars as pl

from ptt.diagnostics.kept.codec import plain, restored
from ptt.diagnostics.model import Diagnosis
from ptt.diagnostics.store.manifest import read_manifest
from ptt.diagnostics.store.scan import read_table, read_trajectories
from ptt.diagnostics.store.wide import read_wide

FOLDER: Final = "kept"
DOCUMENT: Final = "diagnosis.json"
VERSION: Final = 1
OF_THE_STORE: Final = ("metrics", "trajectories", "tool_calls")
"""Tables of a diagnosis that the store has anyway, and that grow with the run."""


def write_kept(store: Path, mark: str, source: str, diagnosis: Diagnosis) -> None:
    """Keep a diagnosis under `mark`; the document is written last, so that a torn write is none."""
    place = store / FOLDER
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    names = [name for name in diagnosis.tables if name not in OF_THE_STORE]
    for name in names:
        diagnosis.tables[name].write_parquet(place / f"{name}.parquet", compression="lz4", statistics=False)
    content = {
        field.name: plain(getattr(diagnosis, field.name)) for field in fields(Diagnosis) if field.name != "tables"
    }
    document = {
        "version": VERSION,
        "mark": mark,
        "source": source,
        "tables": list(diagnosis.tables),
        "diagnosis": content,
    }
    part = place / f"{DOCUMENT}.part"
    part.write_text(json.dumps(document), encoding="ascii")
    part.replace(place / DOCUMENT)


def read_kept(store: Path, mark: str | None = None) -> tuple[Diagnosis, str] | None:
    """Give the diagnosis kept under `mark` (None: whichever there is) and its source's hash, or None."""
    try:
        document = json.loads((store / FOLDER / DOCUMENT).read_text(encoding="ascii"))
        if document["version"] != VERSION or (mark is not None and document["mark"] != mark):
            return None
        held = restored(Diagnosis, document["diagnosis"] | {"tables": {}})
        source, names = str(document["source"]), [str(name) for name in document["tables"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # absent, or of another version: made anew
        return None
    if not all(name.isidentifier() for name in names):
        return None  # no table of ours: it could lie anywhere
    if any(name not in OF_THE_STORE and not (store / FOLDER / f"{name}.parquet").is_file() for name in names):
        return None
    values = {field.name: getattr(held, field.name) for field in fields(Diagnosis) if field.name != "tables"}
    return Diagnosis(**values, tables=KeptTables(store, names)), source


class KeptTables(Mapping[str, pl.DataFrame]):
    """The tables of a kept diagnosis, each read when it is first asked for."""

    def __init__(self, store: Path, names: list[str]) -> None:
        self._store, self._names = store, names
        self._held: dict[str, pl.DataFrame] = {}

    def __getitem__(self, name: str) -> pl.DataFrame:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._held:
            self._held[name] = self._read(name)
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _read(self, name: str) -> pl.DataFrame:
        if name not in OF_THE_STORE:
            return pl.read_parquet(self._store / FOLDER / f"{name}.parquet", glob=False)
        if name == "trajectories":
            manifest = read_manifest(self._store)
            return (
                read_trajectories(self._store, read_wide(self._store, manifest))
                if manifest
                else read_table(self._store, name)
            )
        frame = read_table(self._store, name)
        if name == "metrics" and "priority" not in frame.columns:
            frame = frame.with_columns(pl.lit(0, pl.Int32).alias("priority"))
        return frame
