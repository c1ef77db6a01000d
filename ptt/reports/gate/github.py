"""What GitHub Actions shows of a gate: annotations from lines on stdout, and a summary of the job."""

from __future__ import annotations

import hashlib

from ptt.diagnostics.gate.results import GateReport, Outcome
from ptt.reports.gate import gate_json
from ptt.reports.gate.check_text import (
    STANDINGS,
    Standing,
    evidence_path,
    findings_of,
    headline,
    one_line,
    title,
    untold_allowance,
)
from ptt.reports.gate.markdown import summary
from ptt.reports.text.numbers import counted
from ptt.reports.text.sanitize import encodable, safe

MOST_OF_A_LEVEL = 10  # annotations that GitHub shows of one level and step; the rest are dropped without a word
SUMMARY_BYTES = 1024 * 1024  # of a step's summary; a longer one is not shown at all
COMMANDS = {
    Standing.CRASHED: "error",
    Standing.FAILED: "error",
    Standing.UNREADABLE: "error",
    Standing.BLIND: "warning",
    Standing.TOLERATED: "notice",
    Standing.WAIVED: "notice",
}


def github_annotations(report: GateReport, *, rest_in: str = "the job summary") -> str:
    """Give the workflow commands, one a line: the outcome first, then the worst of each level as far as GitHub goes.

    `rest_in` names where the checks stand for which GitHub has no more room.
    """
    found = findings_of(report)
    command = "notice" if report.outcome is Outcome.PASSED else "error"
    left = {level: MOST_OF_A_LEVEL - (level == command) for level in ("error", "warning", "notice")}
    lines = []
    for name, run, case in found:
        level = COMMANDS[case.standing]
        if left[level] == 0:
            continue
        left[level] -= 1
        head = {"title": f"{STANDINGS[case.standing]}: {name}: {case.id}"}
        path = evidence_path(run, case.check.file if case.check is not None else None)
        where = {"file": safe(path)} if path is not None else {}
        told = one_line(case)
        lines.append(_command(level, where | head, f"{told} {untold_allowance(case)}".rstrip()))
    rest = len(found) - len(lines)
    more = f" {counted(rest, 'check')} more in {safe(rest_in)}." if rest else ""
    return "\n".join([_command(command, {"title": title(report)}, headline(report) + more), *lines]) + "\n"


def job_summary(report: GateReport) -> str:
    """Give the Markdown for $GITHUB_STEP_SUMMARY: all runs and checks as far as a summary may be long."""
    return summary(report, limit=SUMMARY_BYTES, every_run=True)


def github_guard(report: GateReport) -> tuple[str, str]:
    """Give a line before and one after other output: between them the runner takes no line for a command.

    The token must be one that nobody can write into a log beforehand: it is made of all that the report holds.
    """
    token = "ptt-" + hashlib.sha256(gate_json.render(report).encode("utf-8")).hexdigest()
    return f"::stop-commands::{token}", f"::{token}::"


def _command(command: str, properties: dict[str, str], message: str) -> str:
    told = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{command} {told}::{_data(message)}"


def _data(text: str) -> str:
    return encodable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
