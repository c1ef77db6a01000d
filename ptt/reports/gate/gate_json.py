"""The gate for machines: gate.json, schema version 1; gate.schema.json beside this file says what it holds."""

from __future__ import annotations

from dataclasses import asdict

from ptt.diagnostics.gate.results import CheckResult, GatedRun, GateReport
from ptt.reports.gate.check_text import EXIT_CODES, headline, standing_of
from ptt.reports.output import finite_json
from ptt.version import __version__

SCHEMA_VERSION = 1


def render(report: GateReport, *, version: str = __version__) -> str:
    """Give the text of gate.json; the same report gives the same bytes."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "ptt_version": version,
        "outcome": report.outcome.value,
        "exit_code": EXIT_CODES[report.outcome],
        "headline": headline(report),
        "policy": dict(sorted(report.policy.items())),
        "baseline": report.baseline,
        "runs": [_run(run) for run in report.runs],
        "notes": report.notes,
    }
    return finite_json(content)


def _run(run: GatedRun) -> dict[str, object]:
    return {
        "name": run.name,
        "path": run.path,
        "outcome": run.outcome.value,
        "status": run.status,
        "headline": run.headline,
        "first_broken_link": run.first_broken_link,
        "error": run.error,
        "framework": run.framework,
        "steps": run.steps,
        "model_tokens": run.model_tokens,
        "report": run.report,
        "checks": [_check(check, run) for check in run.checks],
        "notes": run.notes,
    }


def _check(check: CheckResult, run: GatedRun) -> dict[str, object]:
    return {
        "id": check.id,
        "kind": check.kind.value,
        "outcome": check.outcome.value,
        "standing": standing_of(check, run).value,
        "title": check.title,
        "claim": check.claim,
        "data": check.data,
        "fails_if": check.fails_if,
        "observed": check.observed,
        "limit": check.limit,
        "unit": check.unit,
        "interval": None if check.low is None and check.high is None else [check.low, check.high],
        "expected": check.expected,
        "allowed": None if check.allowed == (None, None) else check.allowed,
        "severity": check.severity,
        "link": check.link,
        "rule": check.rule,
        "step": check.step,
        "file": check.file,
        "excused": check.excused,
        "waiver": None if check.waiver is None else asdict(check.waiver),
        "next": check.next,
    }
