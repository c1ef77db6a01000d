"""Dips and spikes that recover: steps that leave a series' own level and return to it, and what they go with.

A value departs by how far it lies outside of both the level before it and the level after it, so that a trend, a jump
that stays and a sawtooth depart by nothing. What departs further than noise does is found by two conditions: more
values lie so far out than Student's t with three degrees of freedom gives, in robust units of the series' own noise;
and a gap sets them apart that even a tail of infinite variance does not leave.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import MAD_TO_SD, BoolArray, FloatArray, IntArray

MIN_VALUES: Final = 24  # values: with fewer, neither level nor noise is known
SIDES: Final = (-1, 1)
HALVES: Final = (10, 40, 100)  # values on either side that give the level: for short spans, long ones, and outages
LONG_VALUES: Final = 120  # from which on the longer levels are tried
MAX_OUTAGE_VALUES: Final = 5000  # the longest level's windows hold 400 values each: of more, memory decides
MIN_BESIDE: Final = 3  # values on either side: nearer to an end nobody has seen it come, or go
LONGEST_SHARE: Final = 0.3  # of the values: more that lie apart are a second level, not excursions
RECOVERED: Final = (
    0.5  # of the change from the level before to that after: what departs by less has moved, not returned
)
MASK_SDS: Final = 3.0  # departures beyond this take no part in the level and the noise of the others
NOISE_FLOOR: Final = 0.5  # of the noise of the whole series: so quiet may a stretch be by chance
T3_MAD: Final = 0.7649  # median absolute value of Student's t with three degrees of freedom
TAIL_INDEX: Final = 1.5  # of a tail heavier than that of any metric: its variance is infinite
CANDIDATE_RATE: Final = 0.1  # for both: what noise gives more often, no timing makes sure
TAIL_RATE: Final = 0.01  # how often such a tail leaves the gap
MAX_CORRELATION: Final = 0.9
CORRELATION_BIAS: Final = 0.1  # that a running median takes from the correlation of neighbours
MAX_DEPARTURE: Final = 1e6  # times the noise: of values that hardly vary
MOSTLY: Final = 0.5  # of the values: where so many are the same, the noise is unknown
MAX_SDS: Final = 6.0  # that a single value counts for
AGREE_SHARE: Final = 0.8  # of the values lie on the same side
MIN_LENGTH: Final = 3  # values in a row: trainers with two updates a batch log its outlier twice
MIN_SHARED: Final = 3  # excursions that share a residue: two always share several
MIN_KEPT: Final = 0.5  # of the steps of that residue, from the first excursion to the last, how many are excursions
SKEW_FACTOR: Final = 1.25  # times the lower spread: an upper one beyond it calls for logarithms
RANGE_FACTOR: Final = 10.0  # from the lowest values to the highest
MIN_SDS: Final = 4.0  # robust standard deviations: nearer values are noise, however many
ABRUPT: Final = 0.5  # of the way out and back, how much is made from one value to the next
MIN_GAP: Final = 1.3  # times the furthest other value: less is no gap, however many lie beyond it
MIN_REST: Final = 1.0  # standard deviations: noise that stays within less is not counted on
MAX_PERIOD: Final = 1000  # steps
LAGS: Final = (0, 1)  # logged steps after an event: trainers log a step before or after its evaluation


@dataclass(frozen=True, kw_only=True)
class Excursion:
    """One departure, by places in the series: from `first` to `last`, furthest at `extreme`."""

    first: int
    last: int
    extreme: int

    @property
    def length(self) -> int:
        """How many logged values it lasts."""
        return self.last - self.first + 1


@dataclass(frozen=True, kw_only=True)
class Excursions:
    """All excursions of a series to one side, beyond its noise."""

    side: int  # -1: dips, 1: spikes
    spans: tuple[Excursion, ...]
    level: FloatArray  # (n,): the level at each value that the others give, in the unit of the series
    distance: float  # of the nearest excursion from its level, in robust standard deviations of the noise
    gap: float  # that distance over that of the furthest other value to this side
    p_value: float  # that noise gives so many, so far out, at either side
    gap_p_value: float  # that a tail of infinite variance leaves such a gap

    @property
    def places(self) -> IntArray:
        """The places of all values that depart, ascending."""
        return np.concatenate([np.arange(span.first, span.last + 1) for span in self.spans])

    @property
    def alone(self) -> bool:
        """Whether it is one event of a step or two: what the largest value of a heavy tail looks like."""
        return len(self.spans) == 1 and self.spans[0].length < MIN_LENGTH


def find_excursions(values: FloatArray, *, sides: Collection[int] = SIDES) -> tuple[Excursions, ...]:
    """Return what may be dips or spikes of finite values, (n,): those that `are_beyond_noise` judges.

    Their p-values hold for both sides together; `sides` are those of interest.
    """
    count = len(values)
    if count < MIN_VALUES or _is_nearly_constant(values):
        return ()
    logs = is_skewed(values)
    scaled = np.log(values) if logs else values
    halves = _halves(count)
    scales = [_distances(scaled, half) for half in halves]
    found = []
    for side in sides:
        cuts = [cut for scale in scales if (cut := _cut(scale, side, len(SIDES) * len(halves))) is not None]
        best = min(cuts, key=lambda cut: max(cut.p_value, cut.gap_p_value), default=None)
        if best is not None and best.p_value <= CANDIDATE_RATE:
            found.append(replace(best, level=np.exp(best.level) if logs else best.level))
    return tuple(found)


def _halves(count: int) -> tuple[int, ...]:
    if count < LONG_VALUES:
        return HALVES[:1]
    return HALVES if count <= MAX_OUTAGE_VALUES else HALVES[:-1]


def _level_half(count: int, longest: int) -> int:
    """Return how many values on either side give the level beside departures of up to `longest` values in a row."""
    halves = _halves(count)
    return halves[-1] if longest >= HALVES[1] else halves[:2][-1]


def are_beyond_noise(excursions: Excursions, *, timing: float = 1.0, rate: float) -> bool:
    """Return whether noise gives excursions with probability `rate` at most, by their size or with their timing.

    timing: the probability that the times of so many excursions agree with each other, or with events, by chance. How
    far values lie out says nothing of when they do, so both probabilities may be combined (Fisher).
    """
    by_size = excursions.p_value <= rate and excursions.gap_p_value <= TAIL_RATE
    timed = both_by_chance(excursions.p_value, timing) <= rate
    return by_size or (timed and both_by_chance(excursions.gap_p_value, timing) <= TAIL_RATE)


def both_by_chance(first: float, second: float) -> float:
    """Return Fisher's combined p-value of two independent ones."""
    product = first * second
    return min(1.0, product * (1 - math.log(product))) if product > 0 else 0.0


