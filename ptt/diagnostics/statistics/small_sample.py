"""Changes over a few values, such as evaluations, tested against autocorrelated noise after removing a line.

A trend is not noise, and residuals of a straight line understate autocorrelated noise."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import FloatArray, dot

AR1_GRID: Final = np.linspace(0.0, 0.95, 39)
"""AR(1) correlations of neighbours that are considered; what is longer remembered looks like a shape."""
CACHED_TABLES: Final = 64  # each caller takes long series as the means of a few dozen blocks


def centred_positions(count: int) -> FloatArray:
    """Return `count` positions one apart, their mean 0."""
    return np.arange(count, dtype=np.float64) - (count - 1) / 2


def block_means(values: FloatArray, count: int) -> FloatArray:
    """Return the means of `count` blocks of as equal a length as can be; the values themselves where no more."""
    return values if len(values) <= count else np.array([part.mean() for part in np.array_split(values, count)])


@dataclass(frozen=True)
class LineFit:
    """A straight line through equally spaced values, by least squares."""

    slope: float  # from one value to the next
    residual: FloatArray  # (n,), distances of the values from the line

    @property
    def squares(self) -> float:
        """The sum of squared residuals; it has n - 2 degrees of freedom where the noise is white."""
        return dot(self.residual, self.residual)

    @property
    def sd(self) -> float:
        """The standard deviation of a value about the line, for white noise."""
        return math.sqrt(self.squares / (len(self.residual) - 2))


def fit_line(values: FloatArray) -> LineFit:
    """Fit a straight line through two or more finite values, (n,)."""
    position, centred = centred_positions(len(values)), values - values.mean()
    slope = dot(position, centred) / dot(position, position)
    return LineFit(slope=slope, residual=centred - slope * position)


def lag_products(residual: FloatArray) -> float:
    """Return the sum of products of neighbours, (n,)."""
    return dot(residual[1:], residual[:-1])


@dataclass(frozen=True)
class ResidualMoments:
    """What AR(1) noise of variance 1 is expected to show about a line, one entry a correlation of AR1_GRID."""

    squares: FloatArray  # sum of squared residuals
    neighbours: FloatArray  # sum of products of neighbouring residuals
    of_mean: FloatArray  # variance of the mean
    freedom: FloatArray  # of the sum of squares (Satterthwaite)

    def at(self, ar1: float) -> tuple[float, float, float]:
        """Return the squares, the variance of the mean, and the freedom at one correlation."""
        squares, of_mean, freedom = (
            float(np.interp(ar1, AR1_GRID, column)) for column in (self.squares, self.of_mean, self.freedom)
        )
        return squares, of_mean, freedom


@lru_cache(maxsize=CACHED_TABLES)
def residual_moments(count: int) -> ResidualMoments:
    """Return what a line leaves of `count` values.

    With M = I - H taking the line off and R the noise's correlations, the residuals' covariance is S = M R M: tr S,
    the sum of its first off-diagonal, mean R, and (tr S)^2 / tr S^2.
    """
    position = centred_positions(count)
    off = np.eye(count) - 1 / count - np.outer(position, position) / dot(position, position)
    lag = np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
    rows = []
    for ar1 in AR1_GRID:
        noise = np.where(lag == 0, 1.0, ar1 ** np.maximum(lag, 1))
        residual = np.einsum("ij,jk->ik", np.einsum("ij,jk->ik", off, noise), off)  # BLAS may add in another order
        squares = float(np.trace(residual))
        freedom = squares**2 / float(np.square(residual).sum())
        rows.append((squares, float(np.trace(residual, offset=1)), float(noise.mean()), freedom))
    return ResidualMoments(*np.array(rows).T)


MIN_POINTS: Final = 6  # four degrees of freedom: with fewer, the width of the interval says more than the figure
MAX_BLOCKS: Final = 24  # more points are first reduced to this many block means
MAX_AR1: Final = 0.8  # largest AR(1) that an interval is widened for
MIN_THIRDS_POINTS: Final = 12  # so many are needed to compare the first third with the last without a line
STEP_FACTOR: Final = 10.0
"""Times the noise from point to point. AR(1) noise of 0.8, the most that is allowed for, puts its thirds so far
apart in two or three of a thousand; a step, which no straight line fits, does so in plain sight."""
T975: Final = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.145, 2.13, 2.12, 2.11,
               2.10, 2.09, 2.09, 2.08, 2.07)  # fmt: skip
"""Student's t, 97.5th percentile, at 1, 2, ... 22 degrees of freedom."""
T999: Final = (318.3, 22.33, 10.21, 7.17, 5.89, 5.21, 4.79, 4.50, 4.30, 4.14, 4.02, 3.93, 3.85, 3.79, 3.73, 3.69, 3.65,
               3.61, 3.58, 3.55, 3.53, 3.50)  # fmt: skip
"""The 99.9th percentile."""


@dataclass(frozen=True, kw_only=True)
class LineChange:
    """The change over all points, by a straight line, with its standard error."""

    early: float  # mean of the first third
    late: float  # mean of the last third
    amount: float  # of the line's change, from the first point to the last
    error: float
    freedom: int
    noise: float = math.inf  # standard deviation of a point, by how neighbours differ; inf: too few to say

    @property
    def lowest(self) -> float:
        """The lower end of the 95% interval."""
        return self.amount - T975[self.freedom - 1] * self.error

    @property
    def highest(self) -> float:
        """The upper end of the 95% interval."""
        return self.amount + T975[self.freedom - 1] * self.error

    @property
    def significant_sign(self) -> int:
        """1 or -1 where it rose or fell significantly (p < 0.001), by the line or by a step, else 0."""
        beyond = abs(self.amount) - T999[self.freedom - 1] * self.error > 0
        stepped = self.late - self.early
        apart = abs(stepped) > STEP_FACTOR * self.noise and stepped * self.amount > 0
        return 0 if not (beyond or apart) else 1 if self.amount > 0 else -1

    @property
    def highest_999(self) -> float:
        """The upper end of the 99.8% interval."""
        return self.amount + T999[self.freedom - 1] * self.error


