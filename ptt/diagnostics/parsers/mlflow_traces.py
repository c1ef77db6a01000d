"""Traces that MLflow exports as JSON (`info` with assessments, `data` with spans), and its spans wherever they lie.

Source: mlflow/mlflow at 01fa3f8, mlflow/entities/trace.py (`Trace.to_json`), trace_info.py (`TraceInfo.to_dict`, and as
it was before 3.0 at 0206e55), assessment.py, span.py (`Span.to_dict`; `from_dict_v2` of before 3.0) and
mlflow/tracing/constant.py (`SpanAttributeKey`). One trace a document or a line, or a list or a page (`traces`) of them,
as `mlflow traces get` and `search` print them; also the artifact `traces.json`. Each attribute is a text of JSON. Spans
that MLflow took from other tracers keep the names of io/span_names.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.io import span_names as names
from ptt.diagnostics.parsers.io.interface import Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.message_shapes import decoded, definitions_in, messages_from
from ptt.diagnostics.parsers.io.record_files import error_kind, first_rows, rows_of
from ptt.diagnostics.parsers.io.span_trees import ModelCall, ToolCall, Trace, TraceReader
from ptt.diagnostics.parsers.io.trajectories import Samples
from ptt.diagnostics.parsers.io.values import as_count, as_name, as_plain_number, as_score, dict_of, dicts_in, nested

TYPE, INPUTS, OUTPUTS = "mlflow.spanType", "mlflow.spanInputs", "mlflow.spanOutputs"
KINDS: Final = {"CHAT_MODEL": names.MODEL, "LLM": names.MODEL, "TOOL": names.TOOL}
FAILED: Final = frozenset({"ERROR", "STATUS_CODE_ERROR", 2})
PASSED: Final = frozenset({"OK", "STATUS_CODE_OK", 1})


def is_span(found: Any) -> bool:
    """Return whether an object is one of MLflow's spans."""
    attributes = nested(found, "attributes")
    return isinstance(attributes, dict) and any(key.startswith("mlflow.") for key in attributes)


def trace_of(span: dict[str, Any]) -> str | None:
    """Return the id of a span's trace."""
    request = decoded(nested(span, "attributes", "mlflow.traceRequestId"))
    return as_name(request) or as_name(span.get("trace_id")) or as_name(nested(span, "context", "trace_id"))


def take(trace: Trace, span: dict[str, Any]) -> None:
    """Take a span in."""
    attributes = dict_of(span.get("attributes"))
    kind = as_name(decoded(attributes.get(TYPE)))
    told = KINDS.get(kind or "") or names.kind_of({key: decoded(attributes.get(key)) for key in names.KINDS})
    if told == names.MODEL:
        trace.add_model(_model_call(span))
    elif told == names.TOOL:
        trace.add_tool(_tool_call(span))
    if _parent(span) is None:
        trace.asked = messages_from(attributes.get(INPUTS), "user") or None
        trace.answered = messages_from(attributes.get(OUTPUTS), "assistant") or None
        if _code(span) in FAILED:
            trace.columns["error_type"] = _raised(span)[0] or "error"


def _parent(span: dict[str, Any]) -> str | None:
    return as_name(span.get("parent_span_id")) or as_name(span.get("parent_id")) or None


def _code(span: dict[str, Any]) -> Any:
    code = nested(span, "status", "code")
    code = span.get("status_code") if code is None else code
    return code if isinstance(code, (str, int)) else None


def _seconds(span: dict[str, Any], names: tuple[str, str]) -> float | None:
    found = next((span[name] for name in names if span.get(name) is not None), None)
    if isinstance(found, str) and found.isascii() and found.isdecimal() and len(found) < 20:
        found = int(found)
    number = as_plain_number(found)
    return number / 1e9 if number and number > 0 else None


def _raised(span: dict[str, Any]) -> tuple[str | None, str | None]:
    """Return the kind and the text of what a span raised."""
    events = [event for event in dicts_in(span.get("events")) if event.get("name") == "exception"]
    told = dict_of(events[0].get("attributes")) if events else {}
    text = as_name(nested(span, "status", "message")) or as_name(span.get("status_message")) or None
    kind = as_name(told.get("exception.type")) or error_kind(text)
    return kind, as_name(told.get("exception.message")) or text


