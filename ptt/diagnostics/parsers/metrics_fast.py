"""The quick way through metric JSON lines: a whole block at once, where nothing in it is ambiguous."""

from __future__ import annotations

import io

import polars as pl

from ptt.diagnostics.parsers.metric_rows import NON_FINITE, as_seconds

SPELT = frozenset({*NON_FINITE, "true", "false"})


def fast_entries(
    block: bytes, *, wrappers: tuple[str, ...], steps: tuple[str, ...], times: tuple[str, ...], seq: int
) -> pl.DataFrame | None:
    """Return `step, name_raw, value, wall_time, seq` of a block, or None where the slow way has to judge.

    That is a block with null, which in columns looks like a missing key; with bare NaN, which polars refuses;
    with numbers among texts; and one where rows differ in how they name the step.
    """
    if b"null" in block:
        return None
    try:
        wide = pl.read_ndjson(io.BytesIO(block), infer_schema_length=None)
    except (pl.exceptions.PolarsError, OSError):  # bare NaN, ragged types or damage
        return None
    flat = _flat(wide, wrappers)
    if flat is None:
        return None
    step = next((name for name in steps if name in flat), None)
    if step is None or not flat[step].dtype.is_integer() or flat[step].null_count():
        return None
    clock = next((name for name in times if name in flat), None)
    seconds = [None] * wide.height if clock is None else [as_seconds(at) for at in flat[clock].to_list()]
    if clock is not None and None in seconds:
        return None
    if any(column.dtype == pl.String() and not _is_text(column) for column in flat.values()):
        return None
    numbers = {
        name: column.cast(pl.Float64)
        for name, column in flat.items()
        if name not in (step, clock) and (column.dtype.is_numeric() or column.dtype == pl.Boolean())
    }
    if not numbers:
        return None
    index = {
        "__step": flat[step].cast(pl.Int64, strict=False),
        "__time": pl.Series(seconds, dtype=pl.Float64),
        "__seq": pl.int_range(seq, seq + wide.height, dtype=pl.Int64, eager=True),
    }
    if index["__step"].null_count() or not index.keys().isdisjoint(numbers):
        return None
    long = pl.DataFrame(index | numbers).unpivot(index=list(index), variable_name="name_raw", value_name="value")
    return long.filter(pl.col("value").is_not_null()).rename({"__step": "step", "__time": "wall_time", "__seq": "seq"})


def _flat(wide: pl.DataFrame, wrappers: tuple[str, ...]) -> dict[str, pl.Series] | None:
    """Join the names of nested fields with slashes; None if two columns come out under one name."""
    flat: dict[str, pl.Series] = {}
    pending = [(name, wide[name]) for name in wide.columns]
    while pending:
        name, column = pending.pop()
        if isinstance(column.dtype, pl.Struct):
            below = "" if name in wrappers else f"{name}/"
            pending += [(f"{below}{field}", column.struct.field(field)) for field in column.struct.fields]
        elif name in flat:
            return None
        else:
            flat[name] = column
    return flat


def _is_text(column: pl.Series) -> bool:
    """Whether no cell is a number, which a text column gets where another row spells out its NaN."""
    cells = column.drop_nulls().unique()
    return not (cells.str.to_lowercase().is_in(SPELT).any() or cells.cast(pl.Float64, strict=False).count())


def seq_behind(entries: pl.DataFrame) -> int:
    """Return the number of the row that follows these entries."""
    last = entries["seq"].max()
    return last + 1 if isinstance(last, int) else 0
