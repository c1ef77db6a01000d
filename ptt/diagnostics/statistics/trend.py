"""Trends of a noisy series: shift of the late third, test for flatness, first lasting excess."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray, dot, product
from ptt.diagnostics.statistics.small_sample import block_means, centred_positions, fit_line

STEP_AR1: Final = 0.6
"""AR(1) of step noise that a shift is tested against; docs/statistics.md has what noise of 0, 0.5, 0.8 does."""
MIN_AR1: Final = 0.2  # however far apart the recorded steps are
NULL_DRAWS: Final = 4999  # of noise without any shift: p-values go down to 0.0002
MIN_SHIFT_BLOCKS: Final = 6  # four differences to tell their scatter from
MIN_PART: Final = 2  # blocks before a shift or after it: one alone is an accident
MIN_THIRD: Final = 3  # blocks: ranks of two against two show nothing at 5%, however far apart they are
MIN_VARIANCE: Final = 1e-18
FLATNESS_BLOCKS: Final = 12
FLAT_WITHIN_SD: Final = 2.0  # a total change within two robust standard deviations of a block mean is no change
T90_DF10: Final = 1.812  # Student t, 95th percentile at 10 degrees of freedom (12 blocks, 2 parameters)
T95_DF10: Final = 2.228


@dataclass(frozen=True, kw_only=True)
class StepNoise:
    """How noise that all sequences of a step share goes on: observations of each block, training steps between them."""

    observations: IntArray
    gap: float = 1.0

    @property
    def correlation(self) -> float:
        """Of one observation with the next; at least MIN_AR1, since batch noise and drift outlast a few steps."""
        return max(MIN_AR1, math.pow(STEP_AR1, self.gap))

    def merged(self, groups: Sequence[IntArray]) -> StepNoise:
        """Return the noise of groups of blocks."""
        return StepNoise(observations=np.array([self.observations[group].sum() for group in groups]), gap=self.gap)


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Blocks that are set against each other: indices of the earlier and of the later ones, ascending."""

    before: IntArray
    after: IntArray

    def spread(self, groups: Sequence[IntArray]) -> Contrast:
        """Return the contrast of the blocks in these groups, for a contrast between groups."""
        before, after = (np.concatenate([groups[int(index)] for index in part]) for part in (self.before, self.after))
        return Contrast(before=before, after=after)


def shift_p_value(
    values: FloatArray,
    contrast: Contrast,
    *,
    own: FloatArray,
    noise: StepNoise,
    most_own: float,
    seed: int,
    margin: float = 0.0,
    draws: int = NULL_DRAWS,
) -> float:
    """Return the one-sided p-value of later blocks more than `margin` above earlier ones.

    values: block values on a scale where noise is additive; own: each block's own variance, from resampling its
    sequences; noise: what its steps share. The statistic is Student's t, with scatter estimated from differences of
    neighbouring blocks within each part, so that growth of any shape hardly counts as noise. Its null is simulated: the
    share `own` of the scatter (at most `most_own`) is independent between blocks, the rest follows the AR(1) of
    `noise`. Blocks without a value are left out.
    """
    usable = np.flatnonzero(np.isfinite(values))
    held = Contrast(before=np.searchsorted(usable, np.intersect1d(usable, contrast.before)),
                    after=np.searchsorted(usable, np.intersect1d(usable, contrast.after)))  # fmt: skip
    parts = len(held.before), len(held.after)
    if len(usable) < MIN_SHIFT_BLOCKS or sum(parts) < 2 * MIN_PART or not min(parts):
        return math.nan
    observed, scatter = (float(value) for value in _contrast_statistic(values[usable], held, margin))
    if scatter <= MIN_VARIANCE:  # no noise at all: any shift is one
        return 1.0 if observed <= 0 else 1 / (1 + draws)
    draw = _draw_noise(own, scatter, usable, noise=noise, most_own=most_own, seed=seed, draws=draws)
    drawn, _ = _contrast_statistic(draw[:, usable], held)
    return float((1 + np.count_nonzero(drawn >= observed - 1e-9)) / (1 + draws))


@dataclass(frozen=True, kw_only=True)
class Scan:
    """A shift that begins anywhere: its p-value, the blocks (or groups of them) that show it most clearly."""

    p_value: float
    contrast: Contrast | None  # None: too few blocks with a value
    grouped: bool = False  # the contrast is between groups


