"""Recorder files: per-token log-probabilities that already lie in canonical columns, in Parquet or as JSON lines.

A file with one log-probability gives no ratio, but rewards, advantages, groups, masks and entropies all the same.
Parquet is scanned where it lies; lines, plain or compressed, are read block by block.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.types as pat

from ptt.diagnostics.errors import first_line
from ptt.diagnostics.parsers.io.interface import InPlace, Lost, Parser, Piece, Rows, RunFile, count_notes
from ptt.diagnostics.parsers.io.lines import blocks, first_objects, is_torn, json_object, torn_line
from ptt.diagnostics.parsers.io.parquet_files import (
    DAMAGE,
    check_sequences,
    cut_note,
    is_cut,
    layout_of,
    polars_schema,
    schema_of,
)
from ptt.diagnostics.parsers.io.token_dumps import MASKS as NAMED_MASKS
from ptt.diagnostics.parsers.io.token_dumps import NAMED_LOGPS
from ptt.diagnostics.parsers.io.values import INT32, as_number, as_step
from ptt.diagnostics.schema import ADVANTAGE, COMPONENT, FIGURE, LOGPS, SEQUENCES

REQUIRED = ("step", "model_mask")
PAIR = 2  # a ratio needs two log-probabilities
FOREIGN = frozenset((*NAMED_MASKS, *NAMED_LOGPS)) - {"model_mask", *LOGPS}
COLUMNS = "recorder's columns"  # among the looks at a schema

TypeTest = Callable[[pa.DataType], bool]


def _text(kind: pa.DataType) -> bool:
    if pat.is_dictionary(kind):
        kind = kind.value_type
    return bool(pat.is_string(kind) or pat.is_large_string(kind) or pat.is_string_view(kind))


def _identifier(kind: pa.DataType) -> bool:
    return _text(kind) or bool(pat.is_integer(kind))  # many recorders number their samples


def _number(kind: pa.DataType) -> bool:
    return bool(pat.is_floating(kind) or pat.is_integer(kind))


def _list_of(inner: TypeTest) -> TypeTest:
    def test(kind: pa.DataType) -> bool:
        is_list = pat.is_list(kind) or pat.is_large_list(kind) or pat.is_fixed_size_list(kind)
        return bool(is_list) and inner(kind.value_type)

    return test


def _mask_value(kind: pa.DataType) -> bool:
    return bool(pat.is_boolean(kind) or pat.is_integer(kind))


WANTED: dict[str, tuple[TypeTest, str]] = {
    "step": (pat.is_integer, "an integer"),
    **dict.fromkeys(("sample_id", "group_id", "trajectory_id"), (_identifier, "string")),
    **dict.fromkeys(("env", "logp_kind"), (_text, "string")),
    "rank": (pat.is_integer, "an integer"),
    **dict.fromkeys(("reward", "temperature", "top_p"), (_number, "a number")),
    "tool_names": (_list_of(_text), "list<string>"),
    "tool_failed": (_list_of(_mask_value), "list<bool>"),
    "token_ids": (_list_of(pat.is_integer), "list<int32>"),
    **dict.fromkeys(("model_mask", "train_mask"), (_list_of(_mask_value), "list<bool>")),
    **dict.fromkeys((*LOGPS, "entropy", "advantage", "value", "return"), (_list_of(pat.is_floating), "list<float>")),
    "policy_version": (pat.is_integer, "an integer"),
}
# Allowed by the recorder format, but of no use as a column: one number a sequence, one version a token.
ALLOWED_BESIDE: dict[str, TypeTest] = {
    **dict.fromkeys(("entropy", "advantage", "value", "return"), _number),
    "policy_version": _list_of(pat.is_integer),
}


def has_recorder_keys(names: set[str]) -> bool:
    """Return whether these are the columns of a recorder file.

    One log-probability will do, unless a framework's name stands beside it, as in a dump of a hook.
    """
    own = len(names.intersection(LOGPS))
    return set(REQUIRED) <= names and (own >= PAIR or (own > 0 and FOREIGN.isdisjoint(names)))


def recognises_parquet(file: RunFile) -> bool:
    """Recognise a file by the columns, or, where the footer is gone, by the place such files are written to."""
    if not file.name.endswith(".parquet") or not is_cut(file):
        return False
    footer = schema_of(file)
    if footer is None:
        return file.path.parent.name == "tokens" or file.name.startswith("step_")
    return has_recorder_keys(set(footer[0].names))


def read_parquet(file: RunFile) -> Iterator[Piece]:
    """Yield the file to be scanned where it lies, and a sentence for each column that cannot be used."""
    footer = schema_of(file)
    if footer is None:
        yield cut_note(file)
        return
    schema, rows = footer
    try:  # Polars scans it in place, and knows fewer schemas than Arrow: no repeated name, none that is not text
        polars_schema(file)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        note = f"{file.rel}: its columns cannot be read ({first_line(error)}); rows skipped: {rows}."
        yield Lost(rows=rows, bytes=file.size, note=note)
        return
    looks = layout_of(file).looks
    if COLUMNS not in looks:
        looks[COLUMNS] = usable_columns(schema)
    usable, left_out, texts = looks[COLUMNS]
    for why in left_out:
        yield Lost(note=f"{file.rel}: column {why}")
    missing = [name for name in REQUIRED if name not in usable]
    if missing or not set(usable).intersection(LOGPS):
        reason = f"no usable {' and '.join(missing)}" if missing else "no usable log-probability"
        yield Lost(rows=rows, bytes=file.size, note=f"{file.rel}: {reason}; rows skipped: {rows}.")
        return
    try:
        check_sequences(file, [*usable, *texts], "model_mask")
    except DAMAGE:
        yield Lost(rows=rows, bytes=file.size, note=f"{file.rel}: its pages are damaged, so all its rows are lost.")
        return
    yield InPlace(rows=rows, columns=usable, texts=texts)


def usable_columns(schema: pa.Schema) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the usable canonical columns of a schema, why others are left out, and all columns of texts."""
    usable: list[str] = []
    left_out: list[str] = []
    for name in SEQUENCES:
        places = schema.get_all_field_indices(name)
        if not places:
            continue
        test, wanted = WANTED[name]
        kind = schema.field(places[0]).type
        if len(places) > 1:
            left_out.append(f"{name} occurs {len(places)} times and was left out.")
        elif test(kind):
            usable.append(name)
        elif not (beside := ALLOWED_BESIDE.get(name)) or not beside(kind):
            left_out.append(f"{name} is {kind}, not {wanted}; it was left out.")
    return tuple(usable), tuple(left_out), tuple(field.name for field in schema if of_texts(field.type))


