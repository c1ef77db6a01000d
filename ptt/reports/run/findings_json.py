"""The diagnosis for machines: findings.json, schema version 1."""

from __future__ import annotations

from ptt.diagnostics.model import STEP, Coverage, Diagnosis, Finding, Ledger, Outcome, StopReplay, Strength, Support
from ptt.reports.output import fields_of, finite_json
from ptt.reports.run.advisories import advisories_json

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
AUDIT = (
    "quantity", "agreement", "logged_as", "said", "formula", "reduction", "logged", "recomputed", "error", "steps",
    "agreeing", "since", "reason", "missing", "finding",
)  # fmt: skip
LEDGER = (
    "finding", "objective", "reason", "said", "place", "approximated", "since", "steps", "tokens", "half_tokens",
    "early_half_tokens", "effective_sequences", "tail_share", "tail_tokens", "second_moment",
)  # fmt: skip
LEDGER_SHARE = ("by", "value", "share", "token_share", "signed", "kl", "masked", "truncated", "clipped")
COST = (
    "rule", "onset_step", "last_step", "steps", "hours", "stop_step", "steps_after_stop", "hours_after_stop", "said",
)  # fmt: skip
GUARD_PRICE = ("guard", "pair", "tail", "cost", "second_moment", "holds", "reason")
SUPPORT = ("follows", "reason", "pair", "steps", "tokens", "groups", "alpha", "changes", "change", "change_interval")
SUPPORT_LISTS = {
    "shares": ("cause", "share", "interval", "reason"),
    "masses": (
        "window", "by", "value", "tokens", "groups", "policy", "reference", "reference_interval", "unsupported",
        "unsupported_interval", "tail_share",
    ),
    "outputs": ("window", "outputs", "distinct", "exact", "near", "unseen", "familiarity"),
}  # fmt: skip
SOURCE = ("path", "kind", "rows_ok", "rows_bad", "bytes_lost", "note")


def findings_json(diagnosis: Diagnosis, version: str) -> str:
    """Return the text of findings.json; the same diagnosis gives the same bytes."""
    run, signature = diagnosis.run, diagnosis.signature
    aggregates = signature.aggregates
    known = _known_causes(diagnosis)
    steps = steps_json(run.first_step, run.last_step, run.step_count, run.step_unit)
    return finite_json(
        {
            "schema_version": SCHEMA_VERSION,
            "ptt_version": version,
            "run": {
                **fields_of(run, "name", "framework", "algorithm"),
                **({} if run.kind is None else fields_of(run, "kind", "kind_reason")),
                "steps": steps | ({"placed_by": run.placed_by} if run.placed_by else {}),
                **fields_of(run, "sequences", "model_tokens"),
            },
            "verdict": {
                **fields_of(diagnosis.verdict, "status", "headline", "first_broken_link", "next"),
                **({} if diagnosis.verdict.coverage is None else {"coverage": _coverage(diagnosis.verdict.coverage)}),
            },
            **({} if diagnosis.outcome is None else {"outcome": _outcome(diagnosis.outcome)}),
            **({} if diagnosis.stop_replay is None else {"stop_replay": _stop_replay(diagnosis.stop_replay)}),
            "cost": None if diagnosis.cost is None else fields_of(diagnosis.cost, *COST),
            "signature": {
                **fields_of(signature, "status", "reason", "pair", "onset_step", "onset_interval"),
                **fields_of(signature, "limit_passed_step", "limit_passed_interval"),
                "aggregates": {
                    "status": aggregates.status,
                    "metrics": dict(sorted(aggregates.metrics.items())),
                    **({"last_steps": dict(sorted(aggregates.last_steps.items()))} if aggregates.last_steps else {}),
                },
                **fields_of(signature, "lead_steps", "lead_is_lower_bound", "lead_interval"),
                **({} if signature.lead_until is None else {"lead_until": signature.lead_until}),
                "growth": {
                    name: fields_of(growth, "p95", "p99", "interval_p99")
                    for name, growth in sorted(signature.growth.items())
                },
                **fields_of(signature, "p_value", "false_alarm_rate"),
            },
            "findings": [
                {
                    **fields_of(finding, "id", "severity", "link", "slice", "onset_step", "onset_interval", "claim"),
                    **({"context": finding.context} if finding.context else {}),
                    **({} if finding.held_from_step is None else fields_of(finding, "held_from_step")),
                    **(
                        {}
                        if finding.limit_passed_step is None
                        else fields_of(finding, "limit_passed_step", "limit_passed_interval")
                    ),
                    **fields_of(finding, "observed", "limit", "unit"),
                    "evidence": dict(sorted(finding.evidence.items())),
                    **({"holder": _holder(finding)} if "holder_attribute" in finding.evidence else {}),
                    "causes": finding.causes,
                    **({"advisories": known[finding.id]} if finding.id in known else {}),
                    "next": [*finding.confirm, *finding.next],
                    "consequence_of": finding.consequence_of,
                }
                for finding in diagnosis.findings
            ],
            "audit": None if diagnosis.audit is None else [fields_of(row, *AUDIT) for row in diagnosis.audit],
            **({} if diagnosis.ledger is None else {"ledger": _ledger(diagnosis.ledger)}),
            **({} if diagnosis.support is None else {"support": _support(diagnosis.support)}),
            **({} if diagnosis.advisories is None else {"advisories": advisories_json(diagnosis.advisories)}),
            "not_judged": [fields_of(item, *NOT_JUDGED) for item in diagnosis.not_judged],
            "crashes": [fields_of(crash, "id", "error") for crash in diagnosis.crashes],
            "sources": [fields_of(source, *SOURCE) for source in diagnosis.sources],
        }
    )


