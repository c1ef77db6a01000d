"""Ranks side by side: scores by time taken, levels against the other ranks', and clocks without an offset."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import MAD_TO_SD, BoolArray, FloatArray, IntArray

WINDOW_STEPS: Final = 20  # steps a score is over
MIN_STEPS: Final = 10  # that all ranks recorded
STEP_AR1: Final = 0.8  # AR(1) of a rank's own noise that the scatter of a window allows for


@dataclass(frozen=True)
class RankScores:
    """Scores by window and rank."""

    places: tuple[str, ...]
    starts: IntArray  # first step of each window
    relative: FloatArray  # windows x ranks: time of the best rank over this rank's
    own: FloatArray  # windows x ranks: this rank's best time so far over its current time
    beyond: BoolArray  # windows x ranks: slower than the middle rank by more than noise
    overall: FloatArray  # ranks: over the whole run


def score_ranks(times: Mapping[str, tuple[IntArray, FloatArray]], *, sds: float = 4.0) -> RankScores | None:
    """Score ranks over the steps where all have a positive time; None for too few ranks or steps.

    Times are compared within a step, on the log scale, so that long steps weigh no more than short ones; the middle of
    a window is its median, so that one hiccup makes no straggler.
    """
    ranks = tuple(times)
    common = _common(times)
    if len(ranks) < 2 or len(common) < MIN_STEPS:
        return None
    logs = np.log(np.stack([values[np.searchsorted(steps, common)] for steps, values in times.values()], axis=1))
    off = logs - np.median(logs, axis=1, keepdims=True)
    size = min(WINDOW_STEPS, len(common))
    bounds = np.arange(0, len(common) - size + 1, size)
    middle = np.stack([np.median(off[at : at + size], axis=0) for at in bounds])
    level = np.stack([np.median(logs[at : at + size], axis=0) for at in bounds])
    scatter = MAD_TO_SD * np.median(np.abs(off - np.median(off, axis=0)), axis=0)
    noise = sds * scatter * math.sqrt((1 + STEP_AR1) / (1 - STEP_AR1) / size)
    overall = np.median(off, axis=0)
    return RankScores(
        places=ranks,
        starts=common[bounds],
        relative=np.exp(middle.min(axis=1, keepdims=True) - middle),
        own=np.exp(np.minimum.accumulate(level, axis=0) - level),
        beyond=middle > noise,
        overall=np.exp(overall.min() - overall),
    )


def _common(times: Mapping[str, tuple[IntArray, FloatArray]]) -> IntArray:
    shared: IntArray | None = None
    for steps, values in times.values():
        with np.errstate(invalid="ignore"):
            usable = np.unique(steps[np.isfinite(values) & (values > 0)])
        shared = usable if shared is None else np.intersect1d(shared, usable)
    return np.empty(0, np.int64) if shared is None else shared


def weighted_share(flags: BoolArray, *, weight: float = 0.3) -> float:
    """Return the exponentially weighted share of flagged windows at the end: high is chronic, low was one-off."""
    share = 0.0
    for flag in flags.tolist():
        share = (1 - weight) * share + weight * float(flag)
    return share


MIN_STEP_TOKENS: Final = 20  # for each rank and step
MIN_BLOCK_STEPS: Final = 5  # a batch that is trained on a few times counts once
MAX_BLOCKS: Final = 24
STARTS: Final = (0.25, 0.5, 0.75)  # of the run: a rank may break midway; each further start looked at costs power


@dataclass(frozen=True, kw_only=True)
class RankLevels:
    """Levels by step and rank, for the steps where every rank has enough tokens."""

    ranks: tuple[int, ...]
    steps: IntArray
    mean: FloatArray  # steps x ranks: mean of the tokens' magnitude
    large: FloatArray  # steps x ranks: share of the tokens beyond a size

    def others(self, rank: int, *, large: bool = False) -> FloatArray:
        """Return the middle of the other ranks at each step; of an even number the higher of the two."""
        return middle_of_others(self.large if large else self.mean, self.ranks.index(rank))


def rank_levels(
    steps: IntArray, ranks: IntArray, magnitude: FloatArray, *, beyond: float, least: int
) -> RankLevels | None:
    """Reduce tokens to levels by step and rank; None with fewer than two ranks or `least` steps that all share."""
    known, column = np.unique(ranks, return_inverse=True)
    recorded, row = np.unique(steps, return_inverse=True)
    shape = len(recorded), len(known)
    cell = row * shape[1] + column

    def total(weights: FloatArray) -> FloatArray:
        sums = np.bincount(cell, weights=weights, minlength=shape[0] * shape[1])
        return sums.astype(np.float64).reshape(shape)

    count = total(np.ones(len(cell)))
    usable = (count >= MIN_STEP_TOKENS).all(axis=1)
    if len(known) < 2 or np.count_nonzero(usable) < least:
        return None
    return RankLevels(
        ranks=tuple(known.tolist()),
        steps=recorded[usable],
        mean=total(magnitude)[usable] / count[usable],
        large=total((magnitude > beyond).astype(np.float64))[usable] / count[usable],
    )


def middle_of_others(levels: FloatArray, column: int) -> FloatArray:
    """Return the middle of the other columns in each row; of an even number the higher of the two."""
    others = np.sort(np.delete(levels, column, axis=1), axis=1)
    middle: FloatArray = others[:, others.shape[1] // 2]
    return middle


def p_above_others(levels: FloatArray) -> tuple[float, ...]:
    """Return for each rank the p-value of lying above the others so lastingly, over all ranks and starts.

    Half of it is spent on the whole run, half on what is left of it from each of STARTS on. A rank may lie above the
    middle of the others, as several bad ones do, or above all of them, which is rarer by chance; (steps, ranks) in.
    """
    blocks = np.array_split(levels, max(1, min(MAX_BLOCKS, len(levels) // MIN_BLOCK_STEPS)))
    means = np.stack([block.mean(axis=0) for block in blocks])
    ranks = means.shape[1]
    p_values = []
    for column in range(ranks):
        wins = [(means[:, column] > middle_of_others(means, column), 0.5)]
        if ranks > 2:
            wins.append((means[:, column] > np.delete(means, column, axis=1).max(axis=1), 1 / ranks))
        parts = [2 * ranks * len(wins) * _since(above, chance) for above, chance in wins]
        p_values.append(min(1.0, *parts))
    return tuple(p_values)


def _since(above: BoolArray, chance: float) -> float:
    """Return the lesser of the chances for the whole run and, paid for by their number, for each start in it."""
    later = [_p_of_wins(above[int(share * len(above)) :], chance) for share in STARTS]
    return min(_p_of_wins(above, chance), len(STARTS) * min(later))


def _p_of_wins(above: BoolArray, chance: float) -> float:
    """Return the probability of this many wins or more."""
    blocks, won = len(above), int(np.count_nonzero(above))
    return math.fsum(
        math.comb(blocks, count) * chance**count * (1 - chance) ** (blocks - count) for count in range(won, blocks + 1)
    )


HOUR: Final = 3600.0
OFFSETS: Final = tuple(
    HOUR * hours
    for hours in sorted([*range(-12, 15), -9.5, -3.5, -2.5, 3.5, 4.5, 5.5, 5.75, 6.5, 8.75, 9.5, 10.5, 12.75, 13.75])
)
"""Seconds from UTC of the zones that are in use, in summer time too."""
CHANGES: Final = (HOUR, HOUR / 2)  # seconds that summer time moves a clock; half an hour on Lord Howe Island
MIN_SET_BACK: Final = HOUR / 4  # less is the disorder of writers that log side by side
MIN_SLACK: Final = (
    60.0  # seconds by which a span may reach beyond the other: clocks differ, and samples are seconds apart
)
MAX_SLACK: Final = HOUR / 8  # half of the least difference of two offsets


def counted_on(times: FloatArray) -> tuple[FloatArray, int, float]:
    """Return times in the order of writing, (n,), counted on behind the one place where their clock was set back.

    Also returns that place and by how many seconds; 0 and 0 where the clock was not set back once, by an hour at most.
    """
    steps = np.diff(times)
    places = np.flatnonzero(steps <= -MIN_SET_BACK)
    if len(places) != 1 or steps[places[0]] < -HOUR:
        return times, 0, 0.0
    place, usual = int(places[0]) + 1, _usual_step(times)
    took = [change + float(steps[place - 1]) for change in CHANGES]
    change = min((abs(passed - usual), change) for passed, change in zip(took, CHANGES, strict=True) if passed >= 0)[1]
    return np.append(times[:place], times[place:] + change), place, change


def set_forward(times: FloatArray) -> list[tuple[FloatArray, float]]:
    """Return the times, (n,), that undo a clock set forward in their longest pause, and by how much it was set.

    One entry for each change that summer time makes. Empty where the pause is longer than usual even without it.
    """
    steps = np.diff(times)
    place = int(np.argmax(steps)) + 1 if len(steps) else 0
    usual = max(MIN_SLACK, 2 * _usual_step(times))
    return [
        (np.append(times[:place], times[place:] - change), change)
        for change in CHANGES
        if place and 0 <= steps[place - 1] - change <= usual
    ]


def fitting_shifts(
    times: FloatArray, others: FloatArray, shifts: Iterable[float], *, around: bool = False
) -> list[float]:
    """Return the seconds that, added to the times of one clock, place them within those of another, or around them."""
    slack = min(MAX_SLACK, max(MIN_SLACK, 2 * _usual_step(times), 2 * _usual_step(others)))
    inner, outer, sign = (others, times, -1.0) if around else (times, others, 1.0)
    early, late = float(outer.min() - inner.min()) - slack, float(outer.max() - inner.max()) + slack
    return [shift for shift in shifts if early <= sign * shift <= late]


def _usual_step(times: FloatArray) -> float:
    steps = np.diff(times)
    return float(np.median(steps[steps > 0])) if (steps > 0).any() else 0.0
