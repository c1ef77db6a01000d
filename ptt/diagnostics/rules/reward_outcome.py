"""What became of the reward, over the run and from a step on: it sets how much a finding on another metric matters."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import change_since, lasting_fall, lasting_rise, step_noise
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.metrics.name_words import words_of
from ptt.diagnostics.statistics.arrays import FloatArray

FALL_FACTOR: Final = 0.9  # of the early reward: no rule should depend on a smaller loss
WINDOW_Z_LIMIT: Final = 3.0  # for a window: one in a thousand, if the step was found in another metric
COLLAPSE_FACTOR: Final = 0.5  # of the best 20-step mean: below it the reward fell, whatever its noise
MIN_PAID: Final = 3  # logged values above that half: one or two successes are no level to fall from
MIN_RISE_SHARE: Final = 0.25  # of the way from the worst to the best mean that the last must lie above the first
Z_LIMIT: Final = 3.0  # standard errors of the difference of two means
MIN_CHANGE: Final = 0.05  # of the best level: means that differ less did not move


TEACHER: Final = frozenset({"teacher", "distill", "distillation"})  # words for what distillation learns from,
DISTANCES: Final = frozenset({"kl", "loss", "divergence"})  # and for the distance from it


def pays_none(evidence: Evidence) -> bool:
    """Return whether every reward is 0 because none is given: distillation learns from its teacher."""
    series = evidence.metrics.get("reward/mean")
    taught = "kl/teacher" in evidence.metrics or any(
        words_of(name) & TEACHER and words_of(name) & DISTANCES for name in evidence.other
    )
    return series is not None and taught and not series.finite()[1].any()


class RewardRange(NamedTuple):
    """Rolling means of the reward."""

    first: float
    worst: float
    best: float
    last: float


def reward_range(evidence: Evidence) -> RewardRange | None:
    """Return first, worst, best and last rolling mean of the reward, or None where it is not logged."""
    series = evidence.metrics.get("reward/mean")
    if series is None or len(series.finite()[0]) < MIN_LOGGED or pays_none(evidence):
        return None
    _, mean = series.rolling()
    mean = mean[np.isfinite(mean)]
    return RewardRange(float(mean[0]), float(mean.min()), float(mean.max()), float(mean[-1]))


def reward_fell(evidence: Evidence) -> bool:
    """Return whether the reward ended below half of its best; not where it is not logged.

    A reward that began below 0 is measured from there: half of a small gain over 0 is within its noise.
    """
    reward = reward_range(evidence)
    if reward is None or reward.best <= 0:
        return False
    floor = min(reward.first, 0.0)
    half = floor + COLLAPSE_FACTOR * (reward.best - floor)
    paid = int((evidence.metrics["reward/mean"].finite()[1] > half).sum())
    return reward.last < half and paid >= MIN_PAID


def reward_by_step(evidence: Evidence) -> Series | None:
    """Return the logged reward, or the mean reward of recorded trajectories if none is logged."""
    series = evidence.metrics.get("reward/mean")
    if series is not None or evidence.environment is None or evidence.environment.episodes is None:
        return series
    episodes = evidence.environment.episodes
    known = np.isfinite(episodes.reward)
    steps, at = np.unique(episodes.steps[known], return_inverse=True)
    if not len(steps):
        return None
    values = np.bincount(at, weights=episodes.reward[known]) / np.bincount(at)
    flags = np.zeros(len(steps), np.uint8)
    return Series(name="trajectories.reward", raw_name="reward", steps=steps, values=values, flags=flags)


def reward_dropped(evidence: Evidence) -> bool:
    """Return whether the reward fell for good by a tenth and beyond its noise; not where it is not recorded."""
    series = reward_by_step(evidence)
    fall = lasting_fall(series, ceiling=math.inf, factor=FALL_FACTOR) if series is not None else None
    return fall is not None and not fall.ended


def reward_dropped_since(evidence: Evidence, step: int) -> bool:
    """Return whether the reward ended a tenth below what it was up to a step, beyond its noise, or dropped at all.

    A reward that rose first has lost something where it falls back to its early level.
    """
    series = reward_by_step(evidence)
    change = change_since(series, step) if series is not None else None
    lost = change is not None and change.sds <= -WINDOW_Z_LIMIT and change.share <= FALL_FACTOR - 1
    return lost or reward_dropped(evidence)


MIN_TOLD_FLAT: Final = 20  # rewards: with fewer, a rise within their noise proves nothing


class Outcome(StrEnum):
    """What the reward did over the run."""

    FELL = "fell"
    FLAT = "flat"
    ROSE = "rose"
    TOO_FEW = "too few rewards"
    UNKNOWN = "unknown"

    @property
    def judged(self) -> bool:
        """Whether enough rewards are logged to say what they did."""
        return self not in (Outcome.TOO_FEW, Outcome.UNKNOWN)


def _unjudged(evidence: Evidence) -> Outcome:
    series = None if pays_none(evidence) else evidence.metrics.get("reward/mean")
    return Outcome.TOO_FEW if series is not None and len(series.finite()[0]) else Outcome.UNKNOWN


def outcome(evidence: Evidence) -> Outcome:
    """Return what the reward did: fell below half of its best or for good, rose, or neither."""
    reward = reward_range(evidence)
    if reward is None:
        return _unjudged(evidence)
    series = evidence.metrics["reward/mean"]
    fall = lasting_fall(series, ceiling=math.inf)
    if reward_fell(evidence) or (fall is not None and not fall.ended):
        return Outcome.FELL
    rise = lasting_rise(series, floor=-math.inf)
    if rise is not None and not rise.ended:
        return Outcome.ROSE
    spread, ar1 = step_noise(series.finite()[1])
    error = spread * math.sqrt((1 + ar1) / (1 - ar1) * 2 / series.width)
    least = max(MIN_RISE_SHARE * (reward.best - reward.worst), MIN_CHANGE * abs(reward.best), Z_LIMIT * error)
    gain = reward.last - reward.first
    if 0 < gain <= least and len(series.finite()[0]) < MIN_TOLD_FLAT:
        return Outcome.TOO_FEW
    return Outcome.ROSE if gain > least else Outcome.FLAT


def outcome_since(evidence: Evidence, step: int) -> Outcome:
    """Return what became of the reward from `step` on, beyond its noise.

    It fell where its last window lies below the last one before the step; it rose where its last window lies above
    that one, or above the first one since. A part without ten values tells nothing.
    """
    series = evidence.metrics.get("reward/mean")
    if series is None or pays_none(evidence):
        return Outcome.UNKNOWN
    steps, values = series.finite()
    before, since = values[steps < step][-series.width :], values[steps >= step]
    if min(len(before), len(since)) < MIN_LOGGED:
        return _unjudged(evidence)
    spread, ar1 = step_noise(values)
    after = since[-min(series.width, len(since) // 2) :]
    first = since[: len(after)]

    def change(early: FloatArray, late: FloatArray) -> float:
        error = spread * math.sqrt((1 + ar1) / (1 - ar1) * (1 / len(early) + 1 / len(late)))
        difference = float(late.mean() - early.mean())
        return 0.0 if abs(difference) <= max(Z_LIMIT * error, MIN_CHANGE * abs(float(early.mean()))) else difference

    overall = change(before, after)
    if overall < 0:
        return Outcome.FELL
    return Outcome.ROSE if overall > 0 or change(first, after) > 0 else Outcome.FLAT


def outcome_clause(reward: Outcome) -> str:
    """Return the end of a clause that says what the reward did in the meantime."""
    return {
        Outcome.FELL: " while the reward fell",
        Outcome.FLAT: "; the reward did not rise meanwhile",
        Outcome.ROSE: "; the reward rose meanwhile",
        Outcome.TOO_FEW: "; too few rewards are logged to say what the reward did meanwhile",
        Outcome.UNKNOWN: "; no reward is logged beside it",
    }[reward]
