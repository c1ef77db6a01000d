"""Resample whole sequences (or prompt groups): how far could a percentile lie from what was seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.dot_product import product

DRAWS: Final = 400
SEED: Final = 20_260_128
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
    for block, table in _histograms(sequences):
        units[block] = len(table)
        recorded[block] = table.sum(axis=0)
        drawn[block] = product(_times_drawn(len(table), draws, generator), table)
    return Resampled(recorded, drawn, units)


def _times_drawn(units: int, draws: int, generator: np.random.Generator) -> FloatArray:
    """Return (draws, units): how often each unit is drawn when as many are drawn as there are."""
    chosen = generator.integers(0, units, size=(draws, units)) + units * np.arange(draws)[:, None]
    return np.bincount(chosen.ravel(), minlength=draws * units).reshape(draws, units).astype(np.float64)


def _histograms(sequences: pl.DataFrame) -> Iterator[tuple[int, FloatArray]]:
    """Give, block by block, (units, COARSE_COUNT) token counts; units in ascending order."""
    if not sequences["block"].is_sorted():
        sequences = sequences.sort("block", maintain_order=True)
    block, unit = sequences["block"].to_numpy(), sequences["unit"].to_numpy()
    flat_bin = sequences["coarse_bin"].explode(empty_as_null=False).to_numpy()
    flat_n = sequences["coarse_n"].explode(empty_as_null=False).to_numpy()
    length = sequences["coarse_bin"].list.len().to_numpy().astype(np.int64)
    offsets = np.append(0, np.cumsum(length))
    for start, stop in pairwise(np.flatnonzero(np.diff(block, prepend=-1, append=-1))):
        units, place = np.unique(unit[start:stop], return_inverse=True)
        held = slice(offsets[start], offsets[stop])
        cell = np.repeat(place * bins.COARSE_COUNT, length[start:stop]) + flat_bin[held]
        table = np.bincount(cell, weights=flat_n[held], minlength=len(units) * bins.COARSE_COUNT).astype(np.float64)
        yield int(block[start]), table.reshape(len(units), bins.COARSE_COUNT)


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
    held = np.cumsum(histograms, axis=-1)
    total = held[..., -1:]
    wanted = total * q
    index = np.minimum((held < wanted).sum(axis=-1), bins.COARSE_COUNT - 1)
    here = np.take_along_axis(histograms, index[..., None], axis=-1)[..., 0]
    before = np.take_along_axis(held, index[..., None], axis=-1)[..., 0] - here
    low, high = _EDGES[index], _EDGES[index + 1]
    share = np.divide(wanted[..., 0] - before, here, out=np.zeros_like(here), where=here > 0)
    inside = np.where(low > 0, low * (high / np.where(low > 0, low, 1.0)) ** share, high * share)
    return np.where(total[..., 0] > 0, inside, np.nan)
