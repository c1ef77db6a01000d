"""The gate as SARIF 2.1.0, for code scanning: a result a failed check, with what it rests on.

What code scanning does with it decided the shape. Only results become alerts and only their first location is used;
a location needs a line, and logs have none that matters: every result points at line 1. Alerts that are missing from
an upload are closed as fixed, so what could not be judged is a result too (kind `open`), not a notification alone.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping

from ptt.diagnostics.gate.results import CheckKind, CheckResult, GatedRun, GateReport, Outcome
from ptt.reports.gate.check_text import (
    EXIT_CODES,
    MEANINGS,
    Case,
    Standing,
    allowance,
    clause,
    evidence_uri,
    findings_of,
    headline,
    measured,
    next_steps,
    one_line,
    severity_level,
)
from ptt.reports.text.names import LINKS, sentence
from ptt.reports.text.sanitize import encodable, safe, shortened
from ptt.version import __version__

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
MOST_RESULTS = 5000  # code scanning stores no more of a run and refuses a file with 25,000
LONGEST_NAME, LONGEST_DESCRIPTION = 255, 1024  # of a rule, as code scanning takes them
MOST_NOTIFICATIONS = 1000  # they are not shown as alerts; a file stays far below the 10 MB that an upload may have
FINGERPRINT = "primaryLocationLineHash"  # the only one that code scanning uses
_UNSEEN = (Standing.CRASHED, Standing.UNREADABLE, Standing.BLIND)
Found = tuple[str, GatedRun, Case]

Json = dict[str, object]


def render(report: GateReport, *, version: str = __version__) -> str:
    """Give the text of the SARIF log; the same report gives the same bytes."""
    found = [one for one in findings_of(report) if one[2].standing is not Standing.TOLERATED]
    shown = found[:MOST_RESULTS]
    rules = {rule_id(case): case for _, _, case in reversed(shown)}  # the worst case of each tells its level
    places = {name: place for place, name in enumerate(sorted(rules))}
    content: Json = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "ptt",
                        "fullName": "ptt gate",
                        "version": version,
                        "semanticVersion": version,
                        "rules": [_rule(name, rules[name]) for name in places],
                    }
                },
                "automationDetails": {"id": "ptt-gate/"},
                "columnKind": "unicodeCodePoints",
                "originalUriBaseIds": {"SRCROOT": {"description": {"text": "The folder that ptt gate was run in."}}},
                "invocations": [_invocation(report, found)],
                "results": [_result(one, places) for one in shown],
            }
        ],
    }
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def rule_id(case: Case) -> str:
    """Give the rule of a result: the finding where one is behind it, so that its page is found; else the check."""
    if case.check is not None and case.check.rule and case.check.kind in {CheckKind.SEVERITY, CheckKind.WAIVER}:
        return shortened(safe(case.check.rule), LONGEST_NAME)
    return shortened(case.id, LONGEST_NAME)


def _rule(name: str, case: Case) -> Json:
    check = case.check
    text = sentence(case.title)
    full = f"{text} What would fail it: {clause(check.fails_if)}" if check is not None and check.fails_if else text
    shows = (
        f"`ptt rules {safe(check.rule)}` prints what it looks for and why; so does docs/rules.md."
        if (check is not None and check.rule)
        else "`ptt gate --explain` prints what it was judged on and what would have failed it."
    )
    tags = ["reinforcement-learning"]
    if check is not None and check.link is not None:
        tags.append(LINKS[check.link].lower().replace(" ", "-"))
    friendly = _pascal(name)
    return {
        "id": name,
        **({"name": friendly} if friendly.lower() != name.lower() else {}),
        "shortDescription": {"text": shortened(text, LONGEST_DESCRIPTION)},
        "fullDescription": {"text": shortened(full, LONGEST_DESCRIPTION)},
        "help": {"text": shows},
        "defaultConfiguration": {"level": severity_level(check.severity if check is not None else None)},
        "properties": {"tags": tags},
    }


def _pascal(name: str) -> str:
    """Give the friendly name of a rule in letters and digits; the standard wants none that is the id itself."""
    return "".join(word[:1].upper() + word[1:] for word in re.findall(r"[^\W_]+", name)) or "Check"


def _result(found: Found, places: Mapping[str, int]) -> Json:
    name, run, case = found
    check = case.check
    rule = rule_id(case)
    result: Json = {
        "ruleId": rule,
        "ruleIndex": places[rule],
        "kind": "open" if case.standing in _UNSEEN else "fail",
        "level": _level(case),
        "message": {"text": _message(f"{name}: {one_line(case)}")},
        "locations": [_location(name, run, check)],
        "partialFingerprints": {FINGERPRINT: _fingerprint(name, case)},
        "properties": _facts(case),
    }
    if case.standing is Standing.WAIVED:
        told = _message(allowance(case))
        result["suppressions"] = [{"kind": "external", "status": "accepted", "justification": told}]
    return result


def _level(case: Case) -> str:
    """Give the level; SARIF wants `none` of what is no failure, and code scanning shows suppressed results as well."""
    if case.standing in _UNSEEN:
        return "none"
    if case.standing is Standing.WAIVED:
        return "note"
    return severity_level(case.check.severity if case.check is not None else None)


def _location(name: str, run: GatedRun, check: CheckResult | None) -> Json:
    file = check.file if check is not None else None
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": evidence_uri(run, file), "uriBaseId": "SRCROOT"},
            "region": {"startLine": 1, "startColumn": 1, "endLine": 1, "endColumn": 2},
        },
        "logicalLocations": [{"name": name, "fullyQualifiedName": f"{name}/{safe(file)}" if file else name}],
    }


def _fingerprint(name: str, case: Case) -> str:
    """Hash what stays the same from one upload to the next: the run's name and the check, not what was measured."""
    rule = case.check.rule if case.check is not None else None
    text = "\0".join([name, case.id, rule or ""])
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16] + ":1"


