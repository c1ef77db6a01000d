"""Rollouts of Codex CLI: `~/.codex/sessions/**/rollout-*.jsonl`, and the JSON documents of its first version.

Source: openai/codex at 001cb8e233f250c7086c791c51390286c087faea: codex-rs/protocol/src/protocol.rs (`RolloutLine`:
`session_meta`, `response_item`, `turn_context`, `event_msg`, `compacted`) and models.rs (`ResponseItem`;
`FunctionCallOutputPayload`, whose success is an exit code of zero), codex-rs/core/src/tools/mod.rs (outputs as JSON
with `metadata.exit_code`, later as text: `Exit code: 1`, `Process exited with code 1`). Older files hold the items
without an envelope, the first line being the session; `codex exec --json` streams events of threads, turns and items
instead (codex-rs/exec/src/exec_events.rs). A turn is a message of the assistant: calls between two of them are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from ptt.diagnostics.parsers.io.conversations import ASSISTANT, opening, request, result, said
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile, count_notes
from ptt.diagnostics.parsers.io.json_documents import members
from ptt.diagnostics.parsers.io.lines import SUFFIXES, first_objects, parse_json
from ptt.diagnostics.parsers.io.tool_calls import calls_of, failed
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, attempt, objects
from ptt.diagnostics.parsers.io.values import (
    as_name,
    as_plain_number,
    as_seconds,
    as_text,
    dict_of,
    dicts_in,
    nested,
    total,
)

ENVELOPES: Final = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
ITEMS: Final = frozenset({"message", "reasoning", "function_call", "function_call_output", "local_shell_call"})
SESSION: Final = frozenset({"instructions", "git", "originator", "cli_version", "model_provider"})
DOCUMENT: Final = re.compile(rb'\s*\{\s*"session"\s*:\s*\{(?=[^{}]*"id"\s*:)[^{}]*\}\s*,\s*"items"\s*:\s*\[')
EXIT: Final = re.compile(r"^(?:Process exited with code|Exit code:|exited with code) (-?\d{1,9})\b", re.MULTILINE)
WALL_TIME: Final = re.compile(r"^Wall time: (\d{1,9}(?:\.\d{1,9})?) seconds", re.MULTILINE)
HEADER_CHARS: Final = 400  # of an output: the part before the command's own text
STREAMED: Final = frozenset({"thread", "turn", "item", "error"})
# For an item of streamed output: keys of the tool's name, its input, and its result.
STREAMED_CALLS: Final = {
    "command_execution": ("type", "command", "aggregated_output"),
    "file_change": ("type", "changes", "status"),
    "mcp_tool_call": ("tool", "arguments", "result"),
}
ENDED: Final = frozenset({"completed", "failed"})
CALLS: Final = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
OUTPUTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})
# What Codex answers where it could not make a call.
UNMADE: Final = ("unsupported c", "failed to parse ", "apply_patch verification failed", "exec_command failed", "err: ")
NO_ITEMS: Final = "contains no item of a conversation."


def recognises(file: RunFile) -> bool:
    """Recognise the envelopes of items; in older files, the session's line before items without one."""
    if file.name.lower().endswith(SUFFIXES):
        first = first_objects(file)
        return bool(first) and (_is_newer(first) or _is_older(first) or _is_streamed(first))
    return file.name.endswith(".json") and DOCUMENT.match(file.readable_head) is not None


def _is_envelope(line: dict[str, Any]) -> bool:
    return isinstance(line.get("payload"), dict) and isinstance(line.get("type"), str)


def _is_newer(first: list[dict[str, Any]]) -> bool:
    return all(map(_is_envelope, first)) and first[0]["type"] in ENVELOPES


def _is_older(first: list[dict[str, Any]]) -> bool:
    session, *items = first
    named = {"id", "timestamp"} <= session.keys() and bool(SESSION & session.keys())
    known = [item.get("record_type") == "state" or as_name(item.get("type")) in ITEMS for item in items]
    return named and bool(known) and all(known)


