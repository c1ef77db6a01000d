"""Made episodes with tool calls, laid out as parsers do it and gathered as a run's are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from builders import Array, evidence_of

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.environment import gather_environment
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.schema import TOOL_CALLS, TRAJECTORIES, TURNS

SECONDS_A_TURN = 1.0


@dataclass(frozen=True, kw_only=True)
class Call:
    """One tool call and what came of it."""

    name: str | None = "search"
    args: Any = None  # None: what tells it from all others
    ok: bool | None = True
    result: str | None = None
    error: str | None = None
    latency: float | None = None


@dataclass(frozen=True, kw_only=True)
class Episode:
    """Calls, one a turn, an answer after them, and what it was paid."""

    step: int
    calls: tuple[Call, ...] = (Call(),)
    answer: str = ""  # empty: what tells it from all others
    void: int = 0  # assistant turns with nothing in them, before the answer
    prompt: str = ""  # empty: its own
    reward: float | None = 0.5
    success: bool | None = None
    split: str = "train"
    at: float | None = None  # seconds since the epoch when it began


Make = Callable[[int, float, np.random.Generator], Episode]
"""From the step, how far the run is (0 to 1) and chance to an episode."""


def episodes_of(make: Make, *, steps: int = 60, each: int = 16, seed: int = 0) -> list[Episode]:
    """Make a run of episodes."""
    generator = np.random.default_rng(seed)
    return [make(step, step / max(1, steps - 1), generator) for step in range(steps) for _ in range(each)]


def hashed(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def frames_of(episodes: Sequence[Episode]) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Lay episodes out as trajectories, calls and turns."""
    trajectories: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    turns: list[dict[str, Any]] = []
    for number, episode in enumerate(episodes):
        key = {"trajectory_id": f"t{number:06d}"}
        messages = _messages(number, episode)
        for at, (role, text) in enumerate(messages):
            end = None if episode.at is None else episode.at + SECONDS_A_TURN * (at + 1)
            told = {"role": role, "text_len": len(text), "text_hash": hashed(text), "t_end": end}
            turns.append({**key, "turn_idx": at, **told})
        calls += [{**key, **row} for row in _calls(number, episode)]
        trajectories.append(
            {
                **key,
                "step": episode.step,
                "split": episode.split,
                "prompt_hash": hashed(episode.prompt or f"prompt {number}"),
                "reward": episode.reward,
                "success": episode.success,
                "n_turns": sum(role == "assistant" for role, _ in messages),
                "n_tool_calls": len(episode.calls),
                "n_tool_fail": sum(call.ok is False for call in episode.calls),
            }
        )
    return (
        pl.DataFrame(trajectories, schema=TRAJECTORIES),
        pl.DataFrame(calls, schema=TOOL_CALLS),
        pl.DataFrame(turns, schema=TURNS),
    )


def _messages(number: int, episode: Episode) -> list[tuple[str, str]]:
    called = [message for _ in episode.calls for message in (("assistant", ""), ("tool", "result"))]
    return [*called, *[("assistant", "")] * episode.void, ("assistant", episode.answer or f"answer number {number}")]


def _calls(number: int, episode: Episode) -> list[dict[str, Any]]:
    return [
        {
            "step": episode.step,
            "turn_idx": 2 * at,
            "call_idx": at,
            "name": call.name,
            "args_json": call.args if isinstance(call.args, str) else json.dumps(call.args or {"of": [number, at]}),
            "result_len": 6,
            "result_hash": hashed(call.result or f"result {number} {at}"),
            "ok": call.ok,
            "ok_source": "flag",
            "error_type": call.error,
            "latency_s": call.latency,
        }
        for at, call in enumerate(episode.calls)
    ]


def evidence_from(
    episodes: Sequence[Episode] = (),
    *,
    metrics: Mapping[str, Series | Sequence[float] | Array] | None = None,
    other: Mapping[str, Series] | None = None,
    limits: Mapping[str, Mapping[str, float]] | None = None,
) -> Evidence:
    """Give the evidence of a run with these episodes and metrics."""
    found = gather_environment(*frames_of(episodes)) if episodes else None
    return replace(evidence_of(metrics=metrics, limits=limits), environment=found, other=other or {})
