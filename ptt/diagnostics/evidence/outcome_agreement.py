"""Whether the true goal rose with the reward: outcomes of training, and metrics of evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.baseline_shift import (
    CHANGE_SDS,
    LOST_FRACTION,
    LevelChange,
    change_since,
    change_since_best,
    change_since_start,
)
from ptt.diagnostics.metrics.name_words import RANKING, words_of
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.small_sample import LineChange, estimate_change
from ptt.diagnostics.statistics.trend import rolling_mean

if TYPE_CHECKING:
    from ptt.diagnostics.evidence import Evidence
    from ptt.diagnostics.evidence.series import Series
    from ptt.diagnostics.model import Steps


MIN_GAIN: Final = 0.1  # of the larger level: after a smaller rise of the reward, no outcome need follow
MIN_LOSS: Final = 0.2  # of the best level: an outcome that loses less may just have been lucky at its best
MIN_AGREEMENT: Final = 1 / 3  # of the reward's relative gain: an outcome that gains this much follows it
SOLVED_LEVEL: Final = 0.9  # of what an outcome between 0 and 1 can reach: nothing is left to gain
NEARLY_NOTHING: Final = 0.05  # for an outcome between 0 and 1: below it hardly any task is solved, whatever the trend
MUCH_PAID: Final = 0.2  # of the reward, and of its level: a gain beside such an outcome came without the task
MIN_FALLS: Final = 20  # from one value to the next: noise does not fall as often
FALLING_SHARE: Final = 0.95  # of them
NOISE_Z: Final = 2.0  # standard errors: covers 95% of noise
LATE_STARTS: Final = (1 / 4, 1 / 3, 1 / 2, 2 / 3)
"""Where an evaluation is looked at once more from: what was learnt well at first may part from the reward later (Gao et
al., arXiv 2210.10760), and a straight line over all points does not see a peak."""
TWO_WINDOW_FACTOR: Final = 1.5**0.5  # noise of one window minus the mean of two, over that of one window


class OutcomeState(StrEnum):
    """What an outcome did while the reward was trained for."""

    ROSE = "rose"
    FLAT = "flat"
    FELL = "fell"
    SOLVED = "solved"
    UNSURE = "unsure"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one outcome did, and the reward over the same steps."""

    name: str
    evaluation: bool
    state: OutcomeState
    early: float  # its best where it fell
    late: float
    reward_early: float
    reward_late: float
    reward_rose: bool  # over these steps
    onset: int | None  # where it was left for good
    interval: Steps | None
    points: int


def has_risen(turn: LevelChange | None) -> bool:
    """Return whether a level rose beyond its noise, and by enough to matter."""
    return turn is not None and turn.sds >= CHANGE_SDS and turn.share >= MIN_GAIN


def judge_training_outcome(outcome: Series, reward: Series) -> Outcome | None:
    """Judge an outcome that is logged in training; None where it or the reward has too few values."""
    start, best, whole = change_since_start(outcome), change_since_best(outcome), change_since_start(reward)
    if start is None or best is None or whole is None:
        return None
    fell = best.sds <= -CHANGE_SDS and best.share <= -MIN_LOSS
    change, paid = (best, change_since(reward, best.start_step) or whole) if fell else (start, whole)
    highest = start.moved + NOISE_Z * TWO_WINDOW_FACTOR * start.noise
    state = OutcomeState.UNSURE
    if fell:
        state = OutcomeState.FELL
    elif is_solved(outcome, start.late):
        state = OutcomeState.SOLVED
    elif start.sds >= NOISE_Z and start.window_share >= MIN_AGREEMENT * max(0.0, whole.window_share):
        state = OutcomeState.ROSE
    elif has_risen(whole) and (start.scale == 0 or highest / start.scale < MIN_AGREEMENT * whole.window_share):
        state = OutcomeState.FLAT
    if state is not OutcomeState.FELL and _paid_for_nothing(outcome, start.late + NOISE_Z * start.noise, whole):
        state = OutcomeState.FLAT  # relative to itself it may have risen a lot
    moved = change if fell else whole
    onset, interval = (_peak_of_curve(outcome) if fell else None) or (moved.onset, moved.interval)
    return _outcome(outcome, state, (change.start, change.late), paid, onset, interval, evaluation=False)


def _peak_of_curve(outcome: Series) -> tuple[int, Steps] | None:
    """Return the first step behind the best value, and both, of a series that falls from there nearly without a rise.

    Of such a curve the best value is no luck. None of any other series.
    """
    steps, values = outcome.finite()
    peak = int(np.argmax(values))
    falls = np.diff(values[peak:]) < 0
    if len(falls) < MIN_FALLS or falls.mean() < FALLING_SHARE:
        return None
    return int(steps[peak + 1]), (int(steps[peak]), int(steps[peak + 1]))


def _outcome(
    series: Series,
    state: OutcomeState,
    levels: tuple[float, float],
    paid: LevelChange,
    onset: int | None,
    interval: Steps | None,
    *,
    evaluation: bool,
) -> Outcome:
    early, late = levels
    return Outcome(
        name=series.raw_name,
        evaluation=evaluation,
        state=state,
        early=early,
        late=late,
        reward_early=paid.start,
        reward_late=paid.late,
        reward_rose=has_risen(paid),
        onset=onset,
        interval=interval,
        points=len(series.finite()[0]),
    )


