"""Judge one run by a policy: all checks, worst first, and what they come to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date

from ptt.diagnostics.gate.against import check_baseline
from ptt.diagnostics.gate.bounds import check_bounds
from ptt.diagnostics.gate.extent import check_extent
from ptt.diagnostics.gate.findings import check_findings, idle_allowances
from ptt.diagnostics.gate.origin import check_origin, origin_note
from ptt.diagnostics.gate.policy import Policy
from ptt.diagnostics.gate.required import check_required
from ptt.diagnostics.gate.values import ORDER, CheckKind, CheckResult, GatedRun, Outcome, worst
from ptt.diagnostics.kept.opened import Opened


def judge(opened: Opened, policy: Policy, *, name: str, today: date) -> GatedRun:
    """Hold a run against a policy. A crash outranks a failure, that outranks what cannot be said; `today` dates
    allowances and nothing else.
    """
    beside, told, figures = check_baseline(opened, policy)
    checks = sorted([*_checks(opened, policy, today), *beside], key=_rank)
    diagnosis = opened.diagnosis
    return GatedRun(
        name=name,
        outcome=outcome_of(checks),
        checks=tuple(checks),
        status=diagnosis.verdict.status,
        headline=diagnosis.verdict.headline,
        framework=diagnosis.run.framework,
        steps=diagnosis.run.step_count,
        model_tokens=diagnosis.run.model_tokens,
        notes=(*origin_note(opened), *_excused(checks, policy), *told, *idle_allowances(opened, policy, today=today)),
        figures=figures,
    )


def outcome_of(checks: Sequence[CheckResult]) -> Outcome:
    """Give what checks come to; those that are blind and excused do not count, and nothing to go by is blind."""
    return worst([check.outcome for check in checks if not check.excused])


def _checks(opened: Opened, policy: Policy, today: date) -> Iterator[CheckResult]:
    for crash in opened.diagnosis.crashes:
        yield _crashed(crash.id, crash.error)
    yield from check_findings(opened, policy, today=today)
    yield from check_origin(opened, policy)
    yield from check_extent(opened, policy)
    yield from check_required(opened, policy)
    yield from check_bounds(opened, policy)


def _rank(check: CheckResult) -> tuple[int, int]:
    """Order checks by outcome, findings by severity; others stay as they were made."""
    return ORDER.index(check.outcome), check.severity.rank if check.severity else len(ORDER) + 5


def _crashed(rule: str, error: str) -> CheckResult:
    return CheckResult(
        id=f"crash:{rule}",
        kind=CheckKind.CRASH,
        outcome=Outcome.CRASHED,
        title=f"the rule {rule} ran",
        claim=f"it failed itself: {error}",
        data="no answer",
        fails_if="an error in the rule, which is a fault of ptt or of a custom rule, not of the run",
        rule=rule,
        next=("report it with the message above; of a custom rule, look at its file",),
    )


def _excused(checks: Sequence[CheckResult], policy: Policy) -> tuple[str, ...]:
    count = sum(check.excused for check in checks)
    if not count or not policy.cannot_say_passes:
        return ()
    noun = "check had" if count == 1 else "checks had"
    return (f"{count} {noun} no data, and the policy lets that pass (cannot_say = 'pass')",)
