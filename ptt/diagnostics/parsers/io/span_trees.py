"""Turn traces, as trees of spans, into conversations with the calls of models and tools.

Tracers write one span for each call. A model's call repeats the conversation so far, so each message is kept once a
trace, under a digest of its content, and the conversation grows span by span in order of time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import Any, Final, TypeVar

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.parsers.io.answer_texts import success_of
from ptt.diagnostics.parsers.io.conversations import prompt_messages
from ptt.diagnostics.parsers.io.interface import Lost, Piece, RunFile, count_notes
from ptt.diagnostics.parsers.io.record_labels import CUT_SHORT
from ptt.diagnostics.parsers.io.tool_calls import ARGS_CHARS, SHOWN_ERROR_CHARS, call_row, calls_of, told_columns
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, attempt, read_samples, tool_names
from ptt.diagnostics.parsers.io.values import as_hash, as_json, as_text, dicts_in, nested

MAX_SPANS: Final = 1_000_000  # a trace is complete only at the end of the file, so all are held, each message once
SUMS: Final = ("tokens_in", "tokens_out", "cost_usd")


@dataclass(frozen=True, kw_only=True)
class ModelCall:
    """One call of a model. `asked`: the conversation it was sent; None where the tracer kept no texts."""

    start: float | None
    span: str | None = None
    parent: str | None = None
    stage: tuple[str, str] | None = None  # what it shares with the other spans of a call that is told in several
    end: float | None = None
    asked: Sequence[dict[str, Any]] | None = None
    answered: Sequence[dict[str, Any]] = ()
    known: bool = True  # its answer was kept
    tools: Sequence[dict[str, Any]] = ()
    model: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None
    stop: str | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """One call of a tool, as the span of the tool itself tells it."""

    start: float | None
    name: str | None
    span: str | None = None
    parent: str | None = None
    stage: tuple[str, str] | None = None
    arguments: Any = None
    result: Any = None
    ok: bool | None = None
    source: str = "unknown"  # as in the table of tool calls
    error: str | None = None  # its kind
    error_text: str | None = None
    call_id: str | None = None
    latency: float | None = None

    def row(self, number: int, turn: int) -> dict[str, Any]:
        """Return the row of the table."""
        text = None if self.result is None else as_text(self.result)
        said = self.error_text or text
        call = call_row(
            turn,
            call_idx=number,
            name=self.name,
            args_json=None if self.arguments is None else as_text(self.arguments)[:ARGS_CHARS],
            ok=self.ok,
            ok_source=self.source,
            call_id=self.call_id,
            error_type=self.error,
            error_text=said[:SHOWN_ERROR_CHARS] if self.ok is False and said else None,
            latency_s=self.latency,
        )
        return (
            call
            if text is None
            else told_columns(text, call) | {key: value for key, value in call.items() if value is not None}
        )


Call = TypeVar("Call", ModelCall, ToolCall)


@dataclass
class Trace:
    """What is known about one trace so far. `columns`: of the table of trajectories; `scores`: parts of its reward."""

    columns: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, float | None] = field(default_factory=dict)
    asked: Any = None  # from its root span, used if no model's call shows it
    answered: Any = None
    _messages: dict[int, dict[str, Any]] = field(default_factory=dict)
    _models: list[tuple[float, int, list[int] | None, list[int], ModelCall]] = field(default_factory=list)
    _unsure: list[tuple[float, int, list[int] | None, list[int], ModelCall]] = field(default_factory=list)
    _tools: list[ToolCall] = field(default_factory=list)
    _perhaps: list[ToolCall] = field(default_factory=list)
    _definitions: Sequence[dict[str, Any]] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it called neither a model nor a tool."""
        return not self._models and not self._tools and not self._unsure

    def add_model(self, call: ModelCall, *, sure: bool = True) -> None:
        """Take a call of a model, its messages held once; those not sure to be any count if there are no others."""
        asked = None if call.asked is None else [self._hold(message) for message in call.asked]
        answered = [self._hold(message) for message in call.answered]
        slim = ModelCall(**{name: getattr(call, name) for name in _KEPT})
        self._definitions = self._definitions or call.tools
        models = self._models if sure else self._unsure
        models.append((call.start or 0.0, len(models), asked, answered, slim))

    def add_tool(self, call: ToolCall, *, sure: bool = True) -> None:
        """Take a call of a tool; one that is not sure to be any counts if a model was offered or asked for its name."""
        (self._tools if sure else self._perhaps).append(call)

    def _hold(self, message: dict[str, Any]) -> int:
        digest = as_hash(as_json([message.get(key) for key in ("role", "content", "tool_calls", "tool_call_id")]))
        self._messages.setdefault(digest, message)
        return digest

    def put(self, name: str, samples: Samples) -> bool:
        """Add the trace as one trajectory, in the order of time."""
        self._choose_models()
        self._choose_tools()
        self._join_stages()
        self._drop_repeats()
        messages, timing, places = self._conversation()
        calls = [call | {"call_idx": at} for at, call in enumerate(self._calls(messages, places))]
        models = [call for *_, call in self._models]
        stop = next((call.stop for call in reversed(models) if call.stop), None)
        columns = {
            "n_turns": len(models) or sum(message.get("role") == "assistant" for message in messages),
            "n_tool_fail": sum(call["ok"] is False for call in calls),
            "model": next((call.model for call in models if call.model), None),
            "error_type": next((call.error for call in models if call.error), None),
            "stop_reason": stop,
            "truncated": None if stop is None else stop in CUT_SHORT,
            "success": success_of(self.scores),
            **{column: _total([getattr(call, column) for call in models]) for column in SUMS},
        }
        samples.add(
            Sample(
                step=None,
                split="unknown",
                completion=messages,
                identity=[name],
                prompt=self._prompt() or self.asked,
                reward=self._reward(),
                components=self.scores,
                calls=calls,
                timing=timing,
                tools=self._definitions,
                columns={key: value for key, value in columns.items() if value is not None} | self.columns,
            )
        )
        return True

    def take(self, other: Trace) -> None:
        """Take all of another trace in."""
        self._messages |= other._messages
        self._models += [(start, len(self._models) + at, *rest) for start, at, *rest in other._models]  # type: ignore[misc]
        self._unsure += [(start, len(self._unsure) + at, *rest) for start, at, *rest in other._unsure]  # type: ignore[misc]
        self._tools += other._tools
        self._perhaps += other._perhaps
        self._definitions = self._definitions or other._definitions
        self.scores |= other.scores
        self.columns = {**other.columns, **self.columns}

    def _choose_models(self) -> None:
        """Count the calls that may be a model's where there are no others: those that sum none of them up."""
        if not self._models:
            parents = {call.parent for *_, call in self._unsure}
            self._models = [found for found in self._unsure if found[-1].span is None or found[-1].span not in parents]

    def _choose_tools(self) -> None:
        """Count the calls that may be a tool's by their names."""
        if self._perhaps:
            asked = (call for message in self._messages.values() for call in dicts_in(message.get("tool_calls")))
            names = {nested(call, "function", "name") for call in asked} | set(tool_names(self._definitions))
            self._tools += [call for call in self._perhaps if call.name is not None and call.name in names]
            self._perhaps = []

    def _drop_repeats(self) -> None:
        """Leave out the calls inside a call of the same kind: a framework's span around its client's own."""
        models, tools = {call.span for *_, call in self._models}, {call.span: call.name for call in self._tools}
        self._models = [found for found in self._models if found[-1].parent is None or found[-1].parent not in models]
        self._tools = [call for call in self._tools if call.parent is None or tools.get(call.parent, "") != call.name]
        self._models.sort(key=lambda found: found[:2])

    def _join_stages(self) -> None:
        """Make one call of the spans that tell its start, its success and its finish."""
        models: dict[Any, Any] = {}
        for start, number, asked, answered, call in sorted(self._models, key=lambda found: found[:2]):
            key = number if call.stage is None else call.stage
            begun = models.get(key)
            if begun is None:
                models[key] = (start, number, asked, answered, call)
            else:
                models[key] = (*begun[:2], begun[2] or asked, begun[3] or answered, _joined(begun[4], call))
        self._models = list(models.values())
        tools: dict[Any, ToolCall] = {}
        for number, tool in enumerate(sorted(self._tools, key=lambda call: call.start or 0.0)):
            key = number if tool.stage is None else tool.stage
            tools[key] = _joined(tools[key], tool) if key in tools else tool
        self._tools = list(tools.values())

    def _prompt(self) -> list[dict[str, Any]]:
        """Return what the first call of a model with texts was sent, up to an answer."""
        asked = next((asked for _, _, asked, *_ in self._models if asked), [])
        return prompt_messages([self._messages[digest] for digest in asked])

    def _reward(self) -> float | None:
        """Return the score named reward, else the only score."""
        named = self.scores.get("reward")
        return next(iter(self.scores.values())) if named is None and len(self.scores) == 1 else named

    def _conversation(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[tuple[float, int]]]:
        """Build the conversation call by call; also return when each message came, and where the answers are."""
        messages: list[dict[str, Any]] = []
        timing: list[dict[str, Any]] = []
        places: list[tuple[float, int]] = []
        seen: set[int] = set()
        answers = 0  # of the assistant, so far
        for start, _, asked, answered, call in self._models:
            for digest in self._unseen(asked or [], seen, answers):
                seen.add(digest)
                messages.append(self._messages[digest])
                answers += messages[-1].get("role") == "assistant"
                timing.append({})
            times = {"t_start": call.start, "t_end": call.end, "n_tokens": call.tokens_out}
            places.append((start, len(messages)))
            for digest in answered:
                seen.add(digest)
                messages.append(self._messages[digest])
                timing.append(times)
            if not answered:
                messages.append({"role": "assistant", "content": ""})
                timing.append(times | ({} if call.known else {"text_len": None, "text_hash": None}))
            answers += max(1, len(answered))
        if not messages:
            messages = [*_spoken(self.asked, "user"), *_spoken(self.answered, "assistant")]
        return messages, timing, places

    def _unseen(self, asked: list[int], seen: set[int], answers: int) -> list[int]:
        """Return the messages sent to a call that the conversation lacks.

        After as many answers as the conversation has, all are new; the answers themselves may be written differently
        there.
        """
        count = 0
        for at, digest in enumerate(asked, 1):
            count += self._messages[digest].get("role") == "assistant"
            if count == answers > 0:
                return asked[at:]
        return [digest for digest in asked if digest not in seen]

    def _calls(self, messages: list[dict[str, Any]], places: list[tuple[float, int]]) -> list[dict[str, Any]]:
        """Return the calls that spans show; if there are none, those that this trace's messages ask for."""
        if not self._tools:
            begins = places[0][1] if places else 0  # what comes before was asked for in an earlier trace
            return [call for call in calls_of(messages) if call["turn_idx"] >= begins]
        starts = [start for start, _ in places]
        rows = []
        for number, call in enumerate(sorted(self._tools, key=lambda call: call.start or 0.0)):
            before = bisect_right(starts, call.start or 0.0) - 1
            rows.append(call.row(number, places[max(0, before)][1] if places else 0))
        return rows


