"""Metric tables as CSV or TSV, one row a step or one row a value, as trackers export them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, Rows, RunFile, lost_notes
from ptt.diagnostics.parsers.io.lines import BOM, blocks, is_torn, torn_line
from ptt.diagnostics.parsers.io.metric_rows import (
    SAMPLE_KEYS,
    STEP_KEYS,
    TIME_KEYS,
    TRACKER_COLUMNS,
    fill_steps,
    metric_frame,
    metric_names,
)
from ptt.diagnostics.parsers.io.values import NON_FINITE, as_seconds, as_step

SUFFIXES = (".csv", ".tsv")
SEPARATORS = (",", "\t", ";")
NAME_KEYS = ("metric", "name", "key", "tag")
BAD_ROWS = "row(s) have no step or no number where one belongs."
NULLS = ("null", "none")


@dataclass(frozen=True)
class _Dialect:
    separator: str
    header: tuple[str, ...]
    step: str
    time: str | None
    name: str | None  # set where the table is long
    value: str | None


def _dialect(line: bytes) -> _Dialect | None:
    """Read the header line; None if it names no step."""
    text = line.removeprefix(BOM).decode("utf-8", "replace").strip("\r\n")
    for separator in sorted(SEPARATORS, key=text.count, reverse=True):
        header = tuple(name.strip() for name in _cells(text, separator))
        lower = {name.lower(): name for name in reversed(header)}
        step = next((lower[key] for key in STEP_KEYS if key in lower), None)
        if step is None or len(header) < 2 or len(set(header)) < len(header) or SAMPLE_KEYS & lower.keys():
            continue
        times = (lower[key] for key in (*TIME_KEYS, "wall time") if key in lower)
        name = next((lower[key] for key in NAME_KEYS if key in lower), None)
        value = lower.get("value") if name else None
        return _Dialect(separator, header, step, next(times, None), name if value else None, value)
    return None


def _cells(text: str, separator: str) -> list[str]:
    try:
        return next(csv.reader([text], delimiter=separator), [])
    except csv.Error:  # a NUL byte or a field beyond the module's limit
        return []


def recognises(file: RunFile) -> bool:
    """Return whether the header names a step and the first row has a step and a number."""
    lines = file.readable_head.split(b"\n")
    dialect = _dialect(lines[0]) if file.name.lower().endswith(SUFFIXES) else None
    if dialect is None:
        return False
    rows = [_cells(line.decode("utf-8", "replace").strip("\r"), dialect.separator) for line in lines[1:4]]
    frame = _table([row for row in rows if row], dialect)
    metrics = _metrics(frame, dialect, file, 0)[0]
    return metrics.height > 0


def read(file: RunFile) -> Iterator[Piece]:
    """Yield metrics block by block; an empty cell is no value, a torn last line is counted."""
    dialect: _Dialect | None = None
    seq = bad = 0
    for block in blocks(file):
        if isinstance(block, Lost):
            yield block
            continue
        if dialect is None:
            line, _, block = block.partition(b"\n")
            dialect = _dialect(line)
            if dialect is None:
                yield Lost(bytes=file.size, note=f"{file.rel}: its first line names no column with the step.")
                return
            if not block:
                continue
        if is_torn(block):
            last = block[block.rfind(b"\n") + 1 :]
            if len(_cells(last.decode("utf-8", "replace"), dialect.separator)) < len(dialect.header):
                yield torn_line(file, last)
                block = block[: len(block) - len(last)]
        table = _parse(block, dialect)
        frame, wrong = _metrics(table, dialect, file, seq)
        seq += table.height
        bad += wrong
        if frame.height:
            yield Rows(table="metrics", frame=frame)
    yield from lost_notes(file, {BAD_ROWS: bad})


def _parse(block: bytes, dialect: _Dialect) -> pl.DataFrame:
    """Read a block as text columns; line by line where a stray quote would swallow the rest."""
    if not block.strip():
        return _table([], dialect)
    try:
        table = pl.read_csv(
            io.BytesIO(block),
            has_header=False,
            new_columns=list(dialect.header),
            schema_overrides=dict.fromkeys((f"column_{i + 1}" for i in range(len(dialect.header))), pl.String),
            separator=dialect.separator,
            infer_schema=False,
            truncate_ragged_lines=True,
            encoding="utf8-lossy",
        )
    except pl.exceptions.PolarsError:  # quotes that do not close
        table = None
    if table is not None and table.width == len(dialect.header):
        return table
    lines = block.decode("utf-8", "replace").splitlines()
    return _table([cells for line in lines if (cells := _cells(line, dialect.separator))], dialect)


def _table(rows: list[list[str]], dialect: _Dialect) -> pl.DataFrame:
    width = len(dialect.header)
    even = [[cell or None for cell in row[:width]] + [None] * (width - len(row)) for row in rows]
    return pl.DataFrame(even, schema=dict.fromkeys(dialect.header, pl.String), orient="row")


def _integral(cell: str | None) -> str | float | None:
    """Read `3.0`, which a table with holes makes of 3."""
    try:
        return float(cell) if cell and "." in cell else cell
    except ValueError:  # a text with a dot
        return None


def _steps(rows: pl.DataFrame, dialect: _Dialect) -> pl.Series:
    steps = [as_step(_integral(cell)) for cell in rows[dialect.step].to_list()]
    return fill_steps(pl.Series("step", steps, dtype=pl.Int64), [] if dialect.step == "_step" else dialect.header)


def _times(rows: pl.DataFrame, dialect: _Dialect) -> list[float | None]:
    if dialect.time is None:
        return [None] * rows.height
    times: list[float | None] = []
    for cell in rows[dialect.time].to_list():
        try:
            times.append(as_seconds(float(cell)) if cell else None)
        except ValueError:  # a date, or no time at all
            times.append(as_seconds(cell))
    return times


def _metrics(table: pl.DataFrame, dialect: _Dialect, file: RunFile, seq: int) -> tuple[pl.DataFrame, int]:
    """Turn text cells into metric rows; return them and the count of rows that could not be used."""
    rows = table.with_columns(pl.all().str.strip_chars().replace("", None))
    rows = rows.filter(~pl.all_horizontal(pl.all().is_null()))
    base = rows.select(
        _steps(rows, dialect),
        pl.Series("wall_time", _times(rows, dialect), dtype=pl.Float64),
        pl.int_range(seq, seq + pl.len(), dtype=pl.Int64).alias("seq"),
    )
    if dialect.name and dialect.value:
        cells = base.with_columns(name_raw=rows[dialect.name], text=rows[dialect.value])
    else:
        plain = metric_names(
            name for name in dialect.header if name not in {dialect.step, dialect.time} | TRACKER_COLUMNS
        )
        columns = list(plain)
        cells = base.hstack(rows.select(columns).rename(dict(zip(columns, map(str, range(len(columns))), strict=True))))
        cells = cells.unpivot(index=base.columns, variable_name="column", value_name="text").with_columns(
            name_raw=pl.col("column").replace_strict(
                {str(index): plain[name] for index, name in enumerate(columns)}, return_dtype=pl.String
            )
        )
    lower = pl.col("text").str.to_lowercase()
    spelt, null = lower.is_in(list(NON_FINITE)), lower.is_in(list(NULLS))
    cells = cells.filter(pl.col("text").is_not_null(), pl.col("name_raw").is_not_null()).with_columns(
        value=pl.when(spelt)
        .then(lower.replace_strict(NON_FINITE, default=None, return_dtype=pl.Float64))
        .when(~null)
        .then(pl.col("text").cast(pl.Float64, strict=False)),
        usable=spelt | null | pl.col("text").cast(pl.Float64, strict=False).is_not_null(),
    )
    # A column without one number is text; a single cell that is no number in a column of numbers is damage.
    cells = cells.filter(pl.col("usable").any().over("name_raw"))
    good = cells.filter(pl.col("usable"), pl.col("step").is_not_null())
    bad = base.filter(pl.col("step").is_null()).height
    bad += cells.filter(~pl.col("usable"), pl.col("step").is_not_null())["seq"].n_unique()
    entries = good.sort("seq", maintain_order=True).select("step", "name_raw", "value", "wall_time", "seq")
    return metric_frame(entries, file.rel), bad


PARSER = Parser(
    name="metrics_csv",
    describes="Metric tables as CSV or TSV, wide (a column each) or long (one value a row): metrics.",
    priority=30,
    recognises=recognises,
    read=read,
)
