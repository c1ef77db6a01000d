"""Tails read fairly from few tokens: growth that no percentile shows, and percentiles of equally many tokens a block.

A tail that a few tokens per thousand hold lies, in a small run, beyond p99, and no percentile moves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray, product
from ptt.diagnostics.statistics.bootstrap import DRAWS, coarse_percentile, draw_counts, unit_histograms
from ptt.diagnostics.statistics.windows import Span

PERMUTATIONS: Final = 4999
MIN_BLOCKS: Final = 8  # fewer have too few permutations
BULK: Final = 0.9  # quantile that stands for the bulk: a tail of a few per cent does not move it
BULK_MULTIPLES: Final = (8.0, 16.0)  # Student's t with 4 degrees of freedom has one token in 1,000 beyond the half of 8
MIN_NATS: Final = (1.5, 3.0)  # weights of 4 and 20: what is far but small is no extreme
MIN_BULK: Final = 0.02  # nats: below it weights are within 2% of 1, and multiples of it mean nothing
MIN_PART: Final = 2  # blocks before a shift or after it: one alone is an accident
MIN_PART_SHARE: Final = 0.05  # of the blocks, the same minimum where there are many
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


def drawn_percentiles(tokens: FloatArray, q: float, *, seed: int = SEED) -> FloatArray:
    """Return a percentile of the tokens of some blocks, (blocks, COARSE_COUNT), with the blocks redrawn, (draws,)."""
    times = draw_counts(len(tokens), DRAWS, np.random.default_rng(seed)).astype(np.float64)
    return coarse_percentile(product(times, tokens), q)


@dataclass(frozen=True, kw_only=True)
class RareRise:
    """A far tail's growth: the limit in nats, the share of tokens and number of units beyond it, and p-values.

    before, after, units: in the earlier and later blocks that differ most clearly. growth_p: the larger p-value of the
    tests in nats and in multiples of the bulk. excess_p: for more growth than in the other slice; NaN without one.
    other_p: for the other slice's own growth, beyond as many times its bulk as the limit is of this slice's; outgrew_p:
    for more growth than that.
    """

    limit: float
    before: float
    after: float
    units: tuple[int, int]
    blocks: tuple[int, ...]  # indices of the later ones
    growth_p: float
    excess_p: float
    other_p: float = math.nan
    outgrew_p: float = math.nan


@dataclass(frozen=True, kw_only=True)
class Exceedances:
    """How many lie beyond a limit in each block, and of how many, (blocks,) each."""

    beyond: FloatArray
    exposure: FloatArray


def rare_rise(post: BlockCounts, text: BlockCounts | None, *, min_tokens: int, seed: int = SEED) -> RareRise | None:
    """Return the growth of one slice's far tail, and of its excess over another's; None where blocks are too few."""
    usable = np.flatnonzero(post.tokens.sum(axis=1) >= min_tokens)
    if len(usable) < MIN_BLOCKS:
        return None
    counts = _take(post, usable)
    late = counts.tokens[-(len(usable) // 3) :].sum(axis=0)
    bulk = max(MIN_BULK, float(coarse_percentile(late, BULK)))
    limits = [max(least, multiple * bulk) for least, multiple in zip(MIN_NATS, BULK_MULTIPLES, strict=True)]
    scale = np.maximum(MIN_BULK, coarse_percentile(counts.tokens, BULK)) / bulk
    contrasts, permutations = _contrasts(len(usable)), _permutations(len(usable), seed)
    growth_p, statistic, contrast = max_shift_p_value(_exceedances(counts, limits), contrasts, permutations)
    relative = _exceedances(counts, [limit * scale for limit in limits])
    growth_p = max(growth_p, max_shift_p_value(relative, contrasts, permutations)[0])
    limit = limits[statistic % len(limits)]
    excess_p = other_p = outgrew_p = math.nan
    later, earlier = contrasts[contrast] > 0, contrasts[contrast] < 0
    known = np.zeros(len(usable), np.bool_) if text is None else text.tokens[usable].sum(axis=1) > 0
    if text is not None and (known & later).any() and (known & earlier).any():
        own, other = (_tokens_beyond(_take(part, usable[known]), limit) for part in (post, text))
        permutations_of_both, both = _permutations(int(known.sum()), seed), contrasts[contrast][known]
        excess_p = excess_p_value(own, other, both, permutations_of_both)
        before = [part.tokens[usable[known & earlier]].sum(axis=0) for part in (post, text)]
        bulks = [max(MIN_BULK, float(coarse_percentile(counts_before, BULK))) for counts_before in before]
        scaled = _tokens_beyond(_take(text, usable[known]), limit * bulks[1] / bulks[0])
        other_p = max_shift_p_value([scaled], both[None], permutations_of_both)[0]
        outgrew_p = excess_p_value(own, scaled, both, permutations_of_both)
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
        other_p=other_p,
        outgrew_p=outgrew_p,
    )


def _take(counts: BlockCounts, blocks: IntArray) -> BlockCounts:
    return BlockCounts(tokens=counts.tokens[blocks], maxima=counts.maxima[blocks])


def _exceedances(counts: BlockCounts, limits: Sequence[FloatArray | float]) -> list[Exceedances]:
    """Count tokens beyond each limit, then units beyond each."""
    n, units = counts.tokens.sum(axis=1), counts.maxima.sum(axis=1)
    size = np.maximum(units, n * units.mean() / n.mean())  # longer or more sequences are no growth
    return [_tokens_beyond(counts, limit) for limit in limits] + [
        Exceedances(beyond=share_beyond(counts.maxima, limit), exposure=size) for limit in limits
    ]


def _tokens_beyond(counts: BlockCounts, limit: FloatArray | float) -> Exceedances:
    return Exceedances(beyond=share_beyond(counts.tokens, limit), exposure=counts.tokens.sum(axis=1))


def _contrasts(count: int) -> FloatArray:
    """Return signs of blocks, (contrasts, blocks): late third against early, and from any place on against before."""
    third, every = count // 3, np.arange(count)
    rows = [np.where(every < third, -1.0, np.where(every >= count - third, 1.0, 0.0))]
    least = max(MIN_PART, round(MIN_PART_SHARE * count))
    places = np.unique(np.rint(np.linspace(least, count - least, PLACES)).astype(np.int64)).tolist()
    rows += [np.where(every < place, -1.0, 1.0) for place in places]
    return np.array(rows)


def _permutations(count: int, seed: int) -> IntArray:
    return np.random.default_rng(seed).permuted(np.tile(np.arange(count), (PERMUTATIONS, 1)), axis=1)


def max_shift_p_value(
    statistics: Sequence[Exceedances], contrasts: FloatArray, permutations: IntArray
) -> tuple[float, int, int]:
    """Return the p-value of the largest standardised shift of any statistic and contrast, and which ones.

    Blocks are permuted for all statistics at once, so that looking at several costs nothing.
    """
    observed = np.full((len(statistics), len(contrasts)), -np.inf)
    drawn = np.full(len(permutations), -np.inf)
    for number, statistic in enumerate(statistics):
        spread = _spread(statistic)
        if spread <= 0:  # nothing that far out anywhere
            continue
        observed[number] = _shift(statistic, contrasts) / spread
        drawn = np.maximum(drawn, (_shift(_permuted(statistic, permutations), contrasts) / spread).max(axis=1))
    p_value = (1 + np.count_nonzero(drawn >= observed.max() - 1e-9)) / (1 + len(permutations))
    figure_number, contrast = np.unravel_index(observed.argmax(), observed.shape)
    return float(p_value), int(figure_number), int(contrast)


def excess_p_value(own: Exceedances, other: Exceedances, contrast: FloatArray, permutations: IntArray) -> float:
    """Return the p-value of one slice's shift beyond the other's, both as roots of rates, between given blocks."""
    both = (own, other)
    observed, drawn = (
        _shift(one, contrast[None], scaled=False) - _shift(two, contrast[None], scaled=False)
        for one, two in (both, tuple(_permuted(part, permutations) for part in both))
    )
    return float((1 + np.count_nonzero(drawn >= observed - 1e-9)) / (1 + len(permutations)))


def _permuted(statistic: Exceedances, permutations: IntArray) -> Exceedances:
    return Exceedances(beyond=statistic.beyond[permutations], exposure=statistic.exposure[permutations])


def _spread(statistic: Exceedances) -> float:
    """Return how much blocks scatter about the run's rate, relative to Poisson noise (1)."""
    rate = statistic.beyond.sum() / statistic.exposure.sum()
    if rate <= 0:
        return 0.0
    squares = np.square(statistic.beyond - rate * statistic.exposure) / (rate * statistic.exposure)
    return math.sqrt(float(squares.sum()) / (len(squares) - 1))


