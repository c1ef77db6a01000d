"""Judge one run by a policy: all checks, worst first, and what they come to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Final

from ptt.diagnostics.gate.against_baseline import check_baseline
from ptt.diagnostics.gate.bounds import check_bounds
from ptt.diagnostics.gate.extent import check_extent, damage_note
from ptt.diagnostics.gate.findings import check_findings, idle_allowances
from ptt.diagnostics.gate.policy import Policy, rule_of
from ptt.diagnostics.gate.results import ORDER, CheckKind, CheckResult, GatedRun, Outcome, worst
from ptt.diagnostics.model import Diagnosis, Severity
from ptt.diagnostics.store.loaded_run import LoadedRun


def decide(diagnosis: Diagnosis, *, fail_on: Severity | None) -> Outcome:
    """A crash of a rule is ours and outranks all; then a finding at or above `fail_on`; then nothing judged at all."""
    if diagnosis.crashes:
        return Outcome.CRASHED
    if fail_on is not None and any(finding.severity.at_least(fail_on) for finding in diagnosis.findings):
        return Outcome.FAILED
    if not diagnosis.healthy and not diagnosis.findings:
        return Outcome.BLIND
    return Outcome.PASSED


def check_required(opened: LoadedRun, policy: Policy) -> Iterator[CheckResult]:
    """Return one result a rule."""
    for rule in policy.require:
        yield _required(opened, rule)


def _required(opened: LoadedRun, rule: str) -> CheckResult:
    diagnosis = opened.diagnosis
    open_ = next((one for one in diagnosis.not_judged if one.id == rule), None)
    healthy = next((one for one in diagnosis.healthy if one.id == rule), None)
    findings = [one for one in diagnosis.findings if rule_of(one.id) == rule]
    crashed = any(one.id == rule for one in diagnosis.crashes)
    steps: tuple[str, ...] = ()
    judged = False
    if crashed:
        claim, data = "the rule itself failed", "no answer"
    elif open_ is not None:
        claim, data = f"it cannot say: {open_.reason}", "no answer"
        steps = (open_.enable,) if open_.enable else ()
        if not open_.applies:
            steps = ("take the rule out of `require` for runs of this kind",)
    elif findings:
        judged, claim, data = True, f"it found: {findings[0].claim}", "what it found"
    elif healthy is not None:
        judged, claim, data = True, f"it found nothing: {healthy.reason}", "what it looked at"
    else:
        claim, data = "there is no answer of this rule", "no answer"
        steps = ("give the run, its archive or its store: it was judged without this rule, or by an older version",)
    return CheckResult(
        id=f"required:{rule}",
        kind=CheckKind.REQUIRED,
        outcome=Outcome.PASSED if judged else Outcome.BLIND,
        title=f"the rule {rule} gives an answer",
        claim=claim,
        data=data,
        fails_if=f"no answer of {rule} for want of data (blind); what it finds counts by its severity",
        rule=rule,
        link=open_.link if open_ else healthy.link if healthy else findings[0].link if findings else None,
        next=steps,
    )


ID: Final = "settings"
TOLD: Final = "a findings.json counts as it was written: by the version, limits and rules of whoever wrote it"


def check_origin(opened: LoadedRun, policy: Policy) -> Iterator[CheckResult]:
    """Yield a result where the settings change how a run is judged, and nobody can tell whether this one was."""
    if opened.kind != "findings" or not policy.judged_by:
        return
    named = " and ".join(policy.judged_by)
    yield CheckResult(
        id=ID,
        kind=CheckKind.REQUIRED,
        outcome=Outcome.BLIND,
        title=f"the run was judged by {named} of these settings",
        claim="it is a findings.json, which does not say by which settings it was judged",
        data="findings.json",
        fails_if="a run of which only a findings.json is at hand leaves the gate blind",
        next=("give the run, its archive or its store: it is judged by these settings then",),
    )


def origin_note(opened: LoadedRun) -> Iterator[str]:
    """Tell that a run was not judged here: a store whose tokens are gone counts as the version before judged it."""
    if opened.kind == "findings":
        yield TOLD
    if opened.diagnosis.judged_with:
        yield opened.diagnosis.judged_with


def judge(opened: LoadedRun, policy: Policy, *, name: str, today: date) -> GatedRun:
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
        notes=(
            *origin_note(opened),
            *damage_note(opened, policy),
            *_excused(checks, policy),
            *told,
            *idle_allowances(opened, policy, today=today),
        ),
        figures=figures,
    )


def outcome_of(checks: Sequence[CheckResult]) -> Outcome:
    """Return what checks come to; those that are blind and excused do not count, and nothing to go by is blind."""
    return worst([check.outcome for check in checks if not check.excused])


def _checks(opened: LoadedRun, policy: Policy, today: date) -> Iterator[CheckResult]:
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
