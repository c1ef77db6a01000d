"""Trends of a noisy series: shift of the late third, rank test, test for flatness, first lasting excess."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray
from ptt.diagnostics.statistics.detrended_noise import block_means, centred_positions, fit_line
from ptt.diagnostics.statistics.dot_product import dot, product

STEP_AR1: Final = 0.4
"""AR(1) of step noise that a shift is tested against; docs/statistics.md has what noise of 0, 0.5, 0.8 does."""
MIN_SHIFT_BLOCKS: Final = 9  # three in a third: two differences to tell its scatter from
MIN_VARIANCE: Final = 1e-18
FLATNESS_BLOCKS: Final = 12
FLAT_WITHIN_SD: Final = 2.0  # a total change within two robust standard deviations of a block mean is no change
T90_DF10: Final = 1.812  # Student t, 95th percentile at 10 degrees of freedom (12 blocks, 2 parameters)
T95_DF10: Final = 2.228


def trend_p_value(values: FloatArray, *, seed: int, permutations: int = 9999) -> float:
    """Return the one-sided p-value of an upward trend: block order permuted, statistic sum of rank x position.

    Ranks, so that one wild block decides nothing. Exact in its null for exchangeable blocks; the caller makes blocks
    long enough for neighbours to be nearly so.
    """
    usable = values[np.isfinite(values)]
    count = len(usable)
    if count < 4:
        return math.nan
    _, rank_of, ties = np.unique(usable, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(ties) - (ties + 1) / 2)[rank_of]  # equal values share a rank: a flat stretch is no trend
    position = centred_positions(count)
    observed = dot(ranks, position)
    generator = np.random.default_rng(seed)
    shuffled = generator.permuted(np.broadcast_to(ranks, (permutations, count)), axis=1)
    return float((1 + np.count_nonzero(product(shuffled, position) >= observed - 1e-9)) / (1 + permutations))


def shift_p_value(
    values: FloatArray, *, own: float, steps: float, most_own: float, seed: int, margin: float = 0.0, draws: int = 4999
) -> float:
    """Return the one-sided p-value of a late third more than `margin` above the early one.

    values: block values on a scale where noise adds up; own: the variance a block has by itself, from redrawing its
    sequences; steps: in a block, which follow each other. The statistic is Student's, its scatter from how neighbouring
    blocks differ within the two thirds: growth, whatever its shape, then hardly passes for noise. Its null is drawn:
    the share `own` of the scatter (`most_own` at most) independent from block to block, the rest an AR(1) of STEP_AR1
    over steps.
    """
    usable = values[np.isfinite(values)]
    if len(usable) < MIN_SHIFT_BLOCKS:
        return math.nan
    observed, scatter = (float(value) for value in _thirds_statistic(usable, margin))
    if scatter <= MIN_VARIANCE:  # no noise at all: any shift is one
        return 1.0 if observed <= 0 else 1 / (1 + draws)
    drawn, _ = _thirds_statistic(
        _noise(len(usable), own / scatter, steps=steps, most_own=most_own, seed=seed, draws=draws)
    )
    return float((1 + np.count_nonzero(drawn >= observed - 1e-9)) / (1 + draws))


def late_shift(
    values: FloatArray, *, own: float, steps: float, most_own: float, seed: int, sizes: Sequence[int], draws: int = 4999
) -> tuple[float, int]:
    """Return the p-value of a rise in the last blocks, and how many blocks rose most clearly.

    As `shift_p_value`, with the last `size` blocks against all before them; the statistic is the largest over `sizes`
    and its null is drawn as that maximum, so that looking at several ends costs nothing.
    """
    usable = values[np.isfinite(values)]
    sizes = [size for size in sizes if 1 <= size <= len(usable) - 3]
    if len(usable) < MIN_SHIFT_BLOCKS or not sizes:
        return math.nan, 0
    results = [_end_statistic(usable, size) for size in sizes]
    observed = max(float(statistic) for statistic, _ in results)
    best = max(range(len(sizes)), key=lambda index: float(results[index][0]))
    scatter = float(results[best][1])
    if scatter <= MIN_VARIANCE:
        return (1.0 if observed <= 0 else 1 / (1 + draws)), sizes[best]
    noise = _noise(len(usable), own / scatter, steps=steps, most_own=most_own, seed=seed, draws=draws)
    drawn = np.max([_end_statistic(noise, size)[0] for size in sizes], axis=0)
    return float((1 + np.count_nonzero(drawn >= observed - 1e-9)) / (1 + draws)), sizes[best]


def _noise(count: int, own_share: float, *, steps: float, most_own: float, seed: int, draws: int) -> FloatArray:
    """Draw block noise without any shift, (draws, count): the blocks' own, and an AR(1) of STEP_AR1 over steps."""
    share = min(most_own, own_share) if math.isfinite(own_share) else 0.0
    correlation = (1 - share) * block_correlation(count, max(1, round(steps))) + share * np.eye(count)
    return product(np.random.default_rng(seed).normal(size=(draws, count)), np.linalg.cholesky(correlation).T)