def _shift(statistic: Exceedances, contrasts: FloatArray, *, scaled: bool = True) -> FloatArray:
    """Return the rise of the root of the rate between the blocks of each contrast, in its Poisson errors if `scaled`.

    The statistic's last axis is blocks, the result's is contrasts. The error of a root hardly depends on the rate.
    """
    later, earlier = (contrasts > 0).astype(np.float64).T, (contrasts < 0).astype(np.float64).T
    exposed = [product(np.atleast_2d(statistic.exposure), part) for part in (later, earlier)]
    beyond = [product(np.atleast_2d(statistic.beyond), part) + ANSCOMBE for part in (later, earlier)]
    rise = np.sqrt(beyond[0] / exposed[0]) - np.sqrt(beyond[1] / exposed[1])
    error = np.sqrt(1 / exposed[0] + 1 / exposed[1])
    shift: FloatArray = rise / error if scaled else rise
    return shift if statistic.beyond.ndim > 1 else shift[0]


THINNED_DRAWS: Final = 100  # their mean is known ten times as well as one draw
UNEQUAL: Final = 1.25  # largest over smallest block: below it percentiles of 50 tokens are alike within 2%
PLENTY_TOKENS: Final = 5000  # fifty beyond p99: of as many, of PLENTY_UNITS sequences, a percentile reads what it is
PLENTY_UNITS: Final = 200
FULL_SHARE: Final = 0.25  # of the median block's tokens: smaller blocks are joined with neighbours up to this
LEAST_PER_THIRD: Final = 4  # blocks that each third of the run keeps, however few its tokens
LEAST_BLOCKS: Final = 8  # blocks are not joined to fewer


