"""Read `[gate]` of the settings into a policy; what means nothing, or could never matter, is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.gate.known import Known, rule_of
from ptt.diagnostics.gate.policy import (
    BASELINE_LIMIT,
    MIN_STEPS,
    AgainstBaseline,
    Allowance,
    Extent,
    Policy,
)
from ptt.diagnostics.gate.reading_bounds import read_bound
from ptt.diagnostics.gate.subjects import SLICES, Logged, name_of
from ptt.diagnostics.gate.toml_table import Table, meant
from ptt.diagnostics.model import Severity
from ptt.diagnostics.parsers.aliases import canonical

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
