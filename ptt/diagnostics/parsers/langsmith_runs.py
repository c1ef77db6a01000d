"""Runs that LangSmith exports, one object a run: calls of models and tools below the run of a chain or an agent.

Source: langchain-ai/langsmith-sdk at bc8dd67, python/langsmith/schemas.py (`Run`), and the exporter of
langchain-ai/langchain-skills at 1903068, config/skills/langsmith-trace/scripts/query_traces.py (`run_id`,
`token_usage`, `costs`). Lines, a list, or a document under `runs`; a run may hold its `child_runs`. A trace is one
trajectory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.io.interface import Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.message_shapes import definitions_in, messages_from
from ptt.diagnostics.parsers.io.record_files import error_kind, first_rows, rows_of
from ptt.diagnostics.parsers.io.span_trees import ModelCall, ToolCall, Trace, TraceReader
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

HOLDERS: Final = frozenset({"runs"})
KINDS: Final = frozenset({"llm", "chain", "tool", "retriever", "embedding", "prompt", "parser"})
BESIDE: Final = frozenset({"parent_run_id", "trace_id", "inputs", "outputs", "child_runs", "dotted_order"})
NO_RUN: Final = "object(s) skipped: not a run."


def recognises(file: RunFile) -> bool:
    """Recognise runs: objects with a run type, and with inputs or a parent."""
    rows = first_rows(file, HOLDERS)
    return bool(rows) and all(map(_is_run, rows[:1]))


def _is_run(row: dict[str, Any]) -> bool:
    return as_name(row.get("run_type")) in KINDS and not BESIDE.isdisjoint(row)


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a trace that holds runs of a model or a tool."""
    yield from _Runs(file, PARSER.name).read(NO_RUN)


class _Runs(TraceReader):
    """All runs of a file, under the traces they belong to."""

    def rows(self) -> Iterator[Any]:
        """Yield the runs."""
        for row in rows_of(self.samples.file, HOLDERS):
            if not (isinstance(row, dict) and "run_type" not in row and row.keys() <= {"trace_id"}):
                yield row  # the rest of a document without its runs is not a run

    def add(self, row: dict[str, Any], _samples: Samples) -> bool:
        """Take in a run and those below it; False if it is not a run."""
        if not _is_run(row):
            return False
        name = _trace_of(row)
        waiting = [(row, as_name(row.get("parent_run_id")))]
        while waiting:
            run, parent = waiting.pop()
            trace = self.traces.of(name) if _is_run(run) else None
            if trace is not None:
                _take(trace, run, parent)
            own = as_name(run.get("id")) or as_name(run.get("run_id")) or name
            waiting += [(child, own) for child in dicts_in(run.get("child_runs"))]
        return True


def _trace_of(run: dict[str, Any]) -> str:
    order = (as_name(run.get("dotted_order")) or "").partition(".")[0]
    names = (run.get("trace_id"), order, run.get("parent_run_id"), run.get("id"), run.get("run_id"))
    return next((name for name in map(as_name, names) if name), "")


def _take(trace: Trace, run: dict[str, Any], parent: str | None) -> None:
    kind, inputs, outputs = run["run_type"], run.get("inputs"), run.get("outputs")
    places: dict[str, Any] = {"span": as_name(run.get("id")) or as_name(run.get("run_id")), "parent": parent}
    if kind == "llm":
        trace.add_model(_model_call(run, places))
    elif kind == "tool":
        trace.add_tool(_tool_call(run, places))
    if parent is None:
        metadata = dict_of(nested(run, "extra", "metadata")) or dict_of(run.get("custom_metadata"))
        example = as_name(run.get("reference_example_id")) or as_name(metadata.get("reference_example_id"))
        trace.columns |= {"task": example, "group_id": example}
        if (failed := error_kind(run.get("error"))) is not None:
            trace.columns["error_type"] = failed
        trace.asked, trace.answered = messages_from(inputs, "user") or None, messages_from(outputs, "assistant") or None
        for name, stats in dict_of(run.get("feedback_stats")).items():
            average = as_score(nested(stats, "avg"))
            if average is not None:
                trace.scores[name] = average


def _model_call(run: dict[str, Any], places: dict[str, Any]) -> ModelCall:
    inputs, outputs, extra = run.get("inputs"), run.get("outputs"), dict_of(run.get("extra"))
    settings, metadata = dict_of(extra.get("invocation_params")), dict_of(extra.get("metadata"))
    models = (metadata.get("ls_model_name"), settings.get("model"), settings.get("model_name"), nested(inputs, "model"))
    used = (run, run.get("token_usage"), nested(outputs, "llm_output", "token_usage"), nested(outputs, "usage"))
    counted = dict_of(nested(outputs, "usage_metadata"))
    return ModelCall(
        **places,
        start=as_seconds(run.get("start_time")),
        end=as_seconds(run.get("end_time")),
        asked=messages_from(inputs, "user") or None,
        answered=messages_from(outputs, "assistant"),
        known=outputs is not None,
        tools=definitions_in(settings.get("tools") or nested(inputs, "tools")),
        model=next((name for found in models if (name := as_name(found))), None),
        tokens_in=_first_count([*(nested(found, "prompt_tokens") for found in used), counted.get("input_tokens")]),
        tokens_out=_first_count(
            [*(nested(found, "completion_tokens") for found in used), counted.get("output_tokens")]
        ),
        cost_usd=as_plain_number(run.get("total_cost", nested(run, "costs", "total_cost"))),
        stop=_stop(outputs),
        error=error_kind(run.get("error")),
    )


def _first_count(found: list[Any]) -> int | None:
    return next((count for value in found if (count := as_count(value)) is not None), None)


def _stop(outputs: Any) -> str | None:
    found = nested(outputs, "choices") or nested(outputs, "generations")
    while isinstance(found, list) and found:
        found = found[0]
    return as_name(nested(found, "finish_reason")) or as_name(nested(found, "generation_info", "finish_reason"))


def _tool_call(run: dict[str, Any], places: dict[str, Any]) -> ToolCall:
    inputs, outputs = run.get("inputs"), run.get("outputs")
    message = dict_of(nested(outputs, "output"))
    told = dict_of(message.get("kwargs")) or message  # as LangChain spells an object
    marked = told.get("status") == "error"
    result = told.get("content") if "content" in told else nested(outputs, "output")
    error = run.get("error")
    begun, ended = as_seconds(run.get("start_time")), as_seconds(run.get("end_time"))
    return ToolCall(
        **places,
        start=begun,
        name=as_name(run.get("name")),
        arguments=nested(inputs, "input") if isinstance(nested(inputs, "input"), str) else inputs,
        result=outputs if result is None else result,
        ok=not (error or marked),
        source="flag" if marked else "error_field" if "error" in run else "unknown",
        error=error_kind(error),
        error_text=as_name(error),
        call_id=as_name(told.get("tool_call_id")),
        latency=ended - begun if begun is not None and ended is not None else None,
    )


PARSER = Parser(
    name="langsmith_runs",
    describes="Runs exported from LangSmith (JSON, JSONL): trajectories, turns, tool calls, feedback.",
    held_against="source: langsmith-sdk's Run, langchain-skills' exporter",
    priority=80,
    of_training=False,
    recognises=recognises,
    read=read,
)
