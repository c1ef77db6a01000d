"""What a straight line leaves of autocorrelated values: a trend is no noise, and residuals understate the noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.statistics.dot_product import dot

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
    residual: FloatArray  # (n,), what the values lie off it

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
    neighbours: FloatArray  # sum of products of residuals that follow one another
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