def _known_causes(diagnosis: Diagnosis) -> dict[str, list[str]]:
    """Return by finding the advisories that are its cause."""
    known: dict[str, list[str]] = {}
    for match in () if diagnosis.advisories is None else diagnosis.advisories.of(Strength.CAUSE):
        for finding in match.findings:
            known.setdefault(finding, []).append(match.id)
    return known


def steps_json(first: int | None, last: int | None, count: int, unit: str) -> dict[str, object]:
    """Return the first and last step, their number, and their unit if they are not optimiser steps."""
    return {"first": first, "last": last, "count": count, **({} if unit == STEP else {"unit": unit})}


def _holder(finding: Finding) -> dict[str, object]:
    """Return who holds a finding's tail: the value of an attribute, its shares of tail and tokens, and the lift."""
    of = {name.removeprefix("holder_"): value for name, value in finding.evidence.items() if name.startswith("holder_")}
    return {
        **{name: of.get(name) for name in ("attribute", "value", "share", "token_share", "lift")},
        **{f"{name}_interval": [of.get(f"{name}_low"), of.get(f"{name}_high")] for name in ("share", "lift")},
    }


def _support(support: Support) -> dict[str, object]:
    lists = {name: [fields_of(one, *of) for one in getattr(support, name)] for name, of in SUPPORT_LISTS.items()}
    return fields_of(support, *SUPPORT) | lists


def _coverage(coverage: Coverage) -> dict[str, object]:
    return {
        **fields_of(coverage, "judged", "asked"),
        "core": [fields_of(question, *CORE_QUESTION) for question in coverage.core],
    }


def _ledger(ledger: Ledger) -> dict[str, object]:
    return {
        **fields_of(ledger, *LEDGER),
        "shares": [fields_of(share, *LEDGER_SHARE) for share in ledger.shares],
        "guards": [fields_of(price, *GUARD_PRICE) for price in ledger.guards],
        "cheapest": ledger.cheapest,
    }


def _stop_replay(replay: StopReplay) -> dict[str, object]:
    return {
        **fields_of(replay, "step", "first_step", "last_step", "budget", "rule", "since_step", "claim", "warned_step"),
        **fields_of(replay, "watched", "said"),
        "guards": [fields_of(guard, "name", "value", "unit", "says") for guard in replay.guards],
    }


def _outcome(outcome: Outcome) -> dict[str, object]:
    return {
        **fields_of(outcome, "ended", "steps", "planned"),
        "series": [fields_of(series, *SERIES) for series in outcome.series],
        **fields_of(outcome, "series_left_out", "best_checkpoint", "how_ended", "did", "cost", "said"),
    }
