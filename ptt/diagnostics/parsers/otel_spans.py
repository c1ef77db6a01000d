"""Spans of agents, by OpenTelemetry's conventions or by others, whoever exported them: turns, tool calls, evaluations.

Source: open-telemetry/opentelemetry-proto at ac2c4b5, docs/specification.md (JSON encoding: ids as hex, 64-bit integers
as text) and open-telemetry/semantic-conventions at 7b0c0fe, docs/registry/attributes/gen-ai.md with its deprecated
names; the names of others in io/span_names.py, the shapes of single spans in io/span_records.py. Exports of OTLP (the
collector's file exporter, ROLL's receiver), or spans by themselves or in their traces: lines, a list, a page, or
documents one after another as a console exporter prints them. A conversation is one trajectory; where no span names
it, a trace is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.io import span_names as names
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.json_documents import document_head, documents, members
from ptt.diagnostics.parsers.io.lines import SUFFIXES, first_objects
from ptt.diagnostics.parsers.io.message_shapes import decoded, messages_from
from ptt.diagnostics.parsers.io.record_files import first_rows
from ptt.diagnostics.parsers.io.span_records import KIND, Span, is_span, span_of, spans_in
from ptt.diagnostics.parsers.io.span_trees import ModelCall, ToolCall, TraceReader
from ptt.diagnostics.parsers.io.trajectories import Samples, objects
from ptt.diagnostics.parsers.io.values import as_count, as_label, as_name, as_score, dicts_in

RESOURCES: Final = "resourceSpans"
HOLDERS: Final = frozenset({RESOURCES, "data", "traces", "spans"})
PRINTED: Final = (".txt", ".log", ".out")  # what a console exporter printed, if nothing else was before
CONVERSATION: Final = "gen_ai.conversation.id"


def recognises(file: RunFile) -> bool:
    """Recognise JSON whose head names resourceSpans, and spans by themselves or in their traces."""
    name = file.name.lower()
    head = file.readable_head if name.endswith((".json", *SUFFIXES, *PRINTED)) else b""
    if not head.lstrip().startswith((b"{", b"[")):
        return False
    if b'"resourceSpans"' in head[:4096]:
        return True
    return any(_is_ours(span) for row in _first(file) for span in itertools.islice(spans_in(row), 1))


def _is_ours(span: dict[str, Any]) -> bool:
    """Return whether a span is none of MLflow's, which it exports in traces of its own."""
    attributes = span.get("attributes")
    return not (isinstance(attributes, dict) and any(key.startswith("mlflow.") for key in attributes))


def _first(file: RunFile) -> list[dict[str, Any]]:
    """Return the first rows; the lines of a file may hold the first document only in part."""
    rows = first_rows(file, HOLDERS)
    return rows if rows or file.name.lower().endswith(".json") else dicts_in([_top(file)])


