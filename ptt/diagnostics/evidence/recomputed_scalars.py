"""Logged scalars recomputed from token rows: which formula and which reduction give what the trainer logs.

Whole rows of steps spread over the run are reduced in every usual way. Where none gives what is logged, known ways of
miscounting are tried, then the rows of a neighbouring step and a constant factor. Rows may be a part of a batch: a
metric is said to differ only where another one shows at the same steps that they are whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.audited_batch import ALL, MODEL, Batch
from ptt.diagnostics.evidence.audited_steps import MAX_STEPS, MAX_TOKENS, rows_of_steps
from ptt.diagnostics.evidence.logged_scalars import Kind, LoggedScalar, logged_scalars
from ptt.diagnostics.evidence.loss_denominator import LossAudit, audit_loss
from ptt.diagnostics.evidence.scalar_candidates import Candidate
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Agreement, AuditRow, JsonScalar
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
from ptt.diagnostics.wording import pct, sig

MIN_POINTS: Final = 3  # steps: two may agree by chance, where some hundred ways are tried
MIN_TELLING: Final = 6  # steps that tell ways apart, for a finding
AGREEING: Final = 0.9  # of them
SOUND_RATE, FAULTY_RATE = 0.05, 0.9  # of the steps differ where a way holds, and where it does not
MIN_BEFORE, MIN_OFF = 4, 3  # steps on either side of a change
MAX_WINDOW: Final = 24  # steps that one logged value may be the mean of
MAX_READ: Final = 16  # further steps that are read at once, to find the step of a change
ROUNDS: Final = 2
USUAL: Final = "k3"  # begins the formulas of the KL that most trainers log
ABOUT: Final = 1.2  # times the least error: as near
LIKELY: Final = 3  # formulas nearest to what is logged, of which a part of the rows may be miscounted
FAR_FACTOR: Final = 1.5  # of a ratio, whichever way: no rounding makes that
OFFSETS: Final = (-1, 1)
MAX_OWN: Final = 0.5  # of the steps agree with their own rows: with more, neighbours may share their rollouts
SHORT: Final = "only {} steps are both logged and recorded; {} are needed"
FEW_TELL: Final = "only {} of the compared steps tell ways apart"
CONDENSED: Final = "the log has so many values that only means of them are kept"
MAYBE_PART: Final = "no logged scalar agrees with these rows: they may be a part of each batch, or of other steps"


@dataclass(frozen=True, kw_only=True)
class Miscounted:
    """A logged metric that its own tokens contradict."""

    row: AuditRow
    quantity: str
    logged_as: str
    label: str
    wrong: str  # completes "the logged value ..."; "" where it only stopped agreeing
    way: str  # what sound rows give, in words
    columns: tuple[str, ...]
    span: FaultSpan | None  # None: at all steps
    steps: int
    logged: float
    recomputed: float
    steers: bool


@dataclass(frozen=True, kw_only=True)
class ScalarAudit:
    """What the logged scalars turned out to be."""

    rows: tuple[AuditRow, ...]
    miscounted: tuple[Miscounted, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Logged values, (points,), each beside the steps of a batch that it is to be held against."""

    batch: Batch
    steps: IntArray
    logged: FloatArray
    places: IntArray  # (points, steps a point) of the batch's steps; a point is their mean
    kind: Kind
    resolution: float
    note: str = ""  # completes "over a step": which steps

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
            return candidate.value(self.batch)[self.places].mean(axis=1)

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


def audit_scalars(
    tokens: Tokens | None,
    metrics: Mapping[str, Series],
    other: Mapping[str, Series],
    facts: Mapping[str, JsonScalar],
) -> ScalarAudit | None:
    """Recompute every logged scalar that the rows allow; None where they allow none."""
    scalars = logged_scalars(metrics, other) if tokens is not None else []
    if tokens is None or not scalars:
        return None
    recorded = np.unique(tokens.sound_rows["step"].drop_nulls().to_numpy())
    steps = _choose(tokens, recorded, scalars)
    if not len(steps):
        return None
    batch = Batch(rows_of_steps(tokens, steps.tolist()))
    examined = [_examine(scalar, batch, facts) for scalar in scalars]
    _settle_offsets(examined)
    _settle_parts(examined)
    for one in examined:
        if one.change is not None:
            one.change = _dated(one, one.change, tokens, recorded)
    rows = [_row(one) for one in examined]
    found = [_miscounted(one, row, examined) for one, row in zip(examined, rows, strict=True)]
    loss = audit_loss(batch, metrics, facts)
    return ScalarAudit(
        rows=(*rows, *loss.rows), miscounted=tuple(one for one in (*found, _wrong_loss(loss)) if one is not None)
    )


