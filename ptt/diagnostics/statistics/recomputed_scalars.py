"""Reductions of per-token quantities to one number a step, as trainers log them, and how well they fit what is logged.

One pass over flat tokens gives sums by row; every reduction follows from those: token mean, mean of sequence means,
means of micro-batches or ranks, sums over a constant, and means that count padding.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray

EXPONENT_CAP: Final = 700.0  # exp of more overflows a double
CLAMPED: Final = 20.0  # nats: veRL and OpenRLHF clamp the log ratio there before they take its exponential
K3_CLAMPED: Final = 10.0  # veRL's bound on k3
RELATIVE: Final = 1e-3  # of a logged value: sums in float32 and logprobs rounded to five digits stay below
FACTOR_RELATIVE: Final = 1e-4  # of a logged value: a factor is a free parameter, so the rest has to fit more closely
SINGLE: Final = 3e-7  # of a value near 1 or larger: the resolution of a float32, and of the additions that made it
MAX_DECIMALS: Final = 6  # a log that has no value with more digits is rounded to as many
MAX_NOISE: Final = 10.0  # times the tolerance: within it of the centre a value tells nothing of how it was made


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How rows lie in steps: rows of one step stand together."""

    firsts: IntArray  # (steps,) the first row of each step; a step has at least one
    lengths: IntArray  # (rows,) tokens, whoever wrote them

    @cached_property
    def sizes(self) -> IntArray:
        """Rows of each step, (steps,)."""
        return np.diff(np.append(self.firsts, len(self.lengths)))

    @cached_property
    def step(self) -> IntArray:
        """The number of each row's step, (rows,)."""
        return np.repeat(np.arange(len(self.firsts)), self.sizes)

    @cached_property
    def place(self) -> IntArray:
        """The place of each row in its step, (rows,)."""
        return np.arange(len(self.lengths)) - np.repeat(self.firsts, self.sizes)

    @cached_property
    def longest(self) -> IntArray:
        """Tokens of the longest row of each step, (steps,)."""
        return np.maximum.reduceat(self.lengths, self.firsts)

    @cached_property
    def padding(self) -> IntArray:
        """Positions that fill each row up to the longest of its step, (rows,)."""
        return np.repeat(self.longest, self.sizes) - self.lengths

    def equal_parts(self, number: int) -> IntArray:
        """Number the rows by the equal part of their step that they lie in, from 0 to `number` - 1, (rows,)."""
        return self.place * number // np.repeat(self.sizes, self.sizes)

    def sums(self, values: npt.NDArray[Any]) -> FloatArray:
        """Add up a value of each row by step, (steps,)."""
        return np.add.reduceat(values.astype(np.float64), self.firsts)


@dataclass(frozen=True, kw_only=True)
class RowSums:
    """A quantity over the counted tokens of each row, (rows,) each.

    `low` and `high` are infinite where no token counts, and NaN where they were not asked for.
    """

    total: FloatArray
    count: FloatArray
    low: FloatArray
    high: FloatArray


def sum_rows(
    values: FloatArray, counted: BoolArray | None, starts: IntArray, counts: FloatArray, *, ends: bool = False
) -> RowSums:
    """Add up (tokens,) values by row; `starts` (rows + 1,). Values that are not finite do not count.

    counts: how many tokens each row counts, (rows,). `ends`: find the least and the largest as well.
    """
    zeroed = values if counted is None else np.where(counted, values, 0.0)
    total = by_row(np.add, zeroed, starts, 0.0)
    keep = counted
    if not np.isfinite(total).all():
        keep = np.isfinite(values) if counted is None else counted & np.isfinite(values)
        total = by_row(np.add, np.where(keep, values, 0.0), starts, 0.0)
        counts = by_row(np.add, keep.astype(np.int64), starts, 0.0)
    empty = np.full(len(counts), np.nan)
    if not ends:
        return RowSums(total=total, count=counts, low=empty, high=empty)
    lows, highs = (values if keep is None else np.where(keep, values, other) for other in (np.inf, -np.inf))
    return RowSums(
        total=total,
        count=counts,
        low=by_row(np.minimum, lows, starts, np.inf),
        high=by_row(np.maximum, highs, starts, -np.inf),
    )


def by_row(ufunc: np.ufunc, tokens: npt.NDArray[Any], starts: IntArray, empty: float) -> FloatArray:
    """Reduce (tokens,) values by row, (rows,); `empty` where a row has no token."""
    filled = np.diff(starts) > 0
    result = np.full(len(starts) - 1, empty)
    if filled.any():
        result[filled] = ufunc.reduceat(tokens, starts[:-1][filled])
    return result


