"""Conversations of OpenHands: outputs of its evaluations and resolver, saved trajectories, and events of its SDK.

Source: All-Hands-AI/OpenHands at 156d0686c46aafb0fa9d291da6421fb6f64dddc0: openhands/events/serialization/event.py
(events with `action` or `observation`; the `success` of a command is its exit code), evaluation/utils/shared.py
(`EvalOutput`: `output.jsonl`, whose older versions hold pairs of action and observation) and
openhands/resolver/resolver_output.py (`success`); OpenHands/software-agent-sdk at
611629e6999ad398dc49c761721eefe18d5e6bd9: openhands-sdk/openhands/sdk/event/ (events with a `kind`; `is_error`).
An `error` without a cause answers a call that could not be made into an action: a failed call, and no action. Errors
are marked as failures; an exit code other than 0 is kept as the error type of its call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from ptt.diagnostics.parsers.io.conversations import ASSISTANT, opening, request, result, said
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile, read_error
from ptt.diagnostics.parsers.io.json_documents import document_head, members, whole_document
from ptt.diagnostics.parsers.io.lines import SUFFIXES, begins_with
from ptt.diagnostics.parsers.io.tool_calls import BAD_ARGUMENTS, calls_of, failed, malformed_call, numbered, why_unmade
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, attempt, objects, read_lines
from ptt.diagnostics.parsers.io.values import (
    as_count,
    as_flag,
    as_label,
    as_name,
    as_plain_number,
    as_seconds,
    as_step,
    as_text,
    dict_of,
    dicts_in,
    first_name,
    nested,
    plain_text,
    total,
    total_cost,
)

SOURCES: Final = frozenset({"agent", "user", "environment", "hook"})
SDK: Final = frozenset({"kind", "system_prompt", "llm_message", "tool_call_id"})  # the kind may come last
SDK_KIND: Final = re.compile(r"\w+(?:Event|Observation|Condensation|CondensationRequest)|Condensation\w*")
STORED: Final = re.compile(r"(?:event-)?(\d{1,18})(?:-[0-9a-fA-F-]{8,64})?\.json")  # an event a file, in a folder
MAX_STORED: Final = 100_000  # events of a folder
MAX_EVENT: Final = 64 << 20  # bytes of one
NOT_OF_AGENT: Final = frozenset({"system", "recall", "change_agent_state", "null", "condensation", "start", "pause"})
NO_CALLS: Final = frozenset({"message", "finish", "reject", "think", "null"})  # where the model called no functions
VERDICTS: Final = (("report", "resolved"), ("result", "resolved"), ("resolved",), ("success",), ("result",), ("score",))
BESIDE: Final = (("report", "resolved"), ("fine_grained_report", "resolved"), ("resolved",), ("success",))
MAX_ITERATIONS: Final = "maximum iteration"
FINISHED: Final = frozenset({"finish", "FinishAction"})
TOKENS: Final = ("prompt_tokens", "completion_tokens")


def recognises(file: RunFile) -> bool:
    """Recognise an evaluation's lines by their keys, and events by the first of them."""
    name = file.name.lower()
    if name.endswith(SUFFIXES):
        return begins_with(file, _is_output) or begins_with(file, _is_event)
    head = file.readable_head if name.endswith(".json") else b""
    if head.lstrip()[:1] not in {b"{", b"["} or b'"source"' not in head:
        return False
    found = document_head(head.decode("utf-8", "replace"), whole=file.size <= len(head))
    if isinstance(found, dict):
        return STORED.fullmatch(file.name) is not None and _is_event(found)
    return isinstance(found, list) and bool(found) and _is_event(found[0])


def _is_event(found: Any) -> bool:
    if not isinstance(found, dict) or as_name(found.get("source")) not in SOURCES or "timestamp" not in found:
        return False
    if isinstance(found.get("action"), str):
        return isinstance(found.get("args"), dict)
    if isinstance(found.get("observation"), str):
        return "extras" in found or "content" in found
    kind = found.get("kind")
    return "id" in found and bool(SDK & found.keys()) and (kind is None or SDK_KIND.fullmatch(str(kind)) is not None)