def _end_statistic(values: FloatArray, size: int) -> tuple[FloatArray, FloatArray]:
    """Return the mean of the last `size` blocks minus that of the others in standard errors, and the variance."""
    rest, end = values[..., :-size], values[..., -size:]
    squares = np.square(np.diff(rest, axis=-1)).sum(axis=-1) + np.square(np.diff(end, axis=-1)).sum(axis=-1)
    variance = squares / (2 * (values.shape[-1] - 2))
    error = np.sqrt(np.maximum(variance, MIN_VARIANCE) * (1 / size + 1 / rest.shape[-1]))
    return (end.mean(axis=-1) - rest.mean(axis=-1)) / error, variance


def _thirds_statistic(values: FloatArray, margin: float = 0.0) -> tuple[FloatArray, FloatArray]:
    """Return late minus early mean minus `margin` in standard errors, and the variance within thirds (last axis)."""
    third = values.shape[-1] // 3
    early, late = values[..., :third], values[..., -third:]
    squares = [np.square(np.diff(part, axis=-1)).sum(axis=-1) for part in (early, late)]
    variance = (squares[0] + squares[1]) / (4 * (third - 1))
    error = np.sqrt(np.maximum(variance, MIN_VARIANCE) * 2 / third)
    return (late.mean(axis=-1) - early.mean(axis=-1) - margin) / error, variance


def block_correlation(count: int, steps: int, likeness: float = STEP_AR1) -> FloatArray:
    """Return the correlations of `count` means of `steps` steps each, where single steps follow an AR(1)."""
    apart = np.arange(1, steps)
    own = (steps + 2 * float(((steps - apart) * likeness**apart).sum())) / steps**2
    shared = ((1 - likeness**steps) / (1 - likeness) / steps) ** 2
    lag = np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
    between = shared * likeness ** np.maximum((lag - 1) * steps + 1, 0)
    correlation: FloatArray = np.where(lag == 0, 1.0, between / own)
    return correlation


def classify_trend(values: FloatArray) -> str:
    """Return `flat`, `rose`, `fell` or `cannot_say` from 12 block means by two one-sided tests.

    flat: the 90 % interval of the total change lies within +-2 robust SD of the values about their line (absence of
    a trend is not flatness); rose or fell: the 95 % interval excludes 0.
    """
    values = values[np.isfinite(values)]
    if len(values) < 2 * FLATNESS_BLOCKS:
        return "cannot_say"
    if np.ptp(values) == 0:  # of the values: means of equal values differ in their last bit
        return "flat"
    means = block_means(values, FLATNESS_BLOCKS)
    line, position = fit_line(means), centred_positions(FLATNESS_BLOCKS)
    error = line.sd / math.sqrt(dot(position, position)) * (FLATNESS_BLOCKS - 1)
    change = line.slope * (FLATNESS_BLOCKS - 1)
    about = values - change * np.linspace(-0.5, 0.5, len(values))
    robust = 1.4826 * float(np.median(np.abs(about - np.median(about))))
    bound = FLAT_WITHIN_SD * max(robust, line.sd)
    if abs(change) + T90_DF10 * error <= bound:
        return "flat"
    if abs(change) - T95_DF10 * error > 0:
        return "rose" if change > 0 else "fell"
    return "cannot_say"


def rolling_mean(values: FloatArray, width: int, *, minimum: int | None = None) -> FloatArray:
    """Return the mean of the finite ones of the last `width` values; NaN before `minimum` (or `width`) entries."""
    finite = np.isfinite(values)
    pad = np.zeros(width)
    windows = sliding_window_view(np.concatenate([pad, np.where(finite, values, 0.0)]), width)[1:]
    count = sliding_window_view(np.concatenate([pad, finite]), width)[1:].sum(axis=1)
    # each window is added up by itself: a running sum would keep what one huge value left of its neighbours
    mean: FloatArray = np.divide(windows.sum(axis=1), count, out=np.full(len(values), np.nan), where=count > 0)
    mean[: (width if minimum is None else minimum) - 1] = np.nan
    return mean


def first_lasting_excess(exceeds: BoolArray, *, share: float = 0.8) -> int | None:
    """Return the first index that exceeds and from which on at least `share` of the entries do, or None."""
    if not exceeds.any():
        return None
    ahead = np.cumsum(exceeds[::-1])[::-1] / np.arange(len(exceeds), 0, -1)
    positions = np.flatnonzero(exceeds & (ahead >= share))
    return int(positions[0]) if len(positions) else None
