"""Rules that the policy wants judged: healthy or broken, but not left open."""

from __future__ import annotations

from collections.abc import Iterator

from ptt.diagnostics.gate.known import rule_of
from ptt.diagnostics.gate.policy import Policy
from ptt.diagnostics.gate.values import CheckKind, CheckResult, Outcome
from ptt.diagnostics.kept.opened import Opened


def check_required(opened: Opened, policy: Policy) -> Iterator[CheckResult]:
    """Give one result a rule."""
    for rule in policy.require:
        yield _required(opened, rule)


def _required(opened: Opened, rule: str) -> CheckResult:
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