def _is_output(record: dict[str, Any]) -> bool:
    history = record.get("history")
    if not isinstance(history, list) or not ({"instance_id", "issue"} & record.keys()):
        return history is None and {"instance_id", "test_result", "metadata", "metrics", "error"} <= record.keys()
    first = next(iter(history), None)
    event = next(iter(first), None) if isinstance(first, list) else first
    kinds = {"action", "observation", "kind"}
    return bool(kinds & event.keys()) if isinstance(event, dict) else {"metrics", "error"} <= record.keys()


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a line of an evaluation, or the one of a list, lines or a folder of events."""
    lines = file.name.lower().endswith(SUFFIXES)
    if lines and not begins_with(file, _is_event):
        yield from read_lines(file, PARSER.name, _add_output)
        return
    samples = Samples(file, PARSER.name)
    events: list[Any] = []
    stored = not lines and file.readable_head.lstrip().startswith(b"{")
    for event in _of_folder(file) if stored else objects(file) if lines else members(file, frozenset()):
        if isinstance(event, Lost):
            yield event
        else:
            events.append(event[1] if isinstance(event, tuple) else event)
    good = attempt(partial(_add, events), {}, samples) or (stored and not events)
    yield from samples.close()
    if not good:
        yield Lost(rows=1, note=f"{file.rel} contains no event of an agent or a user.")


def _of_folder(file: RunFile) -> Iterator[dict[str, Any] | Lost]:
    """Yield the events of a folder that keeps each in a file, for the first of them; none for the others."""
    try:
        names = [path.name for path in file.path.parent.iterdir() if not path.is_symlink()]
    except OSError as error:
        yield read_error(file, error)
        return
    numbered = sorted((int(match[1]), name) for name in names if (match := STORED.fullmatch(name)))
    if not numbered or numbered[0][1] != file.name:
        return
    for _, name in numbered[:MAX_STORED]:
        path, rel = file.path.parent / name, file.rel.removesuffix(file.name) + name
        try:
            one = RunFile(path=path, rel=rel, size=path.stat().st_size, budget=file.budget)
        except OSError as error:
            yield read_error(file, error)
            continue
        event = whole_document(one, MAX_EVENT, too_large="no event.", damaged="is cut or damaged: its event is lost.")
        if isinstance(event, dict | Lost):
            yield event


def _add_output(record: dict[str, Any], samples: Samples) -> bool:
    if record.get("history") is None and record.get("error"):  # it ended before the agent began
        return _add([], record, samples)
    return isinstance(record.get("history"), list) and _add(record["history"], record, samples)


def _add(history: list[Any], record: dict[str, Any], samples: Samples) -> bool:
    """Add one conversation; `record` is the evaluation's line that holds it."""
    flat = [event for entry in history for event in (entry if isinstance(entry, list) else [entry])]
    chat = _Chat()
    for event in samples.objects(flat):
        (chat.add_sdk if "kind" in event else chat.add)(event)
    if not chat.messages and not record:
        return False
    task = as_label(record.get("instance_id")) or _issue(record)
    calls = [
        call | {"latency_s": chat.latencies.get(call["call_id"] or "")} | chat.exits.get(call["call_id"] or "", {})
        for call in calls_of(chat.messages)
    ]
    about, usage = record.get("metadata"), nested(record, "metrics", "accumulated_token_usage") or chat.usage
    cost = nested(record, "metrics", "accumulated_cost")
    samples.add(
        Sample(
            step=None,
            split="eval" if record else "unknown",
            completion=chat.messages,
            identity=[task, as_label(record.get("attempt")), chat.messages],
            prompt=task if task is not None else opening(chat.messages),
            calls=numbered([*calls, *chat.malformed]),
            timing=chat.timing,
            tools=chat.tools,
            columns={
                "n_tool_calls": len(calls),
                "task": task,
                "env": as_label(nested(about, "dataset")),
                "success": _success(record),
                **_ending(record.get("error"), chat),
                "model": first_name([nested(about, "llm_config", "model"), nested(about, "llm", "model"), chat.model]),
                "tokens_in": total([nested(usage, "prompt_tokens")]),
                "tokens_out": total([nested(usage, "completion_tokens")]),
                "cost_usd": as_plain_number(chat.cost if cost is None else cost),
            },
        )
    )
    return True


def _is_refused(event: dict[str, Any]) -> bool:
    """Return whether an observation says that its command was not run: it has no exit code then."""
    after = as_text(nested(event, "extras", "metadata", "suffix"))
    return "is NOT executed" in after or as_text(event.get("content")).startswith("ERROR: No previous running command")


def _ending(error: Any, chat: _Chat) -> dict[str, Any]:
    """Return why a conversation ended: by an error of the runner, or by what the agent did last."""
    if not isinstance(error, str) or not error:
        return {"stop_reason": chat.failed or chat.last, "truncated": chat.finished, "error_type": chat.failed}
    if MAX_ITERATIONS in error:
        return {"stop_reason": "max_iterations", "truncated": True, "error_type": None}
    kind = error.partition(":")[0][:100]
    return {"stop_reason": kind, "truncated": None, "error_type": kind}


