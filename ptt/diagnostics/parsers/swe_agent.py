"""Trajectories of SWE-agent: thoughts, commands and what they printed.

Source: SWE-agent/SWE-agent at 3ea751c087f32b16e039a2233dd6eefecef325d5: sweagent/types.py (`TrajectoryStep`,
`AgentInfo`, `HistoryItem` with `tool_calls` and `is_demo`) and sweagent/agent/agents.py (`save_trajectory`, and
`attempts` of the retrying agent): `{instance}/{instance}.traj`. An agent that calls tools has them in the history, a
call beside the action that was made of it; of others the action is the call. No field says whether a command failed:
that is guessed from its output.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from ptt.diagnostics.parsers.io.conversations import ASSISTANT, said
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.json_documents import members
from ptt.diagnostics.parsers.io.lines import parse_json
from ptt.diagnostics.parsers.io.tool_calls import ARGS_CHARS, call_row, calls_of, told_columns
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, attempt
from ptt.diagnostics.parsers.io.values import (
    as_flag,
    as_label,
    as_name,
    as_score,
    as_step,
    as_text,
    dicts_in,
    nested,
)

SHELL: Final = "bash"  # runs every action
STATS: Final = ("api_calls", "tokens_sent", "tokens_received", "instance_cost")
RESOLVED: Final = (("resolved",), ("report", "resolved"))
REQUERIES: Final = 20  # items of the history that may lie between two steps: answers that could not be parsed
NAMED: Final = (
    "name",
    "args_json",
    "call_id",
)  # taken from the tool call, which is exact where the action is only text
LIMIT_EXITS: Final = ("exit_context", "exit_cost", "exit_total_execution_time", "exit_format")


def recognises(file: RunFile) -> bool:
    """Recognise the ending and an object that holds steps."""
    head = file.readable_head.lstrip() if file.name.endswith(".traj") else b""
    return head.startswith(b"{") and any(
        key in head for key in (b'"trajectory"', b'"attempts"', b'"environment"', b'"history"')
    )


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory, or of a retrying agent one an attempt."""
    samples = Samples(file, PARSER.name)
    parts: dict[str, list[dict[str, Any]]] = {"trajectory": [], "attempts": [], "history": []}
    whole: dict[str, Any] = {}
    for member in members(file, frozenset(parts)):
        if isinstance(member, Lost):
            yield member
        elif member[0] == "history":  # what the model saw: the same steps once more, and the calls they came from
            parts["history"] += _asked([member[1]])
        elif member[0] in parts:
            parts[member[0]] += samples.objects([member[1]])
        else:
            whole[member[0]] = member[1]
    runs = [run for run in parts["attempts"] if isinstance(run.get("trajectory"), list)]
    only = {name: parts[name] for name in ("trajectory", "history")}
    runs = runs or ([only] if parts["trajectory"] else [])
    bad = sum(not attempt(partial(_add, at, whole), run, samples) for at, run in enumerate(runs))
    yield from samples.close()
    if bad or not runs:
        yield Lost(rows=max(1, bad), note=f"{file.rel} contains no readable steps.")


def _add(at: int, whole: dict[str, Any], run: dict[str, Any], samples: Samples) -> bool:
    """Add one attempt at the instance that the file is named by."""
    steps = samples.objects(run["trajectory"])
    info = run.get("info") or whole.get("info")
    stop = as_label(nested(info, "exit_status"))
    instance = samples.file.name.removesuffix(".traj")
    requests = _requests(steps, _asked(run.get("history")))
    messages = [message for step, request in zip(steps, requests, strict=True) for message in _messages(step, request)]
    environment = as_label(run.get("environment") or whole.get("environment"))
    settings = run.get("replay_config") or whole.get("replay_config")
    stats = {name: as_score(nested(info, "model_stats", name)) for name in STATS}
    samples.add(
        Sample(
            step=None,
            split="eval",
            completion=messages,
            identity=[instance, at, messages],
            prompt=instance,
            calls=_calls(steps, requests),
            columns={
                "group_id": instance,
                "task": instance,
                "env": None if environment == instance else environment,  # later versions name it by the instance
                "success": _resolved(info, run, whole),
                "stop_reason": stop,
                "truncated": None if stop is None else any(why in stop for why in LIMIT_EXITS),
                "error_type": stop if stop and "error" in stop else None,
                "model": _model(settings),
                "tokens_in": as_step(stats["tokens_sent"]) or None,  # a replay counts none
                "tokens_out": as_step(stats["tokens_received"]) or None,
                "cost_usd": stats["instance_cost"] if stats["tokens_sent"] else None,
                "n_tool_fail": None,  # guessed, not recorded
            },
        )
    )
    for name, value in stats.items():
        samples.mean("swe-agent", None, name, value)
    return bool(steps)


