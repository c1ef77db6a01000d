"""Read single rewards from recorder files: `reward`, `rewards` and `advantage` as rows of samples and of components."""

from __future__ import annotations

import polars as pl

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.recorded_calls import distinct_samples
from ptt.diagnostics.evidence.validity import file_names
from ptt.diagnostics.schema import ADVANTAGE, COMPONENT, REWARDS, TRAJECTORIES
from ptt.diagnostics.statistics.cells import conform


def recorded_rewards(tokens: Tokens | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return samples with what they earned (TRAJECTORIES) and its components (REWARDS); empty where neither is kept.

    A sample that several steps train on counts once, at the first.
    """
    nothing = pl.DataFrame(schema=TRAJECTORIES), pl.DataFrame(schema=REWARDS)
    if tokens is None:
        return nothing
    components = sorted(name for name in tokens.scalars.columns if name.startswith(COMPONENT))
    earned = [name for name in ("reward", ADVANTAGE) if name in tokens.scalars.columns] + components
    if not earned:
        return nothing
    rows = tokens.sound_rows.select("seq", "step", "length", "n_model", "n_obs").join(tokens.scalars, on="seq")
    rows = rows.filter(pl.any_horizontal(pl.col(name).is_finite() for name in earned)).sort("step", "seq")
    if rows.is_empty():
        return nothing
    samples = distinct_samples(rows).unique("trajectory_id", keep="first", maintain_order=True)
    samples = samples.with_columns(
        pl.lit("train").alias("split"),
        file_names(tokens, samples["seq"]).alias("source"),
        pl.col(ADVANTAGE).alias("advantage") if ADVANTAGE in samples.columns else pl.lit(None).alias("advantage"),
    )
    parts = samples.select("trajectory_id", *components).unpivot(
        components, index="trajectory_id", variable_name="name", value_name="score"
    )
    parts = parts.filter(pl.col("score").is_finite()).with_columns(pl.col("name").str.strip_prefix(COMPONENT))
    return conform(samples, TRAJECTORIES), conform(parts, REWARDS)


def with_recorded_rewards(
    trajectories: pl.DataFrame, rewards: pl.DataFrame, recorded: tuple[pl.DataFrame, pl.DataFrame]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the samples and components that single rewards are taken from: of recorder files where no others are."""
    trained = trajectories.filter(pl.col("split") != "eval")
    told = pl.col("reward").is_finite() | pl.col("advantage").is_finite() | pl.col("success").is_not_null()
    own = rewards.height or trained.filter(told).height
    return (trajectories, rewards) if own or recorded[0].is_empty() else recorded
