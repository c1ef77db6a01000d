"""Whether and where noisy values shifted from one level to another, or passed one for good."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from ptt.diagnostics.statistics.arrays import FloatArray

DRAWS: Final = 999
SEED: Final = 20_260_217
TOLERANCE: Final = 1e-12  # of a likelihood: summing in another order changes it by no more
SUPPORT_NATS: Final = 3.0  # nats below the best: what a place of a change may lose and still be one; e^3 is 20 to 1


def rank_shift(early: FloatArray, late: FloatArray) -> float:
    """Return the rank-sum statistic of `late` over `early` in standard deviations, ties counted half (Mann, Whitney).

    It assumes only that values are exchangeable where nothing changed, so no single outlier decides it. 0 where all
    values are equal or one side is empty.
    """
    first, second = len(early), len(late)
    values = np.concatenate([early, late])
    distinct, at, ties = np.unique(values, return_inverse=True, return_counts=True)
    if not first or not second or len(distinct) < 2:
        return 0.0
    ranks = (np.cumsum(ties) - (ties - 1) / 2)[at]
    total = first + second
    tied = float((ties.astype(np.float64) ** 3 - ties).sum()) / (total * (total - 1))
    variance = first * second / 12 * (total + 1 - tied)
    return float((ranks[first:].sum() - second * (total + 1) / 2) / math.sqrt(variance))


def rate_change(hits: FloatArray, trials: FloatArray) -> tuple[int, int, int] | None:
    """Return the index where a second rate most likely begins, and the bounds of its support interval.

    The lower bound is the last value that surely has the old rate. Counts are taken as Poisson with the scatter seen
    here (quasi-likelihood); all trials must be above 0. None for fewer than two values or no hits.
    """
    if len(hits) < 2 or not hits.sum():
        return None
    gain = _rate_gains(hits, trials)
    change = int(np.argmax(gain)) + 1
    expected = np.empty(len(hits))
    for part in (slice(None, change), slice(change, None)):
        expected[part] = trials[part] * hits[part].sum() / trials[part].sum()
    usable = expected > 0
    scatter = float(((hits - expected)[usable] ** 2 / expected[usable]).sum()) / max(1, int(usable.sum()) - 2)
    return _support_interval(gain / scatter if scatter > 0 else gain)


def mean_change(values: FloatArray) -> tuple[int, int, int] | None:
    """Do the same for two means, under normal noise of one variance."""
    count = len(values)
    if count < 3 or not float(np.ptp(values)):
        return None
    left = np.arange(1, count)
    centred = values - values.mean()
    between = np.cumsum(centred)[:-1] ** 2 * (1 / left + 1 / (count - left))
    within = np.maximum(float(centred @ centred) - between, np.finfo(np.float64).tiny)
    return _support_interval(-count / 2 * np.log(within))


def permutation_p_value(values: FloatArray, *, draws: int = DRAWS) -> float:
    """Return how often values in another order change their rate as clearly as in this one (permutation test)."""
    generator = np.random.default_rng(SEED)
    observed = float(_rate_gains(values, np.ones(len(values))).max())
    mixed = generator.permuted(np.tile(values, (draws, 1)), axis=1)
    as_clear = _rate_gains(mixed, np.ones_like(mixed)).max(axis=1) >= observed - TOLERANCE * abs(observed)
    return float(as_clear.sum() + 1) / (draws + 1)


def spread_change(squares: FloatArray) -> tuple[int, int, int] | None:
    """Do the same for two variances, from squared deviations; None where all are 0."""
    count = len(squares)
    left = np.arange(1, count)
    before = np.cumsum(squares)[:-1]
    after = squares.sum() - before
    if count < 2 or not squares.sum():
        return None
    floor = (
        np.finfo(np.float64).tiny + 1e-9 * squares.sum() / count
    )  # a stretch without any scatter is not infinitely sure
    gain = -0.5 * (left * np.log(before / left + floor) + (count - left) * np.log(after / (count - left) + floor))
    return _support_interval(gain)


def stretch_apart(values: FloatArray, error: float) -> tuple[float, int, int] | None:
    """Return the stretch of values, (n,), that lies furthest below those before and after it, as z, first and end.

    error: standard error of a mean of one value, autocorrelation included. The z is that of the weaker of both sides;
    the stretch's first and last values must lie as low as the rest, so that what bends slowly is none. None where the
    series is short, or without noise.
    """
    count = len(values)
    least = max(LEAST_STRETCH, int(LEAST_STRETCH_SHARE * count))
    if count < 4 * least or not error > 0:
        return None
    sums = np.concatenate([[0.0], np.cumsum(values)])
    grid = max(1, count // STRETCH_PLACES)
    best: tuple[float, int, int] | None = None
    for first in range(least, count - 2 * least + 1, grid):
        ends = np.arange(first + least, count - least + 1, grid)
        start, beyond = max(0, first - 2 * least), np.minimum(count, ends + 2 * least)
        before = (sums[first] - sums[start]) / (first - start)
        after = (sums[beyond] - sums[ends]) / (beyond - ends)
        whole = (sums[ends] - sums[first]) / (ends - first)
        begun, ended = (sums[first + least] - sums[first]) / least, (sums[ends] - sums[ends - least]) / least
        depth = np.minimum(before - np.maximum(whole, begun), after - np.maximum(whole, ended))
        z = depth / (error * np.sqrt(1 / least + 1 / np.minimum(first - start, beyond - ends)))
        place = int(np.argmax(z))
        if best is None or z[place] > best[0]:
            best = float(z[place]), first, int(ends[place])
    return best


LEAST_STRETCH: Final = 8  # values: of fewer, no level is known
LEAST_STRETCH_SHARE: Final = 0.08  # of the series: shorter ones are excursions
STRETCH_PLACES: Final = 200  # places of an edge that are tried


def _rate_gains(hits: FloatArray, trials: FloatArray) -> FloatArray:
    """Return the log-likelihood of two rates with the second from each place but the first on, by the last axis."""
    before, of = np.cumsum(hits, axis=-1)[..., :-1], np.cumsum(trials, axis=-1)[..., :-1]
    gains: FloatArray = _poisson(before, of) + _poisson(
        hits.sum(axis=-1, keepdims=True) - before, trials.sum(axis=-1, keepdims=True) - of
    )
    return gains


def _poisson(hits: FloatArray, trials: FloatArray) -> FloatArray:
    rate = np.divide(hits, trials, out=np.ones(hits.shape), where=hits > 0)
    return hits * np.log(rate)


def _support_interval(gain: FloatArray) -> tuple[int, int, int]:
    near = np.flatnonzero(gain >= gain.max() - SUPPORT_NATS)
    return int(np.argmax(gain)) + 1, int(near[0]), int(near[-1]) + 1


CROSSING_DRAWS: Final = 400
CROSSING_SEED: Final = 20_261_123
INTERVAL: Final = (2.5, 97.5)
TINY: Final = 1e-9  # a share of 0 has a logarithm then
SPREAD: Final = 2.5  # times the residuals: a monotone fit follows noise of steps that follow each other
MIN_LEVEL_VALUES: Final = 5  # that give a level, however soon after a change the series ends
MAX_ROUNDS: Final = 8  # each places a change halfway between better known levels: most need two
STILL_MOVING_SDS: Final = 3.0  # standard deviations: with noise alone the later half is this far off once in 700 times


def level_crossing(values: FloatArray, level: float) -> int | None:
    """Return the first index at which the best non-decreasing fit of values, (n,), lies above a level, or None.

    The index needs no fit: the running sum of value minus level is smallest just before it.
    """
    sums = np.concatenate([[0.0], np.cumsum(values - level)])
    least = len(sums) - 1 - int(np.argmin(sums[::-1]))  # of equals the last: above, not at it
    return least if least < len(values) else None


def change_place(values: FloatArray, before: float, most: int) -> int:
    """Return the first index of the level that values, (n,), change to from a level `before` and keep to the end.

    It is where they cross halfway for good. A value counts by its distance from halfway, capped at half the change, so
    a few outliers move nothing. The new level is estimated from up to `most` last values; if the change falls among
    them they mix both levels, so the place is searched again with only the values after it, until it stays.
    """
    place = 0
    for _ in range(MAX_ROUNDS):
        half = (float(values[max(place, len(values) - most) :].mean()) - before) / 2
        if not half:
            break
        found = level_crossing(np.clip((values - before) / half - 1, -1.0, 1.0), 0.0)
        found = min(len(values) if found is None else found, len(values) - MIN_LEVEL_VALUES)
        if found == place:
            break
        place = max(0, found)
    return place


def level_after(values: FloatArray, before: float, most: int, noise: float) -> float:
    """Return the mean of up to `most` last values that come after the change from a level `before`.

    Of values that still move on, beyond their noise, those of the later half alone, and so on. noise: the standard
    deviation of a mean over `most` values.
    """
    count = min(most, len(values) - change_place(values, before, most))
    level = float(values[-count:].mean())
    while count >= 2 * MIN_LEVEL_VALUES:
        later = float(values[-(count // 2) :].mean())
        further = (later - level) * (1.0 if level > before else -1.0)
        if further <= STILL_MOVING_SDS * noise * (most / (count // 2)) ** 0.5:
            break
        count, level = count // 2, later
    return level


def crossing_interval(values: FloatArray, level: float, *, draws: int = CROSSING_DRAWS) -> tuple[int, int]:
    """Return the 95% interval of the index at which values cross a level; len(values) means beyond their end.

    Residuals of the best non-decreasing fit, scaled by SPREAD, are resampled in blocks of about sqrt(n) (moving-block
    bootstrap, Kunsch 1989).
    """
    fit = isotonic_fit(values)
    off = SPREAD * (values - fit)
    count = len(values)
    size = max(1, round(count**0.5))
    starts = np.random.default_rng(CROSSING_SEED).integers(0, count - size + 1, size=(draws, -(-count // size)))
    drawn = fit + off[(starts[:, :, None] + np.arange(size)).reshape(draws, -1)[:, :count]]
    sums = np.concatenate([np.zeros((draws, 1)), np.cumsum(drawn - level, axis=1)], axis=1)
    least = count - np.argmin(sums[:, ::-1], axis=1)
    low, high = (int(bound) for bound in np.percentile(least, INTERVAL, method="nearest"))
    return low, high


def share_crossing_interval(hits: FloatArray, trials: FloatArray, level: float, first: int) -> tuple[int, int]:
    """Return the indices between which a rising share crossed a level, most likely at `first`.

    An index is in the interval if a rising share that is below the level before it and above the level from it on is
    hardly less likely than the best fit (SUPPORT_NATS). Hits are taken as binomial with the scatter that they show
    about the best rising share (quasi-likelihood); trials above 0, level within 0 and 1.
    """
    fit = np.clip(isotonic_fit(hits / trials, trials), TINY, 1 - TINY)
    scatter = float(np.sum((hits - trials * fit) ** 2 / (trials * fit * (1 - fit)))) / max(1, len(hits) - 2)
    lost = trials * (fit * np.log(fit / level) + (1 - fit) * np.log((1 - fit) / (1 - level)))
    allowed = SUPPORT_NATS * scatter
    before = np.cumsum(np.where(fit < level, lost, 0.0)[:first][::-1])
    after = np.cumsum(np.where(fit > level, lost, 0.0)[first:])
    return first - int((before <= allowed).sum()), first + int((after[:-1] <= allowed).sum())


def isotonic_fit(values: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """Return the non-decreasing values nearest to these by (weighted) least squares (pool adjacent violators)."""
    sums: list[float] = []
    sizes: list[float] = []
    counts: list[int] = []
    of = np.ones(len(values)) if weights is None else weights
    for value, weight in zip(values.tolist(), of.tolist(), strict=True):
        total, size, count = value * weight, weight, 1
        while sums and sums[-1] * size >= total * sizes[-1]:
            total, size, count = total + sums.pop(), size + sizes.pop(), count + counts.pop()
        sums.append(total)
        sizes.append(size)
        counts.append(count)
    return np.repeat(np.array(sums) / np.array(sizes), counts)
