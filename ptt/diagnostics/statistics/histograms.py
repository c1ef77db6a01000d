"""Tokens counted by block of steps, slice and bin of |r|: what whole steps can be redrawn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.bootstrap import histogram_entries
from ptt.diagnostics.statistics.cells import BINS, cell_width
from ptt.diagnostics.statistics.clipping_replay import count_positive
from ptt.diagnostics.statistics.slices import SLICES
from ptt.diagnostics.statistics.windows import Span, split_steps

BLOCKS: Final = 8  # a window
PIECES: Final = 16  # of a coarse bin: 1 to 2% of |r| each


@dataclass(frozen=True, kw_only=True)
class Histograms:
    """Tokens of one pair.

    blocks: (blocks, slices, bins) counts; window: (blocks,) the window of each block; of windows (windows, slices,
    bins) n: counts, s_r, s_abs: sums of r and |r| in nats.
    """

    blocks: FloatArray
    window: IntArray
    n: FloatArray
    s_r: FloatArray
    s_abs: FloatArray
    width: int = 1  # bins that a cell reaches over


def count_histograms(cells: pl.DataFrame, windows: Sequence[Span]) -> Histograms:
    """Count the cells of one pair, every window cut into BLOCKS blocks of as equal a number of steps as can be.

    `cells` are sorted by step, as the token pass gives them, and the windows hold all of their steps.
    """
    step = cells["step"].to_numpy()
    first = np.flatnonzero(np.diff(step, prepend=-1))
    steps = step[first]
    cut = [split_steps(steps[(steps >= span.first) & (steps <= span.last)].tolist(), BLOCKS) for span in windows]
    window = np.repeat(np.arange(len(cut)), [len(spans) for spans in cut])
    starts = [block.first for spans in cut for block in spans]
    begins, opens = np.searchsorted(step, starts), np.flatnonzero(np.diff(window, prepend=-1))
    blocks = _table(cells, begins, "n")
    n = np.add.reduceat(blocks, opens, axis=0)
    s_abs, s_r = (_table(cells, begins[opens], name) for name in ("s_abs", "s_r"))
    return Histograms(blocks=blocks, window=window, n=n, s_r=s_r, s_abs=s_abs, width=cell_width(cells))


def coarse_cells(sequences: pl.DataFrame) -> pl.DataFrame:
    """Return step, bin, n and s_abs as cells have them, from the coarse histograms of rows with `step`.

    Tokens of a coarse bin are spread evenly over PIECES of it, so that percentiles do not jump from bin to bin.
    """
    row, coarse, count = histogram_entries(sequences)
    steps, step_index = np.unique(sequences["step"].to_numpy(), return_inverse=True)
    table = np.bincount(step_index[row] * bins.COARSE_COUNT + coarse, weights=count).astype(np.int64)
    used = np.flatnonzero(table)
    pieces = np.minimum(table[used], PIECES)
    cell = np.repeat(np.arange(len(used)), pieces)
    piece = np.arange(len(cell)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    n = (piece + 1) * table[used][cell] // pieces[cell] - piece * table[used][cell] // pieces[cell]
    low, high = (bins.coarse_edges()[used[cell] % bins.COARSE_COUNT + end] for end in (0, 1))
    magnitude = np.where(low > 0, low + (piece + 0.5) / pieces[cell] * (high - low), 0.0)
    return pl.DataFrame(
        {
            "step": steps[used[cell] // bins.COARSE_COUNT],
            "bin": bins.bin_of(magnitude).astype(np.uint16),
            "n": n.astype(np.uint32),
            "s_abs": magnitude * n,
        }
    )


def largest_log_ratios(
    n: FloatArray, s_r: FloatArray, s_abs: FloatArray, *, sign: float, wanted: int, width: int = 1
) -> FloatArray:
    """Return at least the `wanted` largest of sign * r, from one histogram, (bins,) each.

    A token alone in its cell has its own |r|; others are spread evenly over theirs (`width` bins).
    """
    used = np.flatnonzero(n)
    mean = s_abs[used] / n[used]
    up = count_positive(n[used], s_r[used], mean)
    down = n[used] - up
    above, below = (up, down) if sign > 0 else (down, up)
    count = np.concatenate([above[::-1], below]).astype(np.int64)  # cells in descending order
    cells = np.flatnonzero(count)
    cells = cells[: np.searchsorted(np.cumsum(count[cells]), wanted) + 1]
    count = count[cells]
    index = np.concatenate([np.arange(len(used))[::-1], np.arange(len(used))])[cells]
    bin_ = used[index]
    exact = (n[bin_] == 1) | (bin_ == bins.UNDERFLOW) | (bin_ == bins.OVERFLOW)
    low = np.where(exact, mean[index], bins.lower_edge(bin_))
    reach = np.where(exact, 0.0, bins.lower_edge(bin_ + width) - low)
    inside = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    magnitude: FloatArray = np.repeat(low, count) + (inside + 0.5) * np.repeat(reach / count, count)
    magnitude *= np.where(np.repeat(cells, count) < len(used), 1.0, -1.0)
    return magnitude


def _table(cells: pl.DataFrame, begins: IntArray, name: str) -> FloatArray:
    """Add up a column of cells, cut where parts begin, by slice and bin: (parts, slices, bins)."""
    shape = len(SLICES), BINS
    parts = []
    for first, end in pairwise([*begins.tolist(), cells.height]):
        part = cells[first:end]
        slice_bin = part["slice"].to_numpy().astype(np.int64) * BINS + part["bin"].to_numpy()
        parts.append(np.bincount(slice_bin, part[name].to_numpy(), shape[0] * shape[1]).reshape(shape))
    return np.stack(parts).astype(np.float64, copy=False)
