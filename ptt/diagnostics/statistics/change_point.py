"""Whether a few noisy values shifted from one level to another, and where: rank sums, and the likeliest place."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from ptt.diagnostics.statistics.arrays import FloatArray

DRAWS: Final = 999
SEED: Final = 20_260_217
TOLERANCE: Final = 1e-12  # of a likelihood: sums in another order
SUPPORT_NATS: Final = 3.0  # nats below the best: what a place of a change may lose and still be one; e^3 is 20 to 1


def rank_shift(early: FloatArray, late: FloatArray) -> float:
    """Return the rank-sum statistic of `late` over `early` in standard deviations, ties counted half (Mann, Whitney).

    It asks nothing of the noise but that values are exchangeable where nothing changed: no wild value decides it. 0
    where all values are equal or one side has none.
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
    """Return the index at which the second of two rates most likely begins, and the interval that holds it.

    The first of these is the last value that is surely of the old rate. Counts over so many trials, trials above 0, as
    likely as Poisson ones that scatter as widely as these do (quasi-likelihood); None for fewer than two values or none
    that hit.
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
    """Return likewise where the second of two means most likely begins, of values with normal noise of one variance."""
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
    """Return likewise where the second of two variances begins, from squared deviations; None where all are 0."""
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
