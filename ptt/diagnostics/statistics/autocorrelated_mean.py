"""The mean of a stretch of logged values with an interval that allows for autocorrelation, and other such figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray, dot
from ptt.diagnostics.statistics.small_sample import (
    AR1_GRID,
    MAX_AR1,
    MAX_BLOCKS,
    T975,
    T999,
    LineFit,
    block_means,
    fit_line,
    lag_products,
    residual_moments,
)
from ptt.diagnostics.statistics.windows import Span

MIN_MEAN_VALUES: Final = 20
"""In a stretch: with fewer, autocorrelation cannot be separated from a trend, and intervals come out short."""
MIN_RELATIVE_NOISE: Final = 1e-9
"""Relative to the values' size: what scatters less about its line is a schedule or a constant, not measured."""
FREEDOM_TOLERANCE: Final = 1e-9  # rounding error allowed in degrees of freedom that should be whole numbers
T95: Final = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753,
              1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717)  # fmt: skip
"""Student's t, 95th percentile, at 1, 2, ... 22 degrees of freedom: for equivalence tests."""


@dataclass(frozen=True, kw_only=True)
class MeanEstimate:
    """A mean with its standard error; `error` is NaN where the values are too few for one."""

    mean: float = math.nan
    error: float = math.nan
    freedom: int = 0
    noise: float = math.nan  # standard deviation of a single value about the line through all
    values: int = 0

    def bounds(self, table: Sequence[float] = T975) -> tuple[float, float]:
        """Return the interval, 95% by default; NaN where the error is not known."""
        if math.isnan(self.error):
            return math.nan, math.nan
        reach = table[min(self.freedom, len(table)) - 1] * self.error
        return self.mean - reach, self.mean + reach

    def exceeds_zero(self) -> int:
        """Return 1 or -1 where the 99.8% interval lies above or below zero, else 0."""
        low, high = self.bounds(T999)
        return 1 if low > 0 else -1 if high < 0 else 0


def estimate_means(pieces: Sequence[FloatArray]) -> list[MeanEstimate]:
    """Estimate the mean of each of several stretches of one series, with an error that allows for autocorrelation.

    A stretch's error comes from at most 24 block means about a straight line (a trend is not noise), modelled as AR(1).
    The correlation is estimated from all stretches together, since a short one cannot show its own, and clipped to 0 to
    0.8. Fitting a line removes much of autocorrelated noise, so correlation, spread and degrees of freedom are solved
    for: the values whose expected residuals match those seen (Satterthwaite's freedom).
    """
    usable = [piece[np.isfinite(piece)] for piece in pieces]
    lines = [fit_line(piece) if len(piece) >= MIN_MEAN_VALUES else None for piece in usable]
    ar1 = _common_ar1([block_means(line.residual, MAX_BLOCKS) for line in lines if line is not None])
    return [_estimate_mean(piece, line, ar1) for piece, line in zip(usable, lines, strict=True)]


def _estimate_mean(values: FloatArray, line: LineFit | None, ar1: float) -> MeanEstimate:
    if not len(values):
        return MeanEstimate()
    mean = float(values.mean()) if np.ptp(values) else float(values[0])
    if line is None:
        return MeanEstimate(mean=mean, values=len(values))
    if line.sd <= MIN_RELATIVE_NOISE * float(np.abs(values).max()):
        return MeanEstimate(mean=mean, error=0.0, freedom=len(values) - 2, noise=0.0, values=len(values))
    blocks = block_means(line.residual, MAX_BLOCKS)
    squares, of_mean, freedom = residual_moments(len(blocks)).at(ar1)
    error = math.sqrt(dot(blocks, blocks) / squares * of_mean)
    freedom = max(1, math.floor(freedom + FREEDOM_TOLERANCE))
    return MeanEstimate(mean=mean, error=error, freedom=freedom, noise=line.sd, values=len(values))


def _common_ar1(pieces: Sequence[FloatArray]) -> float:
    """Return the AR(1) whose residuals, about a line in each piece, are expected to correlate as these do."""
    squares = math.fsum(dot(piece, piece) for piece in pieces)
    if squares <= 0:
        return 0.0
    correlation = math.fsum(lag_products(piece) for piece in pieces) / squares
    moments = [residual_moments(len(piece)) for piece in pieces]
    expected = np.sum([moment.neighbours for moment in moments], axis=0) / np.sum(
        [moment.squares for moment in moments], axis=0
    )
    return min(float(np.interp(correlation, expected, AR1_GRID)), MAX_AR1)


