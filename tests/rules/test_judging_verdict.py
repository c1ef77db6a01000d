"""From verdicts to one answer: status, what broke first, what followed from it, what to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
from builders import aggregates, finding_of, run_of

from ptt.diagnostics.model import (
    Answer,
    Broken,
    Diagnosis,
    Finding,
    Healthy,
    Link,
    NotJudged,
    RuleCrash,
    RuleVerdict,
    Severity,
    Signature,
    Status,
)
from ptt.diagnostics.rules import LIMITS
from ptt.diagnostics.verdict.causes import explains, link_causes
from ptt.diagnostics.verdict.headline import MAX_NEXT, verdict_of
from ptt.reports.text.consequences import first_failure

EXPLAINS = explains()


def finding(
    name: str,
    severity: Severity = Severity.HIGH,
    onset: int | None = None,
    link: Link = Link.POLICY_UPDATE,
    steps: tuple[str, ...] = (),
) -> Finding:
    return finding_of(name, severity=severity, onset_step=onset, link=link, next=steps)


def signature(status: Answer) -> Signature:
    return Signature(status=status, reason="why", pair=None, aggregates=aggregates())


def healthy(*notes: Finding) -> Healthy:
    return Healthy(id="any", link=Link.CRITIC, reason="fine", notes=notes)


def diagnosis(
    *found: Finding,
    verdicts: Sequence[RuleVerdict] = (),
    status: Answer = Answer.NOT_FOUND,
    crashes: Sequence[RuleCrash] = (),
) -> Diagnosis:
    return verdict_of(
        run=run_of(),
        signature=signature(status),
        verdicts=[Broken(findings=(one,)) for one in found] + list(verdicts),
        crashes=crashes,
        sources=(),
        tables={},
        explains=EXPLAINS,
    )


@pytest.mark.parametrize(
    ("severity", "status"),
    [
        (Severity.CRITICAL, Status.UNSTABLE),
        (Severity.HIGH, Status.SUSPECT),
        (Severity.MEDIUM, Status.SUSPECT),
        (Severity.LOW, Status.HEALTHY),
        (Severity.INFO, Status.HEALTHY),
    ],
)
def test_the_worst_finding_makes_the_status(severity: Severity, status: Status) -> None:
    assert diagnosis(finding("a", severity), finding("b", Severity.INFO)).verdict.status is status


def test_one_critical_finding_outranks_many_lesser_ones_wherever_it_stands() -> None:
    found = [
        finding("a", Severity.MEDIUM, 1),
        finding("b", Severity.CRITICAL, 9),
        finding("c", Severity.LOW, 2),
    ]
    assert diagnosis(*found).verdict.status is Status.UNSTABLE


def test_without_findings_the_signature_decides_between_healthy_and_cannot_say() -> None:
    assert diagnosis(verdicts=[healthy()]).verdict.status is Status.HEALTHY
    blind = diagnosis(verdicts=[healthy()], status=Answer.CANNOT_SAY).verdict
    assert blind.status is Status.CANNOT_SAY
    assert "why" in blind.headline
    assert blind.first_broken_link is None


def test_a_serious_finding_counts_although_the_signature_cannot_be_told() -> None:
    assert diagnosis(finding("a"), status=Answer.CANNOT_SAY).verdict.status is Status.SUSPECT


def test_what_cannot_be_said_comes_with_what_to_record() -> None:
    missing = [
        NotJudged(id=name, link=Link.CRITIC, reason="", enable=enable)
        for name, enable in (
            ("a", "log a"),
            ("b", ""),
            ("c", "log a"),
            ("d", "log d"),
            *zip("efghi", "efghi", strict=True),
        )
    ]
    found = diagnosis(verdicts=missing, status=Answer.CANNOT_SAY)
    assert found.verdict.next == ("log a", "log d", "e", "f", "g", "h")
    assert len(found.not_judged) == 9


def test_the_headline_is_the_worst_root_and_of_equals_the_earliest() -> None:
    found = diagnosis(
        finding("late", Severity.CRITICAL, 90, Link.NUMERICS),
        finding("later", Severity.CRITICAL, 95, Link.CRITIC),
        finding("early", Severity.MEDIUM, 10, Link.REWARD),
        finding("earlier but harmless", Severity.LOW, 1, Link.ENVIRONMENT),
    )
    assert found.verdict.first_broken_link is Link.NUMERICS
    assert found.verdict.headline.startswith("late happened")
    assert found.verdict.status is Status.UNSTABLE


def test_a_root_counts_as_bad_as_the_worst_that_follows_from_it() -> None:
    found = diagnosis(
        finding("stale-rollouts", Severity.MEDIUM, 10, Link.DATA_FRESHNESS),
        finding("tool-tail-growth", Severity.CRITICAL, 20),
        finding("x", Severity.HIGH, 5, Link.REWARD),
    )
    assert found.verdict.first_broken_link is Link.DATA_FRESHNESS


def test_slowness_that_nothing_follows_from_is_no_headline_over_a_fault_of_the_policy() -> None:
    found = diagnosis(
        finding("throughput-drop", Severity.HIGH, 5, Link.SYSTEMS), finding("x", Severity.MEDIUM, 50, Link.REWARD)
    )
    assert found.verdict.first_broken_link is Link.REWARD
    slow = finding("tool-latency", Severity.HIGH, 5, Link.ENVIRONMENT)
    found = diagnosis(
        slow, finding("throughput-drop", Severity.HIGH, 5, Link.SYSTEMS), finding("x", Severity.MEDIUM, 50)
    )
    assert found.verdict.first_broken_link is Link.POLICY_UPDATE
    alone = diagnosis(finding("throughput-drop", Severity.HIGH, 5, Link.SYSTEMS))
    assert alone.verdict.first_broken_link is Link.SYSTEMS


def test_of_findings_that_start_together_the_outer_link_broke_first() -> None:
    found = diagnosis(finding("a", onset=5, link=Link.NUMERICS), finding("b", onset=5, link=Link.ENVIRONMENT))
    assert found.verdict.first_broken_link is Link.ENVIRONMENT


def test_a_finding_without_a_date_comes_after_those_with_one() -> None:
    found = diagnosis(finding("undated", link=Link.REWARD), finding("dated", onset=50, link=Link.NUMERICS))
    assert found.verdict.first_broken_link is Link.NUMERICS


def test_logprobs_that_cannot_be_trusted_could_not_from_the_start() -> None:
    found = diagnosis(finding("scaled", link=Link.DATA_VALIDITY), finding("dated", onset=1, link=Link.NUMERICS))
    assert found.verdict.first_broken_link is Link.DATA_VALIDITY


def causes(found: Diagnosis) -> dict[str, str | None]:
    return {one.id: one.consequence_of for one in found.findings}


def test_a_later_failure_that_an_earlier_one_explains_is_told_under_it() -> None:
    found = diagnosis(finding("kl-over-target", onset=80), finding("tool-tail-growth", onset=20))
    assert causes(found) == {"tool-tail-growth": None, "kl-over-target": "tool-tail-growth"}


def test_an_earlier_failure_is_no_consequence_of_a_later_one() -> None:
    found = diagnosis(finding("kl-over-target", onset=20), finding("tool-tail-growth", onset=80))
    assert causes(found) == {"tool-tail-growth": None, "kl-over-target": None}


@pytest.mark.parametrize(("cause", "effect"), [(None, 5), (5, None), (None, None)])
def test_without_both_dates_nothing_is_called_a_consequence(cause: int | None, effect: int | None) -> None:
    found = diagnosis(finding("kl-over-target", onset=effect), finding("tool-tail-growth", onset=cause))
    assert set(causes(found).values()) == {None}


def test_of_two_causes_the_earlier_is_named() -> None:
    found = diagnosis(
        finding("tool-tail-growth", onset=10),
        finding("kl-over-target", onset=5),
        finding("gradient-spikes", onset=20),
    )
    assert causes(found)["gradient-spikes"] == "kl-over-target"


def test_a_chain_of_consequences_has_one_root_and_that_one_is_the_headline() -> None:
    found = diagnosis(
        finding("tool-use-vanished", Severity.HIGH, 60, Link.ENVIRONMENT),
        finding("kl-over-target", Severity.CRITICAL, 40),
        finding("tool-tail-growth", Severity.MEDIUM, 20),
    )
    assert causes(found) == {
        "tool-tail-growth": None,
        "kl-over-target": "tool-tail-growth",
        "tool-use-vanished": "kl-over-target",
    }
    assert found.verdict.headline.startswith("tool-tail-growth")
    assert found.verdict.first_broken_link is Link.POLICY_UPDATE


def test_all_failures_at_one_step_still_leave_a_root() -> None:
    found = diagnosis(*(finding(name, onset=5) for name in LIMITS))
    assert None in causes(found).values()
    assert found.verdict.first_broken_link is not None


def test_what_explains_what_speaks_of_rules_that_exist_and_says_how() -> None:
    of_the_signature = {"tail-growth-everywhere", "tails-high"}  # a finding of its own, told by the signature's rule
    explained = {name for names in EXPLAINS.values() for name in names}
    assert set(EXPLAINS) | explained <= set(LIMITS) | of_the_signature
    assert all(how for names in EXPLAINS.values() for how in names.values())
    assert all(name not in names for name, names in EXPLAINS.items())


def test_no_failure_stands_under_itself_however_many_there_are() -> None:
    found = causes(diagnosis(*(finding(name, onset=5) for name in LIMITS)))
    for name in found:
        chain = [name]
        while (above := found[chain[-1]]) is not None:
            assert above not in chain
            chain.append(above)


def test_two_failures_too_near_to_order_are_ordered_by_what_brings_about_what() -> None:
    late, soon = finding("entropy-collapse", onset=38), finding("reward-fell", onset=30, link=Link.REWARD)
    assert causes(diagnosis(late, soon)) == {"entropy-collapse": None, "reward-fell": "entropy-collapse"}
    later = finding("entropy-collapse", onset=45)
    assert causes(diagnosis(later, soon))["reward-fell"] is None


@pytest.mark.parametrize(("interval", "told_under"), [((48, 61), None), ((25, 61), "kl-over-target")])
def test_what_surely_began_later_explains_nothing(interval: tuple[int, int], told_under: str | None) -> None:
    kl = dataclasses.replace(finding("kl-over-target", onset=61), onset_interval=interval)
    found = diagnosis(kl, finding("tool-use-vanished", onset=29, link=Link.ENVIRONMENT))
    assert causes(found) == {"kl-over-target": None, "tool-use-vanished": told_under}
    assert found.verdict.headline.startswith(told_under or "tool-use-vanished")


@pytest.mark.parametrize(("left", "told_under"), [(95, "length-collapse"), (102, None)])
def test_a_cause_begins_where_it_set_out_for_its_limit(left: int, told_under: str | None) -> None:
    short = finding("length-collapse", onset=130, link=Link.EXPLORATION)
    short = dataclasses.replace(
        short, onset_interval=(128, 132), evidence={**short.evidence, "left_early_level_at": left}
    )
    fell = dataclasses.replace(finding("reward-fell", onset=100, link=Link.REWARD), onset_interval=(90, 101))
    linked = link_causes([short, fell], explains(), window=20)
    assert [one.consequence_of for one in linked] == [None, told_under]


def test_of_two_that_bring_each_other_about_the_first_seen_is_the_cause() -> None:
    found = diagnosis(finding("kl-over-target", onset=38), finding("update-too-large", onset=30))
    assert causes(found) == {"update-too-large": None, "kl-over-target": "update-too-large"}


def failures_and_tail(failures: tuple[int, int, int], tail: tuple[int, int, int]) -> list[str | None]:
    low, at, high = failures
    failed = dataclasses.replace(finding("tool-failures", onset=at, link=Link.ENVIRONMENT), onset_interval=(low, high))
    low, at, high = tail
    grew = dataclasses.replace(finding("tool-tail-growth", onset=at), onset_interval=(low, high))
    return [one.consequence_of for one in link_causes([failed, grew], explains(), window=20)]


@pytest.mark.parametrize(
    ("failures", "tail", "told"),
    [
        ((58, 63, 67), (76, 85, 109), [None, "tool-failures"]),
        ((61, 71, 75), (46, 63, 71), [None, "tool-failures"]),  # too near to tell: what does so by itself
        ((61, 71, 75), (20, 30, 40), [None, None]),  # long before the failures: not by them, nor they by it
    ],
)
def test_tails_after_failed_calls_follow_from_failures_unless_they_were_there_before(
    failures: tuple[int, int, int], tail: tuple[int, int, int], told: list[str | None]
) -> None:
    assert failures_and_tail(failures, tail) == told


def test_a_chain_through_a_failure_that_was_not_found_explains_nothing() -> None:
    tail, fell = finding("tool-tail-growth", onset=20), finding("reward-fell", onset=80, link=Link.REWARD)
    assert causes(diagnosis(tail, fell)) == {"tool-tail-growth": None, "reward-fell": None}
    far = finding("kl-over-target", onset=50)
    assert causes(diagnosis(tail, far, fell))["reward-fell"] == "kl-over-target"


def test_causes_are_ordered_by_onset_and_not_by_when_they_passed_a_limit() -> None:
    early = dataclasses.replace(finding("tool-tail-growth", onset=20), onset_interval=(18, 22), limit_passed_step=90)
    assert causes(diagnosis(early, finding("kl-over-target", onset=40)))["kl-over-target"] == "tool-tail-growth"
    failed = finding("tool-failures", onset=60, link=Link.ENVIRONMENT)
    failed = dataclasses.replace(failed, onset_interval=(58, 61))
    assert causes(diagnosis(early, failed))["tool-tail-growth"] is None


def test_what_held_at_the_first_logged_step_comes_first_and_is_told_without_a_date() -> None:
    unmasked = dataclasses.replace(finding("unmasked-tools", link=Link.DATA_VALIDITY), held_from_step=10)
    found = diagnosis(finding("kl-over-target", Severity.CRITICAL, 16), unmasked)
    assert causes(found) == {"kl-over-target": "unmasked-tools", "unmasked-tools": None}
    assert found.verdict.headline == "unmasked-tools happened, from the first logged step."


def test_the_headline_gives_the_onset_with_its_interval_and_not_where_a_limit_was_passed() -> None:
    tail = dataclasses.replace(finding("tool-tail-growth", onset=61), onset_interval=(60, 63), limit_passed_step=75)
    assert diagnosis(tail).verdict.headline == "tool-tail-growth happened, since step 61 (between 60 and 63)."


def test_the_report_speaks_of_the_failure_that_the_headline_names() -> None:
    found = diagnosis(finding("tool-tail-growth", Severity.MEDIUM, 11), finding("reward-fell", Severity.HIGH, 61))
    first = first_failure(found)
    assert first is not None
    assert found.verdict.headline.startswith(first.claim)


def test_a_note_explains_no_failure() -> None:
    found = diagnosis(finding("kl-over-target", Severity.LOW, 5), finding("gradient-spikes", Severity.MEDIUM, 9))
    assert causes(found)["gradient-spikes"] is None


def test_next_steps_are_those_of_the_roots_first_one_first_without_repeats_and_few() -> None:
    found = diagnosis(
        finding("kl-over-target", onset=30, steps=("of a consequence",)),
        finding("x", Severity.HIGH, 50, steps=("c", "a", "d", "e", "f", "g", "h")),
        finding("tool-tail-growth", Severity.CRITICAL, onset=20, steps=("a", "b")),
    )
    assert found.verdict.next == ("a", "b", "c", "d", "e", "f")
    assert len(found.verdict.next) == MAX_NEXT


def test_findings_stand_by_severity_then_onset_then_link_then_name() -> None:
    found = diagnosis(
        finding("e", Severity.HIGH),
        finding("d", Severity.HIGH, 7, Link.NUMERICS),
        finding("c", Severity.HIGH, 7, Link.REWARD),
        finding("b", Severity.HIGH, 7, Link.REWARD),
        finding("a", Severity.CRITICAL, 99),
    )
    assert [one.id for one in found.findings] == ["a", "b", "c", "d", "e"]


def test_notes_of_healthy_rules_are_findings_and_verdicts_keep_their_kind() -> None:
    note = finding("note", Severity.INFO)
    unknown = NotJudged(id="n", link=Link.CRITIC, reason="none")
    crash = RuleCrash(id="r", error="ValueError")
    found = diagnosis(verdicts=[healthy(note), unknown], crashes=[crash])
    assert found.findings == (note,)
    assert found.not_judged == (unknown,)
    assert found.crashes == (crash,)
    assert len(found.healthy) == 1
    assert found.verdict.status is Status.HEALTHY
