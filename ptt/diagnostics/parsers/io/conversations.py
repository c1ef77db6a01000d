"""Conversations in the form that trainers take: OpenAI-shaped messages with tool calls, and a separate prompt.

The shape is that of Hugging Face chat templates and TRL's datasets (`docs/source/dataset_formats.md`, "Tool calling"):
`role`, `content`, and for the assistant `tool_calls` of `{"type": "function", "function": {"name", "arguments"}}`.
Arguments are objects here; those that are not one object of JSON stay the text that the policy wrote.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from ptt.diagnostics.parsers.io.tool_calls import function_of
from ptt.diagnostics.parsers.io.values import as_json, as_name, dicts_in, plain_text

KEPT: Final = ("reasoning_content",)  # fields of a message kept in addition to those that every message has


def conversation_row(
    messages: Sequence[dict[str, Any]], asked: Any = None, tools: Sequence[dict[str, Any]] | None = None
) -> dict[str, str | None]:
    """Return the columns of a conversation: its prompt, the policy's completion, and the tools it was offered.

    `asked`: messages or a text from before `messages`. Everything before the assistant's first message is the prompt.
    """
    chat = [*_asked(asked), *(chat_message(message) for message in messages)]
    prompt = prompt_messages(chat)
    return {
        "prompt": _spelt(prompt),
        "completion": _spelt(chat[len(prompt) :]),
        "tools": as_json(list(tools)) if tools else None,
    }


def prompt_messages(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages before the assistant's first one."""
    begins = next((at for at, message in enumerate(messages) if message.get("role") == "assistant"), len(messages))
    return list(messages[:begins])


def opening(messages: Sequence[dict[str, Any]]) -> list[Any] | None:
    """Return what tells a prompt from others, the same for all attempts at it; None where the assistant begins."""
    return [[message.get("role"), message.get("content")] for message in prompt_messages(messages)] or None


def chat_message(message: dict[str, Any]) -> dict[str, Any]:
    """Return one message in the common shape."""
    chat: dict[str, Any] = {
        "role": as_name(message.get("role")) or "user",
        "content": plain_text(message.get("content")),
    }
    calls = [_call(request) for request in dicts_in(message.get("tool_calls"))]
    if calls:
        chat["tool_calls"] = calls
    for key in ("tool_call_id", "name"):
        if (value := as_name(message.get(key))) is not None:
            chat[key] = value
    chat |= {key: message[key] for key in KEPT if isinstance(message.get(key), str)}
    return chat


def _asked(found: Any) -> list[dict[str, Any]]:
    if isinstance(found, str):
        return [{"role": "user", "content": found}]
    return [chat_message(message) for message in dicts_in(found)]


def _call(request: dict[str, Any]) -> dict[str, Any]:
    function = function_of(request)
    call: dict[str, Any] = {"type": "function"}
    if (identity := as_name(request.get("id"))) is not None:
        call["id"] = identity
    call["function"] = {"name": as_name(function.get("name")) or "", "arguments": _arguments(function.get("arguments"))}
    return call


def _arguments(found: Any) -> Any:
    """Return arguments as an object, if they are a JSON object."""
    if isinstance(found, str):
        try:
            read = json.loads(found)
        except (ValueError, RecursionError):
            return found
        return read if isinstance(read, dict) else found
    if isinstance(found, dict):  # Arrow gives every call the arguments of all tools, null where a tool has none of them
        return {name: value for name, value in found.items() if value is not None}
    return {} if found is None else found


def _spelt(chat: list[dict[str, Any]]) -> str:
    return json.dumps(chat, ensure_ascii=False, default=str)


ASSISTANT: Final = "assistant"


def request(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """Return one tool call of an assistant's message."""
    return {"id": as_name(call_id), "type": "function", "function": {"name": as_name(name), "arguments": arguments}}


def said(content: Any, calls: Sequence[dict[str, Any]] = (), reasoning: Any = None) -> dict[str, Any]:
    """Return a message of the assistant."""
    message: dict[str, Any] = {"role": ASSISTANT, "content": content}
    if calls:
        message["tool_calls"] = list(calls)
    if isinstance(reasoning, str) and reasoning:
        message["reasoning_content"] = reasoning
    return message


def result(call_id: Any, content: Any, **error: Any) -> dict[str, Any]:
    """Return what a tool gave back; `error`, a flag or an object with its `type`, only where the writer says so."""
    return {"role": "tool", "tool_call_id": as_name(call_id), "content": content, **error}