def pool_seeds(levels: Sequence[MeanEstimate], between: float = 0.0, freedom: int = 0) -> MeanEstimate:
    """Return the mean over seeds; `between` is the variance of a seed's mean, by `freedom` differences of seeds.

    Its error is never below the seeds' own noise: a few seeds may lie together by chance.
    """
    count = len(levels)
    own = math.fsum(level.error**2 for level in levels) / count
    return MeanEstimate(
        mean=math.fsum(level.mean for level in levels) / count,
        error=math.sqrt(max(own, between if freedom else 0.0) / count),
        freedom=freedom if freedom > 0 and between > own else min(level.freedom for level in levels),
        noise=math.fsum(level.noise for level in levels) / count,
        values=sum(level.values for level in levels),
    )


def between_seed_variance(sides: Sequence[Sequence[MeanEstimate]]) -> tuple[float, int]:
    """Return the variance of seeds' means about their side's, of all sides together, and its degrees of freedom."""
    squares, freedom = 0.0, 0
    for side in sides:
        means = np.array([level.mean for level in side])
        squares += float(np.square(means - means.mean()).sum())
        freedom += len(means) - 1
    return (squares / freedom if freedom else 0.0), freedom


def subtract_means(one: MeanEstimate, other: MeanEstimate) -> MeanEstimate:
    """Return the difference of two independent means; freedom after Welch and Satterthwaite; error NaN: unknown."""
    variance = one.error**2 + other.error**2
    weight = math.fsum(level.error**4 / level.freedom for level in (one, other) if level.freedom > 0)
    known = variance > 0 and weight > 0
    return MeanEstimate(
        mean=one.mean - other.mean,
        error=math.sqrt(variance),
        freedom=max(1, int(variance**2 / weight)) if known else max(one.freedom, other.freedom),
        noise=max(one.noise, other.noise),
        values=min(one.values, other.values),
    )


MIN_WINDOW_VALUES: Final = 6  # four degrees of freedom about a line
MAX_WINDOW_BLOCKS: Final = 40  # a longer window is reduced to this many block means
AR1_MARGIN: Final = 1.0
"""Standard errors that the estimated correlation is raised by: taken too low it makes any two seeds differ."""


@dataclass(frozen=True, kw_only=True)
class WindowMean:
    """The mean over one window of steps, and how closely it is known."""

    mean: float  # NaN where the window holds no value
    error: float  # standard error, NaN where the values are too few for one
    freedom: float  # degrees of freedom that the error is known with
    n: int  # finite values
    scatter: float  # standard deviation of a value about its line


def window_means(steps: IntArray, values: FloatArray, windows: Sequence[Span]) -> tuple[WindowMean, ...]:
    """Return the mean over each window, its error by how values lie about a straight line within the window.

    A line of its own in each window takes out the run's shape; the rest is taken for AR(1) noise, whose correlation
    is estimated from all windows together and corrected for what the lines took out of it.
    """
    usable = np.isfinite(values)
    steps, values = steps[usable], values[usable]
    parts = [values[(steps >= span.first) & (steps <= span.last)] for span in windows]
    blocks = [block_means(part, MAX_WINDOW_BLOCKS) for part in parts]
    ar1 = _raised_ar1([part for part in blocks if len(part) >= MIN_WINDOW_VALUES])
    return tuple(_window_mean(part, means, ar1) for part, means in zip(parts, blocks, strict=True))


def _window_mean(part: FloatArray, blocks: FloatArray, ar1: float) -> WindowMean:
    mean = float(part.mean()) if len(part) else math.nan
    if len(blocks) < MIN_WINDOW_VALUES:
        return WindowMean(mean=mean, error=math.nan, freedom=0.0, n=len(part), scatter=math.nan)
    squares, of_mean, freedom = residual_moments(len(blocks)).at(ar1)
    error = math.sqrt(fit_line(blocks).squares / squares * of_mean)
    return WindowMean(mean=mean, error=error, freedom=freedom, n=len(part), scatter=fit_line(part).sd)


def _raised_ar1(parts: Sequence[FloatArray]) -> float:
    """Return the correlation of neighbours, raised by its own uncertainty."""
    correlation, count, table = 0.0, 0, np.zeros(len(AR1_GRID))
    for part in parts:
        line = fit_line(part)
        if line.squares > 0:
            moments = residual_moments(len(part))
            correlation += len(part) * lag_products(line.residual) / line.squares
            table += len(part) * moments.neighbours / moments.squares
            count += len(part)
    if not count:
        return float(AR1_GRID[-1])
    table /= count
    ar1 = float(np.interp(correlation / count, table, AR1_GRID))
    slope = float(np.interp(ar1, AR1_GRID, np.gradient(AR1_GRID, table)))
    error = math.sqrt((1 - ar1**2) / count) * max(1.0, slope)
    return min(float(AR1_GRID[-1]), ar1 + AR1_MARGIN * error)


