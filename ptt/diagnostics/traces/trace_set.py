"""Count what traces hold: episodes, turns, calls, errors, rewards, and how many are labelled."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import polars as pl

from ptt.diagnostics.schema import TABLES
from ptt.diagnostics.traces.model import EPISODE, TraceSet

STEP: Final = "step"
GUESSED: Final = "heuristic"
UNTOLD: Final = "unknown"  # where nothing said whether a call failed
FAILED: Final = pl.col("ok") == False  # noqa: E712  # an expression
KNOWN: Final = pl.col("ok").is_not_null() & (FAILED | (pl.col("ok_source") != UNTOLD))
"""Calls whose outcome the file tells: one without a mark of failure is no success."""


def scan_table(store: Path, table: str) -> pl.LazyFrame:
    """Return a table of a store as a lazy frame; without rows where nothing was found for it."""
    return pl.concat(table_parts(store, table))


def table_parts(store: Path, table: str) -> list[pl.LazyFrame]:
    """Return the parts of a table of a store, one at least; a part of no rows where nothing was found for it."""
    parts = sorted((store / table).glob("part-*.parquet"))
    found = [pl.scan_parquet(part, glob=False, hive_partitioning=False) for part in parts]
    return found or [pl.LazyFrame(schema=TABLES[table])]


def parsers_of_sources(store: Path) -> pl.DataFrame:
    """Return the parser that read each file."""
    kinds = scan_table(store, "sources") if (store / "sources").is_dir() else pl.scan_parquet(store / "sources.parquet")
    return kinds.select("path", "kind").collect()


def count_traces(store: Path, name: str) -> TraceSet:
    """Count what the tables of a store hold; None for what no file tells."""
    episodes = scan_table(store, "trajectories")
    of_source = parsers_of_sources(store).lazy().rename({"path": "source"})
    of_kind = episodes.group_by("source").len().join(of_source, on="source", how="left").group_by("kind")
    cost = pl.col("cost_usd").filter(pl.col("cost_usd").is_finite())
    totals = episodes.select(
        pl.len().alias("episodes"),
        pl.col("success").count().alias("labelled"),
        pl.col("n_turns").sum().alias("turns"),
        pl.col("n_turns").count().alias("with_turns"),
        pl.col("n_tool_calls").sum().alias("calls"),
        pl.col("n_tool_calls").count().alias("with_calls"),
        pl.col("n_tool_fail").sum().alias("errors"),
        pl.col("reward").fill_nan(None).mean().alias("reward"),
        pl.col("reward").fill_nan(None).count().alias("rewarded"),
        cost.sum().alias("cost_usd"),
        cost.count().alias("costed"),
        pl.col("step").count().alias("with_step"),
        pl.col("step").min().alias("first"),
        pl.col("step").max().alias("last"),
        pl.col("task").n_unique().alias("tasks"),
        pl.col("task").count().alias("with_task"),
    )
    callers = episodes.filter(pl.col("n_tool_calls") > 0).select(
        "trajectory_id"
    )  # not those that write actions as text
    told = KNOWN & (pl.col("ok_source") != GUESSED)
    calls = (
        scan_table(store, "tool_calls")
        .select("trajectory_id", "name", told.alias("told"))
        .join(callers, on="trajectory_id", how="semi")
        .select(pl.col("name").drop_nulls().n_unique().alias("tools"), pl.col("told").sum())
    )
    sums, counted, formats = pl.collect_all([totals, calls, of_kind.agg(pl.col("len").sum()).sort("kind")])
    row, of_calls = sums.row(0, named=True), counted.row(0, named=True)
    return TraceSet(
        name=name,
        kinds={str(kind): int(count) for kind, count in formats.iter_rows()},
        assistant_turns=row["turns"] if row["with_turns"] else None,
        tool_calls=row["calls"] if row["with_calls"] else None,
        tool_errors=row["errors"] if of_calls["told"] or row["errors"] else None,
        reward_mean=row["reward"],
        cost_usd=row["cost_usd"] if row["costed"] else None,
        distinct_tools=of_calls["tools"] if row["with_calls"] else None,
        **_placed(row),
        **{key: row[key] for key in ("episodes", "labelled", "rewarded", "costed")},
    )


def _placed(row: dict[str, Any]) -> dict[str, Any]:
    """Return by what the episodes are ordered, and the ends of that order."""
    stepped = row["episodes"] and row["with_step"] == row["episodes"]
    order = {"order": STEP, "first": row["first"], "last": row["last"]}
    by_number = {"order": EPISODE, "first": 1 if row["episodes"] else None, "last": row["episodes"] or None}
    return (order if stepped else by_number) | {"tasks": row["tasks"] if row["with_task"] else None}
