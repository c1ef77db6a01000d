"""The traces that rLLM's model gateway keeps in SQLite: one call of the engine a row, sessions joined to sequences.

Tables `traces`, `trace_sessions`: rllm-org/rllm, rllm-model-gateway/src/rllm_model_gateway/store/sqlite_store.py; the
record: models.py; prompts stored as what they add to an earlier call: token_chain.py; there too, data_process.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final

from ptt.diagnostics.parsers.gateway_calls import GatewayReader
from ptt.diagnostics.parsers.interface import Context, Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.sqlite_files import (
    DAMAGE,
    json_cell,
    open_database,
    rows,
    tables_of,
    unreadable,
    wal_note,
)

NEEDED: Final = {
    "traces": {"trace_id", "data", "created_at"},
    "trace_sessions": {"trace_id", "session_id", "created_at"},
}
ORDER: Final = "SELECT trace_id, session_id, created_at FROM trace_sessions"
ORDER_BY_RUN: Final = "SELECT trace_id, run_id || '/' || session_id, created_at FROM trace_sessions"
DATA: Final = "SELECT data FROM traces WHERE trace_id = ?"


def recognises(file: RunFile) -> bool:
    """Say yes by the tables and their columns."""
    held = tables_of(file)
    return all(columns.issubset(held.get(table, ())) for table, columns in NEEDED.items())


def read(file: RunFile) -> Iterator[Piece]:
    """Yield sequences, and a trajectory with its turns and tool calls for each session."""
    if told := wal_note(file):
        yield told
    try:
        with open_database(file.path) as connection:
            reader = GatewayReader(file)
            order = ORDER_BY_RUN if "run_id" in tables_of(file).get("trace_sessions", ()) else ORDER
            calls: list[tuple[str, float, int, str]] = []
            for row in rows(connection, order):
                if isinstance(row, Lost):
                    yield Lost(rows=row.rows, note=f"{file.rel}: {row.note}")
                elif isinstance(row[0], str) and isinstance(row[1], str) and isinstance(row[2], int | float):
                    calls.append((row[1], float(row[2]), len(calls), row[0]))
                else:
                    reader.bad += 1
            yield from _sessions(connection, sorted(calls), reader)
            yield from reader.close()
    except DAMAGE as error:
        yield unreadable(file, error)
        return
    yield Context(facts={"framework": "rllm"})


def _sessions(
    connection: sqlite3.Connection, calls: list[tuple[str, float, int, str]], reader: GatewayReader
) -> Iterator[Piece]:
    session = ""
    for session_id, _, _, trace_id in calls:
        if session_id != session:
            yield from reader.end()
            session = session_id
        cell = next(rows(connection, DATA, (trace_id,)), None)
        found = None if cell is None or isinstance(cell, Lost) else json_cell(cell[0])
        if isinstance(found, dict):
            reader.add(session_id, trace_id, found)
        else:
            reader.bad += 1
    yield from reader.end()


PARSER = Parser(
    name="rllm_gateway",
    describes="rLLM's gateway traces (SQLite): engine log-probabilities by session, turns, tool calls, weight version.",
    priority=10,
    recognises=recognises,
    read=read,
)
