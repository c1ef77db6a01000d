"""Results of tau-bench and tau2-bench: conversations with tools, rewards and how they ended.

Source: sierra-research/tau-bench tau_bench/types.py (`EnvRunResult`: an array of task_id, reward, info, traj, trial)
and tau_bench/envs/base.py (a tool that raises gives the text `Error: ...`); sierra-research/tau2-bench at a2c0247,
src/tau2/data_model/simulation.py (`Results`, `SimulationRun`), message.py (`ToolMessage.error` is a flag of its own)
and tasks.py (`actions`: the calls of one right answer). tau2 writes `results.json` with all simulations, or beside it
`simulations/{id}.json` with one each. Tools of the simulated user are left out, as the agent sees nothing of them.

Conversations by voice hold ticks of a fraction of a second, in which both sides may speak, each with the part of its
words that fell there, and tools are called between (message.py, `Tick`); what a side says in ticks that follow one
another is a turn. Real files: tests/test_voice/test_interaction_metrics/testdata/experiment/simulations there, without
the words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any, Final, TypeGuard

from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile, count_notes
from ptt.diagnostics.parsers.io.json_documents import members
from ptt.diagnostics.parsers.io.lines import SUFFIXES, begins_with
from ptt.diagnostics.parsers.io.tool_calls import ERROR_TEXT, calls_of
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, attempt, objects
from ptt.diagnostics.parsers.io.values import (
    as_count,
    as_label,
    as_name,
    as_score,
    as_seconds,
    dict_of,
    dicts_in,
    nested,
)

PAUSE: Final = 5  # silent ticks that a turn may hold: a second, at the 0.2 s that tau2 takes by default
SIDES: Final = (("assistant", "agent_chunk"), ("user", "user_chunk"))


def messages_of_ticks(ticks: Any) -> list[dict[str, Any]]:
    """Return the messages of a voice conversation, in the order in which they began."""
    messages: list[dict[str, Any]] = []
    speaking: dict[str, tuple[int, list[str]]] = {}  # who spoke last when, and the words of that turn
    for at, tick in enumerate(dicts_in(ticks)):
        for role, key in SIDES:
            chunk = dict_of(tick.get(key))
            words = as_name(chunk.get("content")) or ""
            if not words and chunk.get("contains_speech") is not True:
                continue
            last, said = speaking.get(role, (at - PAUSE - 2, []))
            if at - last > PAUSE + 1:
                said = []
                messages.append({"role": role, "content": said, "timestamp": tick.get("timestamp")})
            said.append(words)
            speaking[role] = (at, said)
        if calls := dicts_in(tick.get("agent_tool_calls")):
            messages.append({"role": "assistant", "tool_calls": calls, "timestamp": tick.get("timestamp")})
            speaking.pop("assistant", None)
        messages += dicts_in(tick.get("agent_tool_results"))
    for message in messages:
        if message.get("role") != "tool" and isinstance(message.get("content"), list):
            message["content"] = "".join(message["content"])
    return messages


TAU_RUNS: Final = re.compile(rb'\s*(?:\[\s*)?\{\s*"task_id"\s*:')
RUN: Final = frozenset({"task_id", "reward", "traj"})
SIMULATED: Final = frozenset({"task_id", "termination_reason", "duration"})
RESULTS: Final = re.compile(rb'\s*\{.*"(?:agent_info|environment_info)"\s*:', re.DOTALL)
SIMULATION: Final = re.compile(rb'\s*\{(?=.*"task_id"\s*:)(?=.*"termination_reason"\s*:)', re.DOTALL)
FAILED: Final = (*ERROR_TEXT, "Error:", "Unknown action")
NO_CHAT: Final = "run(s) skipped: no conversation."
CUT_SHORT: Final = frozenset({"max_steps", "timeout", "context_window_exceeded"})
ERRORS: Final = frozenset({"agent_error", "user_error", "too_many_errors", "infrastructure_error", "unexpected_error"})
ANSWERS: Final = "respond"  # tau-bench's action that says something
MIN_SUCCESS: Final = 1 - 1e-6  # both benchmarks call a reward of one a success


def recognises(file: RunFile) -> bool:
    """Recognise either benchmark's results by their first keys, also where each run is a line or a file."""
    if file.name.lower().endswith(SUFFIXES):
        return begins_with(file, lambda row: row.keys() >= RUN or row.keys() >= SIMULATED)
    head = file.readable_head if file.name.endswith(".json") else b""
    if TAU_RUNS.match(head):
        return b'"reward"' in head and (b'"traj"' in head or head.lstrip().startswith(b"["))
    results = RESULTS.match(head) is not None and b'"info"' in head and b'"timestamp"' in head
    return results or (SIMULATION.match(head) is not None and b'"duration"' in head)


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a run, and the mean reward."""
    samples = Samples(file, PARSER.name)
    whole: dict[str, Any] = {}
    tasks: dict[str, Any] = {}
    single = partial(_add_simulation, None, tasks)
    bad = 0
    for member in _members(file):
        if isinstance(member, Lost):
            yield member
            continue
        key, value = member
        if key == "":
            bad += not attempt(_add_run if nested(value, "traj") is not None else single, value, samples)
        elif key == "simulations":
            bad += not attempt(partial(_add_simulation, whole.get("info"), tasks), value, samples)
        elif key == "tasks":
            tasks[as_label(nested(value, "id")) or ""] = value
        else:
            whole[key] = value
        if samples.full:
            yield from samples.take()
    if "traj" in whole:
        bad += not attempt(_add_run, whole, samples)
    elif "messages" in whole or "termination_reason" in whole:
        bad += not attempt(single, whole, samples)
    info = whole.get("info")
    settings = nested(info, "agent_info", "llm_args")
    yield from samples.close(
        model=_model(info),
        temperature=as_score(nested(settings, "temperature")),
        max_tokens=as_count(nested(settings, "max_tokens")),
    )
    yield from count_notes(file, {NO_CHAT: bad}, lost=(NO_CHAT,))


def _members(file: RunFile) -> Iterator[tuple[str, Any] | Lost]:
    """Yield the members of a document; each line of a line file counts as an entry of a list."""
    if not file.name.lower().endswith(SUFFIXES):
        yield from members(file, frozenset({"simulations", "tasks"}))
        return
    for row in objects(file):
        yield row if isinstance(row, Lost) else ("", row)


def _model(info: Any) -> str | None:
    return as_label(nested(info, "audio_native_config", "model")) or as_label(nested(info, "agent_info", "llm"))


def _called(actions: Any) -> list[str]:
    """Return the tools that the reference answer calls on the agent's side."""
    own = (action for action in dicts_in(actions) if action.get("requestor", "assistant") == "assistant")
    return sorted({name for action in own if (name := as_name(action.get("name"))) and name != ANSWERS})


