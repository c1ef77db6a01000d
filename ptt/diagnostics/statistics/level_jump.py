"""Jumps at one step: of several levels together, and of the ratio of two accounts of one quantity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.fault_since import FaultSpan, fault_span, weigh_values

SIDE: Final = 10  # values on either side of a jump whose medians are compared
LEAST_SIDE: Final = 4  # of them at the ends: three in a row are a burst of noise
MAX_POINTS: Final = 1_000  # that are searched: of a longer run the means of neighbours
TIGHT_FACTOR: Final = 2.0  # where the ratio as good as stood still before: no drift of noise looks like it
TIGHT_SD: Final = 0.1  # in the log ratio: it scatters this little where neither value is a fresh estimate
FACTOR: Final = 3.0  # estimators of one KL lie as far apart where its tail grows
RATIO_SDS: Final = 4.0  # of single ratios; medians of ten of them scatter a third of it
RATIO_AT_ONCE: Final = (
    0.75  # of the jump, from the three values before it to the three from it on: a ramp makes a third
)
NEAR: Final = 3  # values for that
LEAST_AGREEMENT: Final = 0.5  # rank correlation of their changes from value to value: they describe the same steps
SURE_AGREEMENT: Final = 0.9  # of that: then they are one quantity up to a coefficient, and their sizes need not agree
AGREED_FACTOR: Final = 2.0  # between the report and one of the measures where both are sound
LEAST_SCATTERED: Final = 8  # values whose scatter is compared
AGREEMENT_SDS: Final = 3.0  # standard errors, 1 / sqrt(values - 1), of the correlation of two unrelated series
SHARED: Final = 0.5  # of the jump: then the report made it too, some values earlier or later
NEIGHBOURS: Final = 0.05  # of the values, and SIDE at least: how far apart both may jump
LOWEST: Final = 1e-4  # of the usual ratio: stands in for that of a copy, which is 0
WIDER: Final = 3.0  # times the scatter of the other side; of eight values it is known to a factor of two


@dataclass(frozen=True, kw_only=True)
class RatioJump:
    """A jump of the ratio of a measured quantity to a reported one, and the stretch of steps that is off."""

    span: FaultSpan
    sound: float  # ratio there, in the median
    off: float
    measured_moved: bool  # at the jump; else only the report did
    needed: float  # factor of a jump that counts, by how well the two agree


def find_ratio_jump(
    steps: IntArray, reported: FloatArray, measures: Mapping[str, tuple[FloatArray, float]]
) -> RatioJump | None:
    """Return the clearest lasting jump that the ratios of all measures to the report have in common, or None.

    measures: estimates of the reported quantity, each with the power of it that it scales with: 0.5 for a mean of
    sizes. The returned ratios are those of the first. All values are 0 or above, those reported above 0.
    """
    powers = np.array([power for _, power in measures.values()])
    steps, table = _condensed(steps, np.stack([reported, *(values for values, _ in measures.values())]))
    if len(steps) < 2 * LEAST_SIDE:
        return None
    ratios = _log_ratios(table)
    scaled = np.stack([_ratio_contrasts(ratio) for ratio in ratios]) / powers[:, None]
    alike = (np.sign(scaled) == np.sign(scaled[0])).all(axis=0)
    agreed = np.where(alike, np.abs(scaled).min(axis=0), 0.0)
    best = int(np.argmin([scatter_of(ratio) for ratio in ratios]))
    for place in np.argsort(-agreed, kind="stable")[:SIDE].tolist():
        if agreed[place] < math.log(TIGHT_FACTOR):
            return None
        if _ratio_jumps(ratios[best], place):
            return _described(steps, table, ratios, best, place, float(agreed[place]))
    return None


def _condensed(steps: IntArray, table: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the means of neighbours where there are many values, each at the first of its steps."""
    size = -(-len(steps) // MAX_POINTS)
    if size <= 1:
        return steps, table
    starts = np.arange(0, len(steps), size)
    return steps[starts], np.add.reduceat(table, starts, axis=1) / np.diff(np.append(starts, len(steps)))


def _log_ratios(table: FloatArray) -> FloatArray:
    """Return the logarithms of the ratios of all measures to the report, none further below the highest than LOWEST."""
    ratios = table[1:] / table[0]
    usual = np.quantile(ratios, 0.75, axis=1, keepdims=True)
    logs: FloatArray = np.log(np.maximum(ratios, np.maximum(LOWEST * usual, np.finfo(np.float64).tiny)))
    return logs


def _ratio_contrasts(values: FloatArray) -> FloatArray:
    """Return, for each place, the median of up to SIDE values from it on less that of as many before; 0 at the ends."""
    count = len(values)
    result = np.zeros(count)
    for side in range(LEAST_SIDE, min(SIDE, count // 2) + 1):
        medians = np.median(sliding_window_view(values, side), axis=1)
        places = np.arange(side, count - side + 1)  # a larger side overwrites the inner ones of a smaller
        result[places] = medians[places] - medians[places - side]
    return result


def scatter_of(values: FloatArray) -> float:
    """Return the robust standard deviation of values about their running median."""
    width = min(len(values), SIDE - 1)
    middle = np.median(sliding_window_view(values, width), axis=1)
    off = values[width // 2 : width // 2 + len(middle)] - middle
    return 1.4826 * float(np.median(np.abs(off)))


def _sides(count: int, place: int) -> tuple[slice, slice]:
    side = min(SIDE, place, count - place)
    return slice(place - side, place), slice(place, place + side)


def _ratio_jumps(values: FloatArray, place: int) -> bool:
    """Return whether the change at a place is made at once, beyond the scatter on both sides, which do not overlap."""
    before, after = (values[part] for part in _sides(len(values), place))
    size = abs(float(np.median(after) - np.median(before)))
    noise = math.hypot(*(1.4826 * float(np.median(np.abs(part - np.median(part)))) for part in (before, after)))
    at_once = abs(float(np.median(after[:NEAR]) - np.median(before[-NEAR:])))
    low, high = sorted((before, after), key=lambda part: float(np.median(part)))
    apart = np.quantile(high, 0.1) > np.quantile(low, 0.9)
    return bool(size >= RATIO_SDS * noise / math.sqrt(2) and at_once >= RATIO_AT_ONCE * size and apart)


def _described(
    steps: IntArray, table: FloatArray, ratios: FloatArray, best: int, place: int, size: float
) -> RatioJump | None:
    """Return the jump at a place, None where it is too small for how well the two agreed, or the report shares it."""
    after = np.arange(len(steps)) >= place
    off: BoolArray = after if _later_is_off(table[1], ratios, best, place) else ~after
    span = fault_span(steps, weigh_values(ratios[best], ~off, off))
    if span is None:
        return None
    off = span.holds(steps)
    sound = ~off
    if sound.sum() < LEAST_SIDE or off.sum() < LEAST_SIDE:
        return None
    ratio, scatter = ratios[best], scatter_of(ratios[best][sound])
    still = scatter <= TIGHT_SD and sound.sum() >= LEAST_SCATTERED
    agreement = _agreement(table[:, sound])
    near = np.abs(np.median(ratios[:, sound], axis=1)).min() <= math.log(AGREED_FACTOR)
    if not (agreement >= SURE_AGREEMENT or (near and (still or agreement >= LEAST_AGREEMENT))):
        return None  # two measures that never agreed cannot part
    needed = TIGHT_FACTOR if still else FACTOR
    logs = np.log(np.maximum(table[[0, 1 + best]], np.finfo(np.float64).tiny))
    moved = _ratio_contrasts(logs[1])[place]
    size = min(size, abs(float(np.median(ratios[0][off]) - np.median(ratios[0][sound]))))  # the jump must last as well
    if size < math.log(needed) or _shared(logs[0], place, float(moved)):
        return None
    return RatioJump(
        span=span,
        sound=float(np.exp(np.median(ratios[0][sound]))),
        off=float(np.exp(np.median(ratios[0][off]))),
        measured_moved=bool(abs(moved) >= abs(_ratio_contrasts(ratio)[place]) / 2),
        needed=needed,
    )


def _later_is_off(measured: FloatArray, ratios: FloatArray, best: int, place: int) -> bool:
    """Return whether the values from a place on are off, and not those before it.

    A side that holds copies is off; otherwise the one whose ratio scatters far more, since a value unrelated to the
    report varies freely.
    """
    sides = ratios[:, :place], ratios[:, place:]
    copied = [not float(np.median(side)) for side in (measured[:place], measured[place:])]
    if copied[0] != copied[1]:
        return copied[1]
    scatter = [scatter_of(side[best]) if side.shape[1] >= LEAST_SCATTERED else math.nan for side in sides]
    return not scatter[0] > WIDER * scatter[1]


def _agreement(table: FloatArray) -> float:
    """Return Spearman's correlation of the report's changes from value to value with those of the nearest measure.

    0 where two unrelated series would often correlate this well.
    """
    changes = np.diff(np.log(np.maximum(table, np.finfo(np.float64).tiny)), axis=1)
    ranks = np.argsort(np.argsort(changes, axis=1, kind="stable"), axis=1, kind="stable").astype(np.float64)
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    agreement = float((centred[1:] @ centred[0]).max() / (centred[0] @ centred[0]))
    return agreement if agreement >= AGREEMENT_SDS / math.sqrt(changes.shape[1] - 1) else 0.0


def _shared(reported: FloatArray, place: int, moved: float) -> bool:
    """Return whether the report makes the measure's move too, at this place or some values before or after."""
    contrasts = _ratio_contrasts(reported) * np.sign(moved)
    reach = max(SIDE, math.ceil(NEIGHBOURS * len(reported)))
    first = max(0, place - reach)
    large = first + np.flatnonzero(contrasts[first : place + reach + 1] >= SHARED * abs(moved))
    return bool(moved) and any(_ratio_jumps(reported, near) for near in large.tolist())


BEFORE: Final = 10  # values whose median is the level before: a burst of a few does not set it
LEAST_BEFORE: Final = 6
AFTER: Final = 4  # values that set the new level: what falls to nothing soon climbs again
MIN_SDS: Final = 3.0  # of single values about their running median; medians of several scatter half as much
LOOSE_SDS: Final = 2.0  # the same for a series that need only follow the others
LASTING: Final = 20  # values from the jump on, whose median keeps the rise
KEPT: Final = 0.5  # of a rise, in the logarithm
AT_ONCE: Final = 0.65  # of the jump, from the last values before to the first after: a slow climb makes a third
PARTED: Final = 0.5  # of the way: values on either side stay on their side of it
NOTHING: Final = 1 / 8  # of the level before: a distance that starts over from 0
STILL_BELOW: Final = 1 / 1.4  # of the level before, for the values that follow: a single 0 is no fresh start
FLOOR_SHARE: Final = 1e-3  # of the usual level: smaller values all count as 0


@dataclass(frozen=True, kw_only=True)
class LevelJump:
    """A place where all series jump; `factors` are new level over old, in the order of the series."""

    place: int
    factors: tuple[float, ...]


def find_level_jump(series: Sequence[FloatArray], least: Sequence[float], *, followers: int = 0) -> LevelJump | None:
    """Return where all series of one length jump the same way by at least `least` times, the clearest place; or None.

    All values are 0 or above. A rise must last; a fall may climb again. followers: how many of the last series need
    only change their level, as a noisy mean does.
    """
    if len(series[0]) < LEAST_BEFORE + AFTER:
        return None
    logs, contrasts = _logs(series), np.stack([_contrasts(values) for values in _logs(series)])
    share = contrasts / np.log(np.asarray(least))[:, None]
    together = np.where((np.sign(share) == np.sign(share[0])).all(axis=0), np.abs(share).min(axis=0), 0.0)
    leading = len(logs) - followers
    for place in np.argsort(-together, kind="stable").tolist():
        if together[place] < 1.0:
            return None
        jumps = contrasts[:, place].tolist()
        sure = all(_is_jump(logs[at], place, jumps[at]) for at in range(leading))
        if sure and all(abs(jumps[at]) >= LOOSE_SDS * _noise(logs[at], place) for at in range(leading, len(logs))):
            return LevelJump(place=place, factors=tuple(np.exp(jumps).tolist()))
    return None


def fresh_starts(series: Sequence[FloatArray]) -> IntArray:
    """Return the places where all series, of one length, fall to about 0 at once, as a restarted measure does."""
    count = len(series[0])
    if count < LEAST_BEFORE + AFTER:
        return np.empty(0, np.int64)
    falls = np.ones(count, np.bool_)
    for values, contrast in ((own, _contrasts(own)) for own in _logs(series)):
        before = np.full(count, np.nan)
        for size in range(LEAST_BEFORE, min(BEFORE, count - 1) + 1):
            before[size:] = np.median(sliding_window_view(values, size), axis=1)[: count - size]
        with np.errstate(invalid="ignore"):
            falls &= (values - before <= math.log(NOTHING)) & (contrast <= math.log(STILL_BELOW))
    places = np.flatnonzero(falls)
    return places[np.diff(places, prepend=-AFTER) >= AFTER]


def _logs(series: Sequence[FloatArray]) -> list[FloatArray]:
    """Return each series' logarithms, floored at FLOOR_SHARE of its usual level."""
    logs: list[FloatArray] = []
    for values in series:
        usual = float(np.median(values[values > 0])) if (values > 0).any() else 0.0
        logs.append(np.log(np.maximum(values, max(FLOOR_SHARE * usual, np.finfo(np.float64).tiny))))
    return logs


def _contrasts(values: FloatArray) -> FloatArray:
    """Return the median of AFTER values from each place on less that of up to BEFORE before it; 0 at the ends."""
    count = len(values)
    result = np.zeros(count)
    after = np.median(sliding_window_view(values, AFTER), axis=1)
    for size in range(LEAST_BEFORE, min(BEFORE, count - AFTER) + 1):
        before = np.median(sliding_window_view(values, size), axis=1)
        places = np.arange(size, count - AFTER + 1)
        result[places] = after[places] - before[places - size]
    return result


def _noise(values: FloatArray, place: int) -> float:
    nearby = values[max(0, place - 2 * BEFORE) : place], values[place : place + 2 * BEFORE]
    return max(scatter_of(part) for part in nearby if len(part) >= LEAST_BEFORE)


def _is_jump(values: FloatArray, place: int, jump: float) -> bool:
    """Return whether the change is made at once and beyond noise, and lasts where it is a rise."""
    sign = math.copysign(1.0, jump)
    before, after = sign * values[max(0, place - BEFORE) : place], sign * values[place : place + AFTER]
    level = float(np.median(before))
    at_once = float(after[:2].mean() - np.median(before[-3:]))
    parted = level + abs(jump) * PARTED
    left = float(np.median(sign * values[place : place + LASTING])) - level
    return (
        abs(jump) >= MIN_SDS * _noise(values, place)
        and at_once >= AT_ONCE * abs(jump)
        and bool((before <= parted).mean() >= 0.9 and (after >= parted).all())
        and (sign < 0 or left >= KEPT * abs(jump))
    )
