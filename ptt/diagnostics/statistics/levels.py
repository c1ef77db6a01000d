"""The mean of a stretch of logged values, and how closely values that follow one another tell it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.statistics.about_line import LIKENESSES, left_of, line_of
from ptt.diagnostics.statistics.few_points import MOST_LIKENESS, MOST_POINTS, T975, T999
from ptt.diagnostics.statistics.products import dot

FloatArray = npt.NDArray[np.float64]

LEAST_VALUES: Final = 20
"""In a stretch: with fewer, likeness to the neighbour cannot be told from a trend, and intervals come out short."""
NO_NOISE: Final = 1e-9
"""Of the values' size: what scatters less about its line is a schedule or a constant, and was not measured."""
ROUNDING: Final = 1e-9  # of degrees of freedom that are whole numbers but for their last bit
T95: Final = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753,
              1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717)  # fmt: skip
"""Student's t, 95th percentile, at 1, 2, ... 22 degrees of freedom: for tests of likeness."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """A mean with its standard error; `error` is NaN where too few values tell it."""

    mean: float
    error: float
    freedom: int
    noise: float  # standard deviation of a single value about the line through all
    values: int

    def bounds(self, table: Sequence[float] = T975) -> tuple[float, float]:
        """Give the interval, 95 % by default; NaN where the error is not known."""
        if math.isnan(self.error):
            return math.nan, math.nan
        reach = table[min(self.freedom, len(table)) - 1] * self.error
        return self.mean - reach, self.mean + reach

    def exceeds_zero(self) -> int:
        """Give 1 or -1 where the 99.8 % interval lies above or below zero, else 0."""
        low, high = self.bounds(T999)
        return 1 if low > 0 else -1 if high < 0 else 0


def levels_of(pieces: Sequence[FloatArray]) -> list[Level]:
    """Give the mean of each of several stretches of one series, with an error that knows that steps follow each other.

    A stretch's error is that of at most 24 block means about a straight line (a trend is no noise), taken for an AR(1).
    Its likeness is told from all stretches together, since a single short one cannot tell its own, and held within 0
    and 0.8. A line takes off much of noise that follows itself: likeness, spread and degrees of freedom are what they
    would have to be for residuals of a line to look as they do (expectations; Satterthwaite's freedom).
    """
    usable = [piece[np.isfinite(piece)] for piece in pieces]
    blocks = [_blocks(piece) for piece in usable if len(piece) >= LEAST_VALUES]
    likeness = _likeness(blocks)
    return [_level(piece, likeness) for piece in usable]


def _level(values: FloatArray, likeness: float) -> Level:
    if not len(values):
        return Level(mean=math.nan, error=math.nan, freedom=0, noise=math.nan, values=0)
    mean = float(values.mean()) if np.ptp(values) else float(values[0])
    if len(values) < LEAST_VALUES:
        return Level(mean=mean, error=math.nan, freedom=0, noise=math.nan, values=len(values))
    noise = _about_line(values)[1]
    if noise <= NO_NOISE * float(np.abs(values).max()):
        return Level(mean=mean, error=0.0, freedom=len(values) - 2, noise=0.0, values=len(values))
    blocks = _blocks(values)
    squares, of_mean, freedom = left_of(len(blocks)).at(likeness)
    error = math.sqrt(dot(blocks, blocks) / squares * of_mean)
    return Level(
        mean=mean, error=error, freedom=max(1, math.floor(freedom + ROUNDING)), noise=noise, values=len(values)
    )


def _blocks(values: FloatArray) -> FloatArray:
    """Give what at most 24 blocks lie off the line through all values: blocks are not all of one length."""
    residual = _about_line(values)[0]
    if len(values) <= MOST_POINTS:
        return residual
    return np.array([part.mean() for part in np.array_split(residual, MOST_POINTS)])


def _likeness(pieces: Sequence[FloatArray]) -> float:
    """Give the AR(1) whose residuals, about a line in each piece, are expected to follow each other as these do."""
    squares = math.fsum(dot(piece, piece) for piece in pieces)
    if squares <= 0:
        return 0.0
    followed = math.fsum(dot(piece[1:], piece[:-1]) for piece in pieces) / squares
    left = [left_of(len(piece)) for piece in pieces]
    expected = np.sum([one.neighbours for one in left], axis=0) / np.sum([one.squares for one in left], axis=0)
    return min(float(np.interp(followed, expected, LIKENESSES)), MOST_LIKENESS)


def pooled(levels: Sequence[Level], between: float = 0.0, freedom: int = 0) -> Level:
    """Give the mean over seeds; `between` is the variance of a seed's mean, by `freedom` differences of seeds.

    Never closer than the seeds' own noise: a few seeds may lie together by chance.
    """
    count = len(levels)
    mean = math.fsum(level.mean for level in levels) / count
    own = math.fsum(level.error**2 for level in levels) / count
    least = min((level.freedom for level in levels), default=0)
    spread = freedom > 0 and between > own
    return Level(
        mean=mean,
        error=math.sqrt(max(own, between if freedom else 0.0) / count),
        freedom=freedom if spread else least,
        noise=math.fsum(level.noise for level in levels) / count,
        values=sum(level.values for level in levels),
    )


def between_seeds(sides: Sequence[Sequence[Level]]) -> tuple[float, int]:
    """Give the variance of seeds' means about their side's, of all sides together, and its degrees of freedom."""
    squares, freedom = 0.0, 0
    for side in sides:
        means = np.array([level.mean for level in side])
        squares += float(np.square(means - means.mean()).sum())
        freedom += len(means) - 1
    return (squares / freedom if freedom else 0.0), freedom


def minus(one: Level, other: Level) -> Level:
    """Give the difference of two levels that were measured apart; freedom after Welch and Satterthwaite."""
    variance = one.error**2 + other.error**2
    if math.isnan(variance):  # too few values on one side: a difference, and no error of it
        freedom = max(one.freedom, other.freedom)
        return Level(
            mean=one.mean - other.mean,
            error=math.nan,
            freedom=freedom,
            noise=max(one.noise, other.noise),
            values=min(one.values, other.values),
        )
    parts = [(level.error**4, level.freedom) for level in (one, other) if level.freedom > 0]
    weight = math.fsum(fourth / freedom for fourth, freedom in parts)
    freedom = max(1, int(variance**2 / weight)) if weight > 0 else max(one.freedom, other.freedom)
    return Level(
        mean=one.mean - other.mean,
        error=math.sqrt(variance),
        freedom=freedom,
        noise=max(one.noise, other.noise),
        values=min(one.values, other.values),
    )


def _about_line(values: FloatArray) -> tuple[FloatArray, float]:
    """Give what values lie off their straight line, and the standard deviation of it."""
    line = line_of(values)
    return line.residual, math.sqrt(line.squares / (len(values) - 2))