PERCENTILES: Final = {"median": 0.5, "p05": 0.05, "p10": 0.1, "p25": 0.25, "p75": 0.75, "p90": 0.9, "p95": 0.95}
STATISTICS: Final = ("mean", *PERCENTILES, "change", "ratio", "slope")
"""change and ratio: the mean of the last third against that of the first; slope: of a straight line, a step."""
MIN_SUMMARY_VALUES: Final = 10
"""Fewer are not summed up: half of them would be one spell of noise."""
MIN_TAIL_VALUES: Final = 2
"""Values beyond a percentile: with fewer a single one would be the percentile."""
Z975: Final = 1.96
MAX_T_FREEDOM: Final = len(T975)  # beyond these degrees of freedom the normal distribution is close enough


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A statistic with the interval that noise from step to step gives it."""

    value: float
    low: float
    high: float


def summarize(steps: FloatArray, values: FloatArray, statistic: str, *, spread: float, ar1: float) -> Summary | str:
    """Estimate one of STATISTICS from finite values in order, or give the reason why it cannot be estimated.

    `spread` is the standard deviation of one value's noise and `ar1` its AR(1) coefficient: n values carry as much
    information as n (1 - ar1) / (1 + ar1) independent ones. Both are what evidence/baseline_shift.py measures.
    """
    if len(values) < min_values(statistic):
        return f"{len(values)} finite values are logged there; {min_values(statistic)} are needed for this"
    inflation = (1 + ar1) / (1 - ar1)
    if statistic in PERCENTILES:
        return _summarize_quantile(values, PERCENTILES[statistic], len(values) / inflation)
    noise = spread * math.sqrt(inflation)
    freedom = len(values) - 2
    t = T975[freedom - 1] if freedom <= MAX_T_FREEDOM else Z975
    if statistic == "ratio":
        return _summarize_ratio(values, noise, t)
    weights = _linear_weights(steps, statistic)
    value = float(weights @ values)
    reach = t * noise * math.sqrt(float(weights @ weights))
    return Summary(value=value, low=value - reach, high=value + reach)


def min_values(statistic: str) -> int:
    """Return how many values a statistic needs so that a single one does not decide it."""
    q = PERCENTILES.get(statistic, 0.5)
    return max(MIN_SUMMARY_VALUES, math.ceil(MIN_TAIL_VALUES / min(q, 1 - q) - 1e-9))


def _linear_weights(steps: FloatArray, statistic: str) -> FloatArray:
    """Return the weights of the values in a mean, a change or a slope."""
    count, third = len(steps), len(steps) // 3
    if statistic == "mean":
        return np.full(count, 1 / count)
    if statistic == "change":
        return np.repeat([-1 / third, 0.0, 1 / third], [third, count - 2 * third, third])
    centred = steps - steps.mean()
    weights: FloatArray = centred / float(centred @ centred)
    return weights


def _summarize_ratio(values: FloatArray, noise: float, t: float) -> Summary | str:
    third = len(values) // 3
    early, late = float(values[:third].mean()), float(values[-third:].mean())
    if early <= 0 or late < 0:
        which = "first third is not above" if early <= 0 else "last third is below"
        return f"the mean of its {which} 0: a ratio of the two says nothing"
    error = noise / math.sqrt(third)
    value = late / early
    if late == 0:
        return Summary(value=0.0, low=0.0, high=t * error / early)
    reach = min(t * math.hypot(error / early, error / late), 700.0)  # exp of it is finite
    return Summary(value=value, low=value * math.exp(-reach), high=value * math.exp(reach))


def _summarize_quantile(values: FloatArray, q: float, effective: float) -> Summary:
    """Return a percentile and the order statistics between which it lies (binomial, normal approximation).

    An end that would lie beyond all values is open: so few tell nothing of it.
    """
    reach = Z975 * math.sqrt(q * (1 - q) / effective)
    low, value, high = (float(end) for end in np.quantile(values, [max(0.0, q - reach), q, min(1.0, q + reach)]))
    return Summary(value=value, low=low if q > reach else -math.inf, high=high if q + reach < 1 else math.inf)
