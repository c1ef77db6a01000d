"""No finding at or above the severity that the policy names, but for those that someone answers for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date

from ptt.diagnostics.gate.baseline.measure import anything_judged
from ptt.diagnostics.gate.policy import ADVISORY, Allowance, Policy
from ptt.diagnostics.gate.results import CheckKind, CheckResult, Outcome, Waiver
from ptt.diagnostics.model import AdvisoryReport, Diagnosis, Finding, Link, Severity, Strength, since_words
from ptt.diagnostics.store.diagnosis import LoadedRun
from ptt.diagnostics.wording import counted

ID = "severity"


def check_findings(opened: LoadedRun, policy: Policy, *, today: date) -> Iterator[CheckResult]:
    """Yield one result for each finding that the limit reaches, and one for the absence of others where none failed."""
    limit = policy.severity
    if limit is None:
        return
    reached = [finding for finding in opened.diagnosis.findings if finding.severity.at_least(limit)]
    names = _names(reached)
    results = [_check_of(finding, name, limit, policy, today) for finding, name in zip(reached, names, strict=True)]
    yield from results
    if all(result.outcome is Outcome.PASSED for result in results):
        yield _no_other(opened.diagnosis, limit, allowed=len(results))


def check_advisories(opened: LoadedRun, policy: Policy, *, today: date) -> Iterator[CheckResult]:
    """Yield one result for each advisory that the policy lets fail a run, and one for the absence of others."""
    demands, report = policy.advisories, opened.diagnosis.advisories
    if demands is None:
        return
    results = [
        replace(
            _check_of(finding, finding.id, finding.severity, policy, today),
            kind=CheckKind.ADVISORY,
            title=f"{finding.id.removeprefix(ADVISORY)} does not apply",
            fails_if=f"{finding.id.removeprefix(ADVISORY)} applies to the run",
            data="; ".join(f"{key} = {value}" for key, value in finding.evidence.items()) or "the run's setup",
            rule=finding.id,
            link=None,
        )
        for finding in _advised(opened.diagnosis, policy)
    ]
    yield from results
    if all(result.outcome is Outcome.PASSED for result in results):
        yield _no_other_advisory(report, allowed=len(results))


def _advised(diagnosis: Diagnosis, policy: Policy) -> list[Finding]:
    """Return as findings the advisories that a policy lets fail a run."""
    demands, report = policy.advisories, diagnosis.advisories
    if demands is None or report is None:
        return []
    matches = [*report.of(Strength.CAUSE), *(report.of(Strength.NOTE) if demands.notes else ())]
    return [
        Finding(
            id=f"{ADVISORY}{match.id}",
            severity=match.severity,
            link=Link.POLICY_UPDATE,
            claim=match.summary,
            observed=None,
            limit=None,
            unit="",
            evidence={**match.packages, **match.settings},
            next=tuple(filter(None, (match.change, match.upgrade, match.workaround))),
        )
        for match in matches
        if demands.reaches(match.id, match.severity)
    ]


def _no_other_advisory(report: AdvisoryReport | None, *, allowed: int) -> CheckResult:
    known = report is not None and bool(report.framework or report.packages or report.settings)
    other = "other " if allowed else ""
    held = "" if report is None else f"{counted(report.count, 'known bug(s) and setting(s)')} of {report.version}"
    return CheckResult(
        id="advisory",
        kind=CheckKind.ADVISORY,
        outcome=Outcome.PASSED if known else Outcome.BLIND,
        title=f"no {other}advisory applies",
        claim="none applies" if known else "the run records neither framework nor versions nor settings",
        data=held or "nothing: the run was judged by a version that knew no advisories",
        fails_if=f"any {other}advisory that applies and that the policy names",
        next=() if known else ("keep the trainer's config and `pip freeze` beside the logs",),
    )


def expired_notes(policy: Policy, *, today: date) -> Iterator[str]:
    """Yield a note on each allowance of the policy that no longer holds, whether or not a run shows its finding."""
    for allowance in policy.allow:
        if today > allowance.expires:
            yield (
                f"the allowance of {allowance.name} ({allowance.owner}: {allowance.reason}) expired after "
                f"{allowance.expires.isoformat()}; remove it, or renew it with a new reason and day"
            )


def idle_allowances(opened: LoadedRun, policy: Policy, *, today: date) -> Iterator[str]:
    """Yield notes on the allowances that nothing in this run needs."""
    for allowance in policy.allow:
        subject = f"the allowance of {allowance.name} ({allowance.owner}, until {allowance.expires.isoformat()})"
        shown = [*opened.diagnosis.findings, *_advised(opened.diagnosis, policy)]
        covered = [finding for finding in shown if _covers(allowance, finding)]
        if any(_allowance_of(finding, policy, today) is allowance and _reaches(finding, policy) for finding in covered):
            continue
        if covered and not any(_reaches(finding, policy) for finding in covered):
            yield f"{subject} is not needed here: the finding is {covered[0].severity.value}, below the limit"
        elif not covered:
            yield f"{subject} is not needed here: this run does not show it"


def _reaches(finding: Finding, policy: Policy) -> bool:
    if finding.id.startswith(ADVISORY):
        return True  # only those that fail a run are made findings
    return policy.severity is not None and finding.severity.at_least(policy.severity)


def _names(findings: list[Finding]) -> list[str]:
    """Return an id each: the finding's, with its slice where that tells two apart, and a number where nothing does."""
    ids = [finding.id for finding in findings]
    names = [
        f"{entry.id}/{entry.slice}" if entry.slice is not None and ids.count(entry.id) > 1 else entry.id
        for entry in findings
    ]
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(f"{ID}:{name}" + (f"#{seen[name]}" if seen[name] > 1 else ""))
    return unique


