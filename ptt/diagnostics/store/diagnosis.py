"""Write a diagnosis with its tables into the store, and read it back: figures and all, without the run."""

from __future__ import annotations

import json
import shutil
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, Final, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import polars as pl

from ptt.diagnostics import model
from ptt.diagnostics.errors import InputError
from ptt.diagnostics.model import Diagnosis
from ptt.diagnostics.store.findings_file import MAX_BYTES, not_too_deep
from ptt.diagnostics.store.manifest import read_manifest
from ptt.diagnostics.store.scan import read_table, read_trajectories
from ptt.diagnostics.store.untrusted_json import LARGEST
from ptt.diagnostics.store.wide_metrics import read_wide

T = TypeVar("T")


def plain(value: object) -> Any:
    """Give dicts, lists and scalars for a value; NaN and the infinities stay what they are."""
    match value:
        case Enum():
            return value.value
        case None | str() | bool() | int() | float():
            return value
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case tuple() | list():
            return [plain(item) for item in value]
    return {field.name: plain(getattr(value, field.name)) for field in fields(cast(Any, value))}


def restored(kind: type[T], found: Any) -> T:
    """Give the value of a dataclass back; TypeError, KeyError or ValueError where it is none."""
    return cast(T, _restored(kind, found))


def _restored(kind: Any, found: Any) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _one_of(inner, found)
    if origin is tuple:
        if not isinstance(found, list):
            raise TypeError(f"a list was expected, not {type(found).__name__}")
        kinds = [inner[0]] * len(found) if inner[-1] is Ellipsis else list(inner)
        return tuple(_restored(one, item) for one, item in zip(kinds, found, strict=True))
    if origin is not None and issubclass(origin, Mapping):
        return {str(key): _restored(inner[1], item) for key, item in found.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(found)
    if isinstance(kind, type) and is_dataclass(kind):
        return cast(Any, kind)(**{name: _restored(hint, found[name]) for name, hint in _hints(kind).items()})
    if kind is float and isinstance(found, int) and not isinstance(found, bool):
        return float(_sized(found))
    if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
        raise TypeError(f"{kind.__name__} was expected, not {type(found).__name__}")
    return _sized(found)


def _one_of(kinds: tuple[Any, ...], found: Any) -> Any:
    if found is None and type(None) in kinds:
        return None
    scalars = [kind for kind in kinds if kind in (bool, int, float, str)]
    for kind in sorted(scalars, key=[bool, int, float, str].index):
        if type(found) is kind:
            return _sized(found)
    others = [kind for kind in kinds if kind is not type(None)]
    return _restored(others[-1 if scalars else 0], found)


def _sized(found: Any) -> Any:
    if isinstance(found, int) and abs(found) > LARGEST:
        raise ValueError("a whole number beyond any that a run has")
    return found


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind, {**vars(model), "pl": types.SimpleNamespace(DataFrame=object)})
    return {field.name: hints[field.name] for field in fields(cast(Any, kind))}


FOLDER: Final = "kept"
DOCUMENT: Final = "diagnosis.json"
VERSION: Final = 2
OF_THE_STORE: Final = ("metrics", "trajectories", "tool_calls")
"""Tables of a diagnosis that the store has anyway, and that grow with the run."""
MAX_ROWS: Final = 200_000_000  # of one table: thirty metrics of a million steps are a sixth of it


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a diagnosis was made under, apart from the run itself."""

    settings: str  # names the settings and custom rules
    version: str  # of ptt


@dataclass(frozen=True, kw_only=True)
class KeptDiagnosis:
    """What a store keeps: a diagnosis, its source's hash, and what it was made under."""

    diagnosis: Diagnosis
    source: str
    asked: Asked
    of_run: bool  # made with the run at hand, not of its store alone


