"""What the rules on the reward share: the reward itself, what shifted beside it, and which samples to read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import (
    CHANGE_SDS,
    MIN_VALUES,
    BaselineShift,
    LevelChange,
    change_since,
    change_since_start,
    lasting_rise,
)
from ptt.diagnostics.evidence.counts import Counts, MeasuredShare
from ptt.diagnostics.evidence.outcome_agreement import NOISE_Z, TWO_WINDOW_FACTOR, OutcomeState
from ptt.diagnostics.evidence.rewards import Rewards, Samples
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.metrics.name_words import REFUSAL, REPETITION, words_of
from ptt.diagnostics.model import JsonScalar
from ptt.diagnostics.rules.interface import NotJudged, requires
from ptt.diagnostics.rules.reward_outcome import reward_dropped_since
from ptt.diagnostics.rules.single_series import logged
from ptt.diagnostics.statistics.change_point import change_place
from ptt.diagnostics.statistics.small_sample import estimate_change
from ptt.diagnostics.wording import sig

REWARD_ENABLE: Final = (
    "log the mean reward at every step: TRL logs reward, veRL critic/score/mean, slime rollout/raw_reward"
)
OUTCOME_ENABLE: Final = (
    "log what the reward stands for beside it: the share of tasks done in training (in TRL a reward function of "
    "weight 0 is enough), or a held-out evaluation at six points or more"
)
MIN_SAMPLES: Final = 150  # samples: 50 a third of the run
MIN_SHIFT_SHARE: Final = 0.25  # of the larger level: a side metric that moved less shows no other way of answering
NEAR: Final = 5  # values beside a change
AT_ONCE: Final = 0.8  # of a change, between the values just before it and just after it
NEW_TASKS: Final = "longer tasks from that step on: a curriculum, or other data"
SIDE_METRICS: Final = ("len/response_mean", "len/clipped_frac", "tools/call_frequency", "turns/mean")
SIDE_WORDS: Final = REFUSAL | REPETITION | {"format"}
STATISTIC_WORDS: Final = frozenset({"std", "min", "max"})  # in names that are not a mean
REWARD_WORDS: Final = frozenset({"reward", "rewards", "penalty"})
DECLINE_PARTS: Final = 5
MIN_DECLINE_SHARE: Final = 0.5  # of the mean fall from one part to the next: a wrong sign acts from first to last


@dataclass(frozen=True, kw_only=True)
class Shift:
    """A side metric that moved."""

    name: str  # as logged
    change: LevelChange

    @property
    def words(self) -> str:
        """The move in short."""
        return f"{self.name} went {sig(self.change.start)} → {sig(self.change.late)}"


def mean_reward(evidence: Evidence, minimum: int = MIN_VALUES) -> Series | NotJudged:
    """Return the mean reward, or why it cannot be judged."""
    return logged(evidence, "reward/mean", what="mean reward", enable=REWARD_ENABLE, minimum=minimum)


requires_reward: Final = requires(mean_reward)


def rewards_of(evidence: Evidence) -> Rewards:
    """Return what is known about single rewards and their parts; empty if nothing is recorded."""
    return evidence.rewards or Rewards()


def recorded_samples(evidence: Evidence) -> Samples | NotJudged:
    """Return the recorded single rewards, or that they are too few."""
    samples = rewards_of(evidence).samples
    count = 0 if samples is None else len(samples.rewards)
    if samples is not None and count >= MIN_SAMPLES:
        return samples
    return NotJudged(
        reason=f"{count} single rewards are recorded; {MIN_SAMPLES} are needed",
        missing=("reward of each sample",),
        enable="record samples: TRL log_completions=True, veRL trainer.rollout_data_dir, slime --dump-details",
    )


def with_values(series: Mapping[str, Series], minimum: int) -> dict[str, Series]:
    """Return the series with `minimum` finite values at least, by name."""
    return {name: one for name, one in sorted(series.items()) if len(one.finite()[0]) >= minimum}


def side_shifts(evidence: Evidence) -> tuple[Shift, ...]:
    """Return the side metrics that moved beyond their noise, the furthest first."""
    sides = [evidence.metrics[name] for name in SIDE_METRICS if name in evidence.metrics]
    sides += [series for name, series in sorted(evidence.other.items()) if _is_side(name)]
    components = rewards_of(evidence).components
    sides += [series for name, series in sorted(components.items()) if "format" in words_of(name)]
    shifts: dict[str, Shift] = {}
    for series in sides:
        change = change_since_start(series)
        if change is not None and abs(change.sds) >= CHANGE_SDS and abs(change.share) >= MIN_SHIFT_SHARE:
            shifts.setdefault(series.raw_name.removeprefix("train/"), Shift(name=series.raw_name, change=change))
    return tuple(sorted(shifts.values(), key=lambda shift: (-abs(shift.change.share), shift.name)))


def _is_side(name: str) -> bool:
    words = words_of(name)
    return bool(words & SIDE_WORDS) and not words & STATISTIC_WORDS and not name.startswith("rewards/")


def highest_samples(evidence: Evidence, count: int = 3) -> str:
    """Return the names of the last steps' highest-reward samples; empty where no single sample is recorded."""
    samples = rewards_of(evidence).samples
    if samples is None:
        return ""
    late = np.flatnonzero(samples.steps >= np.quantile(samples.steps, 0.9, method="nearest"))
    ranked = sorted(late, key=lambda place: (-samples.rewards[place], samples.ids[place]))[:count]
    names = dict.fromkeys(f"reward {sig(samples.rewards[place])} at step {samples.steps[place]}" for place in ranked)
    files = sorted({samples.sources[place] for place in ranked})
    return f"{'; '.join(names)}, in {', '.join(files)}" if ranked else ""


