"""The gate for machines: gate.json, schema version 1; gate.schema.json beside this file says what it holds."""

from __future__ import annotations

from dataclasses import asdict

from ptt.diagnostics.gate.results import CheckResult, GatedRun, GateReport
from ptt.reports.gate import checks
from ptt.reports.output import finite_json
from ptt.version import __version__

SCHEMA_VERSION = 1


def render(report: GateReport, *, version: str = __version__) -> str:
    """Return the text of gate.json; the same report gives the same bytes."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "ptt_version": version,
        "outcome": report.outcome.value,
        "exit_code": checks.OUTCOME_TEXT[report.outcome].exit_code,
        "headline": checks.headline(report),
        "policy": dict(sorted(report.policy.items())),
        "baseline": report.baseline,
        "runs": [_run(run) for run in report.runs],
        "notes": report.notes,
    }
    return finite_json(content)


RUN_KEYS = (
    "name", "path", "outcome", "status", "headline", "first_broken_link", "error", "framework", "steps", "step_unit",
    "model_tokens", "report", "checks", "notes",
)  # fmt: skip
CHECK_KEYS = (
    "id", "kind", "outcome", "standing", "title", "claim", "data", "fails_if", "observed", "limit", "unit", "interval",
    "expected", "allowed", "severity", "link", "rule", "metric", "step", "since", "file", "excused", "waiver", "next",
)  # fmt: skip


def _run(run: GatedRun) -> dict[str, object]:
    values = vars(run) | {"checks": [_check(check, run) for check in run.checks]}
    return {key: values[key] for key in RUN_KEYS}


def _check(check: CheckResult, run: GatedRun) -> dict[str, object]:
    values = vars(check) | {
        "standing": checks.check_status(check, run),
        "interval": None if check.low is None and check.high is None else [check.low, check.high],
        "allowed": None if check.allowed == (None, None) else check.allowed,
        "waiver": None if check.waiver is None else asdict(check.waiver),
    }
    return {key: values[key] for key in CHECK_KEYS}