def _is_streamed(first: list[dict[str, Any]]) -> bool:
    started = first[0].get("type") == "thread.started" and "thread_id" in first[0]
    return started and all(str(line.get("type")).partition(".")[0] in STREAMED for line in first)


def read(file: RunFile) -> Iterator[Piece]:
    """Yield the session's one trajectory."""
    samples, session = Samples(file, PARSER.name), _Session()
    bad = 0
    for line in _lines(file):
        if isinstance(line, Lost):
            yield line
        else:
            bad += not attempt(session.add, line, samples)
    if session.messages:
        bad += not attempt(partial(_put, session), {}, samples)
    yield from samples.close()
    if not session.messages:
        yield Lost(note=f"{file.rel} {NO_ITEMS}")
    yield from count_notes(file, {"item(s) skipped: nested too deeply.": bad})


def _lines(file: RunFile) -> Iterator[Any]:
    if file.name.lower().endswith(SUFFIXES):
        yield from objects(file)
        return
    for member in members(file, frozenset({"items"})):
        yield member if isinstance(member, Lost) else member[1]


@dataclass
class _Session:
    """A session's messages, and the facts recorded beside them."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    timing: list[dict[str, Any]] = field(default_factory=list)
    latencies: dict[str, float] = field(default_factory=dict)  # of calls, by id
    name: str | None = None
    model: str | None = None
    provider: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    stop: str | None = None
    said: int = 0  # messages of the assistant, without those that only make calls

    def add(self, line: dict[str, Any], _: Samples) -> bool:
        """Add one line, in its envelope or without."""
        kind, payload = as_name(line.get("type")), dict_of(line.get("payload"))
        if not payload and kind in ITEMS | CALLS | OUTPUTS:
            self._item(line, line.get("timestamp"))
        elif kind == "response_item":
            self._item(payload, line.get("timestamp"))
        elif kind == "event_msg":
            self._event(payload)
        elif kind is not None and kind.partition(".")[0] in STREAMED:
            self._streamed(kind, line)
        elif kind == "turn_context":
            self.model = as_name(payload.get("model")) or self.model
        elif kind == "session_meta" or "record_type" not in line:
            about = payload or line
            self.name = self.name or as_name(about.get("id"))
            self.provider = self.provider or as_name(about.get("model_provider"))
        return True

    def _event(self, event: dict[str, Any]) -> None:
        kind = as_name(event.get("type"))
        if kind == "token_count":
            self.usage = dict_of(nested(event, "info", "total_token_usage")) or self.usage
        elif kind in {"task_complete", "turn_aborted", "error"}:
            self.stop = as_name(event.get("reason")) or as_name(kind)

    def _streamed(self, kind: str, line: dict[str, Any]) -> None:
        """Take an event of streamed output; an item counts when it is complete."""
        item = dict_of(line.get("item"))
        what, name = as_name(item.get("type")) or "", as_name(item.get("id"))
        if kind == "thread.started":
            self.name = self.name or as_name(line.get("thread_id"))
        elif kind == "turn.completed":
            usage = dict_of(line.get("usage"))
            self.usage = {
                key: total([self.usage.get(key), usage.get(key)]) for key in ("input_tokens", "output_tokens")
            }
        elif kind in {"turn.failed", "error"}:
            self.stop = "error"
        elif kind == "item.completed" and what == "agent_message":
            self.said += 1
            self._put(said(item.get("text")), None)
        elif kind == "item.completed" and what in STREAMED_CALLS:
            tool, arguments, content = (item.get(key) for key in STREAMED_CALLS[what])
            last = self.messages[-1] if self.messages else {}
            if last.get("role") == ASSISTANT:
                self.messages.pop()
                self.timing.pop()
            asked = [*last.get("tool_calls", []), request(name, tool, dict_of(arguments) or {"input": arguments})]
            words = last.get("content") if last.get("role") == ASSISTANT else ""
            self._put(said(words, asked), None)
            status = as_name(item.get("status"))
            ended = {} if status not in ENDED else {"error": status == "failed"}
            self._put(result(name, _text(content), **ended), None)

    def _item(self, item: dict[str, Any], stamp: Any) -> None:
        kind, role = as_name(item.get("type")), as_name(item.get("role"))
        if kind == "message" and role is not None:
            content = _text(item.get("content"))
            self.said += role == ASSISTANT
            self._put(said(content) if role == ASSISTANT else {"role": role, "content": content}, stamp)
        elif kind in CALLS:
            last = self.messages[-1] if self.messages else {}
            if last.get("role") == ASSISTANT:  # one response: its text, and its calls
                self.messages[-1] = last | {"tool_calls": [*last.get("tool_calls", []), _request(item)]}
            else:
                self._put(said("", [_request(item)]), stamp)
        elif kind in OUTPUTS:
            self._answer(item, stamp)

    def _answer(self, item: dict[str, Any], stamp: Any) -> None:
        identity, output = as_name(item.get("call_id")), item.get("output")
        inner = parse_json(output) if isinstance(output, str) and output.startswith("{") else output
        code, took = as_plain_number(nested(inner, "metadata", "exit_code")), None
        if isinstance(inner, dict):
            took = as_plain_number(nested(inner, "metadata", "duration_seconds"))
            output = next((inner[key] for key in ("output", "content") if key in inner), output)
        text = _text(output)
        if code is None:
            header = text[:HEADER_CHARS].partition("\nOutput:\n")[0]
            match, time = EXIT.search(header), WALL_TIME.search(header)
            code, took = float(match[1]) if match else None, float(time[1]) if time else took
        if identity is not None and took is not None:
            self.latencies[identity] = took
        self._put(result(identity, text, **_failed(text, code, nested(inner, "success"))), stamp)

    def _put(self, message: dict[str, Any], stamp: Any) -> None:
        self.messages.append(message)
        self.timing.append({"t_end": as_seconds(stamp)})


def _failed(text: str, code: float | None, success: Any) -> dict[str, Any]:
    """Return whether a call failed, where its output says so."""
    if isinstance(success, bool):
        return {"error": not success}
    if code is not None:
        return {"error": code != 0}
    return failed(text, failed=True) if text.startswith(UNMADE) else {}


def _request(item: dict[str, Any]) -> dict[str, Any]:
    if item.get("type") == "local_shell_call":
        return request(item.get("call_id") or item.get("id"), "local_shell", dict_of(item.get("action")))
    arguments = item.get("arguments") if item.get("type") == "function_call" else item.get("input")
    return request(item.get("call_id") or item.get("id"), item.get("name"), arguments)


def _text(content: Any) -> str:
    """Return the texts of all parts that have one, whatever their type."""
    if isinstance(content, list) and content:
        return "\n".join(as_text(part.get("text")) for part in dicts_in(content) if part.get("text") is not None)
    return as_text(content)


def _put(session: _Session, _: dict[str, Any], samples: Samples) -> bool:
    calls = [call | {"latency_s": session.latencies.get(call["call_id"] or "")} for call in calls_of(session.messages)]
    stop = session.stop
    samples.add(
        Sample(
            step=None,
            split="unknown",
            completion=session.messages,
            identity=[session.name, session.messages],
            prompt=opening(session.messages),
            calls=calls,
            timing=session.timing,
            columns={
                "sample_id": session.name,
                "n_turns": session.said,
                "model": session.model,
                "tokens_in": total([session.usage.get("input_tokens")]),
                "tokens_out": total([session.usage.get("output_tokens")]),
                "stop_reason": stop,
                "error_type": stop if stop == "error" else None,
            },
        )
    )
    return True


PARSER = Parser(
    name="codex_cli",
    describes="Codex CLI's rollouts (JSON lines, JSON of its first version): trajectories, turns, tool calls, tokens.",
    held_against="real: a session of Codex CLI 0.111",
    priority=80,
    of_training=False,
    recognises=recognises,
    read=read,
)