def with_new_tasks(evidence: Evidence, series: Series, early: float, late: float, onset: int | None) -> bool:
    """Return whether a level rose from one logged step to the next while the reward did not fall.

    Longer tasks, from a curriculum or other data, do that; a policy takes many steps.
    """
    values = series.finite()[1]
    place = change_place(values, early, series.width)
    before, after = values[max(0, place - NEAR) : place], values[place : place + NEAR]
    at_once = min(len(before), len(after)) >= NEAR and float(after.mean() - before.mean()) >= AT_ONCE * (late - early)
    return at_once and not (onset is not None and reward_dropped_since(evidence, onset))


@dataclass(frozen=True, kw_only=True)
class Gain:
    """What was earned or achieved since the answers began to grow."""

    name: str
    state: OutcomeState  # rose, flat or unsure
    start: float
    late: float

    @property
    def words(self) -> str:
        """The gain in short."""
        return f"{self.name} ({sig(self.start)} → {sig(self.late)})"


RISEN_SHARE: Final = 0.1  # of its level


def gains_since(
    evidence: Evidence, start: int, minimum: float, *, grew: tuple[int, int] | None = None
) -> Sequence[Gain]:
    """Return the outcomes that longer answers or more calls could have been for, or the reward if no outcome says.

    `grew`: the step from which they grew, and at which they had grown most; an outcome that rose between, and then no
    more, went with them.
    """
    gains = [
        (_rise_within(series, grew, minimum) if grew is not None else None) or _gain(series, start, minimum)
        for series in _outcomes(evidence)
    ]
    reward = evidence.metrics.get("reward/mean")
    return [gain for gain in gains if gain.state is not OutcomeState.UNSURE] or (
        [_gain(reward, start, minimum)] if reward is not None else []
    )


def risen_outcomes(evidence: Evidence, since: int, kept_since: int) -> list[Gain]:
    """Return the outcomes that rose since a step by a tenth and beyond their noise, and kept their level since another.

    Of training or an evaluation; kept is what lost a tenth at most.
    """
    gains = [(_gain(one, since, RISEN_SHARE), _gain(one, kept_since, RISEN_SHARE)) for one in _outcomes(evidence)]
    return [
        gain
        for gain, lately in gains
        if gain.state is OutcomeState.ROSE and lately.start - lately.late <= RISEN_SHARE * abs(lately.start)
    ]


def _outcomes(evidence: Evidence) -> list[Series]:
    outcomes = [series for _, series in sorted(rewards_of(evidence).outcomes.items())]
    figures = evidence.evaluation.figures if evidence.evaluation is not None else ()
    return [*outcomes, *(figure.series for figure in figures if figure.outcome)]


