"""The spans in which veRL traces its rollouts to MLflow: agent loops with ids, masks and engine log-probabilities.

Spans are named by the traced function, tags stand with the trace: verl-project/verl, verl/utils/rollout_trace.py; an
agent loop returns `AgentLoopOutput` (verl/experimental/agent_loop/agent_loop.py), one generation `TokenOutput`
(verl/workers/rollout/replica.py). Inputs and outputs are JSON texts inside the JSON of the span (mlflow/mlflow,
mlflow/store/tracking/dbmodels/models.py: tables spans, trace_tags). A reader of MLflow databases calls `read_spans`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ptt.diagnostics.parsers.call_rows import (
    Array,
    SequenceRows,
    TokenRow,
    logp_array,
    lost_rows,
    number,
    respelt,
    small,
    table_rows,
    token_array,
    whole,
)
from ptt.diagnostics.parsers.interface import Context, Lost, Piece, RunFile
from ptt.diagnostics.parsers.sessions import Call, Sessions
from ptt.diagnostics.parsers.sqlite_files import json_cell, rows, tables

TAGS: Final = ("step", "sample_index", "rollout_n", "validate", "experiment_name")
SPANS: Final = "SELECT trace_id, name, status, start_time_unix_nano, end_time_unix_nano, content FROM spans ORDER BY "
BY_TIME: Final = SPANS + "trace_id, start_time_unix_nano, span_id"
NEEDED: Final = {"trace_id", "span_id", "name", "status", "start_time_unix_nano", "end_time_unix_nano", "content"}
TAGS_BY_REQUEST: Final = "SELECT request_id, key, value FROM trace_tags"
TAGS_BY_TRACE: Final = "SELECT trace_id, key, value FROM trace_tags"


def read_spans(connection: sqlite3.Connection, file: RunFile) -> Iterator[Piece]:
    """Yield sequences, trajectories and tool calls of the traces that are veRL's; nothing where there are none."""
    held = tables(connection)
    if not NEEDED.issubset(held.get("spans", ())):
        return
    tags: dict[str, dict[str, str]] = {}
    for row in rows(connection, TAGS_BY_REQUEST if "request_id" in held.get("trace_tags", ()) else TAGS_BY_TRACE):
        if isinstance(row, Lost):
            yield Lost(rows=row.rows, note=f"{file.rel}: {row.note}")
        elif row[1] in TAGS and isinstance(row[0], str) and isinstance(row[2], str):
            tags.setdefault(row[0], {})[row[1]] = row[2]
    reader, trace = _Reader(file), _Trace()
    for row in rows(connection, BY_TIME):
        if isinstance(row, Lost):
            yield Lost(rows=row.rows, note=f"{file.rel}: {row.note}")
            continue
        if row[0] != trace.name:
            yield from reader.end(trace)
            trace = _Trace(name=str(row[0]), tags=tags.get(str(row[0]), {}))
        trace.add(row)
    yield from reader.end(trace)
    yield from reader.close()


@dataclass
class _Trace:
    """What one trace holds: the loop's own sequence, else the generations it was made of."""

    name: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    loop: dict[str, Any] | None = None
    calls: list[Call] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    unfit: int = 0

    def add(self, row: tuple[Any, ...]) -> None:
        """Take one span."""
        _, name, status, start, end, cell = row
        content = json_cell(cell)
        attributes = content.get("attributes") if isinstance(content, dict) else None
        attributes = attributes if isinstance(attributes, dict) else {}
        name = name if isinstance(name, str) else ""
        outputs, inputs = (_decoded(attributes.get(f"mlflow.span{side}")) for side in ("Outputs", "Inputs"))
        if isinstance(outputs, dict) and {"response_ids", "response_mask"} <= outputs.keys():
            self.loop = outputs
        elif isinstance(outputs, dict) and {"token_ids", "log_probs"} <= outputs.keys():
            self._generation(outputs, inputs if isinstance(inputs, dict) else {})
        elif name.endswith("Tool.execute"):
            took = (end - start) / 1e9 if isinstance(start, int) and isinstance(end, int) else None
            failed = isinstance(status, str) and status.upper() == "ERROR"
            self.tools.append({"name": name.removesuffix(".execute"), "ok": not failed, "latency_s": took})

    def _generation(self, outputs: dict[str, Any], inputs: dict[str, Any]) -> None:
        tokens = token_array(outputs["token_ids"])
        if tokens is None or not len(tokens):
            return
        prompt, logps = token_array(inputs.get("prompt_ids")), logp_array(outputs["log_probs"], len(tokens))
        self.unfit += logps is None
        before = tokens[:0] if prompt is None else prompt
        self.calls.append(Call(prompt=before, completion=tokens, logps=logps, told=_version(outputs)))