def one_a_row(values: FloatArray) -> RowSums:
    """Return sums of a quantity that has one value a row, (rows,); NaN counts nothing."""
    known = np.isfinite(values)
    return RowSums(
        total=np.where(known, values, 0.0),
        count=known.astype(np.float64),
        low=np.where(known, values, np.inf),
        high=np.where(known, values, -np.inf),
    )


def mixed(sound: RowSums, other: RowSums, at: BoolArray) -> RowSums:
    """Return `sound`, and `other` at some rows."""
    pairs = ((getattr(other, name), getattr(sound, name)) for name in ("total", "count", "low", "high"))
    total, count, low, high = (np.where(at, one, two) for one, two in pairs)
    return RowSums(total=total, count=count, low=low, high=high)


def _ratio(numerator: npt.NDArray[Any], denominator: npt.NDArray[Any]) -> FloatArray:
    result: FloatArray = np.divide(
        numerator, denominator, out=np.full(len(numerator), np.nan), where=np.asarray(denominator) > 0
    )
    return result


def token_mean(sums: RowSums, layout: Layout) -> FloatArray:
    """Return the mean over the counted tokens of each step, (steps,); NaN where none counts."""
    return _ratio(layout.sums(sums.total), layout.sums(sums.count))


def sequence_mean(sums: RowSums, layout: Layout) -> FloatArray:
    """Return the mean of the rows' means; rows without a counted token are left out."""
    means = _ratio(sums.total, sums.count)
    known = np.isfinite(means)
    return _ratio(layout.sums(np.where(known, means, 0.0)), layout.sums(known))


def sequence_sum(sums: RowSums, layout: Layout) -> FloatArray:
    """Return the mean of the rows' sums."""
    return layout.sums(sums.total) / layout.sizes


def step_sum(sums: RowSums, layout: Layout) -> FloatArray:
    """Return the sum over all counted tokens of each step."""
    return layout.sums(sums.total)


def padded(sums: RowSums, padding: IntArray | FloatArray, value: float) -> RowSums:
    """Return the sums that count each row's padded positions too, (rows,) of them, as `value`."""
    there = padding > 0
    return RowSums(
        total=sums.total + padding * value,
        count=sums.count + padding,
        low=np.where(there, np.minimum(sums.low, value), sums.low),
        high=np.where(there, np.maximum(sums.high, value), sums.high),
    )


def part_mean(sums: RowSums, layout: Layout, parts: IntArray, weights: FloatArray | None = None) -> FloatArray:
    """Return the mean of the token means of the parts of each step, (steps,); `parts` (rows,) numbers them from 0.

    Micro-batches, or ranks: parts without a counted token are left out. `weights` (rows,): a part counts as much as
    those of its rows add up to.
    """
    number = int(parts.max(initial=0)) + 1
    key = layout.step * number + parts
    cells = len(layout.firsts) * number
    means = _ratio(np.bincount(key, sums.total, cells), np.bincount(key, sums.count, cells))
    means = means.reshape(-1, number)
    if weights is None:
        return mean_of_known(means)
    weight = np.where(np.isfinite(means), np.bincount(key, weights, cells).reshape(-1, number), 0.0)
    return _ratio((np.nan_to_num(means) * weight).sum(axis=-1), weight.sum(axis=-1))


def mean_of_known(values: FloatArray) -> FloatArray:
    """Return the mean over the last axis without NaN; NaN where there is nothing else."""
    known = np.isfinite(values)
    return _ratio(np.where(known, values, 0.0).sum(axis=-1), known.sum(axis=-1))


def step_low(sums: RowSums, layout: Layout) -> FloatArray:
    """Return the least value of each step, (steps,)."""
    return _finite(np.minimum.reduceat(sums.low, layout.firsts))


def step_high(sums: RowSums, layout: Layout) -> FloatArray:
    """Return the largest value of each step, (steps,)."""
    return _finite(np.maximum.reduceat(sums.high, layout.firsts))


def _finite(values: FloatArray) -> FloatArray:
    return np.where(np.isfinite(values), values, np.nan)


def spread(sums: RowSums, squares: RowSums, layout: Layout, *, ddof: int) -> FloatArray:
    """Return the standard deviation within each step from sums of a quantity and of its square, (steps,)."""
    count = layout.sums(sums.count)
    mean = _ratio(layout.sums(sums.total), count)
    off = layout.sums(squares.total) - count * mean**2
    return np.sqrt(np.maximum(_ratio(off, count - ddof), 0.0))


