"""When tools fail: their failed calls over the order of the episodes, and the first sample in which each fails."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.traces.tables import TraceTables

MAX_TOOLS: Final = 16  # those with most failed calls: a chart of more is not read


def failing_tools(tables: TraceTables, blocks: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return `failing_tools`, the tools that fail, and `failures_over_order`: their calls by block of `over_order`."""
    made = tables.calls.filter(pl.col("counted").is_not_null() & ~pl.col("malformed").fill_null(value=False))
    failures = pl.col("counted").sum().cast(pl.Int64).alias("failures")
    known = pl.len().cast(pl.Int64).alias("known")
    most = made.group_by("tool").agg(known, failures).filter(pl.col("failures") > 0)
    most = most.sort("failures", "tool", descending=[True, False]).head(MAX_TOOLS)
    if most.is_empty():
        return {}
    of = made.select("episode", "tool", "counted").join(most.select("tool"), on="tool", nulls_equal=True)
    place = tables.episodes["place"].to_numpy()[of["episode"].to_numpy()]
    at = np.minimum(np.searchsorted(blocks["last"].to_numpy(), place), blocks.height - 1)
    numbered = of.with_columns(pl.Series("block", blocks["block"].to_numpy()[at]))
    over = numbered.group_by("tool", "block").agg(known, failures).sort("tool", "block")
    first = of.filter("counted").sort("episode").unique("tool", keep="first", maintain_order=True)
    names = tables.episodes.select("episode", first_episode="name", first_place="place")
    first = first.join(names, on="episode").select("tool", "first_episode", "first_place")
    return {
        "failing_tools": most.join(first, on="tool", how="left", nulls_equal=True, maintain_order="left"),
        "failures_over_order": over.join(blocks.select("block", "first", "last"), on="block", maintain_order="left"),
    }
