"""Recorder files in Parquet: per-token log-probabilities that already lie in canonical columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import polars as pl
import pyarrow as pa
import pyarrow.types as pat

from ptt.diagnostics.errors import first_line
from ptt.diagnostics.parsers.io.interface import InPlace, Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.parquet_files import (
    DAMAGE,
    check_sequences,
    cut_note,
    is_cut,
    layout_of,
    polars_schema,
    schema_of,
)
from ptt.diagnostics.schema import LOGPS, SEQUENCES

REQUIRED = ("step", "model_mask")
PAIR = 2  # a ratio needs two log-probabilities
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
    **dict.fromkeys((*LOGPS, "entropy", "advantage"), (_list_of(pat.is_floating), "list<float>")),
    "policy_version": (pat.is_integer, "an integer"),
}
# Allowed by the recorder format, but of no use as a column: one advantage a sequence, one version a token.
ALLOWED_BESIDE: dict[str, TypeTest] = {"advantage": _number, "policy_version": _list_of(pat.is_integer)}


def has_recorder_keys(names: set[str]) -> bool:
    """Return whether these are the columns of a recorder file."""
    return set(REQUIRED) <= names and len(names.intersection(LOGPS)) >= PAIR


def recognises(file: RunFile) -> bool:
    """Recognise a file by the columns, or, where the footer is gone, by the place such files are written to."""
    if not file.name.endswith(".parquet") or not is_cut(file):
        return False
    footer = schema_of(file)
    if footer is None:
        return file.path.parent.name == "tokens" or file.name.startswith("step_")
    return has_recorder_keys(set(footer[0].names))


def read(file: RunFile) -> Iterator[Piece]:
    """Yield the file to be scanned where it lies, and a sentence for each column that cannot be used."""
    footer = schema_of(file)
    if footer is None:
        yield cut_note(file)
        return
    schema, rows = footer
    try:  # Polars scans it where it lies, and knows fewer schemas than Arrow: a name twice, one that is no text
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
    if missing or len(set(usable).intersection(LOGPS)) < PAIR:
        reason = f"no usable {' and '.join(missing)}" if missing else "fewer than two usable log-probabilities"
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


PARSER = Parser(
    name="recorder",
    describes="Recorder files in Parquet: log-probabilities token by token, scanned where they lie.",
    held_against="real: `ptt.recorders` inside TRL 1.16 runs, and the sample runs",
    priority=10,
    recognises=recognises,
    read=read,
)
