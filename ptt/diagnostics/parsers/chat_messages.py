"""Conversations as chat messages, the shape that SFT data, agent logs and request logs share.

Lines or a list of records with `messages` (`conversation`, `trajectory`, `message_log`, ...), one conversation as a
list of messages or a line each, or records of one request each with its response. Roles, calls and results after
OpenAI's chat completions, legacy functions, Anthropic's blocks, LangChain's messages, Gemini's and Bedrock's parts.
Read in aghyad-deeb/reward_seeker data/bash_agent/samples.jsonl (df7abd7), sushantmehta-code/tinker-cookbook
example_data/conversations.jsonl (3ca012b), OpenHands/software-agent-sdk tests/fixtures/llm_data/ (611629e: a list of
messages, and litellm's log of a request), hiyouga/LLaMA-Factory data/reason_tool_use_demo_50.jsonl (ff6d4d1: calls as
parts), NVIDIA-NeMo/RL nemo_rl/algorithms/grpo.py (7ea279a, message logs). The answer to a logged request is its
conversation's last turn. Pairs of a chosen and a rejected answer are no episodes, and are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.io.conversations import opening
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.lines import parse_json
from ptt.diagnostics.parsers.io.message_shapes import LOOKED, ROLES, common_messages, is_chat, is_message
from ptt.diagnostics.parsers.io.record_files import first_records, holds, layout, records, splits
from ptt.diagnostics.parsers.io.record_labels import (
    dumped_at,
    labels_of,
    reward_of,
    split_of,
    step_of,
    timing_of,
    told_by,
    tools_of,
)
from ptt.diagnostics.parsers.io.response_items import answers
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, read_samples
from ptt.diagnostics.parsers.io.values import as_name, as_text, dict_of, dicts_in

CHATS: Final = ("messages", "conversation", "conversations", "trajectory", "traj", "chat", "history", "dialogue",
                "dialog", "transcript", "message_log", "message_history", "chat_history", "contents")  # fmt: skip
SENT: Final = ("input", "inputs", "prompt")
"""Members of a logged request that may hold its messages, where its answer stands beside them."""
REQUESTS: Final = ("request", "request_body", "body", "payload", "raw_request", "kwargs", "params")
ANSWERS: Final = ("response", "completion", "output", "raw_response", "response_body", "answer")
MESSAGE: Final = (b'{"role"', b'{"content"', b'{"type"')  # how a line begins that is a single message
MESSAGE_BYTES: Final = 1000  # in memory, for a message without its text
OPEN_CHATS: Final = 8  # conversations at a time whose requests a log may mix
NO_CHAT: Final = "record(s) skipped: no messages."


def recognises(file: RunFile) -> bool:
    """Recognise records by their messages, and one list of messages by its elements."""
    return holds(file, _is_record) or _is_one_chat(file)


def _is_one_chat(file: RunFile) -> bool:
    """Return whether the elements of a list, or the lines, are the messages of one conversation."""
    return layout(file) in ("list", "lines") and is_chat(first_records(file)) and not holds(file, _is_record)


def _between_records(before: bytes, after: bytes) -> bool:
    """Let a file be split between records, but not between lines that are one message each."""
    return splits(before, after) and not before.startswith(MESSAGE)


def _is_record(found: Any) -> bool:
    if isinstance(found, list):
        return is_chat(found)
    if not isinstance(found, dict) or _is_preference(found):
        return False
    return _chat_of(found, LOOKED) is not None or _is_completed(found)


def _is_preference(record: dict[str, Any]) -> bool:
    """Return whether a record holds two answers to choose from: data to train on, no episode."""
    return "chosen" in record and "rejected" in record


def _is_completed(record: dict[str, Any]) -> bool:
    """Return whether a record has messages as its prompt, and one completion of them."""
    asked = any(is_chat(record.get(key)) for key in SENT)
    return asked and any(is_chat(record.get(key)) or is_message(record.get(key)) for key in ANSWERS)


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a record, or one of the whole list."""
    samples = Samples(file, PARSER.name)
    yield from read_samples(samples, _one(file) if _is_one_chat(file) else _records(file), _add, NO_CHAT)


def _records(file: RunFile) -> Iterator[Any]:
    """Yield the records; of requests that send what was said before again, only the last of each conversation."""
    open_: list[tuple[list[Any], dict[str, Any]]] = []
    for record in records(file, _is_record):
        record = {"messages": record} if isinstance(record, list) else record
        sent = _sent(record)
        if not sent:
            yield record
            continue
        grown = next((at for at, (before, last) in enumerate(open_) if _continues(before, last, sent)), None)
        if grown is not None:
            open_.pop(grown)
        elif len(open_) >= OPEN_CHATS:
            yield open_.pop(0)[1]
        open_.append((sent, record))
    yield from (record for _, record in open_)


def _sent(record: Any) -> list[Any]:
    """Return the messages of a logged request, whose answer stands beside them."""
    if not isinstance(record, dict) or not any(record.get(key) for key in ANSWERS):
        return []
    listed = (record[key] for key in SENT if is_chat(record.get(key)))
    return _chat_of(record, 1) or next(listed, [])


