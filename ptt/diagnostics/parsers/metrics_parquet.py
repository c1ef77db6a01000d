"""Metric tables as Parquet: W&B's history exports, trackio's, and home-made ones, wide or long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import polars as pl
import pyarrow as pa
import pyarrow.types as pat

from ptt.diagnostics.metrics.aliases import framework_of
from ptt.diagnostics.parsers.io.counters import COUNTERS, Unit, choose_counter, count_name, is_counter_name
from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, Rows, RunFile
from ptt.diagnostics.parsers.io.metric_logs import is_training_name
from ptt.diagnostics.parsers.io.metric_rows import (
    SAMPLE_KEYS,
    STEP_KEYS,
    TIME_KEYS,
    TRACKER_COLUMNS,
    UNNUMBERED,
    fill_steps,
    framework_facts,
    metric_frame,
    metric_names,
)
from ptt.diagnostics.parsers.io.parquet_files import DAMAGE, MAX_COLUMNS, batches, cut_note, frame_of, schema_of
from ptt.diagnostics.parsers.io.telemetry import MachineLog
from ptt.diagnostics.parsers.io.values import as_step, as_value
from ptt.diagnostics.wording import counted

SYSTEM = "_system.parquet"  # trackio's samples of the machine: without a step
RUN = "run_name"  # trackio's: its `step` counts log calls, and one file holds the runs of a project
NAME_KEYS = ("metric", "name", "key", "tag")
BATCH_ROWS = 65_536
SAMPLED_ROWS = 2000  # used to find what counts the rows
CELL_BYTES = 256  # for a value with its name, step and time, while a batch becomes rows
VALUE_BYTES = 2  # on disk; real exports take 4 and more, whatever they are packed with
STORED_BYTES = 512  # for a value in later stages; what the file's own size accounts for is left out


@dataclass(frozen=True)
class _Layout:
    step: str | None
    time: str | None
    name: str | None  # set where the table is long
    values: tuple[str, ...]
    unit: Unit = "step"


FLAT = (pat.is_integer, pat.is_floating, pat.is_boolean, pat.is_string, pat.is_large_string, pat.is_null)


def _is_flat(kind: pa.DataType) -> bool:
    return any(test(kind) for test in FLAT)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pat.is_string(kind) or pat.is_large_string(kind))


def _layout(schema: pa.Schema, *, stepless: bool) -> _Layout | None:
    """Find step, time and values by name and type; None if the table holds no metrics."""
    names = list(schema.names)
    if len(set(names)) < len(names) or len(names) > MAX_COLUMNS or SAMPLE_KEYS & set(names):
        return None
    flat = {name for name in names if _is_flat(schema.field(name).type)}
    steps = (key for key in _step_order(flat) if key in flat and not pat.is_null(schema.field(key).type))
    step = None if stepless else next(steps, None)
    if step is None and not stepless:
        return _counted_layout(schema, flat)
    time = next((key for key in TIME_KEYS if key in names), None)
    if step is None and not (stepless and time):
        return None
    name = next((key for key in NAME_KEYS if key in flat and _is_text(schema.field(key).type)), None)
    if name is not None and "value" in flat:
        return _Layout(step, time, name, ("value",))
    counts = {"step"} if RUN in names else set()
    values = tuple(key for key in names if key in flat and key not in {step, time} | TRACKER_COLUMNS | counts)
    numeric = any(not _is_text(schema.field(key).type) for key in values)
    return _Layout(step, time, None, values) if values and numeric else None


def _counted_layout(schema: pa.Schema, flat: set[str]) -> _Layout | None:
    """Find another counter than a tracker's step, in a table that names quantities of training."""
    whole = [name for name in schema.names if pat.is_integer(schema.field(name).type) and is_counter_name(name)]
    ranked = sorted((COUNTERS[count_name(name)], name) for name in whole)
    values = tuple(name for name in schema.names if name in flat and name not in whole and name not in TIME_KEYS)
    numbers = [name for name in values if not _is_text(schema.field(name).type)]
    known = any(is_training_name(name) for name in numbers) and 2 * len(numbers) >= len(values)
    if not ranked or not known or ranked[0][0][1] == "row" or len(flat) < len(schema.names):
        return None
    (_, unit), step = ranked[0]
    time = next((key for key in TIME_KEYS if key in flat), None)
    return _Layout(step, time, None, (*values, *(name for name in whole if name != step)), unit)


