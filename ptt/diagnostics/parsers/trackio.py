"""Trackio: its SQLite store of a project, and the traces that it exports as Parquet.

Tables after `trackio/sqlite_storage.py` of gradio-app/trackio: metrics, settings, samples of the machine, alerts and
traces. The column `metrics` holds JSON as bytes, with NaN and infinities spelt out as texts; its `step` counts log
calls, so the trainer's own counter inside the JSON is preferred. Of several runs in one project the one with most log
calls counts, and the others are told.

Traces (at 2a02752, trackio/trace.py, `Trace`; `export_to_parquet` writes `{project}_traces.parquet`) hold messages of
the OpenAI shape and metadata, logged at a step. The metadata is the user's own: what it calls the reward, the task and
so on is taken at its word.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from ptt.diagnostics.parsers.io.answer_texts import success_of
from ptt.diagnostics.parsers.io.conversations import prompt_messages
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile, lost_notes
from ptt.diagnostics.parsers.io.lines import parse_json
from ptt.diagnostics.parsers.io.message_shapes import definitions_in
from ptt.diagnostics.parsers.io.metric_rows import (
    LOG_CALL,
    STEP_NAMES,
    MetricColumns,
    choose_step_key,
    flatten,
    metric_values,
)
from ptt.diagnostics.parsers.io.parquet_files import cut_note, is_cut, row_batches, schema_of
from ptt.diagnostics.parsers.io.setup_files import setup_context
from ptt.diagnostics.parsers.io.sqlite import of_database, rows, tables, tables_of
from ptt.diagnostics.parsers.io.telemetry import EventLog, MachineLog
from ptt.diagnostics.parsers.io.trajectories import EVALUATION, TRAINING, WORD, Sample, Samples, read_samples
from ptt.diagnostics.parsers.io.values import (
    as_count,
    as_flag,
    as_label,
    as_name,
    as_score,
    as_seconds,
    as_step,
    dict_of,
    dicts_in,
)

COLUMNS: Final = ("id", "step", "key", "trace_index", "messages", "metadata")
SQLITE_NEEDED = frozenset({"timestamp", "run_name", "step", "metrics"})
# `{run}` is the column that tells runs apart: `run_id`, and in older projects the name.
RUNS = "SELECT {run}, COUNT(*), MAX(id) FROM metrics GROUP BY {run} ORDER BY 2 DESC, 3 DESC"
CALLS = "SELECT timestamp, step, metrics FROM metrics WHERE {run} IS ? ORDER BY id"
MACHINE = "SELECT timestamp, metrics FROM system_metrics WHERE {run} IS ? ORDER BY id"
TRACE_ROWS = "SELECT id, step, key, trace_index, messages, metadata FROM traces WHERE {run} IS ? ORDER BY rowid"
ALERTS = "SELECT timestamp, step, title, text FROM alerts WHERE {run} IS ? ORDER BY id"
CONFIGS = "SELECT config FROM configs WHERE {run} IS ? ORDER BY id"
RUN_COLUMNS = ("run_id", "run_name")
BAD_CALLS = "log call(s) skipped: damaged, or without a step."
BAD_TRACES = "trace(s) skipped: no messages."
BAD_ROWS = "row(s) of settings or of the machine skipped: not a JSON object."
MAX_CALLS_FOR_STEP = 100_000  # log calls looked through for the name of the step


def recognises_sqlite(file: RunFile) -> bool:
    """Recognise a database with trackio's table of metrics."""
    return set(tables_of(file).get("metrics", ())) >= SQLITE_NEEDED


def read_sqlite(file: RunFile) -> Iterator[Piece]:
    """Yield metrics, settings, samples of the machine, alerts and traces of one run."""
    yield from of_database(file, _pieces)