def _issue(record: dict[str, Any]) -> str | None:
    issue = record.get("issue")
    parts = [as_label(nested(issue, name)) for name in ("owner", "repo", "number")]
    return "/".join(part for part in parts if part) or None


def _success(record: dict[str, Any]) -> bool | None:
    """Return the benchmark's verdict, or the resolver's."""
    tested = record.get("test_result")
    found = [as_flag(tested), *(as_flag(nested(tested, *path)) for path in VERDICTS)]
    found += [as_flag(nested(record, *path)) for path in BESIDE]
    return next((flag for flag in found if flag is not None), None)


@dataclass
class _Chat:
    """The messages that events make, and what they say beside them."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    timing: list[dict[str, Any]] = field(default_factory=list)
    malformed: list[dict[str, Any]] = field(default_factory=list)  # calls that never became an action
    tools: list[dict[str, Any]] = field(default_factory=list)
    model: str | None = None
    usage: Any = None
    cost: Any = None
    last: str | None = None  # what the agent did last
    failed: str | None = None  # the error that ended the conversation
    latencies: dict[str, float] = field(default_factory=dict)  # of calls, by id
    exits: dict[str, dict[str, Any]] = field(default_factory=dict)  # of commands that exited with a code other than 0
    _asked_at: dict[str, float] = field(default_factory=dict)
    _open: str | None = None  # the call of an action without a number
    _by_event: dict[int, str] = field(default_factory=dict)  # the call of an action
    _by_response: dict[str, dict[str, Any]] = field(default_factory=dict)  # the message of a response of the SDK's

    @property
    def finished(self) -> bool | None:
        return False if self.last in FINISHED else None

    def add(self, event: dict[str, Any]) -> None:
        """Add an event of OpenHands itself."""
        action, source = as_name(event.get("action")), as_name(event.get("source"))
        args = event["args"] if isinstance(event.get("args"), dict) else event  # old versions: beside the rest
        if source is None and action == "message":  # old versions do not say who; only the agent waits for an answer
            source = "agent" if event.get("wait_for_response") is True else "user"
        if action is None:
            self._observe(event)
        elif action == "system":
            self.tools = dicts_in(args.get("tools"))
            self._put(event, {"role": "system", "content": args.get("content")})
        elif action not in NOT_OF_AGENT:
            if source == "user":
                if action == "message":
                    self._put(event, {"role": "user", "content": args.get("content")})
            elif source != "environment":
                self._act(event, action, args)

    def _act(self, event: dict[str, Any], action: str, args: dict[str, Any]) -> None:
        about = event.get("tool_call_metadata")
        response = nested(about, "model_response")
        name, identity = as_name(nested(about, "function_name")), as_name(nested(about, "tool_call_id"))
        thought = args.get("content") if action == "message" else args.get("thought")
        calls = []
        if name is not None or action not in NO_CALLS:
            at = as_step(event.get("id"))
            identity = identity or f"event-{len(self.messages) if at is None else at}"
            if at is None:
                self._open = identity
            else:
                self._by_event[at] = identity
            calls = [request(identity, name or action, _arguments(response, identity) or _without_thought(args))]
        self._put(event, said(thought or "", calls), as_count(nested(response, "usage", "completion_tokens")))
        metrics, self.last = dict_of(event.get("llm_metrics")), action
        self.model = self.model or as_name(nested(response, "model"))
        self.usage = metrics.get("accumulated_token_usage") or self.usage
        self.cost = self.cost if metrics.get("accumulated_cost") is None else metrics["accumulated_cost"]

    def _observe(self, event: dict[str, Any]) -> None:
        kind, content = as_name(event.get("observation")), event.get("content")
        if kind is None or kind in {"agent_state_changed", "recall", "null", "condense"}:
            return
        cause = as_step(event.get("cause"))
        known = None if cause is None else self._by_event.get(cause)
        identity = known or as_name(nested(event, "tool_call_metadata", "tool_call_id"))
        if identity is None and "id" not in event:  # old versions number nothing: what follows an action answers it
            identity, self._open = self._open, None
        if kind == "error":
            if identity is None:
                text = as_text(content)
                self.malformed.append(malformed_call(len(self.messages), text, why_unmade(text) or BAD_ARGUMENTS))
                self._put(event, {"role": "user", "content": content})
            else:
                self._put(event, result(identity, content, **failed(content, failed=True)))
        elif identity is not None:
            code = as_count(nested(event, "extras", "metadata", "exit_code"))
            code = as_count(nested(event, "extras", "exit_code")) if code is None else code
            told = {} if code is None else {"exit_code": code}
            if as_flag(nested(event, "extras", "error")) or _is_refused(event):
                told = failed(content, failed=True)
            self._put(event, result(identity, content, **told))
            if code:
                self.exits[identity] = {"error_type": f"exit code {code}"}

    def _state(self, event: dict[str, Any]) -> None:
        """Take what models were used and what it took, which the SDK counts by their use."""
        value = dict_of(event.get("value"))
        stats = value if event.get("key") == "stats" else value.get("stats")
        uses = [use for use in dict_of(nested(stats, "usage_to_metrics")).values() if isinstance(use, dict)]
        usages = [dict_of(use.get("accumulated_token_usage")) for use in uses]
        if uses:
            self.model = self.model or first_name(use.get("model_name") for use in uses)
            self.usage = {key: total(usage.get(key) for usage in usages) for key in TOKENS}
            self.cost = total_cost(use.get("accumulated_cost") for use in uses)

    def add_sdk(self, event: dict[str, Any]) -> None:
        """Add an event of the SDK."""
        kind, identity = as_name(event.get("kind")) or "", event.get("tool_call_id")
        if kind == "ActionEvent":
            self._act_sdk(event)
        elif kind == "MessageEvent":
            given = dict_of(event.get("llm_message"))
            role = ASSISTANT if event.get("source") == "agent" else "user"
            message = {"role": role, "content": given.get("content")}
            self.last = "message" if role == ASSISTANT else self.last
            self._put(
                event, said(message["content"], (), given.get("reasoning_content")) if role == ASSISTANT else message
            )
        elif kind == "SystemPromptEvent":
            self.tools = dicts_in(event.get("tools"))
            self._put(event, {"role": "system", "content": plain_text([dict_of(event.get("system_prompt"))])})
        elif kind == "ObservationEvent":
            found = dict_of(event.get("observation"))
            content = next((found[key] for key in ("content", "output", "result") if found.get(key)), "")
            flag = as_flag(found.get("is_error"))
            self._put(event, result(identity, content, **({} if flag is None else failed(content, failed=flag))))
        elif kind == "AgentErrorEvent":
            text = as_text(event.get("error"))
            self._put(event, result(identity, text, **failed(text, failed=True)))
        elif kind == "ConversationStateUpdateEvent":
            self._state(event)
        elif kind == "ConversationErrorEvent":
            self.failed = as_name(event.get("code")) or "error"
        elif kind == "UserRejectObservation":
            self._put(event, result(identity, event.get("rejection_reason")))

    def _act_sdk(self, event: dict[str, Any]) -> None:
        call, response = dict_of(event.get("tool_call")), as_name(event.get("llm_response_id"))
        inner = dict_of(call.get("function")) or call
        name = as_name(event.get("tool_name")) or as_name(inner.get("name"))
        asked = request(event.get("tool_call_id"), name, inner.get("arguments"))
        self.last = as_name(nested(event, "action", "kind")) or name
        before = self._by_response.get(response or "")
        if before is not None:  # parallel calls of one response
            before["tool_calls"] = [*before.get("tool_calls", []), asked]
            return
        message = said(event.get("thought"), [asked], event.get("reasoning_content"))
        if response is not None:
            self._by_response[response] = message
        self._put(event, message)

    def _put(self, event: dict[str, Any], message: dict[str, Any], tokens: int | None = None) -> None:
        at = as_seconds(event.get("timestamp"))
        self.messages.append(message)
        self.timing.append({"n_tokens": tokens, "t_end": at})
        if at is not None:
            self._asked_at |= {call["id"]: at for call in message.get("tool_calls", ()) if call["id"] is not None}
            asked = self._asked_at.pop(message.get("tool_call_id") or "", None)
            if asked is not None and at >= asked:
                self.latencies[message["tool_call_id"]] = at - asked


def _arguments(response: Any, identity: str) -> Any:
    """Return the arguments of a call as the model wrote them."""
    for choice in dicts_in(nested(response, "choices")):
        for call in dicts_in(nested(choice, "message", "tool_calls")):
            if call.get("id") == identity:
                return nested(call, "function", "arguments")
    return None


def _without_thought(args: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in args.items() if name not in {"thought", "action"}}


PARSER = Parser(
    name="openhands",
    describes="OpenHands' output.jsonl, saved trajectories and SDK events: trajectories, turns, tool calls, verdicts.",
    held_against="real: OpenHands 0.35 `output.jsonl` and a saved trajectory",
    priority=80,
    of_training=False,
    recognises=recognises,
    read=read,
)
