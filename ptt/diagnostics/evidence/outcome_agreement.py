"""Whether what the reward stands for went with it: outcomes of training, and figures of evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from ptt.diagnostics.evidence.level_change import LEFT, SURE, Turn, since, since_best, since_start
from ptt.diagnostics.evidence.series import FloatArray, IntArray
from ptt.diagnostics.statistics.small_sample import Change, change_of
from ptt.diagnostics.statistics.trend import rolling_mean

if TYPE_CHECKING:
    from ptt.diagnostics.evidence import Evidence
    from ptt.diagnostics.evidence.series import Series
    from ptt.diagnostics.model import Steps


GAIN: Final = 0.1  # of the larger level: a smaller rise of the reward asks nothing of an outcome
LOST: Final = 0.2  # of the best level: an outcome that gives up less may have been lucky at its best
FOLLOWS: Final = 1 / 3  # of the reward's relative gain: with so much an outcome goes along
SOLVED: Final = 0.9  # of what an outcome between 0 and 1 can reach: there is nothing left to gain
ABOUT: Final = 2.0  # standard errors: 95 % of what noise does
LATE_STARTS: Final = (1 / 4, 1 / 3, 1 / 2, 2 / 3)
"""Where an evaluation is looked at once more from: what was learnt well at first may part from the reward later (Gao et
al., arXiv 2210.10760), and a straight line over all points does not see a peak."""
TWO_WINDOWS: Final = 1.5**0.5  # the noise of one window held against two, in that of one


class State(StrEnum):
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
    state: State
    early: float  # its best where it fell
    late: float
    reward_early: float
    reward_late: float
    reward_rose: bool  # over these steps
    onset: int | None  # where it was left for good
    interval: Steps | None
    points: int


def rose(turn: Turn | None) -> bool:
    """Tell whether a level rose beyond its noise, and by enough to matter."""
    return turn is not None and turn.sds >= SURE and turn.share >= GAIN


def of_training(outcome: Series, reward: Series) -> Outcome | None:
    """Judge an outcome that is logged in training; None where it or the reward has too few values."""
    start, best, whole = since_start(outcome), since_best(outcome), since_start(reward)
    if start is None or best is None or whole is None:
        return None
    fell = best.sds <= -SURE and best.share <= -LOST
    held, paid = (best, since(reward, best.start_step) or whole) if fell else (start, whole)
    highest = start.amount + ABOUT * TWO_WINDOWS * start.noise
    scale = max(abs(start.start), abs(start.late))
    state = State.UNSURE
    if fell:
        state = State.FELL
    elif solved(outcome, start.late):
        state = State.SOLVED
    elif start.sds >= ABOUT and start.share >= FOLLOWS * max(0.0, whole.share):
        state = State.ROSE
    elif rose(whole) and (scale == 0 or highest / scale < FOLLOWS * whole.share):
        state = State.FLAT
    return Outcome(
        name=outcome.raw_name,
        evaluation=False,
        state=state,
        early=held.start,
        late=held.late,
        reward_early=paid.start,
        reward_late=paid.late,
        reward_rose=rose(paid),
        onset=held.onset if fell else whole.onset,
        interval=held.interval if fell else whole.interval,
        points=len(outcome.finite()[0]),
    )


def of_evaluation(figure: Series, reward: Series) -> Outcome | None:
    """Judge a figure of an evaluation over the steps it covers, and over its later part where the whole shows nothing.

    None where it or the reward has too few values.
    """
    steps, values = figure.finite()
    whole = _over(figure, reward, steps, values)
    if whole is None or _parted(whole) or whole.state is State.SOLVED:
        return whole
    for share in LATE_STARTS:
        place = int(share * len(values))
        later = _over(figure, reward, steps[place:], values[place:], late=True)
        if later is not None and _parted(later):
            return replace(later, points=len(values))
    return whole


def _parted(one: Outcome) -> bool:
    return one.reward_rose and one.state in (State.FELL, State.FLAT)


def _over(figure: Series, reward: Series, steps: IntArray, values: FloatArray, *, late: bool = False) -> Outcome | None:
    change = change_of(values)
    if change is None:
        return None
    paid = since_start(_between(reward, int(steps[0]), int(steps[-1])))
    if paid is None:
        return None
    state = _state(change, paid, solved=solved(figure, change.late), late=late)
    onset, interval = paid.onset, paid.interval
    if state is State.FELL and onset is not None and interval is not None:
        peak, lost = _lost(steps, values, change.late)
        onset, interval = max(onset, lost), (max(interval[0], peak), max(interval[1], lost))
    return Outcome(
        name=figure.raw_name,
        evaluation=True,
        state=state,
        early=change.early,
        late=change.late,
        reward_early=paid.start,
        reward_late=paid.late,
        reward_rose=rose(paid),
        onset=onset,
        interval=interval,
        points=len(values),
    )


def _lost(steps: IntArray, values: FloatArray, late: float) -> tuple[int, int]:
    """Give the steps of a fallen figure's peak, by three points, and of the point from which a quarter stays lost."""
    means = rolling_mean(values, 3, minimum=1)
    place = int(np.argmax(means))
    high = np.flatnonzero(means >= means[place] - LEFT * (means[place] - late))
    return int(steps[max(0, place - 1)]), int(steps[min(int(high[-1]) + 1, len(steps) - 1)])


def _state(change: Change, paid: Turn, *, solved: bool, late: bool) -> State:
    scale = max(abs(change.early), abs(change.late))
    if change.surely < 0 and change.amount <= -LOST * scale:
        return State.FELL
    if solved:
        return State.SOLVED
    if change.lowest > 0 and change.amount >= FOLLOWS * max(0.0, paid.share) * scale:
        return State.ROSE
    highest = change.surely_highest if late else change.highest  # of several parts one may look flat by chance
    flat = scale == 0 or highest / scale < FOLLOWS * paid.share
    return State.FLAT if rose(paid) and flat else State.UNSURE


def solved(series: Series, late: float) -> bool:
    """Tell whether a share stands so near 1 that it cannot rise much."""
    highest = float(np.max(series.finite()[1]))
    return late >= SOLVED and highest <= 1.0


def _between(series: Series, first: int, last: int) -> Series:
    """Cut a series to what an evaluation covers, and the window before its first point."""
    steps = series.finite()[0]
    place = max(0, int(np.searchsorted(steps, first, side="right")) - series.width)
    first = int(steps[place]) if len(steps) else first
    kept = (series.steps >= first) & (series.steps <= last)
    return replace(series, steps=series.steps[kept], values=series.values[kept], flags=series.flags[kept])


def outcomes_of(evidence: Evidence, reward: Series) -> tuple[Outcome, ...]:
    """Judge every outcome of training and of evaluations; a figure that only pays the reward again is none."""
    found: list[Outcome | None] = []
    if evidence.rewards is not None:
        found += [of_training(one, reward) for _, one in sorted(evidence.rewards.outcomes.items())]
    if evidence.evaluation is not None:
        found += [of_evaluation(one.series, reward) for one in evidence.evaluation.figures if one.outcome]
    return tuple(one for one in found if one is not None)


def recorded(evidence: Evidence) -> Sequence[str]:
    """Name the outcomes that are recorded, with however few values."""
    held = [] if evidence.rewards is None else [one.raw_name for one in evidence.rewards.outcomes.values()]
    figures = evidence.evaluation.figures if evidence.evaluation is not None else ()
    return sorted({*held, *(one.series.raw_name for one in figures if one.outcome)})
