"""The gate as JUnit XML: a suite a run, a case a check, so that test reporters of CI systems can show it.

What reporters do with it decided the shape. GitLab shows the text inside <failure>, <error> and <skipped>, not their
message, takes the case's class for the suite's name, and drops a case whose class and name came before; Jenkins and
GitHub's reporters show messages too. All count <error> as not passed and <skipped> as harmless: what could not be
judged is therefore an error wherever it counts, and skipped only where the policy lets it pass.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape

from ptt.diagnostics.gate.results import CheckResult, GatedRun, GateReport
from ptt.reports.gate.check_text import (
    OUTCOMES,
    STANDINGS,
    Case,
    Standing,
    allowance,
    cases_of,
    clause,
    evidence_path,
    headline,
    measured,
    named,
    next_steps,
    one_line,
    since,
)
from ptt.reports.text.names import sentence
from ptt.reports.text.sanitize import safe

TAGS = {
    Standing.CRASHED: "error",
    Standing.FAILED: "failure",
    Standing.UNREADABLE: "error",
    Standing.BLIND: "error",
    Standing.TOLERATED: "skipped",
    Standing.WAIVED: "skipped",
}
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, section 2.2
_INDENT = " "


def render(report: GateReport) -> str:
    """Give the text of junit.xml; the same report gives the same bytes."""
    suites = [(name, run, cases_of(run)) for name, run in named(report).items()]
    if not suites:
        suites = [("ptt gate", GatedRun(name="ptt gate", outcome=report.outcome), (_nothing(report),))]
    everything = [case for _, _, cases in suites for case in cases]
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    lines += _element("testsuites", {"name": "ptt gate", **_counts(everything)}, [_suite(*suite) for suite in suites])
    return "\n".join(lines) + "\n"


def _nothing(report: GateReport) -> Case:
    return Case(id="run", title="runs to look at", claim=headline(report), standing=Standing(report.outcome.value))


def _counts(cases: Sequence[Case]) -> dict[str, str]:
    tags = [TAGS.get(case.standing) for case in cases]
    return {
        "tests": str(len(cases)),
        "failures": str(tags.count("failure")),
        "errors": str(tags.count("error")),
        "skipped": str(tags.count("skipped")),
        "time": "0",  # readers expect one; a gate over archives has none worth telling
    }


def _suite(name: str, run: GatedRun, cases: Sequence[Case]) -> list[str]:
    known = {
        "outcome": OUTCOMES[run.outcome],
        "verdict": run.status.value if run.status is not None else None,
        "headline": run.headline or None,
        "first_broken_link": run.first_broken_link,
        "framework": run.framework,
        "steps": str(run.steps),
        "model_tokens": str(run.model_tokens),
        "report": run.report,
    }
    inner = [_properties({key: value for key, value in known.items() if value is not None})]
    return _element("testsuite", {"name": name, **_counts(cases)}, inner + [_case(name, run, case) for case in cases])


def _case(suite: str, run: GatedRun, case: Case) -> list[str]:
    attributes = {"classname": suite, "name": f"{case.id}: {safe(case.title)}", "time": "0"}
    path = evidence_path(run, case.check.file if case.check is not None else None)
    if path is not None:
        attributes["file"] = path
    inner = []
    if case.check is not None:
        inner.append(_properties(_facts(case.check)))
    tag = TAGS.get(case.standing)
    if tag is not None:
        told = {"message": _message(case)} if tag == "skipped" else {"type": case.standing, "message": _message(case)}
        inner.append(_text(tag, told, _body(case)))
    if case.check is not None:
        told_of = [("Judged on", case.check.data), ("Would have failed it", case.check.fails_if)]
        inner.append(_text("system-out", {}, "\n".join(f"{head}: {clause(text)}" for head, text in told_of if text)))
    return _element("testcase", attributes, inner)


def _message(case: Case) -> str:
    waived = allowance(case) if case.standing is Standing.WAIVED else ""
    return waived or f"{STANDINGS[case.standing]}: {clause(case.claim)}"


def _body(case: Case) -> str:
    lines = [f"{STANDINGS[case.standing].capitalize()}: {one_line(case)}"]
    told = allowance(case)
    lines += [sentence(told)] if told else []
    lines += [f"Next: {step}" for step in next_steps(case)]
    return "\n".join(lines)


def _facts(check: CheckResult) -> dict[str, str]:
    facts = {"kind": check.kind.value, "severity": check.severity.value if check.severity is not None else ""}
    numbers = {"observed": check.observed, "limit": check.limit, "interval_low": check.low, "interval_high": check.high}
    facts |= {name: f"{value:.6g}" for name, value in numbers.items() if value is not None}
    facts |= {"unit": check.unit, "link": check.link or "", "rule": check.rule or "", "measured": measured(check)}
    facts |= {"since": since(check)}
    return {name: value for name, value in facts.items() if value}


def _properties(facts: Mapping[str, str]) -> list[str]:
    return _element("properties", {}, [_element("property", {"name": key, "value": facts[key]}) for key in facts])


def _element(tag: str, attributes: Mapping[str, str], inner: Sequence[Sequence[str]] = ()) -> list[str]:
    start = tag + "".join(f' {name}="{_escaped(safe(value))}"' for name, value in attributes.items())
    if not inner:
        return [f"<{start}/>"]
    return [f"<{start}>", *(_INDENT + line for part in inner for line in part), f"</{tag}>"]


def _text(tag: str, attributes: Mapping[str, str], text: str) -> list[str]:
    (start,) = _element(tag, attributes)
    return [f"{start[:-2]}>{_escaped(text)}</{tag}>"] if text else [start]


def _escaped(text: str) -> str:
    return escape(_ILLEGAL.sub(lambda found: f"\\u{ord(found.group()):04x}", text))
