"""Recorder files as JSON lines, plain or compressed: rows like those in Parquet, read block by block."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import polars as pl

from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, Rows, RunFile, count_notes
from ptt.diagnostics.parsers.io.lines import blocks, first_objects, is_torn, json_object, torn_line
from ptt.diagnostics.parsers.io.values import INT32, as_number, as_step
from ptt.diagnostics.parsers.recorder import PAIR, has_recorder_keys
from ptt.diagnostics.schema import ADVANTAGE, COMPONENT, FIGURE, LOGPS, SEQUENCES

MASKS = ("model_mask", "train_mask", "tool_failed")
IDS = ("sample_id", "group_id", "trajectory_id")
MAX_FIGURES = 17  # of a sequence: an advantage and sixteen components; more are a table of something else
UNUSABLE = "row(s) skipped: no usable step, mask or pair of log-probabilities."


def recognises(file: RunFile) -> bool:
    """Recognise a file by the keys of the first rows."""
    return any(has_recorder_keys(set(record)) for record in first_objects(file))


def read(file: RunFile) -> Iterator[Piece]:
    """Yield sequences block by block; rows that cannot be used are counted."""
    bad = 0
    for block in blocks(file):
        if isinstance(block, Lost):
            yield block
            continue
        frame = _fast(block)
        if frame is None:
            frame, wrong = _by_line(block)
            if wrong and is_torn(block):
                yield torn_line(file, block)
            else:
                bad += wrong
        if frame.height:
            yield Rows(table="sequences", frame=frame)
    yield from count_notes(file, {UNUSABLE: bad}, lost=(UNUSABLE,))


def _fast(block: bytes) -> pl.DataFrame | None:
    """Let polars read the whole block; None if a line is unlike the first, of which it says no more."""
    first = json_object(block[: block.find(b"\n") + 1])
    if first is None:
        return None
    shape: dict[str, pl.DataType] = {}
    for name, kind in SEQUENCES.items():
        value = first.get(name)
        shape[name] = kind
        if isinstance(kind, pl.List) and not isinstance(value, list) and value is not None:
            del shape[name]  # one advantage a sequence; a foreign type is judged by the other way
            if name == "advantage" and as_number(value) is not None:
                shape[name] = pl.Float64()
        elif name in MASKS and isinstance(value, list) and not any(isinstance(entry, bool) for entry in value):
            shape[name] = pl.List(pl.Int64())
        elif name in IDS and isinstance(value, int):
            shape[name] = pl.Int64()
        elif name == "policy_version" and isinstance(value, list):
            del shape[name]
    if parts := [part for part, value in _parts(first).items() if value is not None]:
        shape["rewards"] = pl.Struct({part: pl.Float64() for part in parts})
    if "model_mask" not in shape:
        return None  # the first row's mask is no list
    try:
        frame = pl.read_ndjson(io.BytesIO(block), schema=shape)
    except (pl.exceptions.PolarsError, OSError):  # bare NaN, ragged types or damage: some line needs a closer look
        return None
    usable = frame.select(
        (pl.col("step").is_not_null() & pl.col("model_mask").is_not_null())
        & (pl.sum_horizontal(pl.col(name).is_not_null() for name in LOGPS if name in shape) >= PAIR)
    ).to_series()
    return _cast(frame) if usable.all() else None


def _cast(frame: pl.DataFrame) -> pl.DataFrame:
    """Bring the columns that hold anything to the types of the schema."""
    kept = [name for name in frame.columns if frame[name].null_count() < frame.height]
    casts = []
    for name in kept:
        if name == "rewards":
            fields = frame[name].struct.fields
            casts += [pl.col(name).struct.field(field).alias(COMPONENT + field) for field in fields]
            continue
        if name == "advantage" and frame.schema[name] == pl.Float64():
            casts.append(pl.col(name).alias(ADVANTAGE))
            continue
        column = pl.col(name)
        if name in MASKS and frame.schema[name] != SEQUENCES[name]:
            column = column.list.eval(pl.element() != 0)
        casts.append(column.cast(SEQUENCES[name]))
    return frame.select(casts)


def _by_line(block: bytes) -> tuple[pl.DataFrame, int]:
    """Read line by line; return the rows that hold what a row must hold, and the count of the others."""
    records = [json_object(line) for line in filter(bytes.strip, block.split(b"\n"))]
    rows = [row for record in records if record is not None and (row := _row(record)) is not None]
    columns = {
        name: pl.Series([row.get(name) for row in rows], dtype=kind)
        for name, kind in (SEQUENCES | _figure_columns(rows)).items()
        if any(row.get(name) is not None for row in rows)
    }
    return pl.DataFrame(columns), len(records) - len(rows)


def _row(record: dict[str, Any]) -> dict[str, Any] | None:
    """Convert one object; None if its step, mask or log-probabilities cannot be used."""
    row = {name: _converted(name, record[name]) for name in SEQUENCES if name in record}
    row |= {COMPONENT + part: value for part, value in _parts(record).items()}
    row[ADVANTAGE] = as_number(record.get("advantage"))
    if row.get("step") is None or row.get("model_mask") is None:
        return None
    return row if sum(row.get(name) is not None for name in LOGPS) >= PAIR else None


def _parts(record: dict[str, Any]) -> dict[str, float | None]:
    """Return the components of the reward by name."""
    rewards = record.get("rewards")
    return {str(part): as_number(value) for part, value in rewards.items()} if isinstance(rewards, dict) else {}


def _figure_columns(rows: list[dict[str, Any]]) -> dict[str, pl.DataType]:
    names = dict.fromkeys(name for row in rows for name in row if name.startswith(FIGURE))
    return {name: pl.Float64() for name in list(names)[:MAX_FIGURES]}


def _converted(name: str, value: Any) -> Any:
    """Bring one value to the type of its column; None if it is of another kind."""
    kind = SEQUENCES[name]
    if isinstance(kind, pl.List):
        return _converted_list(name, value) if isinstance(value, list) else None
    if kind == pl.String():
        return str(value) if isinstance(value, str) or (name in IDS and type(value) is int) else None
    if kind == pl.Float64():
        return as_number(value)
    step = as_step(value)
    return step if step is not None and (kind == pl.Int64() or -INT32 <= step < INT32) else None


def _converted_list(name: str, values: list[Any]) -> list[Any] | None:
    kinds = {type(value) for value in values if value is not None}
    if name in MASKS:
        return [None if value is None else bool(value) for value in values] if kinds <= {bool, int} else None
    if name == "tool_names":
        return values if kinds <= {str} else None
    if name == "token_ids":
        fits = kinds <= {int} and all(-INT32 <= value < INT32 for value in values if value is not None)
        return values if fits else None
    if kinds <= {float}:
        return values
    return [as_number(value) for value in values] if kinds <= {float, int} else None


PARSER = Parser(
    name="recorder_jsonl",
    describes="Recorder files as JSON lines, plain, gzip or zstd: log-probabilities token by token.",
    held_against="source: docs/recorder.md",
    priority=10,
    recognises=recognises,
    read=read,
)
