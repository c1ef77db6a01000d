"""What is known of the environment: calls, turns and trajectories, by step and by tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.evidence.counts import Counts
from ptt.diagnostics.evidence.series import Series

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One tool, under the name the policy calls it by."""

    name: str
    calls: Counts  # calls of this tool; trials are trajectories
    users: Counts  # trajectories that call it at least once; trials are trajectories
    failures: Counts | None  # None: no outcome of its calls is recorded
    latency: Mapping[str, Series] = field(default_factory=dict)  # "p50", "p95": seconds; empty where not recorded


@dataclass(frozen=True, kw_only=True)
class Load:
    """Of each call with a known outcome: how many calls were under way when it began, and whether it failed."""

    steps: IntArray
    in_flight: FloatArray
    failed: BoolArray


@dataclass(frozen=True, kw_only=True)
class Episodes:
    """One entry a trajectory, sorted by step; NaN where not recorded."""

    steps: IntArray
    turns: FloatArray  # assistant turns
    tokens: FloatArray  # of the assistant's turns
    reward: FloatArray


@dataclass(frozen=True, kw_only=True)
class Answers:
    """How alike the last answers of a step are: shares of equal pairs, by step."""

    across: Series  # of pairs of answers to different prompts
    within: Series | None  # of pairs of answers to the same prompt; None where each prompt is answered once
    example: str  # a trajectory with the commonest answer of the last third
    commonest: float  # its share of the answers there
    length: int  # its letters


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What is known of the environment: calls, turns and trajectories, by step and by tool. None: not recorded."""

    split: str  # train, or unknown where no trajectory is known to be of training
    trajectories: int
    steps: int
    calls: int
    failures: Counts | None = None  # failed calls of those with a known outcome
    callers: Counts | None = None  # trajectories that call any tool; None where no call is recorded
    tools: Mapping[str, Tool] = field(default_factory=dict)
    malformed: Counts | None = None
    repeated: Counts | None = None  # calls that repeat an earlier one with its result, of those that did not fail
    recovered: Counts | None = None  # failed calls that a success follows in the same trajectory
    paid_after_failure: Counts | None = None  # trajectories whose last call failed, of those paid well that call
    paid_without_call: Counts | None = None  # trajectories without any call, of those paid well
    void: Counts | None = None  # assistant turns with neither text nor call
    loops: Counts | None = None  # trajectories that go round in a circle of calls, of those with calls
    load: Load | None = None
    episodes: Episodes | None = None
    answers: Answers | None = None