def _add_run(record: dict[str, Any], samples: Samples) -> bool:
    messages = record.get("traj")
    if not _is_chat(messages):
        return False
    reward, task = as_score(record.get("reward")), as_label(record.get("task_id"))
    error = nested(record, "info", "error")
    samples.add(
        Sample(
            step=None,
            split="eval",
            completion=messages,
            identity=[task, as_label(record.get("trial")), messages, reward],
            prompt=as_name(nested(record, "info", "task", "instruction")),
            reward=reward,
            calls=calls_of(messages, error_text=FAILED) if any(map(_calls, messages)) else None,
            columns={
                "group_id": task,
                "task": task,
                "success": None if reward is None else reward >= MIN_SUCCESS,
                "error_type": error.partition(":")[0][:100] if isinstance(error, str) else None,
                "tools_required": _called(nested(record, "info", "task", "actions")) or None,
            },
        )
    )
    samples.mean("tau-bench", None, "reward", reward)
    return True


def _calls(message: dict[str, Any]) -> bool:
    """Return whether a message asks for a tool apart from its text, as agents that act or reason in texts do not."""
    return bool(message.get("tool_calls")) or message.get("role") == "tool"


def _add_simulation(info: Any, tasks: dict[str, Any], record: dict[str, Any], samples: Samples) -> bool:
    """Add one simulation of a results file, whose `info` names the domain, and its tasks what they take."""
    messages = record.get("messages")
    if messages is None and isinstance(record.get("ticks"), list):
        messages = messages_of_ticks(record["ticks"])
    if not _is_chat(messages):
        return False
    chat = [message for message in map(_of_agent, _flat(messages)) if message is not None]
    reward, task = as_score(nested(record, "reward_info", "reward")), as_label(record.get("task_id"))
    domain, about = as_label(nested(info, "environment_info", "domain_name")), tasks.get(task or "")
    parts = dict_of(nested(record, "reward_info", "reward_breakdown"))
    checks = [check.get("action") for check in dicts_in(nested(record, "reward_info", "action_checks"))]
    stop = as_label(record.get("termination_reason"))
    policy = as_name(record.get("policy")) or as_name(nested(info, "environment_info", "policy"))
    samples.add(
        Sample(
            step=None,
            split="eval",
            completion=chat,
            identity=[as_label(record.get("id")), task, as_label(record.get("trial")), chat],
            prompt=nested(about, "user_scenario") or nested(about, "ticket"),
            reward=reward,
            components={name: as_score(value) for name, value in parts.items()},
            calls=calls_of(chat),
            timing=[_timing(message) for message in chat],
            asked=[{"role": "system", "content": policy}] if policy and not _begins_with_system(chat) else None,
            columns={
                "group_id": task,
                "task": task,
                "env": domain,
                "model": _model(info),
                "success": None if reward is None else reward >= MIN_SUCCESS,
                "truncated": None if stop is None else stop in CUT_SHORT,
                "stop_reason": stop,
                "error_type": stop if stop in ERRORS else None,
                "tools_required": _called(nested(about, "evaluation_criteria", "actions")) or _called(checks) or None,
                "cost_usd": as_score(record.get("agent_cost")),
                **_tokens(chat),
            },
        )
    )
    samples.mean(domain or "tau2", None, "reward", reward)
    return True


