"""Bootstrap over whole sequences or prompt groups, and percentiles of the coarse histograms it draws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.flat_lists import flatten
from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.arrays import ALONE_MATRIX, FloatArray, IntArray, product

DRAWS: Final = 400
SEED: Final = 20_260_128
MAX_DRAWN: Final = 1 << 21  # numbers drawn at a time: a block of 100,000 units would fill gigabytes
MAX_UNITS: Final = ALONE_MATRIX // bins.COARSE_COUNT // 8  # in one product, so that one thread makes it
MAX_REDRAWN: Final = 4096
"""Most units of a block that are resampled singly. More are first bundled at random into this many sets of whole units:
the bundles vary as much on average, and a spread from 4,096 of them is accurate to one part in 90."""
ROWS_LOOKED_AT: Final = 1 << 14  # whose histograms have some 30 entries each
WHOLE_FLOAT32: Final = 1 << 24
LOOKED_AT: Final = 4096  # histograms at a time: 2 MB each of what is made of them
INTERVAL: Final = (2.5, 97.5)
"""Percentiles of the draws that a 95% interval lies between."""
_EDGES = bins.coarse_edges()


@dataclass(frozen=True)
class Resampled:
    """Coarse histograms of one slice: per block as recorded, and as redrawn with whole units replaced.

    recorded: (blocks, COARSE_COUNT) token counts. drawn: (blocks, draws, COARSE_COUNT). units: per block.
    """

    recorded: FloatArray
    drawn: FloatArray
    units: IntArray


def resample_blocks(sequences: pl.DataFrame, *, blocks: int, seed: int, draws: int = DRAWS) -> Resampled:
    """Redraw the units of each block with replacement.

    `sequences`: one row per (sequence, slice) of one slice with `block` (0..blocks-1), `unit` (what is drawn as a
    whole: rows of the same unit stay together) and the coarse histogram.
    """
    recorded = np.zeros((blocks, bins.COARSE_COUNT))
    drawn = np.zeros((blocks, draws, bins.COARSE_COUNT))
    units = np.zeros(blocks, np.int64)
    generator = np.random.default_rng(seed)
    for block, count, table in unit_histograms(sequences, seed=seed):
        units[block] = count
        recorded[block] = table.sum(axis=0)
        at_a_time = max(1, MAX_DRAWN // len(table))
        for start in range(0, draws, at_a_time):
            counts = draw_counts(len(table), min(at_a_time, draws - start), generator)
            drawn[block, start : start + len(counts)] = _sum_drawn(counts, table)
    return Resampled(recorded, drawn, units)


def _sum_drawn(counts: IntArray, table: FloatArray) -> FloatArray:
    """Return counts @ table, some units at a time: sums of whole numbers do not depend on the order.

    Where float32 holds the sums exactly, it halves the time.
    """
    kind = np.float32 if len(table) * float(table.max(initial=0.0)) < WHOLE_FLOAT32 else np.float64
    total = np.zeros((len(counts), table.shape[1]))
    for start in range(0, len(table), MAX_UNITS):
        part = slice(start, start + MAX_UNITS)
        total += product(counts[:, part].astype(kind), table[part].astype(kind))
    return total


def draw_counts(units: int, draws: int, generator: np.random.Generator, dtype: type[np.integer] = np.int64) -> IntArray:
    """Return how often each unit is drawn when as many are drawn as there are, (draws, units).

    `dtype`: of the random numbers; another one takes other numbers from the generator.
    """
    chosen = generator.integers(0, units, size=(draws, units), dtype=dtype)
    chosen += (units * np.arange(draws, dtype=dtype))[:, None]
    return np.bincount(chosen.ravel(), minlength=draws * units).reshape(draws, units)


def unit_histograms(sequences: pl.DataFrame, *, seed: int) -> Iterator[tuple[int, int, FloatArray]]:
    """Yield each block's number, how many units it has, and token counts, (units, COARSE_COUNT), to resample from.

    Units are in ascending order; a block with too many has them bundled.
    """
    if not sequences["block"].is_sorted():
        sequences = sequences.sort("block", maintain_order=True)
    block, unit = sequences["block"].to_numpy(), sequences["unit"].to_numpy()
    for start, stop in pairwise(np.flatnonzero(np.diff(block, prepend=-1, append=-1))):
        units, unit_index = np.unique(unit[start:stop], return_inverse=True)
        if len(units) > MAX_REDRAWN:
            unit_index = _bundles(len(units), seed=seed + int(block[start]))[unit_index]
        redrawn = min(len(units), MAX_REDRAWN)
        row, coarse, n = histogram_entries(sequences[start:stop])
        cell = unit_index[row] * bins.COARSE_COUNT + coarse
        table = np.bincount(cell, weights=n, minlength=redrawn * bins.COARSE_COUNT).astype(np.float64)
        yield int(block[start]), len(units), table.reshape(redrawn, bins.COARSE_COUNT)


def _bundles(units: int, *, seed: int) -> IntArray:
    """Return the bundle of each unit: as many in each as in any other, or one less."""
    bundle = np.arange(units) % MAX_REDRAWN
    np.random.default_rng(seed).shuffle(bundle)
    return bundle


def histogram_entries(sequences: pl.DataFrame) -> tuple[IntArray, IntArray, IntArray]:
    """Return row, coarse bin and count of every entry of the rows' coarse histograms, (entries,) each."""
    (offsets, coarse), (_, n) = flatten(sequences["coarse_bin"]), flatten(sequences["coarse_n"])  # views
    return np.repeat(np.arange(sequences.height), np.diff(offsets)), coarse, n