class _Reader:
    """Turns traces into the tables."""

    def __init__(self, file: RunFile) -> None:
        self._file = file
        self._rows = SequenceRows()
        self._tables: dict[str, list[dict[str, Any]]] = {"trajectories": [], "tool_calls": []}
        self._bad = self._unfit = self._validation = self._seen = self._stepless = self._respelt = 0

    def end(self, trace: _Trace) -> Iterator[Piece]:
        """Close one trace."""
        if trace.loop is None and not trace.calls:
            return
        self._seen += 1
        step = whole(trace.tags.get("step"))
        self._stepless += step is None
        validation = trace.tags.get("validate") == "True"
        loop = trace.loop or {}
        reward = number(loop.get("reward_score"))
        key = {"trajectory_id": f"{self._file.rel}:{trace.name}"}
        sample = trace.tags.get("sample_index")
        told = {
            **key,
            "step": step,
            "sample_id": None if sample is None else f"{step}/{sample}/{trace.tags.get('rollout_n')}",
            "group_id": None if sample is None else f"{step}/{sample}",
            "reward": reward,
        }
        self._tables["trajectories"].append(
            {
                **told,
                "split": "eval" if validation else "train",
                "n_turns": small(loop.get("num_turns")) if loop else len(trace.calls),
                "n_tool_calls": len(trace.tools),
                "n_tool_fail": sum(not tool["ok"] for tool in trace.tools),
                "source": self._file.rel,
            }
        )
        for at, tool in enumerate(trace.tools):
            self._tables["tool_calls"].append(
                {**key, "step": step, "turn_idx": at, "call_idx": at, "ok_source": "flag", **tool}
            )
        if validation:
            self._validation += 1
        else:
            yield from self._sequences(trace, told)
        if sum(map(len, self._tables.values())) > 20_000:
            yield from self._take()

    def _sequences(self, trace: _Trace, told: dict[str, Any]) -> Iterator[Piece]:
        self._unfit += trace.unfit
        if trace.loop is not None:
            row = _of_loop(trace.loop, told)
            self._bad += row is None
            if row is not None:
                yield from self._rows.add(row)
            return
        sessions = Sessions()
        for call in trace.calls:
            for _ in sessions.add("", call):
                pass  # of a single session nothing is given out before its end
        for at, joined in enumerate(sessions.close()):
            self._respelt += joined.retokenised
            versions = [version for version in joined.told if version is not None]
            more = {
                "sample_id": f"{told['sample_id'] or trace.name}#{at}",
                "policy_version": min(versions, default=None),
            }
            yield from self._rows.add(
                TokenRow(
                    token_ids=joined.token_ids,
                    model_mask=joined.model_mask,
                    rollout_logp=joined.rollout_logp,
                    told={**told, **more},
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
        yield from lost_rows(self._bad, f"{rel}: {self._bad} traced rollout(s) hold lists of different lengths.")
        if self._unfit:
            yield Lost(note=f"{rel}: {self._unfit} generation(s) hold no log-probability for each of their tokens.")
        yield from respelt(rel, self._respelt)
        if self._validation:
            yield Lost(note=f"{rel}: {self._validation} traced rollout(s) of validation are no training data.")
        if self._stepless:
            yield Lost(note=f"{rel}: {self._stepless} traced rollout(s) carry no tag that names their step.")
        if self._seen:
            yield Context(facts={"framework": "verl"})


def _of_loop(loop: dict[str, Any], told: dict[str, Any]) -> TokenRow | None:
    """Read an agent loop's own sequence, mask and log-probabilities included."""
    tokens, mask = token_array(loop.get("response_ids")), token_array(loop.get("response_mask"))
    if tokens is None or mask is None or not len(tokens) or len(tokens) != len(mask):
        return None
    logps: Array | None = None
    if loop.get("response_logprobs") is not None:
        logps = logp_array(loop["response_logprobs"], len(tokens))
        if logps is None:
            return None
    return TokenRow(
        token_ids=tokens,
        model_mask=np.asarray(mask != 0),
        rollout_logp=logps,
        told={**told, "policy_version": _version(loop)},
    )


def _version(outputs: dict[str, Any]) -> int | None:
    """Give the oldest weights that sampled, where the fully asynchronous trainer says so."""
    more = outputs.get("extra_fields")
    return whole(more.get("min_global_steps")) if isinstance(more, dict) else None


def _decoded(found: Any) -> Any:
    return json_cell(found) if isinstance(found, str) else found
