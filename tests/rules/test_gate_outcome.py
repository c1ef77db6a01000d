"""The gate: four outcomes, and which outranks which."""

from __future__ import annotations

import pytest
from builders import aggregates, finding_of, run_of

from ptt.diagnostics.gate.judge import decide
from ptt.diagnostics.gate.results import Outcome
from ptt.diagnostics.model import (
    Answer,
    Broken,
    Diagnosis,
    Healthy,
    Link,
    NotJudged,
    RuleCrash,
    RuleVerdict,
    Severity,
    Signature,
)
from ptt.diagnostics.verdict.headline import verdict_of


def broken(severity: Severity) -> Broken:
    return Broken(findings=(finding_of("a", severity=severity),))


HEALTHY = Healthy(id="h", link=Link.REWARD, reason="fine")
UNKNOWN = NotJudged(id="n", link=Link.REWARD, reason="none")


def diagnosis(*verdicts: RuleVerdict, crashed: bool = False) -> Diagnosis:
    return verdict_of(
        run=run_of(),
        signature=Signature(status=Answer.CANNOT_SAY, reason="", pair=None, aggregates=aggregates()),
        verdicts=verdicts,
        crashes=[RuleCrash(id="r", error="ValueError")] if crashed else [],
        sources=(),
        tables={},
    )


@pytest.mark.parametrize("fail_on", list(Severity))
@pytest.mark.parametrize("severity", list(Severity))
def test_a_finding_fails_the_gate_where_it_is_as_bad_as_the_policy_says_or_worse(
    severity: Severity, fail_on: Severity
) -> None:
    worst_first = ["critical", "high", "medium", "low", "info"]
    fails = worst_first.index(severity.value) <= worst_first.index(fail_on.value)
    wanted = Outcome.FAILED if fails else Outcome.PASSED
    assert decide(diagnosis(broken(severity), HEALTHY), fail_on=fail_on) is wanted


@pytest.mark.parametrize("severity", list(Severity))
def test_without_a_policy_no_finding_fails(severity: Severity) -> None:
    assert decide(diagnosis(broken(severity)), fail_on=None) is Outcome.PASSED


@pytest.mark.parametrize("fail_on", [None, *Severity])
def test_where_nothing_could_be_judged_the_gate_is_blind(fail_on: Severity | None) -> None:
    assert decide(diagnosis(UNKNOWN), fail_on=fail_on) is Outcome.BLIND
    assert decide(diagnosis(), fail_on=fail_on) is Outcome.BLIND
    assert decide(diagnosis(UNKNOWN, HEALTHY), fail_on=fail_on) is Outcome.PASSED


@pytest.mark.parametrize("verdicts", [(), (HEALTHY,), (UNKNOWN,), (broken(Severity.CRITICAL),)])
def test_a_crash_outranks_all(verdicts: tuple[RuleVerdict, ...]) -> None:
    assert decide(diagnosis(*verdicts, crashed=True), fail_on=Severity.LOW) is Outcome.CRASHED