def entries_in_parts(sequences: pl.DataFrame) -> Iterator[tuple[slice, IntArray, IntArray, IntArray]]:
    """Yield `histogram_entries` for a slice of rows at a time, after the slice: all rows at once may take 200 MB."""
    for start in range(0, sequences.height, ROWS_LOOKED_AT):
        part = slice(start, min(start + ROWS_LOOKED_AT, sequences.height))
        yield part, *histogram_entries(sequences[part])


def pool_blocks(resampled: Resampled, blocks: IntArray, *, seed: int) -> FloatArray:
    """Draw histograms of a window: its blocks with replacement, and within each the redrawn units.

    Two levels, because sequences share their step: with blocks held fixed an interval would deny step noise.
    Returns (draws, COARSE_COUNT).
    """
    draws = resampled.drawn.shape[1]
    chosen = np.random.default_rng(seed).choice(blocks, size=(draws, len(blocks)))
    total = np.zeros((draws, bins.COARSE_COUNT))
    for column in range(len(blocks)):
        total += resampled.drawn[chosen[:, column], np.arange(draws)]
    return total


def coarse_percentile(histograms: FloatArray, q: float) -> FloatArray:
    """Return the q-quantile of each histogram (last axis: coarse bins), log-linear inside a bin; NaN where empty."""
    return coarse_percentiles(histograms, (q,))[0]


def coarse_percentiles(histograms: FloatArray, quantiles: Sequence[float]) -> list[FloatArray]:
    """Return each of the quantiles as `coarse_percentile` does, from one look at the histograms."""
    rows = histograms.reshape(-1, histograms.shape[-1])
    found: list[FloatArray] = [np.empty(len(rows)) for _ in quantiles]
    for start in range(0, len(rows), LOOKED_AT):  # what is made on the way is as large as what is looked at
        part = rows[start : start + LOOKED_AT]
        cumulative = np.cumsum(part, axis=1)
        for values, q in zip(found, quantiles, strict=True):
            values[start : start + LOOKED_AT] = _percentile(part, cumulative, q)
    return [values.reshape(histograms.shape[:-1]) for values in found]


def _percentile(histograms: FloatArray, cumulative: FloatArray, q: float) -> FloatArray:
    total = cumulative[:, -1]
    rank = total * q
    index = np.minimum(np.count_nonzero(cumulative < rank[:, None], axis=1), bins.COARSE_COUNT - 1)
    row = np.arange(len(index))
    in_bin = histograms[row, index]
    before = cumulative[row, index] - in_bin
    low, high = _EDGES[index], _EDGES[index + 1]
    share = np.divide(rank - before, in_bin, out=np.zeros_like(in_bin), where=in_bin > 0)
    inside = np.where(low > 0, low * (high / np.where(low > 0, low, 1.0)) ** share, high * share)
    return np.where(total > 0, inside, np.nan)


def interval(draws: FloatArray) -> tuple[float, float]:
    """Return the 95% interval of resampled values; NaN where none is finite."""
    usable = draws[np.isfinite(draws)]
    if not len(usable):
        return math.nan, math.nan
    low, high = np.percentile(usable, INTERVAL)
    return float(low), float(high)


def finite_or_none(values: Iterable[float]) -> list[float | None]:
    """Return the values as a table holds them: null where one is not finite."""
    return [float(value) if math.isfinite(value) else None for value in values]
