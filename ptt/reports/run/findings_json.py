"""The diagnosis for machines: findings.json, schema version 1."""

from __future__ import annotations

from ptt.diagnostics.model import Diagnosis, Finding, Interval, Run, Signature, TailGrowth
from ptt.reports.output import finite_json

SCHEMA_VERSION = 1


def findings_json(diagnosis: Diagnosis, version: str) -> str:
    """Give the text of findings.json; the same diagnosis gives the same bytes."""
    content: dict[str, object] = {
        "schema_version": SCHEMA_VERSION,
        "ptt_version": version,
        "run": _run(diagnosis.run),
        "verdict": {
            "status": diagnosis.verdict.status.value,
            "headline": diagnosis.verdict.headline,
            "first_broken_link": diagnosis.verdict.first_broken_link,
            "next": diagnosis.verdict.next,
        },
        "signature": _signature(diagnosis.signature),
        "findings": [_finding(finding) for finding in diagnosis.findings],
        "not_judged": [
            {"id": n.id, "link": n.link, "reason": n.reason, "missing": n.missing, "enable": n.enable}
            for n in diagnosis.not_judged
        ],
        "crashes": [{"id": crash.id, "error": crash.error} for crash in diagnosis.crashes],
        "sources": [
            {
                "path": source.path,
                "kind": source.kind,
                "rows_ok": source.rows_ok,
                "rows_bad": source.rows_bad,
                "bytes_lost": source.bytes_lost,
                "note": source.note,
            }
            for source in diagnosis.sources
        ],
    }
    return finite_json(content)


def _run(run: Run) -> dict[str, object]:
    return {
        "name": run.name,
        "framework": run.framework,
        "algorithm": run.algorithm,
        "steps": {"first": run.first_step, "last": run.last_step, "count": run.step_count},
        "sequences": run.sequences,
        "model_tokens": run.model_tokens,
    }


def _signature(signature: Signature) -> dict[str, object]:
    return {
        "status": signature.status.value,
        "reason": signature.reason,
        "pair": signature.pair,
        "onset_step": signature.onset_step,
        "onset_interval": signature.onset_interval,
        "aggregates": {
            "status": signature.aggregates.status,
            "metrics": dict(sorted(signature.aggregates.metrics.items())),
        },
        "lead_steps": signature.lead_steps,
        "lead_is_lower_bound": signature.lead_is_lower_bound,
        "lead_interval": signature.lead_interval,
        "growth": {name: _growth(growth) for name, growth in sorted(signature.growth.items())},
        "p_value": signature.p_value,
        "false_alarm_rate": signature.false_alarm_rate,
    }


def _growth(growth: TailGrowth) -> dict[str, float | Interval | None]:
    return {"p95": growth.p95, "p99": growth.p99, "interval_p99": growth.interval_p99}


def _finding(finding: Finding) -> dict[str, object]:
    return {
        "id": finding.id,
        "severity": finding.severity.value,
        "link": finding.link,
        "slice": finding.slice,
        "onset_step": finding.onset_step,
        "onset_interval": finding.onset_interval,
        "claim": finding.claim,
        "observed": finding.observed,
        "limit": finding.limit,
        "unit": finding.unit,
        "evidence": dict(sorted(finding.evidence.items())),
        "causes": finding.causes,
        "next": [*finding.confirm, *finding.next],
        "consequence_of": finding.consequence_of,
    }