def scan_shifts(
    values: FloatArray,
    grouped: FloatArray,
    groups: Sequence[IntArray],
    *,
    own: FloatArray,
    noise: StepNoise,
    most_own: float,
    seed: int,
    draws: int = NULL_DRAWS,
) -> Scan:
    """Return the p-value of a shift that begins anywhere, by block or by group of neighbouring blocks.

    As in `shift_p_value`, but comparing all blocks from any place on with all before it, and the late third with the
    early one. The statistic is the largest of these, for the values and for the groups (`grouped`). The smaller of the
    two p-values is compared with the smaller of two in draws of the null (Westfall and Young), so that many places need
    no further correction.
    """
    usable, wide = np.flatnonzero(np.isfinite(values)), np.flatnonzero(np.isfinite(grouped))
    if len(usable) < MIN_SHIFT_BLOCKS:
        return Scan(p_value=math.nan, contrast=None)
    shown, best, scatter = _largest(values[usable])
    contrast = Contrast(before=usable[shown.before], after=usable[shown.after])
    if scatter <= MIN_VARIANCE:  # no noise at all: any shift is one
        return Scan(p_value=1.0 if best <= 0 else 1 / (1 + draws), contrast=contrast)
    draw = _draw_noise(own, scatter, usable, noise=noise, most_own=most_own, seed=seed, draws=draws)
    fine = _exceedance(best, np.max([each for each, _ in _scan_statistics(draw[:, usable])], axis=0))
    if len(wide) < MIN_SHIFT_BLOCKS:
        return Scan(p_value=float(fine[0]), contrast=contrast)
    of_groups, best, _ = _largest(grouped[wide])
    merged = np.stack([draw[:, groups[int(index)]].mean(axis=1) for index in wide], axis=1)
    coarse = _exceedance(best, np.max([each for each, _ in _scan_statistics(merged)], axis=0))
    smaller = np.minimum(fine, coarse)
    p_value = float((1 + np.count_nonzero(smaller[1:] <= smaller[0] + 1e-12)) / (1 + draws))
    if fine[0] <= coarse[0]:
        return Scan(p_value=p_value, contrast=contrast)
    return Scan(
        p_value=p_value,
        contrast=Contrast(before=wide[of_groups.before], after=wide[of_groups.after]),
        grouped=True,
    )


def _largest(values: FloatArray) -> tuple[Contrast, float, float]:
    """Return the contrast with the largest statistic, the statistic, and the variance beside it."""
    results = _scan_statistics(values)
    best = int(np.argmax([float(statistic) for statistic, _ in results]))
    return _places(len(values))[best], float(results[best][0]), float(results[best][1])


def _exceedance(observed: float, drawn: FloatArray) -> FloatArray:
    """Return the share of all that is as large, for the observed value and then for each drawn one."""
    every = np.append(observed, drawn)
    ranks = np.searchsorted(np.sort(every), every - 1e-9)
    shares: FloatArray = (len(every) - ranks) / len(every)
    return shares


