"""How one slice's tails went over a run: block by block, window by window, each with resampled intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.bootstrap import (
    SEED,
    Resampled,
    coarse_percentile,
    coarse_percentiles,
    entries_in_parts,
    interval,
    pool_blocks,
    resample_blocks,
)
from ptt.diagnostics.statistics.detrended_noise import block_means
from ptt.diagnostics.statistics.percentiles import percentiles
from ptt.diagnostics.statistics.rare_tails import BlockCounts, count_maxima
from ptt.diagnostics.statistics.trend import (
    NULL_DRAWS,
    Contrast,
    StepNoise,
    scan_shifts,
    shift_p_value,
    trend_p_value,
)
from ptt.diagnostics.statistics.windows import Span, label_spans

TAIL_QUANTILES: Final = {"p95": 0.95, "p99": 0.99}
MAX_BLOCKS: Final = 40
MAX_FAR_BLOCKS: Final = 60
MIN_BLOCKS: Final = 12  # never fewer where the steps suffice: growth is judged by how blocks scatter
MIN_BLOCK_UNITS: Final = 4  # sequences or groups that a block holds, beyond MIN_BLOCKS
MIN_BLOCK_TOKENS_BOTH: Final = 200  # tokens of either slice that a block holds, beyond MIN_BLOCKS: two above p99
TREND_BLOCKS: Final = 20  # the rank test wants blocks long enough for neighbours to be exchangeable
MAX_OWN_SHARE: Final = 0.8  # share of a slice's block scatter that may be its sequences' own
MAX_OWN_SHARE_DIFFERENCE: Final = (
    0.5  # the same for two slices' difference: sequences share their own level between slices
)
MIN_BLOCK_TOKENS: Final = 50  # below it a block's p99 is its largest token or two
FLOOR: Final = 2.0**bins.COARSE_LOWEST_EXPONENT
"""Ratios are taken of max(value, 0.001 nats): growth from nothing is then finite, and a lower bound."""
GROWTH_OFFSET: Final = 0.2
"""In nats, added before the log: growth is proportional above it and counts in nats below, where weights are near 1."""
LEVEL_FLOOR: Final = 0.02
"""In nats: below it weights are within 2% of 1. A run that starts at its reference, where r is 0, would otherwise
owe its scatter to its first steps, and no growth could be distinguished from it."""


@dataclass(frozen=True, kw_only=True)
class Percentile:
    """One percentile of |r| of one slice over a run.

    blocks: (blocks,) values, NaN where a block holds too few tokens; drawn: (blocks, draws); windows: early, mid and
    late values; windows_drawn: (3, draws), blocks redrawn as well; sixth: the last sixth, with its draws.
    """

    blocks: FloatArray
    drawn: FloatArray
    windows: FloatArray
    windows_drawn: FloatArray
    last_sixth: float
    trend_p: float

    def growth(self) -> float:
        """Late window over early window."""
        return float(_floored(self.windows[2]) / _floored(self.windows[0]))

    def growth_interval(self) -> tuple[float, float]:
        """The 95% interval of the growth, from its redrawings."""
        return interval(_floored(self.windows_drawn[2]) / _floored(self.windows_drawn[0]))


@dataclass(frozen=True, kw_only=True)
class SliceTails:
    """All that is known of one slice's tails."""

    name: str
    tokens: IntArray  # (blocks,)
    units: IntArray  # (blocks,) sequences or prompt groups
    window_tokens: IntArray  # (3,)
    percentiles: Mapping[str, Percentile]
    counts: BlockCounts
    far: BlockCounts  # over the spans that growth of a few tokens is looked for in, finer than the blocks


