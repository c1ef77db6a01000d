"""Tool calls that fail: of all tools and of each, at which error, at what time, and whether the agent recovers."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.model import Severity
from ptt.diagnostics.rules.interface import Finding
from ptt.diagnostics.traces.error_classes import OTHER, UNTOLD, classify_errors, error_table
from ptt.diagnostics.traces.interface import Judged, graded, no_calls, not_judged
from ptt.diagnostics.traces.judging import Asked, Bounds, Measured, judge_share
from ptt.diagnostics.traces.order import MAX_TOOLS_TESTED
from ptt.diagnostics.traces.tables import TraceTables
from ptt.diagnostics.wording import counted, pct

BOUNDS: Final = Bounds(
    floor=0.1,  # of the calls: below, failures are an accident that an agent can live with
    factor=2.0,  # less is noise of what is called for
    medium=0.2,  # one in five results is an error message
    high=0.5,  # the tool is as good as gone
    chronic=0.4,  # where Microsoft's post-training toolkit calls a failure rate high
)
OTHERS_SHARE: Final = 0.5  # of the failure share of all: the other tools' is below it, so that the fault is of one
MAX_FINDINGS: Final = 5  # tools that are named: more say the same of others
ASKED: Final = Asked(
    trials="tool calls",
    hits="fail",
    metric="tool_calls.ok",
    bounds=BOUNDS,
    causes=(
        "the tool or its server is down, overloaded or out of quota",
        "the agent writes calls that the tool cannot take",
        "the tool's interface changed",
    ),
    confirm="read the failed calls of the episodes {where} and repeat two by hand: is it the tool or the agent?",
    next=(
        "fix the tool, or retry its transient errors outside the agent's context",
        "leave episodes that failed through the environment's fault out of training and of success rates",
    ),
)
EXIT: Final = "exit code "  # begins the error type of a command whose format does not say that this is a failure
ENABLE: Final = "write with each tool result whether the call failed: a flag or an error field"


def judge_failures(tables: TraceTables) -> Judged:
    """Judge the share of failed calls, of all tools and of each; one bad tool is named as that tool.

    Calls that were malformed are another failure, which has a check of its own.
    """
    calls = tables.calls
    if calls.is_empty() and tables.traces.tool_errors:
        return Judged(verdict=graded(_errors_alone(tables), reason="results of tools are recorded without their calls"))
    if calls.is_empty():
        return no_calls(tables)
    measured = {"tool_failure_rate": Measured.of_columns(tables, "failed", "known").share}
    made = calls.filter(pl.col("counted").is_not_null() & ~pl.col("malformed").fill_null(value=False))
    whole = measure_calls(tables, made)
    if not whole.share.trials:
        reason = _untold(calls)
        return Judged(verdict=not_judged(reason, missing=("tool_calls.ok",), enable=ENABLE).verdict, measured=measured)
    findings = [_with_error(finding, made) for finding in _by_tool(tables, made, whole)]
    share = whole.share.value or 0.0
    reason = f"{pct(share)} of {whole.share.trials:,} tool calls with a known outcome fail"
    return Judged(verdict=graded(*findings, reason=reason), measured=measured)


def _untold(calls: pl.DataFrame) -> str:
    """Say what is known of calls of which no share can be told."""
    failures = int(calls["failed"].sum() or 0)
    exits = int(calls["error_type"].str.starts_with(EXIT).sum() or 0)
    reason = f"no outcome of the {calls.height:,} tool calls is recorded"
    if failures:
        told = f"{failures:,} of {calls.height:,} tool calls {'is' if failures == 1 else 'are'} marked as failed"
        reason = f"{told}, and of the others no outcome is recorded"
    return f"{reason}; {exits:,} exited with a code other than 0, which may be an answer" if exits else reason


def _errors_alone(tables: TraceTables) -> Finding:
    """Return that tools report errors, where the calls that they answer are not recorded."""
    errors, episodes = tables.traces.tool_errors or 0, tables.episodes.height
    return Finding(
        severity=Severity.LOW,  # of how many calls is not known
        claim=f"{counted(errors, 'tool result(s)')} of {counted(episodes, 'episode(s)')} report an error",
        observed=float(errors),
        limit=0.0,
        unit="tool results",
        evidence={"metric": "trajectories.n_tool_fail"},
        causes=ASKED.causes,
        confirm=("read these results: is it the tool or the agent?",),
        next=("record the calls beside their results, so that a share can be told",),
    )


def _by_tool(tables: TraceTables, made: pl.DataFrame, whole: Measured) -> list[Finding]:
    """Return the finding of the tools that are to blame, or of all tools together."""
    known = made.filter(pl.col("tool").is_not_null())
    names = known.group_by("tool").len().sort("len", "tool", descending=[True, False])["tool"]
    together = judge_share(tables, ASKED, whole)
    if len(names) < 2:
        return [together] if together is not None else []
    of_tools = [
        measure_calls(tables, known.filter(pl.col("tool") == name), name)
        for name in names.head(MAX_TOOLS_TESTED).to_list()
    ]
    named = [(each, found) for each in of_tools if (found := judge_share(tables, ASKED, each)) is not None]
    named.sort(key=lambda pair: (pair[1].severity.rank, -pair[0].share.hits))
    bad = [each for each, found in named if found.severity.at_least(Severity.MEDIUM)]
    if bad and not _is_general(whole, bad, len(names)):
        return [found for _, found in named[:MAX_FINDINGS] if found.severity.at_least(Severity.MEDIUM)]
    if together is None:
        return [found for _, found in named[:MAX_FINDINGS]]
    return [together]


def _is_general(whole: Measured, bad: list[Measured], tools: int) -> bool:
    """Tell whether the tools that are not bad fail about as often as all do, or there are none."""
    hits = whole.share.hits - sum(each.share.hits for each in bad)
    trials = whole.share.trials - sum(each.share.trials for each in bad)
    if len(bad) == tools or not trials:
        return True
    return hits / trials >= OTHERS_SHARE * whole.share.hits / whole.share.trials


def _with_error(finding: Finding, calls: pl.DataFrame) -> Finding:
    """Add the commonest class of error to a finding, with its share of the failed calls and an example."""
    failed = calls.filter("failed")
    if finding.slice is not None:
        failed = failed.filter(pl.format("tool:{}", "tool") == finding.slice)
    row = error_table(classify_errors(failed.with_columns(pl.lit("all").alias("tool")))).row(0, named=True)
    error = {"error_class": row["error_class"], "error_share": row["share"], "error_example": row["example"]}
    told = "" if row["error_class"] in {OTHER, UNTOLD} else f"; {pct(row['share'])} of the errors: {row['error_class']}"
    return replace(finding, claim=finding.claim + told, evidence={**finding.evidence, **error})


def measure_calls(tables: TraceTables, calls: pl.DataFrame, tool: str | None = None) -> Measured:
    """Measure the failures of calls, of one tool or of all."""
    of = calls.group_by("episode").agg(pl.col("failed").sum(), pl.len())
    hits, trials = np.zeros(tables.episodes.height), np.zeros(tables.episodes.height)
    at = of["episode"].to_numpy()
    hits[at], trials[at] = of["failed"].to_numpy(), of["len"].to_numpy()
    return Measured(
        share=tables.call_share(pl.col("failed"), calls),
        hits=hits,
        trials=trials,
        tool=tool,
        reach=float((hits > 0).sum()) / max(1, tables.episodes.height),
    )
