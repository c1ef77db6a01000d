"""Scrubs what parsers yield before anything is kept of it: behind this place no table, fact or note holds a secret."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl

from ptt.diagnostics.parsers.io.interface import Context, InPlace, Lost, Piece, Rows, RunFile, Wide
from ptt.diagnostics.schema import SEQUENCES, TABLES
from ptt.diagnostics.scrub.scrub import Scrubber, Sort

TEXTS: Final = frozenset(
    {("turns", "text"), ("tool_calls", "args_json"), ("events", "text")}
    | {(table, column) for table in TABLES for column in ("stop_reason", "error_type", "note")}
)
IDS: Final = frozenset(
    (table, column)
    for table in TABLES
    for column in ("sample_id", "group_id", "trajectory_id", "call_id", "source", "path", "node")
)
"""Made at random by design, or looked up by: a machine's name in telemetry is what a finding on machines is about."""
OURS: Final = frozenset({"split", "kind", "ok_source", "name"})
"""Words of ours in most tables; `name` is canonical in `metrics` alone."""


def sort_of(table: str, column: str) -> Sort | None:
    """Return what a column's texts are; None where they are words of ours."""
    if (table, column) in TEXTS:
        return Sort.TEXT
    if (table, column) in IDS:
        return Sort.ID
    return None if column in OURS and (table == "metrics" or column != "name") else Sort.NAME


def scrub_pieces(pieces: Iterable[Piece], scrubber: Scrubber, file: RunFile) -> Iterator[Piece]:
    """Yield pieces without secrets; what lies in place is looked at by `is_clean`."""
    for piece in pieces:
        match piece:
            case Rows(table=table, frame=frame):
                yield Rows(table=table, frame=_frame(table, frame, scrubber, file))
            case Wide(frame=frame, names=names):
                yield _wide(piece, names, scrubber)
            case Lost(note=str(note)):
                yield replace(piece, note=scrubber.text(note))
            case Context(facts=facts):
                masked = {name: scrubber.text(name, Sort.NAME) for name in facts}
                yield Context(facts={masked[name]: scrubber.setting(name, value) for name, value in facts.items()})
            case _:
                yield piece


def _frame(table: str, frame: pl.DataFrame, scrubber: Scrubber, file: RunFile) -> pl.DataFrame:
    changed = []
    for column in frame.get_columns():
        sort = sort_of(table, column.name)
        if sort is None or (column.name == "source" and _is_constant(column, file.rel)):
            continue
        scrubbed = _column(column, sort, scrubber)
        if scrubbed is not column:
            changed.append(scrubbed)
    return frame.with_columns(changed) if changed else frame


def _is_constant(column: pl.Series, value: str) -> bool:
    return bool((column == value).all())


def _column(column: pl.Series, sort: Sort, scrubber: Scrubber) -> pl.Series:
    if column.dtype == pl.String:
        return scrubber.series(column, sort)
    if column.dtype != pl.List(pl.String):
        return column
    names = column.explode().drop_nulls().unique(maintain_order=True)
    masks = _masks(names, sort, scrubber)
    return column.list.eval(pl.element().replace(masks)) if masks else column


def _masks(distinct: pl.Series, sort: Sort, scrubber: Scrubber) -> dict[str, str]:
    scrubbed = scrubber.series(distinct, sort)
    if scrubbed is distinct:
        return {}
    pairs = zip(distinct.to_list(), scrubbed.to_list(), strict=True)
    return {old: new for old, new in pairs if old != new}


def _wide(piece: Wide, names: Mapping[str, str | None], scrubber: Scrubber) -> Wide:
    raws = pl.Series(list(names), dtype=pl.String)
    masks = _masks(raws, Sort.NAME, scrubber)
    if not masks:
        return piece
    taken = set(names) - set(masks)
    for raw, name in masks.items():  # a file may hold a column that is called as a mask is
        while name in taken:
            name += "'"
        masks[raw] = name
        taken.add(name)
    return Wide(
        frame=piece.frame.rename(masks, strict=False), names={masks.get(raw, raw): name for raw, name in names.items()}
    )


def masks_in_place(file: RunFile, piece: InPlace, scrubber: Scrubber) -> dict[str, dict[str, str]]:
    """Return what must be masked in a file that is scanned where it lies: by column, each text and its mask."""
    found: dict[str, dict[str, str]] = {}
    schema = pl.read_parquet_schema(file.path)
    for name, dtype in schema.items():
        if not _is_text(dtype) or (name in SEQUENCES and name not in piece.columns):
            continue
        column = pl.read_parquet(file.path, columns=[name], glob=False)[name]
        texts = column.explode() if dtype == pl.List(pl.String) else column.cast(pl.String)
        sort = sort_of("sequences", name) or Sort.NAME
        if masks := _masks(texts.drop_nulls().unique(maintain_order=True), sort, scrubber):
            found[name] = masks
    return found


def _is_text(dtype: pl.DataType) -> bool:
    return dtype == pl.List(pl.String) or isinstance(dtype, pl.String | pl.Categorical | pl.Enum)


def copy_masked(file: RunFile, masks: Mapping[str, Mapping[str, str]], target: Path, scrubber: Scrubber) -> None:
    """Copy a file with its texts masked, and names of columns likewise."""
    scan = pl.scan_parquet([file.path], glob=False, hive_partitioning=False)
    schema = scan.collect_schema()
    columns = []
    for name, dtype in schema.items():
        replaced = pl.col(name)
        if name in masks and dtype == pl.List(pl.String):
            replaced = replaced.list.eval(pl.element().replace(dict(masks[name])))
        elif name in masks:
            replaced = replaced.cast(pl.String).replace(dict(masks[name]))
        columns.append(replaced.alias(scrubber.text(name, Sort.NAME)))
    scan.select(columns).sink_parquet(target)
