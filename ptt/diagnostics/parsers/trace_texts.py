"""Turns and tool calls out of the messages of verifiers' traces, where calls and results carry ids."""

from __future__ import annotations

import re
from collections import deque
from typing import Any, Final

from ptt.diagnostics.parsers.conversations import ARGS_CHARS, ERROR_TEXT, as_hash, as_name, as_text, turns_of
from ptt.diagnostics.parsers.interface import RunFile
from ptt.diagnostics.parsers.message_graphs import message_of

STEP_DIR: Final = re.compile(r"step_(\d{1,15})", re.ASCII)
DEEPEST: Final = 5  # folders between a step's and its file, and some more


def step_of_folder(file: RunFile) -> int | None:
    """Give the step that a folder above the file is named after."""
    for part in reversed(file.path.parts[-1 - DEEPEST : -1]):
        if named := STEP_DIR.fullmatch(part):
            return int(named[1])
    return None


def turn_rows(nodes: list[dict[str, Any]], *, keep_text: bool) -> list[dict[str, Any]]:
    """Give role, length and hash of each message, tokens and time where they are recorded."""
    messages = [message_of(node) for node in nodes]
    shaped = [{**message, "tool_calls": _openai(message)} for message in messages]
    turns = turns_of(shaped, keep_text=keep_text)
    for turn, node in zip(turns, nodes, strict=True):
        ids, stamp = node.get("token_ids"), number(node.get("timestamp"))
        turn["n_tokens"] = len(ids) if isinstance(ids, list) and ids else None
        turn["t_end"] = stamp or None  # 0 where nobody took the time
    return turns


def call_rows(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Pair calls and results by their id, without one by their order; names results whose message does not."""
    rows: list[dict[str, Any]] = []
    waiting: dict[str, deque[dict[str, Any]]] = {}
    for turn, node in enumerate(nodes):
        message = message_of(node)
        for call in _calls(message):
            inner = call.get("function")
            function = inner if isinstance(inner, dict) else call
            identity, arguments = as_name(call.get("id")), function.get("arguments")
            row: dict[str, Any] = {
                "turn_idx": turn,
                "call_idx": len(rows),
                "name": as_name(function.get("name")),
                "args_json": None if arguments is None else as_text(arguments)[:ARGS_CHARS],
                "call_id": identity,
                "result_len": None,
                "result_hash": None,
                "ok": None,
                "ok_source": "unknown",
            }
            rows.append(row)
            waiting.setdefault(identity or "", deque()).append(row)
        if message.get("role") == "tool":
            asked = waiting.get(as_name(message.get("tool_call_id")) or "")
            if asked:
                row = asked.popleft()
                row.update(_result(message))
                if as_name(message.get("name")) is None:
                    message["name"] = row["name"]
    return rows


def _result(message: dict[str, Any]) -> dict[str, Any]:
    text = as_text(message.get("content"))
    failed = text.startswith(ERROR_TEXT)
    return {
        "result_len": len(text),
        "result_hash": as_hash(text),
        "ok": not failed,
        "ok_source": "error_text" if failed else "unknown",
    }


def _calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _openai(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Wrap calls the way chat messages elsewhere do: name and arguments below `function`."""
    return [call if isinstance(call.get("function"), dict) else {"function": call} for call in _calls(message)]


def number(found: Any) -> float | None:
    """Give a number as a float, and None for what is none."""
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        return float(found)
    except OverflowError:
        return None
