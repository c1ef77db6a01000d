"""What a series of logged values did, whatever it measures: ends, extremes, change, noise, turns, bounds.

Many series of one length are described at once, (series, values): one by one, thousands of metrics take seconds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import MAD_TO_SD, BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.autocorrelated_mean import AR1_MARGIN, MAX_WINDOW_BLOCKS, MIN_RELATIVE_NOISE
from ptt.diagnostics.statistics.change_point import MIN_LEVEL_VALUES, change_place, mean_change
from ptt.diagnostics.statistics.small_sample import AR1_GRID, MAX_AR1, T975, centred_positions, residual_moments

MAX_POINTS: Final = 400  # a longer series is reduced to this many block means: no curve shows more
FEWEST: Final = 4  # values that have a change: two at either end, which noise needs
SHORT: Final = 20  # values: with fewer, each end is a half, since none can be spared
LONG: Final = 60  # values: with fewer, each end is a third; with as many, a fifth, which is enough and nearer the end
MIN_LINE_VALUES: Final = 6  # in an end: four degrees of freedom about a line
MIN_AR1_VALUES: Final = 12  # in an end: with fewer, the correlation's error is as large as the correlation can be
T995: Final = (63.66, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977, 2.947,
               2.921, 2.898, 2.878, 2.861, 2.845, 2.831, 2.819)  # fmt: skip
"""Student's t, 99.5th percentile: a run logs dozens of series, and of 20 one would have moved by chance at 95%."""
MATERIAL_NOISE: Final = 0.25  # of a value's noise: a smaller change in a long series is significant, but invisible
MATERIAL_SHARE: Final = 0.05  # of its level: a change this large is reported as moved, whatever the noise
FLAT_NOISE: Final = 2.0  # times a value's noise: a series whose change is not known this closely is not called flat
STILL_SHARE: Final = 0.1  # of the whole change, within the last part: a series that moves less has arrived
START_VALUES: Final = 4  # at least: values that make up the start where the series left it within its first part
START_SHARE: Final = 0.04  # of the series
START_SDS: Final = 2.0  # of the late noise, for each of those values: white noise does not do that four times in a row
MATERIAL_START: Final = 1.0  # a value's noise: what so few values show must be visible in each of them
MIN_APART_VALUES: Final = 5  # in each end: by chance one end lies wholly beyond the other once in 126
NEIGHBOUR_FACTOR: Final = 2.0  # times the noise that neighbours show: an AR(1) of 0.75 scatters twice as widely
SMALL_BLOCK: Final = 5  # values of a block: of so few, those of a rare event may come together by chance
USUAL_SHARE: Final = 0.05  # of the values of both ends at such a level
COURSE_POINTS: Final = 20  # block means that show where a series turned
TURN_ERRORS: Final = 5.0  # standard errors of such a mean: the largest of 20 is seldom four from their middle
TURN_SHARE: Final = 1 / 3  # of the whole range, beyond both ends
MIN_SETTLED: Final = 8  # values: with fewer, the second half is no level
SETTLED_POINTS: Final = 40  # block means that show where a series settled
SETTLED_SHARE: Final = 0.05  # of the distance from the first of them to the level
SETTLED_SDS: Final = 1.0  # of the noise between neighbours in the second half
DRIFT_SHARE: Final = 0.05  # of that distance, from its third quarter to its last: moving by more, it has not arrived
SPIKE: Final = 10.0  # times the usual distance of a value from the mean of its neighbours
EQUAL_WITHIN: Final = 1e-12  # relative: means of equal values differ in their last bit
MIN_BOUND_VALUES: Final = 3  # equal ones at the end: two may be chance
MAX_INTERVAL_AR1: Final = 0.3  # of the noise: `mean_change` assumes independence and is too sure above this
T_TABLES: Final = (np.array(T975), np.array(T995))


@dataclass(frozen=True, kw_only=True)
class SeriesDescription:
    """What finite values did, in their order; places are their indices."""

    count: int
    first: float
    last: float
    low: float
    low_at: int
    high: float
    high_at: int
    early: float  # mean of the first part
    late: float  # mean of the last part
    change: tuple[float, float] | None  # 95%, late less early; None: too few values
    movement: str  # rose | fell | flat | cannot_say
    detectable: float | None  # the smallest change that would have been significant
    changed_at: int | None  # from here on it stayed nearer to its late level
    changed_interval: tuple[int, int] | None
    still_moving: bool  # at its former pace, in the last part
    settled_at: int | None  # from here on it stays near its last level; None: not before its second half
    turn: float | None  # level beyond both ends, where it went and came back from
    turn_at: int | None
    spikes: int
    noise: float | None  # standard deviation of a value about its own course
    at_zero: float
    bound: float | None
    at_bound: float
    spread_left: float | None  # late noise over early noise


