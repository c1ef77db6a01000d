"""Sessions of Gemini CLI: recorded chats, and checkpoints that `/chat save` writes.

Source: google-gemini/gemini-cli at 5411f113cafae26161b4969b0237b8e1e024e2c2:
packages/core/src/services/chatRecordingTypes.ts and chatRecordingService.ts (`chats/session-*.json` with `messages`;
later `.jsonl`: the session, a message a line, `$set` and `$rewindTo`), and packages/core/src/core/logger.ts
(`checkpoint-*.json`: contents of the Gemini interface, in later versions under `history`; `logs.json`: the user's
prompts alone); packages/core/src/output/types.ts (streamed output: `init`, `message`, `tool_use`, `tool_result` and
`result`, a line each). A call that the user cancelled has no known outcome.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from ptt.diagnostics.definitions import compiled
from ptt.diagnostics.parsers.io.conversations import opening, request, result, said
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.json_documents import members
from ptt.diagnostics.parsers.io.lines import SUFFIXES, first_objects
from ptt.diagnostics.parsers.io.tool_calls import failed
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, attempt, objects
from ptt.diagnostics.parsers.io.values import (
    as_count,
    as_name,
    as_seconds,
    as_text,
    dict_of,
    dicts_in,
    first_name,
    nested,
    total,
)

SESSION: Final = compiled(rb'\s*\{(?=[^\[]*"sessionId"\s*:)(?=[^\[]*"(?:projectHash|startTime)"\s*:)', re.DOTALL)
CONTENTS: Final = compiled(
    rb'\s*(?:\{\s*"(?:history|clientHistory)"\s*:\s*)?\[\s*\{(?:\s*"role"\s*:\s*"(?:user|model)"\s*,)?\s*"parts"\s*:\s*\['
)
PROMPTS: Final = compiled(rb'\s*\[\s*\{(?=[^{}]*"sessionId"\s*:)(?=[^{}]*"messageId"\s*:)[^{}]*"type"\s*:\s*"user"')
STREAMED: Final = frozenset({"init", "message", "tool_use", "tool_result", "error", "result"})
KEYS: Final = frozenset({"messages", "history", "clientHistory", ""})
FAILED: Final = {"error": True, "success": False}
STREAM_REACH: Final = 64  # messages that a result may come behind the call it answers
USER: Final = "user"
NO_AGENT: Final = "contains the user's prompts alone, and nothing of the agent."
NO_MESSAGES: Final = "contains no readable messages."


def recognises(file: RunFile) -> bool:
    """Recognise a session by its ids, contents by roles and parts, and the log of prompts."""
    name = file.name.lower()
    if name.endswith(SUFFIXES):
        first = first_objects(file)
        if any(map(_begins_stream, first)):  # what started it may write its own prompt before
            return all(as_name(line.get("type")) in STREAMED for line in first)
        return bool(first) and {"sessionId", "projectHash"} <= first[0].keys() and all(map(_is_record, first[1:]))
    head = file.readable_head if name.endswith(".json") else b""
    session = SESSION.match(head) is not None and b'"messages"' in head
    contents = CONTENTS.match(head) is not None and b"part_kind" not in head  # those are PydanticAI's
    return session or contents or PROMPTS.match(head) is not None


def _begins_stream(line: dict[str, Any]) -> bool:
    return line.get("type") == "init" and {"session_id", "model"} <= line.keys()


def _is_record(line: dict[str, Any]) -> bool:
    return "$set" in line or "$rewindTo" in line or ("type" in line and "id" in line) or "sessionId" in line


def read(file: RunFile) -> Iterator[Piece]:
    """Yield the one trajectory."""
    samples = Samples(file, PARSER.name)
    if PROMPTS.match(file.readable_head):
        yield Lost(note=f"{file.rel} {NO_AGENT}")
        return
    whole: dict[str, Any] = {}
    records: list[Any] = []
    lines = file.name.lower().endswith(SUFFIXES)
    for member in _replayed(file, whole, records) if lines else members(file, KEYS - {""}):
        if isinstance(member, Lost):
            yield member
        elif member[0] in KEYS:
            records.append(member[1])
        else:
            whole[member[0]] = member[1]
    good = attempt(partial(_add, records), whole, samples)
    yield from samples.close()
    if not good:
        yield Lost(rows=1, note=f"{file.rel} {NO_MESSAGES}")


def _replayed(file: RunFile, whole: dict[str, Any], records: list[Any]) -> Iterator[Any]:
    """Replay the lines of a session: of a message written twice the last counts, an undone one does not."""
    kept: dict[str, Any] = {}
    streamed = any(map(_begins_stream, first_objects(file)))
    for line in objects(file):
        if isinstance(line, Lost):
            yield line
        elif streamed:
            _stream(line, whole, records)
        elif isinstance(line.get("$rewindTo"), str):
            names = list(kept)
            cut = names.index(line["$rewindTo"]) if line["$rewindTo"] in kept else 0
            for name in names[cut:]:
                del kept[name]
        elif "$set" in line:
            changed = dict_of(line["$set"])
            if isinstance(changed.get("messages"), list):
                kept = {as_name(one.get("id")) or str(at): one for at, one in enumerate(dicts_in(changed["messages"]))}
            whole.update({name: value for name, value in changed.items() if name != "messages"})
        elif "type" in line:
            kept[as_name(line.get("id")) or f"line-{len(kept)}"] = line
        else:
            whole.update(line)
    records.extend(kept.values())


def _stream(line: dict[str, Any], whole: dict[str, Any], records: list[Any]) -> None:
    """Turn an event of streamed output into what a recorded session would hold."""
    kind, at = as_name(line.get("type")), line.get("timestamp")
    last = records[-1] if records and records[-1]["type"] == "gemini" else None
    if kind == "init":
        whole["sessionId"] = line.get("session_id")
        whole["model"] = line.get("model")
    elif kind == "message" and line.get("role") == USER:
        records.append({"type": USER, "content": line.get("content"), "timestamp": at})
    elif kind == "message" and (last is None or last["toolCalls"] or line.get("delta") is not True):
        records.append({"type": "gemini", "content": as_text(line.get("content")), "timestamp": at, "toolCalls": []})
    elif kind == "message" and last is not None:  # a part of a message
        last["content"] += as_text(line.get("content"))
    elif kind == "tool_use":
        if last is None or any("status" in call for call in last["toolCalls"]):  # what was called before has returned
            last = {"type": "gemini", "content": "", "timestamp": at, "toolCalls": []}
            records.append(last)
        last["toolCalls"].append(
            {"id": line.get("tool_id"), "name": line.get("tool_name"), "args": line.get("parameters")}
        )
    elif kind == "tool_result":
        called = (call for record in reversed(records[-STREAM_REACH:]) for call in record.get("toolCalls", ()))
        for call in called:
            if call["id"] == line.get("tool_id"):
                said_back = line.get("output") or nested(line, "error", "message")
                call |= {"status": line.get("status"), "result": as_text(said_back)}
                break
    elif kind == "result":
        whole["stats"] = line.get("stats")


def _add(records: list[Any], whole: dict[str, Any], samples: Samples) -> bool:
    told = [pair for record in samples.objects(records) for pair in _messages(record)]
    chat = [message for message, _ in told]
    if not chat:
        return False
    tokens = [dict_of(record.get("tokens")) for record in dicts_in(records)]
    written = [count.get(name) for count in tokens for name in ("output", "thoughts")]
    session, stats = as_name(whole.get("sessionId")), dict_of(whole.get("stats"))
    samples.add(
        Sample(
            step=None,
            split="unknown",
            completion=chat,
            identity=[session, chat],
            prompt=opening(chat),
            timing=[timing for _, timing in told],
            columns={
                "sample_id": session,
                "model": first_name([*(record.get("model") for record in dicts_in(records)), whole.get("model")]),
                "tokens_in": total([*(count.get("input") for count in tokens), stats.get("input_tokens")]),
                "tokens_out": total([*written, stats.get("output_tokens")]),
            },
        )
    )
    return True


def _messages(record: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the messages of one record, with their times."""
    if isinstance(record.get("parts"), list):
        yield from ((message, {}) for message in _contents(record))
        return
    kind, at = record.get("type"), {"t_end": as_seconds(record.get("timestamp"))}
    if kind == USER:
        yield {"role": USER, "content": _text(record.get("content"))}, at
    elif kind == "gemini":
        calls = dicts_in(record.get("toolCalls"))
        asked = [request(call.get("id"), call.get("name"), call.get("args")) for call in calls]
        thoughts = [as_text(thought.get("description")) for thought in dicts_in(record.get("thoughts"))]
        message = said(_text(record.get("content")), asked, "\n".join(thoughts))
        yield message, at | {"n_tokens": as_count(nested(record, "tokens", "output"))}
        for call in calls:
            yield from ((message, {}) for message in _result(call))