def thin_blocks(
    sequences: pl.DataFrame, *, blocks: int, tokens: int, seed: int, draws: int = THINNED_DRAWS
) -> dict[int, FloatArray]:
    """Subsample `tokens` tokens from each block that has as many: coarse histograms, (draws, COARSE_COUNT) each.

    `sequences`: as `resample_blocks` takes them; each `unit` is drawn as a whole.
    """
    generator = np.random.default_rng(seed)
    return {
        block: thin_units(table, tokens, generator, draws=draws)
        for block, _, table in unit_histograms(sequences, seed=seed)
        if block < blocks and table.sum() >= tokens
    }


def thin_units(table: FloatArray, tokens: int, generator: np.random.Generator, *, draws: int) -> FloatArray:
    """Return histograms of about `tokens` tokens of some of the units, (units, bins), drawn without replacement.

    As many whole units as come nearest; tokens of these are left out only where even so there are far too many. Units
    are put in a circle at random, and a draw is a stretch of it: sums over all stretches come from one running sum.
    """
    count, totals = len(table), table.sum(axis=1)
    if totals.sum() == tokens:
        return np.repeat(table.sum(axis=0)[None], draws, axis=0)
    each, drawn = min(count, draws), []
    starts = np.arange(each) * count // each
    for _ in range(-(-draws // each)):
        twice = np.tile(generator.permutation(count), 2)
        reached = np.append(0.0, np.cumsum(totals[twice]))
        wanted = reached[starts] + tokens
        after = np.clip(np.searchsorted(reached, wanted), starts + 1, starts + count)
        before = np.maximum(after - 1, starts + 1)
        ends = np.where(wanted - reached[before] <= reached[after] - wanted, before, after)
        sums = np.concatenate([np.zeros((1, table.shape[1])), np.cumsum(table[twice], axis=0)])
        drawn.append(sums[ends] - sums[starts])
    return thin_histograms(np.concatenate(drawn)[:draws], tokens, generator)


def thin_histograms(histograms: FloatArray, tokens: int, generator: np.random.Generator) -> FloatArray:
    """Return histograms, (n, bins), those far above `tokens` thinned to it by drawing without replacement."""
    thinned = histograms.copy()
    for row in np.flatnonzero(histograms.sum(axis=1) > UNEQUAL * tokens):
        thinned[row] = generator.multivariate_hypergeometric(np.rint(histograms[row]).astype(np.int64), tokens)
    return thinned


def fill_blocks(spans: Sequence[Span], tokens: IntArray, *, least: int) -> list[IntArray]:
    """Return which neighbouring spans to join so that no block has too few tokens in any slice, (slices, spans).

    Too few: less than `least`, or than FULL_SHARE of the median block, as long as each third of the spans keeps some
    blocks. A span without any token of a slice is left alone: it has no tail in that slice.
    """
    groups = [np.array([place]) for place in range(len(spans))]
    held = [tokens[:, place].astype(np.float64) for place in range(len(spans))]
    full = np.array([full_block(counts.astype(np.float64), _thirds(counts), least=least) for counts in tokens])
    while len(groups) > LEAST_BLOCKS:
        filled = np.array([np.min(np.where(count > 0, count / np.maximum(full, 1.0), np.inf)) for count in held])
        joins = [
            (filled[place], min(filled[other], 1.0), place, other)
            for place in np.flatnonzero(filled < 1).tolist()
            for other in (place - 1, place + 1)
            if 0 <= other < len(groups) and (held[other] > 0).tolist() == (held[place] > 0).tolist()
        ]
        if not joins:
            break
        *_, place, other = min(joins)
        first, second = sorted((place, other))
        groups[first] = np.concatenate([groups[first], groups.pop(second)])
        held[first] = held[first] + held.pop(second)
    return groups


def full_block(counts: FloatArray, thirds: FloatArray, *, least: int) -> float:
    """Return the tokens of one slice that a block is to hold; 0 where a third of the run has too few for any tail."""
    fewest = float(thirds.min()) / LEAST_PER_THIRD
    if fewest < least:
        return 0.0
    return max(float(least), min(FULL_SHARE * float(np.median(counts[counts > 0])), fewest))


def _thirds(counts: IntArray) -> FloatArray:
    return np.array([float(part.sum()) for part in np.array_split(counts, 3)])
