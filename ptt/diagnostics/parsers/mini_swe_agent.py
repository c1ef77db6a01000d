"""Trajectories of mini-swe-agent: chat messages whose actions are bash blocks in the text, or tool calls.

Source: SWE-agent/mini-swe-agent at a83fcae82d2a08f0ee0c688f9d137b3566c097f8: src/minisweagent/agents/default.py
(`serialize`: info, messages, trajectory_format), models/utils/actions_toolcall.py and actions_toolcall_response.py
(observations with `returncode` and `exception_info` in `extra`), run/benchmarks/swebench.py (`instance_id`), and
tests/test_data/github_issue.traj.json: the first version wrote the list of messages alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from ptt.diagnostics.parsers.io.conversations import opening, request, result, said
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.json_documents import members
from ptt.diagnostics.parsers.io.text_calls import read_text_calls
from ptt.diagnostics.parsers.io.tool_calls import calls_of, malformed_call, numbered
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, attempt
from ptt.diagnostics.parsers.io.values import (
    as_count,
    as_label,
    as_name,
    as_plain_number,
    as_seconds,
    as_text,
    dict_of,
    dicts_in,
    first_name,
    nested,
    plain_text,
    total,
)

OBJECT: Final = re.compile(rb'\s*\{\s*"(?:info|messages|trajectory_format|instance_id)"\s*:')
MINI: Final = re.compile(rb'"mini_version"\s*:|"trajectory_format"\s*:\s*"mini-swe-agent-1')
CHAT: Final = re.compile(rb'\s*\[\s*\{\s*"role"\s*:\s*"system"')
ACTION: Final = re.compile(rb"```(?:bash|mswea_bash_command)\\n")
OBSERVED: Final = b"<returncode>"
ENDING: Final = ".traj.json"
LIMITS: Final = frozenset({"LimitsExceeded", "TimeExceeded"})
NO_ERRORS: Final = frozenset({"Submitted", "UserInterruption", "", *LIMITS})
SUMS: Final = (("tokens_in", "prompt_tokens", "input_tokens"), ("tokens_out", "completion_tokens", "output_tokens"))


def recognises(file: RunFile) -> bool:
    """Recognise the writer's own mark; in a list of messages, bash blocks and the return codes they gave."""
    head = file.readable_head if file.name.endswith(".json") else b""
    if OBJECT.match(head):
        return MINI.search(head) is not None or (file.name.endswith(ENDING) and b'"model_stats"' in head)
    return CHAT.match(head) is not None and OBSERVED in head and ACTION.search(head) is not None


def read(file: RunFile) -> Iterator[Piece]:
    """Yield the one trajectory."""
    samples = Samples(file, PARSER.name)
    messages: list[Any] = []
    whole: dict[str, Any] = {}
    for member in members(file, frozenset({"messages"})):
        if isinstance(member, Lost):
            yield member
        elif member[0] in {"messages", ""}:
            messages.append(member[1])
        else:
            whole[member[0]] = member[1]
    good = attempt(partial(_add, messages), whole, samples)
    yield from samples.close()
    if not good:
        yield Lost(rows=1, note=f"{file.rel} contains no readable messages.")


def _add(found: list[Any], whole: dict[str, Any], samples: Samples) -> bool:
    messages = samples.objects(found)
    told = [pair for message in messages for pair in _messages(message)]
    if not told:
        return False
    chat = [message for message, _ in told]
    info = dict_of(whole.get("info"))
    last = nested(messages[-1], "extra", "exit_status") if messages[-1].get("role") == "exit" else None
    stop = as_label(info.get("exit_status")) or as_label(last) or None
    instance = as_label(whole.get("instance_id")) or _instance(samples.file)
    config = dict_of(info.get("config"))
    usages = [_usage(message) for message in messages]
    calls, malformed = calls_of(chat), list(_malformed(chat))
    timings = [timing for _, timing in told]
    if not calls and not malformed and (read := read_text_calls(chat, blocks=True)):  # the first version's
        chat, timings = [message for _, message in read], [timings[origin] for origin, _ in read]
        calls = calls_of(chat)
    samples.add(
        Sample(
            step=None,
            split="eval",
            completion=chat,
            identity=[instance, [message for message, _ in told]],
            prompt=opening(chat),
            calls=numbered([*calls, *malformed]),
            timing=timings,
            columns={
                "n_tool_calls": len(calls),
                "task": instance,
                "stop_reason": stop,
                "truncated": None if stop is None else stop in LIMITS,
                "error_type": stop[:100] if stop is not None and stop not in NO_ERRORS else None,
                "model": first_name([nested(config, "model", "model_name"), *map(_model, messages)]),
                "cost_usd": as_plain_number(nested(info, "model_stats", "instance_cost")),
                **{name: total(_first(usage, keys) for usage in usages) for name, *keys in SUMS},
            },
        )
    )
    return True


def _malformed(chat: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield responses whose action could not be read."""
    for at, message in enumerate(chat):
        if nested(message, "extra", "interrupt_type") == "FormatError":
            yield malformed_call(max(0, at - 1), plain_text(message.get("content")))


def _instance(file: RunFile) -> str | None:
    """Return the instance that the file is named by, where its folder has the same name."""
    name = file.name.removesuffix(ENDING)
    return name if file.name.endswith(ENDING) and file.path.parent.name == name else None


def _messages(message: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the messages that one record holds, with their times; a way out of the loop is no message."""
    role, extra = as_name(message.get("role")), dict_of(message.get("extra"))
    timing = {"t_end": as_seconds(extra.get("timestamp"))}
    if role == "exit":
        return
    if message.get("type") == "function_call_output":  # of OpenAI's Responses
        yield result(message.get("call_id"), message.get("output"), **_failed(extra)), timing
    elif message.get("object") == "response":
        yield _response(message), timing | {"n_tokens": as_count(nested(message, "usage", "output_tokens"))}
    elif role == "tool":
        yield message | _failed(extra), timing
    elif role is not None:
        yield message, timing | {"n_tokens": as_count(_first(_usage(message), ["completion_tokens"]))}


def _failed(extra: dict[str, Any]) -> dict[str, Any]:
    """Return how a command ended: by the exception that the environment raised, or by its return code."""
    if extra.get("exception_info"):
        return {"error": {"type": as_name(extra.get("exception_type")) or "exception"}}
    code = as_plain_number(extra.get("returncode"))
    return {} if code is None else {"error": code != 0}


def _response(message: dict[str, Any]) -> dict[str, Any]:
    items = dicts_in(message.get("output"))
    parts = [part for item in items if item.get("type") == "message" for part in dicts_in(item.get("content"))]
    calls = [
        request(item.get("call_id") or item.get("id"), item.get("name"), item.get("arguments"))
        for item in items
        if item.get("type") == "function_call"
    ]
    return said("\n".join(as_text(part.get("text")) for part in parts), calls)


def _usage(message: dict[str, Any]) -> dict[str, Any]:
    return dict_of(nested(message, "extra", "response", "usage") or message.get("usage"))


def _model(message: dict[str, Any]) -> Any:
    return nested(message, "extra", "response", "model") or message.get("model")


def _first(found: dict[str, Any], keys: list[str]) -> Any:
    return next((found[key] for key in keys if found.get(key) is not None), None)


PARSER = Parser(
    name="mini_swe_agent",
    describes="mini-swe-agent's .traj.json files: trajectories, turns, tool calls with return codes, tokens, cost.",
    held_against="real: files of mini-swe-agent 1.13 and of its first version",
    priority=80,
    of_training=False,
    recognises=recognises,
    read=read,
)
