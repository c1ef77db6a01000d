"""Scrubs what parsers yield before anything is kept of it: behind this place no table, fact or note holds a secret."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl

from ptt.diagnostics.parsers.io.interface import Context, Lost, Piece, Wide
from ptt.diagnostics.parsers.io.parquet_files import column_called
from ptt.diagnostics.schema import TABLES
from ptt.diagnostics.scrub.scrub import Scrubber, Sort
from ptt.diagnostics.store.manifest import InPlaceFile
from ptt.diagnostics.store.scrub_conversations import scrub_conversations
from ptt.diagnostics.store.single_values import SingleValues, single_columns

TEXTS: Final = frozenset(
    {("turns", "text"), ("tool_calls", "args_json"), ("tool_calls", "error_text"), ("events", "text")}
    | {(table, column) for table in TABLES for column in ("stop_reason", "error_type", "note")}
)
IDS: Final = frozenset(
    (table, column) for table in TABLES for column in ("sample_id", "group_id", "trajectory_id", "call_id", "node")
)
"""Made at random by design, or looked up by: a machine's name in telemetry is what a finding on machines is about."""
OURS: Final = frozenset({"split", "kind", "ok_source", "source", "name"})
"""Words of ours, and paths that are scrubbed when they are listed; `name` is canonical in `metrics` alone."""


def sort_of(table: str, column: str) -> Sort | None:
    """Return what a column's texts are; None where they are words of ours."""
    if (table, column) in TEXTS:
        return Sort.TEXT
    if (table, column) in IDS:
        return Sort.ID
    if table == "conversations":
        return None  # training data, in which only keys of certain shape are masked
    return None if column in OURS and (table == "metrics" or column != "name") else Sort.NAME


def scrub_pieces(pieces: Iterable[Piece], scrubber: Scrubber) -> Iterator[Piece]:
    """Yield pieces without secrets; rows are scrubbed by `scrub_frame` when they are written, many at once."""
    for piece in pieces:
        match piece:
            case Wide(names=names):
                yield _wide(piece, names, scrubber)
            case Lost(note=str(note)):
                yield replace(piece, note=scrubber.text(note))
            case Context(facts=facts):
                yield replace(piece, facts=scrubber.settings(facts))
            case _:
                yield piece


def scrub_frame(table: str, frame: pl.DataFrame, scrubber: Scrubber) -> pl.DataFrame:
    """Return rows of a table without secrets."""
    if table == "conversations":
        frame = scrub_conversations(frame, scrubber)
    sorts = {column: sort for column in frame.columns if (sort := sort_of(table, column)) is not None}
    changed = []
    for sort in Sort:
        columns = [frame[column] for column, of in sorts.items() if of is sort and _holds_texts(frame.schema[column])]
        texts = [_texts(column, sort).alias("") for column in columns]
        masks = scrubber.masks(pl.concat(texts), sort) if texts else {}
        changed += [_masked(column, masks) for column in columns] if masks else []
    return frame.with_columns(changed) if changed else frame


def _holds_texts(dtype: pl.DataType) -> bool:
    return dtype in (pl.String, pl.List(pl.String))


def _texts(column: pl.Series, sort: Sort) -> pl.Series:
    """Return the texts of a column: once each where there are few names in many rows."""
    texts = column.explode() if column.dtype == pl.List(pl.String) else column
    return texts.unique(maintain_order=True) if sort is Sort.NAME else texts


def _masked(column: pl.Series, masks: Mapping[str, str]) -> pl.Series:
    if column.dtype == pl.List(pl.String):
        return column.list.eval(pl.element().replace(masks))
    return column.replace(masks)


def _wide(piece: Wide, names: Mapping[str, str | None], scrubber: Scrubber) -> Wide:
    masks = {raw: name for raw, name in zip(names, scrubber.names(list(names)), strict=True) if raw != name}
    if not masks:
        return piece
    taken = set(names) - set(masks)
    for raw, mask in masks.items():  # a file may hold a column that is called as a mask is
        name = mask
        while name in taken:
            name += "'"
        masks[raw] = name
        taken.add(name)
    return Wide(
        frame=piece.frame.rename(masks, strict=False), names={masks.get(raw, raw): name for raw, name in names.items()}
    )


