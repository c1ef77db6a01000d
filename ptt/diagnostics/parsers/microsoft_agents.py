"""Agent episodes that Microsoft's post-training toolkit writes: one step a line, closed by a line with the outcome.

Source: microsoft/post-training-toolkit post_training_toolkit/agents/traces.py (`Step`, `AgentRunLog.to_jsonl`). The
field `step` numbers the steps of an episode; it is no training step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.lines import first_objects
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, attempt, objects
from ptt.diagnostics.parsers.io.values import (
    as_count,
    as_flag,
    as_label,
    as_name,
    as_score,
    as_seconds,
    as_step,
    as_text,
)

KEYS: Final = frozenset({"episode_id", "step", "type"})
ROLES: Final = {
    "user_message": "user",
    "assistant_message": "assistant",
    "tool_call": "assistant",
    "tool_result": "tool",
}
END: Final = "episode_end"
PARSE_ERROR: Final = "tool_parse_error"
HELD_STEPS: Final = 200_000  # of episodes that are not closed yet; beyond it the oldest is taken as it stands


def recognises(file: RunFile) -> bool:
    """Say yes to lines that name an episode, a step and its type."""
    found = first_objects(file)
    return bool(found) and all(row.keys() >= KEYS and isinstance(row["type"], str) for row in found)


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory an episode; episodes may be interleaved."""
    samples, episodes = Samples(file, PARSER.name), _Episodes()
    bad = 0
    for found in objects(file):
        if isinstance(found, Lost):
            yield found
            continue
        if not (found.keys() >= KEYS and isinstance(found["type"], str) and as_step(found["step"]) is not None):
            bad += 1
            continue
        for steps in episodes.closed_by(found):
            bad += not attempt(_add, {"steps": steps}, samples)
        if samples.full:
            yield from samples.take()
    for steps in episodes.open.values():
        bad += not attempt(_add, {"steps": steps}, samples)
    yield from samples.close()
    if bad:
        yield Lost(rows=bad, note=f"{file.rel}: {bad} row(s) or episodes are none and do not count.")
    yield Context(facts={"framework": "microsoft-ptt"})


@dataclass
class _Episodes:
    """Steps of the episodes that have not ended yet."""

    open: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    held: int = 0

    def closed_by(self, found: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
        """Take one step in; yield the episodes that it ends or that it leaves no room for."""
        name = as_text(found["episode_id"])
        self.open.setdefault(name, []).append(found)
        self.held += 1
        if found["type"] == END:
            yield self._take(name)
        elif self.held > HELD_STEPS:
            yield self._take(next(iter(self.open)))

    def _take(self, name: str) -> list[dict[str, Any]]:
        steps = self.open.pop(name)
        self.held -= len(steps)
        return steps


def _add(found: dict[str, Any], samples: Samples) -> bool:
    steps = sorted(found["steps"], key=lambda step: as_step(step["step"]) or 0)
    end: dict[str, Any] = next((step for step in steps if step["type"] == END), {})
    shown = [step for step in steps if step["type"] in ROLES or step["type"] == PARSE_ERROR]
    messages = [_message(step) for step in shown]
    episode = as_label(steps[0]["episode_id"])
    asked = next((step.get("content") for step in steps if step["type"] == "user_message"), None)
    failed = [step for step in shown if step["type"] == PARSE_ERROR]
    samples.add(
        Sample(
            step=None,
            split="unknown",
            completion=messages,
            identity=[episode, messages, end.get("reward")],
            prompt=asked,
            reward=as_score(end.get("reward")),
            timing=[
                {"n_tokens": as_count(step.get("tokens")), "t_end": as_seconds(step.get("timestamp"))} for step in shown
            ],
            columns={
                "sample_id": episode,
                "success": as_flag(end.get("success")),
                "n_turns": sum(step["type"] == "assistant_message" for step in shown),
                "error_type": PARSE_ERROR if failed else None,
            },
        )
    )
    return True


def _message(step: dict[str, Any]) -> dict[str, Any]:
    kind = step["type"]
    if kind == "tool_call":
        call = {"name": as_name(step.get("tool")), "arguments": step.get("args")}
        return {"role": "assistant", "content": step.get("content"), "tool_calls": [call]}
    if kind == "tool_result":
        error = step.get("error")
        content = step.get("result") if step.get("result") is not None else step.get("content")
        return {"role": "tool", "content": content, "error": {"type": None} if error is not None else None}
    return {"role": ROLES.get(kind, "assistant"), "content": step.get("content")}


PARSER = Parser(
    name="microsoft_agents",
    describes="Agent episodes of Microsoft's post-training toolkit: trajectories, turns, tool calls, outcomes.",
    priority=60,
    recognises=recognises,
    read=read,
)
