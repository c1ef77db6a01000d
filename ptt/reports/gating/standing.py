"""How each check of a run stands in the gate's outputs, worst first, with a line of its own for what no check tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ptt.diagnostics.gate.values import CheckKind, CheckResult, GatedRun, GateReport, Outcome
from ptt.reports.foreign import safe


class Standing(StrEnum):
    """What an output shows of a check; the order is worst first."""

    CRASHED = "crashed"
    FAILED = "failed"
    UNREADABLE = "unreadable"
    BLIND = "blind"
    TOLERATED = "tolerated"  # blind, and the policy lets that pass: shown, never as passed
    WAIVED = "waived"  # a finding that someone answers for until a day
    PASSED = "passed"


COUNTS = frozenset({Standing.CRASHED, Standing.FAILED, Standing.UNREADABLE, Standing.BLIND})
"""What keeps a gate from passing."""

LEAST_SEVERE = 9  # behind every severity: a check without one


@dataclass(frozen=True, kw_only=True)
class Case:
    """One line of an output: a check, or what keeps a run from being checked at all."""

    id: str
    title: str
    claim: str
    standing: Standing
    check: CheckResult | None = None


def standing_of(check: CheckResult, run: GatedRun) -> Standing:
    """Tell how a check stands; an allowance that nothing needs any more has no finding's severity, and is passed."""
    match check.outcome:
        case Outcome.PASSED if check.waiver and (check.kind is not CheckKind.WAIVER or check.severity is not None):
            return Standing.WAIVED
        case Outcome.BLIND if check.excused or run.outcome is Outcome.PASSED:
            return Standing.TOLERATED
    return Standing(check.outcome.value)


def cases_of(run: GatedRun) -> tuple[Case, ...]:
    """Give all lines of a run in the order of its checks; ids are unique, for readers that drop what comes twice."""
    ids = unique([check.id for check in run.checks])
    checks = tuple(
        Case(
            id=name,
            title=check.title.strip() or name,
            claim=check.claim.strip() or check.outcome.value,
            standing=standing_of(check, run),
            check=check,
        )
        for name, check in zip(ids, run.checks, strict=True)
    )
    if run.error or run.outcome not in {check.outcome for check in run.checks}:
        return (_own(run, taken=ids), *checks)
    return checks


def _own(run: GatedRun, *, taken: Sequence[str]) -> Case:
    """Tell an outcome that no check carries: a run that cannot be read, a worker that died, no check at all."""
    standing = Standing(run.outcome.value)
    if standing is Standing.PASSED:
        standing = Standing.TOLERATED if not run.checks else Standing.PASSED
    claim = run.error or (run.headline if run.checks else "no check was asked of this run") or run.outcome.value
    name = unique([*taken, "run"])[-1]
    return Case(id=name, title="the run can be read and judged", claim=claim, standing=standing)


def worst_first(cases: Iterable[Case]) -> list[Case]:
    """Sort by standing, then by the severity of the finding behind it; equals keep their order."""
    return sorted(cases, key=rank)


def rank(case: Case) -> tuple[int, int]:
    """Give the place of a case among others, the worst the lowest."""
    severity = case.check.severity if case.check is not None else None
    return list(Standing).index(case.standing), LEAST_SEVERE if severity is None else severity.rank


def findings_of(report: GateReport) -> list[tuple[str, GatedRun, Case]]:
    """Give what did not simply pass, of all runs, worst first, each with its run and the name to show."""
    found = [
        (name, run, case)
        for name, run in named(report).items()
        for case in cases_of(run)
        if case.standing is not Standing.PASSED
    ]
    return sorted(found, key=lambda one: rank(one[2]))


def named(report: GateReport) -> dict[str, GatedRun]:
    """Give the runs by a name that is harmless to show, and still unique once it is."""
    return dict(zip(unique([run.name for run in report.runs]), report.runs, strict=True))


def unique(names: Sequence[str]) -> list[str]:
    """Make names harmless to show; two that then look alike get a number."""
    shown = [safe(name).strip() or "(no name)" for name in names]
    taken = Counter(shown)
    seen: set[str] = set()
    result = []
    for name in shown:
        candidate, number = name, 1
        while candidate in seen or (number > 1 and candidate in taken):
            number += 1
            candidate = f"{name} ({number})"
        seen.add(candidate)
        result.append(candidate)
    return result
