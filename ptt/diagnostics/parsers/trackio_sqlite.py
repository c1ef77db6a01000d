"""Trackio's SQLite store: metrics, settings, samples of the machine, alerts and traces of a run.

Tables after `trackio/sqlite_storage.py` of gradio-app/trackio. The column `metrics` holds JSON as bytes, with NaN and
infinities spelt out as texts; its `step` counts log calls, so the trainer's own counter inside the JSON is preferred.
Of several runs in one project the one with most log calls counts, and the others are told.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import islice
from typing import Any

from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, RunFile, lost_notes
from ptt.diagnostics.parsers.io.lines import parse_json
from ptt.diagnostics.parsers.io.logged_traces import COLUMNS as TRACE_COLUMNS
from ptt.diagnostics.parsers.io.logged_traces import add_logged
from ptt.diagnostics.parsers.io.metric_rows import (
    LOG_CALL,
    STEP_NAMES,
    MetricColumns,
    choose_step_key,
    flatten,
    metric_values,
)
from ptt.diagnostics.parsers.io.sqlite import of_database, rows, tables, tables_of
from ptt.diagnostics.parsers.io.telemetry import EventLog, MachineLog, safe_settings
from ptt.diagnostics.parsers.io.trajectories import Samples, read_samples
from ptt.diagnostics.parsers.io.values import as_seconds, as_step

NEEDED = frozenset({"timestamp", "run_name", "step", "metrics"})
# `{run}` is the column that tells runs apart: `run_id`, and in older projects the name.
RUNS = "SELECT {run}, COUNT(*), MAX(id) FROM metrics GROUP BY {run} ORDER BY 2 DESC, 3 DESC"
CALLS = "SELECT timestamp, step, metrics FROM metrics WHERE {run} IS ? ORDER BY id"
MACHINE = "SELECT timestamp, metrics FROM system_metrics WHERE {run} IS ? ORDER BY id"
TRACES = "SELECT id, step, key, trace_index, messages, metadata FROM traces WHERE {run} IS ? ORDER BY rowid"
ALERTS = "SELECT timestamp, step, title, text FROM alerts WHERE {run} IS ? ORDER BY id"
CONFIGS = "SELECT config FROM configs WHERE {run} IS ? ORDER BY id"
RUN_COLUMNS = ("run_id", "run_name")
BAD_CALLS = "log call(s) skipped: damaged, or without a step."
BAD_TRACES = "trace(s) skipped: no messages."
BAD_ROWS = "row(s) of settings or of the machine skipped: not a JSON object."
MAX_CALLS_FOR_STEP = 100_000  # log calls looked through for the name of the step


def recognises(file: RunFile) -> bool:
    """Recognise a database with trackio's table of metrics."""
    return set(tables_of(file).get("metrics", ())) >= NEEDED


def read(file: RunFile) -> Iterator[Piece]:
    """Yield metrics, settings, samples of the machine, alerts and traces of one run."""
    yield from of_database(file, _pieces)


def _pieces(connection: sqlite3.Connection, file: RunFile) -> Iterator[Piece]:
    schema = tables(connection)
    columns = set(schema.get("metrics", ()))
    if not columns >= NEEDED:
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
    if {*TRACE_COLUMNS, run_column} <= set(schema.get("traces", ())):
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
        found = self._rows(TRACES)
        rows_read = (row if isinstance(row, Lost) else dict(zip(TRACE_COLUMNS, row, strict=True)) for row in found)
        yield from read_samples(Samples(self._file, PARSER.name), rows_read, add_logged, BAD_TRACES)

    def others(self, schema: dict[str, tuple[str, ...]]) -> Iterator[Piece]:
        """Yield what the tables beside the metrics hold of the run; older projects lack some of them."""
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
                yield Context(facts=safe_settings(flatten(settings)))
            else:
                bad += row[0] is not None
        yield from lost_notes(self._file, {BAD_ROWS: bad})


PARSER = Parser(
    name="trackio_sqlite",
    describes="Trackio's projects (`{project}.db`): metrics of its largest run, settings, machine, alerts, traces.",
    held_against="real: trackio 0.43",
    priority=26,
    recognises=recognises,
    read=read,
)
