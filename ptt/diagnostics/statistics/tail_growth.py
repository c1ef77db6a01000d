"""How one slice's tails went over a run: block by block, window by window, each with resampled intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
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
from ptt.diagnostics.statistics.percentiles import percentiles
from ptt.diagnostics.statistics.rare_tails import (
    PLENTY_TOKENS,
    PLENTY_UNITS,
    UNEQUAL,
    BlockCounts,
    count_maxima,
    fill_blocks,
    full_block,
    thin_blocks,
    thin_histograms,
)
from ptt.diagnostics.statistics.trend import (
    MIN_SHIFT_BLOCKS,
    NULL_DRAWS,
    Contrast,
    StepNoise,
    scan_shifts,
    shift_p_value,
)
from ptt.diagnostics.statistics.windows import Span, join_spans, label_spans

TAIL_QUANTILES: Final = {"p95": 0.95, "p99": 0.99}
MAX_BLOCKS: Final = 40
MERGED: Final = 3  # blocks of a group
MAX_FAR_BLOCKS: Final = 60
MIN_BLOCKS: Final = 12  # never fewer where the steps suffice: growth is judged by how blocks scatter
MIN_BLOCK_UNITS: Final = 4  # sequences or groups that a block holds, beyond MIN_BLOCKS
MIN_BLOCK_TOKENS_BOTH: Final = 200  # tokens of either slice that a block holds, beyond MIN_BLOCKS: two above p99
MAX_OWN_SHARE: Final = 0.8  # share of a slice's block scatter that may be its sequences' own
MAX_OWN_SHARE_DIFFERENCE: Final = (
    0.5  # the same for two slices' difference: sequences share their own level between slices
)
MIN_BLOCK_TOKENS: Final = 50  # below it a block's p99 is its largest token or two
MIN_FULL_SHARE: Final = 0.5  # of the tokens wanted in a block: one with fewer had no neighbour to be joined with
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

    blocks: (blocks,) values, NaN where a block holds too few tokens; equal: the same from equally many tokens of each
    block, used to compare blocks; grouped: the same for groups of blocks; drawn: (blocks, draws); windows: early, mid
    and late values; windows_drawn: (3, draws), with blocks resampled as well; last_sixth: over the run's last sixth.
    """

    blocks: FloatArray
    equal: FloatArray
    grouped: FloatArray
    drawn: FloatArray
    windows: FloatArray
    windows_drawn: FloatArray
    last_sixth: float

    def growth(self) -> float:
        """Late window over early window."""
        return float(_floored(self.windows[2]) / _floored(self.windows[0]))

    def growth_interval(self) -> tuple[float, float]:
        """The 95% interval of the growth, from its redrawings."""
        return interval(_floored(self.windows_drawn[2]) / _floored(self.windows_drawn[0]))


@dataclass(frozen=True, kw_only=True)
class SliceTails:
    """Everything known about one slice's tails."""

    name: str
    tokens: IntArray  # (blocks,)
    units: IntArray  # (blocks,) sequences or prompt groups
    window_tokens: IntArray  # (3,)
    percentiles: Mapping[str, Percentile]
    counts: BlockCounts
    far: BlockCounts  # over the spans that growth of a few tokens is looked for in, finer than the blocks


