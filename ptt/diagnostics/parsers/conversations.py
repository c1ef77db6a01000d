"""Turns and tool calls out of a chat: paired, measured and hashed, so that no text is stored unless it is wanted."""

from __future__ import annotations

import json
from collections import deque
from hashlib import blake2b
from typing import Any

TEXT_CHARS = 4000  # of a message whose text is kept: its beginning and its end
ARGS_CHARS = 2000  # enough to tell calls apart; some tools take whole files as an argument
# What TRL puts into the conversation when a tool raises: the text of a Python dict. A tool that *returns*
# such a text counts as failed here, though not in TRL's own counter.
ERROR_TEXT = ("{'error':", '{"error":')


def messages_of(completion: Any) -> list[dict[str, Any]] | None:
    """Return a completion as messages, a plain text as one of them; None if it is neither."""
    if isinstance(completion, str):
        return [{"role": "assistant", "content": completion}]
    if isinstance(completion, list) and all(isinstance(message, dict) for message in completion):
        return completion
    return None


def turns_of(messages: list[dict[str, Any]], *, keep_text: bool) -> list[dict[str, Any]]:
    """Return role, length and hash of each message, and with `keep_text` its text and calls, shortened."""
    texts = [as_text(message.get("content")) for message in messages]
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


def calls_of(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Pair calls and results in their order, since TRL writes no call ids."""
    calls: list[dict[str, Any]] = []
    waiting: deque[dict[str, Any]] = deque()
    for at, message in enumerate(messages):
        for request in message.get("tool_calls") or []:
            function = request.get("function") if isinstance(request, dict) else None
            call = _call(function if isinstance(function, dict) else {}, at, len(calls))
            calls.append(call)
            waiting.append(call)
        if message.get("role") == "tool" and waiting:
            text = as_text(message.get("content"))
            failed = text.startswith(ERROR_TEXT)
            waiting.popleft().update(
                result_len=len(text),
                result_hash=as_hash(text),
                ok=not failed,
                ok_source="error_text" if failed else "unknown",
            )
    return calls


def _call(function: dict[str, Any], turn: int, number: int) -> dict[str, Any]:
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
    }


def as_name(found: Any) -> str | None:
    """Return a text, and None for what is none."""
    return found if isinstance(found, str) else None


def as_text(content: Any) -> str:
    """Return a message's content as one text; parts of several kinds as JSON."""
    if content is None:
        return ""
    return content if isinstance(content, str) else as_json(content)


def as_json(content: Any) -> str:
    """Spell anything out the same way every time."""
    return json.dumps(content, sort_keys=True, default=str)


def as_hash(text: str) -> int:
    """Return a hash that is the same in every process and fits UInt64."""
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big")
