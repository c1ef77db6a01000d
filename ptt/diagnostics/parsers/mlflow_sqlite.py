"""MLflow's SQLite store: the metrics and settings of a run, and spans where it was traced.

Columns after `mlflow/store/tracking/dbmodels/models.py` of mlflow/mlflow. NaN is stored as 0 with `is_nan` set,
infinities as the largest double. Of several runs in one database the one with most metric rows counts, since their
steps cannot stand in one series; the others are told.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from typing import Any

from ptt.diagnostics.parsers.aliases import framework_of
from ptt.diagnostics.parsers.interface import Context, Lost, Parser, Piece, Rows, RunFile
from ptt.diagnostics.parsers.metric_rows import MetricColumns, as_step
from ptt.diagnostics.parsers.mlflow_spans import read_spans
from ptt.diagnostics.parsers.settings_facts import safe_settings
from ptt.diagnostics.parsers.side_rows import MachineLog
from ptt.diagnostics.parsers.sqlite_files import rows, tables, tables_of
from ptt.diagnostics.parsers.sqlite_size import of_database

NEEDED = frozenset({"key", "value", "timestamp", "run_uuid", "step", "is_nan"})
LARGEST = sys.float_info.max
MACHINE = "system/"  # MLflow's own samples of the machine
RUNS = "SELECT run_uuid, COUNT(*), MAX(timestamp) FROM metrics GROUP BY run_uuid"
DELETED = "SELECT run_uuid FROM runs WHERE lifecycle_stage = 'deleted'"
METRICS = "SELECT key, value, timestamp, step, is_nan FROM metrics WHERE run_uuid = ? ORDER BY rowid"
PARAMS = "SELECT key, value FROM params WHERE run_uuid = ?"


def recognises(file: RunFile) -> bool:
    """Say yes to a database with MLflow's table of metrics."""
    return set(tables_of(file).get("metrics", ())) >= NEEDED


def read(file: RunFile) -> Iterator[Piece]:
    """Yield metrics, samples of the machine and settings of one run."""
    yield from of_database(file, _pieces)


def _pieces(connection: sqlite3.Connection, file: RunFile) -> Iterator[Piece]:
    held = tables(connection)
    if not set(held.get("metrics", ())) >= NEEDED:
        yield Lost(bytes=file.size, note=f"{file.rel} holds no readable table of MLflow's metrics.")
        return
    counts, told = _asked(connection, file, RUNS)
    yield from told
    gone: set[Any] = set()
    if {"run_uuid", "lifecycle_stage"} <= set(held.get("runs", ())):
        deleted, told = _asked(connection, file, DELETED)
        yield from told
        gone = {run for (run,) in deleted}
    live = [row for row in counts if row[0] not in gone] or counts
    ranked = sorted(live, key=lambda row: (-row[1], -(row[2] if isinstance(row[2], int) else 0), str(row[0])))
    if ranked:
        yield from _metrics(connection, file, ranked[0][0])
        if {"key", "value", "run_uuid"} <= set(held.get("params", ())):
            params, told = _asked(connection, file, PARAMS, (ranked[0][0],))
            yield from told
            yield Context(facts=safe_settings({str(key): value for key, value in params}))
    if others := ranked[1:]:
        most = sum(row[1] for row in others)
        note = (
            f"{file.rel} holds {len(ranked)} runs; the one with most metric rows ({ranked[0][1]}) is read, and "
            f"{most} row(s) of the others are not."
        )
        yield Lost(note=note)
    yield from read_spans(connection, file)


def _asked(
    connection: sqlite3.Connection, file: RunFile, sql: str, parameters: tuple[Any, ...] = ()
) -> tuple[list[tuple[Any, ...]], list[Lost]]:
    found = list(rows(connection, sql, parameters))
    told = [in_file(piece, file) for piece in found if isinstance(piece, Lost)]
    return [row for row in found if not isinstance(row, Lost)], told


def in_file(piece: Lost, file: RunFile) -> Lost:
    """Say of which file a loss is."""
    return Lost(rows=piece.rows, bytes=piece.bytes, note=f"{file.rel}: {piece.note}")


def _metrics(connection: sqlite3.Connection, file: RunFile, run: str) -> Iterator[Piece]:
    columns, machine = MetricColumns(), MachineLog(file)
    names: set[str] = set()
    bad = 0
    for seq, row in enumerate(rows(connection, METRICS, (run,))):
        if isinstance(row, Lost):
            yield in_file(row, file)
            continue
        key, value, stamp, step, is_nan = row
        at = as_step(step)
        if not isinstance(key, str) or at is None or not isinstance(value, (int, float)):
            bad += 1
            continue
        number = float("nan") if is_nan else value_of(float(value))
        wall_time = stamp / 1000 if isinstance(stamp, (int, float)) else None
        if key.startswith(MACHINE):
            machine.add(None, wall_time, key, number)  # its step counts samples
        else:
            columns.add(at, key, number, wall_time, seq)
            names.add(key)
        if columns.full:
            yield Rows(table="metrics", frame=columns.take(file.rel))
        if machine.full:
            yield from machine.pieces()
    if columns.steps:
        yield Rows(table="metrics", frame=columns.take(file.rel))
    yield from machine.pieces()
    if bad:
        yield Lost(rows=bad, note=f"{file.rel}: {bad} metric row(s) have no usable name, step or value.")
    if framework := framework_of(names):
        yield Context(facts={"framework": framework})


def value_of(value: float) -> float:
    """Undo MLflow's writing of infinities as the largest double."""
    return float("inf") if value >= LARGEST else float("-inf") if value <= -LARGEST else value


PARSER = Parser(
    name="mlflow_sqlite",
    describes="MLflow's SQLite store: metrics of its largest run, settings, machine; veRL's traced rollouts.",
    priority=27,
    recognises=recognises,
    read=read,
)
