"""Growth of a tail that a few tokens per thousand hold: in a small run it lies beyond p99, and no percentile moves.

Blocks of steps are permuted. Their figures are taken twice: beyond a fixed number of nats, and beyond a multiple of the
block's own p90, which noise that all sequences of a step share moves as much. Growth has both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.bootstrap import coarse_percentile
from ptt.diagnostics.statistics.dot_product import dot, product

PERMUTATIONS: Final = 4999
MIN_BLOCKS: Final = 8  # fewer have too few orders
BULK: Final = 0.9  # quantile that stands for the bulk: a tail of a few per cent does not move it
TAIL: Final = 0.95  # quantile above which the index of extremes is taken: ten tokens of a block of 200
BULK_MULTIPLE: Final = 4.0  # Student's t with 4 degrees of freedom has one token in 1,000 beyond
FARTHER: Final = (1.0, 2.0, 4.0)  # times the limit: the farther out, the fewer tokens of the bulk hide the rare ones
MIN_NATS: Final = 0.75  # the coarse edge above ln 2: what is far but small is no extreme
MIN_BULK: Final = 0.02  # nats: below it weights are within 2 % of 1, and multiples of it mean nothing
CAP: Final = 10.0  # of a weight: RL code truncates between 2 and 10
RELATIVE_CAP: Final = 20.0  # the same for multiples of the bulk
MIN_PART: Final = 2  # blocks before a shift or after it: one alone is an accident
MIN_PART_SHARE: Final = 0.08  # of the blocks: likewise of many
PLACES: Final = 11  # at which growth may begin: more cost power and show little more
ANSCOMBE: Final = 3 / 8  # added to a count before the root: its variance then depends little on the rate
_EDGES = bins.coarse_edges()
_MIDDLES = np.append(0.0, np.sqrt(_EDGES[1:-1] * _EDGES[2:]))
SEED: Final = 20_260_430


@dataclass(frozen=True, kw_only=True)
class BlockCounts:
    """One slice's tokens by block and coarse bin of |r|, and its units (sequences, groups) by their largest |r|."""

    tokens: FloatArray  # (blocks, COARSE_COUNT)
    maxima: FloatArray  # (blocks, COARSE_COUNT)


def count_maxima(sequences: pl.DataFrame, *, blocks: int) -> FloatArray:
    """Return how many units of each block have their largest |r| in each coarse bin, (blocks, COARSE_COUNT).

    `sequences`: one row per (sequence, slice) of one slice with `block`, `unit` and the coarse histogram.
    """
    largest = sequences.select("block", "unit", pl.col("coarse_bin").list.max().alias("bin"))
    by_unit = largest.group_by("block", "unit").agg(pl.col("bin").max())
    counts = np.zeros((blocks, bins.COARSE_COUNT))
    np.add.at(counts, (by_unit["block"].to_numpy(), by_unit["bin"].to_numpy()), 1.0)
    return counts


def share_beyond(counts: FloatArray, limit: FloatArray | float) -> FloatArray:
    """Return how many of each row's counts lie beyond its limit, log-linear inside a coarse bin."""
    limits = np.broadcast_to(np.asarray(limit, dtype=np.float64), counts.shape[:1])
    index = np.clip(np.searchsorted(_EDGES, limits, side="right") - 1, 0, bins.COARSE_COUNT - 1)
    low, high = _EDGES[index], _EDGES[index + 1]
    at_least = np.where(low > 0, low, 1.0)
    inside = np.where(low > 0, np.log(np.maximum(limits, 1e-9) / at_least) / np.log(high / at_least), 0.0)
    above = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1]
    rows = np.arange(len(counts))
    beyond: FloatArray = np.maximum(0.0, above[rows, index] - inside * counts[rows, index])
    return beyond


def nats_beyond(counts: FloatArray, limit: float) -> FloatArray:
    """Return by how many nats all of each row's counts together lie beyond a limit, each at the middle of its bin."""
    beyond: FloatArray = product(counts, np.maximum(_MIDDLES - limit, 0.0)[:, None])[:, 0]
    return beyond


@dataclass(frozen=True, kw_only=True)
class RareRise:
    """A far tail's growth: the limit in nats, the share of tokens and the number of units beyond it, and p-values.

    before, after: of the blocks that are set against each other most clearly; units likewise. growth_p: the larger of
    the tests in nats and in multiples of the bulk. excess_p: of more growth than the other slice's; NaN without one.
    """

    limit: float
    before: float
    after: float
    units: tuple[int, int]
    blocks: tuple[int, ...]  # indices of the later ones
    growth_p: float
    excess_p: float


