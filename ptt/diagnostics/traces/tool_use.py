"""The tools: how often each is called, fails, repeats itself and how long it takes; which are missing or made up."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.model import Severity
from ptt.diagnostics.rules.interface import Finding
from ptt.diagnostics.statistics.clustered_share import clustered_share
from ptt.diagnostics.traces.error_classes import classify_errors, error_table
from ptt.diagnostics.traces.interface import Judged, graded, no_calls
from ptt.diagnostics.traces.tables import TraceTables
from ptt.diagnostics.traces.trace_set import scan_table
from ptt.diagnostics.wording import counted, pct

MAX_TOOLS: Final = 50  # by calls; an agent that makes names up has no end of them
END_SHARE: Final = 1 / 3  # of the episodes, and the first: early and late in the table of tools
NAME: Final = r"[^\p{L}\p{N}]+"  # what writers put for a dot or a slash that an interface does not take in a name
MIN_REQUIRED: Final = 5  # episodes that ask for a tool: with fewer, that none calls it is no habit
MADE_UP_SHARE: Final = 0.05  # of the calls, at least: more is no slip
MIN_USERS: Final = 20  # labelled episodes with a tool and without it
GAIN: Final = 0.2  # of the episodes: what those that call a tool must succeed more often
RARE_SHARE: Final = 0.25  # of the episodes that are offered a tool: fewer call it
Z: Final = 3.0  # standard errors of the difference between them; with fifty tools, chance hardly comes so far


def judge_tool_use(tables: TraceTables) -> Judged:
    """Describe every tool; judge those that are required or useful and not called, and those that do not exist."""
    calls = tables.calls
    offered, required = (_listed(tables, name) for name in ("tools_offered", "tools_required"))
    if calls.is_empty() and offered is None:
        return no_calls(tables)
    views = {"tools": tool_table(tables)}
    failed = calls.filter("failed")
    if failed.height:
        views["error_classes"] = error_table(classify_errors(failed))
    findings: list[Finding] = []
    said = []
    if required is not None:
        findings += _never_called(tables, required)
        said.append(f"{required['tool'].n_unique()} are required")
    if offered is not None:
        findings += _made_up(tables, offered)
        findings += _under_used(tables, offered)
        said.append(f"{offered['tool'].n_unique()} are offered")
    called = tables.traces.distinct_tools or calls["tool"].drop_nulls().n_unique()
    reason = f"{counted(called, 'tool(s)')} {'is' if called == 1 else 'are'} called" + "".join(
        f", {part}" for part in said
    )
    return Judged(verdict=graded(*findings, reason=reason), tables=views)


def tool_table(tables: TraceTables) -> pl.DataFrame:
    """Return one row a tool: calls, failures with their interval, latency, repeats, and how its episodes end."""
    episodes = tables.episodes.height
    calls = tables.calls.filter(pl.col("tool").is_not_null())
    same = calls.select(pl.struct("episode", "tool", "args", "result").hash(1).alias("same"))["same"]
    calls = calls.with_columns((~same.is_first_distinct() & calls["result"].is_not_null()).alias("repeated"))
    early, late = pl.col("episode") < END_SHARE * episodes, pl.col("episode") >= (1 - END_SHARE) * episodes
    seconds = pl.col("latency_s").fill_nan(None)
    counts = (
        calls.group_by("tool")
        .agg(
            pl.len().cast(pl.Int64).alias("calls"),
            pl.col("episode").n_unique().cast(pl.Int64).alias("episodes"),
            pl.col("counted").sum().cast(pl.Int64).alias("failures"),
            pl.col("counted").count().cast(pl.Int64).alias("known"),
            pl.col("counted").mean().alias("share"),
            pl.col("counted").filter(early).mean().alias("first_failed"),
            pl.col("counted").filter(late).mean().alias("last_failed"),
            seconds.quantile(0.5, "nearest").alias("latency_p50"),
            seconds.quantile(0.95, "nearest").alias("latency_p95"),
            pl.col("malformed").sum().cast(pl.Int64),
            pl.col("repeated").sum().cast(pl.Int64),
        )
        .sort("calls", "tool", descending=[True, False])
        .head(MAX_TOOLS)
    )
    low, high = _bounds(tables, calls, counts["tool"].to_list())
    outcomes = _outcomes(tables, calls, counts["tool"].to_list())
    return counts.join(outcomes, on="tool", how="left", maintain_order="left").select(
        pl.col("tool").alias("name"),
        "calls",
        "episodes",
        pl.when(pl.col("known") > 0).then("failures").alias("failures"),
        "known",
        pl.col("share").alias("failed"),
        pl.Series("low", low, pl.Float64),
        pl.Series("high", high, pl.Float64),
        "first_failed",
        "last_failed",
        "latency_p50",
        "latency_p95",
        (pl.col("repeated") / pl.col("calls")).alias("repeated"),
        (pl.col("malformed") / pl.col("calls")).alias("malformed"),
        pl.lit(None, pl.Float64).alias("cost_usd"),
        "success_with",
        "success_without",
    )


def _bounds(
    tables: TraceTables, calls: pl.DataFrame, names: list[str]
) -> tuple[list[float | None], list[float | None]]:
    by_episode = (
        calls.filter(pl.col("counted").is_not_null())
        .group_by("tool", "episode")
        .agg(pl.col("counted").sum().cast(pl.Float64).alias("failed"), pl.len().cast(pl.Float64))
    )
    low: list[float | None] = []
    high: list[float | None] = []
    of = by_episode.partition_by("tool", as_dict=True)
    for name in names:
        part = of.get((name,))
        interval = None
        if part is not None:
            unit = np.unique(tables.unit[part["episode"].to_numpy()], return_inverse=True)[1]
            interval = clustered_share(part["failed"].to_numpy(), part["len"].to_numpy(), unit).interval
        low.append(interval[0] if interval else None)
        high.append(interval[1] if interval else None)
    return low, high


def _outcomes(tables: TraceTables, calls: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """Return how often episodes with each tool succeed, and those without it."""
    labelled = tables.episodes.filter(pl.col("success").is_not_null()).select("episode", "success")
    used = calls.select("tool", "episode").unique().join(labelled, on="episode")
    of = used.group_by("tool").agg(pl.col("success").sum().alias("hits"), pl.len().alias("of"))
    hits, total = int(labelled["success"].sum()), labelled.height
    without = pl.lit(total) - pl.col("of")
    return (
        pl.DataFrame({"tool": names}, schema={"tool": pl.String})
        .join(of, on="tool")
        .select(
            "tool",
            (pl.col("hits") / pl.col("of")).alias("success_with"),
            pl.when(without > 0).then((hits - pl.col("hits")) / without).alias("success_without"),
        )
    )


def _listed(tables: TraceTables, column: str) -> pl.DataFrame | None:
    """Return the tools listed with each episode, one row each; None where no file lists any."""
    rows = scan_table(tables.store, "trajectories").select("trajectory_id", pl.col(column).alias("tool"))
    found = rows.filter(pl.col("tool").list.len() > 0).collect()
    if found.is_empty():
        return None
    number = tables.episodes.select("trajectory_id", "episode")
    return found.join(number, on="trajectory_id").select("episode", "tool").explode("tool").drop_nulls().unique()


def _never_called(tables: TraceTables, required: pl.DataFrame) -> list[Finding]:
    """Return the tools that tasks require and no episode of them calls."""
    called = tables.calls.select("episode", plain_name("tool").alias("plain")).unique()
    asked = required.with_columns(plain_name("tool").alias("plain"))
    missed = asked.join(called, on=["episode", "plain"], how="anti").group_by("tool").len("missed")
    of = asked.group_by("tool").len("asked").join(missed, on="tool", how="left").fill_null(0)
    bad = of.filter((pl.col("missed") == pl.col("asked")) & (pl.col("asked") >= MIN_REQUIRED)).sort("tool")
    return [
        Finding(
            severity=Severity.MEDIUM,
            claim=f"{name} is required in {count:,} episodes, and none of them calls it",
            observed=0.0,
            limit=0.0,
            unit="share",
            slice=f"tool:{name}",
            evidence={"metric": "trajectories.tools_required", "tool": name, "episodes_asked": count},
            causes=("the tool is not offered, or only under another name", "the agent ends before it gets there"),
            confirm=(f"print the tools of one such episode as the agent sees them: is {name} among them?",),
            next=(f"show the use of {name} in the prompt or in an example, and see whether it is called",),
        )
        for name, count, _ in bad.iter_rows()
    ]


def _made_up(tables: TraceTables, offered: pl.DataFrame) -> list[Finding]:
    """Return calls of tools that are not offered, and that never answered without an error: those that answer exist."""
    known = offered.select("episode", plain_name("tool").alias("plain"))
    told = known.select("episode").unique()
    calls = tables.calls.filter(pl.col("tool").is_not_null()).with_columns(plain_name("tool").alias("plain"))
    calls = calls.join(told, on="episode", how="semi")
    strange = calls.join(known, on=["episode", "plain"], how="anti")
    answered = pl.col("result").is_not_null() & ~pl.col("failed").fill_null(value=False)
    names = strange.group_by("tool").agg(answered.any().alias("answers"), pl.len())
    names = names.filter(~pl.col("answers")).sort("len", "tool", descending=[True, False])
    if names.is_empty():
        return []
    hit = pl.col("tool").is_in(names["tool"].implode()) & pl.col("strange")
    marked = calls.join(
        strange.select("episode", "call", pl.lit(value=True).alias("strange")), on=["episode", "call"], how="left"
    )
    share = tables.call_share(hit.fill_null(value=False), marked)
    serious = share.interval is not None and share.interval[0] >= MADE_UP_SHARE
    listed = ", ".join(names["tool"].head(3))
    return [
        Finding(
            severity=Severity.MEDIUM if serious else Severity.LOW,
            claim=f"{share.hits:,} of {share.trials:,} tool calls name a tool that is not offered: {listed}",
            observed=share.value,
            limit=MADE_UP_SHARE,
            unit="share",
            evidence={
                "metric": "trajectories.tools_offered",
                "hits": share.hits,
                "trials": share.trials,
                "tools": listed,
            },
            causes=("the agent remembers tools of its training", "the prompt names tools that are not offered"),
            confirm=("search the prompt for these names",),
            next=("offer the tool, or take its name out of the prompt", "answer such a call with the names there are"),
        )
    ]


def _under_used(tables: TraceTables, offered: pl.DataFrame) -> list[Finding]:
    """Return tools that few call although those who do succeed more often: a hint, for tasks may differ."""
    labelled = tables.episodes.filter(pl.col("success").is_not_null()).select("episode", "success")
    called = tables.calls.select("episode", "tool").unique().with_columns(pl.lit(value=True).alias("used"))
    rows = offered.join(labelled, on="episode").join(called, on=["episode", "tool"], how="left")
    used = pl.col("used").fill_null(value=False)
    success = pl.col("success").cast(pl.Float64)
    of = rows.group_by("tool").agg(
        used.sum().alias("users"),
        (~used).sum().alias("others"),
        success.filter(used).mean().alias("with"),
        success.filter(~used).mean().alias("without"),
    )
    notes = []
    for row in of.sort("tool").iter_rows(named=True):
        if min(row["users"], row["others"]) < MIN_USERS or row["users"] > RARE_SHARE * (row["users"] + row["others"]):
            continue
        variance = sum(
            row[part] * (1 - row[part]) / row[many] for part, many in (("with", "users"), ("without", "others"))
        )
        gain = row["with"] - row["without"]
        if gain >= GAIN and gain >= Z * math.sqrt(variance):
            notes.append(_under_used_note(row, gain))
    return notes


def _under_used_note(row: dict[str, float | str], gain: float) -> Finding:
    name, users, others = str(row["tool"]), int(row["users"]), int(row["others"])
    return Finding(
        severity=Severity.INFO,
        claim=f"{name} is called in {users:,} of {users + others:,} episodes that are offered it; these succeed in "
        f"{pct(float(row['with']))}, the others in {pct(float(row['without']))}",
        observed=gain,
        limit=GAIN,
        unit="share",
        slice=f"tool:{name}",
        evidence={"metric": "trajectories.tools_offered", "tool": name, "users": users, "others": others},
        causes=("the tool helps, and the agent does not think of it", "the tasks that call for it are easier"),
        confirm=(f"compare attempts at one task with {name} and without it",),
        next=(f"name {name} in the prompt for a third of the episodes, and compare",),
    )


def plain_name(column: str) -> pl.Expr:
    """Return a tool's name in the letters that every interface takes."""
    return pl.col(column).str.replace_all(NAME, "_").str.to_lowercase()
