"""Makes the healthy run of an algorithm, a seed and a dialect."""

from __future__ import annotations

from benchmarks.loop import offline, online
from benchmarks.loop.made import Made
from benchmarks.loop.names import SPOKEN


def healthy(algorithm: str, seed: int, *, dialects: tuple[str, ...] = ()) -> Made:
    """Make a run; its dialect follows from the seed, among those the algorithm has and `dialects` allows."""
    spoken = [name for name in SPOKEN[algorithm] if name in dialects or not dialects]
    dialect = spoken[seed % len(spoken)]
    if algorithm == "sft":
        return offline.sft(seed, dialect)
    if algorithm == "dpo":
        return offline.dpo(seed, dialect)
    if algorithm == "ppo":
        return online.ppo(seed, dialect)
    return online.grpo(seed, dialect, tools=algorithm == "grpo-tools")