def _model_call(span: dict[str, Any]) -> ModelCall:
    attributes = dict_of(span.get("attributes"))
    inputs, outputs = decoded(attributes.get(INPUTS)), decoded(attributes.get(OUTPUTS))
    used = dict_of(decoded(attributes.get("mlflow.chat.tokenUsage"))) or dict_of(nested(outputs, "usage"))
    others = {key: decoded(value) for key, value in attributes.items() if not key.startswith("mlflow.")}
    told = (decoded(attributes.get("mlflow.llm.model")), nested(outputs, "model"), nested(inputs, "model"))
    models = (*told, names.first(others, names.MODEL_NAMES), others.get("model"))
    asked, answered = messages_from(inputs, "user"), messages_from(outputs, "assistant")
    choices = nested(outputs, "choices")
    return ModelCall(
        start=_seconds(span, ("start_time_unix_nano", "start_time")),
        end=_seconds(span, ("end_time_unix_nano", "end_time")),
        span=as_name(span.get("span_id")) or as_name(nested(span, "context", "span_id")),
        parent=_parent(span),
        asked=asked or names.asked_of(others, []),
        answered=answered or names.answered_of(others, []) or (),
        known=outputs is not None,
        tools=definitions_in(attributes.get("mlflow.chat.tools")) or definitions_in(nested(inputs, "tools")),
        model=next((name for found in models if (name := as_name(found))), None),
        tokens_in=_count(used, ("input_tokens", "prompt_tokens"), others, names.INPUT_TOKENS),
        tokens_out=_count(used, ("output_tokens", "completion_tokens"), others, names.OUTPUT_TOKENS),
        cost_usd=as_plain_number(nested(decoded(attributes.get("mlflow.llm.cost")), "total_cost")),
        stop=as_name(nested(choices[0], "finish_reason"))
        if isinstance(choices, list) and choices
        else names.stop_of(others),
        error=(_raised(span)[0] or "error") if _code(span) in FAILED else None,
    )


def _count(used: dict[str, Any], own: tuple[str, ...], others: dict[str, Any], also: tuple[str, ...]) -> int | None:
    found = (*(used.get(name) for name in own), names.first(others, also))
    return next((count for value in found if (count := as_count(value)) is not None), None)


def _tool_call(span: dict[str, Any]) -> ToolCall:
    attributes, code = dict_of(span.get("attributes")), _code(span)
    begun = _seconds(span, ("start_time_unix_nano", "start_time"))
    ended = _seconds(span, ("end_time_unix_nano", "end_time"))
    kind, text = _raised(span)
    inputs, outputs = decoded(attributes.get(INPUTS)), decoded(attributes.get(OUTPUTS))
    return ToolCall(
        start=begun,
        name=as_name(span.get("name")),
        span=as_name(span.get("span_id")) or as_name(nested(span, "context", "span_id")),
        parent=_parent(span),
        arguments=inputs,
        result=nested(outputs, "content") if isinstance(nested(outputs, "content"), str) else outputs,
        ok=code not in FAILED,
        source="flag" if code in FAILED | PASSED else "unknown",
        error=(kind or "error") if code in FAILED else None,
        error_text=text,
        call_id=as_name(nested(outputs, "tool_call_id")),
        latency=ended - begun if begun is not None and ended is not None else None,
    )


HOLDERS: Final = frozenset({"traces", "spans"})
INFO: Final = frozenset({"trace_id", "request_id"})
NO_TRACE: Final = "object(s) skipped: no trace of MLflow."


def recognises(file: RunFile) -> bool:
    """Recognise a trace by its info and spans, or MLflow's spans by themselves."""
    rows = first_rows(file, HOLDERS)
    return bool(rows) and all(_is_trace(row) or is_span(row) for row in rows[:1])


def _is_trace(row: dict[str, Any]) -> bool:
    info = dict_of(row.get("info"))
    spans = isinstance(nested(row, "data", "spans"), list) or isinstance(row.get("data"), str)  # as JSON text
    return not INFO.isdisjoint(info) and (spans or "experiment_id" in info)


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a trace that holds spans."""
    yield from _Traces(file, PARSER.name).read(NO_TRACE)


class _Traces(TraceReader):
    """All traces of a file."""

    def rows(self) -> Iterator[Any]:
        """Yield traces and spans."""
        for row in rows_of(self.samples.file, HOLDERS):
            if not (isinstance(row, dict) and row.keys() <= {"next_page_token"}):  # what is left of a page
                yield row

    def add(self, row: dict[str, Any], _samples: Samples) -> bool:
        """Take in a trace or a span; False if it is neither."""
        if is_span(row):
            self._take(trace_of(row) or "", row)
            return True
        if not _is_trace(row):
            return False
        info = dict_of(row.get("info"))
        name = as_name(info.get("trace_id")) or as_name(info.get("request_id")) or ""
        for span in dicts_in(nested(decoded(row.get("data")), "spans")):
            self._take(name, span)
        trace = self.traces.of(name)
        if trace is not None:
            trace.scores |= dict(_scores(info.get("assessments")))
        return True

    def _take(self, name: str, span: dict[str, Any]) -> None:
        trace = self.traces.of(name)
        if trace is not None:
            take(trace, span)


def _scores(assessments: Any) -> Iterator[tuple[str, float]]:
    """Yield feedback on a trace that is a number or yes or no; an expectation is not feedback."""
    for found in dicts_in(assessments):
        name = as_name(found.get("assessment_name")) or as_name(found.get("name"))
        value = nested(found, "feedback", "value")
        score = {"yes": 1.0, "no": 0.0}.get(value.lower()) if isinstance(value, str) else as_score(value)
        if name is not None and score is not None:
            yield name, score


PARSER = Parser(
    name="mlflow_traces",
    describes="Traces exported from MLflow (JSON, JSONL): trajectories, turns, tool calls, assessments.",
    held_against="source: mlflow's Trace and Span",
    priority=80,
    of_training=False,
    recognises=recognises,
    read=read,
)
