"""Where a metric leaves its own early behaviour for good, and how far it moved from its start or fell from its best.

Limits are relative to the run and to the series' own noise. A series that is learnt within the first steps has no early
level, so it is compared with its start and its best."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.series import Series, condense, excess_interval, finite_series
from ptt.diagnostics.model import Steps
from ptt.diagnostics.statistics.arrays import MAD_TO_SD, FloatArray, IntArray
from ptt.diagnostics.statistics.change_point import (
    MIN_LEVEL_VALUES,
    change_place,
    crossing_interval,
    level_after,
    level_crossing,
    mean_change,
    rank_shift,
    share_crossing_interval,
)
from ptt.diagnostics.statistics.trend import rolling_mean

MIN_VALUES: Final = 30  # finite values: fewer have no early part to compare the rest with
EARLY_SHARE: Final = 0.2
EARLY_MIN_VALUES: Final = 20
EARLY_MAX_VALUES: Final = 200  # values: a long run's early behaviour is its beginning, not its first fifth
MAX_POINTS: Final = 2000  # a longer series is reduced to this many block means, so that windows grow with the run
Z_LIMIT: Final = (
    4.0  # errors of a window's mean over the early one: few runs in a thousand pass by chance (docs/statistics.md)
)
Z_POWER: Final = 0.84  # 80th percentile of the normal distribution: the power to see a window's mean pass its bound
POWER_SDS: Final = 1.5  # standard errors: two windows must pass a bound, the one of the alarm and the last
FAR_LAG: Final = 5  # values between which noise is separated from its autocorrelation
MAX_AR1: Final = 0.9  # AR(1) of step noise: more is taken for this much
MIN_AR1: Final = 0.3  # and less is taken for this much: a short run cannot show that there is none
MIN_OUTLIERS: Final = 10  # differences that level changes at two places make
MAX_RANK_VALUES: Final = 60  # values: of fewer, the autocorrelation is not known well enough for `early_level`
RANK_Z_LIMIT: Final = 3.5  # standard deviations of a rank sum: one in four thousand; ten values against ten reach 3.78
MIN_RANK_VALUES: Final = 21  # values: seven against seven do without overlap once in 3432 times by chance
MAX_LOG: Final = 300.0  # exp of it is finite
ALARM_REACH: Final = 1.5  # times a window: as far before its mean passes a limit single steps may have
ALARM_CONTEXT: Final = 4.0  # windows before an alarm, and one after it, whose noise gives the interval of the date


@dataclass(frozen=True, kw_only=True)
class EarlyLevel:
    """How a series behaves at first; of logarithms where all its values are positive."""

    median: float
    error: float  # standard error of a later window's mean against it, where nothing changed
    values: int
    last_step: int


@dataclass(frozen=True, kw_only=True)
class BaselineShift:
    """A lasting departure from the early level."""

    onset: int
    interval: Steps  # 95%, of the onset
    early: float  # before the change
    extreme: float  # the mean over a window that lies furthest off
    last: float  # the mean over the last window, after the change
    limit: float
    ended: bool  # the last window is back within the limit

    @property
    def ratio(self) -> float:
        """The extreme over the early level; NaN for a level of zero."""
        return self.extreme / self.early if self.early else math.nan


def early_level(series: Series) -> EarlyLevel | None:
    """Return the level of the first fifth, of 20 values at least and 200 at most; None where nothing follows it."""
    steps, values = series.finite()
    if len(values) < MIN_VALUES:
        return None
    count = min(max(EARLY_MIN_VALUES, int(EARLY_SHARE * len(values))), EARLY_MAX_VALUES)
    spread, ar1 = step_noise(values)
    inflation = (1 + ar1) / (1 - ar1)
    return EarlyLevel(
        median=float(np.median(values[:count])),
        error=spread * math.sqrt(inflation * (1 / series.width + 1 / count)),
        values=count,
        last_step=int(steps[count - 1]),
    )


def detectable_shift(series: Series, *, least: float = 0.0, sds: float = Z_LIMIT) -> float | None:
    """Return the smallest lasting shift that a rule reports in four of five such runs, if it asks for `least`.

    In the arithmetic of `lasting_rise` and `lasting_fall`, and on the scale of the series. None where it is so short
    that nothing would follow a change in its middle.
    """
    level = early_level(condense(series, MAX_POINTS))
    if level is None or len(series.finite()[1]) < 2 * MIN_VALUES:
        return None
    return max(least, sds * level.error) + POWER_SDS * level.error


def step_noise(values: FloatArray) -> tuple[float, float]:
    """Estimate a series' noise: its standard deviation and AR(1), from how values one and five apart differ.

    Medians of absolute differences: neither a trend nor a level that changes at a few places counts as noise. For an
    AR(1) of correlation p the squared differences k apart are 2 sd^2 (1 - p^k); p is held within LIKELY and LIKEST.
    """
    near, far = (_difference_sd(values[gap:] - values[:-gap]) for gap in (1, FAR_LAG))
    if near <= 0 or far <= near:
        ar1 = MIN_AR1
    else:
        grid = np.linspace(MIN_AR1, MAX_AR1, 61)
        ratios = (1 - grid**FAR_LAG) / (1 - grid)
        ar1 = float(grid[np.argmin(np.abs(ratios - (far / near) ** 2))])
    return max(far, near) / math.sqrt(2 * (1 - ar1**FAR_LAG)), ar1


def _difference_sd(differences: FloatArray) -> float:
    """Return the standard deviation of differences, by their median size.

    Where most are 0, as of counts of few trials, by the mean square of all but the largest tenth, and ten at least: a
    level that changes at a few places is no noise.
    """
    sizes = np.sort(np.abs(differences))
    median = MAD_TO_SD * float(np.median(sizes))
    few = sizes[: len(sizes) - max(MIN_OUTLIERS, len(sizes) // 10)]
    return median if median > 0 or not len(few) else math.sqrt(float(np.mean(np.square(few))))


def lasting_rise(
    series: Series, *, floor: float, factor: float = 1.0, margin: float = 0.0, sds: float = Z_LIMIT
) -> BaselineShift | None:
    """Return the lasting rise above early * factor + margin, above the noise of a window, and above `floor`, or None.

    `floor`: the level from which it matters at all, in the metric's own unit; `factor` >= 1 applies to positive levels.
    The bound is the highest of the three. Means and noise are taken of logarithms if all values are positive. None for
    a series that is too short.
    """
    small = condense(series, MAX_POINTS)
    logs = bool((small.finite()[1] > 0).all())
    scaled = replace(small, values=np.log(small.values)) if logs else small
    level = early_level(scaled)
    if level is None:
        return None
    early, noise = level.median, level.median + sds * level.error
    if logs:
        early, noise = math.exp(early), math.exp(min(noise, MAX_LOG))
    bound = max(floor, (early * factor if early > 0 else early) + margin, noise)
    shift = _lasting_excess(scaled, level, math.log(bound) if logs else bound)
    if shift is None or not logs:
        return shift
    early, extreme, last = (math.exp(min(log, MAX_LOG)) for log in (shift.early, shift.extreme, shift.last))
    return replace(shift, early=early, extreme=extreme, last=last, limit=bound)


def ranked_rise(series: Series, *, floor: float, margin: float = 0.0) -> BaselineShift | None:
    """Return the rise of few values from the first third of them to the last, by their ranks, or None.

    In few values a level that moved early looks like noise that remembers, and `lasting_rise` allows for too much.
    """
    steps, values = series.finite()
    if not MIN_RANK_VALUES <= len(values) < MAX_RANK_VALUES:
        return None
    third = len(values) // 3
    early, late = values[:third], values[-third:]
    bound = max(floor, float(np.median(early)) + margin)
    change = mean_change(values)
    if change is None or float(late.mean()) <= bound or not ranks_apart(early, late):
        return None
    return BaselineShift(
        onset=int(steps[change[0]]),
        interval=(int(steps[change[1]]), int(steps[change[2]])),
        early=float(np.median(early)),
        extreme=float(late.max()),
        last=level_after(values, float(np.median(early)), third, math.inf),
        limit=bound,
        ended=False,
    )


def ranks_apart(early: FloatArray, late: FloatArray) -> bool:
    """Return whether the late values lie above the early ones by more than chance, seven of each at least."""
    return bool(early.max() < late.min()) or rank_shift(early, late) >= RANK_Z_LIMIT


def lasting_fall(
    series: Series, *, ceiling: float, factor: float = 1.0, margin: float = 0.0, sds: float = Z_LIMIT
) -> BaselineShift | None:
    """Return the lasting fall below early * factor - margin, below the noise of a window, and below `ceiling`, or None.

    The mirror of `lasting_rise`, but without logarithms, since a series may fall to 0.
    """
    small = condense(series, MAX_POINTS)
    level = early_level(small)
    if level is None:
        return None
    scaled = level.median * factor if level.median > 0 else level.median
    bound = min(ceiling, scaled - margin, level.median - sds * level.error)
    turned = replace(level, median=-level.median)
    shift = _lasting_excess(replace(small, values=-small.values), turned, -bound)
    return shift and replace(
        shift, early=0.0 - shift.early, extreme=0.0 - shift.extreme, last=0.0 - shift.last, limit=bound
    )  # 0.0 - x: of nothing left no -0


def mean_width(series: Series) -> int:
    """Return how many values of a series a mean of `lasting_rise` covers."""
    return series.width * -(-len(series.finite()[0]) // MAX_POINTS)


def dated_by_steps(
    shift: BaselineShift, steps: IntArray, hits: FloatArray, trials: FloatArray, window: int
) -> BaselineShift:
    """Date the rise of a share by where the best rising curve through single steps crosses its limit, not by a mean.

    hits, trials: counts at each step; for a logged share, trials are all 1 and hits are the share. window: how many
    steps the mean covers, and so how much later it may cross the limit. The interval starts right after the last step
    that surely lies before the crossing.
    """
    crossed = _crossed(shift.onset, steps, hits - shift.limit * trials, window)
    if crossed is None or not 0 < shift.limit < 1:
        return shift
    first, near = crossed
    between = share_crossing_interval(hits[near], trials[near], shift.limit, first - near.start)
    onset, interval = _dated(steps, first, (near.start + between[0], near.start + between[1]))
    return replace(shift, onset=onset, interval=interval)


def dated_by_values(shift: BaselineShift, series: Series) -> BaselineShift:
    """Date a rise to a positive limit by where the best rising curve through single values crosses it, not by a mean.

    A value counts by its distance from the limit, capped at the limit itself, so that a few outliers cannot set the
    date.
    """
    passed = passed_by_values(series, shift.limit, shift.onset)
    return shift if passed is None else replace(shift, onset=passed[0], interval=passed[1])


def passed_by_values(series: Series, limit: float, alarm: int) -> tuple[int, Steps] | None:
    """Return the step at which single values cross a positive limit that their mean crossed at step `alarm`, and its
    95% interval; None if they do not cross it.
    """
    steps, values = series.finite()
    if not limit > 0:
        return None
    above = np.clip(values / limit - 1, -1.0, 1.0)
    crossed = _crossed(alarm, steps, above, mean_width(series))
    if crossed is None:
        return None
    first, near = crossed
    low, high = (near.start + place for place in crossing_interval(above[near], 0.0))
    return _dated(steps, first, (min(low, first), max(high, first)))


def _crossed(alarmed: int, steps: IntArray, above: FloatArray, window: int) -> tuple[int, slice] | None:
    """Return the place, before a mean's alarm, from which values exceed a limit, and the range of places around it."""
    alarm = int(np.searchsorted(steps, alarmed, side="right"))
    begin = max(0, alarm - math.ceil(ALARM_REACH * window))
    within = level_crossing(above[begin:alarm], 0.0)
    near = slice(max(0, alarm - math.ceil(ALARM_CONTEXT * window)), alarm + window)
    return None if within is None else (begin + within, near)