def of_texts(kind: pa.DataType) -> bool:
    """Return whether a column holds texts, alone, in a dictionary or in lists of any kind."""
    lists = pat.is_list(kind) or pat.is_large_list(kind) or pat.is_fixed_size_list(kind)
    inner = kind.value_type if lists else kind
    inner = inner.value_type if pat.is_dictionary(inner) else inner
    return bool(pat.is_string(inner) or pat.is_large_string(inner) or pat.is_string_view(inner))


PARQUET = Parser(
    name="recorder",
    describes="Recorder files in Parquet: log-probabilities token by token, scanned where they lie.",
    held_against="real: `ptt.recorders` inside TRL 1.16 runs, and the sample runs",
    priority=10,
    recognises=recognises_parquet,
    read=read_parquet,
)


MASKS = ("model_mask", "train_mask", "tool_failed")
IDS = ("sample_id", "group_id", "trajectory_id")
MAX_FIGURES = 17  # of a sequence: an advantage and sixteen components; with more, the table is something else
UNUSABLE = "row(s) skipped: no usable step, mask or log-probabilities."


def recognises_jsonl(file: RunFile) -> bool:
    """Recognise a file by the keys of the first rows."""
    return any(has_recorder_keys(set(record)) for record in first_objects(file))


def read_jsonl(file: RunFile) -> Iterator[Piece]:
    """Yield sequences block by block; rows that cannot be used are counted.

    In a file whose first rows have two log-probabilities, each row has to.
    """
    bad = 0
    least = min(PAIR, max((len(record.keys() & set(LOGPS)) for record in first_objects(file)), default=PAIR))
    for block in blocks(file):
        if isinstance(block, Lost):
            yield block
            continue
        frame = _fast(block, least)
        if frame is None:
            frame, wrong = _by_line(block, least)
            if wrong and is_torn(block):
                yield torn_line(file, block)
            else:
                bad += wrong
        if frame.height:
            yield Rows(table="sequences", frame=frame)
    yield from count_notes(file, {UNUSABLE: bad}, lost=(UNUSABLE,))


def _fast(block: bytes, least: int) -> pl.DataFrame | None:
    """Let polars read the whole block; None if a line differs from the first: polars does not say which."""
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
        & (pl.sum_horizontal(pl.col(name).is_not_null() for name in LOGPS if name in shape) >= least)
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


def _by_line(block: bytes, least: int) -> tuple[pl.DataFrame, int]:
    """Read line by line; return the rows that have the required fields, and the count of the others."""
    records = [json_object(line) for line in filter(bytes.strip, block.split(b"\n"))]
    rows = [row for record in records if record is not None and (row := _row(record, least)) is not None]
    columns = {
        name: pl.Series([row.get(name) for row in rows], dtype=kind)
        for name, kind in (SEQUENCES | _figure_columns(rows)).items()
        if any(row.get(name) is not None for row in rows)
    }
    return pl.DataFrame(columns), len(records) - len(rows)


def _row(record: dict[str, Any], least: int) -> dict[str, Any] | None:
    """Convert one object; None unless its step, its mask and `least` log-probabilities can be used."""
    row = {name: _converted(name, record[name]) for name in SEQUENCES if name in record}
    row |= {COMPONENT + part: value for part, value in _parts(record).items()}
    row[ADVANTAGE] = as_number(record.get("advantage"))
    if row.get("step") is None or row.get("model_mask") is None:
        return None
    return row if sum(row.get(name) is not None for name in LOGPS) >= least else None


def _parts(record: dict[str, Any]) -> dict[str, float | None]:
    """Return the components of the reward by name."""
    rewards = record.get("rewards")
    return {str(part): as_number(value) for part, value in rewards.items()} if isinstance(rewards, dict) else {}


def _figure_columns(rows: list[dict[str, Any]]) -> dict[str, pl.DataType]:
    names = dict.fromkeys(name for row in rows for name in row if name.startswith(FIGURE))
    return {name: pl.Float64() for name in list(names)[:MAX_FIGURES]}


def _converted(name: str, value: Any) -> Any:
    """Convert a value to its column's type; None if it is of another kind."""
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


JSONL = Parser(
    name="recorder_jsonl",
    describes="Recorder files as JSON lines, plain, gzip or zstd: log-probabilities token by token.",
    held_against="source: docs/recorder.md",
    priority=10,
    recognises=recognises_jsonl,
    read=read_jsonl,
)
