"""Tokens counted by block of steps, slice and bin of |r|: shares and percentiles of the tail, with intervals.

Whole steps are resampled from these counts, for 95% intervals of p99.9, of shares beyond fixed ratios, and of post-tool
percentiles over text-only ones. A window of fewer than 8 steps has no interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.bootstrap import (
    DRAWS,
    INTERVAL,
    SEED,
    coarse_percentile,
    coarse_percentiles,
    finite_or_none,
    histogram_entries,
    interval,
)
from ptt.diagnostics.statistics.cells import BINS, cell_width
from ptt.diagnostics.statistics.clipping_replay import count_positive
from ptt.diagnostics.statistics.percentiles import percentiles
from ptt.diagnostics.statistics.slices import POST_TOOL, SLICES, TEXT_ONLY
from ptt.diagnostics.statistics.tail_growth import FLOOR
from ptt.diagnostics.statistics.windows import WINDOWS, Span, split_steps

BLOCKS: Final = 8  # a window
PIECES: Final = 16  # parts of a coarse bin, each 1 to 2% of |r| wide


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


LIMITS: Final = (2, 5, 10, 100)
"""Of the ratio either way round, max(rho, 1/rho)."""
RATIOS: Final = {"p95": 0.95, "p99": 0.99, "p999": 0.999}
ENDS: Final = ("", "_lo", "_hi")
SCHEMA: Final[dict[str, pl.DataType]] = {
    "window": pl.String(),
    "slice": pl.String(),
    "n": pl.Int64(),  # tokens
    **{f"p999{end}": pl.Float64() for end in ENDS},  # of |r|, nats
    **{f"above_{limit}{end}": pl.Float64() for limit in LIMITS for end in ENDS},  # share with max(rho, 1/rho) > limit
}
RATIO_SCHEMA: Final[dict[str, pl.DataType]] = {
    "window": pl.String(),
    "percentile": pl.String(),  # p95, p99, p999 of |r|
    "text": pl.Float64(),  # nats
    "post": pl.Float64(),
    **{f"ratio{end}": pl.Float64() for end in ENDS},  # post over text, both at least 0.001
}
_COARSE: Final = np.flatnonzero(np.diff(bins.coarse_bin_of(np.arange(BINS)), prepend=-1))
_SEED: Final = SEED + 40


def exceedance_tables(counted: Histograms, *, names: list[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the tables `extremes`, by window and slice, and `tail_ratios`, by window and percentile."""
    exact = _percentiles(counted)
    rows, ratios = [], []
    for window in range(len(counted.n)):
        blocks = counted.blocks[counted.window == window]
        above = _count_above(blocks, counted.s_abs[window] / np.maximum(counted.n[window], 1.0))
        coarse = np.add.reduceat(blocks, _COARSE, axis=2)
        recorded, times = coarse.sum(axis=0), _draw_blocks(len(blocks), seed=_SEED + window)
        drawn = None if times is None else np.tensordot(times, coarse, 1)
        shares = None if times is None else np.tensordot(times, above, 1)
        for number, name in enumerate(names):
            if (window, number) not in exact:
                continue
            n = recorded[number].sum()
            far = _with_interval(
                exact[window, number]["p999"],
                coarse_percentile(recorded[number], 0.999),
                None if drawn is None else coarse_percentile(drawn[:, number], 0.999),
            )
            beyond = _shares(above[:, number].sum(axis=0), n, None if shares is None else shares[:, number])
            rows.append((WINDOWS[window], name, int(n), *far, *beyond))
        if {(window, TEXT_ONLY), (window, POST_TOOL)} <= exact.keys():
            ratios += _ratios(WINDOWS[window], exact[window, TEXT_ONLY], exact[window, POST_TOOL], recorded, drawn)
    return (
        pl.DataFrame(rows, schema=SCHEMA, orient="row"),
        pl.DataFrame(ratios, schema=RATIO_SCHEMA, orient="row"),
    )


def _percentiles(counted: Histograms) -> dict[tuple[int, int], dict[str, float]]:
    window, slice_, bin_ = np.nonzero(counted.n)
    cells = pl.DataFrame(
        {
            "window": window,
            "slice": slice_,
            "bin": bin_,
            "wide": np.full(len(bin_), counted.width.bit_length() - 1),
            "n": counted.n[window, slice_, bin_].astype(np.int64),
            "s_abs": counted.s_abs[window, slice_, bin_],
        }
    )
    exact = percentiles(cells, by=["window", "slice"])
    return {(row["window"], row["slice"]): row for row in exact.to_dicts()}


def _count_above(blocks: FloatArray, magnitude: FloatArray) -> FloatArray:
    """Return tokens beyond each limit, and all tokens, (blocks, slices, limits + 1); a bin lies where its mean does."""
    beyond = [(blocks * (magnitude > math.log(limit))).sum(axis=2) for limit in LIMITS]
    return np.stack([*beyond, blocks.sum(axis=2)], axis=-1)


def _draw_blocks(blocks: int, *, seed: int) -> FloatArray | None:
    """Return how often each block is drawn, (draws, blocks); None where they are too few."""
    if blocks < BLOCKS:
        return None
    return np.random.default_rng(seed).multinomial(blocks, np.full(blocks, 1 / blocks), size=DRAWS).astype(np.float64)


def _with_interval(value: float, centre: FloatArray, drawn: FloatArray | None) -> tuple[float | None, ...]:
    """Return a value and its interval: the spread of the coarse draws, carried over to it."""
    if drawn is None or not np.isfinite(centre) or centre <= 0:
        return value, None, None
    low, high = interval(drawn / centre)
    return value, *finite_or_none((value * low, value * high))


def _shares(above: FloatArray, n: float, drawn: FloatArray | None) -> list[float | None]:
    """Return the share beyond each limit with its interval; where no token is, its upper end is that of n tokens."""
    shares: list[float | None] = []
    for index in range(len(LIMITS)):
        share = float(above[index] / n)
        if drawn is None:
            shares += [share, None, None]
        elif share == 0:
            shares += [0.0, 0.0, 1 - 0.025 ** (1 / n)]
        else:
            usable = drawn[drawn[:, -1] > 0]
            shares += [share, *np.percentile(usable[:, index] / usable[:, -1], INTERVAL).tolist()]
    return shares


def _ratios(
    window: str, text: dict[str, float], post: dict[str, float], recorded: FloatArray, drawn: FloatArray | None
) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    spreads = [None] * len(RATIOS) if drawn is None else coarse_percentiles(drawn, list(RATIOS.values()))
    for (name, q), values in zip(RATIOS.items(), spreads, strict=True):
        ratio = max(post[name], FLOOR) / max(text[name], FLOOR)
        spread = None if values is None else _floored_ratio(values)
        rows.append(
            (
                window,
                name,
                text[name],
                post[name],
                *_with_interval(ratio, _floored_ratio(coarse_percentile(recorded, q)), spread),
            )
        )
    return rows


def _floored_ratio(values: FloatArray) -> FloatArray:
    floored = np.maximum(values, FLOOR)
    over: FloatArray = floored[..., POST_TOOL] / floored[..., TEXT_ONLY]
    return over