def _continues(before: list[Any], last: dict[str, Any], sent: list[Any]) -> bool:
    """Return whether a request sends all of another again, with the answer to that next, or asks anew without one."""
    if sent[: len(before)] != before:
        return False
    if len(sent) > len(before) and ROLES.get(str(dict_of(sent[len(before)]).get("role"))) == "assistant":
        return True
    return not any(as_text(answer.get("content")) or answer.get("tool_calls") for answer in _answer(last))


def _one(file: RunFile) -> Iterator[Any]:
    messages = []
    size = 0
    for message in records(file, is_message):
        if isinstance(message, Lost):
            yield message
            continue
        messages.append(message)
        size += MESSAGE_BYTES + len(as_text(message.get("content"))) if isinstance(message, dict) else 0
        file.budget.take(nbytes=size, what="a file of one conversation")
    yield {"messages": messages}


def _chat_of(record: dict[str, Any], looked: int) -> list[Any] | None:
    """Return the messages of a record or its request, judged by the first `looked`; they may be a JSON string."""
    for place in (record, *(record[key] for key in REQUESTS if isinstance(record.get(key), dict))):
        for key in CHATS:
            found = place.get(key)
            if isinstance(found, str) and found.startswith("["):
                found = parse_json(found)
            if found is not None and is_chat(found, looked):
                return list(found)
    return _other_chat(record, looked)


def _other_chat(record: dict[str, Any], looked: int) -> list[Any] | None:
    """Return the only list of messages under another name, if the assistant speaks in it."""
    chats = [value for key, value in record.items() if isinstance(value, list) and is_chat(value, looked)]
    speaks = len(chats) == 1 and any(
        ROLES.get(str(m.get("role", m.get("type")))) == "assistant" for m in dicts_in(chats[0])
    )
    return list(chats[0]) if speaks else None


def _add(record: dict[str, Any], samples: Samples) -> bool:
    found = _chat_of(record, 1)
    asked = None
    if found is None:
        asked, found = next(filter(None, (_messages(record.get(key)) for key in SENT)), []), []
        if not asked:
            return False
    requests = [record[key] for key in REQUESTS if isinstance(record.get(key), dict)]
    system = _system([record, *requests])
    chat, answer = common_messages(samples.objects(found)), _answer(record)
    messages = [*system, *chat, *(answer if answer != chat else ())]  # a completion may be the record's only chat
    if not asked and not any(message.get("role") in ("user", "assistant", "tool") for message in messages):
        return False
    response = next((dict_of(record[key]) for key in ANSWERS if isinstance(record.get(key), dict)), {})
    about = _labels(record, response, requests)
    labels = labels_of(about)
    reward = reward_of(record) if labels.reward is None else labels.reward
    samples.add(
        Sample(
            step=step_of(record) if reward is None else dumped_at(samples.file, record),
            split=split_of(samples.file, record),
            completion=messages,
            identity=[labels.columns["sample_id"], messages],
            prompt=opening([*(asked or ()), *messages]),
            reward=reward,
            components=labels.components,
            timing=timing_of(messages, record),
            asked=asked,
            tools=tools_of([record, *requests, dict_of(record.get("metadata"))]),
            columns=labels.columns,
        )
    )
    return True


def _messages(found: Any) -> list[dict[str, Any]]:
    found = parse_json(found) if isinstance(found, str) and found.startswith("[") else found
    return common_messages(dicts_in(found)) if is_chat(found) else []


def _system(places: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return Anthropic's system prompt, which is stored next to the messages."""
    found = next((place["system"] for place in places if place.get("system")), None)
    return [{"role": "system", "content": found}] if isinstance(found, str | list) else []


def _answer(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the answer to a logged request, or the completion beside a prompt."""
    for key in ANSWERS:
        found = record.get(key)
        if is_chat(found):
            return common_messages(dicts_in(found))
        body = found.get("body", found) if isinstance(found, dict) else found
        if isinstance(body, dict) and (spoken := answers(body) or _own_answer(body)):
            return spoken
    return answers({"choices": record["choices"]}) if isinstance(record.get("choices"), list) else []


def _own_answer(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the answer in a client's own shape: a text, and the calls beside it."""
    if "text" not in body and not dicts_in(body.get("tool_calls")):
        return []
    said = {"role": "assistant", "content": as_text(body.get("text") or body.get("content") or "")}
    return common_messages([said | {"tool_calls": dicts_in(body.get("tool_calls"))}])


def _labels(record: dict[str, Any], response: dict[str, Any], requests: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a record with what its request and response say about model, tokens and how it ended."""
    model = next((name for request in requests if (name := as_name(request.get("model")))), None)
    told = told_by(response or {key: record.get(key) for key in ("choices", "error")})
    return {"model": model} | told | {key: value for key, value in record.items() if value is not None}


PARSER = Parser(
    name="chat_messages",
    describes="Chat messages (OpenAI, Anthropic, LangChain), data or request logs: trajectories, turns, tool calls.",
    held_against="real: reward_seeker, tinker-cookbook, OpenHands SDK's messages and request logs",
    priority=90,
    general=True,
    of_training=False,
    splits=_between_records,
    recognises=recognises,
    read=read,
)