def _scan_statistics(values: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
    """Return `_contrast_statistic` of each of `_places`, from running sums."""
    count = values.shape[-1]
    first, *_ = _places(count)
    results = [_contrast_statistic(values, first)]
    sums, squares = np.cumsum(values, axis=-1), np.square(np.diff(values, axis=-1))
    total, scatter = sums[..., -1], squares.sum(axis=-1)
    for place in range(MIN_PART, count - MIN_PART + 1):
        variance = np.maximum(scatter - squares[..., place - 1], 0.0) / (2 * (count - 2))
        error = np.sqrt(np.maximum(variance, MIN_VARIANCE) * (1 / place + 1 / (count - place)))
        before, after = sums[..., place - 1] / place, (total - sums[..., place - 1]) / (count - place)
        results.append(((after - before) / error, variance))
    return results


def _places(count: int) -> list[Contrast]:
    """Return the contrasts among `count` blocks: late against early third, and every split but the outermost."""
    third, every = max(MIN_THIRD, count // 3), np.arange(count)
    splits = [Contrast(before=every[:place], after=every[place:]) for place in range(MIN_PART, count - MIN_PART + 1)]
    return [Contrast(before=every[:third], after=every[-third:]), *splits]


def _draw_noise(
    own: FloatArray, scatter: float, usable: IntArray, *, noise: StepNoise, most_own: float, seed: int, draws: int
) -> FloatArray:
    """Draw block noise without any shift, (draws, blocks): the blocks' own, and what steps share.

    Of the blocks that are `usable` the variance is 1 on average. A block of few tokens or steps has more than others.
    """
    mean = float(np.mean(own[usable]))
    share = min(most_own, mean / scatter) if math.isfinite(mean) else 0.0
    relative = np.divide(own, mean, out=np.ones(len(own)), where=np.isfinite(own) & (mean > 0))
    shared = block_covariance(np.maximum(noise.observations, 1), noise.correlation)
    shared /= np.diag(shared)[usable].mean()
    covariance = (1 - share) * shared + share * np.diag(relative)
    return product(np.random.default_rng(seed).normal(size=(draws, len(own))), np.linalg.cholesky(covariance).T)


def _contrast_statistic(values: FloatArray, contrast: Contrast, margin: float = 0.0) -> tuple[FloatArray, FloatArray]:
    """Return later minus earlier mean minus `margin` in standard errors, and the variance within parts (last axis)."""
    before, after = values[..., contrast.before], values[..., contrast.after]
    squares = np.square(np.diff(before, axis=-1)).sum(axis=-1) + np.square(np.diff(after, axis=-1)).sum(axis=-1)
    variance = squares / (2 * (before.shape[-1] + after.shape[-1] - 2))
    error = np.sqrt(np.maximum(variance, MIN_VARIANCE) * (1 / before.shape[-1] + 1 / after.shape[-1]))
    return (after.mean(axis=-1) - before.mean(axis=-1) - margin) / error, variance


def block_correlation(count: int, steps: int, ar1: float = STEP_AR1) -> FloatArray:
    """Return the correlations of `count` means of `steps` steps each, where single steps follow an AR(1)."""
    covariance = block_covariance(np.full(count, steps), ar1)
    correlation: FloatArray = covariance / covariance[0, 0]
    return correlation


def block_covariance(steps: IntArray, ar1: float = STEP_AR1) -> FloatArray:
    """Return the covariances of means of consecutive runs of steps, (steps[i],) each, where steps follow an AR(1)."""
    first = np.cumsum(steps) - steps
    decayed = (1 - ar1**steps) / (1 - ar1)
    between = first[None, :] - (first + steps - 1)[:, None]
    shared = decayed[:, None] * decayed[None, :] * ar1 ** np.maximum(np.where(between > 0, between, between.T), 0)
    inner = (steps * (1 + ar1) - 2 * ar1 * decayed) / (1 - ar1)
    covariance: FloatArray = np.where(np.eye(len(steps), dtype=np.bool_), inner, shared) / np.outer(steps, steps)
    return covariance


def classify_trend(values: FloatArray) -> str:
    """Return `flat`, `rose`, `fell` or `cannot_say` from 12 block means by two one-sided tests.

    flat: the 90% interval of the total change lies within +-2 robust SD of the values about their line (absence of
    a trend is not flatness); rose or fell: the 95% interval excludes 0.
    """
    values = values[np.isfinite(values)]
    if len(values) < 2 * FLATNESS_BLOCKS:
        return "cannot_say"
    if np.ptp(values) == 0:  # on the values, since means of equal values differ in their last bit
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
    """Return the mean of the finite ones of the last `width` values, (..., n); NaN before `minimum` (or `width`)."""
    finite = np.isfinite(values)
    pad = np.zeros((*values.shape[:-1], width))
    padded = np.concatenate([pad, np.where(finite, values, 0.0)], axis=-1)
    windows = sliding_window_view(padded, width, axis=-1)[..., 1:, :]
    # counts are whole numbers, which a running sum keeps
    seen = np.cumsum(np.concatenate([pad, finite], axis=-1), axis=-1)
    count = seen[..., width:] - seen[..., :-width]
    # each window is added up by itself: a running sum would keep what one huge value left of its neighbours
    mean: FloatArray = np.divide(windows.sum(axis=-1), count, out=np.full(values.shape, np.nan), where=count > 0)
    mean[..., : (width if minimum is None else minimum) - 1] = np.nan
    return mean


def first_lasting_excess(exceeds: BoolArray, *, share: float = 0.8) -> int | None:
    """Return the first index that exceeds and from which at least `share` of the entries exceed, or None."""
    if not exceeds.any():
        return None
    ahead = np.cumsum(exceeds[::-1])[::-1] / np.arange(len(exceeds), 0, -1)
    positions = np.flatnonzero(exceeds & (ahead >= share))
    return int(positions[0]) if len(positions) else None
