"""Spans of agents by OpenTelemetry's conventions for generative AI: turns, tool calls and evaluations.

Source: open-telemetry/opentelemetry-proto at ac2c4b5, docs/specification.md (JSON encoding: ids as hex, 64-bit integers
as text) and open-telemetry/semantic-conventions at 7b0c0fe, docs/registry/attributes/gen-ai.md with its deprecated
names; the names of others in io/span_names.py. One JSON object a document or a line, as the collector's file exporter
and ROLL's receiver write them. A conversation is one trajectory; where no span names it, a trace is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.io import span_names as names
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.json_documents import members
from ptt.diagnostics.parsers.io.lines import SUFFIXES
from ptt.diagnostics.parsers.io.message_shapes import decoded
from ptt.diagnostics.parsers.io.span_trees import ModelCall, ToolCall, TraceReader
from ptt.diagnostics.parsers.io.trajectories import Samples, objects
from ptt.diagnostics.parsers.io.values import as_count, as_label, as_name, as_score, dicts_in, nested

TOP: Final = b'"resourceSpans"'
ERROR_CODES: Final = (2, "2", "STATUS_CODE_ERROR")
OK_CODES: Final = (1, "1", "STATUS_CODE_OK")
CONVERSATION: Final = "gen_ai.conversation.id"


def recognises(file: RunFile) -> bool:
    """Recognise JSON whose head names resourceSpans."""
    head = file.readable_head if file.name.lower().endswith((".json", *SUFFIXES)) else b""
    return head.lstrip().startswith((b"{", b"[")) and TOP in head[:4096]


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a conversation that holds spans of a model or a tool."""
    yield from _Spans(file, PARSER.name).read("object(s) skipped: no spans.")


def _exports(file: RunFile) -> Iterator[dict[str, Any] | Lost]:
    """Yield objects with resourceSpans, of a document, of a list or of lines."""
    if file.name.lower().endswith(SUFFIXES):
        yield from objects(file)
        return
    for member in members(file, frozenset({"resourceSpans"})):
        if isinstance(member, Lost):
            yield member
        elif member[0] == "resourceSpans":
            yield {"resourceSpans": [member[1]]}
        elif member[0] == "":
            yield member[1]


class _Spans(TraceReader):
    """All spans of a file, under the conversations they belong to."""

    def __init__(self, file: RunFile, parser: str) -> None:
        super().__init__(file, parser)
        self._conversations: dict[str, str] = {}  # by trace, if its spans name one

    def rows(self) -> Iterator[Any]:
        """Yield the exports."""
        yield from _exports(self.samples.file)

    def names(self) -> dict[str, str]:
        """Return the conversations of traces."""
        return self._conversations

    def add(self, export: dict[str, Any], _samples: Samples) -> bool:
        """Take in the spans of one export; False if it is not one."""
        resources = export.get("resourceSpans")
        for resource in items(export, "resourceSpans"):
            for scope in items(resource, "scopeSpans") or items(resource, "instrumentationLibrarySpans"):
                for span in dicts_in(nested(scope, "spans")):
                    self._take(span)
        return isinstance(resources, list)

    def _take(self, span: dict[str, Any]) -> None:
        attributes, trace_id = attributes_of(span), as_label(span.get("traceId"))
        events = [(as_label(event.get("name")) or "", attributes_of(event)) for event in dicts_in(span.get("events"))]
        scores: dict[str, float | None] = {}
        for told in [attributes, *(told for _, told in events)]:  # evaluations may be in either
            if (name := as_label(told.get("gen_ai.evaluation.name"))) is not None:
                scores[name] = as_score(told.get("gen_ai.evaluation.score.value"))
                self.samples.mean("gen_ai.evaluation", None, name, scores[name])
        if trace_id is None:
            return
        if (conversation := as_label(attributes.get(CONVERSATION))) is not None:
            self._conversations.setdefault(trace_id, conversation)
        kind = names.kind_of(attributes)
        if kind is None and not scores:
            return
        trace = self.traces.of(trace_id)
        if trace is None:
            return
        trace.scores |= scores
        if kind == names.TOOL:
            trace.add_tool(_tool_call(span, attributes, events))
        elif kind == names.MODEL:
            trace.add_model(_model_call(span, attributes, events))


