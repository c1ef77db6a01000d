"""What the rules on the reward share: the reward itself, what shifted beside it, and which samples to read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES
from ptt.diagnostics.evidence.level_change import Z_LIMIT, LevelChange, change_since_start
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.metrics.name_words import REFUSAL, REPETITION, words_of
from ptt.diagnostics.rules.interface import NotJudged
from ptt.diagnostics.rules.single_series import logged

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
    turn: LevelChange

    @property
    def words(self) -> str:
        """Tell the move in short."""
        return f"{self.name} went {self.turn.start:.3g} → {self.turn.late:.3g}"


def reward_of(evidence: Evidence, least: int = MIN_VALUES) -> Series | NotJudged:
    """Give the mean reward, or why nothing can be said of it."""
    return logged(evidence, "reward/mean", what="mean reward", enable=REWARD_ENABLE, minimum=least)


def shifts_of(evidence: Evidence) -> tuple[Shift, ...]:
    """Give the side metrics that moved beyond their noise, the furthest first."""
    beside = [evidence.metrics[name] for name in SIDES if name in evidence.metrics]
    beside += [one for name, one in sorted(evidence.other.items()) if _is_side(name)]
    if evidence.rewards is not None:
        beside += [one for name, one in sorted(evidence.rewards.components.items()) if "format" in words_of(name)]
    found: dict[str, Shift] = {}
    for one in beside:
        turn = change_since_start(one)
        if turn is not None and abs(turn.sds) >= Z_LIMIT and abs(turn.share) >= SHIFTED:
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
    told = [f"reward {samples.rewards[place]:.3g} at step {samples.steps[place]}" for place in ranked]
    files = sorted({samples.sources[place] for place in ranked})
    return f"{'; '.join(dict.fromkeys(told))}, in {', '.join(files)}" if told else ""


def number(value: float) -> float | None:
    """Give what JSON can hold."""
    return float(value) if math.isfinite(value) else None


STEADY_BLOCKS: Final = 10
STEADY: Final = 0.9  # rank correlation of the blocks with time: one that falls at once and then stays has less


def wrong_way(reward: Series) -> bool:
    """Tell whether a reward went down steadily from its first window on: learning goes the wrong way."""
    turn = change_since_start(reward)
    if turn is None or turn.sds > -Z_LIMIT:
        return False
    values = reward.finite()[1]
    means = np.array([part.mean() for part in np.array_split(values, STEADY_BLOCKS)])
    ranks = np.argsort(np.argsort(-means, kind="stable"), kind="stable").astype(np.float64)
    time = np.arange(STEADY_BLOCKS, dtype=np.float64)
    kept = (float(means[STEADY_BLOCKS // 2]) - turn.late) / (
        turn.start - turn.late
    )  # half-way: neither all nor nothing
    return float(np.corrcoef(ranks, time)[0, 1]) >= STEADY and SHIFTED < kept < 1 - SHIFTED


def sides_named(evidence: Evidence, words: frozenset[str]) -> Series | None:
    """Give the share that is named by one of `words`, of training and with values enough; the shortest name first."""
    named = [
        one
        for name, one in sorted(evidence.other.items(), key=lambda item: (len(item[0]), item[0]))
        if words_of(name) & words and not words_of(name) & {"std", "min", "max", "reward", "rewards", "penalty"}
    ]
    return next((one for one in named if len(one.finite()[0]) >= MIN_VALUES and _is_share(one)), None)


def _is_share(series: Series) -> bool:
    values = series.finite()[1]
    return bool((values >= 0).all() and (values <= 1).all())
