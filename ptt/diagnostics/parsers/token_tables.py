"""Token dumps of anyone's hook as tables: Parquet or JSON lines with the names that TRL, veRL or recorders give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import polars as pl

from ptt.diagnostics.parsers import recorder
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile, count_notes
from ptt.diagnostics.parsers.io.lines import first_objects, object_blocks
from ptt.diagnostics.parsers.io.parquet_files import DAMAGE, batches, is_cut, schema_of
from ptt.diagnostics.parsers.io.token_dumps import MASKS, NAMED_LOGPS, Batch, Sample, samples_of, sequences, step_named
from ptt.diagnostics.parsers.io.values import as_step
from ptt.diagnostics.schema import LOGPS as OURS

BATCH_ROWS: Final = 256
NO_MASK: Final = "row(s) skipped: no usable mask."
Row = dict[str, Any]


def recognises(file: RunFile) -> bool:
    """Recognise a file by the columns, or the keys of the first rows, unless they are a recorder's."""
    if file.name.endswith(".parquet"):
        footer = schema_of(file) if is_cut(file) else None
        names = set(footer[0].names) if footer is not None else set()
        return _has_token_columns(names) and not recorder.recognises_parquet(file)
    objects = first_objects(file, 1)
    return bool(objects) and _has_token_columns(set(objects[0])) and not recorder.recognises_jsonl(file)


def _has_token_columns(names: set[str]) -> bool:
    """Return whether they name a mask and a logprob, not all as a recorder would."""
    matched = names.intersection(MASKS), names.intersection(NAMED_LOGPS)
    return all(matched) and not matched[0].union(matched[1]) <= {"model_mask", *OURS}


def read(file: RunFile) -> Iterator[Piece]:
    """Yield the sequences, some rows at a time; rows whose lists do not fit together are counted."""
    bad = 0
    for rows in _parquet(file) if file.name.endswith(".parquet") else _lines(file):
        if isinstance(rows, Lost):
            yield rows
            continue
        samples = [sample for row in rows if (sample := _sample(row, file)) is not None]
        bad += len(rows) - len(samples)
        yield from sequences(file, samples)
    yield from count_notes(file, {NO_MASK: bad}, lost=(NO_MASK,))


def _sample(row: Row, file: RunFile) -> Sample | None:
    step = as_step(row.get("step"))
    batch: Batch = {name: _entry(value) for name, value in row.items()}
    samples = samples_of(batch, step if step is not None else step_named(file.path))
    return samples[0] if samples else None


def _entry(value: Any) -> Any:
    """Return a list of one row, or an array of one number, as a batch of one sequence holds them."""
    if isinstance(value, list):
        return [_array(value)]
    return np.array([float(value)]) if type(value) is float else [value]


def _array(values: list[Any]) -> Any:
    """Return an array of numbers; what is missing is NaN, and what is no number makes the list useless."""
    try:
        array = np.asarray([np.nan if value is None else value for value in values])
    except (ValueError, OverflowError, TypeError):  # lists in it, or integers beyond any array
        return None
    return array if array.ndim == 1 and array.dtype.kind in "biuf" else None


def _parquet(file: RunFile) -> Iterator[list[Row] | Lost]:
    done = total = 0
    try:
        footer = schema_of(file)
        columns, total = ([], 0) if footer is None else (list(footer[0].names), footer[1])
        for batch in batches(file, columns, rows=BATCH_ROWS):
            rows = pl.DataFrame(batch).to_dicts()
            done += len(rows)
            yield rows
    except (*DAMAGE, pl.exceptions.PolarsError):  # a data page is damaged: keep what was read before it
        yield Lost(rows=max(0, total - done), note=f"{file.rel}: its data is damaged; rows lost: {total - done}.")


def _lines(file: RunFile) -> Iterator[list[Row] | Lost]:
    for block in object_blocks(file):
        entries = list(block)
        yield from (entry or Lost(rows=1) for entry in entries if not isinstance(entry, dict))
        yield [entry for entry in entries if isinstance(entry, dict)]


PARSER = Parser(
    name="token_tables",
    describes="Token dumps of a hook as Parquet or JSON lines by the names TRL, veRL or recorders give: "
    "log-probabilities token by token.",
    held_against="real: dumps of TRL 1.16 runs",
    priority=21,
    recognises=recognises,
    read=read,
)