def merge_blocks(part: SliceTails, groups: Sequence[IntArray]) -> SliceTails:
    """Return the tails over groups of neighbouring blocks, from their coarse histograms, without redrawings.

    A percentile of more tokens scatters less where a share of the sequences is far heavier than the others.
    """
    tokens, maxima = (
        np.array([counts[group].sum(axis=0) for group in groups]) for counts in (part.counts.tokens, part.counts.maxima)
    )
    enough = tokens.sum(axis=1) >= MIN_BLOCK_TOKENS
    percentiles_of = {
        name: replace(
            percentile,
            blocks=np.where(enough, coarse_percentile(tokens, TAIL_QUANTILES[name]), np.nan),
            drawn=np.full((len(groups), 1), np.nan),
        )
        for name, percentile in part.percentiles.items()
    }
    return replace(
        part,
        tokens=tokens.sum(axis=1),
        units=np.array([part.units[group].sum() for group in groups]),
        percentiles=percentiles_of,
        counts=BlockCounts(tokens=tokens, maxima=maxima),
    )


@dataclass(frozen=True, kw_only=True)
class TailShift:
    """How far a tail moved between two sets of blocks: factor and p-value; contrast: None where no test was made."""

    factor: float
    p_value: float
    contrast: Contrast | None
    grouped: bool = False  # the contrast is of groups of blocks


@dataclass(frozen=True, kw_only=True)
class LateRise:
    """A rise in the last blocks: which of them rose, how far, and the p-value of one so clear anywhere."""

    blocks: tuple[int, ...]
    factor: float
    p_value: float


def tail_growth(
    post: SliceTails, merged: SliceTails, groups: Sequence[IntArray], *, noise: StepNoise, draws: int = NULL_DRAWS
) -> TailShift:
    """Return the clearest rise of one slice's tail, wherever in the run it begins, by blocks or by groups of them.

    The tail is the geometric mean of its percentiles: one figure, one test. merged: `merge_blocks` of `groups`.
    """
    level, own = _growth_level(post)
    wide = _growth_level(merged)[0]
    scan = scan_shifts(level, wide, groups, own=own, noise=noise, most_own=MAX_OWN_SHARE, seed=SEED + 20, draws=draws)
    factor = _factor(_level(merged if scan.grouped else post)[0], scan.contrast)
    return TailShift(factor=factor, p_value=scan.p_value, contrast=scan.contrast, grouped=scan.grouped)


def tail_shift(part: SliceTails, other: SliceTails | None, contrast: Contrast, *, noise: StepNoise) -> TailShift:
    """Return the shift of one slice's tail, or of its ratio to another's, between given blocks."""
    level, own = _growth_level(part)
    plain, max_own = _level(part)[0], MAX_OWN_SHARE
    if other is not None:
        (level, own), (other_level, other_own) = _level(part), _level(other)
        level, own, max_own = level - other_level, own + other_own, MAX_OWN_SHARE_DIFFERENCE
        plain = level
    p_value = shift_p_value(level, contrast, own=own, noise=noise, most_own=max_own, seed=SEED + 20)
    return TailShift(factor=_factor(plain, contrast), p_value=p_value, contrast=contrast)


def _factor(level: FloatArray, contrast: Contrast | None) -> float:
    if contrast is None:
        return math.nan
    before, after = _means(level, contrast)
    return math.exp(after - before)


def _means(values: FloatArray, contrast: Contrast) -> tuple[float, float]:
    """Return the means of the finite values of earlier and later blocks; NaN where none is."""
    parts = [values[blocks] for blocks in (contrast.before, contrast.after)]
    before, after = (float(np.mean(part[np.isfinite(part)])) if np.isfinite(part).any() else math.nan for part in parts)
    return before, after


@dataclass(frozen=True, kw_only=True)
class ExcessGrowth:
    """How far one slice's percentile grew beyond another slice's, in nats, and the p-value of more than a margin."""

    percentile: str
    nats: float
    p_value: float


def excess_growth(
    post: SliceTails, text: SliceTails, contrast: Contrast, *, noise: StepNoise, margin: float
) -> ExcessGrowth:
    """Return the percentile whose growth in nats exceeds the other slice's most clearly, between given blocks.

    r is a log already: importance weights go with nats, not with the ratio of percentiles. The p-value is of an excess
    above `margin` nats, Bonferroni-corrected for the two percentiles.
    """
    grown = []
    for name, percentile in post.percentiles.items():
        difference, own = _difference(percentile, text.percentiles[name])
        before, after = _means(difference, contrast)
        p_value = shift_p_value(
            difference,
            contrast,
            own=own,
            noise=noise,
            most_own=MAX_OWN_SHARE_DIFFERENCE,
            seed=SEED + 20,
            margin=margin,
        )
        corrected = min(1.0, len(post.percentiles) * p_value) if math.isfinite(p_value) else math.nan
        grown.append(ExcessGrowth(percentile=name, nats=after - before, p_value=corrected))
    return min(grown, key=lambda growth: (math.isnan(growth.p_value), growth.p_value, -growth.nats))