def _wrong_loss(loss: LossAudit) -> Miscounted | None:
    """Return a logged loss that contradicts the settings."""
    if not loss.wrong or loss.series is None:
        return None
    row = loss.rows[0]
    return Miscounted(
        row=row, quantity=row.quantity, logged_as=loss.series.raw_name, label="the loss", wrong=loss.wrong,
        way=row.said, columns=("policy_logp", "old_logp"), span=None, steps=row.steps, logged=loss.logged,
        recomputed=loss.recomputed, steers=True,
    )  # fmt: skip


# ---- which steps


def _spacing(steps: IntArray) -> int:
    return max(1, int(np.median(np.diff(steps)))) if len(steps) > 1 else 1


def _choose(tokens: Tokens, recorded: IntArray, scalars: Sequence[LoggedScalar]) -> IntArray:
    """Choose steps spread over the run, in runs of as many as one logged value may be the mean of, two at least."""
    logged = np.unique(np.concatenate([scalar.series.finite()[0] for scalar in scalars]))
    if not len(recorded) or not len(logged):
        return np.empty(0, np.int64)
    window = min(_spacing(logged), MAX_WINDOW)
    firsts = np.arange(len(recorded))
    if window > 1:
        ends = np.searchsorted(recorded, logged)
        whole = (ends < len(recorded)) & (ends >= window - 1)
        whole[whole] = recorded[ends[whole]] == logged[whole]
        whole[whole] = recorded[ends[whole] - window + 1] == logged[whole] - window + 1
        if whole.sum() >= MIN_POINTS:
            firsts = ends[whole] - window + 1
        else:
            window = 1
    length = max(window, 2)
    lengths = tokens.sound_rows.select("length").to_series()
    a_step = max(float(lengths.sum()) / len(recorded), 1.0)
    most = max(int(min(MAX_STEPS, MAX_TOKENS / a_step)), MIN_TELLING)
    if window == 1 and len(recorded) <= most:
        return recorded
    number = max(most // length, MIN_POINTS)
    chosen = firsts[np.unique(np.linspace(0, len(firsts) - 1, number).round().astype(np.int64))]
    places = np.unique(chosen[:, None] + np.arange(length))
    return recorded[places[places < len(recorded)]]


# ---- one scalar


def _beside(scalar: LoggedScalar, batch: Batch, *, offset: int = 0, window: range = range(1)) -> Beside:
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


def _examine(scalar: LoggedScalar, batch: Batch, facts: Mapping[str, JsonScalar]) -> Examined:
    """Find the way that gives what is logged; see the module."""
    beside = _beside(scalar, batch)
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
    """Take half of an update's quantity for the mean over two passes, of which the first has moved nothing."""
    if match is None or not kind.update or abs(match.factor - 0.5) > FACTOR_RELATIVE:
        return match
    return replace(match, factor=1.0, note="half of it, as a mean over two passes is whose first has not moved yet")


def _nearest(fits: Sequence[tuple[Candidate, Fit]], telling: BoolArray) -> tuple[Candidate, Fit]:
    """Return the simplest of the ways that are about as near as the nearest."""
    errors = [_error(fitted, telling) for _, fitted in fits]
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


def _error(fitted: Fit, telling: BoolArray) -> float:
    known = fitted.error[telling]
    known = known[np.isfinite(known)]
    return float(np.median(known)) if len(known) else np.inf


def _best(fits: Sequence[tuple[Candidate, Fit]], telling: BoolArray) -> Match | None:
    """Return the simplest of the candidates that agree at the most steps; one step more is no better."""
    counts = [int(fitted.agrees[telling].sum()) for _, fitted in fits]
    most = max(counts, default=0)
    if most < AGREEING * telling.sum() or not most:
        return None
    alike = [pair for pair, count in zip(fits, counts, strict=True) if count >= max(most - 1, AGREEING * telling.sum())]
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
    by_error = sorted(sound, key=lambda pair: _error(pair[1], telling))
    likely = {one.formula for one, _ in (*sound[:1], *by_error[:LIKELY])}
    likely |= {one.formula for one, _ in sound if one.formula.startswith(USUAL)}
    named = {one.formula for one, _ in sound}
    parts = [one for one in wrong if one.partial and (one.formula in likely or one.formula not in named)]
    return _best(_fits(beside, parts), telling)


def _windowed(scalar: LoggedScalar, batch: Batch, sound: Sequence[Candidate]) -> Match | None:
    """Return the way that agrees where a logged value is the mean of several steps, or of rows pooled over them."""
    window = _spacing(scalar.series.finite()[0])
    if not 1 < window <= MAX_WINDOW or not sound:
        return None
    back, ahead = range(1 - window, 1), range(window)
    for steps, words in ((back, f"mean of the {window} steps up to it"), (ahead, f"mean of {window} steps from it on")):
        beside = _beside(scalar, batch, window=steps)
        if len(beside.steps) >= MIN_POINTS and (match := _telling_best(beside, _fits(beside, sound))):
            return replace(match, note=words, beside=beside)
    for steps, words in ((ahead, "rows of {} steps from it on together"), (back, "rows of {} steps up to it together")):
        beside = _beside(scalar, batch, window=steps)
        if len(beside.steps) < MIN_POINTS:
            continue
        pooled, places = _pool(batch, beside.places)
        together = replace(beside, batch=pooled, places=places)
        if match := _telling_best(together, _fits(together, sound)):
            return replace(match, note=words.format(window), beside=together)
    return None


def _pool(batch: Batch, places: IntArray) -> tuple[Batch, IntArray]:
    """Return a batch whose steps are windows of steps, none of which overlap, and each point's place in it."""
    import polars as pl

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
        beside = _beside(scalar, batch, offset=offset)
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


def _dated(one: Examined, change: Change, tokens: Tokens, recorded: IntArray) -> Change:
    """Read further steps about the beginning of a stretch, to say at which step it begins."""
    span = change.span
    if span.from_start or one.beside is None or one.match is not None:
        return change
    steps = one.beside.steps
    before, since = int(steps[steps < span.since].max()), span.since
    logged = one.scalar.series.finite()[0]
    for _ in range(ROUNDS):
        between = np.intersect1d(recorded[(recorded > before) & (recorded < since)], logged)
        if not len(between):
            break
        picked = between[np.unique(np.linspace(0, len(between) - 1, MAX_READ).round().astype(np.int64))]
        beside = _beside(one.scalar, Batch(rows_of_steps(tokens, picked.tolist())))
        agrees = beside.fit(change.match.candidate).agrees
        if agrees.any():
            before = max(before, int(beside.steps[agrees].max()))
        later = beside.steps[~agrees & (beside.steps > before)]
        since = min([since, *later.tolist()])
    interval = (before + 1, since)
    return replace(change, span=replace(span, since=since, since_interval=interval))


# ---- what the metrics say of each other


def _settle_offsets(examined: Sequence[Examined]) -> None:
    """Take a shift for numbering where no metric agrees with the rows of its own step, else for a wrong step."""
    if not any(one.at_own_step and one.scalar.kind.whole for one in examined):
        return
    for one in examined:
        if one.match is not None and one.match.offset:
            which = "after" if one.match.offset > 0 else "before"
            wrong = f"is that of the step {which}: other metrics are of the rows of their own step"
            one.match = replace(one.match, candidate=replace(one.match.candidate, wrong=wrong))


def _proving(one: Examined, match: Match) -> BoolArray:
    """Return the points that agree and would not if half of the rows were missing: there the rows are whole."""
    beside = one.beside
    if beside is None or match.note or match.factor != 1.0 or len(match.fit.agrees) != len(beside.steps):
        return np.zeros(0 if beside is None else len(beside.steps), np.bool_)
    proves = match.fit.agrees & one.telling
    for half in beside.batch.halves:
        values = replace(beside, batch=half).values(match.candidate)
        proves &= ~(np.abs(values - beside.logged) <= beside.tolerance)
    return proves


def _whole_at(examined: Sequence[Examined], but: Examined) -> IntArray:
    """Return the steps at which another metric proves that the rows are whole."""
    steps = [np.empty(0, np.int64)]
    for one in examined:
        if one is but or not one.scalar.kind.whole or one.beside is None:
            continue
        match = one.match if one.at_own_step else one.change.match if one.change is not None else None
        if match is not None:
            steps.append(one.beside.steps[_proving(one, match)])
    return np.unique(np.concatenate(steps))


def _is_open(one: Examined) -> bool:
    """Return whether nothing explains what is logged, or only a factor that no miscount has."""
    if one.beside is None or one.reason:
        return False
    far = one.match is not None and max(one.match.factor, 1 / one.match.factor) > FAR_FACTOR
    odd = one.match is not None and one.match.factor != 1.0 and not (one.scalar.kind.centre and far)
    return one.match is None or odd


def _settle_parts(examined: Sequence[Examined]) -> None:
    """Call no metric different where nothing shows that the rows are whole batches."""
    open_ones = [one for one in examined if _is_open(one)]
    kept = [(one, _whole_at(examined, one)) for one in open_ones if one.nearest is not None and not one.missing]
    for one in open_ones:
        if one.missing and one.nearest is not None:
            one.change, one.reason = None, f"{', '.join(one.missing)} is not recorded"
    for one, whole in kept:
        assert one.beside is not None
        steps, kind = one.beside.steps, one.scalar.kind
        if one.telling.sum() < MIN_TELLING:
            one.match, one.change, one.reason = None, None, FEW_TELL.format(int(one.telling.sum()))
            continue
        if one.change is None:
            off = ~one.nearest[1].agrees if one.nearest is not None else np.ones(len(steps), np.bool_)
            if np.isin(steps[off], whole).mean() < AGREEING / 2:
                one.match, one.reason = None, MAYBE_PART
            continue
        if one.change.inside is not None and one.change.inside.candidate.wrong:
            continue
        off = one.change.span.holds(steps)
        enough = np.isin(steps[off], whole).mean() >= AGREEING / 2
        before = int(_proving(one, one.change.match)[~off].sum())
        if not enough or before < MIN_BEFORE or not (kind.whole or kind.steers):
            one.change, one.reason = None, MAYBE_PART


# ---- rows


def _median(values: FloatArray) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else None


def _row(one: Examined) -> AuditRow:
    kind, series = one.scalar.kind, one.scalar.series
    base = AuditRow(
        quantity=kind.quantity, agreement=Agreement.NOT_CHECKABLE, said="", logged_as=series.raw_name,
        reason=one.reason, missing=one.missing,
    )  # fmt: skip
    if one.change is not None:
        return _changed_row(base, one, one.change)
    if one.match is not None:
        return _matched_row(base, one, one.match)
    if one.nearest is None or one.reason or one.beside is None:
        reason = one.reason or (
            f"{' and '.join(one.missing)} {'are' if len(one.missing) > 1 else 'is'} not recorded"
            if one.missing
            else "the rows hold nothing that it could be made from"
        )
        return replace(base, reason=reason, said="not recomputed")
    candidate, fitted = one.nearest
    error = _error(fitted, one.telling)
    return replace(
        base,
        agreement=Agreement.DIFFERS,
        said=f"none of the usual; the nearest is {candidate.said}, off by {pct(error)}",
        **_figures(candidate, fitted, one),
    )


def _figures(candidate: Candidate, fitted: Fit, one: Examined) -> dict[str, object]:
    match = one.match
    beside, telling = (match.beside, one.telling) if match is not None and match.beside else (one.beside, one.telling)
    same = beside is not None and len(fitted.agrees) == len(beside.steps)
    fitting = same and len(telling) == len(fitted.agrees) and telling.any()
    telling = telling if fitting else np.ones(len(fitted.agrees), np.bool_)
    error = _error(fitted, telling)
    return {
        "formula": candidate.formula,
        "reduction": candidate.reduction,
        "logged": _median(beside.logged[telling]) if same and beside is not None else None,
        "recomputed": _median(fitted.values[telling]),
        "error": error if np.isfinite(error) else None,
        "steps": len(fitted.agrees),
        "agreeing": int(fitted.agrees.sum()),
    }


def _matched_row(base: AuditRow, one: Examined, match: Match) -> AuditRow:
    kind, candidate = one.scalar.kind, match.candidate
    said = candidate.said
    if candidate.reduction.endswith(MODEL) and one.beside is not None and ALL in one.beside.batch.masks:
        said += ", tool output left out"
    if match.note:
        said += f": {match.note}"
    if match.factor != 1.0:
        said = f"{sig(match.factor)} times {said}"
    if match.trivial:
        said = f"{kind.centre:g} at every step compared, by the rows too: no way stands out"
    elif match.others:
        said += f"; {_others(match)} give the same here"
    if match.offset and not candidate.wrong:
        said += f", of the rows numbered {match.offset:+d}"
    sound = not candidate.wrong and (match.factor == 1.0)
    figures = _figures(candidate, match.fit, one)
    if not sound and one.nearest is not None:
        figures["recomputed"] = _median(one.nearest[1].values[one.telling])
        figures["error"] = _error(one.nearest[1], one.telling)
    return replace(
        base,
        agreement=Agreement.AGREES if sound else Agreement.DIFFERS,
        said=said,
        reason="" if sound else f"it {candidate.wrong}" if candidate.wrong else f"a factor of {sig(match.factor)}",
        missing=(),
        **figures,
    )


def _others(match: Match) -> str:
    """Name the ways that cannot be told from the one that is named, two at most."""
    names = list(dict.fromkeys(one.name for one in match.others))
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def _changed_row(base: AuditRow, one: Examined, change: Change) -> AuditRow:
    candidate, fitted = change.match.candidate, change.match.fit
    span = change.span
    assert one.beside is not None
    off = span.holds(one.beside.steps)
    when = f"up to step {span.until}" if span.from_start else f"from step {span.since} on"
    inside = change.inside
    what = (
        f"it {inside.candidate.wrong}" if inside is not None and inside.candidate.wrong
        else f"it is {inside.candidate.said}" if inside is not None and inside.factor == 1.0
        else f"it is {sig(inside.factor)} times that" if inside is not None
        else "it is none of the usual"
    )  # fmt: skip
    return replace(
        base,
        agreement=Agreement.DIFFERS,
        said=f"{candidate.said}; {when} {what}",
        **_figures(candidate, fitted, one)
        | {"logged": _median(one.beside.logged[off]), "recomputed": _median(fitted.values[off])},
        since=None if span.from_start else span.since,
        reason=what,
    )


def _miscounted(one: Examined, row: AuditRow, examined: Sequence[Examined]) -> Miscounted | None:
    """Return what the log counts wrongly; None where nothing proves it."""
    if row.agreement is not Agreement.DIFFERS or one.beside is None or one.telling.sum() < MIN_TELLING:
        return None
    kind = one.scalar.kind
    span, wrong = None, ""
    if one.change is not None:
        span = one.change.span
        inside = one.change.inside
        wrong = inside.candidate.wrong if inside is not None else ""
        if not wrong and inside is not None:
            wrong = f"is {sig(inside.factor)} times it" if inside.factor != 1.0 else f"becomes {inside.candidate.said}"
        way = one.change.match.candidate.said
    elif one.match is not None:
        way = one.nearest[0].said if one.nearest else ""
        wrong = one.match.candidate.wrong
        if not wrong and kind.centre and max(one.match.factor, 1 / one.match.factor) > FAR_FACTOR:
            wrong = f"is {sig(one.match.factor)} times it"
        if not wrong:
            return None
    else:
        return None
    if row.logged is None or row.recomputed is None:
        return None
    return Miscounted(
        row=row, quantity=kind.quantity, logged_as=one.scalar.series.raw_name, label=kind.label, wrong=wrong, way=way,
        columns=kind.needs, span=span, steps=row.steps, logged=row.logged, recomputed=row.recomputed,
        steers=kind.steers,
    )  # fmt: skip
