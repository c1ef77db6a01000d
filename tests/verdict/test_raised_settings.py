"""A note on a setting far outside of what is used: a finding only where its consequences set in with it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import finding_of

from ptt.diagnostics.model import Broken, Finding, Healthy, RuleVerdict, Severity
from ptt.diagnostics.verdict.causes import explains, link_causes, raise_settings

WINDOW = 20
RATE = finding_of(
    "learning-rate-high",
    severity=Severity.LOW,
    limit=0.001,
    onset_step=2,
    onset_interval=(1, 2),
    evidence={"far_outside_use": True},
)


def found(name: str, step: int, severity: Severity = Severity.HIGH) -> Broken:
    return Broken(findings=(finding_of(name, severity=severity, onset_step=step),))


def raised(*others: RuleVerdict, note: Finding = RATE) -> RuleVerdict:
    verdicts = [*others, Healthy(id=note.id, link=note.link, reason="no damage", notes=(note,))]
    return raise_settings(verdicts, explains(), window=WINDOW)[-1]


CUT, STUCK = found("truncated-share", 5), found("reward-stuck", 3)


def test_two_failures_that_set_in_with_it_make_it_their_cause() -> None:
    verdict = raised(CUT, STUCK)
    assert isinstance(verdict, Broken)
    assert verdict.findings[0].severity is Severity.MEDIUM
    assert verdict.findings[0].evidence["followed_by"] == "reward-stuck, truncated-share"
    linked = link_causes([*CUT.findings, *STUCK.findings, *verdict.findings], explains(), window=WINDOW)
    assert {one.id: one.consequence_of for one in linked} == {
        "truncated-share": RATE.id,
        "reward-stuck": RATE.id,
        RATE.id: None,
    }


@pytest.mark.parametrize(
    "others",
    [
        (),
        (CUT,),
        (CUT, found("reward-stuck", 60)),  # long after
        (CUT, found("reward-stuck", 3, Severity.MEDIUM)),
        (CUT, found("tool-latency", 3)),  # nothing that a rate brings about
    ],
)
def test_chance_later_failures_and_strangers_prove_nothing(others: tuple[RuleVerdict, ...]) -> None:
    assert isinstance(raised(*others), Healthy)


def test_what_was_there_before_the_rate_is_none_of_its_consequences() -> None:
    note = replace(RATE, onset_step=50, onset_interval=(49, 50))
    assert isinstance(raised(CUT, STUCK, note=note), Healthy)


def test_a_rate_that_is_a_little_high_stays_a_note() -> None:
    assert isinstance(raised(CUT, STUCK, note=replace(RATE, evidence={"far_outside_use": False})), Healthy)