def estimate_change(values: FloatArray) -> LineChange | None:
    """Estimate the change over points in order; None for fewer than six finite ones.

    Points are taken as equally spaced, as evaluations are. The error is widened by the residuals' lag-1 correlation,
    corrected for its bias in short series (Kendall 1954).
    """
    values = values[np.isfinite(values)]
    if len(values) < MIN_POINTS:
        return None
    values = block_means(values, MAX_BLOCKS)
    count = len(values)
    line, position = fit_line(values), centred_positions(count)
    raw = lag_products(line.residual) / line.squares if line.squares > 0 else 0.0
    ar1 = min(max(0.0, raw + (1 + 3 * raw) / count), MAX_AR1)
    error = line.sd * (count - 1) / math.sqrt(dot(position, position)) * math.sqrt((1 + ar1) / (1 - ar1))
    third = max(1, count // 3)
    return LineChange(
        early=float(values[:third].mean()),
        late=float(values[-third:].mean()),
        amount=line.slope * (count - 1),
        error=error,
        freedom=count - 2,
        noise=_point_noise(values) if count >= MIN_THIRDS_POINTS else math.inf,
    )


def _point_noise(values: FloatArray) -> float:
    """Return the standard deviation of a point by how neighbours differ; the largest difference may be the step."""
    squares = np.sort(np.square(np.diff(values)))[:-1]
    return math.sqrt(float(squares.mean()) / 2)


MIN_FEW: Final = 5  # values: two that are best, two at the end, and one between
MAX_FEW: Final = 60  # values: of more, noise and its correlation are known from the series itself
NULL_AR1: Final = 0.5  # AR(1) of the noise that a fall is compared with; few values do not show their own
NULL_FREEDOM: Final = 5.0  # Student t of that noise: heavy tails, so that one outlier decides nothing
DRAWS: Final = 9999  # of noise without any fall: p-values go down to 0.0001
SEED: Final = 20_261_127
STEP_BENDS: Final = 2  # second differences that a step makes, left out of the noise
BEND_VARIANCE: Final = 6.0  # variance of a second difference over that of one value, in white noise
WINDOW_SHARE: Final = 5  # a window takes a fifth of the values
MIN_WINDOW: Final = 2  # values: one alone is no level
TINY: Final = 1e-12  # relative to the values: differences of equal values


@dataclass(frozen=True, kw_only=True)
class FewFall:
    """The fall of few values from their best window to their last one."""

    best: float
    late: float
    best_place: int  # the last value of the best window
    onset: int  # the first value from which all are below halfway
    p_value: float

    @property
    def share(self) -> float:
        """How far it fell, of the larger of both levels; 0 where both are 0."""
        scale = max(abs(self.best), abs(self.late))
        return (self.best - self.late) / scale if scale > 0 else 0.0


def fall_from_best(values: FloatArray) -> FewFall | None:
    """Return the fall from the best window of few finite values, (n,), to the last; None for fewer than MIN_FEW.

    The statistic is the difference of both means in standard errors. Noise is how far values are from the middle of
    their neighbours, so that a slope does not count, without the two largest bends, which a step makes. Its null is
    simulated: heavy-tailed AR(1) noise of as many values, with the best window chosen in the same way.
    """
    count = len(values)
    if count < MIN_FEW:
        return None
    width = _width(count)
    means = sliding_window_view(values, width).mean(axis=-1)
    best = int(np.argmax(means))
    late = float(values[-width:].mean())
    observed = float(_statistics(values[None])[0])
    null = _null(count)
    above = np.flatnonzero(values > (float(means[best]) + late) / 2)
    return FewFall(
        best=float(means[best]),
        late=late,
        best_place=best + width - 1,
        onset=min(int(above[-1]) + 1, count - 1) if len(above) else count - 1,
        p_value=float((1 + np.count_nonzero(null >= observed - TINY)) / (1 + len(null))),
    )


def _width(count: int) -> int:
    return max(MIN_WINDOW, count // WINDOW_SHARE)


def _statistics(values: FloatArray) -> FloatArray:
    """Return the fall of each row, (draws, n), in standard errors."""
    width = _width(values.shape[-1])
    bends = np.sort(np.square(np.diff(values, n=2, axis=-1)), axis=-1)
    squares = bends[:, : -min(STEP_BENDS, (bends.shape[-1] + 1) // 3)]
    noise = np.sqrt(squares.mean(axis=-1) / BEND_VARIANCE)
    best = sliding_window_view(values, width, axis=-1).mean(axis=-1).max(axis=-1)
    floor = TINY * np.maximum(np.abs(values).max(axis=-1), np.finfo(np.float64).tiny)
    fall: FloatArray = (best - values[:, -width:].mean(axis=-1)) / np.maximum(noise * math.sqrt(2 / width), floor)
    return fall


@lru_cache(maxsize=MAX_FEW)
def _null(count: int) -> FloatArray:
    """Draw the statistic for `count` values of noise alone."""
    drawn = np.random.default_rng(SEED).standard_t(NULL_FREEDOM, size=(DRAWS, count))
    noise = np.empty_like(drawn)
    noise[:, 0] = drawn[:, 0]
    for place in range(1, count):
        noise[:, place] = NULL_AR1 * noise[:, place - 1] + math.sqrt(1 - NULL_AR1**2) * drawn[:, place]
    return _statistics(noise)
