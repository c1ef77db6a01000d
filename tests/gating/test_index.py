"""The page over all gated runs: worst first, every count right, harmless whatever a run is called, the same bytes."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptt.diagnostics.gate.results import CheckKind, CheckResult, GatedRun, GateReport, Outcome, Waiver, worst
from ptt.diagnostics.model import Link, Status
from ptt.reports.gate.index import MAX_CHECKS, MAX_OPEN_PASSED, index_html, view

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e\"'&]]>\x00\n{{ 1 }}"


def check(number: int = 0, outcome: Outcome = Outcome.FAILED, waiver: Waiver | None = None) -> CheckResult:
    return CheckResult(
        id=f"bound:{number}",
        kind=CheckKind.BOUND,
        outcome=outcome,
        title="stay below",
        claim=f"late p99 is {number}",
        data="p99",
        fails_if="above",
        waiver=waiver,
    )


def run(name: str, outcome: Outcome, *checks: CheckResult, report: str | None = None) -> GatedRun:
    if outcome in (Outcome.UNREADABLE, Outcome.CRASHED):
        return GatedRun(name=name, outcome=outcome, error="torn: cannot be read.")
    return GatedRun(
        name=name,
        outcome=outcome,
        checks=checks,
        status=Status.HEALTHY,
        headline="what was seen",
        first_broken_link=Link.POLICY_UPDATE if checks else None,
        steps=1234,
        model_tokens=56789,
        report=report,
    )


def gate(*runs: GatedRun) -> GateReport:
    return GateReport(outcome=worst([run.outcome for run in runs]), runs=runs, policy={"severity": "high"})


def test_a_verdict_is_not_said_twice_and_what_is_left_out_leads_to_the_report() -> None:
    many = [check(number) for number in range(MAX_CHECKS + 3)]
    unsaid = replace(run("a", Outcome.FAILED, *many, report="a/report.html"), status=Status.CANNOT_SAY)
    page = index_html(gate(replace(unsaid, headline="Cannot say: nothing is logged.")))
    assert page.count("Cannot say") == 1
    assert '<a href="a/report.html">and 3 more</a>' in page
    assert "<b>Cannot say.</b> what was seen" in index_html(gate(unsaid)).replace("What was", "what was")


def test_a_failed_bound_is_told_with_its_value_limit_window_and_unit() -> None:
    title = "median of kl/ref over the last 50 logged steps is at most 0.2 nats"
    broken = replace(check(), title=title, claim="it lies above its bound", observed=0.31, limit=0.2, unit="nats")
    (told,) = view(gate(run("a", Outcome.FAILED, broken)))["not_passed"][0]["checks"]
    assert told["claim"] == f"It lies above its bound: found 0.31\u202fnats; required: {title}."
    blind = replace(broken, outcome=Outcome.BLIND, observed=None, claim="no mean KL is logged")
    (told,) = view(gate(run("a", Outcome.BLIND, blind)))["not_passed"][0]["checks"]
    assert told["claim"] == "No mean KL is logged."


class Parts(HTMLParser):
    """Tags, addresses and texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in {"href", "src"}]


def test_what_did_not_pass_stands_first_worst_first_then_as_given() -> None:
    shown = view(
        gate(
            run("p1", Outcome.PASSED),
            run("b", Outcome.BLIND),
            run("f2", Outcome.FAILED),
            run("u", Outcome.UNREADABLE),
            run("f1", Outcome.FAILED),
            run("c", Outcome.CRASHED),
            run("p2", Outcome.PASSED),
        )
    )
    assert [row["name"] for row in shown["not_passed"]] == ["c", "f2", "f1", "u", "b"]
    assert [row["name"] for row in shown["passed"]] == ["p1", "p2"]
    assert [(count["outcome"], count["number"]) for count in shown["counts"]] == [
        ("crashed", "1"),
        ("failed", "2"),
        ("unreadable", "1"),
        ("blind", "1"),
        ("passed", "2"),
    ]
    assert shown["outcome"] == "crashed"


def test_a_run_shows_its_failed_checks_and_counts_the_rest() -> None:
    checks = [check(number) for number in range(MAX_CHECKS + 2)]
    waiver = Waiver(finding="x", owner="me", reason="known", expires="2030-01-01")
    (row,) = view(gate(run("f", Outcome.FAILED, *checks, check(90, Outcome.PASSED, waiver))))["not_passed"]
    assert [told["id"] for told in row["checks"]] == [f"bound:{number}" for number in range(MAX_CHECKS)]
    assert row["checks"][1]["claim"] == "Late p99 is 1."
    assert row["more"] == "and 2 more"
    assert row["waived"] == "1 finding allowed for now"
    assert (row["first_broken"], row["steps"], row["tokens"]) == ("Policy update", "1\u202f234", "56\u202f789")


def test_what_the_headline_says_is_not_said_again() -> None:
    seen = GatedRun(
        name="f", outcome=Outcome.FAILED, headline="late p99 is 0, since step 9", checks=(check(0), check(1))
    )
    (row,) = view(gate(seen))["not_passed"]
    assert [told["claim"] for told in row["checks"]] == ["", "Late p99 is 1."]


def test_passed_runs_are_folded_unless_there_is_little_else_to_see() -> None:
    few = [run(f"p{number}", Outcome.PASSED) for number in range(MAX_OPEN_PASSED)]
    assert view(gate(*few))["passed_open"]
    assert not view(gate(*few, run("f", Outcome.FAILED)))["passed_open"]
    assert not view(gate(*few, run("p", Outcome.PASSED)))["passed_open"]


@pytest.mark.parametrize("how_many", [1, 500])
def test_one_run_and_many_fit_a_page_of_their_own(how_many: int) -> None:
    report = gate(*(run(f"run {number}", list(Outcome)[number % 5]) for number in range(how_many)))
    page = index_html(report)
    assert page == index_html(report)
    assert len(page) < 2_000 * how_many + 30_000
    assert Parts(page).tags.count("tr") == how_many + (1 if how_many == 1 else 2)


def test_a_report_is_reached_whatever_its_folder_is_called() -> None:
    page = index_html(gate(run("a", Outcome.FAILED, report="50% of #1?/report.html")))
    assert "50%25%20of%20%231%3F/report.html" in Parts(page).addresses


@settings(deadline=None, max_examples=40)  # each makes a page
@given(st.text() | st.just(HOSTILE), st.text())
def test_no_text_steers_the_page(name: str, other: str) -> None:
    bad = GatedRun(name=name, outcome=Outcome.UNREADABLE, error=other, notes=(other,), report=f"{other}/report.html")
    page = index_html(GateReport(outcome=Outcome.UNREADABLE, runs=(bad,), policy={name: other}, notes=(other,)))
    parts, plain = Parts(page), Parts(index_html(gate(run("a", Outcome.UNREADABLE))))
    assert set(parts.tags) <= set(plain.tags) | {"ul", "li", "p", "a"}
    assert not [address for address in parts.addresses if re.match(r"(?i)\s*(javascript|https?):", address)]
    assert not {character for character in page if character < " "} - {"\n"}
    page.encode("utf-8")
