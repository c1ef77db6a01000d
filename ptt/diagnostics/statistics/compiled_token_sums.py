"""The sums of `token_sums`, compiled by numba, to the last bit: one loop over the tokens instead of twenty.

Additions come in NumPy's order: one by one in `bincount`, and in `add.reduceat` the first one plus the others added up
pairwise (numpy/_core/src/umath/loops_utils.h.src, `pairwise_sum`). exp stays NumPy's own. A test compares both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np

from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.batch_layout import Batch
from ptt.diagnostics.statistics.cells import POWERS
from ptt.diagnostics.statistics.fill_values import MIN_ROW_TOKENS
from ptt.diagnostics.statistics.logprob_pairs import Pair
from ptt.diagnostics.statistics.observation_position import FLOOR, Large
from ptt.diagnostics.statistics.placeholder_values import IMPOSSIBLE_ABOVE, MISSING_BELOW
from ptt.diagnostics.statistics.token_sums import (
    SIGNED_BINS,
    SINGLE_SUMS,
    ArrayPool,
    Histograms,
    Segments,
    SingleSums,
    TokenSums,
    exponentials,
    sparse_cells,
)

Function = TypeVar("Function", bound=Callable[..., Any])

SHIFT: Final = bins.SHIFT
BELOW: Final = bins.FIRST - 1
OVERFLOW: Final = bins.OVERFLOW
COARSE_SHIFT: Final = bins.COARSE_SHIFT
COARSE_BELOW: Final = bins.COARSE_SKIPPED - 1
COARSE_COUNT: Final = bins.COARSE_COUNT
MAGNITUDE: Final = 0x7FFFFFFFFFFFFFFF  # all bits but the sign
LANES: Final = 8
BLOCK: Final = 128  # NumPy adds up so many with eight sums side by side, and halves what is longer


def _compile(function: Function) -> Function:
    """Compile at the first call, once for all runs: numba keeps it beside this file, or in the user's cache."""
    # Python's own division asks for zero first, and is not vectorised.
    return cast("Function", numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def clean_differences(batch: Batch, pair: Pair, out: FloatArray) -> bool:
    """Write r of all model tokens; False where one may be no logprob, or not finite, and `out` is not to be used."""
    runs = batch.runs
    begin = (np.cumsum(batch.length) - batch.length)[runs.row] + runs.place
    sides = batch.logps[pair.numerator], batch.logps[pair.denominator]
    return bool(_clean_differences(*sides, begin, runs.length, runs.row, out))


def sum_tokens(segments: Segments, pool: ArrayPool, main: bool) -> TokenSums:
    """Add up the tokens of a batch."""
    r, stretch, group = segments.r, segments.stretch, segments.group
    pool.of_length(len(r))
    used = np.flatnonzero(np.diff(stretch))
    if segments.dense:
        table = pool.zeros("table", 2 * segments.groups * SIGNED_BINS, np.float64)
        _add_up(r, stretch, group, table)
        cells = _take_out(table, segments.groups * SIGNED_BINS)
    else:
        key = pool.integers("key")
        _find_places(r, stretch, group, key)
        cells = sparse_cells(key, np.abs(r, out=pool.floats("magnitude")))
    rho = exponentials(r, _greatest(r), pool.floats("s_rho"))
    room = pool.floats("room")
    place, n, s_abs = cells
    if not main:
        sums = dict(zip(POWERS, _powers(r, rho, room, stretch, used), strict=True))
        return TokenSums(place=place, n=n, s_abs=s_abs, used=used, sums=sums)
    sums = dict(zip(SINGLE_SUMS, _sums(r, rho, room, stretch, used), strict=True))
    kept = used if segments.kept is None else used[segments.kept[used]]
    return TokenSums(place=place, n=n, s_abs=s_abs, used=used, sums=sums, single=_single_sums(segments, kept, pool))


def _single_sums(segments: Segments, kept: IntArray, pool: ArrayPool) -> SingleSums:
    r, stretch = segments.r, segments.stretch
    token, magnitude = pool.integers("large"), pool.floats("magnitude")
    offsets, coarse, coarse_n, count = _histograms(r, stretch, kept, token, magnitude)
    low, high = _extremes(r, stretch, kept)
    magnitude = magnitude[:count].copy()
    return SingleSums(
        low=low,
        high=high,
        large=Large(token=token[:count].copy(), magnitude=magnitude, fine=bins.bin_of(magnitude)),
        histograms=Histograms(offsets=offsets, bin=coarse, n=coarse_n),
    )


@_compile
def _clean_differences(one: Any, other: Any, begin: IntArray, length: IntArray, row: IntArray, out: FloatArray) -> bool:
    """Subtract run by run; stop at a row with what `find_placeholders`, or a count of lost tokens, must see."""
    done, run = 0, 0
    while run < len(row):
        last = run
        while last + 1 < len(row) and row[last + 1] == row[run]:
            last += 1
        vary_one, vary_other, tokens = False, False, 0
        first_one, first_other = one[begin[run]], other[begin[run]]
        for at in range(run, last + 1):
            a, b = one[begin[at] : begin[at] + length[at]], other[begin[at] : begin[at] + length[at]]
            if not _subtract(a, b, out[done : done + length[at]]):
                return False
            vary_one = vary_one or _varies(a, first_one)
            vary_other = vary_other or _varies(b, first_other)
            tokens += length[at]
            done += length[at]
        if tokens >= MIN_ROW_TOKENS and not (vary_one and vary_other):
            return False
        run = last + 1
    return True


@_compile
def _subtract(one: Any, other: Any, out: FloatArray) -> bool:
    """Subtract, and tell whether all are logprobs at sight."""
    fit = True
    for token in range(len(out)):
        out[token] = np.float64(one[token]) - np.float64(other[token])
        fit &= (one[token] > MISSING_BELOW) & (one[token] <= IMPOSSIBLE_ABOVE)
        fit &= (other[token] > MISSING_BELOW) & (other[token] <= IMPOSSIBLE_ABOVE)
    return fit


@_compile
def _varies(values: Any, first: float) -> bool:
    for value in values:  # noqa: SIM110  numba has no generators
        if value != first:
            return True
    return False


@_compile
def _bin_of(bits: int) -> int:
    """Return the bin of |r|, as `bins.bin_of` does."""
    return min(max(((bits & MAGNITUDE) >> SHIFT) - BELOW, 0), OVERFLOW)


@_compile
def _add_up(r: FloatArray, stretch: IntArray, group: IntArray, table: FloatArray) -> None:
    """Add each token to its place of a table of zeros: n, and beside it the sum of |r|, on one line of the cache."""
    bits = r.view(np.int64)
    for segment in range(len(group)):
        of_group = table[2 * SIGNED_BINS * group[segment] : 2 * SIGNED_BINS * (group[segment] + 1)]
        mine, mine_bits = r[stretch[segment] : stretch[segment + 1]], bits[stretch[segment] : stretch[segment + 1]]
        for token in range(len(mine)):
            place = 2 * (2 * _bin_of(mine_bits[token]) + (mine[token] < 0.0))
            of_group[place] += 1.0
            of_group[place + 1] += abs(mine[token])


@_compile
def _take_out(table: FloatArray, places: int) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the places that are filled, and leave zeros behind."""
    used = 0
    for place in range(places):
        used += table[2 * place] != 0.0
    filled, n, s_abs = np.empty(used, np.int64), np.empty(used, np.int64), np.empty(used, np.float64)
    at = 0
    for place in range(places):
        if table[2 * place] != 0.0:
            filled[at], n[at], s_abs[at] = place, np.int64(table[2 * place]), table[2 * place + 1]
            table[2 * place] = table[2 * place + 1] = 0.0
            at += 1
    return filled, n, s_abs


@_compile
def _find_places(r: FloatArray, stretch: IntArray, group: IntArray, key: IntArray) -> None:
    bits = r.view(np.int64)
    for segment in range(len(group)):
        for token in range(stretch[segment], stretch[segment + 1]):
            key[token] = group[segment] * SIGNED_BINS + 2 * _bin_of(bits[token]) + (r[token] < 0.0)


@_compile
def _greatest(r: FloatArray) -> float:
    """Return the greatest |r|."""
    peak = 0.0
    for token in range(len(r)):
        peak = max(peak, abs(r[token]))
    return peak


@_compile
def _pairwise(values: FloatArray) -> float:
    """Add up as NumPy does."""
    n = len(values)
    if n < LANES:
        few = -0.0
        for at in range(n):
            few += values[at]
        return few
    if n > BLOCK:
        half = n // 2
        half -= half % LANES
        return _pairwise(values[:half]) + _pairwise(values[half:])
    s0, s1, s2, s3, s4, s5, s6, s7 = (
        values[0], values[1], values[2], values[3], values[4], values[5], values[6], values[7]
    )  # fmt: skip
    for lane in range(1, n // LANES):
        v = values[LANES * lane : LANES * lane + LANES]
        s0 += v[0]
        s1 += v[1]
        s2 += v[2]
        s3 += v[3]
        s4 += v[4]
        s5 += v[5]
        s6 += v[6]
        s7 += v[7]
    total: float = ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))
    for at in range(n - n % LANES, n):
        total += values[at]
    return total


@_compile
def _sum(values: FloatArray) -> float:
    """Add up what `np.add.reduceat` does: the first value, and the others pairwise."""
    total: float = values[0] + _pairwise(values[1:])
    return total


@_compile
def _powers(
    r: FloatArray, rho: FloatArray, room: FloatArray, stretch: IntArray, used: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Add up rho, its square and that of r over each segment; `room`: for values of one segment at a time."""
    s_rho, s_rho2, s_r2 = np.empty(len(used)), np.empty(len(used)), np.empty(len(used))
    for number in range(len(used)):
        first, end = stretch[used[number]], stretch[used[number] + 1]
        weight, ratio, square = rho[first:end], r[first:end], room[: end - first]
        s_rho[number] = _sum(weight)
        for token in range(len(square)):
            square[token] = weight[token] * weight[token]
        s_rho2[number] = _sum(square)
        for token in range(len(square)):
            square[token] = ratio[token] * ratio[token]
        s_r2[number] = _sum(square)
    return s_rho, s_rho2, s_r2


@_compile
def _sums(
    r: FloatArray, rho: FloatArray, room: FloatArray, stretch: IntArray, used: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Add up SINGLE_SUMS over each segment."""
    s_rho, s_rho2, s_r2 = _powers(r, rho, room, stretch, used)
    s_r, s_inv, s_inv2 = np.empty(len(used)), np.empty(len(used)), np.empty(len(used))
    for number in range(len(used)):
        first, end = stretch[used[number]], stretch[used[number] + 1]
        weight, inverse = rho[first:end], room[: end - first]
        s_r[number] = _sum(r[first:end])
        for token in range(len(inverse)):
            inverse[token] = 1.0 / weight[token]
        s_inv[number] = _sum(inverse)
        for token in range(len(inverse)):
            inverse[token] *= inverse[token]
        s_inv2[number] = _sum(inverse)
    return s_r, s_rho, s_rho2, s_inv, s_inv2, s_r2


@_compile
def _extremes(r: FloatArray, stretch: IntArray, kept: IntArray) -> tuple[FloatArray, FloatArray]:
    """Find the least and the greatest r of segments."""
    low, high = np.empty(len(kept)), np.empty(len(kept))
    for number in range(len(kept)):
        ratio = r[stretch[kept[number]] : stretch[kept[number] + 1]]
        least = greatest = ratio[0]
        for token in range(len(ratio)):
            least = ratio[token] if ratio[token] < least else least
            greatest = ratio[token] if ratio[token] > greatest else greatest
        low[number], high[number] = least, greatest
    return low, high


@_compile
def _histograms(
    r: FloatArray, stretch: IntArray, kept: IntArray, large: IntArray, magnitude: FloatArray
) -> tuple[IntArray, Any, Any, int]:
    """Count the tokens of segments by coarse bin, and write which of theirs are large, and how large.

    Return how many these are, too.
    """
    bits = r.view(np.int64)
    table = np.zeros(COARSE_COUNT, np.uint32)
    offsets = np.zeros(len(kept) + 1, np.int64)
    coarse, n = np.empty(len(kept) * COARSE_COUNT, np.uint8), np.empty(len(kept) * COARSE_COUNT, np.uint32)
    at, count, before = 0, 0, 0
    for number in range(len(kept)):
        first, end = stretch[kept[number]], stretch[kept[number] + 1]
        for token in range(first, end):
            index = ((_bin_of(bits[token]) - 1) >> COARSE_SHIFT) - COARSE_BELOW
            table[min(max(index, 0), COARSE_COUNT - 1)] += 1
            large[count] = before + token - first
            magnitude[count] = abs(r[token])
            count += abs(r[token]) >= FLOOR
        before += end - first
        for index in range(COARSE_COUNT):
            if table[index]:
                coarse[at], n[at] = index, table[index]
                table[index] = 0
                at += 1
        offsets[number + 1] = at
    return offsets, coarse[:at].copy(), n[:at].copy(), count
