"""Logged scalars recomputed from token rows: which formula and which reduction give what the trainer logs.

Whole rows of steps spread over the run are reduced in every usual way. Where none gives what is logged, known ways of
miscounting are tried, then the rows of a neighbouring step and a constant factor. Rows may be a part of a batch: a
metric is said to differ only where another one shows at the same steps that they are whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.audited_batch import ALL, MODEL, Batch
from ptt.diagnostics.evidence.audited_steps import rows_of_steps, steps_to_audit
from ptt.diagnostics.evidence.logged_scalars import logged_scalars
from ptt.diagnostics.evidence.loss_denominator import LossAudit, audit_loss
from ptt.diagnostics.evidence.scalar_candidates import Candidate
from ptt.diagnostics.evidence.scalar_matching import (
    AGREEING,
    FAR_FACTOR,
    MIN_BEFORE,
    MIN_TELLING,
    Change,
    Examined,
    Match,
    beside_of,
    examine,
    median_error,
)
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Agreement, AuditRow, JsonScalar
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.fault_since import FaultSpan
from ptt.diagnostics.statistics.recomputed_scalars import Fit
from ptt.diagnostics.store.scan import READ_ERRORS
from ptt.diagnostics.wording import counted, pct, sig

MAX_READ: Final = 16  # further steps that are read at once, to find the step of a change
ROUNDS: Final = 2
FEW_TELL: Final = "only {} of the compared steps tell ways apart"
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
    error: float  # typical distance of the two, over that of the logged value to where nothing happens
    steers: bool


@dataclass(frozen=True, kw_only=True)
class ScalarAudit:
    """What the logged scalars turned out to be."""

    rows: tuple[AuditRow, ...]
    miscounted: tuple[Miscounted, ...] = ()
    loss: LossAudit | None = None


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # what overflows agrees with nothing
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
    logged = np.unique(np.concatenate([scalar.series.finite()[0] for scalar in scalars]))
    steps = steps_to_audit(tokens, recorded, logged)
    if not len(steps):
        return None
    try:
        batch = Batch(rows_of_steps(tokens, steps.tolist()))
    except READ_ERRORS:  # damage in a column that no other stage reads: what can be judged has been
        return None
    examined = [examine(scalar, batch, facts) for scalar in scalars]
    _settle_offsets(examined)
    _settle_parts(examined)
    for one in examined:
        if one.change is not None:
            one.change = _dated(one, one.change, tokens, recorded)
    rows = [_row(one) for one in examined]
    found = [_miscounted(one, row) for one, row in zip(examined, rows, strict=True)]
    loss = audit_loss(batch, metrics, facts)
    return ScalarAudit(
        rows=(*rows, *loss.rows),
        miscounted=tuple(one for one in (*found, _wrong_loss(loss)) if one is not None),
        loss=loss,
    )


def _wrong_loss(loss: LossAudit) -> Miscounted | None:
    """Return a logged loss that contradicts the settings."""
    if not loss.wrong or loss.series is None:
        return None
    row = loss.rows[0]
    return Miscounted(
        row=row, quantity=row.quantity, logged_as=loss.series.raw_name, label="the loss", wrong=loss.wrong,
        way=row.said, columns=("policy_logp", "old_logp"), span=None, steps=row.steps, logged=loss.logged,
        recomputed=loss.recomputed, error=row.error or 0.0, steers=True,
    )  # fmt: skip


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
        beside = beside_of(one.scalar, Batch(rows_of_steps(tokens, picked.tolist())))
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
    error = median_error(fitted, one.telling)
    return replace(
        base,
        agreement=Agreement.DIFFERS,
        said=f"none of the usual; the nearest is {candidate.said}, off by {pct(error)}",
        **_figures(candidate, fitted, one),
    )


def _figures(candidate: Candidate, fitted: Fit, one: Examined) -> dict[str, Any]:
    match = one.match
    beside, telling = (match.beside, one.telling) if match is not None and match.beside else (one.beside, one.telling)
    same = beside is not None and len(fitted.agrees) == len(beside.steps)
    fitting = same and len(telling) == len(fitted.agrees) and telling.any()
    telling = telling if fitting else np.ones(len(fitted.agrees), np.bool_)
    error = median_error(fitted, telling)
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
        said += f"; {_others(match)}"
    if match.offset and not candidate.wrong:
        said += f", of the rows numbered {match.offset:+d}"
    sound = not candidate.wrong and (match.factor == 1.0)
    figures = _figures(candidate, match.fit, one)
    if not sound and one.nearest is not None:
        figures["recomputed"] = _median(one.nearest[1].values[one.telling])
        figures["error"] = median_error(one.nearest[1], one.telling)
    return replace(
        base,
        agreement=Agreement.AGREES if sound else Agreement.DIFFERS,
        said=said,
        reason="" if sound else f"it {candidate.wrong}" if candidate.wrong else f"a factor of {sig(match.factor)}",
        missing=(),
        **figures,
    )


def _others(match: Match) -> str:
    """Say how many other formulas give the same values here."""
    ways = len({one.name for one in match.others})
    return f"{counted(ways, 'other way(s)')} {'gives' if ways == 1 else 'give'} the same here"


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
        said=f"{candidate.said}; not {when}",
        **_figures(candidate, fitted, one)
        | {"logged": _median(one.beside.logged[off]), "recomputed": _median(fitted.values[off])},
        since=None if span.from_start else span.since,
        reason=what,
    )


def _miscounted(one: Examined, row: AuditRow) -> Miscounted | None:
    """Return what the log counts wrongly; None where nothing proves it."""
    if row.agreement is not Agreement.DIFFERS or one.beside is None or one.telling.sum() < MIN_TELLING:
        return None
    kind = one.scalar.kind
    span, wrong, error = None, "", row.error
    if one.change is not None:
        span = one.change.span
        inside = one.change.inside
        wrong = inside.candidate.wrong if inside is not None else ""
        if not wrong and inside is not None:
            wrong = f"is {sig(inside.factor)} times it" if inside.factor != 1.0 else f"becomes {inside.candidate.said}"
        way = one.change.match.candidate.said
        error = median_error(one.change.match.fit, span.holds(one.beside.steps))
    elif one.match is not None:
        way = one.nearest[0].said if one.nearest else ""
        wrong = one.match.candidate.wrong
        if not wrong and kind.centre and max(one.match.factor, 1 / one.match.factor) > FAR_FACTOR:
            wrong = f"is {sig(one.match.factor)} times it"
        if not wrong:
            return None
    else:
        return None
    if row.logged is None or row.recomputed is None or error is None:
        return None
    return Miscounted(
        row=row, quantity=kind.quantity, logged_as=one.scalar.series.raw_name, label=kind.label, wrong=wrong, way=way,
        columns=kind.needs, span=span, steps=row.steps, logged=row.logged, recomputed=row.recomputed, error=error,
        steers=kind.steers,
    )  # fmt: skip
