"""Readings of the evidence that more than one rule takes."""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.departures import fall
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.evidence.turning import since
from ptt.diagnostics.model import Link, NotJudged

REWARD_KEPT = 0.9  # of the early reward: a smaller loss is none that a rule should hang on
SURE = 3.0  # standard deviations of a window: one in a thousand, where the step was found in something else
REWARD_LEFT = 0.5  # of the best 20-step mean: below it the reward fell, whatever its noise


def logged(
    evidence: Evidence, name: str, *, rule: str, link: Link, what: str, enable: str, least: int = MIN_LOGGED
) -> Series | NotJudged:
    """Give the training series of a metric, or why it cannot be judged: not logged, or fewer than `least` values.

    `what` completes "no ... is logged"; `enable` is the line that has it logged.
    """
    series = evidence.metrics.get(name)
    if series is None:
        return NotJudged(id=rule, link=link, reason=f"no {what} is logged", missing=(name,), enable=enable)
    count = len(series.finite()[0])
    if count < least:
        reason = f"{count} finite values of {series.raw_name} are logged; {least} are needed"
        return NotJudged(id=rule, link=link, reason=reason, missing=(name,), enable=enable)
    return series


def early_mean(series: Series) -> float:
    """Give the mean of the first full window."""
    _, values = series.finite()
    return float(values[: series.width].mean())


class RewardRange(NamedTuple):
    """Rolling means of the reward."""

    first: float
    worst: float
    best: float
    last: float


def reward_range(evidence: Evidence) -> RewardRange | None:
    """Give first, worst, best and last rolling mean of the reward, or None where it is not logged."""
    series = evidence.metrics.get("reward/mean")
    if series is None or len(series.finite()[0]) < MIN_LOGGED:
        return None
    _, mean = series.rolling()
    mean = mean[np.isfinite(mean)]
    return RewardRange(float(mean[0]), float(mean.min()), float(mean.max()), float(mean[-1]))


def reward_fell(evidence: Evidence) -> bool:
    """Tell whether the reward ended below half of its best; not where it is not logged."""
    found = reward_range(evidence)
    return found is not None and found.best > 0 and found.last < REWARD_LEFT * found.best


def in_logs(series: Series) -> Series:
    """Give the natural logarithms of the positive values: factors then count alike up and down."""
    steps, values = series.finite()
    usable = values > 0
    return replace(series, steps=steps[usable], values=np.log(values[usable]), flags=np.zeros(usable.sum(), np.uint8))


def reward_by_step(evidence: Evidence) -> Series | None:
    """Give the logged reward, or the mean reward of the recorded trajectories where none is logged."""
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
    """Tell whether the reward fell for good by a tenth and beyond its noise; not where it is not recorded."""
    series = reward_by_step(evidence)
    found = fall(series, ceiling=math.inf, factor=REWARD_KEPT) if series is not None else None
    return found is not None and not found.ended


def reward_dropped_since(evidence: Evidence, step: int) -> bool:
    """Tell whether the reward ended a tenth below what it was up to a step, beyond its noise, or dropped at all.

    A reward that rose first has lost something where it falls back to its early level.
    """
    series = reward_by_step(evidence)
    turn = since(series, step) if series is not None else None
    lost = turn is not None and turn.sds <= -SURE and turn.share <= REWARD_KEPT - 1
    return lost or reward_dropped(evidence)
