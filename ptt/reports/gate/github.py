"""What GitHub Actions shows of a gate: annotations from lines on stdout, and a summary of the job."""

from __future__ import annotations

import hashlib

from ptt.diagnostics.gate.results import GateReport, Outcome
from ptt.reports.gate import checks, gate_json
from ptt.reports.gate.markdown import summary
from ptt.reports.text.numbers import counted
from ptt.reports.text.sanitize import encodable, safe

MAX_PER_LEVEL = 10  # annotations that GitHub shows of one level and step; the rest are dropped without a word
SUMMARY_BYTES = 1024 * 1024  # of a step's summary; a longer one is not shown at all


def github_annotations(report: GateReport, *, rest_in: str = "the job summary") -> str:
    """Return the workflow commands, one a line: the outcome first, then the worst of each level as far as GitHub goes.

    `rest_in` names where the checks stand for which GitHub has no more room.
    """
    cases = checks.not_passed(report)
    command = "notice" if report.outcome is Outcome.PASSED else "error"
    room = {level: MAX_PER_LEVEL - (level == command) for level in ("error", "warning", "notice")}
    lines = []
    for case in cases:
        status, path = checks.STATUS_TEXT[case.status], checks.evidence_path(case)
        if room[status.github] == 0:
            continue
        room[status.github] -= 1
        properties = {"file": safe(path)} if path is not None else {}
        properties |= {"title": f"{status.word}: {case.run_name}: {case.id}"}
        message = f"{checks.one_line(case)} {checks.unclaimed_allowance(case)}".rstrip()
        lines.append(_command(status.github, properties, message))
    rest = len(cases) - len(lines)
    more = f" {counted(rest, 'check')} more in {safe(rest_in)}." if rest else ""
    outcome = _command(command, {"title": checks.title(report)}, checks.headline(report) + more)
    return "\n".join([outcome, *lines]) + "\n"


def job_summary(report: GateReport) -> str:
    """Return the Markdown for $GITHUB_STEP_SUMMARY: all runs and checks as far as a summary may be long."""
    return summary(report, limit=SUMMARY_BYTES, every_run=True)


def github_guard(report: GateReport) -> tuple[str, str]:
    """Return a line before and one after other output: between them the runner takes no line for a command.

    The token must be one that nobody can write into a log beforehand: it is made of all that the report holds.
    """
    token = "ptt-" + hashlib.sha256(gate_json.render(report).encode("utf-8")).hexdigest()
    return f"::stop-commands::{token}", f"::{token}::"


def _command(command: str, properties: dict[str, str], message: str) -> str:
    text = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{command} {text}::{_data(message)}"


def _data(text: str) -> str:
    return encodable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
