"""A diagnosis of agent traces for machines: findings.json, schema version 1."""

from __future__ import annotations

import json

from ptt.diagnostics.traces.as_run import as_run
from ptt.diagnostics.traces.model import Share, TraceDiagnosis, TraceSet
from ptt.reports.output import finite_json
from ptt.reports.run.findings_json import findings_json

RUN = (
    "name", "episodes", "labelled", "assistant_turns", "tool_calls", "tool_errors", "reward_mean", "distinct_tools",
    "cost_usd", "costed",
)  # fmt: skip

LISTED = ("over_order", "tools", "error_classes", "turn_counts", "partings", "token_tail")
"""Tables that findings.json holds row by row; those by task or group grow with the traces."""


def trace_findings_json(diagnosis: TraceDiagnosis, version: str) -> str:
    """Return the text of findings.json; the same diagnosis gives the same bytes."""
    as_of_run = json.loads(findings_json(as_run(diagnosis), version))
    return finite_json(
        {
            **as_of_run,
            "run": {**as_of_run["run"], **_run(diagnosis.traces)},
            "measured": {name: _share(share) for name, share in sorted(diagnosis.measured.items())},
            **{name: _rows(diagnosis, name) for name in LISTED},
        }
    )


def _run(traces: TraceSet) -> dict[str, object]:
    return {
        **_fields(traces, *RUN),
        "formats": dict(sorted(traces.kinds.items())),
    }


def _share(share: Share) -> dict[str, object]:
    low, high = share.interval or (None, None)
    return {"value": share.value, "low": low, "high": high, **_fields(share, "hits", "trials", "clusters")}


def _rows(diagnosis: TraceDiagnosis, name: str) -> list[dict[str, object]]:
    frame = diagnosis.tables.get(name)
    return [] if frame is None else frame.to_dicts()


def _fields(value: object, *names: str) -> dict[str, object]:
    return {name: getattr(value, name) for name in names}