def _covers(allowance: Allowance, finding: Finding) -> bool:
    return allowance.finding == finding.id and allowance.slice in (None, finding.slice)


def _allowance_of(finding: Finding, policy: Policy, today: date) -> Allowance | None:
    """Return the allowance of a finding: one in force before one that expired, and the one that lasts longest."""
    covering = [allowance for allowance in policy.allow if _covers(allowance, finding)]
    return max(
        covering, key=lambda allowance: (today <= allowance.expires, allowance.expires, allowance.name), default=None
    )


def _check_of(finding: Finding, name: str, limit: Severity, policy: Policy, today: date) -> CheckResult:
    allowance = _allowance_of(finding, policy, today)
    allowed = allowance is not None and today <= allowance.expires
    claim = "; ".join(filter(None, (finding.claim, finding.likely_cause.removesuffix("."))))
    steps, waiver = (*finding.confirm, *finding.next), None
    if allowance is not None:
        waiver = Waiver(
            finding=allowance.finding,
            owner=allowance.owner,
            reason=allowance.reason,
            expires=allowance.expires.isoformat(),
            slice=allowance.slice,
        )
        day = allowance.expires.isoformat()
        words = f"allowed until {day} by {allowance.owner}: {allowance.reason}"
        gone = f"its allowance ({allowance.owner}: {allowance.reason}) expired after {day}"
        claim = f"{claim}; {words if allowed else gone}"
        if not allowed:
            steps = (f"fix it, or have {allowance.owner} renew the allowance with a new reason and day", *steps)
    tail = f" that is not allowed (this one is until {allowance.expires.isoformat()})" if allowed and allowance else ""
    return CheckResult(
        id=name,
        kind=CheckKind.SEVERITY,
        outcome=Outcome.PASSED if allowed else Outcome.FAILED,
        title=f"no {finding.id} of severity {limit.value} or above",
        claim=claim,
        data=_data(finding),
        fails_if=f"{finding.id} of severity {limit.value} or above{tail}",
        observed=finding.observed,
        limit=finding.limit,
        unit=finding.unit,
        severity=finding.severity,
        link=finding.link,
        rule=finding.id,
        metric=_logged_as(finding),
        step=finding.onset_step,
        since=since_words(finding),
        file=_file(finding),
        waiver=waiver,
        next=steps,
    )


def _data(finding: Finding) -> str:
    where = f" in the slice {finding.slice}" if finding.slice else ""
    logged = f", logged as {name}" if (name := _logged_as(finding)) else ""
    since = f", {words}" if (words := since_words(finding)) else ""
    return f"a finding of severity {finding.severity.value}{where}{logged}{since}"


def _logged_as(finding: Finding) -> str:
    logged = finding.evidence.get("logged_as")
    return logged if isinstance(logged, str) else ""


def _file(finding: Finding) -> str | None:
    """Return the file to look into: what the finding names, else the tokens or samples of its step."""
    named = (finding.evidence.get(key) for key in ("file", "source", "path", "tokens_file", "samples_file"))
    return next((path for path in named if isinstance(path, str) and path), None)


def _no_other(diagnosis: Diagnosis, limit: Severity, *, allowed: int) -> CheckResult:
    judged = {item.id for item in diagnosis.healthy} | {item.id for item in diagnosis.findings}
    open_ = sum(item.applies for item in diagnosis.not_judged)
    seen = anything_judged(diagnosis)
    other = "other " if allowed else ""
    lesser = len([item for item in diagnosis.findings if not item.severity.at_least(limit)])
    below = f"; {counted(lesser, 'finding(s)')} below that severity" if lesser else ""
    return CheckResult(
        id=ID,
        kind=CheckKind.SEVERITY,
        outcome=Outcome.PASSED if seen else Outcome.BLIND,
        title=f"no {other}finding of severity {limit.value} or above",
        claim=f"none was found{below}" if seen else "no rule could judge anything about training in this run",
        data=f"{counted(len(judged), 'rule(s)')} gave an answer, {open_} had too little data",
        fails_if=f"any {other}finding of severity {limit.value} or above",
        next=() if seen else ("`ptt sources RUN` shows what was read, and what to record",),
    )
