"""Write a diagnosis with its tables into the store, and read it back: figures and all, without the run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from hashlib import file_digest, sha256
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from ptt.diagnostics.documents import convert_document, parse_json, read_at_most
from ptt.diagnostics.errors import InputError
from ptt.diagnostics.model import Diagnosis, DiagnosisRecord
from ptt.diagnostics.store.findings_file import MAX_BYTES, check_chains
from ptt.diagnostics.store.large_tables import write_table
from ptt.diagnostics.store.manifest import read_manifest
from ptt.diagnostics.store.replace_folder import replaced
from ptt.diagnostics.store.scan import read_table, read_trajectories
from ptt.diagnostics.store.wide_metrics import read_wide

FOLDER: Final = "kept"
DOCUMENT: Final = "diagnosis.json"
VERSION: Final = 2
STORE_TABLES: Final = ("metrics", "trajectories", "tool_calls")
"""Tables of a diagnosis that the store has anyway, and that grow with the run."""
MAX_ROWS: Final = 200_000_000  # of one table: thirty metrics of a million steps are a sixth of it


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What a diagnosis was made under, apart from the run itself."""

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
    hashes: Mapping[str, str]  # of the tables that lie beside the document
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
    """Return the diagnosis kept under `mark` (None: whichever there is), or None where it is not there whole.

    Everything is taken at once: whoever writes another one meanwhile changes nothing of what was given.
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
        return None  # absent, torn, of another version, or none of ours: made anew
    diagnosis = Diagnosis(**_record(document.diagnosis), tables=tables)
    return KeptDiagnosis(
        diagnosis=diagnosis, source=document.source, conditions=document.asked, of_run=bool(document.mark)
    )


def _contents(store: Path, names: tuple[str, ...], hashes: Mapping[str, str]) -> dict[str, bytes]:
    """Read the files of the tables as they are; ValueError where one is not that which was written."""
    contents = {}
    for name in names:
        if name not in STORE_TABLES:
            contents[name] = (store / FOLDER / f"{name}.parquet").read_bytes()
            if sha256(contents[name]).hexdigest() != hashes[name]:
                raise ValueError(f"the table {name} is not the one that was kept")
    return contents


class _Tables(Mapping[str, pl.DataFrame]):
    """The tables of a kept diagnosis, each made when it is first asked for."""

    def __init__(self, store: Path, names: tuple[str, ...], contents: dict[str, bytes]) -> None:
        self._store, self._names, self._contents = store, names, contents
        self._manifest = read_manifest(store)
        self._frames: dict[str, pl.DataFrame] = {}

    def __getitem__(self, name: str) -> pl.DataFrame:
        if name not in self._names:
            raise KeyError(name)
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
