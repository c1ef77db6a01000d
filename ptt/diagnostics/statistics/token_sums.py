"""Sums over the tokens of a batch: by step, slice and bin, and of each sequence."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.cells import EXPONENT_CAP, POWERS, SEQUENCE_SUMS
from ptt.diagnostics.statistics.observation_position import FLOOR, Large

SIGNED_BINS: Final = 2 * (bins.OVERFLOW + 1)  # of one step and slice
FLOOR_BIN: Final = int(bins.bin_of(np.array([FLOOR]))[0])  # the first bin of large tokens
SPARSE: Final = 4
"""Places a token: with more of them, adding up into mostly empty tables costs more than a sort."""
SINGLE_SUMS: Final = (*SEQUENCE_SUMS, "s_r2")
"""Sums over each segment of the main pair; of other pairs cells.POWERS are enough."""


@dataclass(frozen=True, kw_only=True)
class Segments:
    """Finite log-ratios: the tokens of each (row, slice) of a batch side by side, segment 2 * row + slice.

    r: (tokens,); stretch: (segments + 1,) where each begins; group: (segments,) the number of its step and slice, of
    `groups` that there are; kept: (segments,) whether more than sums is wanted of it (None: of all).
    """

    r: FloatArray
    stretch: IntArray
    group: IntArray
    groups: int
    kept: BoolArray | None = None


@dataclass(frozen=True, kw_only=True)
class Histograms:
    """Counts in coarse bins by segment: those of segment i are at offsets[i] to offsets[i + 1]."""

    offsets: IntArray
    bin: npt.NDArray[np.uint8]
    n: npt.NDArray[np.uint32]


@dataclass(frozen=True, kw_only=True)
class SingleSums:
    """What is kept of single sequences: least and greatest r and histogram of each used segment, and large tokens.

    Of the segments in Segments.kept alone, and large tokens counted among theirs.
    """

    low: FloatArray
    high: FloatArray
    histograms: Histograms
    large: Large


@dataclass(frozen=True, kw_only=True)
class TokenSums:
    """What is left of the tokens of `Segments`.

    place: group * SIGNED_BINS + twice the bin of |r|, and one more where r is below 0; ascending. n and s_abs: tokens
    there, and the sum of their |r|. used: segments with tokens; sums: over each of them. single: of the main pair.
    """

    place: IntArray
    n: IntArray
    s_abs: FloatArray
    used: IntArray
    sums: dict[str, FloatArray]
    single: SingleSums | None = None


class ArrayPool:
    """Working arrays kept from batch to batch: fresh ones cost a page fault every 4 KB, a fifth of the pass."""

    def __init__(self) -> None:
        self._arrays: dict[str, npt.NDArray[Any]] = {}
        self._length = 0

    def of_length(self, length: int) -> ArrayPool:
        """Set the length of the arrays handed out from now on."""
        self._length = length
        return self

    def floats(self, name: str) -> FloatArray:
        """Return the float array `name`; its former contents are lost."""
        return self._array(name, np.float64)

    def flags(self, name: str) -> BoolArray:
        """Return the boolean array `name`; its former contents are lost."""
        return self._array(name, np.bool_)

    def integers(self, name: str) -> IntArray:
        """Return the integer array `name`; its former contents are lost."""
        return self._array(name, np.int64)

    def _array(self, name: str, dtype: type[np.generic]) -> npt.NDArray[Any]:
        array = self._arrays.get(name)
        if array is None or len(array) < self._length:
            array = self._arrays[name] = np.empty(self._length + self._length // 4, dtype)
        return array[: self._length]


def sum_tokens(segments: Segments, pool: ArrayPool, *, main: bool) -> TokenSums:
    """Add up the tokens of a batch."""
    r, stretch = segments.r, segments.stretch
    magnitude = np.abs(r, out=pool.of_length(len(r)).floats("magnitude"))
    fine = bins.bin_of(magnitude, out=pool.integers("fine"))
    place, n, s_abs = _cells(segments, magnitude, fine, pool)
    used = np.flatnonzero(np.diff(stretch))
    start = stretch[used]
    weights = _weights(r, magnitude, pool, inverse=main)
    sums = {name: np.add.reduceat(weights[name], start) for name in (SINGLE_SUMS if main else POWERS)}
    single = _single_sums(segments, magnitude, fine, used, pool) if main else None  # what was in `fine` is gone
    return TokenSums(place=place, n=n, s_abs=s_abs, used=used, sums=sums, single=single)


def _single_sums(
    segments: Segments, magnitude: FloatArray, fine: IntArray, used: IntArray, pool: ArrayPool
) -> SingleSums:
    first, length = segments.stretch[used], np.diff(segments.stretch)[used]
    low, high = np.minimum.reduceat(segments.r, first), np.maximum.reduceat(segments.r, first)
    place = None  # indices, among all tokens, of those in segments that are kept
    if segments.kept is not None:
        chosen = segments.kept[used]
        first, length, low, high = (values[chosen] for values in (first, length, low, high))
        place = first - (np.cumsum(length) - length)
        out = pool.of_length(int(length.sum())).integers("kept_fine")
        fine = _end_to_end(fine, segments.kept, segments.stretch, out)
    large = np.flatnonzero(np.greater_equal(fine, FLOOR_BIN, out=pool.of_length(len(fine)).flags("flags")))
    at = large if place is None else large + place[np.searchsorted(np.cumsum(length), large, side="right")]
    return SingleSums(
        low=low,
        high=high,
        large=Large(token=large, magnitude=magnitude[at], fine=fine[large]),
        histograms=_histograms(fine, length),
    )


def _end_to_end(fine: IntArray, kept: BoolArray, stretch: IntArray, out: IntArray) -> IntArray:
    """Lay the bins of segments that are kept end to end."""
    bounds = stretch[np.flatnonzero(np.diff(kept, prepend=False, append=False))].tolist()
    spans = zip(bounds[::2], bounds[1::2], strict=True)  # runs of neighbouring segments that are all kept
    np.concatenate([fine[:0], *(fine[begin:end] for begin, end in spans)], out=out)
    return out


def _weights(r: FloatArray, magnitude: FloatArray, pool: ArrayPool, *, inverse: bool) -> dict[str, FloatArray]:
    """Return r, rho and their squares, token by token, and with `inverse` those of 1 / rho."""
    rho = pool.floats("s_rho")
    np.exp(r if magnitude.max() <= EXPONENT_CAP else np.clip(r, -EXPONENT_CAP, EXPONENT_CAP, out=rho), out=rho)
    rho2, r2 = np.square(rho, out=pool.floats("s_rho2")), np.square(r, out=pool.floats("s_r2"))
    weights = {"s_r": r, "s_r2": r2, "s_rho": rho, "s_rho2": rho2}
    if inverse:
        weights["s_inv"] = np.divide(1.0, rho, out=pool.floats("s_inv"))
        weights["s_inv2"] = np.square(weights["s_inv"], out=pool.floats("s_inv2"))
    return weights


def _cells(
    segments: Segments, magnitude: FloatArray, fine: IntArray, pool: ArrayPool
) -> tuple[IntArray, IntArray, FloatArray]:
    key = np.repeat(segments.group * SIGNED_BINS, np.diff(segments.stretch))
    key += np.left_shift(fine, 1, out=pool.integers("shifted"))
    key += np.less(segments.r, 0.0, out=pool.flags("flags"))
    if segments.groups * SIGNED_BINS > SPARSE * len(key):
        place, key = np.unique(key, return_inverse=True)
        return place, np.bincount(key), np.bincount(key, weights=magnitude).astype(np.float64, copy=False)
    count = np.bincount(key)
    place = np.flatnonzero(count != 0)  # on booleans: a third of the time
    s_abs = np.bincount(key, weights=magnitude).astype(np.float64, copy=False)
    return place, count[place], s_abs[place]


def _histograms(fine: IntArray, length: IntArray) -> Histograms:
    """Count the tokens of segments end to end, `length` of each, by coarse bin; the fine bins are overwritten."""
    bins.to_coarse_bins(fine)
    fine += np.repeat(np.arange(len(length)) * bins.COARSE_COUNT, length)
    table = np.bincount(fine)
    filled = np.flatnonzero(table != 0)
    return Histograms(
        offsets=np.searchsorted(filled, np.arange(len(length) + 1) * bins.COARSE_COUNT),
        bin=(filled % bins.COARSE_COUNT).astype(np.uint8),
        n=table[filled].astype(np.uint32),
    )