def judge_evaluation(metric: Series, reward: Series) -> Outcome | None:
    """Judge a figure of an evaluation over the steps it covers, and over its later part where the whole shows nothing.

    None where it or the reward has too few values.
    """
    steps, values = metric.finite()
    whole = _judge_points(metric, reward, steps, values)
    if whole is None or _disagrees(whole) or whole.state is OutcomeState.SOLVED:
        return whole
    for share in LATE_STARTS:
        start = int(share * len(values))
        later = _judge_points(metric, reward, steps[start:], values[start:], late=True)
        if later is not None and _disagrees(later):
            return later
    return whole


def _disagrees(outcome: Outcome) -> bool:
    return outcome.reward_rose and outcome.state in (OutcomeState.FELL, OutcomeState.FLAT)


def _judge_points(
    metric: Series, reward: Series, steps: IntArray, values: FloatArray, *, late: bool = False
) -> Outcome | None:
    change = estimate_change(values)
    if change is None:
        return None
    paid = change_since_start(_cut_series(reward, int(steps[0]), int(steps[-1])))
    if paid is None:
        return None
    state = _state(metric, change, paid, solved=is_solved(metric, change.late), late=late)
    onset, interval = paid.onset, paid.interval
    if state is OutcomeState.FELL and onset is not None and interval is not None:
        peak, lost = _loss_steps(steps, values, change.late)
        onset, interval = max(onset, lost), (max(interval[0], peak), max(interval[1], lost))
    return _outcome(metric, state, (change.early, change.late), paid, onset, interval, evaluation=True)


def _loss_steps(steps: IntArray, values: FloatArray, late: float) -> tuple[int, int]:
    """Return the steps of a fallen metric's peak (mean of three points) and of where a quarter is lost for good."""
    means = rolling_mean(values, 3, minimum=1)
    peak = int(np.argmax(means))
    high = np.flatnonzero(means >= means[peak] - LOST_FRACTION * (means[peak] - late))
    return int(steps[max(0, peak - 1)]), int(steps[min(int(high[-1]) + 1, len(steps) - 1)])


def _state(metric: Series, change: LineChange, paid: LevelChange, *, solved: bool, late: bool) -> OutcomeState:
    scale = max(abs(change.early), abs(change.late))
    if change.significant_sign < 0 and change.amount <= -MIN_LOSS * scale:
        return OutcomeState.FELL
    if solved:
        return OutcomeState.SOLVED
    if _paid_for_nothing(metric, max(change.early, change.late) + change.highest - change.amount, paid):
        return OutcomeState.FLAT
    if change.lowest > 0 and change.amount >= MIN_AGREEMENT * max(0.0, paid.window_share) * scale:
        return OutcomeState.ROSE
    highest = change.highest_999 if late else change.highest  # of several parts one may look flat by chance
    flat = scale == 0 or highest / scale < MIN_AGREEMENT * paid.window_share
    return OutcomeState.FLAT if has_risen(paid) and flat else OutcomeState.UNSURE


def is_solved(series: Series, late: float) -> bool:
    """Return whether a share is so near 1 that it cannot rise much."""
    highest = float(np.max(series.finite()[1]))
    return late >= SOLVED_LEVEL and highest <= 1.0


def is_ranking(name: str) -> bool:
    """Return whether an outcome is of ranking, whose level says nothing of how much is done."""
    return bool(words_of(name) & RANKING)


def _paid_for_nothing(outcome: Series, highest: float, paid: LevelChange) -> bool:
    """Return whether the reward rose while hardly any task is done, up to the noise of a share of tasks."""
    gained = has_risen(paid) and min(paid.share, paid.amount) >= MUCH_PAID
    return (
        gained
        and not is_ranking(outcome.raw_name)
        and float(outcome.finite()[1].min()) >= 0
        and highest <= NEARLY_NOTHING
    )


def _cut_series(series: Series, first: int, last: int) -> Series:
    """Cut a series to what an evaluation covers, and the window before its first point."""
    steps = series.finite()[0]
    start = max(0, int(np.searchsorted(steps, first, side="right")) - series.width)
    first = int(steps[start]) if len(steps) else first
    kept = (series.steps >= first) & (series.steps <= last)
    return replace(series, steps=series.steps[kept], values=series.values[kept], flags=series.flags[kept])


def judge_outcomes(evidence: Evidence, reward: Series) -> tuple[Outcome, ...]:
    """Judge every outcome of training and evaluations, except metrics that only repeat the reward."""
    outcomes: list[Outcome | None] = []
    if evidence.rewards is not None:
        outcomes += [judge_training_outcome(metric, reward) for _, metric in sorted(evidence.rewards.outcomes.items())]
    if (true := evidence.metrics.get("reward/true")) is not None:
        outcomes.append(judge_training_outcome(true, reward))
    if evidence.evaluation is not None:
        outcomes += [
            judge_evaluation(metric.series, reward) for metric in evidence.evaluation.figures if metric.outcome
        ]
    return tuple(metric for metric in outcomes if metric is not None)


def recorded_outcomes(evidence: Evidence) -> Sequence[str]:
    """Name the outcomes that are recorded, with however few values."""
    logged = [] if evidence.rewards is None else [outcome.raw_name for outcome in evidence.rewards.outcomes.values()]
    figures = evidence.evaluation.figures if evidence.evaluation is not None else ()
    return sorted({*logged, *(outcome.series.raw_name for outcome in figures if outcome.outcome)})
