"""Trackio's SQLite store: metrics, settings, samples of the machine and alerts of a run.

Tables after `trackio/sqlite_storage.py` of gradio-app/trackio. The column `metrics` holds JSON as bytes, with NaN and
infinities spelt out as texts; its `step` counts log calls, so the trainer's own counter inside the JSON is preferred.
Of several runs in one project the one with most log calls counts, and the others are told.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import islice
from typing import Any

from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.lines import parse_json
from ptt.diagnostics.parsers.io.metric_rows import TRAINER_STEP_KEYS, MetricColumns, flatten, metric_values
from ptt.diagnostics.parsers.io.sqlite import of_database, rows, tables, tables_of
from ptt.diagnostics.parsers.io.telemetry import EventLog, MachineLog, safe_settings
from ptt.diagnostics.parsers.io.values import as_seconds, as_step
from ptt.diagnostics.parsers.mlflow_sqlite import in_file

NEEDED = frozenset({"timestamp", "run_name", "step", "metrics"})
# By the column that tells runs apart: `run_id`, and in older projects the name.
RUNS = {
    "run_id": "SELECT run_id, COUNT(*), MAX(id) FROM metrics GROUP BY run_id ORDER BY 2 DESC, 3 DESC",
    "run_name": "SELECT run_name, COUNT(*), MAX(id) FROM metrics GROUP BY run_name ORDER BY 2 DESC, 3 DESC",
}
CALLS = {
    "run_id": "SELECT timestamp, step, metrics FROM metrics WHERE run_id IS ? ORDER BY id",
    "run_name": "SELECT timestamp, step, metrics FROM metrics WHERE run_name IS ? ORDER BY id",
}
MACHINE = {
    "run_id": "SELECT timestamp, metrics FROM system_metrics WHERE run_id IS ? ORDER BY id",
    "run_name": "SELECT timestamp, metrics FROM system_metrics WHERE run_name IS ? ORDER BY id",
}
ALERTS = {
    "run_id": "SELECT timestamp, step, title, text FROM alerts WHERE run_id IS ? ORDER BY id",
    "run_name": "SELECT timestamp, step, title, text FROM alerts WHERE run_name IS ? ORDER BY id",
}
CONFIGS = {
    "run_id": "SELECT config FROM configs WHERE run_id IS ? ORDER BY id",
    "run_name": "SELECT config FROM configs WHERE run_name IS ? ORDER BY id",
}
SEEN_ROWS = 100_000  # log calls looked through for the name of the step


def recognises(file: RunFile) -> bool:
    """Say yes to a database with trackio's table of metrics."""
    return set(tables_of(file).get("metrics", ())) >= NEEDED


def read(file: RunFile) -> Iterator[Piece]:
    """Yield metrics, settings, samples of the machine and alerts of one run."""
    yield from of_database(file, _pieces)


def _pieces(connection: sqlite3.Connection, file: RunFile) -> Iterator[Piece]:
    held = tables(connection)
    columns = set(held.get("metrics", ()))
    if not columns >= NEEDED:
        yield Lost(bytes=file.size, note=f"{file.rel} holds no readable table of trackio's metrics.")
        return
    key = "run_id" if "run_id" in columns else "run_name"  # projects before the column was added
    ranked: list[tuple[Any, ...]] = []
    for row in rows(connection, RUNS[key]):
        if isinstance(row, Lost):
            yield in_file(row, file)
        else:
            ranked.append(row)
    if not ranked:
        return
    run = ranked[0][0]
    yield from _metrics(connection, file, key, run)
    yield from _others(connection, file, held, key, run)
    if len(ranked) > 1:
        rest = sum(row[1] for row in ranked[1:])
        note = (
            f"{file.rel} holds {len(ranked)} runs; the one with most log calls ({ranked[0][1]}) is read, and "
            f"{rest} of the others are not."
        )
        yield Lost(note=note)


def _metrics(connection: sqlite3.Connection, file: RunFile, key: str, run: Any) -> Iterator[Piece]:
    sql = CALLS[key]
    step_key, step = _step_key(connection, run, sql)
    columns = MetricColumns(file)
    bad = 0
    for seq, row in enumerate(rows(connection, sql, (run,))):
        if isinstance(row, Lost):
            yield in_file(row, file)
            continue
        stamp, own_step, cell = row
        found = parse_json(cell)
        if not isinstance(found, dict):
            bad += 1
            continue
        flat = flatten(found)
        named = as_step(flat.pop(step_key, None)) if step_key else as_step(own_step)
        step = step if named is None else named
        if step is None:
            bad += 1
            continue
        for name, value in metric_values(flat).items():
            columns.add(step, name, value, as_seconds(stamp), seq)
        yield from columns.flush()
    yield from columns.pieces()
    if bad:
        yield Lost(rows=bad, note=f"{file.rel}: {bad} log call(s) are damaged or name no step.")
    yield from columns.framework()


def _step_key(connection: sqlite3.Connection, run: Any, sql: str) -> tuple[str | None, int | None]:
    """Choose the name of the training step, and its first value: what is logged before it belongs there."""
    first: dict[str, int] = {}
    for row in islice(rows(connection, sql, (run,)), SEEN_ROWS):
        found = None if isinstance(row, Lost) else parse_json(row[2])
        if not isinstance(found, dict):
            continue
        for name in TRAINER_STEP_KEYS:
            if name not in first and (step := as_step(found.get(name))) is not None:
                first[name] = step
    key = next((name for name in TRAINER_STEP_KEYS if name in first), None)
    return key, first[key] if key else None


def _others(
    connection: sqlite3.Connection, file: RunFile, held: dict[str, tuple[str, ...]], key: str, run: Any
) -> Iterator[Piece]:
    """Yield what the tables beside the metrics hold of the run; older projects lack some of them."""
    machine, events = MachineLog(file), EventLog(file)
    for row in rows(connection, MACHINE[key], (run,)) if "system_metrics" in held else ():
        if isinstance(row, Lost):
            yield in_file(row, file)
            continue
        found = parse_json(row[1])
        for name, value in metric_values(flatten(found)).items() if isinstance(found, dict) else ():
            machine.add(None, as_seconds(row[0]), name, value)
        yield from machine.flush()
    yield from machine.pieces()
    for row in rows(connection, ALERTS[key], (run,)) if "alerts" in held else ():
        if isinstance(row, Lost):
            yield in_file(row, file)
            continue
        stamp, step, title, text = row
        whole = ": ".join(part for part in (title, text) if isinstance(part, str) and part)
        events.add(as_step(step), as_seconds(stamp), "alert", whole)
    yield from events.pieces()
    for row in rows(connection, CONFIGS[key], (run,)) if "configs" in held else ():
        found = None if isinstance(row, Lost) else parse_json(row[0])
        if isinstance(found, dict):
            yield Context(facts=safe_settings(flatten(found)))


PARSER = Parser(
    name="trackio_sqlite",
    describes="Trackio's projects (`{project}.db`): metrics of its largest run, settings, machine, alerts.",
    priority=26,
    recognises=recognises,
    read=read,
)
