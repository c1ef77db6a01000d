"""The mean of a logged metric over windows of steps, with an error that holds for values that follow one another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.statistics.about_line import LIKENESSES, left_of, line_of
from ptt.diagnostics.statistics.products import dot
from ptt.diagnostics.statistics.windows import Span

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

LEAST_VALUES: Final = 6  # four degrees of freedom about a line
MOST_VALUES: Final = 40  # of a window: more are taken as the means of so many blocks
SURE: Final = 1.0
"""Standard errors that the estimated correlation is raised by: taken too low it makes any two seeds differ."""


@dataclass(frozen=True, kw_only=True)
class WindowMean:
    """The mean over one window of steps, and how closely it is known."""

    mean: float  # NaN where the window holds no value
    error: float  # standard error, NaN where too few values to say
    freedom: float  # degrees of freedom that the error is known with
    n: int  # finite values
    scatter: float  # standard deviation of a value about its line


def window_means(steps: IntArray, values: FloatArray, windows: Sequence[Span]) -> tuple[WindowMean, ...]:
    """Give the mean over each window, its error by how values lie about a straight line within the window.

    A line of its own in each window takes out the run's shape; the rest is taken for AR(1) noise, whose correlation
    is told from all windows together and corrected for what the lines took out of it.
    """
    usable = np.isfinite(values)
    steps, values = steps[usable], values[usable]
    parts = [values[(steps >= span.first) & (steps <= span.last)] for span in windows]
    blocks = [_blocks(part) for part in parts]
    likeness = _likeness([part for part in blocks if len(part) >= LEAST_VALUES])
    return tuple(_window(part, held, likeness) for part, held in zip(parts, blocks, strict=True))


def _blocks(part: FloatArray) -> FloatArray:
    if len(part) <= MOST_VALUES:
        return part
    return np.array([piece.mean() for piece in np.array_split(part, MOST_VALUES)])


def _window(part: FloatArray, blocks: FloatArray, likeness: float) -> WindowMean:
    mean = float(part.mean()) if len(part) else math.nan
    if len(blocks) < LEAST_VALUES:
        return WindowMean(mean=mean, error=math.nan, freedom=0.0, n=len(part), scatter=math.nan)
    squares, of_mean, freedom = left_of(len(blocks)).at(likeness)
    error = math.sqrt(line_of(blocks).squares / squares * of_mean)
    scatter = math.sqrt(line_of(part).squares / (len(part) - 2))
    return WindowMean(mean=mean, error=error, freedom=freedom, n=len(part), scatter=scatter)


def _likeness(parts: Sequence[FloatArray]) -> float:
    """Give the correlation of neighbours, raised by its own uncertainty."""
    seen = weight = slope = 0.0
    usable = 0
    table = np.zeros(len(LIKENESSES))
    for part in parts:
        line = line_of(part)
        if line.squares <= 0:
            continue
        seen += len(part) * dot(line.residual[1:], line.residual[:-1]) / line.squares
        left = left_of(len(part))
        table += len(part) * left.neighbours / left.squares
        weight += len(part)
        usable += len(part)
    if not weight:
        return float(LIKENESSES[-1])
    seen, table = seen / weight, table / weight
    found = float(np.interp(seen, table, LIKENESSES))
    slope = float(np.interp(found, LIKENESSES, np.gradient(LIKENESSES, table)))
    error = math.sqrt((1 - found**2) / usable) * max(1.0, slope)
    return min(float(LIKENESSES[-1]), found + SURE * error)
