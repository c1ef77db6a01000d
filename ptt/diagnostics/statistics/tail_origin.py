"""What a tail follows: shares of it that would be gone if one thing were as it is where that thing is least.

The tail per token is fitted as a product of factors, log rate = a + b x, by quasi-Poisson regression: of several
things that go together, each gets what the others do not explain. The share that goes with one of them is its
attributable fraction, the sum over rows of tail (1 - exp(-b x)) over the tail (Greenland and Drescher 1993); x is 0
where the thing is least. Shares need not add up to 1, since a token may need two of them. Intervals redraw whole prompt
groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray, product
from ptt.diagnostics.statistics.bootstrap import DRAWS, SEED, draw_counts, interval

LEVELS: Final = 10  # that a quantity is cut into: what is confused within a level cannot be told apart
MAX_UNITS: Final = 1 << 12  # redrawn singly; more are put together, which alters an interval by one part in 90
NEWTON_STEPS: Final = 30
MAX_STEP: Final = 2.0  # by which a coefficient moves in one of them
MAX_COEFFICIENT: Final = 12.0  # rates that differ by more than e^12 differ by any factor
RIDGE: Final = 1e-9  # keeps an empty column from being singular


@dataclass(frozen=True, kw_only=True)
class Share:
    """A share of the tail, its 95% interval, and what it came to when units were redrawn, (draws,)."""

    value: float
    interval: tuple[float, float]
    drawn: FloatArray

    @classmethod
    def of(cls, drawn: FloatArray) -> Share:
        """Return the share whose first entry is as recorded, and whose others are redrawn."""
        return cls(value=float(drawn[0]), interval=interval(drawn[1:]), drawn=drawn[1:])


def attributable_shares(
    tail: FloatArray, tokens: FloatArray, unit: IntArray, scores: Mapping[str, FloatArray]
) -> dict[str, Share]:
    """Return the share of the tail that goes with each of `scores`, beside the others.

    tail, tokens: (rows,) nats and tokens of each row; unit: (rows,) numbers from 0 of what is redrawn as a whole;
    scores: (rows,) each, 0 where the thing is least. A score that does not vary has no share (NaN).
    """
    table = np.stack(list(scores.values()), axis=1)
    design, cell = np.unique(table, axis=0, return_inverse=True)
    sums = redrawn_sums(np.stack([tail, tokens], axis=1), cell.ravel(), unit, cells=len(design))
    fitted = rate_coefficients(sums[..., 0], sums[..., 1], design)
    whole = sums[..., 0].sum(axis=1)
    result = {}
    for place, name in enumerate(scores):
        left = (sums[..., 0] * np.exp(-fitted[:, place, None] * design[:, place])).sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(np.ptp(design[:, place]) > 0, 1 - left / whole, np.nan)
        result[name] = Share.of(share)
    return result


def rate_coefficients(tail: FloatArray, tokens: FloatArray, design: FloatArray) -> FloatArray:
    """Fit tail = tokens exp(a + design b) by quasi-likelihood.

    tail, tokens: (draws, cells); design: (cells, factors); returns b, (draws, factors). Newton's method on the Poisson
    score equations, whose solution is consistent for any spread of the tail about its mean (Wedderburn 1974).
    """
    full = np.column_stack([np.ones(len(design)), design])
    beta = np.zeros((len(tail), full.shape[1]))
    with np.errstate(divide="ignore"):
        beta[:, 0] = np.clip(np.log(tail.sum(axis=1) / tokens.sum(axis=1)), -50.0, 50.0)
    for _ in range(NEWTON_STEPS):
        mean = tokens * np.exp(np.clip(beta @ full.T, -50.0, 50.0))
        score = (tail - mean) @ full
        curvature = np.einsum("dc,ci,cj->dij", mean, full, full)
        scale = np.trace(curvature, axis1=1, axis2=2)[:, None, None]
        curvature += (RIDGE * scale + 1e-300) * np.eye(full.shape[1])
        beta += np.clip(np.linalg.solve(curvature, score[..., None])[..., 0], -MAX_STEP, MAX_STEP)
        beta[:, 1:] = np.clip(beta[:, 1:], -MAX_COEFFICIENT, MAX_COEFFICIENT)
    return beta[:, 1:]


def level_scores(values: FloatArray, weight: FloatArray, *, levels: int = LEVELS) -> FloatArray:
    """Cut values into levels of about equal weight and number them from 0 to 1; equal values share a level."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.flatnonzero(np.append(True, np.diff(ordered) != 0)[: len(ordered)])
    if not len(first):
        return np.empty(0)
    of_value = np.add.reduceat(weight[order], first)
    middle = np.cumsum(of_value) - of_value / 2
    level = np.minimum((middle / of_value.sum() * levels).astype(np.int64), levels - 1)
    result = np.empty(len(values))
    result[order] = np.repeat(level - level[0], np.diff(np.append(first, len(ordered)))) / (levels - 1)
    return result


def redrawn_sums(values: FloatArray, cell: IntArray, unit: IntArray, *, cells: int, seed: int = SEED) -> FloatArray:
    """Sum rows by cell as recorded and with whole units redrawn: values (rows, columns) to (1 + draws, cells, columns).

    cell: (rows,) below `cells`; unit: (rows,) numbers from 0. The first of the sums is as recorded.
    """
    columns = values.shape[1]
    units = int(unit.max(initial=-1)) + 1
    if units > MAX_UNITS:
        bundle = np.arange(units) % MAX_UNITS
        np.random.default_rng(seed).shuffle(bundle)
        unit, units = bundle[unit], MAX_UNITS
    table = np.stack(
        [
            np.bincount(unit * cells + cell, weights=column, minlength=units * cells).reshape(units, cells)
            for column in values.T
        ],
        axis=-1,
    ).reshape(units, cells * columns)
    counts = draw_counts(units, DRAWS, np.random.default_rng(seed)).astype(np.float64)
    sums = product(np.concatenate([np.ones((1, units)), counts]), table.astype(np.float64))
    return sums.reshape(1 + DRAWS, cells, columns)


MATERIAL: Final = 0.1  # of the tail: what surely holds less explains nothing worth acting on
DOMINANT: Final = 0.5  # of the tail: what holds more is what to act on first
SURE: Final = 0.975  # of the draws in which the largest share is above another
NONE, CANNOT_TELL = "none", "cannot_tell"


def leading(shares: Mapping[str, Share], *, unmeasured: bool) -> str:
    """Return the name of the share that the tail follows, NONE or CANNOT_TELL.

    The largest one, where it is surely material and surely larger than every other that is surely material; NONE where
    each surely is below half and none is `unmeasured`.
    """
    usable = {name: share for name, share in shares.items() if np.isfinite(share.value)}
    sure = [name for name, share in usable.items() if share.interval[0] > MATERIAL]
    first = max(usable, key=lambda name: usable[name].value, default="")
    if first in sure:
        rivals = [usable[name] for name in sure if name != first]
        if all(np.mean(usable[first].drawn > rival.drawn) >= SURE for rival in rivals):
            return first
    if usable and not unmeasured and all(share.interval[1] < DOMINANT for share in usable.values()):
        return NONE
    return CANNOT_TELL