def grouped_blocks(count: int) -> list[IntArray]:
    """Return groups of MERGED neighbouring blocks.

    A percentile of more tokens scatters less where a share of the sequences is far heavier than the others.
    """
    return np.array_split(np.arange(count), max(1, count // MERGED))


def merge_blocks(part: SliceTails) -> SliceTails:
    """Return the tails over groups of neighbouring blocks, from their coarse histograms, without redrawings."""
    groups = grouped_blocks(len(part.tokens))
    tokens, maxima = (
        np.array([counts[group].sum(axis=0) for group in groups]) for counts in (part.counts.tokens, part.counts.maxima)
    )
    enough = tokens.sum(axis=1) >= MIN_BLOCK_TOKENS
    percentiles_of = {
        name: replace(
            percentile,
            blocks=np.where(enough, coarse_percentile(tokens, TAIL_QUANTILES[name]), np.nan),
            equal=percentile.grouped,
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
    grouped: bool = False  # the contrast is between groups of blocks


@dataclass(frozen=True, kw_only=True)
class LateRise:
    """A rise in the last blocks: which of them rose, how far, and the p-value of one so clear anywhere."""

    blocks: tuple[int, ...]
    factor: float
    p_value: float


def tail_growth(post: SliceTails, *, noise: StepNoise, draws: int = NULL_DRAWS) -> TailShift:
    """Return the clearest rise of one slice's tail, wherever in the run it begins, by block or by group of blocks.

    The tail is summarised by the geometric mean of its percentiles: one statistic, one test.
    """
    level, own = _growth_level(post)
    merged, groups = merge_blocks(post), grouped_blocks(len(post.tokens))
    wide = _growth_level(merged)[0]
    scan = scan_shifts(level, wide, groups, own=own, noise=noise, most_own=MAX_OWN_SHARE, seed=SEED + 20, draws=draws)
    factor = _factor(_level(merged if scan.grouped else post)[0], scan.contrast)
    return TailShift(factor=factor, p_value=scan.p_value, contrast=scan.contrast, grouped=scan.grouped)


def tail_shift(part: SliceTails, other: SliceTails | None, contrast: Contrast, *, noise: StepNoise) -> TailShift:
    """Return the shift of one slice's tail, or of its ratio to another's, between given blocks."""
    level, own = _growth_level(part)
    plain, max_own = _level(part)[0], MAX_OWN_SHARE
    if other is not None:
        (level, own), max_own = _ratio_level(part, other), MAX_OWN_SHARE_DIFFERENCE
        plain = level
    p_value = shift_p_value(level, contrast, own=own, noise=noise, most_own=max_own, seed=SEED + 20)
    return TailShift(factor=_factor(plain, contrast), p_value=p_value, contrast=contrast)


def ratio_growth(post: SliceTails, text: SliceTails, *, noise: StepNoise) -> float:
    """Return the p-value of a rise of the ratio of two slices' tails that begins anywhere, as `tail_growth` has it."""
    level, own = _ratio_level(post, text)
    wide, _ = _ratio_level(merge_blocks(post), merge_blocks(text))
    groups, most = grouped_blocks(len(post.tokens)), MAX_OWN_SHARE_DIFFERENCE
    return scan_shifts(level, wide, groups, own=own, noise=noise, most_own=most, seed=SEED + 20).p_value


def scale_to(text: SliceTails, post: SliceTails, blocks: IntArray) -> SliceTails:
    """Return one slice's tails multiplied so that over some blocks each percentile is, in the mean, another slice's.

    A floor in nats then cuts both at the same share of that level: cut at the same nats, growth by one factor would be
    less of the smaller tail, and growth of their ratio.
    """
    scaled = {}
    for name, part in text.percentiles.items():
        levels = [_mean_log(each.percentiles[name].equal[blocks]) for each in (post, text)]
        factor = math.exp(levels[0] - levels[1]) if all(map(math.isfinite, levels)) else 1.0
        equal, grouped, drawn = (_floored(nats) * factor for nats in (part.equal, part.grouped, part.drawn))
        scaled[name] = replace(part, equal=equal, grouped=grouped, drawn=drawn)
    return replace(text, percentiles=scaled)


def _mean_log(nats: FloatArray) -> float:
    usable = nats[np.isfinite(nats)]
    return float(np.log(_floored(usable)).mean()) if len(usable) else math.nan


def _factor(level: FloatArray, contrast: Contrast | None) -> float:
    if contrast is None:
        return math.nan
    before, after = _means(level, contrast)
    return math.exp(after - before)


def _means(values: FloatArray, contrast: Contrast) -> tuple[float, float]:
    """Return the means of the finite values in earlier and later blocks; NaN where a part has none."""
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

    r is already a log: importance weights depend on nats, not on the ratio of percentiles. The p-value is for an excess
    above `margin` nats, Bonferroni-corrected for the two percentiles.
    """
    grown = []
    for name, percentile in post.percentiles.items():
        difference, own = _difference(percentile, text.percentiles[name], post.tokens)
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


def _difference(percentile: Percentile, other: Percentile, tokens: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the blocks' difference in nats, and the variance that redrawing units gives each."""
    difference = percentile.equal - other.equal
    drawn = percentile.drawn - other.drawn
    drawn = drawn[np.isfinite(difference) & np.isfinite(drawn).all(axis=1)]
    return difference, _own_variances(float(drawn.var(axis=1).mean()) if len(drawn) else math.nan, tokens)


def _ratio_level(part: SliceTails, other: SliceTails) -> tuple[FloatArray, FloatArray]:
    (level, own), (other_level, other_own) = _level(part), _level(other)
    return level - other_level, own + other_own


def _growth_level(part: SliceTails) -> tuple[FloatArray, FloatArray]:
    """Return `_level` on log(x + GROWTH_OFFSET): what a run gains from nothing in its first steps is no noise."""
    return _level(part, lambda nats: np.log(nats + GROWTH_OFFSET))


def _level(
    part: SliceTails, scale: Callable[[FloatArray], FloatArray] = lambda nats: np.log(np.maximum(nats, LEVEL_FLOOR))
) -> tuple[FloatArray, FloatArray]:
    """Return the blocks' mean log percentile, and the variance that redrawing its units gives each block."""
    levels, variances = [], []
    for percentile in part.percentiles.values():
        levels.append(scale(percentile.equal))
        usable = np.isfinite(percentile.equal) & np.isfinite(percentile.drawn).all(axis=1)
        if usable.any():
            variances.append(float(scale(percentile.drawn[usable]).var(axis=1).mean()))
    mean = float(np.mean(variances)) if variances else math.nan
    return np.mean(levels, axis=0), _own_variances(mean, part.tokens)


def _own_variances(mean: float, tokens: IntArray) -> FloatArray:
    """Return each block's variance, inversely proportional to its tokens, with mean `mean`.

    Only tokens count: resampled variances would trust a block most when its sample missed the tail's sequences.
    """
    inverse = np.where(tokens >= MIN_BLOCK_TOKENS, 1 / np.maximum(tokens, MIN_BLOCK_TOKENS), np.nan)
    if not np.isfinite(inverse).any():
        return np.full(len(tokens), mean)
    return np.asarray(mean * inverse / np.nanmean(inverse))


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

    `windows` are three spans, `blocks` the finer ones that are resampled; a block belongs to the window it starts in.
    `far`: the spans in which extreme tokens are counted; the blocks if None. Give two runs that are compared different
    seeds: with the same random numbers their resamples would move together.
    """
    in_blocks = label_spans(sequences, blocks, name="block")
    redrawn = resample_blocks(in_blocks, blocks=len(blocks), seed=seed)
    by_block, by_window, by_sixth = (percentiles_by_span(cells, spans) for spans in (blocks, windows, sixths))
    tokens = by_block["n"].to_numpy()
    enough = tokens >= MIN_BLOCK_TOKENS
    thirds = np.array([sum(span.first <= block.first for span in windows) - 1 for block in blocks])
    equal = _equal_percentiles(in_blocks, redrawn.recorded, thirds, seed=seed + 30)
    quantiles = list(TAIL_QUANTILES.values())
    coarse_drawn, coarse = (coarse_percentiles(each, quantiles) for each in (redrawn.drawn, redrawn.recorded))
    coarse_windows = [
        _pooled(redrawn, np.flatnonzero((thirds == window) & (redrawn.units > 0)), quantiles, seed=seed + 1 + window)
        for window in range(len(by_window))
    ]
    percentile_tails = {}
    groups = grouped_blocks(len(blocks))
    merged = np.array([redrawn.recorded[group].sum(axis=0) for group in groups])
    merged[merged.sum(axis=1) < MIN_BLOCK_TOKENS] = 0.0  # without a percentile
    for number, (column, q) in enumerate(TAIL_QUANTILES.items()):
        fine = np.where(enough, by_block[column].to_numpy(), np.nan)
        in_windows = zip(coarse_windows, by_window[column].to_numpy(), strict=True)
        percentile_tails[column] = Percentile(
            blocks=fine,
            equal=fine if equal is None else equal[number][0],
            grouped=coarse_percentile(merged, q) if equal is None else equal[number][1],
            drawn=rescale(coarse_drawn[number], coarse[number], fine),
            windows=by_window[column].to_numpy(),
            windows_drawn=np.array([rescale(*window[number], np.asarray(value)) for window, value in in_windows]),
            last_sixth=float(by_sixth[column].to_numpy()[-1]) if len(by_sixth) else math.nan,
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


def _equal_percentiles(
    in_blocks: pl.DataFrame, recorded: FloatArray, window: IntArray, *, seed: int
) -> list[tuple[FloatArray, FloatArray]] | None:
    """Return each percentile of as many tokens of each block, and of each group of them; None where all hold as many.

    It is the mean over draws, on the scale of growth. `window`: of the run, that each block begins in. A block that
    holds few tokens though others of its window hold many has no value: all others would be thinned to as few.
    """
    held = recorded.sum(axis=1)
    full = full_block(held, np.bincount(window, held).astype(np.float64), least=MIN_BLOCK_TOKENS)
    usable = np.flatnonzero(held >= max(MIN_BLOCK_TOKENS, MIN_FULL_SHARE * full))
    if len(usable) < MIN_SHIFT_BLOCKS:
        return None
    tokens, sequences = int(held[usable].min()), np.bincount(in_blocks["block"].to_numpy(), minlength=len(held))
    alike = held[usable].max() <= UNEQUAL * tokens
    many = tokens >= PLENTY_TOKENS and sequences[usable].min() >= PLENTY_UNITS
    if len(usable) == np.count_nonzero(held >= MIN_BLOCK_TOKENS) and (alike or many):
        return None
    by_sequence = in_blocks.with_columns(unit=pl.col("seq"))
    thinned = thin_blocks(by_sequence, blocks=len(held), tokens=tokens, seed=seed)
    groups = [[thinned[block] for block in group.tolist() if block in thinned] for group in grouped_blocks(len(held))]
    whole = {place: np.sum(group, axis=0) for place, group in enumerate(groups) if len(group) >= MERGED - 1}
    generator = np.random.default_rng(seed + 1)
    fewest = tokens * min((len(groups[place]) for place in whole), default=1)
    pooled = {place: thin_histograms(each, fewest, generator) for place, each in whole.items()}
    return list(zip(_mean_percentiles(thinned, len(held)), _mean_percentiles(pooled, len(groups)), strict=True))


def _mean_percentiles(drawn: Mapping[int, FloatArray], count: int) -> list[FloatArray]:
    """Return each percentile's mean over draws, where there are any, on the scale of growth."""
    found = [np.full(count, np.nan) for _ in TAIL_QUANTILES]
    if drawn:
        of_draws = coarse_percentiles(np.stack(list(drawn.values())), list(TAIL_QUANTILES.values()))
        for values, of_quantile in zip(found, of_draws, strict=True):
            values[list(drawn)] = np.exp(np.log(of_quantile + GROWTH_OFFSET).mean(axis=1)) - GROWTH_OFFSET
    return found


def even_blocks(observed: Sequence[Span], count: int, slices: Sequence[pl.DataFrame]) -> tuple[Span, ...]:
    """Join observations to at most `count` blocks of as many steps each, and these where they hold few tokens.

    slices: step and n of each slice's tokens, in any number of rows.
    """
    spans = join_spans(observed, count)
    tokens = np.zeros((len(slices), len(spans)), np.int64)
    for row, part in zip(tokens, slices, strict=True):
        labelled = label_spans(part.select("step", "n"), spans, name="block")
        row += np.bincount(labelled["block"].to_numpy(), labelled["n"].to_numpy(), len(spans)).astype(np.int64)
    groups = fill_blocks(spans, tokens, least=MIN_BLOCK_TOKENS)
    return tuple(Span(spans[group[0]].first, spans[group[-1]].last) for group in groups)


def count_within(observed: Sequence[Span], blocks: Sequence[Span]) -> IntArray:
    """Return how many of the observations each block holds."""
    firsts = np.array([span.first for span in observed])
    return np.array([int(np.count_nonzero((firsts >= b.first) & (firsts <= b.last))) for b in blocks], dtype=np.int64)


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
    """Scale the spread of coarse percentiles so that it centres on the exact value."""
    usable = (centre > 0) & np.isfinite(centre)
    factor = np.divide(exact, centre, out=np.ones_like(np.asarray(centre, dtype=float)), where=usable)
    if drawn.ndim > factor.ndim:
        factor = factor[..., None]
    scaled: FloatArray = drawn * np.where(np.isfinite(factor), factor, np.nan)
    return scaled