def _result(call: dict[str, Any]) -> Iterator[dict[str, Any]]:
    flag = FAILED.get(as_name(call.get("status")) or "")
    found = call.get("result")
    if found is None and flag is None:
        return
    parts = dicts_in(found if isinstance(found, list) else [found])
    given = next((part["functionResponse"] for part in parts if isinstance(part.get("functionResponse"), dict)), None)
    content = _text(found) if given is None else _response(given)
    yield result(call.get("id"), content, **({} if flag is None else failed(content, failed=flag)))


def _contents(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Turn a content of the Gemini interface into messages."""
    parts = dicts_in(record["parts"])
    text = _text([part for part in parts if part.get("thought") is not True])
    made = [part["functionCall"] for part in parts if isinstance(part.get("functionCall"), dict)]
    given = [part["functionResponse"] for part in parts if isinstance(part.get("functionResponse"), dict)]
    if record.get("role") == "model":
        return [said(text, [request(call.get("id"), call.get("name"), call.get("args")) for call in made])]
    results = [result(one.get("id"), _response(one), **_error(one)) for one in given]
    return [*results, *([{"role": USER, "content": text}] if text or not results else [])]


def _error(given: dict[str, Any]) -> dict[str, Any]:
    """Return the error of a function's response, which holds `error` in place of `output`."""
    response = dict_of(given.get("response"))
    return (
        {"error": bool(response["error"])} if "error" in response else {"error": False} if "output" in response else {}
    )


def _response(given: dict[str, Any]) -> str:
    response = dict_of(given.get("response"))
    return as_text(next((response[key] for key in ("output", "error") if key in response), response))


def _text(content: Any) -> str:
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return as_text(content)
    texts = [part if isinstance(part, str) else nested(part, "text") for part in content]
    return "\n".join(text for text in texts if isinstance(text, str))


PARSER = Parser(
    name="gemini_cli",
    describes="Gemini CLI's recorded sessions and checkpoints: trajectories, turns, tool calls, tokens.",
    held_against="source: google-gemini/gemini-cli `chatRecordingTypes.ts`",
    priority=80,
    of_training=False,
    recognises=recognises,
    read=read,
)