def _pieces(connection: sqlite3.Connection, file: RunFile) -> Iterator[Piece]:
    schema = tables(connection)
    columns = set(schema.get("metrics", ()))
    if not columns >= SQLITE_NEEDED:
        yield Lost(bytes=file.size, note=f"{file.rel} has no readable table of trackio's metrics.")
        return
    run_column = next(name for name in RUN_COLUMNS if name in columns)  # older projects have no ids
    ranked: list[tuple[Any, ...]] = []
    for row in rows(connection, file, RUNS.format(run=run_column), held=True):
        if isinstance(row, Lost):
            yield row
        else:
            ranked.append(row)
    if not ranked:
        return
    run = _Run(connection, file, run_column, ranked[0][0])
    yield from run.metrics()
    yield from run.others(schema)
    if {*COLUMNS, run_column} <= set(schema.get("traces", ())):
        yield from run.traces()
    if len(ranked) > 1:
        rest = sum(row[1] for row in ranked[1:])
        note = (
            f"{file.rel} contains {len(ranked)} runs; only the one with the most log calls ({ranked[0][1]}) was read "
            f"(log calls left out: {rest})."
        )
        yield Lost(note=note)


class _Run:
    """One run of the project."""

    def __init__(self, connection: sqlite3.Connection, file: RunFile, column: str, key: Any) -> None:
        self._connection, self._file, self._column, self._key = connection, file, column, key

    def _rows(self, sql: str) -> Iterator[tuple[Any, ...] | Lost]:
        return rows(self._connection, self._file, sql.format(run=self._column), (self._key,))

    def metrics(self) -> Iterator[Piece]:
        """Yield the log calls as metrics."""
        step_key, step = choose_step_key(self._logged_steps())
        columns = MetricColumns(self._file)
        bad = 0
        for seq, row in enumerate(self._rows(CALLS)):
            if isinstance(row, Lost):
                yield row
                continue
            stamp, own_step, cell = row
            logged = parse_json(cell)
            if isinstance(logged, dict):
                flat = flatten(logged)
                named = as_step(flat.pop(step_key, None)) if step_key else as_step(own_step)
                step = step if named is None else named
            if not isinstance(logged, dict) or step is None:
                bad += 1
                continue
            for name, value in metric_values(flat).items():
                columns.add(step, name, value, self._file.seconds(stamp), seq)
            yield from columns.flush()
        yield from columns.pieces()
        yield from lost_notes(self._file, {BAD_CALLS: bad})
        yield from columns.framework()

    def _logged_steps(self) -> Iterator[tuple[str, int | None]]:
        for row in islice(self._rows(CALLS), MAX_CALLS_FOR_STEP):
            logged = None if isinstance(row, Lost) else parse_json(row[2])
            if isinstance(logged, dict):
                yield LOG_CALL, None
                yield from ((name, as_step(logged.get(name))) for name in sorted(STEP_NAMES & logged.keys()))

    def traces(self) -> Iterator[Piece]:
        """Yield the traces as trajectories."""
        found = self._rows(TRACE_ROWS)
        rows_read = (row if isinstance(row, Lost) else dict(zip(COLUMNS, row, strict=True)) for row in found)
        yield from read_samples(Samples(self._file, SQLITE.name), rows_read, add_logged, BAD_TRACES)

    def others(self, schema: dict[str, tuple[str, ...]]) -> Iterator[Piece]:
        """Yield the run's data from the tables beside the metrics; older projects lack some of them."""
        machine, events = MachineLog(self._file), EventLog(self._file)
        bad = 0
        for row in self._rows(MACHINE) if "system_metrics" in schema else ():
            if isinstance(row, Lost):
                yield row
                continue
            logged = parse_json(row[1])
            bad += not isinstance(logged, dict)
            for name, value in metric_values(flatten(logged)).items() if isinstance(logged, dict) else ():
                machine.add(None, self._file.seconds(row[0]), name, value)
            yield from machine.flush()
        yield from machine.pieces()
        for row in self._rows(ALERTS) if "alerts" in schema else ():
            if isinstance(row, Lost):
                yield row
                continue
            stamp, step, *texts = row
            text = ": ".join(part for part in texts if isinstance(part, str) and part)
            events.add(as_step(step), as_seconds(stamp), "alert", text)
        yield from events.pieces()
        for row in self._rows(CONFIGS) if "configs" in schema else ():
            if isinstance(row, Lost):
                yield row
            elif isinstance(settings := parse_json(row[0]), dict):
                yield setup_context(flatten(settings))
            else:
                bad += row[0] is not None
        yield from lost_notes(self._file, {BAD_ROWS: bad})


