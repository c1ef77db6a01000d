"""Measure how alike the last answers of a step are, across prompts and within one."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from ptt.diagnostics.evidence.environment import Answers
from ptt.diagnostics.evidence.series import FloatArray, IntArray, Series

LEAST_PAIRS: Final = 10  # of a step: with fewer, one coincidence is a tenth of it
LATE: Final = 1 / 3  # of the steps


def alike_answers(placed: pl.DataFrame, turns: pl.DataFrame) -> Answers | None:
    """Give the share of equal pairs among the last answers of a step; None where texts or prompts are not recorded.

    An answer is the text of the last assistant turn that has any. Pairs are counted, not drawn.
    """
    last = (
        turns.filter((pl.col("role") == "assistant") & (pl.col("text_len") > 0) & pl.col("text_hash").is_not_null())
        .sort("turn_idx")
        .group_by("trajectory_id")
        .agg(pl.col("text_hash").last(), pl.col("text_len").last())
    )
    rows = placed.select("trajectory_id", "step", "prompt_hash").filter(pl.col("prompt_hash").is_not_null())
    rows = rows.join(last, on="trajectory_id").sort("step", "trajectory_id")
    if rows.is_empty():
        return None
    by_step = rows.group_by("step").agg(pl.len().alias("all")).sort("step")
    parts = {"all": by_step["all"].to_numpy().astype(np.float64)}
    parts["all"] = parts["all"] * (parts["all"] - 1) / 2
    for name, key in (("equal", ["text_hash"]), ("prompt", ["prompt_hash"]), ("both", ["prompt_hash", "text_hash"])):
        sizes = rows.group_by("step", *key).len().with_columns(pl.col("len").cast(pl.Float64))
        pairs = sizes.group_by("step").agg((pl.col("len") * (pl.col("len") - 1) / 2).sum().alias(name))
        parts[name] = by_step.join(pairs, on="step", how="left").sort("step")[name].to_numpy()
    steps = by_step["step"].to_numpy()
    across = _series(
        "answers alike across prompts", steps, parts["equal"] - parts["both"], parts["all"] - parts["prompt"]
    )
    within = _series("answers alike within a prompt", steps, parts["both"], parts["prompt"])
    if across is None:
        return None
    late = rows.filter(pl.col("step") > steps[max(0, int(len(steps) * (1 - LATE)) - 1)])
    late = late if late.height else rows
    texts = late.group_by("text_hash").agg(pl.len(), pl.col("trajectory_id").min(), pl.col("text_len").first())
    top: dict[str, Any] = texts.sort("len", "text_hash", descending=[True, False]).row(0, named=True)
    return Answers(
        across=across,
        within=within,
        example=top["trajectory_id"],
        commonest=top["len"] / late.height,
        length=top["text_len"],
    )


def _series(name: str, steps: IntArray, hits: FloatArray, pairs: FloatArray) -> Series | None:
    enough = pairs >= LEAST_PAIRS
    if not enough.any():
        return None
    return Series(
        name=name,
        raw_name="text_hash",
        steps=steps[enough],
        values=hits[enough] / pairs[enough],
        flags=np.zeros(int(enough.sum()), np.uint8),
    )
