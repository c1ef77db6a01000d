"""Turn a diagnosis into one of four outcomes; a pure function, so that CI's decision has its own tests."""

from __future__ import annotations

from ptt.diagnostics.gate.values import Outcome
from ptt.diagnostics.model import Diagnosis, Severity


def decide(diagnosis: Diagnosis, *, fail_on: Severity | None) -> Outcome:
    """A crash of a rule is ours and outranks all; then a finding at or above `fail_on`; then nothing judged at all."""
    if diagnosis.crashes:
        return Outcome.CRASHED
    if fail_on is not None and any(finding.severity.at_least(fail_on) for finding in diagnosis.findings):
        return Outcome.FAILED
    if not diagnosis.healthy and not diagnosis.findings:
        return Outcome.BLIND
    return Outcome.PASSED