def group_spreads(values: FloatArray, groups: IntArray, *, ddof: int) -> tuple[FloatArray, IntArray]:
    """Return the standard deviation of each group, (groups,), and its rows; `groups` (rows,) numbers them from 0.

    Centred before squaring: rewards of one group may lie close together far from 0. NaN where ddof leaves nothing.
    """
    count = np.bincount(groups)
    mean = np.bincount(groups, values) / np.maximum(count, 1)
    off = np.bincount(groups, (values - mean[groups]) ** 2)
    return np.sqrt(_ratio(off, (count - ddof).astype(np.float64))), count


def k3(r: FloatArray) -> FloatArray:
    """Return Schulman's estimate exp(-r) - 1 + r of a KL from log ratios r, policy over reference."""
    estimate: FloatArray = np.expm1(np.minimum(-r, EXPONENT_CAP)) + r
    return estimate


def clamped_k3(r: FloatArray) -> FloatArray:
    """Return k3 as veRL bounds it: r within 20 nats, the estimate within 10."""
    return np.clip(k3(np.clip(r, -CLAMPED, CLAMPED)), -K3_CLAMPED, K3_CLAMPED)


def ratio(r: FloatArray) -> FloatArray:
    """Return exp(r), finite up to 700 nats."""
    return np.exp(np.minimum(r, EXPONENT_CAP))


def resolution_of(values: FloatArray) -> float:
    """Return the last digit that a log keeps, 10**-d for the least d that all values need; 0 beyond six decimals."""
    known = values[np.isfinite(values)]
    for decimals in range(MAX_DECIMALS + 1):
        if np.all(np.abs(known - np.round(known, decimals)) <= 1e-9 * np.maximum(np.abs(known), 1.0)):
            return float(10.0**-decimals) if decimals else 0.0  # whole numbers are counts, not rounded
    return 0.0


def tolerance_of(logged: FloatArray, *, centre: float, resolution: float, floor: float) -> FloatArray:
    """Return how far a recomputed value may lie from the logged one, (n,).

    centre: what the quantity is where nothing happens (a ratio's 1): only the distance to it scales the tolerance.
    """
    size = np.abs(logged - centre)
    tolerance: FloatArray = RELATIVE * size + resolution / 2 + SINGLE * np.maximum(np.abs(logged), centre) + floor
    return tolerance


@dataclass(frozen=True, kw_only=True)
class Fit:
    """How a candidate's values lie beside the logged ones, (points,) each."""

    values: FloatArray
    agrees: BoolArray
    error: FloatArray  # |recomputed - logged| over the logged distance to the centre

    @property
    def share(self) -> float:
        """Share of the points that agree."""
        return float(self.agrees.mean()) if len(self.agrees) else 0.0


def fit(values: FloatArray, logged: FloatArray, tolerance: FloatArray, *, centre: float) -> Fit:
    """Hold recomputed values against logged ones, (points,); NaN agrees with nothing."""
    off = np.abs(values - logged)
    scale = np.maximum(np.abs(logged - centre), tolerance)
    with np.errstate(invalid="ignore"):
        return Fit(
            values=values,
            agrees=off <= tolerance,
            error=np.divide(off, scale, out=np.full(len(off), np.inf), where=scale > 0),
        )


@dataclass(frozen=True, kw_only=True)
class Factor:
    """A constant that recomputed values times it give what is logged."""

    factor: float
    agrees: BoolArray  # (points,)
    telling: bool  # the values differ among themselves by more than the tolerance: else any level has a factor


def constant_factor(values: FloatArray, logged: FloatArray, *, resolution: float, share: float) -> Factor | None:
    """Return the constant factor between recomputed and logged values, (points,); None where a share has no such."""
    usable = np.isfinite(values) & np.isfinite(logged) & (values != 0)
    if not usable.any():
        return None
    factor = float(np.median(logged[usable] / values[usable]))
    tolerance = FACTOR_RELATIVE * np.abs(logged) + resolution / 2 + SINGLE
    agrees = np.abs(values * factor - logged) <= tolerance
    if float(agrees[usable].mean()) < share:
        return None
    varied = np.ptp(values[usable]) * abs(factor) > MAX_NOISE * float(np.median(tolerance[usable]))
    return Factor(factor=factor, agrees=agrees, telling=bool(varied))
