"""Which of the candidates gives a logged scalar: at all steps, at some, of other rows, or but for a factor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.audited_batch import Batch
from ptt.diagnostics.evidence.audited_steps import MAX_WINDOW, spacing_of
from ptt.diagnostics.evidence.logged_scalars import LoggedScalar
from ptt.diagnostics.evidence.scalar_candidates import Candidate, Kind
from ptt.diagnostics.model import JsonScalar
from ptt.diagnostics.schema import FIGURE
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.fault_since import FaultSpan, fault_span, weigh_counts
from ptt.diagnostics.statistics.recomputed_scalars import (
    FACTOR_RELATIVE,
    MAX_NOISE,
    SINGLE,
    Fit,
    constant_factor,
    fit,
    resolution_of,
    tolerance_of,
)

MIN_POINTS: Final = 3  # steps: two may agree by chance, where some hundred ways are tried
MIN_TELLING: Final = 6  # steps that tell ways apart, for a finding
AGREEING: Final = 0.9  # of them
SOUND_RATE: Final = 0.05  # of the steps differ where a way holds
FAULTY_RATE: Final = 0.9  # and where it does not
MIN_BEFORE: Final = 4  # steps that agree on the sound side of a change
MIN_OFF: Final = 3  # and that differ on the other
USUAL: Final = "k3"  # begins the formulas of the KL that most trainers log
CLOSER: Final = 10.0  # times the least error: as close, whatever rounding does
CLOSE: Final = 1e-5  # of the logged value: and so is everything with less
ABOUT: Final = 1.2  # times the least error: as near
LIKELY: Final = 3  # nearest formulas that are tried again with some rows miscounted
FAR_FACTOR: Final = 1.5  # of a ratio, whichever way: no rounding makes that
OFFSETS: Final = (-1, 1)
MAX_OWN: Final = 0.5  # of the steps agree with their own rows: with more, neighbours may share their rollouts
SHORT: Final = "only {} steps are both logged and recorded; {} are needed"
CONDENSED: Final = "the log has so many values that only means of them are kept"


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Logged values, (points,), each beside the steps of a batch that it is to be held against."""

    batch: Batch
    steps: IntArray
    logged: FloatArray
    places: IntArray  # (points, steps a point) of the batch's steps; a point is their mean
    kind: Kind
    resolution: float

    @cached_property
    def tolerance(self) -> FloatArray:
        """How far a value may lie from the logged one."""
        return tolerance_of(self.logged, centre=self.kind.centre, resolution=self.resolution, floor=self.kind.floor)

    @cached_property
    def noise(self) -> FloatArray:
        """The distance to the centre that rounding alone makes."""
        size = np.maximum(np.abs(self.logged), self.kind.centre)
        noise: FloatArray = MAX_NOISE * (self.resolution / 2 + SINGLE * size + self.kind.floor)
        return noise

    def values(self, candidate: Candidate) -> FloatArray:
        """Return a candidate's value at each point."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            means: FloatArray = candidate.value(self.batch)[self.places].mean(axis=1)
            return means

    def fit(self, candidate: Candidate) -> Fit:
        """Hold a candidate against what is logged."""
        return fit(self.values(candidate), self.logged, self.tolerance, centre=self.kind.centre)

    def only(self, which: BoolArray) -> Beside:
        """Return some of the points."""
        return replace(self, steps=self.steps[which], logged=self.logged[which], places=self.places[which])


@dataclass(frozen=True, kw_only=True)
class Match:
    """A candidate that gives what is logged at enough of the points."""

    candidate: Candidate
    fit: Fit
    note: str = ""
    factor: float = 1.0
    offset: int = 0
    beside: Beside | None = None  # None: the values logged at the rows' own steps
    others: tuple[Candidate, ...] = ()  # that give the same
    trivial: bool = False  # nothing happens at any of the points, so that any way would agree


@dataclass(frozen=True, kw_only=True)
class Change:
    """A sound way that gives what is logged at all steps but a stretch, and what holds within that."""

    match: Match
    span: FaultSpan
    inside: Match | None


@dataclass(kw_only=True)
class Examined:
    """What is known of one logged scalar."""

    scalar: LoggedScalar
    beside: Beside | None = None
    telling: BoolArray = field(default_factory=lambda: np.empty(0, np.bool_))
    match: Match | None = None
    change: Change | None = None
    nearest: tuple[Candidate, Fit] | None = None  # of the sound ways; of a miscounted metric that with its formula
    reason: str = ""
    missing: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether a sound way agrees, and does so tellingly."""
        return self.match is not None and not self.match.candidate.wrong and not self.match.trivial

    @property
    def at_own_step(self) -> bool:
        """Whether it does with the rows of the step it is logged at."""
        return self.sound and self.match is not None and not self.match.offset and self.match.factor == 1.0