def part_length(count: int) -> int:
    """Return how many of `count` values make up the first part, and the last: a half, a third or a fifth."""
    if count < FEWEST:
        return 0
    return count // (2 if count < SHORT else 3 if count < LONG else 5)


def describe(values: FloatArray) -> list[SeriesDescription]:
    """Describe series of one length, finite values (series, values), at least one each.

    `change` compares the means of the first and the last part. Their error is what the values lie off a line in each
    part (a course is no noise), taken for an AR(1) whose correlation is estimated from both, corrected for what lines
    take out of it and raised by its own error; of parts with fewer than twelve values, off their mean, so that the
    interval is Student's, widened by the correlation about a line through all.
    """
    scale = np.ldexp(1.0, np.frexp(np.abs(values).max(axis=1))[1])[:, None]  # a power of two: no digit is lost
    points, size = _blocks(values / scale, MAX_POINTS)
    ends = _compare_ends(points)
    noise, spread_left = _noise(values / scale, points)
    turns, levels = _turns(points, ends)
    whole, factors = _extremes(values), scale[:, 0]
    spikes = _spikes(points)
    settled = _settled(points)
    result = []
    for row, factor in enumerate(factors.tolist()):
        changed_at, interval = _change_place(points[row], ends, row)
        error, reach = float(ends.error[row]), float(ends.reach[row])
        amount = float(ends.amount[row])
        known = math.isfinite(error)
        turn = int(turns[row])
        result.append(
            SeriesDescription(
                count=values.shape[1],
                **whole[row],
                early=float(ends.early[row]) * factor,
                late=float(ends.late[row]) * factor,
                change=((amount - reach) * factor, (amount + reach) * factor) if known else None,
                movement=str(ends.movement[row]),
                detectable=float(ends.detectable[row]) * factor if known else None,
                changed_at=None if changed_at is None else changed_at * size,
                changed_interval=None if interval is None else (interval[0] * size, interval[1] * size),
                still_moving=bool(ends.still[row]),
                settled_at=None if settled[row] < 0 else int(settled[row]) * size,
                turn=None if turn < 0 else float(levels[row]) * factor,
                turn_at=None if turn < 0 else min(turn * size + size // 2, values.shape[1] - 1),
                spikes=int(spikes[row]),
                noise=float(noise[row]) * factor if math.isfinite(noise[row]) else None,
                spread_left=float(spread_left[row]) if math.isfinite(spread_left[row]) else None,
            )
        )
    return result


def _blocks(values: FloatArray, most: int) -> tuple[FloatArray, int]:
    """Return the means of at most `most` blocks of one size, the last may be shorter, and their size."""
    count = values.shape[1]
    size = -(-count // most)
    if size == 1:
        return values, 1
    starts = np.arange(0, count, size)
    return np.add.reduceat(values, starts, axis=1) / np.diff(np.append(starts, count)), size


def _extremes(values: FloatArray) -> list[dict[str, Any]]:
    """Return of each series its ends, its extremes and where they are first, and how much of it lies at a bound."""
    rows = np.arange(len(values))
    low_at, high_at = values.argmin(axis=1), values.argmax(axis=1)
    low, high, last = values[rows, low_at], values[rows, high_at], values[:, -1]
    zeros = (values == 0).mean(axis=1)
    at_last = np.abs(values - last[:, None]) <= EQUAL_WITHIN * np.abs(last)[:, None]
    held = at_last[:, -MIN_BOUND_VALUES:].all(axis=1) & (values.shape[1] > MIN_BOUND_VALUES)
    bounded = held & (low < high) & ((last == low) | (last == high))
    at_bound = at_last.mean(axis=1)
    return [
        {
            "first": float(values[row, 0]),
            "last": float(last[row]),
            "low": float(low[row]),
            "low_at": int(low_at[row]),
            "high": float(high[row]),
            "high_at": int(high_at[row]),
            "at_zero": float(zeros[row]),
            "bound": float(last[row]) if bounded[row] else None,
            "at_bound": float(at_bound[row]) if bounded[row] else 0.0,
        }
        for row in rows
    ]


@dataclass(frozen=True)
class _Ends:
    """The first and the last part of each series compared, (series,) each; error NaN: too few values."""

    length: int  # values of a part
    early: FloatArray
    late: FloatArray
    error: FloatArray  # of the change
    reach: FloatArray  # from the change to the ends of its 95% interval
    detectable: FloatArray
    movement: np.ndarray
    still: BoolArray
    ar1: FloatArray
    scatter: FloatArray  # standard deviation of a point about its part's course

    @property
    def amount(self) -> FloatArray:
        """Late less early."""
        change: FloatArray = self.late - self.early
        return change


def _compare_ends(points: FloatArray) -> _Ends:
    length = part_length(points.shape[1])
    if not length:
        return _unknown_ends(points)
    first, last = points[:, :length], points[:, -length:]
    early, late = first.mean(axis=1), last.mean(axis=1)
    errors, freedom, ar1 = (_lined_errors if length >= MIN_LINE_VALUES else _mean_errors)(points, first, last)
    lined = np.sqrt((_off(first) + _off(last)) / (2 * (length - _parameters(length))))
    scatter = _robust(lined, first, last)
    still_known = np.full(len(points), length >= MIN_LINE_VALUES)
    exact = lined <= MIN_RELATIVE_NOISE * np.abs(points).max(axis=1)
    error = np.where(exact, 0.0, np.hypot(*errors))
    amount = np.where(exact & (np.ptp(points, axis=1) == 0), 0.0, late - early)
    t95, t99 = (table[np.minimum(freedom, len(table)).astype(np.int64) - 1] for table in T_TABLES)
    material = np.minimum(MATERIAL_NOISE * scatter, MATERIAL_SHARE * np.abs(early))
    detectable = np.maximum(t99 * error, material)
    moved = (np.abs(amount) > detectable) & (amount != 0)
    known = moved | ((t95 * error <= FLAT_NOISE * scatter) & (np.abs(amount) <= t95 * error))
    sign = np.sign(amount)
    movement = np.select([~known, moved & (sign > 0), moved], ["cannot_say", "rose", "fell"], "flat")
    half = length // 2
    further = (last[:, -half:].mean(axis=1) - last[:, :half].mean(axis=1)) * sign
    # a mean over half as many values, twice, and the values of both are others
    least = np.maximum(2 * t99 * np.where(exact, 0.0, errors[1]), STILL_SHARE * np.abs(amount))
    ends = _Ends(
        length, early, late, error, t95 * error, detectable, movement, moved & still_known & (further > least), ar1,
        scatter,
    )  # fmt: skip
    if length >= MIN_AR1_VALUES:
        ends = _since_start(points, ends, errors[1], moved)
    return _set_apart(first, last, ends) if length >= MIN_APART_VALUES else ends


def _set_apart(first: FloatArray, last: FloatArray, ends: _Ends) -> _Ends:
    """Call a series moved if each value of its last part is beyond each of its first, whatever its course in between.

    Lines do not show the noise of a steep course, so the error comes from how neighbours differ.
    """
    apart = (last.min(axis=1) > first.max(axis=1)) | (last.max(axis=1) < first.min(axis=1))
    still = (ends.movement == "flat") | (ends.movement == "cannot_say")
    length = ends.length
    error = ends.scatter * math.sqrt(2 / length)
    reach = T975[min(length - 1, len(T975)) - 1] * error
    chosen = apart & still & (reach < np.abs(ends.amount))
    return replace(
        ends,
        error=np.where(chosen, error, ends.error),
        reach=np.where(chosen, reach, ends.reach),
        movement=np.where(chosen, np.where(ends.amount > 0, "rose", "fell"), ends.movement),
    )


def _since_start(points: FloatArray, ends: _Ends, of_late: FloatArray, moved: BoolArray) -> _Ends:
    """Let the first few values be the start of a series that did not move, if it left them within its first part.

    Their variance is the larger of their own and the last part's: about the mean, or, where each of them is off the
    late level on the same side, about a line and with its degrees of freedom.
    """
    count, length = max(START_VALUES, int(START_SHARE * points.shape[1])), ends.length
    first, last = points[:, :count], points[:, -length:]
    about = _residuals(last, 2)
    raw = _ratio((about[:, 1:] * about[:, :-1]).sum(axis=1), np.square(about).sum(axis=1), 0.0)
    ar1 = np.clip(raw + (1 + 3 * raw) / length, 0.0, MAX_AR1)
    late = np.square(_residuals(last, 1)).sum(axis=1) / (length - 1)
    off = first - ends.late[:, None]
    apart = (np.abs(off) > START_SDS * np.sqrt(late)[:, None]).all(axis=1) & (np.abs(np.sign(off).sum(axis=1)) == count)
    early = first.mean(axis=1)
    amount = ends.late - early
    for parameters, known in ((1, ~moved), (2, ~moved & apart)):
        own = np.square(_residuals(first, parameters)).sum(axis=1) / (count - parameters)
        freedom = np.where(own > late, count - parameters, length - 2)
        error = np.sqrt(np.maximum(own, late) / count * (1 + ar1) / (1 - ar1) + np.square(of_late))
        t95, t99 = (table[np.minimum(freedom, len(table)) - 1] for table in T_TABLES)
        least = np.maximum((t99 if parameters == 1 else t95) * error, MATERIAL_START * np.sqrt(late))
        left = known & (np.abs(amount) > least) & (ends.movement != "rose") & (ends.movement != "fell")
        ends = replace(
            ends,
            early=np.where(left, early, ends.early),
            error=np.where(left, error, ends.error),
            reach=np.where(left, t95 * error, ends.reach),
            movement=np.where(left, np.where(amount > 0, "rose", "fell"), ends.movement),
        )
    return ends


def _unknown_ends(points: FloatArray) -> _Ends:
    unknown, no = np.full(len(points), np.nan), np.zeros(len(points), bool)
    movement = np.full(len(points), "cannot_say")
    return _Ends(0, points[:, 0], points[:, -1], unknown, unknown, unknown, movement, no, unknown, unknown)


def _robust(lined: FloatArray, first: FloatArray, last: FloatArray) -> FloatArray:
    """Return the scatter about lines, or what neighbours show where that is far less: of a curve, or of a wild value.

    By the median of how neighbours differ; where most are equal it says nothing.
    """
    differences = np.abs(np.concatenate([np.diff(first, axis=1), np.diff(last, axis=1)], axis=1))
    near = NEIGHBOUR_FACTOR * MAD_TO_SD * np.median(differences, axis=1) / math.sqrt(2)
    return np.where(near > 0, np.minimum(lined, near), lined)


def _parameters(length: int) -> int:
    return 2 if length >= MIN_LINE_VALUES else 1


def _off(part: FloatArray) -> FloatArray:
    """Return the sum of squares off a line in each part, off the mean where it is too short for one."""
    squares: FloatArray = np.square(_residuals(part, _parameters(part.shape[1]))).sum(axis=1)
    return squares


def _residuals(part: FloatArray, parameters: int) -> FloatArray:
    residual: FloatArray = part - part.mean(axis=1, keepdims=True)
    if parameters == 2:
        position = centred_positions(part.shape[1])
        residual = residual - np.outer((residual * position).sum(axis=1) / (position * position).sum(), position)
    return residual


def _mean_errors(
    points: FloatArray, first: FloatArray, last: FloatArray
) -> tuple[tuple[FloatArray, FloatArray], FloatArray, FloatArray]:
    """Return errors, freedom and AR(1) of the means of two short parts, by their pooled scatter about both means."""
    length, count = first.shape[1], points.shape[1]
    freedom = 2 * (length - 1)
    about = _residuals(points, 2)
    raw = _ratio((about[:, 1:] * about[:, :-1]).sum(axis=1), np.square(about).sum(axis=1), 0.0)
    ar1 = np.clip(raw + (1 + 3 * raw) / count, 0.0, MAX_AR1)  # Kendall (1954), as for evaluations
    variance = (_off(first) + _off(last)) / freedom / length * (1 + ar1) / (1 - ar1)
    error = np.sqrt(variance)
    return (error, error), np.full(len(points), float(freedom)), ar1


def _lined_errors(
    _: FloatArray, first: FloatArray, last: FloatArray
) -> tuple[tuple[FloatArray, FloatArray], FloatArray, FloatArray]:
    """Return them of two longer parts as `window_means` does: by what blocks lie off a line in each, as AR(1)."""
    residuals = [_residuals(_split(part, MAX_WINDOW_BLOCKS), 2) for part in (first, last)]
    squares = [np.square(residual).sum(axis=1) for residual in residuals]
    lags = [(residual[:, 1:] * residual[:, :-1]).sum(axis=1) for residual in residuals]
    count = residuals[0].shape[1]
    moments = residual_moments(count)
    table = moments.neighbours / moments.squares
    usable = np.array(squares) > 0
    parts = np.maximum(usable.sum(axis=0), 1)
    correlation = np.where(usable, _ratio(np.array(lags), np.array(squares), 0.0), 0.0).sum(axis=0) / parts
    ar1 = np.interp(correlation, table, AR1_GRID)
    slope = np.maximum(1.0, np.interp(ar1, AR1_GRID, np.gradient(AR1_GRID, table)))
    margin = AR1_MARGIN * np.sqrt((1 - ar1**2) / (count * parts)) * slope if count >= MIN_AR1_VALUES else 0.0
    ar1 = np.minimum(AR1_GRID[-1] if count >= MIN_AR1_VALUES else MAX_AR1, ar1 + margin)
    expected, of_mean, freedom = (
        np.interp(ar1, AR1_GRID, column) for column in (moments.squares, moments.of_mean, moments.freedom)
    )
    variances = [square / expected * of_mean for square in squares]
    weight = _ratio(np.square(variances[0]) + np.square(variances[1]), np.square(np.add(*variances)), 0.5)
    freedom = np.maximum(1.0, np.floor(freedom / weight))  # Welch and Satterthwaite
    return (np.sqrt(variances[0]), np.sqrt(variances[1])), freedom, ar1


def _split(part: FloatArray, most: int) -> FloatArray:
    """Return the means of `most` blocks of as equal a length as can be; the values themselves where no more."""
    count = part.shape[1]
    if count <= most:
        return part
    lengths = np.full(most, count // most)
    lengths[: count % most] += 1
    means: FloatArray = np.add.reduceat(part, np.append(0, np.cumsum(lengths)[:-1]), axis=1) / lengths
    return means


def _ratio(upper: FloatArray, lower: FloatArray, otherwise: float) -> FloatArray:
    ratio: FloatArray = np.divide(upper, lower, out=np.full(lower.shape, otherwise), where=lower > 0)
    return ratio


def _noise(values: FloatArray, points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the standard deviation of a value about its parts' course, and the late one over the early one."""
    length = part_length(values.shape[1])
    if not length:
        unknown = np.full(len(values), np.nan)
        return unknown, unknown
    squares = [_off(values[:, :length]), _off(values[:, -length:])]
    lined = np.sqrt(np.add(*squares) / (2 * (length - _parameters(length))))
    noise = _robust(lined, values[:, :length], values[:, -length:])
    floor = MIN_RELATIVE_NOISE * np.abs(points).max(axis=1)
    early = np.where(np.sqrt(squares[0] / length) > floor, squares[0], 0.0)
    return np.where(noise > floor, noise, 0.0), np.sqrt(_ratio(squares[1], early, np.nan))


def _turns(points: FloatArray, ends: _Ends) -> tuple[IntArray, FloatArray]:
    """Return where each series was beyond both its ends and came back, -1 where it was not, and its level there."""
    if not ends.length:
        return np.full(len(points), -1), points[:, 0]
    course, size = _blocks(_without_lone_values(points), COURSE_POINTS)
    rows = np.arange(len(points))
    inflation = np.sqrt((1 + ends.ar1) / (1 - ends.ar1))
    ranked = np.sort(course, axis=1)
    covered = ranked[:, -2] - ranked[:, 1]  # without one outlier on either side
    reach = np.maximum(TURN_ERRORS * ends.scatter * inflation / math.sqrt(size), TURN_SHARE * covered)
    inner = course[:, 1:-1]  # what begins or ends with an extreme did not turn there
    high_at, low_at = inner.argmax(axis=1) + 1, inner.argmin(axis=1) + 1
    above = course[rows, high_at] - np.maximum(ends.early, ends.late)
    below = np.minimum(ends.early, ends.late) - course[rows, low_at]
    turned = np.where(above >= below, high_at, low_at)
    at = np.minimum(turned * size + size // 2, points.shape[1] - 1)
    smooth = ends.scatter <= TURN_SHARE * np.ptp(points, axis=1) / TURN_ERRORS
    within = points[:, size:-size]
    extreme = size + np.where(above >= below, within.argmax(axis=1), within.argmin(axis=1))
    level, value = course[rows, turned], points[rows, extreme]
    smooth &= np.abs(value - level) <= TURN_SHARE * np.maximum(above, below)  # a wild value is no level
    real = np.maximum(above, below) > reach
    if size <= SMALL_BLOCK:
        beside = np.stack([course[rows, turned - 1], course[rows, turned + 1]])
        halfway = level - np.where(above >= below, above, -below) / 2
        lone = np.where(above >= below, beside < halfway, beside > halfway).all(axis=0)
        real &= smooth | ~(lone & _is_usual(points, level, above >= below, ends.length))
    beyond = np.where(real, np.where(smooth, extreme, at), -1)
    return beyond, np.where(smooth, value, level)


def _is_usual(points: FloatArray, level: FloatArray, upwards: BoolArray, length: int) -> BoolArray:
    """Return whether the first or last parts reach a level too: some such values in a row are chance."""
    ends = np.concatenate([points[:, :length], points[:, -length:]], axis=1)
    there = np.where(upwards[:, None], ends >= level[:, None], ends <= level[:, None])
    usual: BoolArray = there.mean(axis=1) >= USUAL_SHARE
    return usual


def _settled(points: FloatArray) -> IntArray:
    """Return from where on each series stays near the median of its second half, -1 if not before that half.

    "Near" is a twentieth of the distance it came, in block means; a single outlier does not count. A series that drifts
    on has not settled, and for one that scatters by as much nobody can tell.
    """
    if points.shape[1] < MIN_SETTLED:
        return np.full(len(points), -1)
    course, size = _blocks(_without_lone_values(points), SETTLED_POINTS)
    count = course.shape[1]
    half, quarter = count // 2, 3 * count // 4
    level = np.median(course[:, half:], axis=1)[:, None]
    way = np.abs(course[:, :1] - level)
    noise = np.diff(course[:, half:], axis=1).std(axis=1, keepdims=True) / math.sqrt(2)
    drift = np.abs(course[:, half:quarter].mean(axis=1) - course[:, quarter:].mean(axis=1))[:, None]
    off = np.abs(course - level) > SETTLED_SHARE * way
    last_off = np.where(off.any(axis=1), count - 1 - off[:, ::-1].argmax(axis=1), count)
    still = (way > 0) & (SETTLED_SDS * noise <= SETTLED_SHARE * way) & (drift <= DRIFT_SHARE * way)
    since: IntArray = np.where((last_off + 1 <= half) & still[:, 0], (last_off + 1) * size, -1)
    return since


def _without_lone_values(points: FloatArray) -> FloatArray:
    """Return the median of each value and its neighbours, which removes lone outliers. Short series are left alone."""
    if points.shape[1] < COURSE_POINTS:
        return points
    inner = np.median(np.stack([points[:, :-2], points[:, 1:-1], points[:, 2:]]), axis=0)
    return np.concatenate([points[:, :1], inner, points[:, -1:]], axis=1)


def _spikes(points: FloatArray) -> IntArray:
    """Count the points that lie far off the mean of their neighbours, of several in a row the farthest."""
    if points.shape[1] < COURSE_POINTS:
        return np.zeros(len(points), np.int64)
    off = np.abs(points[:, 1:-1] - (points[:, 2:] + points[:, :-2]) / 2)
    usual = MAD_TO_SD * np.median(off, axis=1, keepdims=True)
    padded = np.pad(off, ((0, 0), (1, 1)))
    farthest = (off >= padded[:, 2:]) & (off > padded[:, :-2])
    counts: IntArray = (farthest & (off > SPIKE * usual) & (usual > 0)).sum(axis=1)
    return counts


def _change_place(points: FloatArray, ends: _Ends, row: int) -> tuple[int | None, tuple[int, int] | None]:
    """Return from where on a series that moved lies nearer to its late level, and between which points that began."""
    if ends.movement[row] not in {"rose", "fell"} or len(points) <= MIN_LEVEL_VALUES:
        return None, None
    place = change_place(points, float(ends.early[row]), ends.length)
    if not 0 < place < len(points):
        return None, None
    found = mean_change(points) if ends.ar1[row] <= MAX_INTERVAL_AR1 else None
    return place, (found[1], found[2]) if found is not None and found[1] <= place <= found[2] else None