def rare_rise(post: BlockCounts, text: BlockCounts | None, *, min_tokens: int, seed: int = SEED) -> RareRise | None:
    """Return the growth of one slice's far tail, and of its excess over another's; None where blocks are too few."""
    usable = np.flatnonzero(post.tokens.sum(axis=1) >= min_tokens)
    if len(usable) < MIN_BLOCKS:
        return None
    counts = _take(post, usable)
    late = counts.tokens[-(len(usable) // 3) :].sum(axis=0)
    bulk = max(MIN_BULK, float(coarse_percentile(late, BULK)))
    base = max(MIN_NATS, BULK_MULTIPLE * bulk)
    limits = [base * farther for farther in FARTHER]
    scale = np.maximum(MIN_BULK, coarse_percentile(counts.tokens, BULK))
    contrasts = _contrasts(len(usable))
    order = _orders(len(usable), seed)
    nats = _figures(counts, limits, np.minimum(np.exp(_MIDDLES), CAP))
    relative = _figures(counts, [limit / bulk * scale for limit in limits], None, scale=scale)
    growth_p, figure, contrast = max_shift_p_value(nats, contrasts, order)
    limit = limits[figure % len(limits)] if figure < 2 * len(limits) else limits[-1]
    growth_p = max(growth_p, max_shift_p_value(relative, contrasts, order)[0])
    excess_p = math.nan
    if text is not None and (text.tokens[usable].sum(axis=1) >= min_tokens).all():
        other = _figures(_take(text, usable), limits, np.minimum(np.exp(_MIDDLES), CAP))
        excess_p = max_shift_p_value(nats - other, contrasts, order)[0]
    later, earlier = contrasts[contrast] > 0, contrasts[contrast] < 0
    beyond, units = share_beyond(counts.tokens, limit), share_beyond(counts.maxima, limit)
    n = counts.tokens.sum(axis=1)
    return RareRise(
        limit=limit,
        before=float(beyond[earlier].sum() / n[earlier].sum()),
        after=float(beyond[later].sum() / n[later].sum()),
        units=(round(float(units[earlier].sum())), round(float(units[later].sum()))),
        blocks=tuple(int(index) for index in usable[later]),
        growth_p=growth_p,
        excess_p=excess_p,
    )


def _take(counts: BlockCounts, blocks: IntArray) -> BlockCounts:
    return BlockCounts(tokens=counts.tokens[blocks], maxima=counts.maxima[blocks])


def _figures(
    counts: BlockCounts,
    limits: Sequence[FloatArray | float],
    weights: FloatArray | None,
    *,
    scale: FloatArray | None = None,
) -> FloatArray:
    """Return what is far out in each block, (figures, blocks).

    Tokens and units beyond each limit; the mean square of the cut `weights` of the coarse bins, or, with a `scale`, of
    cut multiples of it, and the extreme-value index.
    """
    n, units = counts.tokens.sum(axis=1), counts.maxima.sum(axis=1)
    size = np.maximum(units / units.mean(), n / n.mean())  # longer or more sequences are no growth
    rows = [np.sqrt(share_beyond(counts.tokens, limit) * n.mean() / n + ANSCOMBE) for limit in limits]
    rows += [np.sqrt(share_beyond(counts.maxima, limit) / size + ANSCOMBE) for limit in limits]
    if scale is None:
        assert weights is not None
        return np.array([*rows, np.log(product(counts.tokens, np.square(weights)[:, None])[:, 0] / n)])
    multiples = np.minimum(_MIDDLES / scale[:, None], RELATIVE_CAP)
    moment = (counts.tokens * np.square(multiples)).sum(axis=1) / n
    return np.array([*rows, np.log(np.maximum(moment, MIN_BULK)), hill_index(counts.tokens)])


def hill_index(tokens: FloatArray) -> FloatArray:
    """Return the extreme-value index of each row: the mean of ln(x / p95) over what lies above p95 (Hill)."""
    level = np.maximum(MIN_BULK, coarse_percentile(tokens, TAIL))
    excess = np.log(np.maximum(_MIDDLES, MIN_BULK) / level[:, None])
    index: FloatArray = (tokens * np.maximum(excess, 0.0)).sum(axis=1) / ((1 - TAIL) * tokens.sum(axis=1))
    return index


def _contrasts(count: int) -> FloatArray:
    """Return weights of blocks, (contrasts, blocks): late third less early, and from any place on less before."""
    third, every = count // 3, np.arange(count)
    rows = [np.where(every < third, -1 / third, np.where(every >= count - third, 1 / third, 0.0))]
    least = max(MIN_PART, round(MIN_PART_SHARE * count))
    places = np.unique(np.rint(np.linspace(least, count - least, PLACES)).astype(np.int64)).tolist()
    rows += [np.where(every < place, -1 / place, 1 / (count - place)) for place in places]
    return np.array(rows)


def _orders(count: int, seed: int) -> IntArray:
    return np.random.default_rng(seed).permuted(np.tile(np.arange(count), (PERMUTATIONS, 1)), axis=1)


def max_shift_p_value(figures: FloatArray, contrasts: FloatArray, orders: IntArray) -> tuple[float, int, int]:
    """Return the p-value of the largest standardised shift of any figure and contrast, and which figure and contrast.

    Blocks are permuted for all figures at once, so that looking at several costs nothing.
    """
    size = np.sqrt(np.square(contrasts).sum(axis=1))
    observed = np.zeros((len(figures), len(contrasts)))
    drawn = np.full(len(orders), -np.inf)
    for number, row in enumerate(figures):
        centred = row - row.mean()
        spread = math.sqrt(dot(centred, centred) / (len(row) - 1))
        if spread <= 0:  # nothing that far out anywhere
            continue
        standard = centred / spread
        observed[number] = product(contrasts, standard[:, None])[:, 0] / size
        drawn = np.maximum(drawn, (product(standard[orders], contrasts.T) / size).max(axis=1))
    p_value = (1 + np.count_nonzero(drawn >= observed.max() - 1e-9)) / (1 + len(orders))
    figure, contrast = np.unravel_index(observed.argmax(), observed.shape)
    return float(p_value), int(figure), int(contrast)
