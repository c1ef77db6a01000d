"""Read blocks of a large metric table as columns of numbers, where reading cell by cell would give the same."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Final

import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.parsers.io.metric_blocks import MAX_CELLS, Block, LongBlock, Names
from ptt.diagnostics.parsers.io.values import MAX_STEP, NON_FINITE

MAX_DIGITS: Final = 18  # of a step: longer ones, or ones with a sign, dot or slash, are read cell by cell
COUNT: Final = rf"^[0-9]{{1,{MAX_DIGITS}}}$"
SECONDS: Final = r"^[0-9]{1,18}(?:\.[0-9]{0,18})?$"
MIN_CHUNK_ROWS: Final = 1000  # in shorter chunks, the metadata takes more than the numbers
FIRST_ROWS: Final = 1000  # used to find the columns that hold numbers


@dataclass(frozen=True, kw_only=True)
class Columns:
    """A table's columns, under names that are not patterns; `metrics` maps these to the metrics' own names."""

    separator: str
    header: tuple[str, ...]
    step: str
    time: str | None
    metrics: Mapping[str, str]  # empty if the table is long
    nulls: tuple[str, ...]  # spellings of a missing value, in lower case
    as_times: Callable[[pl.Series], pl.Series]
    name: str | None = None  # in a long table: the column that names each row's metric
    value: str | None = None
    front: str = ""  # prefix of all its names


def columns_of(block: bytes, table: Columns, seq: int, schema: pl.Schema | None = None) -> Block | LongBlock | None:
    """Read a block of complete lines as columns; None if cells have to be judged one by one.

    That is the case with quotes, a step that is not a plain count, a non-number in a column of numbers, or a number in
    a column of texts. `schema`: of the previous block.
    """
    if b'"' in block:
        return None
    if table.name is not None:
        return _long(block, table, seq)
    if schema is not None:
        found = _as_columns(block, table, seq, frozenset(name for name in table.metrics if schema[name] == pl.String()))
        if found is not None:
            return found
    texts = _texts(block, table)
    return None if texts is None else _as_columns(block, table, seq, texts)


def _as_columns(block: bytes, table: Columns, seq: int, texts: frozenset[str]) -> Block | None:
    """Read a block, these columns as texts and the other metrics as numbers; None where it does not hold these."""
    wide = _read(block, table, texts)
    if wide is None or not wide.height:
        return None
    index = _index(wide, table, seq)
    if index is None:
        return None
    if any(_holds_number(wide[name], table.nulls) for name in table.metrics if name in texts):
        return None
    columns = dict(zip(wide.columns, wide.get_columns(), strict=True))
    numbers = {
        name: columns[column]
        for column, name in table.metrics.items()
        if column not in texts and columns[column].null_count() < wide.height
    }
    if not numbers or not index.keys().isdisjoint(numbers):
        return None
    return Block(index=index, numbers=numbers, schema=wide.schema)


def _long(block: bytes, table: Columns, seq: int) -> LongBlock | None:
    """Read a block with a value a row; None where a value is no number, or a step is no plain count."""
    wide = _read(block, table, frozenset())
    index = None if wide is None or not wide.height else _index(wide, table, seq)
    if wide is None or index is None:
        return None
    names = Names.of(wide[str(table.name)]).stripped().prefixed(table.front)
    return LongBlock(index=index, names=names, values=wide[str(table.value)], schema=wide.schema)


def _index(wide: pl.DataFrame, table: Columns, seq: int) -> dict[str, pl.Series] | None:
    """Return step, time and number of each row; None where a step is no plain count."""
    steps = _counts(wide[table.step])
    if steps is None:
        return None
    largest = steps.max()
    if not isinstance(largest, int) or largest > MAX_STEP:
        return None
    return {
        "__step": steps.alias("__step"),
        "__time": _times(wide, table).alias("__time"),
        "__seq": pl.int_range(seq, seq + wide.height, dtype=pl.Int64, eager=True).alias("__seq"),
    }


def _counts(cells: pl.Series) -> pl.Series | None:
    """Return cells as counts; None if any cell is not a count."""
    if cells.null_count():
        return None
    counts = cells.cast(pl.UInt64, strict=False)
    longest = cells.str.len_bytes().max()
    plain = not counts.null_count() and isinstance(longest, int) and longest <= MAX_DIGITS
    if plain and not cells.str.starts_with("+").any():
        return counts.cast(pl.Int64)
    cells = cells.str.strip_chars()
    return cells.cast(pl.Int64) if cells.str.contains(COUNT).all() else None


def _texts(block: bytes, table: Columns) -> frozenset[str] | None:
    """Return the columns whose first cells are texts; None where the first rows cannot be read."""
    end = block.find(b"\n", 0)
    for _ in range(FIRST_ROWS):
        if end < 0 or (following := block.find(b"\n", end + 1)) < 0:
            break
        end = following
    first = _read(block[: end + 1] or block, table, frozenset(table.header))
    if first is None:
        return None
    numbers = first.select(pl.col(list(table.metrics)).cast(pl.Float64, strict=False).count()).row(0, named=True)
    return frozenset(
        column
        for column, count in numbers.items()
        if not count and first[column].null_count() < first.height and not _holds_number(first[column], table.nulls)
    )


def _read(block: bytes, table: Columns, texts: frozenset[str]) -> pl.DataFrame | None:
    """Parse the lines, with all columns as numbers except step, time and texts.

    None if a cell is not a number, or there are too many cells.
    """
    numbers = (table.metrics.keys() - texts) | {table.value}
    most = MAX_CELLS // len(table.header)
    wanted = {table.step, table.time, table.name, table.value, *table.metrics}
    try:
        wide = pl.read_csv(
            io.BytesIO(block),
            has_header=False,
            schema={name: pl.Float64 if name in numbers else pl.String for name in table.header},
            columns=[place for place, name in enumerate(table.header) if name in wanted],
            separator=table.separator,
            n_rows=most + 1,  # instead of counting lines
            truncate_ragged_lines=True,
            encoding="utf8-lossy",
        )
    except pl.exceptions.PolarsError:  # a cell that is not a number
        return None
    if wide.height > most:
        return None
    text = [name for name, kind in wide.schema.items() if kind == pl.String() and name not in (table.step, table.name)]
    if wide.height < MIN_CHUNK_ROWS * wide.n_chunks():
        wide = wide.rechunk()
    return wide.with_columns(pl.col(text).str.strip_chars().replace("", None))


def _holds_number(cells: pl.Series, nulls: tuple[str, ...]) -> bool:
    """Return whether a cell of a column of texts is a number, or spells one or none."""
    once = cells.drop_nulls().unique()
    spelt = once.str.to_lowercase().is_in([*NON_FINITE, *nulls])
    return bool(spelt.any() or once.cast(pl.Float64, strict=False).count())


def _times(wide: pl.DataFrame, table: Columns) -> pl.Series:
    """Return seconds since the epoch; null where there is no such time."""
    if table.time is None:
        return pl.repeat(None, wide.height, dtype=pl.Float64, eager=True)
    cells = wide[table.time]
    if cells.null_count() or not cells.str.contains(SECONDS).all():
        return table.as_times(cells)
    seconds = cells.cast(pl.Float64)
    return pl.select(pl.when((seconds > 1e8) & (seconds < 1e11)).then(seconds)).to_series()