SQLITE = Parser(
    name="trackio_sqlite",
    describes="Trackio's projects (`{project}.db`): metrics of its largest run, settings, machine, alerts, traces.",
    held_against="real: trackio 0.43",
    priority=26,
    recognises=recognises_sqlite,
    read=read_sqlite,
)


TRACES_NEEDED: Final = frozenset({*COLUMNS, "run_name"})
BATCH_ROWS: Final = 500  # conversations may be long
NO_TRACE: Final = "row(s) skipped: no messages."


def recognises_traces(file: RunFile) -> bool:
    """Recognise a table with trackio's columns; one whose footer is cut, by its name."""
    if not file.name.endswith(".parquet") or not is_cut(file):
        return False
    schema = schema_of(file)
    return file.name.endswith("_traces.parquet") if schema is None else set(schema[0].names) >= TRACES_NEEDED


def read_traces(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a row."""
    schema = schema_of(file)
    if schema is None or not set(schema[0].names) >= TRACES_NEEDED:
        yield cut_note(file)
        return
    yield from read_samples(Samples(file, TRACES.name), _rows(file, schema[1]), add_logged, NO_TRACE)


def _rows(file: RunFile, total: int) -> Iterator[Any]:
    for batch in row_batches(file, COLUMNS, total, rows=BATCH_ROWS):
        yield from (batch,) if isinstance(batch, Lost) else batch


TRACES = Parser(
    name="trackio_traces",
    describes="Traces exported from trackio (`{project}_traces.parquet`): trajectories, turns, tool calls, rewards.",
    held_against="source: gradio-app/trackio",
    priority=80,
    of_training=False,
    recognises=recognises_traces,
    read=read_traces,
)


NAMES: Final = {
    "task": ("task", "task_id", "example_id", "problem_id"),
    "group_id": ("group_id", "prompt_id", "uid"),
    "env": ("env", "environment"),
    "model": ("model", "model_name"),
    "stop_reason": ("stop_reason", "finish_reason"),
}
FLAGS: Final = ("success", "is_success", "resolved", "solved", "correct")


def add_logged(row: dict[str, Any], samples: Samples) -> bool:
    """Add one trace; False where it holds no messages."""
    messages, metadata = _read(row.get("messages")), dict_of(_read(row.get("metadata")))
    if not isinstance(messages, list) or len(dicts_in(messages)) < len(messages):
        return False
    scores = {
        name: score for name, value in metadata.items() if _is_score(name) and (score := as_score(value)) is not None
    }
    scores |= {name: score for name, value in dict_of(metadata.get("rewards")).items() if (score := as_score(value))}
    flags = [flag for name in FLAGS if (flag := as_flag(metadata.get(name))) is not None]
    samples.add(
        Sample(
            step=as_step(row.get("step")),
            split=_split(as_name(row.get("key")) or ""),
            completion=messages,
            identity=[as_name(row.get("id")), as_label(row.get("trace_index")), row.get("step"), messages],
            prompt=prompt_messages(messages),
            reward=as_score(metadata.get("reward")),
            components={name: score for name, score in scores.items() if name != "reward"},
            tools=definitions_in(metadata.get("tools")),
            columns={
                "success": flags[0] if flags else success_of(scores),
                "advantage": as_score(metadata.get("advantage")),
                "tokens_out": as_count(metadata.get("completion_tokens")),
                "truncated": as_flag(metadata.get("truncated")),
                **{
                    column: next((label for name in names if (label := as_label(metadata.get(name)))), None)
                    for column, names in NAMES.items()
                },
            },
        )
    )
    return True


def _read(found: Any) -> Any:
    return parse_json(found) if isinstance(found, (str, bytes)) else found


def _is_score(name: str) -> bool:
    words = set(WORD.findall(name.lower()))
    return bool(words & {"reward", "score", "correct", "correctness", "success"}) and name not in FLAGS


def _split(key: str) -> str:
    """Return the split that the name of a trace tells."""
    words = set(WORD.findall(key.lower()))
    return "eval" if words & EVALUATION else "train" if words & TRAINING else "unknown"
