"""Read tool calls from recorder files: `tool_names` and `tool_failed` as rows of samples and of calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import polars as pl

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.environment import Environment
from ptt.diagnostics.schema import TOOL_CALLS, TRAJECTORIES
from ptt.diagnostics.statistics.cells import conform

PARALLEL: Final = "+"  # between the names of calls whose results stand side by side, with or without spaces
OF_CALLS: Final = frozenset({"calls", "failures", "tools", "recovered"})
"""Of an environment: what a list of names and outcomes tells. That a sample has no call need not be so: a result at
its very end is no observation, so nothing is counted of samples without one."""
CONTENT: Final = ("length", "n_model", "n_obs", "tool_names", "reward")


def recorded_calls(tokens: Tokens | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return samples and their tool calls (TRAJECTORIES, TOOL_CALLS); empty where no tool is named.

    A sample that several steps train on counts once, at the first. Where samples are numbered anew at each step (one
    name, unlike contents), so is what a name stands for. Where one of several parallel calls failed, it is not known
    which: each is a call of its tool without an outcome, and the failure is one call without a name.
    """
    nothing = pl.DataFrame(schema=TRAJECTORIES), pl.DataFrame(schema=TOOL_CALLS)
    if tokens is None or "tool_names" not in tokens.scan.columns:
        return nothing
    shapes = tokens.sound_rows.select("seq", "step", "length", "n_model", "n_obs")
    named = shapes.join(tokens.scalars, on="seq").filter(pl.col("tool_names").is_not_null()).sort("step", "seq")
    if named.is_empty():
        return nothing
    samples = distinct_samples(named)
    trajectories = samples.unique("trajectory_id", keep="first", maintain_order=True)
    trajectories = trajectories.with_columns(pl.lit("unknown").alias("split"))
    return conform(trajectories, TRAJECTORIES), _calls(samples)


def with_recorded(logged: Environment | None, recorded: Environment | None) -> Environment | None:
    """Return what logged samples tell, and of calls what recorder files do where samples have no call's outcome."""
    if recorded is None or not recorded.calls:
        return logged
    of_calls = {name: getattr(recorded, name) for name in sorted(OF_CALLS)} | {"from_recorder": True}
    if logged is None:
        unlisted = Environment(
            split=recorded.split, trajectories=recorded.trajectories, steps=recorded.steps, calls=recorded.calls
        )
        return replace(unlisted, **of_calls)
    return logged if logged.failures is not None else replace(logged, **of_calls)


def distinct_samples(named: pl.DataFrame) -> pl.DataFrame:
    """Keep each sample's first row, under a name of its own in `trajectory_id`."""
    content = [name for name in CONTENT if name in named.columns]
    ids = [name for name in ("trajectory_id", "sample_id") if name in named.columns]
    known = pl.any_horizontal(pl.col(name).is_not_null() for name in ids) if ids else pl.lit(value=False)
    place = ["step", "rank"] if "rank" in named.columns else ["step"]
    identified = named.filter(known)
    shapes = identified.group_by(ids).agg(pl.struct(content).n_unique() > 1) if ids else identified
    anew = bool(ids and shapes.height and shapes[content[0]].any())
    key = [*ids, *(place if anew else ()), *content]
    first = pl.concat(
        [identified.unique(key, keep="first", maintain_order=True), named.filter(~known)], how="vertical"
    ).sort("step", "seq")
    trajectory = pl.col("trajectory_id") if "trajectory_id" in ids and not anew else pl.lit(None, pl.String)
    return first.with_columns(pl.coalesce(trajectory, pl.format("{}", "seq")).alias("trajectory_id"))


def _calls(samples: pl.DataFrame) -> pl.DataFrame:
    """Return one row a call, in their order."""
    failed = pl.col("tool_failed") if "tool_failed" in samples.columns else pl.lit(None, pl.List(pl.Boolean))
    fits = failed.list.len() == pl.col("tool_names").list.len()
    unknown = pl.col("tool_names").list.eval(pl.lit(None, pl.Boolean))
    seen = samples.select(
        "trajectory_id",
        "step",
        pl.col("tool_names").alias("name"),
        pl.when(fits).then(failed).otherwise(unknown).alias("failed"),
    )
    seen = seen.filter(pl.col("name").list.len() > 0).explode("name", "failed")
    seen = seen.with_columns(pl.int_range(pl.len(), dtype=pl.Int32).over("trajectory_id").alias("turn_idx"))
    apart = seen.with_columns(pl.col("name").str.split(PARALLEL)).explode("name")
    apart = apart.with_columns(pl.col("name").str.strip_chars(), pl.len().over("trajectory_id", "turn_idx") > 1)
    unclear = pl.col("len") & pl.col("failed").fill_null(value=False)
    parts = [
        apart.with_columns(pl.when(unclear).then(None).otherwise("failed").alias("failed")),
        apart.filter(unclear)
        .unique(["trajectory_id", "turn_idx"], keep="first", maintain_order=True)
        .with_columns(pl.lit(None, pl.String).alias("name")),
    ]
    rows = pl.concat(parts).sort("step", "trajectory_id", "turn_idx", maintain_order=True)
    number = pl.int_range(pl.len(), dtype=pl.Int32).over("trajectory_id")
    rows = rows.with_columns(
        number.alias("call_idx"),
        (~pl.col("failed")).alias("ok"),
        pl.when(pl.col("failed").is_null()).then(pl.lit("unknown")).otherwise(pl.lit("flag")).alias("ok_source"),
    )
    return conform(rows, TOOL_CALLS)