def is_skewed(values: FloatArray) -> bool:
    """Return whether values are positive and spread further up than down, or tenfold: factors then say more."""
    if not (values > 0).all():
        return False
    lowest, low, middle, high, highest = np.quantile(values, [0.05, 0.3, 0.5, 0.7, 0.95])
    return bool(high - middle > SKEW_FACTOR * (middle - low) or highest > RANGE_FACTOR * lowest)


def _is_nearly_constant(values: FloatArray) -> bool:
    """Return whether one value makes up half of all: what is left over is no noise."""
    return bool(np.unique(values, return_counts=True)[1].max() >= MOSTLY * len(values))


def departures(values: FloatArray, half: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return how far values, (n,), lie outside of the levels before and after them, the level around, and the noise.

    Levels are medians over `half` values on a side, or on both. The distance is signed; it is 0 between the levels,
    where they differ by more than twice the departure, and where fewer than `MIN_BESIDE` values lie on a side. What
    departs far takes no part in the levels and noise of the others.
    """
    off, level, noise = _departures(values, half, np.zeros(len(values), np.bool_))
    far = np.abs(off) > MASK_SDS * noise
    return _departures(values, half, far) if far.any() else (off, level, noise)


def _departures(values: FloatArray, half: int, masked: BoolArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    kept = np.where(masked, np.nan, values)
    padding = np.full(half, np.nan)
    windows = sliding_window_view(np.concatenate([padding, kept, padding]), half)
    before, after = windows[: len(values)], windows[half + 1 :]
    seen = [np.isfinite(beside).sum(axis=1) >= MIN_BESIDE for beside in (before, after)]
    left, right, around = (_medians(part) for part in (before, after, np.concatenate([before, after], axis=1)))
    low, high = np.fmin(left, right), np.fmax(left, right)
    above, below = values > high, values < low
    off = np.where(above, values - high, np.where(below, values - low, 0.0))
    off = np.where(seen[0] & seen[1] & (np.abs(off) > RECOVERED * (high - low)), off, 0.0)
    residual = np.abs(kept - around)
    near = sliding_window_view(np.pad(residual, 2 * half, constant_values=np.nan), 4 * half + 1)
    usual = float(np.nanmedian(residual)) if np.isfinite(residual).any() else np.nan  # where all of it departs
    return off, around, MAD_TO_SD * np.fmax(_medians(near), NOISE_FLOOR * usual)


def _medians(windows: FloatArray) -> FloatArray:
    """Return the median of each row without its NaN; NaN for a row of nothing else."""
    ordered = np.sort(windows, axis=1)  # NaN last
    counts, rows = np.isfinite(windows).sum(axis=1), np.arange(len(windows))
    medians: FloatArray = (ordered[rows, np.maximum(counts - 1, 0) // 2] + ordered[rows, counts // 2]) / 2
    return medians


@dataclass(frozen=True, kw_only=True)
class JointDeparture:
    """How far values at given places lie from their levels, together."""

    sds: float  # Stouffer's sum, of distances that are capped so that no single one decides; 0 where they disagree
    value: float  # their mean
    level: float  # mean of their levels


def joint_departure(values: FloatArray, places: IntArray) -> JointDeparture | None:
    """Return how far finite values, (n,), at `places` lie from their levels; None where the noise is unknown."""
    if len(values) < MIN_VALUES or not len(places):
        return None
    logs = is_skewed(values)
    scaled = np.log(values) if logs else values
    masked = np.zeros(len(values), np.bool_)
    masked[places] = True
    begins = np.flatnonzero(np.diff(places) > 1) + 1
    longest = int(np.diff(begins, prepend=0, append=len(places)).max())
    off, level, noise = _departures(scaled, _level_half(len(values), longest), masked)
    off, noise = off[places], noise[places]
    if not (noise > 0).all():
        return None
    sds = np.clip(off / noise, -MAX_SDS, MAX_SDS)
    agree = float((np.sign(sds) == np.sign(sds.sum())).mean()) >= AGREE_SHARE
    level = np.exp(level[places]) if logs else level[places]
    return JointDeparture(
        sds=float(sds.sum() / math.sqrt(len(sds))) if agree else 0.0,
        value=float(values[places].mean()),
        level=float(level.mean()),
    )


class _Scale(NamedTuple):
    """Departures from one level: signed, in robust standard deviations; values and level; what a value is worth."""

    distance: FloatArray
    values: FloatArray
    level: FloatArray
    worth: float  # independent values that each further value of one excursion counts for


def _distances(values: FloatArray, half: int) -> _Scale:
    off, level, noise = departures(values, half)
    distinct = np.unique(values)
    tied = len(distinct) < MOSTLY * len(values)
    unit = float(np.diff(distinct).min()) if tied else 0.0  # of counts: as much is rounding
    noise = np.maximum(noise, unit)
    size = np.divide(np.maximum(np.abs(off) - unit, 0.0), noise, out=np.zeros(len(values)), where=noise > 0)
    distance = np.copysign(np.minimum(size, MAX_DEPARTURE), off)
    likeness = _correlation(values - level, np.abs(distance))
    return _Scale(distance, values, level, (1 - likeness) / (1 + likeness))


def _cut(scale: _Scale, side: int, searched: int) -> Excursions | None:
    """Return the excursions beyond the cut between them and the rest that noise makes least likely, or None.

    `searched`: sides and scales. For the choice of the cut nothing is added: Chernoff's bound leaves room for it.
    """
    distance = np.maximum(side * scale.distance, 0.0)
    count = len(distance)
    order = np.argsort(-distance, kind="stable")
    ranked = distance[order]
    gaps = ranked[:-1] / np.maximum(ranked[1:], MIN_REST)
    best: Excursions | None = None
    for cut in np.flatnonzero(gaps[: int(LONGEST_SHARE * count)] > MIN_GAP).tolist():
        if ranked[cut] < MIN_SDS:
            break
        spans = _spans(distance >= ranked[cut], distance)
        independent = sum(max(1.0, span.length * scale.worth) for span in spans)
        gap_p_value = min(1.0, len(spans) * float(gaps[cut] ** (-TAIL_INDEX * independent)))  # of any rank so far
        if gap_p_value > CANDIDATE_RATE or not _are_abrupt(spans, scale):
            continue
        p_value = min(1.0, searched * binomial_bound(independent, count, t3_tail(float(ranked[cut]))))
        if best is None or max(p_value, gap_p_value) < max(best.p_value, best.gap_p_value):
            best = Excursions(
                side=side,
                spans=spans,
                level=scale.level,
                distance=float(ranked[cut]),
                gap=float(gaps[cut]),
                p_value=p_value,
                gap_p_value=gap_p_value,
            )
    return best and replace(best, spans=_widened(best.spans, distance))


def _are_abrupt(spans: Iterable[Excursion], scale: _Scale) -> bool:
    """Return whether most excursions come and go from one value to the next: what bends back slowly is a curve."""
    values, off = scale.values, np.abs(scale.values - scale.level)
    jumps = [
        min(
            abs(values[span.first] - values[span.first - 1]) / off[span.first],
            abs(values[span.last] - values[span.last + 1]) / off[span.last],
        )
        for span in spans
    ]
    return float(np.median(jumps)) >= ABRUPT


def _widened(spans: Iterable[Excursion], distance: FloatArray) -> tuple[Excursion, ...]:
    """Return excursions with the neighbours on either side that are on their way out or back."""
    apart = distance >= MASK_SDS
    for span in spans:
        apart[span.first : span.last + 1] = True
    kept = {span.extreme for span in spans}
    return tuple(wide for wide in _spans(apart, distance) if any(wide.first <= at <= wide.last for at in kept))


def _spans(apart: BoolArray, distance: FloatArray) -> tuple[Excursion, ...]:
    """Return the runs of neighbours that are apart."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], apart, [False]]).astype(np.int8)))
    return tuple(
        Excursion(first=int(first), last=int(end) - 1, extreme=int(first + np.argmax(distance[first:end])))
        for first, end in edges.reshape(-1, 2)
    )


def _correlation(residual: FloatArray, distance: FloatArray) -> float:
    """Return how alike neighbours are that lie within the noise, corrected for what the running level takes away."""
    pairs = (np.maximum(distance[1:], distance[:-1]) < MASK_SDS) & np.isfinite(residual[1:] * residual[:-1])
    left, right = residual[:-1][pairs], residual[1:][pairs]
    squares = math.sqrt(float(np.square(left).sum()) * float(np.square(right).sum())) if len(left) else 0.0
    raw = float((left * right).sum()) / squares if squares > 0 else 0.0
    return min(max(0.0, raw + CORRELATION_BIAS), MAX_CORRELATION)


def t3_tail(distance: float) -> float:
    """Return how often Student's t with three degrees of freedom lies beyond so many robust standard deviations."""
    x = distance * MAD_TO_SD * T3_MAD / math.sqrt(3)
    return 0.5 - (math.atan(x) + x / (1 + x * x)) / math.pi


def binomial_bound(hits: float, trials: int, chance: float) -> float:
    """Return Chernoff's bound of the probability of `hits` or more in `trials`; `hits` need not be whole."""
    share = hits / trials
    if share <= chance:
        return 1.0
    if chance <= 0:
        return 0.0
    rest = (1 - share) * math.log((1 - share) / (1 - chance)) if share < 1 else 0.0
    return math.exp(-trials * (share * math.log(share / chance) + rest))


def hypergeometric_tail(hits: int, drawn: int, marked: int, count: int) -> float:
    """Return the probability that of `drawn` among `count`, `hits` or more are among the `marked`."""
    most = min(drawn, marked)
    whole = _log_choose(count, drawn)
    return min(
        1.0,
        sum(
            math.exp(_log_choose(marked, k) + _log_choose(count - marked, drawn - k) - whole)
            for k in range(max(hits, drawn - (count - marked)), most + 1)
        ),
    )


def _log_choose(count: int, drawn: int) -> float:
    return math.lgamma(count + 1) - math.lgamma(drawn + 1) - math.lgamma(count - drawn + 1)


@dataclass(frozen=True, kw_only=True)
class Period:
    """Excursions at steps that leave the same rest when divided by `every`."""

    every: int
    rest: int
    shared: int  # excursions that do
    p_value: float  # that as many share a residue of any divisor as large or larger


def find_period(steps: IntArray, excursions: IntArray, *, rate: float) -> Period | None:
    """Return the period of the steps of excursions among the logged steps, both ascending, or None.

    Exact but for a union bound: with m excursions among n steps, the chance that j of them share a residue is a
    hypergeometric tail, and it is summed over all residues of all divisors from `every` on. Most of the steps of the
    residue must be excursions, from the first of them to the last.
    """
    drawn, count = len(excursions), len(steps)
    if drawn < MIN_SHARED:
        return None
    largest = int(steps[-1] - steps[0]) // (MIN_SHARED - 1)
    spacing = int(np.diff(steps).min())
    best: Period | None = None
    for every in range(2 * spacing, min(largest, MAX_PERIOD) + 1):
        rests, numbers = np.unique(excursions % every, return_counts=True)
        place = int(np.argmax(numbers))
        rest, shared = int(rests[place]), int(numbers[place])
        if shared < max(MIN_SHARED, MOSTLY * drawn):
            continue
        own = excursions[excursions % every == rest]
        due = steps[(steps % every == rest) & (steps >= own[0]) & (steps <= own[-1])]
        if shared < MIN_KEPT * len(due):
            continue
        if best is None or shared >= best.shared:
            best = Period(every=every, rest=rest, shared=shared, p_value=0.0)
    if best is None:
        return None
    p_value = 0.0
    for every in range(best.every, min(largest, MAX_PERIOD) + 1):
        for marked in np.unique(steps % every, return_counts=True)[1].tolist():
            if marked >= best.shared:
                p_value += hypergeometric_tail(best.shared, drawn, marked, count)
    return Period(**{**vars(best), "p_value": min(1.0, p_value)}) if p_value <= rate else None


@dataclass(frozen=True, kw_only=True)
class Coincidence:
    """Excursions that begin with events of one kind, or one logged step after them."""

    kind: str
    lag: int  # 0 or 1 logged steps after the event
    together: int  # excursions at an event
    events: int  # of this kind, at or before a logged step
    p_value: float  # adjusted by Holm over kinds and lags


def find_coincidences(
    steps: IntArray, excursions: IntArray, events: Mapping[str, IntArray], *, rate: float
) -> tuple[Coincidence, ...]:
    """Return the kinds of events that excursions begin with, the surest first.

    steps, excursions: logged steps and those at which excursions begin. events: steps by kind; an event between two
    logged steps counts for the later one. A hypergeometric test for each kind and lag, adjusted by Holm.
    """
    begun = np.isin(steps, excursions)
    tests: list[tuple[float, Coincidence]] = []
    for kind, at in sorted(events.items()):
        places = np.unique(np.searchsorted(steps, at))
        for lag in LAGS:
            marked = places[places + lag < len(steps)] + lag
            together = int(begun[marked].sum())
            p_value = hypergeometric_tail(together, int(begun.sum()), len(marked), len(steps)) if together else 1.0
            tests.append((p_value, Coincidence(kind=kind, lag=lag, together=together, events=len(marked), p_value=1.0)))
    tests.sort(key=lambda test: (test[0], -test[1].together, test[1].kind, test[1].lag))
    found, highest = [], 0.0
    for rank, (p_value, test) in enumerate(tests):
        highest = max(highest, min(1.0, p_value * (len(tests) - rank)))
        if highest <= rate:
            found.append(Coincidence(**{**vars(test), "p_value": highest}))
    return tuple(found)
