"""Turns and tool calls out of a chat: paired, measured and hashed, so that no text is stored unless it is wanted."""

from __future__ import annotations

import json
import re
from collections import deque
from hashlib import blake2b
from typing import Any

TEXT_CHARS = 4000  # of a message whose text is kept: its beginning and its end
ARGS_CHARS = 2000  # enough to tell calls apart; some tools take whole files as an argument
# What TRL puts into the conversation when a tool raises: the text of a Python dict. A tool that *returns*
# such a text counts as failed here, though not in TRL's own counter.
ERROR_TEXT = ("{'error':", '{"error":')
ERROR_CHARS = 500  # of an error text: what kind of error it is stands at its beginning
UNKNOWN_TOOL = re.compile(
    r"\b(?:tool|function)\s+\S+\s+(?:was |is |does )?not (?:found|exist)|\bunknown (?:tool|function)\b", re.I
)
BAD_ARGUMENTS = re.compile(
    r"\b(?:invalid|malformed|unreadable|(?:could not|cannot|failed to|unable to) parse)\b[^.:]{0,30}"
    r"\b(?:arguments?|tool call|function call)\b",
    re.I,
)
NO_SUCH_CALL = (
    r"\b{tool}\(\) (?:missing \d+ required|got an unexpected keyword|got multiple values|takes \d+ positional)"
)


def messages_of(completion: Any) -> list[dict[str, Any]] | None:
    """Return a completion as messages, a plain text as one of them; None if it is neither."""
    if isinstance(completion, str):
        return [{"role": "assistant", "content": completion}]
    if isinstance(completion, list) and all(isinstance(message, dict) for message in completion):
        return completion
    return None


def turns_of(messages: list[dict[str, Any]], *, keep_text: bool) -> list[dict[str, Any]]:
    """Return role, length and hash of each message, and with `keep_text` its text and calls, shortened."""
    texts = [plain_text(message.get("content")) for message in messages]
    return [
        {
            "turn_idx": at,
            "role": as_name(message.get("role")),
            "text_len": len(text),
            "text_hash": as_hash(text),
            "text": _kept(text, message) if keep_text else None,
        }
        for at, (message, text) in enumerate(zip(messages, texts, strict=True))
    ]


def _kept(text: str, message: dict[str, Any]) -> str:
    calls = [f"{call['name']}({call['args_json'] or ''})" for call in calls_of([message])]
    whole = " ".join([text, *calls] if text else calls)
    return whole if len(whole) <= TEXT_CHARS else f"{whole[: TEXT_CHARS // 2]}…{whole[-TEXT_CHARS // 2 :]}"


def calls_of(messages: list[dict[str, Any]], *, error_text: tuple[str, ...] = ERROR_TEXT) -> list[dict[str, Any]]:
    """Pair calls and results by their call ids, or in their order where the writer gives none, as TRL does.

    A result's own `error` says whether the call failed; without it, whether its text begins with one of `error_text`.
    """
    calls: list[dict[str, Any]] = []
    waiting = _Waiting()
    for at, message in enumerate(messages):
        requests = message.get("tool_calls")
        for request in requests if isinstance(requests, list) else []:
            call = _call(request, at, len(calls))
            calls.append(call)
            waiting.add(call)
        if message.get("role") == "tool" and (asked := waiting.take(message.get("tool_call_id"))) is not None:
            asked.update(_outcome(message, error_text, asked["name"]))
    return calls


class _Waiting:
    """Calls without a result so far, in their order and by their ids; no conversation is too long for it."""

    def __init__(self) -> None:
        self.ordered: deque[dict[str, Any]] = deque()
        self.by_id: dict[str, deque[dict[str, Any]]] = {}
        self.answered: set[int] = set()

    def add(self, call: dict[str, Any]) -> None:
        self.ordered.append(call)
        if call["call_id"] is not None:
            self.by_id.setdefault(call["call_id"], deque()).append(call)

    def take(self, wanted: Any) -> dict[str, Any] | None:
        """Give the call of an id, or the oldest where neither calls nor results have ids."""
        queue = self.by_id.get(wanted) if isinstance(wanted, str) and self.by_id else self.ordered
        while queue:
            call = queue.popleft()
            if call["call_idx"] not in self.answered:
                self.answered.add(call["call_idx"])
                return call
        return None


def _outcome(message: dict[str, Any], error_text: tuple[str, ...], tool: str | None) -> dict[str, Any]:
    text = plain_text(message.get("content"))
    measured: dict[str, Any] = {"result_len": len(text), "result_hash": as_hash(text)}
    error = message.get("error")
    if isinstance(error, bool):
        return measured | {"ok": not error, "ok_source": "flag"}
    if error:
        kind = as_name(error.get("type")) if isinstance(error, dict) else None
        return measured | {"ok": False, "ok_source": "error_field", "error_type": kind}
    if text.startswith(error_text):
        return measured | {"ok": False, "ok_source": "error_text", "error_type": _kind(text[:ERROR_CHARS], tool)}
    return measured | {"ok": True, "ok_source": "error_field" if "error" in message else "unknown"}


def _kind(text: str, tool: str | None) -> str | None:
    """Tell a call that could not be made from one that was made and failed: TRL keeps what Python said of it."""
    if UNKNOWN_TOOL.search(text):
        return "unknown_tool"
    if BAD_ARGUMENTS.search(text) or (tool and re.search(NO_SUCH_CALL.format(tool=re.escape(tool)), text)):
        return "invalid_arguments"
    return None


def _call(request: Any, turn: int, number: int) -> dict[str, Any]:
    asked = request if isinstance(request, dict) else {}
    function = asked.get("function")
    if isinstance(function, str):  # Inspect: the name stands where others nest name and arguments
        function = {"name": function, "arguments": asked.get("arguments")}
    elif not isinstance(function, dict):
        function = asked
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        # Arrow gives every call the arguments of all tools, null where a tool has none of that name.
        arguments = as_json({name: value for name, value in arguments.items() if value is not None})
    return {
        "turn_idx": turn,
        "call_idx": number,
        "name": as_name(function.get("name")),
        "args_json": None if arguments is None else as_text(arguments)[:ARGS_CHARS],
        "result_len": None,
        "result_hash": None,
        "ok": None,
        "ok_source": "unknown",
        "call_id": as_name(asked.get("id")),
        "error_type": None,
        "latency_s": None,
    }


def as_name(found: Any) -> str | None:
    """Return a text, and None for what is none."""
    return found if isinstance(found, str) else None


def as_text(content: Any) -> str:
    """Return a message's content as one text; parts of several kinds as JSON."""
    if content is None:
        return ""
    return content if isinstance(content, str) else as_json(content)


def plain_text(content: Any) -> str:
    """Return a message's content as one text: of a list of parts, the texts of those that are nothing else."""
    if isinstance(content, list) and content and all(isinstance(part, dict) for part in content):
        texts = [part.get("text") for part in content]
        if all(isinstance(text, str) for text in texts):
            return "\n".join(map(str, texts))
    return as_text(content)


def as_json(content: Any) -> str:
    """Spell anything out the same way every time."""
    return json.dumps(content, sort_keys=True, default=str)


def as_hash(text: str) -> int:
    """Return a hash that is the same in every process and fits UInt64."""
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big")