def _tokens(chat: list[dict[str, Any]]) -> dict[str, int | None]:
    """Return the tokens of the agent's calls of its model together."""
    used = [message.get("usage") for message in chat if message.get("role") == "assistant"]
    columns: dict[str, int | None] = {}
    for column, key in (("tokens_in", "prompt_tokens"), ("tokens_out", "completion_tokens")):
        counts = [count for usage in used if (count := as_count(nested(usage, key))) is not None]
        columns[column] = sum(counts) if counts else None
    return columns


def _begins_with_system(chat: list[dict[str, Any]]) -> bool:
    return bool(chat) and chat[0].get("role") == "system"


def _is_chat(messages: Any) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(messages, list) and all(isinstance(message, dict) for message in messages)


def _flat(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Take results of parallel calls out of the message that holds them."""
    for message in messages:
        results = message.get("tool_messages")
        yield from dicts_in(results) if isinstance(results, list) else (message,)


def _of_agent(message: dict[str, Any]) -> dict[str, Any] | None:
    """Leave the calls of the simulated user out, and name the id of a result as others do."""
    if message.get("role") == "tool":
        return None if message.get("requestor") == "user" else message | {"tool_call_id": message.get("id")}
    if message.get("role") != "user" or not message.get("tool_calls"):
        return message
    return message | {"tool_calls": None} if message.get("content") else None


def _timing(message: dict[str, Any]) -> dict[str, Any]:
    return {
        "n_tokens": as_count(nested(message, "usage", "completion_tokens")),
        "t_end": as_seconds(message.get("timestamp")),
    }


PARSER = Parser(
    name="tau_bench",
    describes="Results of tau-bench and tau2-bench: trajectories, turns, tool calls, rewards, evaluations.",
    held_against="source: sierra-research tau-bench and tau2-bench data models",
    priority=80,
    of_training=False,
    recognises=recognises,
    read=read,
)