def beside_of(scalar: LoggedScalar, batch: Batch, *, offset: int = 0, window: range = range(1)) -> Beside:
    """Put logged values beside the steps at an offset, or beside all of a window of steps around each."""
    steps, logged = scalar.series.finite()
    targets = steps[:, None] + offset + np.array(window)
    places = np.searchsorted(batch.steps, targets)
    inside = (places < len(batch.steps)).all(axis=1)
    places = places[inside]
    there = (batch.steps[places] == targets[inside]).all(axis=1)
    return Beside(
        batch=batch, steps=steps[inside][there], logged=logged[inside][there], places=places[there], kind=scalar.kind,
        resolution=resolution_of(logged),
    )  # fmt: skip


def examine(scalar: LoggedScalar, batch: Batch, facts: Mapping[str, JsonScalar]) -> Examined:
    """Find the way that gives what is logged; see the module."""
    beside = beside_of(scalar, batch)
    found = Examined(scalar=scalar, beside=beside, missing=_missing(scalar.kind, batch))
    if scalar.series.logged:
        found.reason = CONDENSED
        return found
    sound = list(scalar.kind.sound(batch, facts))
    if len(beside.steps) < MIN_POINTS:
        found.reason = SHORT.format(len(beside.steps), MIN_POINTS)
        found.match = _windowed(scalar, batch, sound)
        return found
    if not sound:
        return found
    fits = _fits(beside, sound)
    found.telling = _telling(beside, fits)
    if not found.telling.any():
        quiet = [(one, fitted) for one, fitted in fits if fitted.share >= AGREEING]
        if quiet:
            found.match = Match(candidate=quiet[0][0], fit=quiet[0][1], trivial=True)
            return found
        found.telling = np.ones(len(beside.steps), np.bool_)
    found.match = _best(fits, found.telling) or _windowed(scalar, batch, sound)
    found.nearest = _nearest(fits, found.telling)
    if found.match is not None and found.match.note:
        return found
    if found.match is None:
        wrong = list(scalar.kind.wrong(batch, facts))
        found.change = _change(beside, fits, wrong, found.telling)
        found.match = None if found.change else _wrong(beside, wrong, fits, found.telling)
        if found.match is None and found.change is None:
            found.match = _shifted(scalar, batch, fits, found.telling) or _passes(
                scalar.kind, _scaled(beside, fits, found.telling)
            )
    elif not found.match.fit.agrees[found.telling].all():
        found.change = _change(beside, fits, list(scalar.kind.wrong(batch, facts)), found.telling)
    if found.match is not None and (found.match.candidate.wrong or found.match.factor != 1.0):
        found.nearest = _right(fits, found.match.candidate)
        found.change = found.change or _later(beside, found.nearest, found.match)
    if found.change is not None:
        found.match = None
    return found


def _passes(kind: Kind, match: Match | None) -> Match | None:
    """Read half of an update's quantity as its mean over two passes: at the first the policy has not moved."""
    if match is None or not kind.update or abs(match.factor - 0.5) > FACTOR_RELATIVE:
        return match
    return replace(match, factor=1.0, note="half of it, as a mean over two passes is whose first has not moved yet")


def _nearest(fits: Sequence[tuple[Candidate, Fit]], telling: BoolArray) -> tuple[Candidate, Fit]:
    """Return the simplest of the ways that are about as near as the nearest."""
    errors = [median_error(fitted, telling) for _, fitted in fits]
    return fits[next(place for place, error in enumerate(errors) if error <= ABOUT * min(errors))]


def _right(fits: Sequence[tuple[Candidate, Fit]], wrong: Candidate) -> tuple[Candidate, Fit]:
    """Return the sound way that holds where the wrong one does not yet, else the one with its formula."""
    most = max(int(fitted.agrees.sum()) for _, fitted in fits)
    alike = [pair for pair in fits if int(pair[1].agrees.sum()) >= most / 2]
    return next((pair for pair in alike if pair[0].formula == wrong.formula), alike[0])


def _later(beside: Beside, right: tuple[Candidate, Fit], match: Match) -> Change | None:
    """Return since when a miscount holds, if the right way holds before and the wrong one does not."""
    if match.note or match.offset:
        return None
    miscounted = np.abs(beside.values(match.candidate) * match.factor - beside.logged) <= beside.tolerance
    sound = right[1].agrees & ~miscounted
    off = miscounted & ~right[1].agrees
    known = sound | off
    span = _stretch(beside.steps[known], off[known])
    if span is None:
        return None
    return Change(match=Match(candidate=right[0], fit=right[1]), span=span, inside=match)


