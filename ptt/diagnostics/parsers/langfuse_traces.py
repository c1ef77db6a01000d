"""Traces and observations that Langfuse exports: calls of models and tools, scores, costs.

Source: the public API's `TraceWithFullDetails`, `ObservationsView` and `Score` (langfuse/langfuse at 6275144,
fern/apis/server/definition/commons.yml; langfuse/langfuse-python at cfd3ac1, langfuse/api/resources/commons/types/),
and the exports to files, whose names are spelt `trace_id`, `start_time`. Lines, a list, a page under `data`, one trace
with its `observations`, or CSV. A trace is one trajectory. Tools that are observed as plain spans are known by the
names that the model called.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.io import span_names as names
from ptt.diagnostics.parsers.io.interface import Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.message_shapes import decoded, definitions_in, messages_from
from ptt.diagnostics.parsers.io.record_files import error_kind, first_rows, rows_of
from ptt.diagnostics.parsers.io.span_trees import ModelCall, ToolCall, TraceReader
from ptt.diagnostics.parsers.io.trajectories import Samples
from ptt.diagnostics.parsers.io.values import (
    as_count,
    as_name,
    as_plain_number,
    as_score,
    as_seconds,
    dict_of,
    dicts_in,
    nested,
)

HOLDERS: Final = frozenset({"data", "observations", "traces"})
MODEL, TOOL, SPAN = "GENERATION", "TOOL", "SPAN"
KINDS: Final = frozenset(
    {MODEL, TOOL, SPAN, "EVENT", "AGENT", "CHAIN", "RETRIEVER", "EMBEDDING", "EVALUATOR", "GUARDRAIL"}
)
OF_TRACES: Final = frozenset(
    {"bookmarked", "htmlPath", "sessionId", "session_id", "projectId", "project_id", "externalId"}
)
NO_TRACE: Final = "object(s) skipped: neither a trace nor an observation."


def recognises(file: RunFile) -> bool:
    """Recognise objects that observe a span of a trace, or a trace with what it took and gave."""
    rows = first_rows(file, HOLDERS, tables=True)
    return bool(rows) and all(_is_observation(row) or _is_trace(row) for row in rows[:1])


def _is_observation(row: dict[str, Any]) -> bool:
    return as_name(row.get("type")) in KINDS and _of(row, "traceId") is not None and _of(row, "startTime") is not None


def _is_trace(row: dict[str, Any]) -> bool:
    held = isinstance(row.get("observations"), list) and all(
        isinstance(found, str) or (isinstance(found, dict) and as_name(found.get("type")) in KINDS)
        for found in row["observations"]
    )
    told = row.keys() >= {"id", "timestamp", "input", "output"} and not OF_TRACES.isdisjoint(row)
    return isinstance(row.get("id"), str) and (told or (held and "timestamp" in row))


def _of(row: dict[str, Any], name: str) -> Any:
    """Return a value by its name, or by the underscore spelling that file exports use."""
    if row.get(name) is not None:
        return row[name]
    found = row.get("".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name))
    return None if found == "" else found


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a trace."""
    yield from _Traces(file, PARSER.name).read(NO_TRACE)


class _Traces(TraceReader):
    """All traces of a file."""

    def __init__(self, file: RunFile, parser: str) -> None:
        super().__init__(file, parser)
        self._seen: set[tuple[str, str]] = set()  # the download of one trace holds each observation twice

    def rows(self) -> Iterator[Any]:
        """Yield traces and observations."""
        for row in rows_of(self.samples.file, HOLDERS):
            if isinstance(row, dict) and isinstance(row.get("trace"), dict):
                yield row["trace"]
            elif not (isinstance(row, dict) and row.keys() <= {"meta"}):  # what is left of a page
                yield row

    def add(self, row: dict[str, Any], _samples: Samples) -> bool:
        """Take in a trace or an observation; False if it is neither."""
        if _is_observation(row):
            self._observe(as_name(_of(row, "traceId")) or "", row)
            return True
        name = as_name(row.get("id"))
        if name is None or "timestamp" not in row:
            return False
        for observation in dicts_in(row.get("observations")):
            self._observe(name, observation)
        trace = self.traces.of(name)
        if trace is not None:
            trace.asked = messages_from(row.get("input"), "user") or trace.asked
            trace.answered = messages_from(row.get("output"), "assistant") or trace.answered
            trace.scores |= dict(_scores(row.get("scores")))
            sums = {"cost_usd": _number(_of(row, "totalCost"))}
            sums |= {"tokens_in": as_count(_of(row, "inputTokens")), "tokens_out": as_count(_of(row, "outputTokens"))}
            trace.columns |= {column: value for column, value in sums.items() if value}
        return True

    def _observe(self, name: str, row: dict[str, Any]) -> None:
        place = (name, as_name(row.get("id")) or "")
        if place[1] and place in self._seen:
            return
        self._seen.add(place)
        trace, kind = self.traces.of(name), as_name(row.get("type"))
        if trace is None:
            return
        told = dict_of(nested(decoded(row.get("metadata")), "attributes"))  # of the span that Langfuse was sent
        if kind == MODEL:
            trace.add_model(_model_call(row))
        elif kind in {TOOL, SPAN}:
            trace.add_tool(_tool_call(row, told), sure=kind == TOOL or names.kind_of(told) == names.TOOL)
        if _of(row, "parentObservationId") is None:  # the root, which tells what the trace does where no trace is kept
            trace.asked = trace.asked or messages_from(row.get("input"), "user") or None
            trace.answered = trace.answered or messages_from(row.get("output"), "assistant") or None
            if row.get("level") == "ERROR":
                trace.columns["error_type"] = error_kind(_of(row, "statusMessage")) or "error"


