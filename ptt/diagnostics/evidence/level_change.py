"""How far a series moved from its start, and how far it fell from its best: for what is learnt in the first steps.

`baseline_shift` asks whether a series left its early level. A reward may rise, or an outcome be lost, before there is
such a level: here the first window, or the best one, is compared with the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ptt.diagnostics.evidence.baseline_shift import MAX_POINTS, MIN_VALUES, Z_POWER, passed_by_values
from ptt.diagnostics.evidence.series import Series, condense, finite_series
from ptt.diagnostics.model import Steps
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.level_crossing import MIN_LEVEL_VALUES, change_place, level_after
from ptt.diagnostics.statistics.trend import rolling_mean

Z_LIMIT: Final = 6.0
"""Standard deviations of a window's mean. Noise alone, AR(1) of 0 to 0.8 and 30 to 1000 values, ends so far below its
best window in five of a thousand runs at most, before the size of the fall is asked for."""
AR1_CORRECTION: Final = 0.25
"""Added to the lag-1 correlation that the residuals show: a running median takes some of it away."""
MIN_AR1_VALUES: Final = 60  # values: of fewer, the correlation is not known; STEP_LIKENESS stands for it
MAX_AR1: Final = 0.8  # AR(1) of step noise: more is taken for this much
LEFT_SHARE: Final = 0.4  # of the run, behind a fall that is to be seen
LOST_FRACTION: Final = 0.25  # of what is lost in the end: the onset is where so much is lost for good


@dataclass(frozen=True, kw_only=True)
class LevelChange:
    """One level compared with the last one."""

    start: float  # mean of the window that is compared with the end, before the change
    start_step: int  # the last step of that window
    late: float  # mean of the last window after the change; of the last two where none was found
    noise: float  # standard deviation of a window's mean
    moved: float  # from the whole window to the whole of the last two: what its noise is known for
    onset: int | None  # from where on it was left for good; None where it was not left
    interval: Steps | None
    alarm: int | None  # at which a mean over a window says so

    @property
    def amount(self) -> float:
        """How far it moved."""
        return self.late - self.start

    @property
    def sds(self) -> float:
        """How far whole windows moved, in standard deviations of a window's mean."""
        if self.noise > 0:
            return self.moved / self.noise
        return math.copysign(math.inf, self.moved) if self.moved else 0.0

    @property
    def share(self) -> float:
        """How far it moved, of the larger of both levels; 0 where both are 0."""
        return self.amount / self.scale if self.scale > 0 else 0.0

    @property
    def scale(self) -> float:
        """The larger of both levels."""
        return max(abs(self.start), abs(self.late))

    @property
    def window_share(self) -> float:
        """How far whole windows moved, of the larger level: as what is held against it is measured."""
        return self.moved / self.scale if self.scale > 0 else 0.0


def change_since_start(series: Series) -> LevelChange | None:
    """Compare the first window with the end; None for fewer than 30 values."""
    return _change_from(series, lambda _steps, _values, width: width - 1)


def change_since_best(series: Series) -> LevelChange | None:
    """Compare the best window with the end; None for fewer than 30 values."""
    return _change_from(series, lambda _, values, width: int(np.nanargmax(rolling_mean(values, width))))


def change_since(series: Series, step: int) -> LevelChange | None:
    """Compare the window that ends at `step` with the end; None for fewer than 30 values."""
    return _change_from(
        series, lambda steps, _, width: max(int(np.searchsorted(steps, step, side="right")) - 1, width - 1)
    )


def detectable_fall(series: Series) -> float | None:
    """Return the smallest fall from the best window that noise does not hide in four of five such runs.

    A fall with two fifths of the run still to come: in a short run the last two windows hold what was before it too.
    None for fewer than 30 values.
    """
    small = condense(series, MAX_POINTS)
    values = small.finite()[1]
    if len(values) < MIN_VALUES:
        return None
    diluted = max(1.0, 2 * small.width / (LEFT_SHARE * len(values)))
    return diluted * (Z_LIMIT + Z_POWER) * window_mean_noise(values, small.width)


def window_mean_noise(values: FloatArray, width: int) -> float:
    """Return the standard deviation of a mean over `width` values, from what they lie off their running median."""
    if len(values) < 2 * width:
        return math.nan
    half = width // 2
    centre = np.median(sliding_window_view(np.pad(values, half, mode="edge"), 2 * half + 1), axis=1)
    off = values - centre
    square = float(np.mean(np.square(off)))
    ar1 = MAX_AR1
    if len(values) >= MIN_AR1_VALUES and square > 0:
        raw = float(np.mean(off[1:] * off[:-1])) / square
        ar1 = min(max(0.0, raw + AR1_CORRECTION + (1 + 3 * raw) / len(off)), MAX_AR1)
    return math.sqrt(square * (1 + ar1) / (1 - ar1) / width)


def _change_from(series: Series, window_end: Callable[[IntArray, FloatArray, int], int]) -> LevelChange | None:
    """Compare the window that ends at `window_end` with the last two windows.

    The noise is the larger of that near the window and that of the whole series. Where the level changed, what of these
    windows lies on the other side of the change counts for neither level.
    """
    small = condense(series, MAX_POINTS)
    steps, values = small.finite()
    width = small.width
    if len(values) < MIN_VALUES:
        return None
    end = window_end(steps, values, width)
    near = values[max(0, end - 3 * width) : end + 3 * width]
    noise = np.nanmax([window_mean_noise(near, width), window_mean_noise(values, width), 0.0])
    first = max(0, end - width + 1)
    start, late = float(values[first : end + 1].mean()), float(values[-2 * width :].mean())
    alarm, onset, interval = None, None, None
    moved = late - start
    bound = max(3 * float(noise), LOST_FRACTION * abs(moved))
    if abs(moved) > bound and end + 1 < len(values):
        beyond = math.copysign(1.0, moved) * (values - start)
        alarm = finite_series("", steps[end + 1 :], beyond[end + 1 :]).excess(bound)
        if alarm is not None:
            whole = finite_series("", steps[first:], beyond[first:])  # the window itself may end behind the change
            onset, interval = passed_by_values(whole, bound, alarm) or (alarm, None)
            since = values[first:]
            place = change_place(since, start, width)
            start = float(since[: min(max(place, MIN_LEVEL_VALUES), end + 1 - first)].mean())
            late = level_after(since, start, width, float(noise))
    return LevelChange(
        start=start,
        start_step=int(steps[end]),
        late=late,
        noise=float(noise),
        moved=moved,
        onset=onset,
        interval=interval,
        alarm=alarm,
    )
