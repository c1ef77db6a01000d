"""Count calls, failures and turns by step and by tool."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.evidence.counts import Counts
from ptt.diagnostics.evidence.environment import Environment, Episodes, Tool
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.gathering.answers import alike_answers
from ptt.diagnostics.gathering.calls import calls_in_flight, circles, malformed, repeats

WELL: Final = 0.8  # of the way from the run's lowest reward to its highest (1st and 99th percentile): paid well
USUAL: Final = 0.5  # of a step's trajectories call a tool: then one that does not stands out
MOST_TOOLS: Final = 50  # by calls; a policy that makes names up has no end of them
LAST_PART: Final = 1 / 3  # of the steps, and the first one: the report's early and late


def gather_environment(trajectories: pl.DataFrame, calls: pl.DataFrame, turns: pl.DataFrame) -> Environment | None:
    """Count calls, failures and turns by step and by tool; None where no trajectory of a known step is recorded.

    Trajectories of training count. Where the files do not tell training from evaluation, all do that are not known to
    be of an evaluation. A trajectory counts once, at its own step.
    """
    placed = trajectories.filter(pl.col("step").is_not_null()).unique("trajectory_id", keep="first")
    split = "train" if (placed["split"] == "train").any() else "unknown"
    placed = placed.filter(pl.col("split") == split).sort("step", "trajectory_id")
    if placed.is_empty():
        return None
    mine = _of(calls, placed).sort("step", "trajectory_id", "call_idx")
    said = _of(turns, placed)
    known = mine.filter(pl.col("ok").is_not_null())
    callers = mine.select("trajectory_id").unique().with_columns(pl.lit(value=True).alias("called"))
    who = placed.join(callers, on="trajectory_id", how="left")
    return Environment(
        split=split,
        trajectories=placed.height,
        steps=placed["step"].n_unique(),
        calls=mine.height,
        failures=_counts("tool calls that fail", known, ~pl.col("ok")),
        callers=_counts("trajectories that call a tool", who, pl.col("called").is_not_null()) if mine.height else None,
        tools=_tools(placed, mine),
        malformed=_shares("tool calls that are malformed", malformed(mine)),
        repeated=_shares("tool calls that repeat an earlier one", repeats(mine)),
        recovered=_counts("failed calls that a success follows", _recovery(known), pl.col("recovered")),
        void=_void(said, mine),
        loops=_shares("trajectories that go round in circles", circles(mine)),
        load=calls_in_flight(mine, said),
        episodes=_episodes(placed, said),
        answers=alike_answers(placed, said),
        **_paid(who, known),
    )


def tool_table(trajectories: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Give one row a tool: calls, failures early and late, latency, and how the trajectories that used it ended."""
    split = "train" if (trajectories["split"] == "train").any() else "unknown"
    placed = trajectories.filter((pl.col("split") == split) & pl.col("step").is_not_null())
    placed = placed.unique("trajectory_id", keep="first").sort("step", "trajectory_id")
    steps = placed["step"].unique().sort()
    mine = _of(calls, placed)
    third = max(1, round(LAST_PART * len(steps)))
    early = pl.col("step") <= (steps[third - 1] if len(steps) else 0)
    late = pl.col("step") >= (steps[-third] if len(steps) else 0)
    failed = (~pl.col("ok")).cast(pl.Float64)
    ends = placed.select("trajectory_id", "success", "reward")
    used = mine.select("trajectory_id", "name").unique().join(ends, on="trajectory_id")
    ended = used.group_by("name").agg(
        pl.len().alias("trajectories"),
        pl.col("success").cast(pl.Float64).mean().alias("success"),
        pl.col("reward").fill_nan(None).mean().alias("reward"),
    )
    return (
        mine.filter(pl.col("name").is_not_null())
        .group_by("name")
        .agg(
            pl.len().alias("calls"),
            early.sum().alias("calls_early"),
            late.sum().alias("calls_late"),
            failed.mean().alias("failed"),
            failed.filter(early).mean().alias("failed_early"),
            failed.filter(late).mean().alias("failed_late"),
            pl.col("latency_s").fill_nan(None).quantile(0.5, "nearest").alias("latency_p50"),
            pl.col("latency_s").fill_nan(None).quantile(0.95, "nearest").alias("latency_p95"),
        )
        .join(ended, on="name", how="left")
        .sort("calls", "name", descending=[True, False])
        .head(MOST_TOOLS)
    )


def _of(rows: pl.DataFrame, placed: pl.DataFrame) -> pl.DataFrame:
    """Keep the rows of these trajectories, under the trajectory's own step."""
    own = [name for name in ("step",) if name in rows.columns]
    return rows.drop(own).join(placed.select("trajectory_id", "step"), on="trajectory_id", how="inner")


def _counts(name: str, rows: pl.DataFrame, hit: pl.Expr) -> Counts | None:
    return _shares(name, rows.select("step", hit.alias("hit")))


def _shares(name: str, rows: pl.DataFrame | None) -> Counts | None:
    """Count hits by step; None without a row."""
    if rows is None or rows.is_empty():
        return None
    found = rows.group_by("step").agg(pl.col("hit").sum().cast(pl.Float64), pl.len().alias("of")).sort("step")
    return Counts(
        name=name,
        steps=found["step"].to_numpy(),
        hits=found["hit"].to_numpy(),
        trials=found["of"].cast(pl.Float64).to_numpy(),
    )