def _scores(found: Any) -> Iterator[tuple[str, float | None]]:
    for score in dicts_in(found):
        value, name = as_score(score.get("value")), as_name(score.get("name"))
        if name is not None and value is not None:
            yield name, value


def _model_call(row: dict[str, Any]) -> ModelCall:
    usage = dict_of(decoded(_of(row, "usageDetails"))) or dict_of(decoded(row.get("usage")))
    costs, asked = dict_of(decoded(_of(row, "costDetails"))), decoded(row.get("input"))
    model = next((name for key in ("model", "providedModelName") if (name := as_name(_of(row, key)))), None)
    prices = (_of(row, "calculatedTotalCost"), _of(row, "totalCost"), costs.get("total"), usage.get("totalCost"))
    return ModelCall(
        start=as_seconds(_of(row, "startTime")),
        end=as_seconds(_of(row, "endTime")),
        span=as_name(row.get("id")),
        parent=as_name(_of(row, "parentObservationId")),
        stage=names.stage_of(as_name(row.get("name"))),
        asked=messages_from(asked, "user") or None,
        answered=messages_from(row.get("output"), "assistant"),
        known=row.get("output") is not None,
        tools=definitions_in(nested(asked, "tools")),
        model=model,
        tokens_in=_count(usage, "input", "prompt_tokens", "promptTokens", "input_tokens"),
        tokens_out=_count(usage, "output", "completion_tokens", "completionTokens", "output_tokens"),
        cost_usd=next((cost for found in prices if (cost := _number(found)) is not None), None),
        error=(error_kind(_of(row, "statusMessage")) or "error") if row.get("level") == "ERROR" else None,
    )


def _number(found: Any) -> float | None:
    """Return a number, also one that a table of texts holds."""
    if not isinstance(found, str):
        return as_plain_number(found)
    try:
        return float(found)
    except ValueError:
        return None


def _count(usage: dict[str, Any], *names: str) -> int | None:
    return next((count for name in names if (count := as_count(usage.get(name))) is not None), None)


def _tool_call(row: dict[str, Any], told: dict[str, Any]) -> ToolCall:
    failed, said = row.get("level") == "ERROR", _of(row, "statusMessage")
    begun, ended = as_seconds(_of(row, "startTime")), as_seconds(_of(row, "endTime"))
    name, arguments = as_name(row.get("name")), decoded(row.get("input"))
    stage = names.stage_of(name)
    return ToolCall(
        start=begun,
        name=as_name(names.first(told, names.TOOL_NAMES)) or names.named(stage[0] if stage else name),
        span=as_name(row.get("id")),
        parent=as_name(_of(row, "parentObservationId")),
        stage=stage,
        arguments=names.first(told, names.ARGUMENTS) if arguments is None else arguments,
        result=row.get("output"),
        ok=not failed,
        source="flag" if failed else "unknown",
        error=(error_kind(said) or "error") if failed else None,
        error_text=as_name(said),
        call_id=as_name(names.first(told, names.CALL_IDS)),
        latency=ended - begun if begun is not None and ended is not None else None,
    )


PARSER = Parser(
    name="langfuse_traces",
    describes="Traces and observations exported from Langfuse (JSON, JSONL, CSV): trajectories, turns, calls, scores.",
    held_against="source: Langfuse's public API types",
    priority=80,
    of_training=False,
    recognises=recognises,
    read=read,
)
