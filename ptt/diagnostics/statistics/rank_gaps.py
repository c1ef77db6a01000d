"""How far each rank lies above the others, step by step, and whether exchangeable ranks could do so.

Ranks that sample and train with the same weights are exchangeable: in a block of steps each lies above the middle of
the others at most every other time, however heavy its tails are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray

MIN_STEP_TOKENS: Final = 20  # of a rank at a step
MIN_BLOCK_STEPS: Final = 5  # a batch that is trained on a few times counts once
MAX_BLOCKS: Final = 24
STARTS: Final = (0.25, 0.5, 0.75)  # of the run: a rank may break in mid-run; each start looked at costs certainty


@dataclass(frozen=True, kw_only=True)
class RankLevels:
    """Levels by step and rank, at the steps at which every rank has enough tokens."""

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
    """Return the chance of so many wins or more."""
    blocks, won = len(above), int(np.count_nonzero(above))
    return math.fsum(
        math.comb(blocks, count) * chance**count * (1 - chance) ** (blocks - count) for count in range(won, blocks + 1)
    )
