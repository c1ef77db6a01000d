"""A diagnosis of agent traces as findings.json, schema version 1; and read back, without the single episodes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import polars as pl
from msgspec import Struct

from ptt.diagnostics.documents import DocumentError, convert_document, parse_json, read_at_most
from ptt.diagnostics.errors import InputError
from ptt.diagnostics.model import Link, RunVerdict, Status
from ptt.diagnostics.traces.call_outcomes import KNOWN_BY
from ptt.diagnostics.traces.model import MEASURES, Share, TraceDiagnosis, TraceSet, as_run
from ptt.reports.output import fields_of, finite_json
from ptt.reports.run.findings_json import findings_json

RUN = (
    "name", "episodes", "labelled", "assistant_turns", "tool_calls", "tool_errors", "reward_mean", "distinct_tools",
    "cost_usd", "costed", "tokens_in", "tokens_out",
)  # fmt: skip

LISTED = (
    "over_order", "tools", "failing_tools", "error_classes", "turn_counts", "partings", "token_tail", "changes", "cost",
)  # fmt: skip
"""Tables that findings.json holds row by row; those by task or group grow with the traces."""


def trace_findings_json(diagnosis: TraceDiagnosis, version: str) -> str:
    """Return the text of findings.json; the same diagnosis gives the same bytes."""
    traces = diagnosis.traces
    as_of_run = json.loads(findings_json(as_run(diagnosis), version))
    return finite_json(
        {
            **as_of_run,
            "run": {
                **as_of_run["run"],
                **fields_of(traces, *RUN),
                "formats": dict(sorted(traces.kinds.items())),
            },
            "measured": {name: _share(share) for name, share in sorted(diagnosis.measured.items())},
            **{name: diagnosis.rows(name) for name in LISTED},
        }
    )


def _share(share: Share) -> dict[str, object]:
    low, high = share.interval or (None, None)
    return {"value": share.value, "low": low, "high": high, **fields_of(share, "hits", "trials", "clusters")}


MAX_BYTES: Final = 64 << 20
TOOLS: Final = pl.Schema(
    {
        "name": pl.String, "calls": pl.Int64, "episodes": pl.Int64, "failures": pl.Int64, "known": pl.Int64,
        **dict.fromkeys(KNOWN_BY, pl.Int64),
        **dict.fromkeys(
            (
                "failed", "low", "high", "first_failed", "last_failed", "latency_p50", "latency_p95", "repeated",
                "malformed", "cost_usd", "success_with", "success_without",
            ), pl.Float64,
        ),
    }
)  # fmt: skip
ERRORS: Final = pl.Schema(
    {"tool": pl.String, "error_class": pl.String, "calls": pl.Int64, "share": pl.Float64, "example": pl.String}
)


class _Share(Struct, frozen=True):
    hits: int
    trials: int
    clusters: int = 0
    low: float | None = None
    high: float | None = None


class _Run(Struct, frozen=True):
    name: str
    episodes: int
    labelled: int
    assistant_turns: int | None = None
    tool_calls: int | None = None
    tool_errors: int | None = None
    reward_mean: float | None = None
    distinct_tools: int | None = None
    formats: dict[str, int] = {}


class _Verdict(Struct, frozen=True):
    status: str
    headline: str
    first_broken_link: str | None = None
    next: list[str] = []


class _Findings(Struct, frozen=True):
    schema_version: int
    run: _Run
    verdict: _Verdict
    measured: dict[str, _Share] = {}
    tools: list[dict[str, Any]] = []
    error_classes: list[dict[str, Any]] = []


def read_trace_findings(path: Path) -> TraceDiagnosis | None:
    """Read a findings.json; None where it is that of a run. InputError where it cannot be read."""
    try:
        document = parse_json(read_at_most(path, MAX_BYTES))
        if not isinstance(document, Mapping) or "episodes" not in document.get("run", {}):
            return None
        found = convert_document(document, _Findings)
        tables = {"tools": _table(found.tools, TOOLS), "error_classes": _table(found.error_classes, ERRORS)}
        return _diagnosis(found, tables)
    except (OSError, ValueError, DocumentError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{path}: is no findings.json of traces: {error}; give the traces or their store.") from error


def _table(rows: list[dict[str, Any]], schema: pl.Schema) -> pl.DataFrame:
    return pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema)


def _diagnosis(found: _Findings, tables: Mapping[str, pl.DataFrame]) -> TraceDiagnosis:
    measured = {
        name: Share(
            hits=share.hits, trials=share.trials, clusters=share.clusters,
            interval=None if share.low is None or share.high is None else (share.low, share.high),
        )
        for name, share in found.measured.items()
        if name in MEASURES
    }  # fmt: skip
    run, verdict = found.run, found.verdict
    return TraceDiagnosis(
        traces=TraceSet(
            name=run.name, kinds=run.formats, episodes=run.episodes, labelled=run.labelled,
            assistant_turns=run.assistant_turns, tool_calls=run.tool_calls, tool_errors=run.tool_errors,
            reward_mean=run.reward_mean, rewarded=0, distinct_tools=run.distinct_tools,
            success=measured.get("success_rate"),
        ),
        verdict=RunVerdict(
            status=Status(verdict.status), headline=verdict.headline, next=tuple(verdict.next),
            first_broken_link=None if verdict.first_broken_link is None else Link(verdict.first_broken_link),
        ),
        findings=(), healthy=(), not_judged=(), crashes=(), sources=(), tables=tables, measured=measured,
    )  # fmt: skip
