"""Open a store that is given by itself, without its run: nothing in it may lead elsewhere, and it must hold tokens."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import polars as pl

from ptt.diagnostics.errors import InputError
from ptt.diagnostics.schema import LOGPS, SEQUENCES
from ptt.diagnostics.store.ingest import RECORDED, recorded_copy
from ptt.diagnostics.store.manifest import Manifest, read_manifest

ANEW = "make the store anew with ptt diagnose or ptt ingest"


def check_entries(store: Path) -> None:
    """Refuse a store that would have files read which lie elsewhere, or never end."""
    try:
        strange = _strange_entry(store)
    except OSError as error:
        raise InputError(f"{store}: cannot be read: {error.strerror or error}.") from error
    if strange is not None:
        raise InputError(f"{store}: holds {strange}, a link or special file, which no store does; {ANEW}.")


def _strange_entry(store: Path) -> str | None:
    waiting = [store]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                elif not entry.is_file(follow_symlinks=False):
                    return Path(entry.path).relative_to(store).as_posix()
    return None


def standing(store: Path) -> Manifest | None:
    """Give the manifest of a store that can be judged without its run; None where its tokens lay in the run."""
    manifest = read_manifest(store)
    if manifest is None:
        raise InputError(f"{store}: is no store of this version; make it anew with ptt diagnose or ptt ingest.")
    copied = store / RECORDED
    if not copied.is_file():
        return None if manifest.in_place else manifest
    try:
        held, schema = recorded_copy(copied), pl.read_parquet_schema(copied)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{copied}: cannot be read; {ANEW}.") from error
    wrong = [name for name in held.columns if not _as_written(name, schema[name])]
    if wrong or not {"step", "model_mask"} <= set(held.columns):
        raise InputError(f"{copied}: its columns are not those of a store ({', '.join(wrong)[:100]}); {ANEW}.")
    return replace(manifest, in_place=(held,), parts=())


def _as_written(name: str, found: pl.DataType) -> bool:
    return found == SEQUENCES[name] or (name in LOGPS and found == pl.List(pl.Float64))
