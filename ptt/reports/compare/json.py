"""The comparison for machines: compare.json, schema version 1."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from ptt.diagnostics.compare.comparison import Comparison, Member
from ptt.reports.output import finite_json

SCHEMA_VERSION: Final = 1
TABLES: Final = (
    "windows", "differences", "growth", "aggregates", "aggregate_differences", "divergence", "settings", "curves",
    "ess",
)  # fmt: skip
"""In order of what is read first; the CDFs, thousands of points, are in the figures alone."""


def compare_json(comparison: Comparison, version: str) -> str:
    """Return the text of compare.json; the same comparison gives the same bytes."""
    content: dict[str, object] = {
        "schema_version": SCHEMA_VERSION,
        "ptt_version": version,
        "headline": comparison.headline,
        "sentences": comparison.sentences,
        "cautions": comparison.cautions,
        "baseline": comparison.arms[0].name,
        "pair": comparison.pair,
        "arms": [{"name": arm.name, "runs": [_run(run) for run in arm.members]} for arm in comparison.arms],
        "matched": comparison.matched,
        "not_compared": [asdict(item) for item in comparison.not_compared],
        **{name: comparison.tables[name].to_dicts() for name in TABLES},
    }
    return finite_json(content)


def _run(member: Member) -> dict[str, object]:
    run, verdict = member.diagnosis.run, member.diagnosis.verdict
    return {
        "name": member.name,
        "source": member.source or None,
        "framework": run.framework,
        "algorithm": run.algorithm,
        "steps": {"first": run.first_step, "last": run.last_step, "count": run.step_count},
        "sequences": run.sequences,
        "model_tokens": run.model_tokens,
        "status": verdict.status.value,
        "headline": verdict.headline,
    }
