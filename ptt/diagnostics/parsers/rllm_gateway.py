"""The traces that rLLM's model gateway keeps in SQLite: one call of the engine a row, sessions joined to sequences.

Tables `traces`, `trace_sessions`: rllm-org/rllm, rllm-model-gateway/src/rllm_model_gateway/store/sqlite_store.py; the
record: models.py; prompts stored as what they add to an earlier call: token_chain.py; there too, data_process.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ptt.diagnostics.parsers.io.calls import (
    Array,
    Call,
    Joined,
    SequenceRows,
    Sessions,
    TokenRow,
    logp_array,
    lost_rows,
    messages_in,
    name_of,
    respelt,
    table_rows,
    token_array,
    whole,
)
from ptt.diagnostics.parsers.io.conversations import as_name, calls_of, turns_of
from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.sqlite import DAMAGE, json_cell, open_database, rows, tables_of, unreadable, wal_note

STEPS: Final = ("training_step", "global_step", "step")
KEPT: Final = 256  # contexts of a session that a later call may go on from


@dataclass
class _Session:
    """What is known of the session being read."""

    name: str = ""
    sequences: Sessions = field(default_factory=Sessions)
    contexts: dict[str, Array] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)
    calls: int = 0
    step: int | None = None
    version: int | None = None
    stop: str | None = None


class GatewayReader:
    """Turns calls into the tables."""

    def __init__(self, file: RunFile) -> None:
        self._file = file
        self._rows = SequenceRows()
        self._session = _Session()
        self._tables: dict[str, list[dict[str, Any]]] = {"trajectories": [], "turns": [], "tool_calls": []}
        self._number = self._unfit = self._orphans = self._stand_ins = self._respelt = 0
        self.bad = 0

    def add(self, session: str, trace: str, found: dict[str, Any]) -> None:
        """Take one call."""
        now = self._session
        now.name, now.calls = session, now.calls + 1
        version = whole(found.get("weight_version"))
        more = found.get("metadata")
        step = (
            next((got for key in STEPS if (got := whole(more.get(key))) is not None), None)
            if isinstance(more, dict)
            else None
        )
        now.step = step if now.step is None else now.step
        now.version = version if now.version is None else now.version
        now.stop = as_name(found.get("finish_reason"))
        now.messages = _messages(found) or now.messages
        tokens = token_array(found.get("completion_token_ids"))
        prompt = self._prompt(found)
        if tokens is None or prompt is None:
            self.bad += 1
            return
        now.contexts[trace] = np.concatenate([prompt, tokens])
        if len(now.contexts) > KEPT:
            del now.contexts[next(iter(now.contexts))]
        if not len(tokens):  # a call that failed: nothing was sampled
            return
        logps = logp_array(found.get("logprobs"), len(tokens))
        self._unfit += logps is None
        told = {"version": version, "step": step, "messages": _messages(found)}
        for _ in now.sequences.add("", Call(prompt=prompt, completion=tokens, logps=logps, told=told)):
            pass  # of a single session nothing is given out before its end

    def _prompt(self, found: dict[str, Any]) -> Array | None:
        """Give the whole prompt: as stored, or what it added to the call before."""
        added = found.get("prompt_delta_token_ids")
        if added is None:
            return token_array(found.get("prompt_token_ids"))
        delta, parent = token_array(added), found.get("parent_trace_id")
        before = self._session.contexts.get(parent) if isinstance(parent, str) else None
        if delta is None:
            return None
        if before is None:
            self._orphans += 1
            return np.zeros(0, np.int32)
        return np.concatenate([before, delta])

    def end(self) -> Iterator[Piece]:
        """Close the session."""
        now, self._session = self._session, _Session()
        if not now.calls:
            return
        step = now.version if now.step is None else now.step
        self._stand_ins += now.step is None and step is not None
        for joined in now.sequences.close():
            yield from self._give(now, joined, step)
        messages = now.messages
        calls = calls_of(messages)
        key = {"trajectory_id": f"{self._file.rel}:{now.name}"}
        self._tables["trajectories"].append(
            {
                **key,
                "step": step,
                "split": "unknown",
                "n_turns": now.calls,
                "n_tool_calls": len(calls) if messages else None,
                "n_tool_fail": sum(call["ok"] is False for call in calls) if messages else None,
                "policy_version": now.version,
                "stop_reason": now.stop,
                "truncated": None if now.stop is None else now.stop == "length",
                "source": self._file.rel,
            }
        )
        self._tables["turns"] += [{**key, **turn} for turn in turns_of(messages, keep_text=self._file.keep_text)]
        self._tables["tool_calls"] += [{**key, "step": step, **call} for call in calls]
        if sum(map(len, self._tables.values())) > 20_000:
            yield from self._take()

    def _give(self, now: _Session, joined: Joined, step: int | None) -> Iterator[Piece]:
        self._number += 1
        self._respelt += joined.retokenised
        versions = [call["version"] for call in joined.told if call["version"] is not None]
        yield from self._rows.add(
            TokenRow(
                token_ids=joined.token_ids,
                model_mask=joined.model_mask,
                rollout_logp=joined.rollout_logp,
                told={
                    "step": step,
                    "sample_id": f"{now.name}#{self._number}",
                    "group_id": now.name.rpartition(":")[0] or None,  # sessions are named {task}:{rollout}
                    "trajectory_id": f"{self._file.rel}:{now.name}",
                    "policy_version": min(versions) if versions else None,
                    "tool_names": _tools(joined),
                },
            )
        )

    def _take(self) -> Iterator[Piece]:
        for table, found in self._tables.items():
            yield from table_rows(table, found)
            self._tables[table] = []

    def close(self) -> Iterator[Piece]:
        """Yield the rest, and what could not be used."""
        yield from self._rows.take()
        yield from self._take()
        rel = self._file.rel
        yield from lost_rows(self.bad, f"{rel}: {self.bad} call(s) could not be read or hold no token ids.")
        if self._unfit:
            yield Lost(note=f"{rel}: {self._unfit} call(s) hold no log-probability for each of their tokens.")
        yield from respelt(rel, self._respelt)
        if self._orphans:
            yield Lost(note=f"{rel}: {self._orphans} call(s) go on from a call that is not there; they stand alone.")
        if self._stand_ins:
            note = (
                f"{rel}: {self._stand_ins} session(s) name no training step; the version of the weights stands for it."
            )
            yield Lost(note=note)


def _messages(found: dict[str, Any]) -> list[dict[str, Any]]:
    listed, answer = found.get("messages"), found.get("response_message")
    messages = messages_in(listed)
    return (
        [*messages, *messages_in([{"role": "assistant", **answer}])]
        if isinstance(answer, dict) and answer
        else messages
    )


def _tools(joined: Joined) -> list[str | None] | None:
    """Name the tool behind each observation: the first that the call before it asked for; None for other turns."""
    names: list[str | None] = []
    for call, grown in zip(joined.told, joined.grown, strict=False):
        asked = calls_of(call["messages"][-1:])
        names += [name_of(asked[0]["name"]) if asked else None] if grown else []
    return names if any(name is not None for name in names) else None


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
