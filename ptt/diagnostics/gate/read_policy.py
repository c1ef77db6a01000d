"""Read `[gate]` of the settings into a policy; what means nothing, or could never matter, is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.gate.policy import (
    BASELINE_LIMIT,
    MIN_STEPS,
    AgainstBaseline,
    Allowance,
    Bound,
    Extent,
    Known,
    Policy,
    Window,
    rule_of,
)
from ptt.diagnostics.gate.subjects import (
    ESS,
    LOGGED,
    POOLED,
    QUANTILES,
    SLICES,
    TAIL,
    Ess,
    Logged,
    Subject,
    Tail,
    largest_of,
    name_of,
    range_of,
)
from ptt.diagnostics.gate.toml_table import NAME, Table, meant
from ptt.diagnostics.metrics.aliases import canonical, canonical_names, spellings
from ptt.diagnostics.metrics.catalogue import known
from ptt.diagnostics.model import Severity
from ptt.diagnostics.statistics.autocorrelated_mean import (
    MIN_SUMMARY_VALUES,
    MIN_TAIL_VALUES,
    PERCENTILES,
    STATISTICS,
)

OF_TOKENS: Final = (POOLED, "ratio")
SINGLE: Final = {
    "max": "p95", "maximum": "p95", "peak": "p95", "min": "p05", "minimum": "p05", "last": "mean", "final": "mean",
    "first": "mean", "p100": "p95", "p0": "p05", "p99": "p95", "p01": "p05", "p999": "p95",
}  # fmt: skip
"""Statistics that one step decides, and what to use instead."""
WINDOWS: Final = ("early", "mid", "late", "all")
MOST_VALUES: Final = 1_000_000  # of a window
NEAR: Final = 0.9  # likeness of an unknown name to a known one from which it is taken for a slip
_LAST: Final = re.compile(r"last ([0-9]{1,7})")


def read_bound(table: Table) -> Bound:
    """Give one bound."""
    table.only(("name", "metric", "statistic", "window", "min", "max", "unit"))
    name, metric = table.text("name"), table.text("metric")
    if name is None or not NAME.fullmatch(name):
        table.wrong("name", "is missing or no name; use letters, digits, dots, dashes, slashes and underscores")
    if metric is None:
        table.wrong("metric", f"is missing in the bound {name!r}")
    subject = _subject(table, metric)
    window = _window(table)
    bound = Bound(
        name=name,
        subject=subject,
        statistic=_statistic(table, subject, window),
        window=window,
        low=table.number("min"),
        high=table.number("max"),
        unit=table.text("unit") or "",
    )
    _bound_not_vacuous(table, bound, metric)
    return bound


def _subject(table: Table, metric: str) -> Subject:
    if metric.startswith(LOGGED):
        if metric == LOGGED:
            table.wrong("metric", f"{metric!r} names nothing; write the name as it is logged behind it")
        return Logged(name=metric.removeprefix(LOGGED), exact=True)
    if metric.startswith((TAIL, ESS)):
        return _of_tokens(table, metric)
    if canonical(metric) is None and metric not in canonical_names():
        near = spellings(metric, NEAR)
        if near:
            table.wrong(
                "metric", f"{metric!r} is not known; is {' or '.join(near)} meant? ({LOGGED}{metric} takes it as it is)"
            )
    return Logged(name=metric)


def _of_tokens(table: Table, metric: str) -> Subject:
    kind, _, rest = metric.partition(".")
    slice_, _, quantile = rest.partition(".")
    if slice_ not in SLICES:
        table.wrong("metric", f"{metric!r}: {slice_!r} is no slice; {meant(slice_, SLICES)}")
    if kind + "." == ESS:
        if quantile:
            table.wrong("metric", f"{metric!r} is no effective sample size; write {ESS}{slice_}")
        return Ess(slice=slice_)
    if quantile not in QUANTILES:
        table.wrong("metric", f"{metric!r} is no tail; write {TAIL}{slice_}. and one of {', '.join(QUANTILES)}")
    return Tail(slice=slice_, quantile=quantile)


def _window(table: Table) -> Window:
    text = table.values.get("window", "late")
    if isinstance(text, str) and text in WINDOWS:
        return Window(name=text)
    match = _LAST.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        table.wrong("window", f"is {text!r}; it can be {', '.join(WINDOWS)}, or so many logged steps: 'last 50'")
    count = int(match[1])
    if count < MIN_SUMMARY_VALUES:
        table.wrong(
            "window", f"'last {count}' lets few steps decide; take 'last {MIN_SUMMARY_VALUES}' or more, or 'late'"
        )
    if count > MOST_VALUES:
        table.wrong("window", f"'last {count}' is longer than any run; use 'all'")
    return Window(name="last", count=count)


def _statistic(table: Table, subject: Subject, window: Window) -> str:
    of_tokens = not isinstance(subject, Logged)
    known = OF_TOKENS if of_tokens else STATISTICS
    text = table.values.get("statistic", POOLED if of_tokens else "mean")
    if isinstance(text, str) and text in SINGLE and text not in known:
        table.wrong("statistic", f"{text!r} lets a single step decide; use {POOLED if of_tokens else SINGLE[text]!r}")
    if not isinstance(text, str) or text not in known:
        told = " (a tail or an effective sample size is of all tokens of its window)" if of_tokens else ""
        table.wrong("statistic", f"is {text!r}; it can be {', '.join(known)}{told}")
    if text in ("change", "ratio", "slope") and window.name in ("early", "mid") and of_tokens:
        table.wrong("window", f"a {text} within the {window.name} third says little; use 'all'")
    beyond = min(PERCENTILES.get(text, 0.5), 1 - PERCENTILES.get(text, 0.5))
    if window.name == "last" and window.count * beyond < MIN_TAIL_VALUES:
        least = math.ceil(MIN_TAIL_VALUES / beyond)
        table.wrong("statistic", f"{text!r} of {window.count} values hangs on one of them; take 'last {least}' or more")
    return text


def _bound_not_vacuous(table: Table, bound: Bound, metric: str) -> None:
    """Refuse a bound that no value could pass, or that every value would."""
    low, high = bound.low, bound.high
    if low is None and high is None:
        table.wrong("max", f"the bound {bound.name!r} has neither max nor min: no run could ever fail it")
    if low is not None and high is not None and low > high:
        table.wrong("min", f"is {low:g}, above max, {high:g}: no run could ever pass")
    logged = bound.subject.name if isinstance(bound.subject, Logged) else ""
    ours = None if isinstance(bound.subject, Logged) and bound.subject.exact else canonical(logged) or logged
    least, most = range_of(bound.subject, bound.statistic, ours)
    what = metric if bound.statistic == POOLED else f"the {bound.statistic} of {metric}"
    if high is not None and high >= most:
        table.wrong("max", f"is {high:g}, and {what} is never above {most:g}: no run could ever fail")
    if low is not None and low <= least:
        table.wrong("min", f"is {low:g}, and {what} is never below {least:g}: no run could ever fail")
    if low is not None and low <= 0 and known(ours).signed_estimate and bound.statistic not in ("change", "slope"):
        why = "estimates by k3 are never negative, and others only by their noise"
        table.wrong("min", f"is {low:g}, and {what} is not held by that: {why}; leave it out")
    end = largest_of(bound.subject, ours)
    for key, value in (("max", high), ("min", low)):
        if value is not None and abs(value) > end:
            table.wrong(key, f"is {value:g}, and {what} is nowhere near {end:g}: the bound decides nothing")
    if high is not None and high < least:
        table.wrong("max", f"is {high:g}, and {what} is never below {least:g}: no run could ever pass")
    if low is not None and low > most:
        table.wrong("min", f"is {low:g}, and {what} is never above {most:g}: no run could ever pass")


KEYS: Final = ("severity", "cannot_say", "require", "min_steps", "last_step", "min_sequences", "min_model_tokens",
               "max_lost", "allow", "bound", "baseline")  # fmt: skip
GUARDS: Final = ("min_steps", "last_step", "min_sequences", "min_model_tokens")
DIRECTIONS: Final = ("higher", "lower", "both")
EVERYTHING: Final = frozenset({"*", "**", "all", "any", ".*", "custom:*"})
OF_A_TOOL: Final = "tool:"
OF_METRICS: Final = ("slice-degradation",)  # names as slices what the trainer logs apart, as it spells it
MOST_LIMIT: Final = 10.0  # times a baseline: what is let grow so far is not held against it
LEAST_GUARD: Final = MIN_STEPS  # of steps, sequences, tokens: fewer is no demand, since every run reaches it


def read_policy(document: Mapping[str, Any], path: Path, *, known: Known, baseline: Path | None = None) -> Policy:
    """Give the policy of a settings document, or the default where it has no `[gate]`.

    `baseline` is a file that takes the place of the one in the settings.
    """
    if "gate" not in document:
        return Policy(baseline=AgainstBaseline(file=baseline) if baseline else None)
    if not isinstance(document["gate"], dict):
        raise SettingsError(f"{path}: gate must be a table: [gate].")
    table = Table(f"{path}: [gate]", document["gate"])
    table.only(KEYS)
    limit = table.choice("severity", ("never", *(one.value for one in Severity)), Severity.HIGH.value)
    severity = None if limit == "never" else Severity(limit)
    policy = Policy(
        severity=severity,
        cannot_say_passes=table.choice("cannot_say", ("fail", "pass"), "fail") == "pass",
        require=_required(table, known),
        extent=_extent(table),
        allow=_allowances(table, severity, known),
        bounds=tuple(read_bound(one) for one in table.tables("bound")),
        baseline=_baseline(table, path, baseline),
        written=True,
    )
    _told_apart(table, policy)
    _not_vacuous(table, policy)
    return policy


def _extent(table: Table) -> Extent:
    guards = {key: table.whole(key) for key in GUARDS}
    lost = table.number("max_lost")
    if lost is not None and not 0 <= lost <= 1:
        table.wrong("max_lost", f"is {lost:g}; it is a share of the run's bytes, from 0 to 1")
    return Extent(**{**guards, "min_steps": guards["min_steps"] or MIN_STEPS}, max_lost=lost)


def _required(table: Table, known: Known) -> tuple[str, ...]:
    names = table.texts("require")
    for name in names:
        if name in known.findings and name not in known.rules:
            table.wrong("require", f"{name!r} is a finding of the rule {rule_of(name)!r}; require that rule")
        if name not in known.rules:
            table.wrong("require", f"there is no rule {name!r}; {meant(name, known.rules)} (`ptt rules` lists all)")
    return names


def _allowances(table: Table, severity: Severity | None, known: Known) -> tuple[Allowance, ...]:
    found: list[Allowance] = []
    for one in table.tables("allow"):
        one.only(("finding", "slice", "owner", "reason", "expires"))
        allowance = _allowance(one, known)
        worst = known.at_most(allowance.finding)
        if severity is None:
            one.wrong("finding", "severity is 'never', so that no finding fails the gate: the allowance does nothing")
        if not worst.at_least(severity):
            one.wrong(
                "finding",
                f"{allowance.finding!r} is never more severe than {worst.value}, and the gate fails from"
                f" {severity.value} on: the allowance does nothing",
            )
        if any(allowance.name == other.name for other in found):
            one.wrong("finding", f"{allowance.name!r} is allowed twice")
        found.append(allowance)
    return tuple(found)


def _allowance(table: Table, known: Known) -> Allowance:
    finding, owner, reason = (table.text(key) for key in ("finding", "owner", "reason"))
    expires = table.day("expires")
    if finding is None:
        table.wrong("finding", "is missing; name the finding that may stand")
    if finding in EVERYTHING:
        table.wrong("finding", f"{finding!r} would allow everything; name one finding an entry")
    if finding not in known.findings:
        table.wrong("finding", f"there is no finding {finding!r}; {meant(finding, known.findings)}")
    if owner is None:
        table.wrong("owner", f"is missing; say who answers for {finding}")
    if reason is None:
        table.wrong("reason", f"is missing; say why {finding} may stand")
    if expires is None:
        table.wrong("expires", f"is missing; give the last day on which {finding} may stand")
    return Allowance(finding=finding, owner=owner, reason=reason, expires=expires, slice=_slice(table, finding))


def _slice(table: Table, finding: str) -> str | None:
    slice_ = table.text("slice")
    known = slice_ is None or slice_ in SLICES or slice_.startswith(OF_A_TOOL) or finding in OF_METRICS
    if slice_ is not None and not known:
        table.wrong("slice", f"{slice_!r} is no slice; {meant(slice_, SLICES)} (of one tool: {OF_A_TOOL}NAME)")
    return slice_


def _baseline(table: Table, path: Path, given: Path | None) -> AgainstBaseline | None:
    below = table.table("baseline")
    if below is None:
        return AgainstBaseline(file=given) if given else None
    below.only(("file", "limit", "metrics"))
    file = below.text("file")
    if file is None and given is None:
        below.wrong("file", "is missing; `ptt baseline update FILE RUN...` makes one")
    limit = below.number("limit")
    if limit is not None and not 1.0 < limit <= MOST_LIMIT:
        below.wrong("limit", f"is {limit:g}; it is a factor above 1, and {MOST_LIMIT:g} at most")
    return AgainstBaseline(
        file=given or path.parent / (file or ""), limit=limit or BASELINE_LIMIT, metrics=_metrics(below)
    )


def _metrics(table: Table) -> dict[str, str | None] | None:
    """Give the metrics that a policy names: a list, or a table from the metric to its worse direction."""
    value = table.values.get("metrics")
    if value is None:
        return None
    if isinstance(value, dict):
        below = table.table("metrics")
        assert below is not None
        return {name: below.choice(name, DIRECTIONS, "") for name in value}
    return dict.fromkeys(table.texts("metrics"))


def _told_apart(table: Table, policy: Policy) -> None:
    names = [bound.name for bound in policy.bounds]
    for name in names:
        if names.count(name) > 1:
            table.wrong("bound", f"two bounds are named {name!r}")


def _not_vacuous(table: Table, policy: Policy) -> None:
    """Refuse a gate, or a part of it, that no run could ever fail."""
    guarded = any((getattr(policy.extent, key) or 0) >= LEAST_GUARD for key in GUARDS if key in table.values)
    if policy.severity is None and not (policy.require or policy.bounds or policy.baseline or guarded):
        few = f" that every run does not reach, which is {LEAST_GUARD} at least" if any(map(table.has, GUARDS)) else ""
        table.wrong("severity", f"is 'never' and nothing else is demanded{few}: no run could ever fail")
    if policy.require and policy.cannot_say_passes:
        table.wrong("require", "cannot matter while cannot_say is 'pass': a rule that was not judged passes as well")
    for bound in policy.bounds if policy.cannot_say_passes else ():
        if isinstance(bound.subject, Logged) and bound.subject.exact and canonical(bound.subject.name) is None:
            table.wrong(
                "bound",
                f"{bound.name!r} takes {name_of(bound.subject)!r} as it is, and cannot_say = 'pass' lets it pass where"
                " no run logs it: a slip in the name would never show; leave out one of both",
            )
