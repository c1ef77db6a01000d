"""Metric logs as JSON lines: one object a log call, flat or nested, from any logger."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import polars as pl

from ptt.diagnostics.metrics.aliases import CACHED_NAMES, canonical, framework_of, split_of
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, Rows, RunFile, Wide, lost_notes
from ptt.diagnostics.parsers.io.lines import block_objects, blocks, first_objects, json_object
from ptt.diagnostics.parsers.io.metric_rows import (
    RATIO_BOUND,
    SAMPLE_KEYS,
    STEP_KEYS,
    TIME_KEYS,
    MetricColumns,
    flatten,
    framework_facts,
    metric_frame,
    metric_values,
)
from ptt.diagnostics.parsers.io.values import NON_FINITE, as_seconds, as_step

SPELT: Final = frozenset({*NON_FINITE, "true", "false"})
WIDE_BYTES: Final = 32 << 20  # of a file: from here on a row a value costs more than all the rest
DENSE: Final = 0.5  # of a block's rows hold the metric: what is rarer costs little as rows
FIRST_ROWS: Final = 100  # that tell the columns of a block; where later ones hold more, all are asked
NO_JSON: Final = "line(s) are no JSON objects and do not count."
NO_STEP: Final = "row(s) name no training step and do not count."
ISO: Final = "%Y-%m-%dT%H:%M:%S%.f%:z"  # as Python's isoformat writes an instant

Naming = Callable[[list[str]], Mapping[str, str | None]]


@dataclass(frozen=True)
class Block:
    """The numbers of a block of lines, a column each; `schema` is what the next block probably holds."""

    index: dict[str, pl.Series]  # step, wall_time, seq
    numbers: dict[str, pl.Series]
    schema: pl.Schema

    @property
    def behind(self) -> int:
        """The number of the row that follows."""
        return int(self.index["__seq"][-1]) + 1

    def long(self, names: list[str] | None = None) -> pl.DataFrame:
        """Return `step, name_raw, value, wall_time, seq`, a row a value, of all metrics or of some."""
        chosen = self.numbers if names is None else {name: self.numbers[name] for name in names}
        long = pl.DataFrame(self.index | chosen).unpivot(
            index=list(self.index), variable_name="name_raw", value_name="value"
        )
        long = long.filter(pl.col("value").is_not_null())
        return long.rename({"__step": "step", "__time": "wall_time", "__seq": "seq"})

    def pieces(self, file: RunFile, naming: Naming) -> Iterator[Rows | Wide]:
        """Yield what was measured: a row a value, but a column a metric for what is dense in a large file."""
        names = naming(list(self.numbers))
        dense = [name for name in self.numbers if self._is_dense(name)] if file.size >= WIDE_BYTES else []
        if dense:
            columns = {name: self.numbers[name] for name in dense}
            yield Wide(frame=pl.DataFrame(self.index | columns), names={name: names[name] for name in dense})
        rest = [name for name in self.numbers if name not in set(dense)]
        if rest:
            frame = metric_frame(self.long(rest), file.rel)
            replacements = pl.Series([names[raw] for raw in rest], dtype=pl.String)
            name = pl.col("name_raw").replace_strict(rest, replacements, return_dtype=pl.String)
            yield Rows(table="metrics", frame=frame.with_columns(name=name))

    def _is_dense(self, name: str) -> bool:
        column = self.numbers[name]
        return _may_be_dense(name) and column.null_count() < (1 - DENSE) * len(column)


@lru_cache(maxsize=CACHED_NAMES)
def _may_be_dense(name: str) -> bool:
    """Return whether a metric may stand as a column: of training, and with no value that stands for another."""
    return split_of(name) == "train" and re.search(RATIO_BOUND, name) is None


def known_names(raws: list[str]) -> dict[str, str | None]:
    """Return the canonical names as the table of aliases has them."""
    return {raw: canonical(raw) for raw in raws}


def fast_block(
    block: bytes,
    *,
    wrappers: tuple[str, ...],
    steps: tuple[str, ...],
    times: tuple[str, ...],
    seq: int,
    schema: pl.Schema | None = None,
) -> Block | None:
    """Read a block of lines, or return None where the slow way has to judge.

    That is a block with null, which in columns looks like a missing key; with bare NaN, which polars refuses;
    with numbers among texts; where a line may name a key twice; and where rows differ in how they name the step.
    `schema`: of the block before.
    """
    if b"null" in block:
        return None
    wide = _read(block, schema)
    flat = None if wide is None else _flat(wide, wrappers)
    if wide is None or flat is None:
        return None
    step = next((name for name in steps if name in flat), None)
    if step is None or not flat[step].dtype.is_integer() or flat[step].null_count():
        return None
    clock = next((name for name in times if name in flat), None)
    seconds = pl.Series([None] * wide.height, dtype=pl.Float64) if clock is None else _seconds(flat[clock])
    if clock is not None and seconds.null_count():
        return None
    if any(column.dtype == pl.String() and name != clock and not _is_text(column) for name, column in flat.items()):
        return None
    numbers = {
        name: column.cast(pl.Float64)
        for name, column in flat.items()
        if name not in (step, clock) and (column.dtype.is_numeric() or column.dtype == pl.Boolean())
    }
    if not numbers:
        return None
    index = {
        "__step": flat[step].cast(pl.Int64, strict=False).alias("__step"),
        "__time": seconds.alias("__time"),
        "__seq": pl.int_range(seq, seq + wide.height, dtype=pl.Int64, eager=True).alias("__seq"),
    }
    if index["__step"].null_count() or not index.keys().isdisjoint(numbers):
        return None
    return Block(index=index, numbers=numbers, schema=wide.schema)


def _read(block: bytes, schema: pl.Schema | None) -> pl.DataFrame | None:
    """Parse the lines; by the schema of the block before where that loses nothing, which takes a third of the time."""
    for known, sampled in ((schema, FIRST_ROWS), (None, None)):
        try:
            wide = pl.read_ndjson(io.BytesIO(block), schema=known, infer_schema_length=sampled)
        except (pl.exceptions.PolarsError, OSError):  # bare NaN, ragged types or damage; or another type than before
            continue
        if _cells(wide) == block.count(b'":'):  # every key of every line came to stand in a cell, and none stood twice
            return wide
    return None


def _cells(frame: pl.DataFrame) -> int:
    """Count the cells that hold something; a nested object counts, and so do its fields."""
    count = 0
    for column in frame.iter_columns():
        count += len(column) - column.null_count()
        if isinstance(column.dtype, pl.Struct):
            count += _cells(column.struct.unnest())
    return count


def _seconds(column: pl.Series) -> pl.Series:
    """Return seconds since the epoch; null where there is no such time."""
    if column.dtype == pl.String():
        try:
            instants = column.str.to_datetime(ISO, time_unit="us", time_zone="UTC", strict=True)
            return instants.dt.epoch("us") / 1e6
        except pl.exceptions.PolarsError:  # another spelling, or none
            pass
    return pl.Series([as_seconds(at) for at in column.to_list()], dtype=pl.Float64)


def _flat(wide: pl.DataFrame, wrappers: tuple[str, ...]) -> dict[str, pl.Series] | None:
    """Join the names of nested fields with slashes; None if two columns come out under one name."""
    flat: dict[str, pl.Series] = {}
    pending = [(name, wide[name], "" if name in wrappers else f"{name}/") for name in wide.columns]
    while pending:
        name, column, below = pending.pop()
        if isinstance(column.dtype, pl.Struct):
            inner = ((f"{below}{field}", column.struct.field(field)) for field in column.struct.fields)
            pending += [(joined, child, f"{joined}/") for joined, child in inner]
        elif name in flat:
            return None
        else:
            flat[name] = column
    return flat


def _is_text(column: pl.Series) -> bool:
    """Return whether no cell is a number, which a text column gets where another row spells out its NaN."""
    cells = column.drop_nulls().unique()
    return not (cells.str.to_lowercase().is_in(SPELT).any() or cells.cast(pl.Float64, strict=False).count())


WRAPPERS = ("data", "metrics")  # objects that hold the whole log call and are no part of its names
MAX_TEXT_CHARS = 200  # a metric row may name its run or host; it holds no prose
MAX_LIST_LENGTH = 64  # nor the tokens of a sequence


@dataclass(frozen=True)
class MetricRow:
    """One log call: what was measured at a step."""

    step: int
    wall_time: float | None
    values: dict[str, float | None]


def metric_row(found: dict[str, Any]) -> MetricRow | None:
    """Read one object as a log call; None if it has no step."""
    flat = flatten({key: value for key, value in found.items() if key not in WRAPPERS})
    for wrapper in WRAPPERS:
        inner = found.get(wrapper)
        flat |= flatten(inner) if isinstance(inner, dict) else {}
    used = next((key for key in STEP_KEYS if key in flat), "")
    step = as_step(flat.get(used))
    if step is None:
        return None
    times = ((key, as_seconds(flat[key])) for key in TIME_KEYS if key in flat)
    clock, wall_time = next((pair for pair in times if pair[1] is not None), ("", None))
    del flat[used]
    flat.pop(clock, None)
    return MetricRow(step, wall_time, metric_values(flat))


def is_metric_object(found: dict[str, Any]) -> bool:
    """Return whether keys and sizes of the values are those of a log call, not of a sample, a trace or a config."""
    if not SAMPLE_KEYS.isdisjoint(found) or {"step", "timestamp", "metrics"} <= found.keys():
        return False
    for value in flatten(found).values():
        if isinstance(value, str) and len(value) > MAX_TEXT_CHARS:
            return False
        if isinstance(value, list) and len(value) > MAX_LIST_LENGTH:
            return False
    row = metric_row(found)
    return row is not None and any(value is not None for value in row.values.values())


def is_closing(found: dict[str, Any]) -> bool:
    """Return whether this is the summary that ms-swift puts behind its last row, with the whole history once more."""
    return "log_history" in found and "step" not in found


def recognises(file: RunFile) -> bool:
    """Recognise line files that begin with log calls and nothing else."""
    records = [row for row in first_objects(file) if not is_closing(row)]
    return bool(records) and all(map(is_metric_object, records))


def _framework(block: bytes) -> str | None:
    """Name the framework where the shape of the first row leaves no doubt."""
    record = json_object(block.split(b"\n", 1)[0]) or {}
    if record.keys() == {"step", "data"} and isinstance(record["data"], dict):
        return "verl"
    if "global_step/max_steps" in record:
        return "ms-swift"
    if {"training_step", "recorded_at"} <= record.keys():
        return "art"
    own = ("mismatch_kl/", "optim/", "perf/", "off_policy/")
    if {"step", "time"} <= record.keys() and any(name.startswith(own) for name in record):
        return "prime-rl"
    return framework_of(flatten(record))


def read(file: RunFile) -> Iterator[Piece]:
    """Yield metrics block by block; lines that are no log call are counted."""
    framework: str | None = None
    columns = MetricColumns(file)
    schema = None
    seq, counts = 0, {NO_JSON: 0, NO_STEP: 0}
    for block in blocks(file):
        if isinstance(block, Lost):
            yield block
            continue
        quick = fast_block(block, wrappers=WRAPPERS, steps=STEP_KEYS, times=TIME_KEYS, seq=seq, schema=schema)
        if quick is not None:
            framework = framework or _framework(block)
            seq, schema = quick.behind, quick.schema
            yield from quick.pieces(file, known_names)
            continue
        framework = framework or _framework(block)
        for record in block_objects(file, block):
            if isinstance(record, Lost):
                yield record
            elif record is None:
                counts[NO_JSON] += 1
            elif (row := metric_row(record)) is None:
                counts[NO_STEP] += not is_closing(record)
            else:
                for name, value in row.values.items():
                    columns.add(row.step, name, value, row.wall_time, seq)
                seq += 1
        yield from columns.pieces()
    yield from lost_notes(file, counts)
    yield from framework_facts(framework)


PARSER = Parser(
    name="metrics_jsonl",
    describes="Metric logs as JSON lines (veRL's file logger, prime-rl, ART, Tinker, home-made): metrics.",
    priority=20,
    recognises=recognises,
    read=read,
)