def _missing(kind: Kind, batch: Batch) -> tuple[str, ...]:
    """Return the columns that a kind needs and the batch has none of."""
    names = set(batch.frame.columns)
    known = {name.removeprefix(FIGURE): name for name in names}
    return tuple(
        name.removeprefix(FIGURE)
        for name in kind.needs
        if known.get(name.removeprefix(FIGURE), "") not in names
        or not batch.frame[known[name.removeprefix(FIGURE)]].is_not_null().any()
    )


def _fits(beside: Beside, candidates: Iterable[Candidate]) -> list[tuple[Candidate, Fit]]:
    return [(candidate, beside.fit(candidate)) for candidate in candidates]


def _telling(beside: Beside, fits: Sequence[tuple[Candidate, Fit]]) -> BoolArray:
    """Return the points at which something happens, by the log or by the rows."""
    away = np.abs(beside.logged - beside.kind.centre) > beside.noise
    for _, fitted in fits[:1]:
        with np.errstate(invalid="ignore"):
            away |= np.abs(fitted.values - beside.kind.centre) > beside.noise
    return away


def median_error(fitted: Fit, telling: BoolArray) -> float:
    """Return the median relative error of the points that tell; infinite without any."""
    known = fitted.error[telling]
    known = known[np.isfinite(known)]
    return float(np.median(known)) if len(known) else np.inf


def _best(fits: Sequence[tuple[Candidate, Fit]], telling: BoolArray) -> Match | None:
    """Return the simplest of the candidates that agree at the most steps, as closely as any; one step is no matter."""
    counts = [int(fitted.agrees[telling].sum()) for _, fitted in fits]
    most = max(counts, default=0)
    if most < AGREEING * telling.sum() or not most:
        return None
    alike = [pair for pair, count in zip(fits, counts, strict=True) if count >= max(most - 1, AGREEING * telling.sum())]
    least = min(median_error(fitted, telling) for _, fitted in alike)
    alike = [pair for pair in alike if median_error(pair[1], telling) <= max(CLOSER * least, CLOSE)]
    candidate, fitted = alike[0]
    return Match(candidate=candidate, fit=fitted, others=tuple(one for one, _ in alike[1:]))


def _wrong(
    beside: Beside, wrong: Sequence[Candidate], sound: Sequence[tuple[Candidate, Fit]], telling: BoolArray
) -> Match | None:
    """Return the way of miscounting that agrees; one of a part of the rows only with a likely formula."""
    if telling.sum() < MIN_OFF:
        return None
    whole = _best(_fits(beside, [one for one in wrong if not one.partial]), telling)
    if whole is not None:
        return whole
    by_error = sorted(sound, key=lambda pair: median_error(pair[1], telling))
    likely = {one.formula for one, _ in (*sound[:1], *by_error[:LIKELY])}
    likely |= {one.formula for one, _ in sound if one.formula.startswith(USUAL)}
    named = {one.formula for one, _ in sound}
    parts = [one for one in wrong if one.partial and (one.formula in likely or one.formula not in named)]
    return _best(_fits(beside, parts), telling)


def _windowed(scalar: LoggedScalar, batch: Batch, sound: Sequence[Candidate]) -> Match | None:
    """Return the way that agrees where a logged value is the mean of several steps, or of rows pooled over them."""
    window = spacing_of(scalar.series.finite()[0])
    if not 1 < window <= MAX_WINDOW or not sound:
        return None
    back, ahead = range(1 - window, 1), range(window)
    for steps, words in ((back, f"mean of the {window} steps up to it"), (ahead, f"mean of {window} steps from it on")):
        beside = beside_of(scalar, batch, window=steps)
        if len(beside.steps) >= MIN_POINTS and (match := _telling_best(beside, _fits(beside, sound))):
            return replace(match, note=words, beside=beside)
    for steps, words in ((ahead, "rows of {} steps from it on together"), (back, "rows of {} steps up to it together")):
        beside = beside_of(scalar, batch, window=steps)
        if len(beside.steps) < MIN_POINTS:
            continue
        pooled, places = _pool(batch, beside.places)
        together = replace(beside, batch=pooled, places=places)
        if match := _telling_best(together, _fits(together, sound)):
            return replace(match, note=words.format(window), beside=together)
    return None