def _rise_within(series: Series, grew: tuple[int, int], minimum: float) -> Gain | None:
    """Return the rise of few values, as of an evaluation, from the last before a step up to another; None without."""
    steps, values = series.finite()
    if not len(steps) or grew[1] >= steps[-1] or len(values) >= MIN_VALUES:
        return None
    first, end = np.searchsorted(steps, grew[0]), np.searchsorted(steps, grew[1], side="right")
    line = estimate_change(values[max(0, int(first) - 1) : end])
    if line is None or line.lowest <= 0 or line.amount < minimum * max(abs(line.early), abs(line.late)):
        return None
    return Gain(name=series.raw_name, state=OutcomeState.ROSE, start=line.early, late=line.late)


def _gain(series: Series, since: int, minimum: float) -> Gain:
    """Return whether a series rose since a step, or surely by less than `minimum` of its level."""
    steps, values = series.finite()
    change = change_since(series, since)
    if change is not None:
        start, late, amount, error = (
            change.start,
            change.late,
            change.amount,
            NOISE_Z * TWO_WINDOW_FACTOR * change.noise,
        )
    else:
        line = estimate_change(values[max(0, int(np.searchsorted(steps, since)) - 1) :])
        if line is None:
            return Gain(name=series.raw_name, state=OutcomeState.UNSURE, start=math.nan, late=math.nan)
        start, late, amount, error = line.early, line.late, line.amount, line.highest - line.amount
    needed = minimum * max(abs(start), abs(late))
    state = OutcomeState.UNSURE
    if amount > error and amount >= needed:
        state = OutcomeState.ROSE
    elif amount + error < needed:
        state = OutcomeState.FLAT
    return Gain(name=series.raw_name, state=state, start=start, late=late)


def steady_decline(reward: Series) -> LevelChange | None:
    """Return the change of a reward that went down in every fifth of the run: learning goes the wrong way."""
    change = change_since_start(reward)
    if change is None or change.sds > -CHANGE_SDS or np.ptp(reward.finite()[1]) == 0.0:
        return None
    falls = -np.diff([part.mean() for part in np.array_split(reward.finite()[1], DECLINE_PARTS)])
    return change if falls.min() >= MIN_DECLINE_SHARE * falls.mean() else None


def logged_share(evidence: Evidence, words: frozenset[str], *, what: str, name: str, enable: str) -> Series | NotJudged:
    """Return the share of training that is named by one of `words` and has values enough; the shortest name first."""
    for raw_name, series in sorted(evidence.other.items(), key=lambda item: (len(item[0]), item[0])):
        named = words_of(raw_name)
        values = series.finite()[1]
        suits = named & words and not named & (STATISTIC_WORDS | REWARD_WORDS) and len(values) >= MIN_VALUES
        if suits and ((values >= 0) & (values <= 1)).all():
            return series
    return NotJudged(reason=f"no share of {what} is logged at {MIN_VALUES} steps", missing=(name,), enable=enable)


@dataclass(frozen=True, kw_only=True)
class AnswerShare:
    """A share of answers: as the trainer logged it, or counted in their texts."""

    measured: MeasuredShare
    example: str | None = None  # a trajectory among the latest that were counted

    @property
    def series(self) -> Series:
        """The share by step."""
        return self.measured.series

    @property
    def facts(self) -> dict[str, JsonScalar]:
        """What it was taken from, as evidence."""
        return {"metric": self.measured.metric, "logged_as": self.series.raw_name, "trajectory_id": self.example}

    def rise(self, *, floor: float, margin: float) -> BaselineShift | None:
        """Return its lasting rise above `floor` and by `margin` above the early share; None where it came back."""
        if self.measured.counts is None:
            rise = lasting_rise(self.series, floor=floor, margin=margin)
        else:
            rise = self.measured.risen(floor=max(floor, self.measured.early + margin), factor=1.0)
        return None if rise is None or rise.ended else rise


def answer_share(
    logged_one: Series | NotJudged, counts: Counts | None, *, metric: str, column: str, example: str | None
) -> AnswerShare | NotJudged:
    """Return the logged share under the name `metric`, or else the share counted in texts."""
    if isinstance(logged_one, Series):
        return AnswerShare(measured=MeasuredShare(series=logged_one, metric=metric))
    if counts is None or not counts.shows_change:
        return logged_one
    return AnswerShare(measured=MeasuredShare(series=counts.series, metric=column, counts=counts), example=example)