def _resolved(*sources: Any) -> bool | None:
    """Return the verdict of the benchmark's tests, where somebody has put it into the file."""
    flags = (as_flag(nested(source, *path)) for source in sources for path in RESOLVED)
    return next((flag for flag in flags if flag is not None), None)


def _model(settings: Any) -> str | None:
    """Return the model of the settings for a replay, which some versions keep as a text."""
    found = parse_json(settings) if isinstance(settings, str) else settings
    return as_name(nested(found, "agent", "model", "name") or nested(found, "agent", "model", "model_name"))


def _asked(history: Any) -> list[dict[str, Any]]:
    """Return action and tool calls of what the agent itself said, without demonstrations."""
    return [
        {"action": as_text(item.get("action")).strip(), "tool_calls": dicts_in(item.get("tool_calls"))}
        for item in dicts_in(history)
        if (item.get("role") == ASSISTANT or "tool_calls" in item) and item.get("is_demo") is not True
    ]


def _requests(steps: list[dict[str, Any]], asked: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the tool calls of each step: those of the next item of the history with the same action."""
    found, at = list[list[dict[str, Any]]](), 0
    for step in steps:
        action = as_text(step.get("action")).strip()
        ahead = range(at, min(at + REQUERIES, len(asked)))
        match = next((place for place in ahead if asked[place]["action"] == action), None)
        at = at if match is None else match + 1
        found.append([] if match is None else asked[match]["tool_calls"])
    return found


def _messages(step: dict[str, Any], requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    answered = requests[0].get("id") if requests else None
    return [
        said(step.get("response") or step.get("thought"), requests),
        {"role": "tool", "content": step.get("observation"), **({"tool_call_id": answered} if answered else {})},
    ]


def _calls(steps: list[dict[str, Any]], requests: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    for at, (step, asked) in enumerate(zip(steps, requests, strict=True)):
        if as_text(step.get("action")).strip() or asked:
            made = calls_of([said("", asked)]) if asked else [{}]
            rows = [_call(step, at)] + [{**call, "turn_idx": 2 * at} for call in made[1:]]
            rows[0] |= {key: made[0][key] for key in NAMED if made[0].get(key) is not None}
            calls += rows
    return [call | {"call_idx": number} for number, call in enumerate(calls)]


def _call(step: dict[str, Any], at: int) -> dict[str, Any]:
    action, output = as_text(step.get("action")).strip(), as_text(step.get("observation"))
    ids = step.get("tool_call_ids")
    call = call_row(
        2 * at,
        name=(action.split(maxsplit=1) or [""])[0][:100],
        args_json=action[:ARGS_CHARS],
        ok_source="heuristic",
        call_id=as_name(ids[0]) if isinstance(ids, list) and ids else None,
        latency_s=as_score(step.get("execution_time")),
    )
    told = told_columns(output, {"name": SHELL, "args_json": action})
    return call | told | {"ok": not told["told_failed"]}


PARSER = Parser(
    name="swe_agent",
    describes="SWE-agent's .traj files: trajectories, turns and tool calls, their success guessed from the output.",
    held_against="source: SWE-agent/SWE-agent `sweagent/types.py`",
    priority=80,
    of_training=False,
    recognises=recognises,
    read=read,
)
