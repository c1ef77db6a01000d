"""What the rules on the reward share: the reward itself, what shifted beside it, and which samples to read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.departures import LEAST
from ptt.diagnostics.evidence.naming import REFUSAL, REPETITION, words_of
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.evidence.turning import SURE, Turn, since_start
from ptt.diagnostics.model import Link, NotJudged
from ptt.diagnostics.rules.reading import logged

REWARD_ENABLE: Final = (
    "log the mean reward at every step: TRL logs reward, veRL critic/score/mean, slime rollout/raw_reward"
)
OUTCOME_ENABLE: Final = (
    "log beside the reward what it stands for: the share of tasks done in training (a reward function of weight 0 is"
    " enough in TRL), or a held-out evaluation at six points at least"
)
SHIFTED: Final = 0.25  # of the larger level: a side metric that moved less is no sign of another way of answering
SIDES: Final = ("len/response_mean", "len/clipped_frac", "tools/call_frequency", "turns/mean")
SIDE_WORDS: Final = REFUSAL | REPETITION | {"format"}


@dataclass(frozen=True, kw_only=True)
class Shift:
    """A side metric that moved."""

    name: str  # as logged
    turn: Turn

    @property
    def words(self) -> str:
        """Tell the move in short."""
        return f"{self.name} went {self.turn.start:.3g} → {self.turn.late:.3g}"


def reward_of(evidence: Evidence, rule: str, least: int = LEAST) -> Series | NotJudged:
    """Give the mean reward, or why nothing can be said of it."""
    return logged(
        evidence, "reward/mean", rule=rule, link=Link.REWARD, what="mean reward", enable=REWARD_ENABLE, least=least
    )


def shifts_of(evidence: Evidence) -> tuple[Shift, ...]:
    """Give the side metrics that moved beyond their noise, the furthest first."""
    beside = [evidence.metrics[name] for name in SIDES if name in evidence.metrics]
    beside += [one for name, one in sorted(evidence.other.items()) if _is_side(name)]
    if evidence.rewards is not None:
        beside += [one for name, one in sorted(evidence.rewards.components.items()) if "format" in words_of(name)]
    found: dict[str, Shift] = {}
    for one in beside:
        turn = since_start(one)
        if turn is not None and abs(turn.sds) >= SURE and abs(turn.share) >= SHIFTED:
            found.setdefault(one.raw_name.removeprefix("train/"), Shift(name=one.raw_name, turn=turn))
    return tuple(sorted(found.values(), key=lambda shift: (-abs(shift.turn.share), shift.name)))


def _is_side(name: str) -> bool:
    words = words_of(name)
    return bool(words & SIDE_WORDS) and not words & {"std", "min", "max"} and not name.startswith("rewards/")


def highest_samples(evidence: Evidence, count: int = 3) -> str:
    """Name the highest-reward samples of the last steps, to be read; empty where no single sample is recorded."""
    samples = evidence.rewards.samples if evidence.rewards is not None else None
    if samples is None:
        return ""
    late = np.flatnonzero(samples.steps >= np.quantile(samples.steps, 0.9, method="nearest"))
    ranked = sorted(late, key=lambda place: (-samples.rewards[place], samples.ids[place]))[:count]
    return ", ".join(f"{samples.ids[place]} ({samples.sources[place]})" for place in ranked)


def number(value: float) -> float | None:
    """Give what JSON can hold."""
    return float(value) if math.isfinite(value) else None
