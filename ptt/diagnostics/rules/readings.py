"""Readings that the rules of several links share: what lies over a limit for good, and what became of the reward."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import lasting_fall, lasting_rise, step_noise
from ptt.diagnostics.evidence.level_change import change_since
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.model import JsonScalar, Severity, Steps
from ptt.diagnostics.rules.interface import NotJudged
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray

REWARD_KEPT = 0.9  # of the early reward: a smaller loss is none that a rule should hang on
SURE = 3.0  # standard deviations of a window: one in a thousand, where the step was found in something else
REWARD_LEFT = 0.5  # of the best 20-step mean: below it the reward fell, whatever its noise


def logged(evidence: Evidence, name: str, *, what: str, enable: str, least: int = MIN_LOGGED) -> Series | NotJudged:
    """Give the training series of a metric, or why it cannot be judged: not logged, or fewer than `least` values.

    `what` completes "no ... is logged"; `enable` is the line that has it logged.
    """
    series = evidence.metrics.get(name)
    if series is None:
        return NotJudged(reason=f"no {what} is logged", missing=(name,), enable=enable)
    count = len(series.finite()[0])
    if count < least:
        reason = f"{count} finite values of {series.raw_name} are logged; {least} are needed"
        return NotJudged(reason=reason, missing=(name,), enable=enable)
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
    found = lasting_fall(series, ceiling=math.inf, factor=REWARD_KEPT) if series is not None else None
    return found is not None and not found.ended


def reward_dropped_since(evidence: Evidence, step: int) -> bool:
    """Tell whether the reward ended a tenth below what it was up to a step, beyond its noise, or dropped at all.

    A reward that rose first has lost something where it falls back to its early level.
    """
    series = reward_by_step(evidence)
    turn = change_since(series, step) if series is not None else None
    lost = turn is not None and turn.sds <= -SURE and turn.share <= REWARD_KEPT - 1
    return lost or reward_dropped(evidence)


FAR_BEYOND: Final = 3.0  # times the limit: so far off for a window, a run is looked at even if it came back
BY_CONSTRUCTION: Final = 0.2  # share of exact zeros from which they are no measurements: one update in five or more
PART: Final = 0.25  # of the way from the worst to the best mean that the last must lie above the first
ERRORS: Final = 3.0  # standard errors of the difference of two means
LEVEL: Final = 0.05  # of the best level: means that differ less did not move


@dataclass(frozen=True, kw_only=True)
class Excess:
    """A lasting excess over a limit that is given beforehand."""

    onset: int
    interval: Steps
    last_good: int | None  # the last step logged within the limit before it; None where there is none
    peak: float  # the highest median over a window: one wild step does not set it
    last: float
    ended: int | None  # the last step above the limit, where the last window lies within it again

    def tempered(self, severity: Severity, limit: float) -> Severity:
        """Give the severity of what came back: medium at most, and low unless it went far beyond."""
        if self.ended is None:
            return severity
        least = Severity.MEDIUM if self.peak > FAR_BEYOND * limit else Severity.LOW
        return severity if least.at_least(severity) else least

    def told(self) -> str:
        """Say that it came back, as the end of a clause; empty where it did not."""
        return "" if self.ended is None else f"; it came back after step {self.ended}"

    def noted(self) -> dict[str, JsonScalar]:
        """Give the evidence of when it ended."""
        return {} if self.ended is None else {"ended_step": self.ended}


def lasting_excess(series: Series, limit: float) -> Excess | None:
    """Give the lasting excess of a series over `limit`, or None.

    The onset is the step the mean gave the alarm at; where no value since the first one above the limit lay below it
    again, it is that first one, and the interval ends there. The interval begins with the step logged before that: a
    figure of a step is taken from weights that the steps before made.
    """
    alarm = series.excess(limit)
    if alarm is None:
        return None
    steps, values = series.finite()
    first = series.first_above(limit, alarm)
    place = int(np.searchsorted(steps, first))
    at_once = bool((values[place : int(np.searchsorted(steps, alarm)) + 1] > limit).all())
    before = int(steps[place - 1]) if place else None
    return Excess(
        onset=first if at_once else alarm,
        interval=(first if before is None else before, first if at_once else alarm),
        last_good=before,
        peak=peak_of(series),
        last=last_of(series),
        ended=int(steps[values > limit][-1]) if last_of(series) <= limit else None,
    )


def peak_of(series: Series) -> float:
    """Give the highest median over a window; of all values where they do not fill one."""
    values = series.finite()[1]
    return float(np.median(values)) if len(values) < series.width else float(np.nanmax(series.rolling_median()))


def last_of(series: Series) -> float:
    """Give the mean over the last window."""
    return float(series.rolling()[1][-1])


def negated(series: Series) -> Series:
    """Give the series turned round, for limits from below."""
    return replace(series, values=-series.values)


def without_zeros(series: Series) -> Series:
    """Leave out exact zeros where a fifth of the values or more are: the first update on a batch has a ratio of 1."""
    _, values = series.finite()
    zero = series.values == 0.0
    if not len(values) or zero.sum() < BY_CONSTRUCTION * len(values) or zero.sum() == len(values):
        return series
    return replace(series, steps=series.steps[~zero], values=series.values[~zero], flags=series.flags[~zero])


def joined(one: Series, other: Series) -> tuple[IntArray, FloatArray, FloatArray]:
    """Give two series at the steps where both are finite."""
    (first, here), (second, there) = one.finite(), other.finite()
    steps, places, others = np.intersect1d(first, second, return_indices=True)
    return steps, here[places], there[others]


def named(series: Series, **more: JsonScalar) -> dict[str, JsonScalar]:
    """Give the evidence every finding on a series has."""
    return {"metric": series.name, "logged_as": series.raw_name, "window_steps": series.width, **more}


class Outcome(StrEnum):
    """What the reward did over the run."""

    FELL = "fell"
    FLAT = "flat"
    ROSE = "rose"
    UNKNOWN = "unknown"


def outcome(evidence: Evidence) -> Outcome:
    """Tell what the reward did: fell below half of its best or for good, rose, or neither."""
    found = reward_range(evidence)
    if found is None:
        return Outcome.UNKNOWN
    series = evidence.metrics["reward/mean"]
    down = lasting_fall(series, ceiling=float("inf"))
    if reward_fell(evidence) or (down is not None and not down.ended):
        return Outcome.FELL
    up = lasting_rise(series, floor=float("-inf"))
    if up is not None and not up.ended:
        return Outcome.ROSE
    span = found.best - found.worst
    moved = found.last - found.first
    spread, likeness = step_noise(series.finite()[1])
    error = spread * math.sqrt((1 + likeness) / (1 - likeness) * 2 / series.width)
    return Outcome.ROSE if moved > max(PART * span, LEVEL * abs(found.best), ERRORS * error) else Outcome.FLAT


def outcome_since(evidence: Evidence, step: int) -> Outcome:
    """Tell what became of the reward from `step` on, beyond its noise.

    It fell where its last window lies below the last one before the step; it rose where its last window lies above
    that one, or above the first one since. A part without ten values tells nothing.
    """
    series = evidence.metrics.get("reward/mean")
    if series is None:
        return Outcome.UNKNOWN
    steps, values = series.finite()
    before, since = values[steps < step][-series.width :], values[steps >= step]
    if min(len(before), len(since)) < MIN_LOGGED:
        return Outcome.UNKNOWN
    spread, likeness = step_noise(values)
    after = since[-min(series.width, len(since) // 2) :]
    first = since[: len(after)]

    def moved(one: FloatArray, other: FloatArray) -> float:
        error = spread * math.sqrt((1 + likeness) / (1 - likeness) * (1 / len(one) + 1 / len(other)))
        change = float(other.mean() - one.mean())
        return 0.0 if abs(change) <= max(ERRORS * error, LEVEL * abs(float(one.mean()))) else change

    against = moved(before, after)
    if against < 0:
        return Outcome.FELL
    return Outcome.ROSE if against > 0 or moved(first, after) > 0 else Outcome.FLAT


def told_of(reward: Outcome) -> str:
    """Say what the reward did meanwhile, as the end of a clause."""
    return {
        Outcome.FELL: " while the reward fell",
        Outcome.FLAT: "; the reward did not rise meanwhile",
        Outcome.ROSE: "; the reward rose meanwhile",
        Outcome.UNKNOWN: "; no reward is logged beside it",
    }[reward]
