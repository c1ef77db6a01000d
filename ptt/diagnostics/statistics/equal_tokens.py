"""Percentiles of equally many tokens in each block of steps: few tokens read a tail too small.

The 99th percentile of 30 tokens is 0.6 of what it is for many, so blocks that hold more and more tokens rise by
themselves. So many whole sequences are drawn from a block as hold about as many tokens as its smallest fellow does: the
mean over such draws is that of a block of this size, whatever size the block has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.bootstrap import unit_histograms
from ptt.diagnostics.statistics.windows import Span

DRAWS: Final = 100  # their mean is known ten times as well as one draw
UNEQUAL: Final = 1.25  # largest over smallest block: below it percentiles of 50 tokens are alike within 2%
PLENTY_TOKENS: Final = 5000  # fifty beyond p99: of as many, of PLENTY_UNITS sequences, a percentile reads what it is
PLENTY_UNITS: Final = 200
FULL_SHARE: Final = 0.25  # of the median block's tokens, that a block is filled up to by joining neighbours
LEAST_PER_THIRD: Final = 4  # blocks that each third of the run keeps, however few its tokens
LEAST_BLOCKS: Final = 8  # blocks are not joined to fewer


def thin_blocks(
    sequences: pl.DataFrame, *, blocks: int, tokens: int, seed: int, draws: int = DRAWS
) -> dict[int, FloatArray]:
    """Return coarse histograms of so many tokens of each block that holds as many, (draws, COARSE_COUNT) each.

    `sequences`: as `resample_blocks` takes them; their `unit` is what is drawn as a whole.
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
    """Return histograms, (n, bins), those that hold far more than `tokens` with so many of theirs, any as likely."""
    thinned = histograms.copy()
    for row in np.flatnonzero(histograms.sum(axis=1) > UNEQUAL * tokens):
        thinned[row] = generator.multivariate_hypergeometric(np.rint(histograms[row]).astype(np.int64), tokens)
    return thinned


def fill_blocks(spans: Sequence[Span], tokens: IntArray, *, least: int) -> list[IntArray]:
    """Return which neighbouring spans to join so that no block holds few tokens, (slices, spans), of any slice.

    Few: fewer than `least`, or than FULL_SHARE of the median's, as far as each third of the spans keeps some blocks. A
    span without any token of a slice stays as it is: it has no tail of it.
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
