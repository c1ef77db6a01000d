"""Calls that W&B Weave exports, one object a call: ops of models, tools and evaluations.

Source: wandb/weave at 0043950, weave/trace_server/trace_server_interface.py (`CallSchema`), whose server streams calls
as lines; also a list, or a document under `calls`. A trace is one trajectory; of an evaluation each `predict_and_score`
is. A call is of a model by the kind or the name of its op or by the shape of what it gave; it is of a tool by its kind,
or by a name that a model called.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.io.interface import Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.message_shapes import definitions_in, messages_from
from ptt.diagnostics.parsers.io.record_files import error_kind, first_rows, rows_of
from ptt.diagnostics.parsers.io.span_trees import ModelCall, ToolCall, Trace, TraceReader
from ptt.diagnostics.parsers.io.trajectories import Samples
from ptt.diagnostics.parsers.io.values import as_count, as_name, as_score, as_seconds, dict_of, dicts_in, nested

HOLDERS: Final = frozenset({"calls"})
KEYS: Final = frozenset({"op_name", "trace_id", "started_at"})
OP: Final = re.compile(r"(?:.*/op/)?([^:/]+)(?::[^:]*)?$", re.DOTALL)
OF_MODEL: Final = re.compile(
    r"chat[._]?completions?|[Mm]essages\.(?:create|stream)|[Rr]esponses\.(?:create|parse)|generate_content"
    r"|litellm\.a?completion|converse|invoke_model"
)
EPISODE: Final = "Evaluation.predict_and_score"
SCORER: Final = "wandb.runnable."
USED: Final = {"tokens_in": ("prompt_tokens", "input_tokens"), "tokens_out": ("completion_tokens", "output_tokens")}
NO_CALL: Final = "object(s) skipped: not a call."


def recognises(file: RunFile) -> bool:
    """Recognise objects that name an op, its trace and when it began."""
    rows = first_rows(file, HOLDERS)
    return bool(rows) and all(row.keys() >= KEYS for row in rows[:1])


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a trace that called a model or a tool."""
    yield from _Calls(file, PARSER.name).read(NO_CALL)


class _Calls(TraceReader):
    """All calls of a file, each at first by itself: what it belongs to may come behind it."""

    def __init__(self, file: RunFile, parser: str) -> None:
        super().__init__(file, parser)
        self._parents: dict[str, str] = {}
        self._of: dict[str, str] = {}
        self._episodes: set[str] = set()

    def rows(self) -> Iterator[Any]:
        """Yield the calls."""
        yield from rows_of(self.samples.file, HOLDERS)

    def names(self) -> dict[str, str]:
        """Return what each call belongs to."""
        roots: dict[str, str] = {}
        for call in self._of:
            self._find(call, roots)
        return roots

    def _find(self, call: str, roots: dict[str, str]) -> None:
        """Find what a call and its parents belong to: an episode of an evaluation, else the trace."""
        path: list[str] = []
        at: str | None = call
        while at is not None and at not in roots and at not in self._episodes and len(path) <= len(self._of):
            path.append(at)
            at = self._parents.get(at)
        root = self._of[call] if at is None else roots.get(at, at)
        roots |= dict.fromkeys(path, root)

    def add(self, row: dict[str, Any], _samples: Samples) -> bool:
        """Take in one call; False if it is not one."""
        name, trace_id = as_name(row.get("id")), as_name(row.get("trace_id"))
        if trace_id is None or not row.keys() >= KEYS:
            return False
        name = name or f"{trace_id}/{len(self._of)}"
        trace = self.traces.of(name)
        if trace is None:
            return True
        self._of[name] = trace_id
        parent = as_name(row.get("parent_id"))
        if parent is not None:
            self._parents[name] = parent
        op = OP.match(as_name(row.get("op_name")) or "")
        _take(trace, row, op[1] if op else "", parent)
        if op and op[1] == EPISODE:
            self._episodes.add(name)
        return True


