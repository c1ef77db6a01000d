"""The diagnosis for machines: findings.json, schema version 1."""

from __future__ import annotations

from ptt.diagnostics.model import STEP, Coverage, Diagnosis, Finding, Outcome
from ptt.reports.output import finite_json

SCHEMA_VERSION = 1
NOT_JUDGED = ("id", "link", "reason", "missing", "enable")
CORE_QUESTION = ("question", "judged", "rows", "metric", "change", "detectable", "unit", "why")
SERIES = (
    "name", "logged_as", "split", "direction", "unit", "count", "not_finite", "first_step", "last_step", "first",
    "last",
    "best", "best_step", "low", "high", "early", "late", "change", "movement", "detectable", "changed_at",
    "changed_interval", "still_moving", "settled_at", "turn", "turn_step", "spikes", "noise", "at_zero",
    "bound", "at_bound",
    "spread_left",
)  # fmt: skip
SOURCE = ("path", "kind", "rows_ok", "rows_bad", "bytes_lost", "note")


def findings_json(diagnosis: Diagnosis, version: str) -> str:
    """Return the text of findings.json; the same diagnosis gives the same bytes."""
    run, signature = diagnosis.run, diagnosis.signature
    aggregates = signature.aggregates
    return finite_json(
        {
            "schema_version": SCHEMA_VERSION,
            "ptt_version": version,
            "run": {
                **_fields(run, "name", "framework", "algorithm"),
                **({} if run.kind is None else _fields(run, "kind", "kind_reason")),
                "steps": {
                    "first": run.first_step,
                    "last": run.last_step,
                    "count": run.step_count,
                    **({} if run.step_unit == STEP else {"unit": run.step_unit}),
                    **({"placed_by": run.placed_by} if run.placed_by else {}),
                },
                **_fields(run, "sequences", "model_tokens"),
            },
            "verdict": {
                **_fields(diagnosis.verdict, "status", "headline", "first_broken_link", "next"),
                **({} if diagnosis.verdict.coverage is None else {"coverage": _coverage(diagnosis.verdict.coverage)}),
            },
            **({} if diagnosis.outcome is None else {"outcome": _outcome(diagnosis.outcome)}),
            "signature": {
                **_fields(signature, "status", "reason", "pair", "onset_step", "onset_interval"),
                **_fields(signature, "limit_passed_step", "limit_passed_interval"),
                "aggregates": {
                    "status": aggregates.status,
                    "metrics": dict(sorted(aggregates.metrics.items())),
                    **({"last_steps": dict(sorted(aggregates.last_steps.items()))} if aggregates.last_steps else {}),
                },
                **_fields(signature, "lead_steps", "lead_is_lower_bound", "lead_interval"),
                **({} if signature.lead_until is None else {"lead_until": signature.lead_until}),
                "growth": {
                    name: _fields(growth, "p95", "p99", "interval_p99")
                    for name, growth in sorted(signature.growth.items())
                },
                **_fields(signature, "p_value", "false_alarm_rate"),
            },
            "findings": [
                {
                    **_fields(finding, "id", "severity", "link", "slice", "onset_step", "onset_interval", "claim"),
                    **({} if finding.held_from_step is None else _fields(finding, "held_from_step")),
                    **(
                        {}
                        if finding.limit_passed_step is None
                        else _fields(finding, "limit_passed_step", "limit_passed_interval")
                    ),
                    **_fields(finding, "observed", "limit", "unit"),
                    "evidence": dict(sorted(finding.evidence.items())),
                    **({"holder": _holder(finding)} if "holder_attribute" in finding.evidence else {}),
                    "causes": finding.causes,
                    "next": [*finding.confirm, *finding.next],
                    "consequence_of": finding.consequence_of,
                }
                for finding in diagnosis.findings
            ],
            "not_judged": [_fields(item, *NOT_JUDGED) for item in diagnosis.not_judged],
            "crashes": [_fields(crash, "id", "error") for crash in diagnosis.crashes],
            "sources": [_fields(source, *SOURCE) for source in diagnosis.sources],
        }
    )


def _holder(finding: Finding) -> dict[str, object]:
    """Return who holds a finding's tail: the value of an attribute, its shares of tail and tokens, and the lift."""
    of = {name.removeprefix("holder_"): value for name, value in finding.evidence.items() if name.startswith("holder_")}
    return {
        **{name: of.get(name) for name in ("attribute", "value", "share", "token_share", "lift")},
        **{f"{name}_interval": [of.get(f"{name}_low"), of.get(f"{name}_high")] for name in ("share", "lift")},
    }


def _coverage(coverage: Coverage) -> dict[str, object]:
    return {
        **_fields(coverage, "judged", "asked"),
        "core": [_fields(question, *CORE_QUESTION) for question in coverage.core],
    }


def _outcome(outcome: Outcome) -> dict[str, object]:
    return {
        **_fields(outcome, "ended", "steps", "planned"),
        "series": [_fields(series, *SERIES) for series in outcome.series],
        **_fields(outcome, "series_left_out", "best_checkpoint", "how_ended", "did", "cost", "said"),
    }


def _fields(value: object, *names: str) -> dict[str, object]:
    return {name: getattr(value, name) for name in names}