def _top(file: RunFile) -> Any:
    """Return the first document of a file, as far as its beginning holds it."""
    return file.look("top", lambda: document_head(file.readable_head.decode("utf-8", "replace"), whole=False))


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a conversation that holds spans of a model or a tool."""
    yield from _Spans(file, PARSER.name).read("object(s) skipped: no spans.")


def _rows(file: RunFile) -> Iterator[Any]:
    """Yield exports, traces or spans: of lines, of a list, of a document, or documents one after another."""
    if file.name.lower().endswith(SUFFIXES) and first_objects(file):
        yield from objects(file)
    elif is_span(_top(file)):
        yield from documents(file)
    else:
        yield from _members(file)


def _members(file: RunFile) -> Iterator[Any]:
    whole: dict[str, Any] = {}
    for member in members(file, HOLDERS):
        if isinstance(member, Lost):
            yield member
        elif member[0] == RESOURCES:
            yield {RESOURCES: [member[1]]}
        elif member[0] == "" or member[0] in HOLDERS:
            yield {**whole, "spans": [member[1]]} if member[0] == "spans" else member[1]
        else:
            whole[member[0]] = member[1]


class _Spans(TraceReader):
    """All spans of a file, under the conversations they belong to."""

    def __init__(self, file: RunFile, parser: str) -> None:
        super().__init__(file, parser)
        self._conversations: dict[str, str] = {}  # by trace, if its spans name one
        self._ended: set[tuple[str, str]] = set()  # two exporters may write one span
        self._open: dict[tuple[str, str], Span] = {}  # spans whose end is not written yet

    def rows(self) -> Iterator[Any]:
        """Yield the rows, and then the spans that never ended."""
        yield from _rows(self.samples.file)
        for span in self._open.values():
            self._take(span, begun=True)

    def names(self) -> dict[str, str]:
        """Return the conversations of traces; all traces are one where each is of a model or of a tool alone."""
        if not self._conversations and self.traces.apart():
            return dict.fromkeys(self.traces.by_id, self.samples.file.rel)
        return self._conversations

    def add(self, row: dict[str, Any], _samples: Samples) -> bool:
        """Take in the spans of an export, or of a row that is or holds some; False if it is neither."""
        held = [row] if RESOURCES not in row else list(_of_export(row))
        found = [span for place in held for span in spans_in(place)]
        for one in found:
            self._add(span_of(one))
        return bool(found) or isinstance(row.get(RESOURCES), list) or row.get("object") == "trace" or "spans" in row

    def _add(self, span: Span) -> None:
        place = (span.trace or "", span.id or "")
        if place in self._ended:
            return
        if span.end is None and span.id is not None:
            self._open[place] = span
            return
        self._open.pop(place, None)
        if span.id is not None:
            self._ended.add(place)
        self._take(span)

    def _take(self, span: Span, *, begun: bool = False) -> None:
        scores: dict[str, float | None] = {}
        for told in [span.attributes, *(told for _, told in span.events)]:  # evaluations may be in either
            if (name := as_label(told.get("gen_ai.evaluation.name"))) is not None:
                scores[name] = as_score(told.get("gen_ai.evaluation.score.value"))
                self.samples.mean("gen_ai.evaluation", None, name, scores[name])
        if span.trace is None:
            return
        if (conversation := as_label(span.attributes.get(CONVERSATION))) is not None:
            self._conversations.setdefault(span.trace, conversation)
        kind = names.kind_of(span.attributes)
        agent = span.attributes.get(KIND) == "AGENT" and (begun or span.failed)
        perhaps = kind is None and names.may_be_of_model(span.attributes)
        if kind is None and not scores and not agent and not perhaps:
            return
        trace = self.traces.of(span.trace)
        if trace is None:
            return
        trace.scores |= scores
        if kind == names.TOOL:
            trace.add_tool(_tool_call(span))
        elif kind == names.MODEL or perhaps:
            trace.add_model(_model_call(span), sure=not perhaps)
        elif agent:  # an attempt that ended before it called anything is one too
            trace.asked = trace.asked or messages_from(span.attributes.get("input.value"), "user")
            trace.columns.setdefault("error_type", _error(span))


def _of_export(export: dict[str, Any]) -> Iterator[Any]:
    for resource in dicts_in(export[RESOURCES]):
        for scope in dicts_in(resource.get("scopeSpans") or resource.get("instrumentationLibrarySpans")):
            yield from dicts_in(scope.get("spans"))


def _model_call(span: Span) -> ModelCall:
    attributes = span.attributes
    asked, answered = names.asked_of(attributes, span.events), names.answered_of(attributes, span.events)
    return ModelCall(
        start=span.began,
        end=span.ended,
        span=span.id,
        parent=span.parent,
        stage=names.stage_of(span.name),
        asked=asked,
        answered=answered or (),
        known=answered is not None,
        tools=names.tools_of(attributes),
        model=as_name(names.first(attributes, names.MODEL_NAMES)),
        tokens_in=as_count(names.first(attributes, names.INPUT_TOKENS)),
        tokens_out=as_count(names.first(attributes, names.OUTPUT_TOKENS)),
        cost_usd=as_score(names.first(attributes, names.COSTS)),
        stop=names.stop_of(attributes),
        error=_error(span),
    )


def _tool_call(span: Span) -> ToolCall:
    attributes, error, stage = span.attributes, _error(span), names.stage_of(span.name)
    raised: dict[str, Any] = next((told for name, told in span.events if name == "exception"), {})
    marked = attributes.get("error.type") is not None
    message = as_name(raised.get("exception.message")) or span.message
    arguments, result = names.first(attributes, names.ARGUMENTS), names.first(attributes, names.RESULTS)
    return ToolCall(
        start=span.began,
        span=span.id,
        parent=span.parent,
        stage=stage,
        name=as_label(names.first(attributes, names.TOOL_NAMES)) or names.named(stage[0] if stage else span.name),
        arguments=_plain(names.event(span.events, names.EVENT_INPUT) if arguments is None else arguments),
        result=_plain(names.event(span.events, names.EVENT_OUTPUT) if result is None else result),
        ok=error is None,
        source="error_field" if marked else "flag" if error or span.failed is False else "unknown",
        error=(as_label(raised.get("exception.type")) or error) if error == "error" else error,
        error_text=message if error else None,
        call_id=as_label(names.first(attributes, names.CALL_IDS)),
        latency=span.latency,
    )


def _plain(found: Any) -> Any:
    return decoded(found) if isinstance(found, str) and found.startswith('"') else found


def _error(span: Span) -> str | None:
    return as_label(span.attributes.get("error.type")) or ("error" if span.failed else None)


PARSER = Parser(
    name="otel_spans",
    describes="Spans of agents (OTLP, console exporters, Phoenix, Jaeger, Agents SDK): turns, tool calls, evaluations.",
    held_against="real: spans of Phoenix, Jaeger and RAAF; source: OpenTelemetry GenAI semantic conventions, OTLP JSON",
    priority=80,
    of_training=False,
    recognises=recognises,
    read=read,
)