def _tools(placed: pl.DataFrame, calls: pl.DataFrame) -> dict[str, Tool]:
    named = calls.filter(pl.col("name").is_not_null())
    most = named.group_by("name").len().sort("len", "name", descending=[True, False]).head(MOST_TOOLS)["name"].to_list()
    of_step = placed.group_by("step").len().sort("step")
    steps, trials = of_step["step"].to_numpy(), of_step["len"].cast(pl.Float64).to_numpy()
    found: dict[str, Tool] = {}
    for name in most:
        rows = named.filter(pl.col("name") == name)
        by_step = rows.group_by("step").agg(pl.len().alias("calls"), pl.col("trajectory_id").n_unique().alias("users"))
        by_step = of_step.join(by_step, on="step", how="left").sort("step").fill_null(0)
        found[name] = Tool(
            name=name,
            calls=Counts(
                name=f"calls of {name} a trajectory",
                steps=steps,
                hits=by_step["calls"].cast(pl.Float64).to_numpy(),
                trials=trials,
            ),
            users=Counts(
                name=f"trajectories that call {name}",
                steps=steps,
                hits=by_step["users"].cast(pl.Float64).to_numpy(),
                trials=trials,
            ),
            failures=_counts(f"calls of {name} that fail", rows.filter(pl.col("ok").is_not_null()), ~pl.col("ok")),
            latency=_latency(name, rows),
        )
    return found


def _latency(name: str, rows: pl.DataFrame) -> dict[str, Series]:
    """Give median and 95th percentile of a tool's seconds by step."""
    timed = rows.filter(pl.col("latency_s").is_finite())
    by_step = (
        timed.group_by("step")
        .agg(
            pl.col("latency_s").quantile(0.5, "nearest").alias("p50"),
            pl.col("latency_s").quantile(0.95, "nearest").alias("p95"),
        )
        .sort("step")
    )
    return {
        part: Series(
            name=f"{part} latency of {name}",
            raw_name="latency_s",
            steps=by_step["step"].to_numpy(),
            values=by_step[part].to_numpy(),
            flags=np.zeros(by_step.height, np.uint8),
        )
        for part in ("p50", "p95")
        if by_step.height
    }


def _recovery(known: pl.DataFrame) -> pl.DataFrame:
    """Tell of each failed call whether a later call of its trajectory succeeds."""
    later = pl.col("ok").cast(pl.UInt8).reverse().cum_max().reverse().shift(-1).over("trajectory_id")
    return known.with_columns((later.fill_null(0) == 1).alias("recovered")).filter(~pl.col("ok"))


def _paid(who: pl.DataFrame, known: pl.DataFrame) -> dict[str, Counts | None]:
    """Look at the trajectories that count as a success: did the last call fail, was there any call at all?"""
    none: dict[str, Counts | None] = {"paid_after_failure": None, "paid_without_call": None}
    rewards = who["reward"].fill_nan(None).drop_nulls()
    low, high = rewards.quantile(0.01), rewards.quantile(0.99)
    well = pl.lit(None, pl.Boolean)
    if low is not None and high is not None and high > low:
        well = pl.col("reward").fill_nan(None) >= low + WELL * (high - low)
    paid = who.with_columns(pl.coalesce("success", well).alias("paid")).filter(pl.col("paid"))
    if paid.is_empty() or not who["called"].any():
        return none
    last = known.group_by("trajectory_id", maintain_order=True).agg(pl.col("ok").last())
    acted = paid.join(last, on="trajectory_id")
    others = who.group_by("step").agg((pl.col("called").count() / pl.len()).alias("calling"))
    usual = others.filter(pl.col("calling") >= USUAL).select("step")  # elsewhere nobody calls, which is another matter
    asked = paid.join(usual, on="step", how="semi")
    return {
        "paid_after_failure": _counts("trajectories paid well after a failed last call", acted, ~pl.col("ok")),
        "paid_without_call": _counts("trajectories paid well without a call", asked, pl.col("called").is_null()),
    }


def _void(turns: pl.DataFrame, calls: pl.DataFrame) -> Counts | None:
    """Count assistant turns with neither text nor call; None where texts or the turns of calls are not recorded."""
    told = turns.filter((pl.col("role") == "assistant") & pl.col("text_len").is_not_null())
    if told.is_empty() or not (told["text_len"] > 0).any():
        return None
    at = calls.select("trajectory_id", "turn_idx").unique().with_columns(pl.lit(value=True).alias("called"))
    joined = told.join(at, on=["trajectory_id", "turn_idx"], how="left")
    if calls.height and not joined["called"].any():
        return None  # this writer numbers calls, not messages
    return _counts("assistant turns that are void", joined, (pl.col("text_len") == 0) & pl.col("called").is_null())


def _episodes(placed: pl.DataFrame, turns: pl.DataFrame) -> Episodes:
    spent = (
        turns.filter((pl.col("role") == "assistant") & pl.col("n_tokens").is_not_null())
        .group_by("trajectory_id")
        .agg(pl.col("n_tokens").sum().alias("tokens"))
    )
    rows = placed.join(spent, on="trajectory_id", how="left").sort("step", "trajectory_id")

    def numbers(column: str) -> pl.Series:
        return rows[column].cast(pl.Float64).fill_null(np.nan)

    return Episodes(
        steps=rows["step"].to_numpy(),
        turns=numbers("n_turns").to_numpy(),
        tokens=numbers("tokens").to_numpy(),
        reward=numbers("reward").to_numpy(),
    )
