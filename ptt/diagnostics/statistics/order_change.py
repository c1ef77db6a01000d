"""Whether a mean shifted over the order of blocks, where, and how large a shift would have been seen."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from enum import Enum
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray

PERMUTATIONS: Final = 4999  # orders
AT_A_TIME: Final = 500
TAIL: Final = 0.02  # of them, whose evidence gives the smaller p-values
MIN_TAIL: Final = 20  # of them: with fewer, the tail is not known
SEED: Final = 20_261_123
MIN_BLOCKS: Final = 12  # six against six, apart without overlap, do so by chance twice in 924
MIN_PART: Final = 2  # blocks: one alone is an accident
PART_SHARE: Final = 0.05  # of the blocks, at least, on either side of a change
END_SHARE: Final = 0.2  # of the blocks at either end: they give the levels "at first" and "at the end"
SUPPORT_NATS: Final = 3.0  # nats below the best: what a place of a change may lose and still be one; e^3 is 20 to 1
TOLERANCE: Final = 1e-9
POWER: Final = 0.9  # of the sets with such a change, in which it must be found for it to count as one to be seen
POWER_DRAWS: Final = 300
MAX_RATIO: Final = 300.0  # nats: surer than anything asks for, and safe to raise e to

Matters = Callable[[FloatArray, FloatArray], BoolArray]
"""From the mean at first and the mean at the end to whether that change matters; of arrays, element by element."""


class Scale(Enum):
    """How the noise of values depends on their mean."""

    SHARE = "share"  # from none to all, with the noise of counts
    MEAN = "mean"  # above 0, with noise in proportion
    LEVEL = "level"  # the same everywhere
    LOG = "log"  # the same everywhere, of a logarithm


@dataclass(frozen=True, kw_only=True)
class OrderChange:
    """Levels before and after the likeliest place of a shift, and at the ends, and the range of that place."""

    before: float
    after: float
    early: float  # mean of the first fifth, or of the blocks before the change if they are fewer
    late: float  # the same for the last fifth
    block: int
    low: int
    high: int


def find_change(sums: FloatArray, weights: FloatArray) -> OrderChange | None:
    """Find the likeliest place of a shift in the mean; None for too few blocks, or values all alike.

    sums: of each block's values; weights: how many values, above 0. Noise is normal, with variance inversely
    proportional to the weight.
    """
    count = len(sums)
    centred = _centred(sums, weights)
    if count < MIN_BLOCKS or not np.abs(centred).max() > TOLERANCE:
        return None
    between = np.square(_deviations(centred, weights))
    scatter = float((np.square(centred) / weights).sum())
    within = np.maximum(scatter - between, TOLERANCE * scatter)
    gain = -count / 2 * np.log(within)
    places = np.arange(_part(count), count - _part(count) + 1)
    near = places[gain >= gain.max() - SUPPORT_NATS]
    place, fifth = int(places[np.argmax(gain)]), max(MIN_PART, round(END_SHARE * count))
    levels = [
        float(sums[part].sum() / weights[part].sum())
        for part in (
            slice(0, place),
            slice(place, None),
            slice(0, min(fifth, place)),
            slice(max(count - fifth, place), None),
        )
    ]
    return OrderChange(
        before=levels[0], after=levels[1], early=levels[2], late=levels[3],
        block=place, low=int(near[0]), high=int(near[-1]),
    )  # fmt: skip


def order_p_value(
    sums: FloatArray, weights: FloatArray, *, rises: bool, scale: Scale = Scale.LEVEL, draws: int = PERMUTATIONS
) -> float:
    """Return how often blocks in random order rise (or fall) at least as clearly as in theirs, at whatever place."""
    generator, observed = np.random.default_rng(SEED), float(_evidence(sums, weights, scale, rises=rises))
    found = []
    for size in _batches(draws):
        orders = generator.permuted(np.tile(np.arange(len(sums)), (size, 1)), axis=1)
        found.append(_evidence(sums[orders], weights[orders], scale, rises=rises))
    evidence = np.concatenate(found)
    as_clear = int((evidence >= observed - TOLERANCE * max(1.0, abs(observed))).sum())
    begins, rate = _tail(evidence)
    if as_clear >= TAIL * draws or not rate:
        return (1 + as_clear) / (1 + draws)
    return TAIL * math.exp(-rate * max(0.0, observed - begins))


def smallest_seen(
    weights: FloatArray,
    levels: FloatArray,
    spread: FloatArray,
    *,
    scale: Scale,
    limit: float,
    matters: Matters,
    signal: float = 1.0,
) -> float | None:
    """Return the level nearest to the first one that a shift half-way must reach to be found nine times out of ten.

    levels: ascending or descending, the first one that of the blocks before the shift; spread: the standard deviation
    of a value of weight 1 at each level. limit: the p-value that counts. signal: the share of a shift that is left in
    the values, where their groups' means were taken out. None where not even the last level would be found so often.
    """
    count, rises = len(weights), bool(levels[-1] > levels[0])
    noise = np.random.default_rng(SEED).normal(size=(POWER_DRAWS, count)) / np.sqrt(weights)
    late = np.arange(count) >= count // 2
    begins, rate = _tail(_null(count))
    needed = begins + math.log(TAIL / limit) / rate

    def found(at: int) -> bool:
        shift = signal * (levels[at] - levels[0])
        means = levels[0] + late * shift + noise * np.where(late, spread[at], spread[0])
        clear = _evidence(weights * means, weights, scale, rises=rises) >= needed
        before, after = ((level - levels[0]) / signal + levels[0] for level in _levels(means, weights))
        return float((clear & matters(before, after)).mean()) >= POWER

    if not found(len(levels) - 1):
        return None
    low, high = 0, len(levels) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if found(middle) else (middle, high)
    return float(levels[high])


def block_edges(rows: int, most: int, whole: IntArray | None = None) -> IntArray:
    """Return where each of at most `most` blocks of rows begins, about equal in size; `whole` ones are not split.

    whole: a number for each row; consecutive rows with the same number stay together.
    """
    starts = np.arange(rows) if whole is None else np.flatnonzero(np.diff(whole, prepend=whole[:1] - 1))
    wanted = np.linspace(0, rows, min(most, len(starts)), endpoint=False)
    edges: IntArray = np.unique(starts[np.searchsorted(starts, wanted, side="right") - 1])
    return edges


def _part(count: int) -> int:
    return max(MIN_PART, round(PART_SHARE * count))


def _centred(sums: FloatArray, weights: FloatArray) -> FloatArray:
    centred: FloatArray = sums - weights * (sums.sum(axis=-1, keepdims=True) / weights.sum(axis=-1, keepdims=True))
    return centred


def _deviations(centred: FloatArray, weights: FloatArray) -> FloatArray:
    """Return how far the blocks from each place on lie above those before it, in units whose square is explained."""
    inner = slice(_part(centred.shape[-1]) - 1, centred.shape[-1] - _part(centred.shape[-1]))
    left = np.cumsum(weights, axis=-1)
    total = left[..., -1:]
    part = left[..., inner]
    deviations: FloatArray = -np.cumsum(centred, axis=-1)[..., inner] * np.sqrt(1 / part + 1 / (total - part))
    return deviations


def _evidence(sums: FloatArray, weights: FloatArray, scale: Scale, *, rises: bool) -> FloatArray:
    """Return the mean likelihood ratio of a rise (or fall) over all its places, as a logarithm.

    It loses little against the best place alone where a change lies near an end, and gains where it lies between
    (Andrews and Ploberger 1994). The ratio is that of the scale's own noise, widened by the scatter that blocks show:
    of few hits, and of means with a long tail, a normal one would make too much.
    """
    count = sums.shape[-1]
    inner = slice(_part(count) - 1, count - _part(count))
    run, of = np.cumsum(sums, axis=-1), np.cumsum(weights, axis=-1)
    level, total = run[..., -1:] / of[..., -1:], of[..., -1:]
    early, before = run[..., inner], of[..., inner]
    means = early / before, (run[..., -1:] - early) / (total - before)
    scatter = (np.square(sums - weights * level) / weights).sum(axis=-1, keepdims=True) / (count - 1)
    gain = before * _deviance(means[0], level, scale) + (total - before) * _deviance(means[1], level, scale)
    worse = means[1] > means[0] if rises else means[1] < means[0]
    ratio = np.where(worse, gain * _noise(level, scale) / np.maximum(scatter, TOLERANCE**2), 0.0)
    evidence: FloatArray = np.log(np.exp(np.minimum(ratio, MAX_RATIO)).mean(axis=-1))
    return evidence


def _batches(draws: int) -> list[int]:
    """Return how many to draw at a time: all at once would take some 50 MB more."""
    return [min(AT_A_TIME, draws - done) for done in range(0, draws, AT_A_TIME)]


def _tail(evidence: FloatArray) -> tuple[float, float]:
    """Return where the tail of chance begins, and the rate at which it falls; 0 where it cannot be told.

    An exponential tail gives small p-values with far fewer orders than counting would (Knijnenburg et al. 2009).
    """
    begins = float(np.quantile(evidence, 1 - TAIL))
    beyond = evidence[evidence > begins] - begins
    mean = float(beyond.mean()) if len(beyond) else 0.0
    return begins, 1 / mean if len(beyond) >= MIN_TAIL and mean > TOLERANCE else 0.0


def _noise(level: FloatArray, scale: Scale) -> FloatArray:
    """Return the variance that goes with a level."""
    match scale:
        case Scale.SHARE:
            return level * (1 - level)
        case Scale.MEAN:
            return np.square(level)
        case _:
            return np.ones_like(level)


def _deviance(mean: FloatArray, level: FloatArray, scale: Scale) -> FloatArray:
    """Return how much likelier a mean makes its values than a level, for each of them; about half a square."""
    match scale:
        case Scale.SHARE:
            hit, rest = np.clip(mean, TOLERANCE, 1.0), np.clip(1 - mean, TOLERANCE, 1.0)
            level = np.clip(level, TOLERANCE, 1 - TOLERANCE)
            return hit * np.log(hit / level) + rest * np.log(rest / (1 - level))
        case Scale.MEAN:
            ratio = np.maximum(mean, TOLERANCE) / np.maximum(level, TOLERANCE)
            return ratio - 1 - np.log(ratio)
        case _:
            return np.square(mean - level) / 2


def _levels(means: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the means before and after the likeliest place of a shift, one of each row."""
    sums = means * weights
    count, part = means.shape[-1], _part(means.shape[-1])
    at = np.argmax(np.abs(_deviations(_centred(sums, weights), weights)), axis=-1) + part - 1
    run, of = np.cumsum(sums, axis=-1), np.cumsum(weights)
    before = np.take_along_axis(run, at[:, None], axis=-1)[:, 0]
    return before / of[at], (run[:, count - 1] - before) / (of[-1] - of[at])


@functools.cache
def _null(count: int) -> FloatArray:
    """Return the evidence in blocks of noise alone."""
    generator = np.random.default_rng(SEED)
    draws = (generator.normal(size=(size, count)) for size in _batches(2 * PERMUTATIONS))
    return np.concatenate([_evidence(noise, np.ones_like(noise), Scale.LEVEL, rises=True) for noise in draws])