def _step_order(names: set[str]) -> tuple[str, ...]:
    """Prefer the trainer's counter where `step` is a tracker's count of log calls."""
    if not {"_step", RUN} & names:
        return STEP_KEYS
    return (*(key for key in STEP_KEYS if key not in ("step", "_step")), "step", "_step")


def recognises(file: RunFile) -> bool:
    """Recognise a flat table with a step and numbers."""
    if not file.name.lower().endswith(".parquet"):
        return False
    footer = schema_of(file)
    return footer is not None and _layout(footer[0], stepless=_is_machine(file)) is not None


def read(file: RunFile) -> Iterator[Piece]:
    """Yield metrics batch by batch, or samples of the machine."""
    footer = schema_of(file)
    if footer is None:
        yield cut_note(file)
        return
    layout = _layout(footer[0], stepless=_is_machine(file))
    if layout is None:
        yield Lost(bytes=file.size, note=f"{file.rel}: no step column, or no column of numbers.")
        return
    wanted = [name for name in (layout.step, layout.time, layout.name, *layout.values) if name is not None]
    flat = {name for name in footer[0].names if _is_flat(footer[0].field(name).type)}
    wanted += [name for name in ("_step", RUN) if name in flat and name not in wanted]
    done = bad = values = 0
    names: set[str] = set()
    try:
        run, others = _largest_run(file, RUN in wanted)
        if others:
            yield Lost(note=f"{file.rel} contains several runs; only the largest was read (rows left out: {others}).")
        layout = _checked(file, layout, wanted)
        for batch in batches(file, wanted, rows=BATCH_ROWS, cell=CELL_BYTES):
            rows = frame_of(batch)
            rows = rows.filter(pl.col(RUN) == run) if others else rows
            entries, wrong = _entries(rows, layout, file, done)
            done += batch.num_rows
            bad += wrong
            values += entries.height
            file.budget.take(nbytes=(values - file.size // VALUE_BYTES) * STORED_BYTES, what="a table of its metrics")
            names.update(entries["name_raw"].unique())
            yield from _machine(file, entries) if _is_machine(file) else _metrics(file, entries, layout)
    except (*DAMAGE, pl.exceptions.PolarsError):  # a data page is damaged: keep what was read before it
        lost = max(0, footer[1] - done)
        yield Lost(rows=lost, note=f"{file.rel}: its data is damaged; rows lost: {lost} of {footer[1]}.")
    if bad:
        yield Lost(rows=bad, note=f"{file.rel}: {counted(bad, 'row(s)')} skipped: no step.")
    yield from framework_facts(framework_of(names))
    if layout.unit != "step" and names:
        yield Context(facts={"row_unit": layout.unit})


def _is_machine(file: RunFile) -> bool:
    return file.name.endswith(SYSTEM)


def _checked(file: RunFile, layout: _Layout, wanted: list[str]) -> _Layout:
    """Number the rows of a table whose counter counts nothing: it falls, or many rows share a count."""
    if (layout.unit == "step" and layout.step in STEP_KEYS) or layout.step is None:
        return layout
    first = next(batches(file, wanted, rows=SAMPLED_ROWS, cell=CELL_BYTES), None)
    counter = choose_counter([] if first is None else first.to_pylist())
    return replace(layout, step=next(iter(counter.keys), None), unit=counter.unit)


def _largest_run(file: RunFile, named: bool) -> tuple[object, int]:
    """Return the run with most rows, and the number of other runs' rows, which cannot join the same series."""
    if not named:
        return None, 0
    counts: Counter[object] = Counter()
    for batch in batches(file, [RUN], rows=BATCH_ROWS, cell=CELL_BYTES):
        part = pl.DataFrame(pa.Table.from_batches([batch])).get_column(RUN).value_counts(name="rows")
        counts.update(dict(part.iter_rows()))
        file.budget.take(nbytes=len(counts) * CELL_BYTES, what="a list of its runs")
    run = min(counts, key=lambda name: (-counts[name], name is not None, str(name)), default=None)
    return run, sum(counts.values()) - counts[run]


def _entries(table: pl.DataFrame, layout: _Layout, file: RunFile, seq: int) -> tuple[pl.DataFrame, int]:
    """Turn a batch into step, name, value and time, and count the rows without a step."""
    steps = [None if layout.step is None else as_step(cell) for cell in _cells(table, layout.step)]
    if layout.unit == "row":
        steps = list(range(seq + 1, seq + 1 + table.height))
    times = [file.seconds(cell) for cell in _cells(table, layout.time)]
    index = {
        "step": fill_steps(pl.Series(steps, dtype=pl.Int64), [] if layout.step in ("_step", "step") else table.columns),
        "wall_time": pl.Series(times, dtype=pl.Float64),
        "seq": pl.int_range(seq, seq + table.height, dtype=pl.Int64, eager=True),
    }
    bad = 0 if layout.step is None else index["step"].null_count()
    frames = []
    if layout.name is not None:
        frames.append(_column(index, table["value"], table[layout.name]))
    else:
        plain = metric_names(layout.values)
        for column, name in plain.items():
            names = pl.Series("name_raw", [name], dtype=pl.String).new_from_index(0, table.height)
            frames.append(_column(index, table[column], names))
    entries = pl.concat(frames).filter(pl.col("name_raw").is_not_null())
    if layout.step is not None:
        entries = entries.filter(pl.col("step").is_not_null())
    return entries.sort("seq", maintain_order=True), bad


def _cells(table: pl.DataFrame, name: str | None) -> list[object]:
    return [None] * table.height if name is None else table[name].to_list()


def _column(index: dict[str, pl.Series], values: pl.Series, names: pl.Series) -> pl.DataFrame:
    """Return the entries of one column; null is no value, and a text counts where it spells a number out."""
    if values.dtype == pl.String:
        values = pl.Series([_spelt(text) for text in values.to_list()], dtype=pl.Float64)
    frame = pl.DataFrame({**index, "name_raw": names.cast(pl.String), "value": values.cast(pl.Float64, strict=False)})
    return frame.filter(pl.col("value").is_not_null()).select("step", "name_raw", "value", "wall_time", "seq")


def _spelt(text: str | None) -> float | None:
    try:
        return as_value(text)
    except TypeError:  # a name, a date, a mode
        return None


def _metrics(file: RunFile, entries: pl.DataFrame, layout: _Layout) -> Iterator[Piece]:
    if layout.unit != "step":
        entries = entries.with_columns(name_raw=UNNUMBERED + pl.col("name_raw"))
    if entries.height:
        yield Rows(table="metrics", frame=metric_frame(entries, file.rel))


def _machine(file: RunFile, entries: pl.DataFrame) -> Iterator[Piece]:
    machine = MachineLog(file)
    for name, value, wall_time in entries.select("name_raw", "value", "wall_time").iter_rows():
        machine.add(None, wall_time, name, value)
    yield from machine.pieces()


PARSER = Parser(
    name="metrics_parquet",
    describes="Metric tables as Parquet (W&B history exports, trackio's exports, home-made), wide or long: metrics.",
    held_against="real: trackio 0.43's export; W&B's history export by source",
    priority=32,
    general=True,
    recognises=recognises,
    read=read,
)