def _dated(steps: IntArray, first: int, between: tuple[int, int]) -> tuple[int, Steps]:
    low, high = between
    before = int(steps[low - 1]) + 1 if low else int(steps[0])
    return int(steps[first]), (before, int(steps[min(high, len(steps) - 1)]))


def departure(series: Series, onset: int, *, sds: float = Z_LIMIT) -> int:
    """Return the first step of the window whose mean left its early level, by more than noise, on its way to a limit.

    A limit far from that level is passed long after the series set out for it.
    """
    small = condense(series, MAX_POINTS)
    level, (steps, mean) = early_level(small), small.rolling()
    if level is None:
        return onset
    within = (np.abs(mean - level.median) <= sds * level.error) & (steps < onset)
    last = np.flatnonzero(within)
    return int(steps[max(0, last[-1] + 2 - small.width)]) if len(last) else onset


def _lasting_excess(series: Series, level: EarlyLevel, bound: float) -> BaselineShift | None:
    """Return the first lasting excess after the first half of the early part."""
    steps, values = series.finite()
    after = series.steps > steps[level.values // 2]
    later = replace(series, steps=series.steps[after], values=series.values[after], flags=series.flags[after])
    onset = later.excess(bound)
    if onset is None:
        return None
    means = later.rolling()[1]
    means = means[np.isfinite(means)]
    early, last = level.median, float(means[-1])
    if last > bound:
        place = change_place(values, early, later.width)
        early = float(np.median(values[: min(max(place, level.values // 2), level.values)]))
        last = level_after(values, early, later.width, level.error)
    return BaselineShift(
        onset=onset,
        interval=excess_interval(later, bound, onset),
        early=early,
        extreme=max(float(means.max()), last),
        last=last,
        limit=bound,
        ended=bool(means[-1] <= bound),
    )


CHANGE_SDS: Final = 6.0
"""Standard deviations of a window's mean. Noise alone, with AR(1) of 0 to 0.8 and 30 to 1000 values, ends this far
below its best window in at most five of a thousand runs, even before the size of the fall is tested."""
AR1_CORRECTION: Final = 0.25
"""Added to the lag-1 correlation that the residuals show: a running median takes some of it away."""
MIN_AR1_VALUES: Final = 60  # values: with fewer, the correlation is unknown and STEP_AR1 stands in
CHANGE_AR1: Final = 0.8  # AR(1) of step noise: more is taken for this much
LEFT_SHARE: Final = 0.4  # of the run: how much must follow a fall for it to show
LOST_FRACTION: Final = 0.25  # of the final loss: the onset is where this much is lost for good


@dataclass(frozen=True, kw_only=True)
class LevelChange:
    """One level compared with the last one."""

    start: float  # mean of the window that is compared with the end, before the change
    start_step: int  # the last step of that window
    late: float  # mean of the last window after the change; of the last two where none was found
    noise: float  # standard deviation of a window's mean
    moved: float  # from the whole window to both last ones together, the change that `noise` applies to
    onset: int | None  # from here on the level was left for good; None where it was not left
    interval: Steps | None
    alarm: int | None  # the step at which a window's mean shows it

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
        """How far whole windows moved, relative to the larger level."""
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
    return diluted * (CHANGE_SDS + Z_POWER) * window_mean_noise(values, small.width)


def window_mean_noise(values: FloatArray, width: int) -> float:
    """Return the standard deviation of a mean over `width` values, from what they lie off their running median."""
    if len(values) < 2 * width:
        return math.nan
    half = width // 2
    centre = np.median(sliding_window_view(np.pad(values, half, mode="edge"), 2 * half + 1), axis=1)
    off = values - centre
    square = float(np.mean(np.square(off)))
    ar1 = CHANGE_AR1
    if len(values) >= MIN_AR1_VALUES and square > 0:
        raw = float(np.mean(off[1:] * off[:-1])) / square
        ar1 = min(max(0.0, raw + AR1_CORRECTION + (1 + 3 * raw) / len(off)), CHANGE_AR1)
    return math.sqrt(square * (1 + ar1) / (1 - ar1) / width)


def _change_from(series: Series, window_end: Callable[[IntArray, FloatArray, int], int]) -> LevelChange | None:
    """Compare the window that ends at `window_end` with the last two windows.

    The noise is the larger of that near the window and that of the whole series. Where the level changed, values of
    these windows on the wrong side of the change are left out.
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
            for _ in range(2):  # the whole window mixes both levels, which puts halfway too near the later one
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