def _model_call(span: dict[str, Any], attributes: dict[str, Any], events: list[tuple[str, Any]]) -> ModelCall:
    asked, answered = names.asked_of(attributes, events), names.answered_of(attributes, events)
    return ModelCall(
        start=seconds(span.get("startTimeUnixNano")),
        end=seconds(span.get("endTimeUnixNano")),
        span=as_label(span.get("spanId")),
        parent=as_label(span.get("parentSpanId")) or None,
        asked=asked,
        answered=answered or (),
        known=answered is not None,
        tools=names.tools_of(attributes),
        model=as_name(names.first(attributes, names.MODEL_NAMES)),
        tokens_in=as_count(names.first(attributes, names.INPUT_TOKENS)),
        tokens_out=as_count(names.first(attributes, names.OUTPUT_TOKENS)),
        cost_usd=as_score(names.first(attributes, names.COSTS)),
        stop=names.stop_of(attributes),
        error=_error(span, attributes),
    )


def _tool_call(span: dict[str, Any], attributes: dict[str, Any], events: list[tuple[str, Any]]) -> ToolCall:
    error, code = _error(span, attributes), nested(span, "status", "code")
    raised: dict[str, Any] = next((told for name, told in events if name == "exception"), {})
    marked = attributes.get("error.type") is not None
    message = as_name(raised.get("exception.message")) or as_name(nested(span, "status", "message")) or None
    return ToolCall(
        start=seconds(span.get("startTimeUnixNano")),
        span=as_label(span.get("spanId")),
        parent=as_label(span.get("parentSpanId")) or None,
        name=as_label(names.first(attributes, names.TOOL_NAMES)) or names.named(as_label(span.get("name"))),
        arguments=_plain(names.first(attributes, names.ARGUMENTS)),
        result=_plain(names.first(attributes, names.RESULTS)),
        ok=error is None,
        source="error_field" if marked else "flag" if error or code in OK_CODES else "unknown",
        error=(as_label(raised.get("exception.type")) or error) if error == "error" else error,
        error_text=message if error else None,
        call_id=as_label(names.first(attributes, names.CALL_IDS)),
        latency=latency(span),
    )


def _plain(found: Any) -> Any:
    return decoded(found) if isinstance(found, str) and found.startswith('"') else found


def _error(span: dict[str, Any], attributes: dict[str, Any]) -> str | None:
    kind = as_label(attributes.get("error.type"))
    failed = nested(span, "status", "code") in ERROR_CODES
    return kind or ("error" if failed else None)


VALUES: Final = ("stringValue", "intValue", "doubleValue", "boolValue")
MAX_DEPTH: Final = 16  # nesting that any attribute could mean


def attributes_of(found: Any) -> dict[str, Any]:
    """Return the attributes of a span or an event by their keys."""
    pairs = [(nested(item, "key"), nested(item, "value")) for item in items(found, "attributes")]
    return {key: value_of(value) for key, value in pairs if isinstance(key, str)}


def value_of(found: Any, depth: int = 0) -> Any:
    """Read a typed value; integers are text in this encoding."""
    if not isinstance(found, dict) or depth > MAX_DEPTH:
        return None
    if "arrayValue" in found:
        return [value_of(item, depth + 1) for item in items(found["arrayValue"], "values")]
    if "kvlistValue" in found:
        pairs = items(found["kvlistValue"], "values")
        return {str(nested(pair, "key")): value_of(nested(pair, "value"), depth + 1) for pair in pairs}
    return next((found[kind] for kind in VALUES if kind in found), None)


def seconds(found: Any) -> float | None:
    """Return the seconds since the epoch of nanoseconds."""
    value = _nanoseconds(found)
    return None if value is None else value / 1e9


def latency(span: dict[str, Any]) -> float | None:
    """Return the seconds a span took, by integers: a float of seconds since the epoch would round them."""
    start, end = _nanoseconds(span.get("startTimeUnixNano")), _nanoseconds(span.get("endTimeUnixNano"))
    return (end - start) / 1e9 if start is not None and end is not None and end >= start else None


def _nanoseconds(value: Any) -> int | None:
    """Read a time, which is text in this encoding."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        value = int(value)
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 2**64
    return int(value) if known else None


def items(found: Any, key: str) -> list[Any]:
    """Return the list under a key; an empty one if there is none."""
    value = nested(found, key)
    return value if isinstance(value, list) else []


PARSER = Parser(
    name="otel_spans",
    describes="OpenTelemetry spans of agents (OTLP JSON): trajectories, turns, tool calls with latencies, evaluations.",
    held_against="source: OpenTelemetry GenAI semantic conventions, OTLP JSON",
    priority=80,
    of_training=False,
    recognises=recognises,
    read=read,
)