def _facts(case: Case) -> Json:
    check = case.check
    facts: Json = {"standing": case.standing.value}
    if check is None:
        return facts
    numbers = {"observed": check.observed, "limit": check.limit, "low": check.low, "high": check.high}
    facts |= {key: float(f"{v:.6g}") for key, v in numbers.items() if v is not None and math.isfinite(v)}
    words = {"unit": check.unit, "measured": measured(check), "data": check.data, "failsIf": check.fails_if}
    facts |= {key: safe(value) for key, value in words.items() if value}
    if check.step is not None:
        facts["step"] = check.step
    if check.next:
        facts["next"] = list(next_steps(case))
    return facts


def _invocation(report: GateReport, found: list[Found]) -> Json:
    """Tell how the command ended, and what could not be looked at: that is the tool's own state, not a result's."""
    looked = [one for one in found if one[2].standing in _UNSEEN]
    told = [_notification(name, run, case) for name, run, case in looked[:MOST_NOTIFICATIONS]]
    left = len(found) - MOST_RESULTS
    if left > 0:
        text = f"The {left} least severe results were left out: code scanning keeps {MOST_RESULTS}. gate.json has all."
        told.append({"level": "warning", "message": {"text": text}})
    if not report.runs:
        told.append({"level": "error", "message": {"text": headline(report)}})
    outcomes = {run.outcome for run in report.runs} | {report.outcome}
    return {
        "executionSuccessful": not outcomes & {Outcome.CRASHED, Outcome.UNREADABLE},
        "exitCode": EXIT_CODES[report.outcome],
        "exitCodeDescription": f"{MEANINGS[report.outcome]}. {headline(report)}",
        "toolExecutionNotifications": told,
    }


def _notification(name: str, run: GatedRun, case: Case) -> Json:
    level = "warning" if case.standing is Standing.BLIND else "error"
    return {
        "level": level,
        "message": {"text": _message(f"{name}: {one_line(case)}")},
        "locations": [_location(name, run, case.check)],
    }


def _message(text: str) -> str:
    """Keep SARIF's own syntax out of foreign text: placeholders in braces, and links."""
    return encodable(text).replace("{", "{{").replace("}", "}}").replace("](", "] (")
