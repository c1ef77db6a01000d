"""Identities and inequalities between logged metrics, and the runs that break them.

The identities are data (metrics/identities.toml). Each is held against the metrics that the run logs, at the steps that
log all of them, with what rounding and a stated tolerance allow. A step alone breaks only what no rounding explains;
else a stretch must, in which broken steps outnumber the others by `MIN_EXCESS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.metric_bindings import (
    Binding,
    HeldSteps,
    LoggedMetrics,
    align,
    applies,
    bindings_of,
    settings_of,
)
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.evidence.weighted_sums import fitted_sums, scheduled_rate
from ptt.diagnostics.metrics.identities import Identity, identities
from ptt.diagnostics.model import Agreement, AuditRow, JsonScalar
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.relations import (
    Relation,
    compare,
    evaluate,
    parse_relation,
    rounding_of,
    symbols_of,
    worst_stretch,
)
from ptt.diagnostics.wording import counted, pct, sig

RULE_ID: Final = "metrics-contradict-each-other"
MIN_EXCESS: Final = 5.0  # steps: one or two odd ones are a restart or a torn row
MIN_SHARED: Final = 0.75  # of the steps that the metric logged most often has: with fewer, windows differ
ALL: Final = 0.995  # of the steps of a stretch: "at all steps"
BOTH: Final = 0.1  # of the broken steps have a gap of the rarer sign: then both occur
TINY: Final = 1e-12


@dataclass(frozen=True, kw_only=True)
class Said:
    """A number in a sentence: `{x}` writes its value at a typical broken step, `{x.name}` its name."""

    value: float
    name: str

    def __format__(self, spec: str) -> str:
        """Write the value."""
        return sig(self.value)


@dataclass(frozen=True, kw_only=True)
class Break:
    """An identity that one set of metrics breaks."""

    claim: str
    causes: tuple[str, ...]
    next: tuple[str, ...]
    names: tuple[str, ...]  # the metrics, as logged
    since: int
    until: int
    before: int | None  # the last compared step before `since`; None: there is none
    steps: int  # compared
    broken: int  # of them
    excess: float  # broken steps less the others, in the worst stretch; infinite where a single step is enough
    left: float  # the sides at the step that is broken by a middling amount
    right: float
    scattered: bool = False  # the identity asks for gaps of one sign, and these have both


@dataclass(frozen=True, kw_only=True)
class Contradiction:
    """One identity that the metrics were held against."""

    identity: Identity
    row: AuditRow
    breaks: tuple[Break, ...] = ()  # the worst first; empty where it holds


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # what overflows agrees with nothing
def find_contradictions(
    metrics: Mapping[str, Series],
    other: Mapping[str, Series],
    facts: Mapping[str, JsonScalar],
    evaluations: Mapping[str, Series] | None = None,
) -> tuple[Contradiction, ...]:
    """Hold the metrics against every identity whose names they log, and evaluations against those on tries."""
    training, held_out = LoggedMetrics(metrics, other), LoggedMetrics({}, evaluations or {})
    found = []
    for identity in identities().values():
        if not applies(identity, facts, training):
            continue
        held = [*fitted_sums(identity, training), *scheduled_rate(identity, training, facts)]
        for logged in (training, held_out) if identity.ladder else (training,):
            for binding in bindings_of(identity, logged):
                held.extend(_hold(identity, binding, facts))
        if held:
            found.append(_contradiction(identity, held))
    return tuple(found)


def _hold(identity: Identity, binding: Binding, facts: Mapping[str, JsonScalar]) -> Iterator[HeldSteps]:
    """Hold metrics against the relations whose symbols are logged; those over the same metrics at once."""
    constants = settings_of(identity, facts)
    known = binding.keys() | constants.keys() | {"step"}
    groups: dict[frozenset[str], list[Relation]] = {}
    for relation in map(parse_relation, identity.relations):
        if relation.symbols <= known and (own := relation.symbols & binding.keys()):
            groups.setdefault(frozenset(own), []).append(relation)
    for symbols, relations in groups.items():
        series = {symbol: binding[symbol] for symbol in sorted(symbols)}
        steps, values = align(series)
        if not len(steps) or not (identity.any_cadence or _one_cadence(series, steps)):
            continue
        held = _hold_values(identity, relations, steps, values, series, constants)
        if held is not None:
            yield held


def _one_cadence(series: Mapping[str, Series], steps: IntArray) -> bool:
    """Return whether the metrics are logged together, and none as means of blocks.

    Else a mean over a window would stand beside a single step.
    """
    if len(series) == 1:
        return True
    inside = [((own := one.finite()[0]) >= steps[0]) & (own <= steps[-1]) for one in series.values()]
    together = len(steps) >= MIN_SHARED * max(int(within.sum()) for within in inside)
    return together and not any(one.logged for one in series.values())


def _hold_values(
    identity: Identity,
    relations: list[Relation],
    steps: IntArray,
    values: dict[str, FloatArray],
    series: Mapping[str, Series],
    constants: Mapping[str, float],
) -> HeldSteps | None:
    """Hold values against relations; at each step the one that is broken most counts."""
    roundings = {symbol: rounding_of(array) for symbol, array in values.items() if symbol not in identity.exact}
    fixed = {name: np.full(len(steps), value) for name, value in constants.items()}
    values = {**values, **fixed, "step": steps.astype(np.float64)}
    compared = [compare(relation, values, roundings) for relation in relations]
    beyond = np.stack([one.excess - one.rounding - _allowed(identity, one.left, one.right) for one in compared])
    judged = np.isfinite(beyond).any(axis=0)
    if not judged.any():
        return None
    beyond = np.where(np.isfinite(beyond), beyond, -np.inf)[:, judged]
    worst = beyond.argmax(axis=0)
    values = {symbol: array[judged] for symbol, array in values.items()}
    figures = {
        name: evaluate(text, values) for name, text in identity.figures.items() if symbols_of(text) <= values.keys()
    }
    beyond = beyond.max(axis=0)
    most = relations[int(np.bincount(worst[beyond > 0] if (beyond > 0).any() else worst).argmax())]
    called = {symbol: one.raw_name for symbol, one in series.items()}
    ordered = [series[symbol] for symbol in _in_order(most, series)]
    return HeldSteps(
        steps=steps[judged],
        beyond=beyond,
        left=np.choose(worst, [one.left[judged] for one in compared]),
        right=np.choose(worst, [one.right[judged] for one in compared]),
        sides=(called.get(most.left, most.left), called.get(most.right, most.right)),
        symbols={symbol: (called.get(symbol, symbol), array) for symbol, array in {**values, **figures}.items()},
        names=tuple(one.raw_name for one in ordered),
        quantity=ordered[0].name,
    )


def _allowed(identity: Identity, left: FloatArray, right: FloatArray) -> FloatArray:
    scale = np.maximum(np.abs(left), np.abs(right))
    return identity.absolute + identity.relative * np.where(np.isfinite(scale), scale, 0.0)


def _in_order(relation: Relation, series: Mapping[str, Series]) -> list[str]:
    """Return the symbols of a relation that are metrics, in the order in which they stand in it."""
    text = f"{relation.left} {relation.right} {' '.join(f'{one.left} {one.right}' for one in relation.where)}"
    return sorted(relation.symbols & series.keys(), key=text.find)


def _break(identity: Identity, held: HeldSteps) -> Break | None:
    """Return the stretch of steps that breaks an identity, or None."""
    over = held.beyond > 0
    if not over.any():
        return None
    first, last, excess = worst_stretch(over)
    at_once = identity.at_once is not None and bool((held.beyond > identity.at_once).any())
    if at_once and excess < MIN_EXCESS:
        where = np.flatnonzero(held.beyond > (identity.at_once or 0.0))
        first, last = int(where[0]), int(where[-1])
    inside = np.flatnonzero(over[first : last + 1]) + first
    typical = int(inside[np.argsort(held.beyond[inside], kind="stable")[len(inside) // 2]])
    middle = {symbol: Said(value=float(array[typical]), name=name) for symbol, (name, array) in held.symbols.items()}
    left, right = float(held.left[typical]), float(held.right[typical])
    middle |= {"left": Said(value=left, name=held.sides[0]), "right": Said(value=right, name=held.sides[1])}
    names = " and ".join(held.names)
    return Break(
        claim=f"{identity.claim.format(**middle, names=names)}{_when(held.steps, first, last, inside)}",
        causes=tuple(cause.format(**middle, names=names) for cause in identity.causes),
        next=tuple(step.format(**middle, names=names) for step in identity.next),
        names=held.names,
        since=int(held.steps[first]),
        until=int(held.steps[last]),
        before=int(held.steps[first - 1]) if first else None,
        steps=len(held.steps),
        broken=int(over.sum()),
        excess=np.inf if at_once else float(excess),
        left=left,
        right=right,
        scattered=identity.one_sign and min(above := float((held.left > held.right)[inside].mean()), 1 - above) > BOTH,
    )


def _when(steps: IntArray, first: int, last: int, inside: IntArray) -> str:
    """Say at which steps, as the end of a sentence."""
    if len(inside) == 1:
        return f", at step {steps[first]}"
    share = len(inside) / (last + 1 - first)
    much = "at all" if share >= ALL else f"at {pct(share)} of the"
    if not first and last == len(steps) - 1:
        return f", {much} {counted(len(steps), 'step(s)')}" if share >= ALL else f", {much} {len(steps)} steps"
    until = "on" if last == len(steps) - 1 else f"to {steps[last]}"
    return f", {much} steps from step {steps[first]} {until}"


def _contradiction(identity: Identity, held: list[HeldSteps]) -> Contradiction:
    """Return what holding all metrics of an identity gave: its breaks, and the row that says so."""
    found = [broken for one in held if (broken := _break(identity, one)) is not None and broken.excess >= MIN_EXCESS]
    breaks = tuple(sorted(found, key=lambda one: (-one.excess, -one.broken, one.since)))
    if breaks:
        shown = next(one for one in held if one.names == breaks[0].names)
        left, right = breaks[0].left, breaks[0].right
    else:
        shown = max(held, key=lambda one: len(one.steps))
        left, right = float(np.median(shown.left)), float(np.median(shown.right))
    others = f" ({counted(len(held), 'set(s)')} of metrics)" if len(held) > 1 else ""
    equal = bool(identity.fits or identity.schedule) or parse_relation(identity.relations[0]).sign == "=="
    row = AuditRow(
        quantity=shown.quantity,
        agreement=Agreement.DIFFERS if breaks else Agreement.AGREES,
        said=f"{breaks[0].claim if breaks else identity.says}{'' if breaks else others}",
        logged_as=" and ".join(shown.names),
        logged=left if np.isfinite(left) else None,
        recomputed=right if np.isfinite(right) and (equal or breaks) else None,
        error=abs(left - right) / max(abs(right), TINY) if equal and np.isfinite(left - right) else None,
        steps=len(shown.steps),
        agreeing=int((shown.beyond <= 0).sum()),
        since=breaks[0].since if breaks else None,
        reason=breaks[0].causes[0] if breaks else "",
        finding=RULE_ID if breaks else None,
    )
    return Contradiction(identity=identity, row=row, breaks=breaks)
