"""Conversations in ShareGPT's shape, `from` and `value` for each entry, with tools after LLaMA-Factory and Hermes.

Each entry of `gpt` and each `function_call` is a turn of the assistant. Read in hiyouga/LLaMA-Factory
data/glaive_toolcall_en_demo.json and src/llamafactory/data/converter.py (ff6d4d1: human, gpt, function_call,
observation, system; `tools` and the value of a call are JSON), and in NousResearch's hermes-function-calling, whose
calls stand in the text of `gpt` as `<tool_call>` and whose results come from `tool`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.io.conversations import opening
from ptt.diagnostics.parsers.io.interface import Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.lines import parse_json
from ptt.diagnostics.parsers.io.message_shapes import arguments_of
from ptt.diagnostics.parsers.io.record_files import holds, records, splits
from ptt.diagnostics.parsers.io.record_labels import labels_of, split_of, step_of, tools_of
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, read_samples
from ptt.diagnostics.parsers.io.values import as_name, as_text

CHATS: Final = ("conversations", "conversation", "items", "messages", "dialogue", "dialog", "conversations_sharegpt")
ROLES: Final = {
    "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant",
    "bing": "assistant", "bard": "assistant", "model": "assistant", "ai": "assistant", "system": "system",
    "observation": "tool", "tool": "tool", "function_response": "tool", "tool_response": "tool",
    "function_result": "tool", "function": "tool", "tool_result": "tool", "ipython": "tool",
}  # fmt: skip
CALLS: Final = frozenset({"function_call", "function-call", "tool_call", "tool_calls", "function_calls"})
LOOKED: Final = 20  # entries looked at to recognise a conversation
NO_CHAT: Final = "record(s) skipped: no conversation."


def recognises(file: RunFile) -> bool:
    """Recognise records by lists of entries with `from` and `value`."""
    return holds(file, _is_record)


def _is_record(found: Any) -> bool:
    preference = isinstance(found, dict) and "chosen" in found and "rejected" in found  # no episode: two answers
    return isinstance(found, dict) and not preference and _chat_of(found) is not None


def _chat_of(record: dict[str, Any]) -> list[Any] | None:
    for key in CHATS:
        found = record.get(key)
        found = parse_json(found) if isinstance(found, str) and found.startswith("[") else found
        if isinstance(found, list) and found and all(map(_is_entry, found[: max(1, min(len(found) - 1, LOOKED))])):
            return found
    return None


def _is_entry(found: Any) -> bool:
    """Return whether an object is an entry: a speaker of this shape and what was said."""
    speaker = found.get("from") if isinstance(found, dict) else None
    return isinstance(speaker, str) and "value" in found and (speaker.lower() in ROLES or speaker.lower() in CALLS)


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a conversation."""
    yield from read_samples(Samples(file, PARSER.name), records(file, _is_record), _add, NO_CHAT)


def _add(record: dict[str, Any], samples: Samples) -> bool:
    found = _chat_of(record)
    if found is None:
        return False
    system = record.get("system")
    first: list[dict[str, Any]] = [{"role": "system", "content": system}] if isinstance(system, str) and system else []
    messages = [*first, *(message for entry in samples.objects(found) for message in _messages(entry))]
    labels = labels_of(record)
    samples.add(
        Sample(
            step=step_of(record),
            split=split_of(samples.file, record),
            completion=messages,
            identity=[labels.columns["sample_id"], messages],
            prompt=opening(messages),
            reward=labels.reward,
            components=labels.components,
            tools=tools_of([record]),
            columns=labels.columns,
        )
    )
    return True


def _messages(entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    speaker = as_name(entry.get("from")) or ""
    text = as_text(entry.get("value"))
    role = ROLES.get(speaker.lower())
    if speaker.lower() in CALLS:
        yield {"role": "assistant", "content": "", "tool_calls": list(_calls(text))}
    else:
        yield {"role": role or speaker, "content": text}


def _calls(text: str) -> Iterator[dict[str, Any]]:
    """Yield the calls that a text of JSON asks for; one without a name where it cannot be read."""
    found = parse_json(text)
    for call in found if isinstance(found, list) else [found]:
        if isinstance(call, dict):
            function = call.get("function")
            inner = function if isinstance(function, dict) else call
            name = function if isinstance(function, str) else inner.get("name")
            yield {"function": {"name": name, "arguments": arguments_of(inner)}}
        else:
            yield {"function": {"name": None, "arguments": text}}


PARSER = Parser(
    name="sharegpt",
    describes="ShareGPT conversations, plain or with tools (LLaMA-Factory, Hermes): trajectories, turns, tool calls.",
    held_against="real: LLaMA-Factory `data/glaive_toolcall_en_demo.json`",
    priority=90,
    of_training=False,
    splits=splits,
    recognises=recognises,
    read=read,
)