_KEPT: Final = ("start", "end", "span", "parent", "stage", "known", "model", *SUMS, "stop", "error")


def _joined(begun: Call, then: Call) -> Call:
    """Add to a call what a later span of it tells: how it failed, and what the first did not know."""
    lacking = (name for name in _LATER if getattr(begun, name, 0) is None)
    told: dict[str, Any] = {name: value for name in lacking if (value := getattr(then, name)) is not None}
    if getattr(then, "ok", None) is False:
        told |= {name: getattr(then, name) for name in ("ok", "source", "error", "error_text")}
    if (end := getattr(then, "end", None)) is not None:
        told["end"] = end
    return replace(begun, **told)


_LATER: Final = ("arguments", "result", "call_id", "model", *SUMS, "stop")


def _total(found: Sequence[Any]) -> Any:
    known = [value for value in found if value is not None]
    return sum(known) if known else None


def _spoken(found: Any, role: str) -> list[dict[str, Any]]:
    if isinstance(found, list) and found and all(isinstance(message, dict) and "role" in message for message in found):
        return found
    return [] if found is None else [{"role": role, "content": as_text(found)}]


@dataclass
class Traces:
    """All traces of a file, in the order of their first span."""

    samples: Samples
    by_id: dict[str, Trace] = field(default_factory=dict)
    spans: int = 0
    left_out: int = 0

    def of(self, name: str) -> Trace | None:
        """Return the trace that a further span belongs to; None where the file has too many."""
        if self.spans >= MAX_SPANS:
            self.left_out += 1
            return None
        self.spans += 1
        return self.by_id.setdefault(name, Trace())

    def apart(self) -> bool:
        """Return whether models and tools were called in traces of their own throughout, and no model's answer tells
        which tools it asked for: nothing in the file joins a run but the file itself.

        Each request must go on with the messages of the one before, or a tool have run in between: others are runs of
        their own.
        """
        found = [trace for trace in self.by_id.values() if not trace.is_empty]
        held = {(bool(trace._models or trace._unsure), bool(trace._tools)) for trace in found}
        asked = any(message.get("tool_calls") for trace in found for message in trace._messages.values())
        return held == {(True, False), (False, True)} and not asked and _go_on(found)

    def join(self, names: Mapping[str, str]) -> None:
        """Join traces that share a name; each key of `names` is a trace's."""
        joined: dict[str, Trace] = {}
        for key, trace in self.by_id.items():
            name = names.get(key, key)
            if name in joined:
                joined[name].take(trace)
            else:
                joined[name] = trace
        self.by_id = joined

    def put(self, whole: Mapping[str, Any] | None = None) -> Iterator[Any]:
        """Put each trace that called a model or a tool, and yield the frames; then begin again empty."""
        for name, trace in self.by_id.items():
            if not trace.is_empty or trace.asked is not None:
                trace.columns = {**(whole or {}), **trace.columns}
                attempt(lambda _found, samples, name=name, trace=trace: trace.put(name, samples), {}, self.samples)  # type: ignore[misc]
            if self.samples.full:
                yield from self.samples.take()
        self.by_id.clear()

    def notes(self) -> Iterator[Lost]:
        """Yield what was left out."""
        beyond = f"span(s) skipped: a file may have {MAX_SPANS}."
        yield from count_notes(self.samples.file, {beyond: self.left_out}, lost=(beyond,))