def _difference(percentile: Percentile, other: Percentile) -> tuple[FloatArray, float]:
    """Return the blocks' difference in nats, and the mean variance that redrawing units gives it."""
    difference = percentile.blocks - other.blocks
    drawn = percentile.drawn - other.drawn
    drawn = drawn[np.isfinite(difference) & np.isfinite(drawn).all(axis=1)]
    return difference, float(drawn.var(axis=1).mean()) if len(drawn) else math.nan


def _growth_level(part: SliceTails) -> tuple[FloatArray, float]:
    """Return `_level` on log(x + GROWTH_OFFSET): what a run gains from nothing in its first steps is no noise."""
    return _level(part, lambda nats: np.log(nats + GROWTH_OFFSET))


def _level(
    part: SliceTails, scale: Callable[[FloatArray], FloatArray] = lambda nats: np.log(np.maximum(nats, LEVEL_FLOOR))
) -> tuple[FloatArray, float]:
    """Return the blocks' mean log percentile, and the mean variance that redrawing a block's units gives it."""
    levels, variances = [], []
    for percentile in part.percentiles.values():
        levels.append(scale(percentile.blocks))
        usable = np.isfinite(percentile.blocks) & np.isfinite(percentile.drawn).all(axis=1)
        if usable.any():
            variances.append(float(scale(percentile.drawn[usable]).var(axis=1).mean()))
    return np.mean(levels, axis=0), float(np.mean(variances)) if variances else math.nan