def _pool(batch: Batch, places: IntArray) -> tuple[Batch, IntArray]:
    """Return a batch whose steps are windows of steps, none of which overlap, and each point's place in it."""
    group = np.full(len(batch.steps), -1, np.int64)
    kept = []
    for number, window in enumerate(places):
        if (group[window] < 0).all():
            group[window] = number
            kept.append(number)
    of_row = group[batch.layout.step]
    frame = batch.frame.with_columns(pl.Series("window", of_row)).filter(pl.col("window") >= 0)
    order = {number: place for place, number in enumerate(kept)}
    at = np.array([order.get(number, 0) for number in range(len(places))], np.int64)
    return Batch(frame, by="window"), at[:, None]


def _telling_best(beside: Beside, fits: Sequence[tuple[Candidate, Fit]], *, least: int = MIN_POINTS) -> Match | None:
    telling = _telling(beside, fits)
    return _best(fits, telling) if telling.sum() >= least else None


def _shifted(
    scalar: LoggedScalar, batch: Batch, fits: Sequence[tuple[Candidate, Fit]], telling: BoolArray
) -> Match | None:
    """Return the way that agrees with the rows of the step before or after, where hardly any does with its own."""
    if max(float(fitted.agrees[telling].mean()) for _, fitted in fits) > MAX_OWN:
        return None
    sound = [candidate for candidate, _ in fits]
    for offset in OFFSETS:
        beside = beside_of(scalar, batch, offset=offset)
        if len(beside.steps) >= MIN_POINTS and (
            match := _telling_best(beside, _fits(beside, sound), least=MIN_TELLING)
        ):
            return replace(match, offset=offset, beside=beside)
    return None


def _scaled(beside: Beside, fits: Sequence[tuple[Candidate, Fit]], telling: BoolArray) -> Match | None:
    """Return the way of which the log is a constant multiple."""
    for candidate, fitted in fits:
        values, logged = fitted.values[telling], beside.logged[telling]
        found = constant_factor(values, logged, resolution=beside.resolution, share=AGREEING)
        if found is None or found.factor <= 0:
            continue
        far = max(found.factor, 1 / found.factor) > FAR_FACTOR
        if found.telling or (beside.kind.centre and far):
            agrees = np.zeros(len(telling), np.bool_)
            agrees[telling] = found.agrees
            return Match(candidate=candidate, fit=replace(fitted, agrees=agrees), factor=found.factor)
    return None


def _change(
    beside: Beside, fits: Sequence[tuple[Candidate, Fit]], wrong: Sequence[Candidate], telling: BoolArray
) -> Change | None:
    """Return the way that agrees everywhere but over one stretch of steps, and what holds there."""
    if telling.sum() < MIN_TELLING:
        return None
    here = beside.only(telling)
    spans = [(_stretch(here.steps, ~fitted.agrees[telling]), candidate, fitted) for candidate, fitted in fits]
    usable = [(int(fitted.agrees[telling].sum()), span, candidate, fitted) for span, candidate, fitted in spans if span]
    if not usable:
        return None
    most = max(count for count, *_ in usable)
    _, span, candidate, fitted = next(one for one in usable if one[0] >= most - 1)
    off = span.holds(here.steps)
    part = here.only(off)
    match = Match(candidate=candidate, fit=replace(fitted, agrees=fitted.agrees))
    ways = [candidate, *(one for one, _ in fits if one is not candidate)]
    return Change(match=match, span=span, inside=_explained(part, ways, wrong))


def _explained(part: Beside, sound: Sequence[Candidate], wrong: Sequence[Candidate]) -> Match | None:
    """Return what gives the logged values within a stretch."""
    every = np.ones(len(part.steps), np.bool_)
    fits = _fits(part, sound)
    return _best(fits, every) or _wrong(part, wrong, fits, every) or _scaled(part, fits, every)


def _stretch(steps: IntArray, off: BoolArray) -> FaultSpan | None:
    """Return the one stretch of steps that differ, where nearly all do there and nearly none elsewhere."""
    if off.sum() < MIN_OFF or (~off).sum() < MIN_BEFORE:
        return None
    weights = weigh_counts(off.astype(np.float64), np.ones(len(off)), SOUND_RATE, FAULTY_RATE)
    span = fault_span(steps, weights)
    if span is None:
        return None
    inside = span.holds(steps)
    clear = inside.sum() >= MIN_OFF and (~inside).sum() >= MIN_BEFORE
    return span if clear and off[inside].mean() >= AGREEING and (~off[~inside]).mean() >= AGREEING else None