def _take(trace: Trace, row: dict[str, Any], op: str, parent: str | None) -> None:
    attributes, output = dict_of(row.get("attributes")), row.get("output")
    kind = as_name(attributes.get("kind")) or as_name(nested(attributes, "weave", "kind"))
    if op == EPISODE:
        example = nested(row, "inputs", "example")
        task = example.rpartition("/")[2] if isinstance(example, str) else as_name(nested(example, "id"))
        trace.columns |= {"task": task, "group_id": task}
        trace.scores |= dict(_scores(nested(output, "scores")))
    elif kind == "llm" or OF_MODEL.search(op) or _is_answer(output):
        trace.add_model(_model_call(row, parent))
    else:
        trace.add_tool(_tool_call(row, op, parent), sure=kind == "tool")
    for feedback in dicts_in(nested(row, "summary", "weave", "feedback")):
        name = (as_name(feedback.get("feedback_type")) or "").removeprefix(SCORER)
        trace.scores |= dict(_scores({name: nested(feedback, "payload", "output")}))
    if parent is None and (failed := error_kind(row.get("exception"))) is not None:
        trace.columns["error_type"] = failed


def _is_answer(output: Any) -> bool:
    """Return whether a call gave what a model's client gives."""
    choices = nested(output, "choices")
    told = isinstance(choices, list) and bool(choices) and isinstance(nested(choices[0], "message"), dict)
    return told or (nested(output, "role") == "assistant" and nested(output, "usage") is not None)


def _scores(found: Any) -> Iterator[tuple[str, float]]:
    """Yield the scores of an episode, those of one scorer under its name."""
    for name, value in dict_of(found).items():
        inner = value.items() if isinstance(value, dict) else ((None, value),)
        for part, given in inner:
            score = as_score(given) if not isinstance(given, str) else None
            if score is not None:
                yield (name if part is None else f"{name}/{part}"), score


def _model_call(row: dict[str, Any], parent: str | None) -> ModelCall:
    inputs, output = row.get("inputs"), row.get("output")
    used = dict_of(nested(row, "summary", "usage"))
    costs = dict_of(nested(row, "summary", "weave", "costs"))
    sums = {column: _total(used, names) for column, names in USED.items()}
    spent = _total(costs, ("prompt_tokens_total_cost",)), _total(costs, ("completion_tokens_total_cost",))
    choices = nested(output, "choices")
    models = (nested(output, "model"), nested(inputs, "model"), *used)
    return ModelCall(
        start=as_seconds(row.get("started_at")),
        end=as_seconds(row.get("ended_at")),
        span=as_name(row.get("id")),
        parent=parent,
        asked=messages_from(_told(inputs), "user") or None,
        answered=messages_from(output, "assistant"),
        known=output is not None,
        tools=definitions_in(nested(inputs, "tools")),
        model=next((name for found in models if (name := as_name(found))), None),
        tokens_in=as_count(sums["tokens_in"]),
        tokens_out=as_count(sums["tokens_out"]),
        cost_usd=sum(cost or 0.0 for cost in spent) if spent != (None, None) else None,
        stop=as_name(nested(choices[0], "finish_reason")) if isinstance(choices, list) and choices else None,
        error=error_kind(row.get("exception")),
    )


def _told(inputs: Any) -> Any:
    """Return the arguments of an op that hold messages, not the object it is a method of."""
    kept = ("messages", "input", "contents", "prompt", "system")
    return {key: value for key, value in dict_of(inputs).items() if key in kept} or None


def _total(found: dict[str, Any], names: tuple[str, ...]) -> float | None:
    counts = [score for used in found.values() for name in names if (score := as_score(nested(used, name))) is not None]
    return sum(counts) if counts else None


def _tool_call(row: dict[str, Any], op: str, parent: str | None) -> ToolCall:
    error, inputs = row.get("exception"), row.get("inputs")
    begun, ended = as_seconds(row.get("started_at")), as_seconds(row.get("ended_at"))
    return ToolCall(
        start=begun,
        name=op or None,
        span=as_name(row.get("id")),
        parent=parent,
        arguments={key: value for key, value in dict_of(inputs).items() if key != "self"},
        result=row.get("output"),
        ok=not error,
        source="error_field" if error or "exception" in row else "unknown",
        error=error_kind(error),
        error_text=as_name(error),
        latency=ended - begun if begun is not None and ended is not None else None,
    )


PARSER = Parser(
    name="weave_calls",
    describes="Calls exported from W&B Weave (JSON, JSONL): trajectories, turns, tool calls, scores.",
    held_against="source: wandb/weave CallSchema",
    priority=80,
    of_training=False,
    recognises=recognises,
    read=read,
)