def write_kept(
    store: Path,
    mark: str,
    source: str,
    asked: Asked,
    diagnosis: Diagnosis,
    *,
    beside: Callable[[Path], object] | None = None,
) -> None:
    """Keep a diagnosis under `mark`; it takes the place of the one before in one move.

    `beside` writes into the same folder what belongs to it.
    """
    part = store / f"{FOLDER}.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    try:
        _write(part, mark, source, asked, diagnosis)
        if beside is not None:
            beside(part)
        shutil.rmtree(store / FOLDER, ignore_errors=True)
        part.replace(store / FOLDER)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write(part: Path, mark: str, source: str, asked: Asked, diagnosis: Diagnosis) -> None:
    hashes = {}
    for name in diagnosis.tables:
        if name not in OF_THE_STORE:
            file = part / f"{name}.parquet"
            diagnosis.tables[name].write_parquet(file, compression="lz4", statistics=False)
            hashes[name] = sha256(file.read_bytes()).hexdigest()
    content = {
        field.name: plain(getattr(diagnosis, field.name)) for field in fields(Diagnosis) if field.name not in _NOT_KEPT
    }
    document = {
        "version": VERSION,
        "mark": mark,
        "source": source,
        "asked": plain(asked),
        "tables": list(diagnosis.tables),
        "hashes": hashes,
        "diagnosis": content,
    }
    (part / DOCUMENT).write_text(json.dumps(document), encoding="ascii")


_NOT_KEPT: Final = ("tables", "judged_with")


def read_kept(store: Path, mark: str | None = None) -> KeptDiagnosis | None:
    """Give the diagnosis kept under `mark` (None: whichever there is), or None where it is not there whole.

    Everything is taken at once: whoever writes another one meanwhile changes nothing of what was given.
    """
    try:
        document = _document(store)
        if document["version"] != VERSION or (mark is not None and document["mark"] != mark):
            return None
        values = document["diagnosis"]
        held = restored(Diagnosis, values | {"tables": {}, "judged_with": ""})
        not_too_deep(held.findings)
        asked = restored(Asked, document["asked"])
        source, names = str(document["source"]), [str(name) for name in document["tables"]]
        if not all(name.isidentifier() for name in names):
            return None  # no table of ours: it could lie anywhere
        tables = _Tables(store, names, _contents(store, names, document["hashes"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None  # absent, torn, of another version, or none of ours: made anew
    whole = {field.name: getattr(held, field.name) for field in fields(Diagnosis) if field.name != "tables"}
    diagnosis = Diagnosis(**whole, tables=tables)
    return KeptDiagnosis(diagnosis=diagnosis, source=source, asked=asked, of_run=bool(document["mark"]))


def _document(store: Path) -> dict[str, Any]:
    with (store / FOLDER / DOCUMENT).open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError("more than any diagnosis has")
    document: dict[str, Any] = json.loads(content.decode("ascii"))
    return document


def _contents(store: Path, names: list[str], hashes: Mapping[str, str]) -> dict[str, bytes]:
    """Read the files of the tables as they are; ValueError where one is not that which was written."""
    held = {}
    for name in names:
        if name not in OF_THE_STORE:
            held[name] = (store / FOLDER / f"{name}.parquet").read_bytes()
            if sha256(held[name]).hexdigest() != hashes[name]:
                raise ValueError(f"{name} is another table than was kept")
    return held


class _Tables(Mapping[str, pl.DataFrame]):
    """The tables of a kept diagnosis, each made when it is first asked for."""

    def __init__(self, store: Path, names: list[str], contents: dict[str, bytes]) -> None:
        self._store, self._names, self._contents = store, names, contents
        self._manifest = read_manifest(store)
        self._held: dict[str, pl.DataFrame] = {}

    def __getitem__(self, name: str) -> pl.DataFrame:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._held:
            try:
                self._held[name] = self._read(name)
            except (OSError, pl.exceptions.PolarsError) as error:
                raise InputError(
                    f"{self._store}: its table {name} cannot be read; delete the store, and judge the run again."
                ) from error
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _read(self, name: str) -> pl.DataFrame:
        if name not in OF_THE_STORE:
            content = BytesIO(self._contents[name])
            if pl.scan_parquet(content).select(pl.len()).collect().item() > MAX_ROWS:
                raise OSError("more rows than any run has")
            content.seek(0)
            frame = pl.read_parquet(content)
            del self._contents[name]
            return frame
        frame = self._of_the_store(name)
        if read_manifest(self._store) != self._manifest:
            raise InputError(f"{self._store}: was replaced while it was read; run the command again.")
        return frame

    def _of_the_store(self, name: str) -> pl.DataFrame:
        if name == "trajectories" and self._manifest is not None:
            return read_trajectories(self._store, read_wide(self._store, self._manifest))
        frame = read_table(self._store, name)
        if name == "metrics" and "priority" not in frame.columns:
            frame = frame.with_columns(pl.lit(0, pl.Int32).alias("priority"))
        return frame
