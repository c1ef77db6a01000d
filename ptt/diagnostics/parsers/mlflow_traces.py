"""Traces that MLflow exports as JSON: `info` with assessments, and `data` with spans; also the artifact `traces.json`.

Source: mlflow/mlflow at 01fa3f8, mlflow/entities/trace.py (`Trace.to_json`), trace_info.py (`TraceInfo.to_dict`, and as
it was before 3.0 at 0206e55), assessment.py; spans in io/mlflow_spans.py. One trace a document or a line, or a list or
a page (`traces`) of them, as `mlflow traces get` and `search` print them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.io.interface import Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.message_shapes import decoded
from ptt.diagnostics.parsers.io.mlflow_spans import is_span, take, trace_of
from ptt.diagnostics.parsers.io.record_files import first_rows, rows_of
from ptt.diagnostics.parsers.io.span_trees import TraceReader
from ptt.diagnostics.parsers.io.trajectories import Samples
from ptt.diagnostics.parsers.io.values import as_name, as_score, dict_of, dicts_in, nested

HOLDERS: Final = frozenset({"traces", "spans"})
INFO: Final = frozenset({"trace_id", "request_id"})
NO_TRACE: Final = "object(s) skipped: no trace of MLflow."


def recognises(file: RunFile) -> bool:
    """Recognise a trace by its info and spans, or MLflow's spans by themselves."""
    rows = first_rows(file, HOLDERS)
    return bool(rows) and all(_is_trace(row) or is_span(row) for row in rows[:1])


def _is_trace(row: dict[str, Any]) -> bool:
    info = dict_of(row.get("info"))
    spans = isinstance(nested(row, "data", "spans"), list) or isinstance(row.get("data"), str)  # of JSON
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
        """Take a trace or a span in; False if it is neither."""
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
    """Yield the feedback on a trace that is a number or says yes or no; an expectation is none."""
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
