"""Sequences in Parquet files: which steps a file holds, and the copy that lets a store stand alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl

from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.parsers.io.parquet_files import DAMAGE, footer_of, layout_of
from ptt.diagnostics.schema import TABLES
from ptt.diagnostics.store.manifest import InPlaceFile

STEPS: Final = "steps"  # among the looks at a file: the distinct ones
RECORDED: Final = "recorded.parquet"  # a copy of all sequences, in a store that stands alone


def steps_of(file: RunFile) -> Sequence[int | None]:
    """Return the distinct steps of a Parquet file; none where they cannot be read, which the token pass reports."""
    if STEPS not in file.looks:
        file.looks[STEPS] = _read_steps(file)
    found: Sequence[int | None] = file.looks[STEPS]
    return found


def steps_in_place(file: RunFile) -> Callable[[], Sequence[int | None]]:
    """Return what tells the steps of a file later on: from its footer now, while that is held, where it has them."""
    with suppress(*DAMAGE):
        if STEPS not in file.looks and (told := _steps_in_footer(file)) is not None:
            file.looks[STEPS] = sorted(told)
    known = file.looks.get(STEPS)
    return (lambda: steps_of(replace(file, looks={}))) if known is None else lambda: known


def _read_steps(file: RunFile) -> Sequence[int | None]:
    try:
        if (told := _steps_in_footer(file)) is not None:
            return sorted(told)
        steps = pl.scan_parquet([file.path], glob=False).select(pl.col("step").unique()).collect()
    except (*DAMAGE, pl.exceptions.PolarsError):  # gone meanwhile, or damaged
        return []
    return steps.to_series().to_list()


def _steps_in_footer(file: RunFile) -> set[int] | None:
    """Return the steps that the footer tells: trainers write a file a step; None where a row group has several."""
    meta = footer_of(file).metadata
    at = [column.path for column in layout_of(file).columns].index("step")
    groups = [meta.row_group(number).column(at).statistics for number in range(meta.num_row_groups)]
    ranges = {(told.min, told.max) if told is not None and told.has_min_max else None for told in groups}
    if any(told is None or told[0] != told[1] or not isinstance(told[0], int) for told in ranges):
        return None
    return {told[0] for told in ranges if told is not None}


def copy_sequences(frame: pl.LazyFrame, folder: Path) -> None:
    """Copy all sequences into one file of the store, so that they can be read without the run dir."""
    target = folder / RECORDED
    part = target.with_name(target.name + ".part")
    frame.sink_parquet(part)
    part.rename(target)


def recorded_copy(path: Path) -> InPlaceFile:
    """Describe the copy of all sequences as a file that is read where it lies."""
    scan = pl.scan_parquet([path], glob=False)
    rows = int(scan.select(pl.len()).collect().item())
    columns = tuple(name for name in scan.collect_schema().names() if name in TABLES["sequences"])
    return InPlaceFile(path=path.name, rows=rows, columns=columns, kind="recorder")
