"""Read `[gate]` of the settings into a policy; what means nothing, or could never matter, is refused."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from ptt.diagnostics.custom.terms import SLICES
from ptt.diagnostics.documents import MAX_INTEGER, DocumentError, Finite, closest, convert_document
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.gate.baseline.tails import QUANTILES
from ptt.diagnostics.gate.policy import (
    ADVISORY,
    BASELINE_LIMIT,
    ESS,
    LOGGED,
    MIN_STEPS,
    POOLED,
    TAIL,
    AdvisoryDemands,
    AgainstBaseline,
    Allowance,
    Bound,
    Ess,
    Extent,
    Known,
    Logged,
    Policy,
    Subject,
    Tail,
    Text,
    TracesTable,
    Window,
    largest_of,
    name_of,
    range_of,
    read_demands,
    rule_of,
)
from ptt.diagnostics.metrics import catalogue
from ptt.diagnostics.metrics.aliases import canonical, canonical_names, spellings
from ptt.diagnostics.model import Severity
from ptt.diagnostics.statistics.autocorrelated_mean import MIN_SUMMARY_VALUES, MIN_TAIL_VALUES, PERCENTILES, STATISTICS

TOKEN_STATISTICS: Final = (POOLED, "ratio")
SINGLE_STEP: Final = {
    "max": "p95", "maximum": "p95", "peak": "p95", "min": "p05", "minimum": "p05", "last": "mean", "final": "mean",
    "first": "mean", "p100": "p95", "p0": "p05", "p99": "p95", "p01": "p05", "p999": "p95",
}  # fmt: skip
"""Statistics that one step decides, and what to use instead."""
WINDOWS: Final = ("early", "mid", "late", "all")
MAX_WINDOW: Final = 1_000_000  # values
NAME_SIMILARITY: Final = 0.9  # of an unknown name to a known one from which it is taken for a slip
GUARDS: Final = ("min_steps", "last_step", "min_sequences", "min_model_tokens")
EVERYTHING: Final = frozenset({"*", "**", "all", "any", ".*", "custom:*"})
TOOL_SLICE: Final = "tool:"
FREE_SLICES: Final = ("slice-degradation",)  # names as slices what the trainer logs apart, as it spells it
MAX_BASELINE_LIMIT: Final = 10.0  # times a baseline: what is let grow so far is not held against it
MIN_GUARD: Final = MIN_STEPS  # of steps, sequences, tokens: fewer is no demand, since every run reaches it
MAX_ENTRIES: Final = 200  # of a list: a policy is read by people
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,79}")
_LAST: Final = re.compile(r"last ([0-9]{1,7})")

Positive = Annotated[int, Meta(ge=1, le=MAX_INTEGER)]  # every run reaches less
Names = Annotated[tuple[Text, ...], Meta(max_length=MAX_ENTRIES)]


class BoundTable(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """`[[gate.bound]]`."""

    name: Text
    metric: Text
    statistic: Text | None = None
    window: Text = "late"
    min: Finite | None = None
    max: Finite | None = None
    unit: Text = ""


class BaselineTable(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """`[gate.baseline]`."""

    file: Text | None = None
    limit: Annotated[float, Meta(gt=1, le=MAX_BASELINE_LIMIT)] = BASELINE_LIMIT
    metrics: Names | dict[str, Literal["higher", "lower", "both"]] | None = None


class AdvisoriesTable(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """`[gate.advisories]`."""

    severity: Literal["never", "critical", "high", "medium", "low"] = "high"
    ids: Names = ()
    notes: bool = False


class GateTable(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """`[gate]`."""

    severity: Literal["never", "critical", "high", "medium", "low", "info"] = "high"
    cannot_say: Literal["fail", "pass"] = "fail"
    require: Names = ()
    min_steps: Positive = MIN_STEPS
    last_step: Positive | None = None
    min_sequences: Positive | None = None
    min_model_tokens: Positive | None = None
    max_lost: Annotated[float, Meta(ge=0, le=1)] | None = None
    allow: Annotated[tuple[Allowance, ...], Meta(max_length=MAX_ENTRIES)] = ()
    bound: Annotated[tuple[BoundTable, ...], Meta(max_length=MAX_ENTRIES)] = ()
    baseline: BaselineTable | None = None
    traces: TracesTable | None = None
    advisories: AdvisoriesTable | None = None


KEYS: Final = GateTable.__struct_fields__


def read_policy(document: Mapping[str, Any], path: Path, *, known: Known, baseline: Path | None = None) -> Policy:
    """Return the policy of a settings document, or the default where it has no `[gate]`.

    `baseline` is a file that takes the place of the one in the settings.
    """
    if "gate" not in document:
        return Policy(baseline=AgainstBaseline(file=baseline) if baseline else None)
    try:
        table = convert_document(document["gate"], GateTable, mapping="a table")
        policy = Policy(
            severity=None if table.severity == "never" else Severity(table.severity),
            cannot_say_passes=table.cannot_say == "pass",
            require=table.require,
            extent=Extent(max_lost=table.max_lost, **{key: getattr(table, key) for key in GUARDS}),
            allow=table.allow,
            bounds=tuple(_bound(f"bound[{index}]", bound) for index, bound in enumerate(table.bound)),
            baseline=_baseline(table.baseline, path, baseline),
            traces=read_demands(table.traces, path),
            advisories=_advisories(table.advisories, known),
        )
        _check_required(policy, known)
        _check_allowances(policy, known)
        _refuse_repeated("bound", [bound.name for bound in policy.bounds])
        _refuse_without_effect(policy, {key for key in GUARDS if key in document["gate"]})
    except DocumentError as error:
        end = "" if error.problem.endswith("?") else "."
        raise SettingsError(f"{path}: [gate] {f'{error.key} ' if error.key else ''}{error.problem}{end}") from error
    return policy


def _advisories(table: AdvisoriesTable | None, known: Known) -> AdvisoryDemands | None:
    if table is None:
        return None
    for name in table.ids:
        if name not in known.advisories:
            raise DocumentError("advisories.ids", f"{name!r} is no advisory; {closest(name, known.advisories)}")
    if table.severity == "never" and not table.ids:
        raise DocumentError("advisories.severity", "is 'never' and no id is given: no advisory could ever fail a run")
    severity = None if table.severity == "never" else Severity(table.severity)
    return AdvisoryDemands(severity=severity, ids=table.ids, notes=table.notes)


def _check_advisory(key: str, name: str, policy: Policy, known: Known) -> None:
    if name not in known.advisories:
        raise DocumentError(key, f"{name!r} is no advisory; {closest(name, known.advisories)}")
    if policy.advisories is None or not policy.advisories.reaches(name, known.advisories[name]):
        raise DocumentError(key, f"{name!r} fails no run by [gate.advisories]: the allowance does nothing")


def _refuse_repeated(key: str, names: Sequence[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise DocumentError(key, f"names {name!r} twice")


def _check_required(policy: Policy, known: Known) -> None:
    _refuse_repeated("require", policy.require)
    for name in policy.require:
        if name in known.findings and name not in known.rules:
            raise DocumentError("require", f"{name!r} is a finding of the rule {rule_of(name)!r}; require that rule")
        if name not in known.rules:
            near = closest(name, known.rules)
            raise DocumentError("require", f"{name!r} is not a rule; {near} (`ptt rules` lists all)")


def _check_allowances(policy: Policy, known: Known) -> None:
    for index, allowance in enumerate(policy.allow):
        key, finding, slice_ = f"allow[{index}].finding", allowance.finding, allowance.slice
        if finding in EVERYTHING:
            raise DocumentError(key, f"{finding!r} would allow everything; name one finding per entry")
        if finding.startswith(ADVISORY):
            _check_advisory(key, finding.removeprefix(ADVISORY), policy, known)
            continue
        if finding not in known.findings:
            raise DocumentError(key, f"{finding!r} is not a finding; {closest(finding, known.findings)}")
        if slice_ and not (slice_ in SLICES or slice_.startswith(TOOL_SLICE) or finding in FREE_SLICES):
            near = f"{closest(slice_, SLICES)} (of one tool: {TOOL_SLICE}NAME)"
            raise DocumentError(f"allow[{index}].slice", f"{slice_!r} is not a slice; {near}")
        if policy.severity is None:
            raise DocumentError(key, "the allowance does nothing: severity is 'never', and no finding fails the gate")
        if not (worst := known.at_most(finding)).at_least(policy.severity):
            reach = f"never more severe than {worst.value}, and the gate fails from {policy.severity.value} on"
            raise DocumentError(key, f"{finding!r} is {reach}: the allowance does nothing")
    _refuse_repeated("allow", [allowance.name for allowance in policy.allow])


def _baseline(wanted: BaselineTable | None, path: Path, given: Path | None) -> AgainstBaseline | None:
    if wanted is None:
        return AgainstBaseline(file=given) if given else None
    if wanted.file is None and given is None:
        raise DocumentError("baseline.file", "is missing; `ptt baseline update FILE RUN...` makes one")
    metrics = wanted.metrics
    if isinstance(metrics, tuple):
        _refuse_repeated("baseline.metrics", metrics)
    return AgainstBaseline(
        file=given or path.parent / (wanted.file or "").strip(),
        limit=wanted.limit,
        metrics=dict.fromkeys(metrics) if isinstance(metrics, tuple) else metrics,
    )


def _bound(key: str, table: BoundTable) -> Bound:
    name, metric = table.name.strip(), table.metric.strip()
    if not _NAME.fullmatch(name):
        raise DocumentError(
            f"{key}.name", f"{name!r} is not a valid name; use letters, digits, dots, dashes, slashes and underscores"
        )
    subject = _subject(f"{key}.metric", metric)
    window = _window(f"{key}.window", table.window)
    bound = Bound(
        name=name,
        subject=subject,
        statistic=_statistic(key, table.statistic, subject, window),
        window=window,
        low=table.min,
        high=table.max,
        unit=table.unit.strip(),
    )
    _refuse_unbounding(key, bound, metric)
    return bound


def _subject(key: str, metric: str) -> Subject:
    if metric.startswith(LOGGED):
        if metric == LOGGED:
            raise DocumentError(key, f"{metric!r} names nothing; add the name as it is logged")
        return Logged(name=metric.removeprefix(LOGGED), exact=True)
    if metric.startswith((TAIL, ESS)):
        slice_, _, quantile = metric.partition(".")[2].partition(".")
        if slice_ not in SLICES:
            raise DocumentError(key, f"{metric!r}: {slice_!r} is not a slice; {closest(slice_, SLICES)}")
        if metric.startswith(ESS):
            if quantile:
                raise DocumentError(key, f"{metric!r} is not an effective sample size; write {ESS}{slice_}")
            return Ess(slice=slice_)
        if quantile not in QUANTILES:
            forms = f"{TAIL}{slice_}. and one of {', '.join(QUANTILES)}"
            raise DocumentError(key, f"{metric!r} is not a tail; write {forms}")
        return Tail(slice=slice_, quantile=quantile)
    known = canonical(metric) is not None or metric in canonical_names()
    if near := () if known else spellings(metric, NAME_SIMILARITY):
        meant = f"is {' or '.join(near)} meant? ({LOGGED}{metric} takes it as it is)"
        raise DocumentError(key, f"{metric!r} is unknown; {meant}")
    return Logged(name=metric)


def _window(key: str, text: str) -> Window:
    if text in WINDOWS:
        return Window(name=text)
    match = _LAST.fullmatch(text)
    if match is None:
        raise DocumentError(key, f"is {text!r}; it can be {', '.join(WINDOWS)}, or a number of logged steps: 'last 50'")
    count = int(match[1])
    if count < MIN_SUMMARY_VALUES:
        longer = f"take 'last {MIN_SUMMARY_VALUES}' or more, or 'late'"
        raise DocumentError(key, f"'last {count}' lets a few steps decide; {longer}")
    if count > MAX_WINDOW:
        raise DocumentError(key, f"'last {count}' is longer than any run; use 'all'")
    return Window(name="last", count=count)


def _statistic(key: str, given: str | None, subject: Subject, window: Window) -> str:
    of_tokens = not isinstance(subject, Logged)
    known = TOKEN_STATISTICS if of_tokens else STATISTICS
    text = given or known[0]
    if text in SINGLE_STEP and text not in known:
        instead = POOLED if of_tokens else SINGLE_STEP[text]
        raise DocumentError(f"{key}.statistic", f"{text!r} lets a single step decide; use {instead!r}")
    if text not in known:
        why = " (a tail or an effective sample size covers all tokens of its window)" if of_tokens else ""
        raise DocumentError(f"{key}.statistic", f"is {text!r}; it can be {', '.join(known)}{why}")
    if text == "ratio" and window.name in ("early", "mid") and of_tokens:
        raise DocumentError(f"{key}.window", f"a ratio within the {window.name} third says little; use 'all'")
    quantile = PERCENTILES.get(text, 0.5)
    beyond = min(quantile, 1 - quantile)
    if window.name == "last" and window.count * beyond < MIN_TAIL_VALUES:
        longer = f"take 'last {math.ceil(MIN_TAIL_VALUES / beyond)}' or more"
        raise DocumentError(f"{key}.statistic", f"{text!r} of {window.count} values depends on one of them; {longer}")
    return text


def _refuse_unbounding(key: str, bound: Bound, metric: str) -> None:
    """Refuse a bound that no value could pass, or that every value would."""
    low, high, subject = bound.low, bound.high, bound.subject
    logged = subject.name if isinstance(subject, Logged) else ""
    canonical_name = None if isinstance(subject, Logged) and subject.exact else canonical(logged) or logged
    least, most = range_of(subject, bound.statistic, canonical_name)
    largest = largest_of(subject, canonical_name)
    quantity = metric if bound.statistic == POOLED else f"the {bound.statistic} of {metric}"
    if low is None and high is None:
        raise DocumentError(
            f"{key}.max", f"the bound {bound.name!r} has neither max nor min: no run could ever fail it"
        )
    if low is not None and high is not None and low > high:
        raise DocumentError(f"{key}.min", f"is {low:g}, above max, {high:g}: no run could ever pass")
    if high is not None:
        problem = (
            f"{quantity} is never above {most:g}: no run could ever fail"
            if high >= most
            else f"{quantity} is never near {largest:g}: the bound decides nothing"
            if abs(high) > largest
            else f"{quantity} is never below {least:g}: no run could ever pass"
            if high < least
            else ""
        )
        if problem:
            raise DocumentError(f"{key}.max", f"is {high:g}, and {problem}")
    if low is not None:
        problem = (
            f"{quantity} is never below {least:g}: no run could ever fail"
            if low <= least
            else f"{quantity} is not limited by that: k3 estimates are never negative, and others only by their "
            "noise; leave it out"
            if low <= 0
            and catalogue.known(canonical_name).signed_estimate
            and bound.statistic not in ("change", "slope")
            else f"{quantity} is never near {largest:g}: the bound decides nothing"
            if abs(low) > largest
            else f"{quantity} is never above {most:g}: no run could ever pass"
            if low > most
            else ""
        )
        if problem:
            raise DocumentError(f"{key}.min", f"is {low:g}, and {problem}")


def _refuse_without_effect(policy: Policy, guards: set[str]) -> None:
    """Refuse a gate, or a part of it, that no run could ever fail; `guards`: those that the settings give."""
    guarded = any((getattr(policy.extent, key) or 0) >= MIN_GUARD for key in guards)
    demanded = policy.require or policy.bounds or policy.baseline or policy.traces or policy.advisories
    if policy.severity is None and not (demanded or guarded):
        few = f" that every run does not reach anyway, at least {MIN_GUARD}" if guards else ""
        raise DocumentError("severity", f"is 'never' and nothing else is required{few}: no run could ever fail")
    if policy.require and policy.cannot_say_passes:
        unjudged = "a rule that was not judged passes as well"
        raise DocumentError("require", f"cannot matter while cannot_say is 'pass': {unjudged}")
    for bound in policy.bounds if policy.cannot_say_passes else ():
        if isinstance(bound.subject, Logged) and bound.subject.exact and canonical(bound.subject.name) is None:
            raise DocumentError(
                "bound",
                f"{bound.name!r} takes {name_of(bound.subject)!r} as it is, and cannot_say = 'pass' lets it pass "
                "where no run logs it: a typo in the name would never show; leave out one of the two",
            )