def _go_on(traces: Sequence[Trace]) -> bool:
    """Return whether no request to a model follows another at once whose messages it does not send again."""
    models = [(start, asked or []) for one in traces for start, _, asked, *_ in (*one._models, *one._unsure)]
    tools = sorted(call.start or 0.0 for one in traces for call in one._tools)
    return all(
        bisect_right(tools, then) > bisect_right(tools, start) or (asked and set(asked) <= set(again))
        for (start, asked), (then, again) in pairwise(sorted(models))
    )


class TraceReader:
    """Takes the spans of one file into traces. A parser says what rows the file holds, and how one is taken in."""

    def __init__(self, file: RunFile, parser: str) -> None:
        self.samples = Samples(file, parser)
        self.traces = Traces(self.samples)

    def rows(self) -> Iterator[Any]:
        """Yield the file's rows."""
        raise NotImplementedError

    def add(self, row: dict[str, Any], samples: Samples) -> bool:
        """Take in a row; False if it is not one of this format."""
        raise NotImplementedError

    def names(self) -> Mapping[str, str]:
        """Return the names that join traces at the end of the file."""
        return {}

    def read(self, skipped: str) -> Iterator[Piece]:
        """Yield one trajectory for each trace; `skipped`: the note on rows of no use."""
        yield from read_samples(self.samples, self._all(), self.add, skipped)

    def _all(self) -> Iterator[Any]:
        """Yield the rows; then put each trace, which is complete only at the end of the file."""
        yield from self.rows()
        if names := self.names():
            self.traces.join(names)
        yield from self.traces.put()
        yield from self.traces.notes()
