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
from collections.abc import Mapping, Sequence

from ptt.diagnostics.gate.results import CheckKind, GateReport, Outcome
from ptt.reports.gate import checks
from ptt.reports.gate.checks import Case, CheckStatus
from ptt.reports.text.names import LINKS, sentence
from ptt.reports.text.sanitize import encodable, safe, shortened
from ptt.version import __version__

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
MAX_RESULTS = 5000  # code scanning stores no more of a run and refuses a file with 25,000
MAX_NAME, MAX_DESCRIPTION = 255, 1024  # letters of a rule, as code scanning takes them
MAX_NOTIFICATIONS = 1000  # they are not shown as alerts; a file stays far below the 10 MB that an upload may have
FINGERPRINT = "primaryLocationLineHash"  # the only one that code scanning uses
NOT_JUDGED = (CheckStatus.CRASHED, CheckStatus.UNREADABLE, CheckStatus.BLIND)

Json = dict[str, object]


def render(report: GateReport, *, version: str = __version__) -> str:
    """Return the text of the SARIF log; the same report gives the same bytes."""
    cases = [case for case in checks.not_passed(report) if case.status is not CheckStatus.TOLERATED]
    shown = cases[:MAX_RESULTS]
    rules = {rule_id(case): case for case in reversed(shown)}  # the worst case of each gives its level
    indices = {name: index for index, name in enumerate(sorted(rules))}
    driver = {
        "name": "ptt",
        "fullName": "ptt gate",
        "version": version,
        "semanticVersion": version,
        "rules": [_rule(name, rules[name]) for name in indices],
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": "ptt-gate/"},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"SRCROOT": {"description": {"text": "The folder in which ptt gate ran."}}},
        "invocations": [_invocation(report, cases)],
        "results": [_result(case, indices) for case in shown],
    }
    content = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


OF_A_RULE = frozenset({CheckKind.SEVERITY, CheckKind.ADVISORY, CheckKind.WAIVER})


def rule_id(case: Case) -> str:
    """Return the rule of a result: the finding where one is behind it, so that its page is found; else the check."""
    if case.check is not None and case.check.rule and case.check.kind in OF_A_RULE:
        return shortened(safe(case.check.rule), MAX_NAME)
    return shortened(case.id, MAX_NAME)


def _rule(name: str, case: Case) -> Json:
    check = case.check
    text = sentence(case.title)
    fails = checks.clause(check.fails_if) if check is not None and check.fails_if else ""
    full = f"{text} Fails on: {fails}" if fails else text
    help_text = (
        f"`ptt advisories {safe(check.rule.partition(':')[2])}` and docs/advisories.md say what it does and why."
        if check is not None and check.rule and check.kind is CheckKind.ADVISORY
        else f"`ptt rules {safe(check.rule)}` and docs/rules.md say what this rule looks for and why."
        if check is not None and check.rule
        else "`ptt gate --explain` prints the data behind this check and what would fail it."
    )
    tags = ["reinforcement-learning"]
    if check is not None and check.link is not None:
        tags.append(LINKS[check.link].lower().replace(" ", "-"))
    friendly = _pascal(name)
    return {
        "id": name,
        **({"name": friendly} if friendly.lower() != name.lower() else {}),
        "shortDescription": {"text": shortened(text, MAX_DESCRIPTION)},
        "fullDescription": {"text": shortened(full, MAX_DESCRIPTION)},
        "help": {"text": help_text},
        "defaultConfiguration": {"level": checks.severity_level(case.severity)},
        "properties": {"tags": tags},
    }


def _pascal(name: str) -> str:
    """Return the friendly name of a rule in letters and digits; by the standard it differs from the id."""
    return "".join(word[:1].upper() + word[1:] for word in re.findall(r"[^\W_]+", name)) or "Check"


def _result(case: Case, indices: Mapping[str, int]) -> Json:
    rule = rule_id(case)
    result: Json = {
        "ruleId": rule,
        "ruleIndex": indices[rule],
        "kind": "open" if case.status in NOT_JUDGED else "fail",
        "level": _level(case),
        **_message_and_location(case),
        "partialFingerprints": {FINGERPRINT: _fingerprint(case)},
        "properties": _facts(case),
    }
    if case.status is CheckStatus.WAIVED:
        reason = _escape(checks.allowance(case))
        result["suppressions"] = [{"kind": "external", "status": "accepted", "justification": reason}]
    return result


def _level(case: Case) -> str:
    """Return the level; SARIF wants `none` of what is no failure; code scanning shows suppressed results as well."""
    if case.status in NOT_JUDGED:
        return "none"
    return "note" if case.status is CheckStatus.WAIVED else checks.severity_level(case.severity)


def _message_and_location(case: Case) -> Json:
    name, file = case.run_name, case.file
    location = {
        "physicalLocation": {
            "artifactLocation": {"uri": checks.evidence_uri(case), "uriBaseId": "SRCROOT"},
            "region": {"startLine": 1, "startColumn": 1, "endLine": 1, "endColumn": 2},
        },
        "logicalLocations": [{"name": name, "fullyQualifiedName": f"{name}/{safe(file)}" if file else name}],
    }
    return {"message": {"text": _escape(f"{name}: {checks.one_line(case)}")}, "locations": [location]}


def _fingerprint(case: Case) -> str:
    """Hash what stays the same from one upload to the next: the run's name and the check, not what was measured."""
    rule = case.check.rule if case.check is not None else None
    text = "\0".join([case.run_name, case.id, rule or ""])
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16] + ":1"


def _facts(case: Case) -> Json:
    check = case.check
    facts: Json = {"standing": case.status.value}
    if check is None:
        return facts
    numbers = {"observed": check.observed, "limit": check.limit, "low": check.low, "high": check.high}
    facts |= {key: float(f"{v:.6g}") for key, v in numbers.items() if v is not None and math.isfinite(v)}
    words = {"unit": check.unit, "measured": checks.measured(check), "data": check.data, "failsIf": check.fails_if}
    facts |= {key: safe(value) for key, value in words.items() if value}
    facts |= {"step": check.step} if check.step is not None else {}
    return facts | ({"next": list(checks.next_steps(case))} if check.next else {})


def _invocation(report: GateReport, cases: Sequence[Case]) -> Json:
    """Return how the command ended, and what could not be looked at: the tool's own state, not a result's."""
    notifications = [
        {"level": "warning" if case.status is CheckStatus.BLIND else "error", **_message_and_location(case)}
        for case in cases
        if case.status in NOT_JUDGED
    ][:MAX_NOTIFICATIONS]
    left = len(cases) - MAX_RESULTS
    if left > 0:
        text = f"The {left} least severe results were left out: code scanning keeps {MAX_RESULTS}. gate.json has all."
        notifications.append({"level": "warning", "message": {"text": text}})
    if not report.runs:
        notifications.append({"level": "error", "message": {"text": checks.headline(report)}})
    outcomes = {run.outcome for run in report.runs} | {report.outcome}
    outcome = checks.OUTCOME_TEXT[report.outcome]
    return {
        "executionSuccessful": not outcomes & {Outcome.CRASHED, Outcome.UNREADABLE},
        "exitCode": outcome.exit_code,
        "exitCodeDescription": f"{outcome.meaning}. {checks.headline(report)}",
        "toolExecutionNotifications": notifications,
    }


def _escape(text: str) -> str:
    """Keep SARIF's own syntax out of foreign text: placeholders in braces, and links."""
    return encodable(text).replace("{", "{{").replace("}", "}}").replace("](", "] (")
