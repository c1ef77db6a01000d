"""Pick the samples a person should read: those with the highest and the lowest reward, and some at random."""

from __future__ import annotations

from typing import Final

import polars as pl

EACH: Final = 8  # samples of a kind: a few minutes' reading
LATEST: Final = 512  # samples that count as the latest; all of the last step where it has more
SEED: Final = 20_260_128
SCHEMA: Final[dict[str, pl.DataType]] = {
    "kind": pl.String(),  # highest | lowest | random
    "step": pl.Int64(),
    "trajectory_id": pl.String(),
    "reward": pl.Float64(),
    "length": pl.Int64(),
    "length_unit": pl.String(),  # tokens | characters
    "calls": pl.Int64(),
    "source": pl.String(),
}


def audit_table(trajectories: pl.DataFrame, turns: pl.DataFrame) -> pl.DataFrame:
    """Give the samples of the latest steps to be read: highest, lowest and random rewards, the latest first.

    A sample stands there once: the random ones are drawn, with a fixed seed, from those that are left.
    """
    known = trajectories.filter(pl.col("reward").is_finite() & (pl.col("split") != "eval"))
    sure = known.filter(pl.col("split") == "train")
    known = (sure if sure.height else known).unique("trajectory_id", keep="first", maintain_order=True)
    known = known.sort("step", "source", "trajectory_id", descending=[True, False, False], nulls_last=True)
    if known.is_empty():
        return pl.DataFrame(schema=SCHEMA)
    of_last = (pl.col("step") == pl.col("step").first()).fill_null(value=False)
    latest = known.filter((pl.int_range(pl.len()) < LATEST) | of_last)
    picked = _picked(latest)
    lengths = _lengths(turns.join(picked.select("trajectory_id"), on="trajectory_id", how="semi"))
    rows = picked.join(lengths, on="trajectory_id", how="left", maintain_order="left")
    return rows.with_columns(pl.col("n_tool_calls").alias("calls")).select(
        pl.col(name).cast(kind) for name, kind in SCHEMA.items()
    )


def _picked(latest: pl.DataFrame) -> pl.DataFrame:
    ranked = latest.sort("reward", "step", "trajectory_id", descending=[True, True, False])
    count = min(EACH, ranked.height // 3) or 1
    highest = ranked.head(count)
    lowest = ranked.slice(max(count, ranked.height - count)).reverse()
    left = ranked.slice(count, max(0, ranked.height - 2 * count)).sort("trajectory_id")
    drawn = left.sample(min(count, left.height), seed=SEED, shuffle=True)
    named = (("highest", highest), ("lowest", lowest), ("random", drawn))
    return pl.concat([part.with_columns(pl.lit(kind).alias("kind")) for kind, part in named])


def _lengths(turns: pl.DataFrame) -> pl.DataFrame:
    """Give how much the policy wrote: tokens where every turn of its own has them, else characters."""
    own = turns.filter(pl.col("role") == "assistant")
    counted = own.group_by("trajectory_id").agg(
        pl.col("n_tokens").sum().cast(pl.Int64).alias("tokens"),
        pl.col("n_tokens").is_not_null().all().alias("whole"),
        pl.col("text_len").sum().cast(pl.Int64).alias("characters"),
    )
    return counted.select(
        "trajectory_id",
        pl.when("whole").then("tokens").otherwise("characters").alias("length"),
        pl.when("whole").then(pl.lit("tokens")).otherwise(pl.lit("characters")).alias("length_unit"),
    )