UNREAD: Final = (OSError, pl.exceptions.ComputeError, pl.exceptions.SchemaError, pl.exceptions.ColumnNotFoundError)
Masks = dict[str, dict[str, str]]
"""By column, each text and its mask."""


def masks_in_place(
    paths: Sequence[Path],
    texts: Sequence[str],
    scrubber: Scrubber,
    *,
    held: SingleValues | None = None,
    alike: InPlaceFile | None = None,
) -> Masks:
    """Return what must be masked in files that are scanned where they lie; all of them hold these columns of texts.

    `held`: is given the single values of the files, if `alike` describes each of them.
    """
    if not texts:
        return {}
    if held is not None and alike is not None:
        try:
            columns = _read_single(paths, texts, held, alike)
            return _masks_of(columns, scrubber)
        except UNREAD:  # below, of texts alone: they are looked through in files with any other damage too
            pass
    try:
        columns = _read_texts(paths, texts)
    except UNREAD:  # one is damaged inside, which the token pass says, or types differ
        each = (masks_in_place([path], texts, scrubber) for path in paths) if len(paths) > 1 else ()
        found: Masks = {}
        for masks in each:
            for column, of_column in masks.items():
                found.setdefault(column, {}).update(of_column)
        return found
    return _masks_of(columns, scrubber)


def _masks_of(columns: Mapping[str, pl.Series], scrubber: Scrubber) -> Masks:
    masks = {name: scrubber.masks(column, sort_of("sequences", name) or Sort.NAME) for name, column in columns.items()}
    return {column: of_column for column, of_column in masks.items() if of_column}


def _read_single(
    paths: Sequence[Path], texts: Sequence[str], held: SingleValues, alike: InPlaceFile
) -> dict[str, pl.Series]:
    """Read the texts, and beside them the single values that are read anyway once files are judged."""
    scan = _scan(paths)
    single = single_columns(alike, scan.collect_schema())
    frame = scan.select(map(column_called, dict.fromkeys([*single, *texts]))).collect(engine="streaming")
    held.hold(paths, pl.DataFrame([frame.get_column(name) for name in single]))
    columns = {name: frame.get_column(name).alias("") for name in texts}
    flat = {name: column.cast(_as_texts(column.dtype)) for name, column in columns.items()}
    return {name: _texts(column, sort_of("sequences", name) or Sort.NAME) for name, column in flat.items()}


def _as_texts(dtype: pl.DataType) -> pl.DataType:
    """Return the type by which texts are looked through: they may be categories, and lists of a fixed length."""
    return pl.List(pl.String) if isinstance(dtype, pl.List | pl.Array) else pl.String()


def _scan(paths: Sequence[Path]) -> pl.LazyFrame:
    return pl.scan_parquet(list(paths), glob=False, hive_partitioning=False, extra_columns="ignore")


def _read_texts(paths: Sequence[Path], texts: Sequence[str]) -> dict[str, pl.Series]:
    scan = _scan(paths)
    schema = scan.collect_schema()
    frame = scan.select(column_called(name).cast(_as_texts(schema[name])) for name in texts).collect(engine="streaming")
    return {name: _texts(frame[name].alias(""), sort_of("sequences", name) or Sort.NAME) for name in texts}


def copy_masked(path: Path, masks: Masks, target: Path, scrubber: Scrubber) -> None:
    """Copy a file with its texts masked, and names of columns likewise."""
    scan = pl.scan_parquet([path], glob=False, hive_partitioning=False)
    columns = []
    for name, dtype in scan.collect_schema().items():
        column = column_called(name)
        if name in masks:
            texts = column.cast(_as_texts(dtype))
            replaced = pl.element().replace(masks[name])
            column = texts.replace(masks[name]) if _as_texts(dtype) == pl.String else texts.list.eval(replaced)
        columns.append(column.alias(scrubber.text(name, Sort.NAME)))
    scan.select(columns).sink_parquet(target)