def block_count(*, steps: int, units: int, tokens: int) -> int:
    """Return how many blocks to cut a run into: single steps in a short run, longer ones where those hold little."""
    filled = min(units // MIN_BLOCK_UNITS, tokens // MIN_BLOCK_TOKENS_BOTH)
    return max(1, min(MAX_BLOCKS, steps, max(MIN_BLOCKS, filled)))


def far_block_count(*, observations: int, tokens: int) -> int:
    """Return how many spans to cut a run into where a few tokens are counted: they may hold a single group each."""
    return max(1, min(MAX_FAR_BLOCKS, observations, max(MIN_BLOCKS, tokens // MIN_BLOCK_TOKENS_BOTH)))


def _floored(values: FloatArray | float) -> FloatArray:
    floored: FloatArray = np.maximum(np.asarray(values, dtype=np.float64), FLOOR)
    return floored


def slice_tails(
    cells: pl.DataFrame,
    sequences: pl.DataFrame,
    *,
    name: str,
    blocks: tuple[Span, ...],
    windows: tuple[Span, ...],
    sixths: tuple[Span, ...],
    far: tuple[Span, ...] | None = None,
    seed: int = SEED,
) -> SliceTails:
    """Measure the tails of one slice from its cells and its sequences (with `unit`).

    `windows` are three spans, `blocks` the finer ones that are redrawn; a block belongs to the window it starts in.
    `far` are those in which a few tokens are counted; without them the blocks.
    Two runs that are set against each other want a `seed` each: redrawn with the same numbers they would move alike.
    """
    in_blocks = label_spans(sequences, blocks, name="block")
    redrawn = resample_blocks(in_blocks, blocks=len(blocks), seed=seed)
    by_block, by_window, by_sixth = (percentiles_by_span(cells, spans) for spans in (blocks, windows, sixths))
    tokens = by_block["n"].to_numpy()
    enough = tokens >= MIN_BLOCK_TOKENS
    member = np.array([sum(span.first <= block.first for span in windows) - 1 for block in blocks])
    quantiles = list(TAIL_QUANTILES.values())
    coarse_drawn, coarse = (coarse_percentiles(each, quantiles) for each in (redrawn.drawn, redrawn.recorded))
    coarse_windows = [
        _pooled(redrawn, np.flatnonzero((member == window) & (redrawn.units > 0)), quantiles, seed=seed + 1 + window)
        for window in range(len(by_window))
    ]
    percentile_tails = {}
    for number, column in enumerate(TAIL_QUANTILES):
        fine = np.where(enough, by_block[column].to_numpy(), np.nan)
        levels = np.log(_floored(fine[np.isfinite(fine)]))
        in_windows = zip(coarse_windows, by_window[column].to_numpy(), strict=True)
        percentile_tails[column] = Percentile(
            blocks=fine,
            drawn=rescale(coarse_drawn[number], coarse[number], fine),
            windows=by_window[column].to_numpy(),
            windows_drawn=np.array([rescale(*window[number], np.asarray(value)) for window, value in in_windows]),
            last_sixth=float(by_sixth[column].to_numpy()[-1]) if len(by_sixth) else math.nan,
            trend_p=trend_p_value(block_means(levels, TREND_BLOCKS), seed=SEED + 10 + number),
        )
    return SliceTails(
        name=name,
        tokens=tokens,
        units=redrawn.units,
        window_tokens=by_window["n"].to_numpy(),
        percentiles=percentile_tails,
        counts=BlockCounts(tokens=redrawn.recorded, maxima=count_maxima(in_blocks, blocks=len(blocks))),
        far=count_blocks(sequences, far or blocks),
    )


def _pooled(
    redrawn: Resampled, members: IntArray, quantiles: Sequence[float], *, seed: int
) -> list[tuple[FloatArray, FloatArray]]:
    """Return each percentile of a window: its draws, of the window's blocks pooled, and what they scatter around."""
    if not len(members):
        nothing = np.full(redrawn.drawn.shape[1], np.nan)
        return [(nothing, np.asarray(math.nan))] * len(quantiles)
    histograms = pool_blocks(redrawn, members, seed=seed)
    recorded = redrawn.recorded[members].sum(axis=0)
    return list(zip(coarse_percentiles(histograms, quantiles), coarse_percentiles(recorded, quantiles), strict=True))


def count_blocks(sequences: pl.DataFrame, spans: tuple[Span, ...]) -> BlockCounts:
    """Count the tokens and the sequences of each span, from the sequences' coarse histograms."""
    labelled = label_spans(sequences, spans, name="block").with_columns(unit=pl.col("seq"))
    block, counted = labelled["block"].to_numpy(), np.zeros(len(spans) * bins.COARSE_COUNT)
    for part, row, coarse, n in entries_in_parts(labelled):  # whole numbers: their order does not matter
        place = block[part][row] * bins.COARSE_COUNT + coarse
        counted += np.bincount(place, n, len(counted))
    tokens = counted.reshape(len(spans), bins.COARSE_COUNT)
    return BlockCounts(tokens=tokens, maxima=count_maxima(labelled, blocks=len(spans)))


def percentiles_by_span(cells: pl.DataFrame, spans: tuple[Span, ...]) -> pl.DataFrame:
    """Return n and percentiles per span, in order, with n = 0 and NaN where the slice has no token there."""
    by_span = percentiles(label_spans(cells, spans, name="span"), by=["span"])
    every = pl.DataFrame({"span": np.arange(len(spans), dtype=np.int32)})
    return every.join(by_span, on="span", how="left", maintain_order="left").with_columns(
        pl.col("n").fill_null(0), pl.col("p50", "p95", "p99", "p999").fill_null(math.nan)
    )


def rescale(drawn: FloatArray, centre: FloatArray, exact: FloatArray) -> FloatArray:
    """Carry the spread of coarse percentiles over to the exact value they stand for."""
    usable = (centre > 0) & np.isfinite(centre)
    factor = np.divide(exact, centre, out=np.ones_like(np.asarray(centre, dtype=float)), where=usable)
    if drawn.ndim > factor.ndim:
        factor = factor[..., None]
    scaled: FloatArray = drawn * np.where(np.isfinite(factor), factor, np.nan)
    return scaled
