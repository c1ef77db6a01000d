"""Put by step how far the lengths of sampled answers scatter, and whether the longer of two earns more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.evidence.series import Series, finite_series
from ptt.diagnostics.statistics.arrays import FloatArray

MIN_ANSWERS: Final = 8  # of a step: the spread of fewer is chance
MIN_PAIRS: Final = 8  # of a step, of unlike length and reward
MAX_GROUP: Final = 64  # answers to one prompt that are compared: two thousand pairs
MAX_PROMPTS: Final = 32  # of a step: enough for its mean
BLOCK: Final = 5  # changes from step to step that make one value: a sign alone is no level


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """How long sampled answers are, in letters."""

    spread: Series | None = None  # standard deviation over mean, by step
    paid: Series | None = None  # pairs in which the longer earns more, less the others, over both; by step


def gather_lengths(trajectories: pl.DataFrame, turns: pl.DataFrame) -> Lengths | None:
    """Measure the lengths of what the policy said in training; None where no text is recorded."""
    said = turns.filter((pl.col("role") == "assistant") & pl.col("text_len").is_not_null())
    said = said.group_by("trajectory_id").agg(pl.col("text_len").sum().cast(pl.Float64).alias("length"))
    placed = trajectories.filter(pl.col("step").is_not_null())
    placed = placed.unique("trajectory_id", keep="first", maintain_order=True)  # the last digits of a spread go by it
    split = "train" if (placed["split"] == "train").any() else "unknown"
    placed = placed.filter(pl.col("split") == split)
    rows = placed.join(said, on="trajectory_id", maintain_order="left").filter(pl.col("length") > 0)
    if rows.is_empty():
        return None
    by_step = rows.group_by("step").agg(
        pl.len().alias("n"), (pl.col("length").std() / pl.col("length").mean()).alias("spread")
    )
    by_step = by_step.filter(pl.col("n") >= MIN_ANSWERS).sort("step")
    spread = finite_series("spread of lengths", by_step["step"].to_numpy(), by_step["spread"].to_numpy(),
                           raw_name="text_len")  # fmt: skip
    return Lengths(spread=spread if by_step.height else None, paid=_paid(rows))


def _paid(rows: pl.DataFrame) -> Series | None:
    """Return Kendall's tau of length and reward within prompts, of the pairs that differ in both, by step."""
    scored = rows.filter(pl.col("reward").is_finite() & pl.col("prompt_hash").is_not_null())
    scored = scored.sort("step", "prompt_hash", "trajectory_id").select("step", "prompt_hash", "length", "reward")
    scored = scored.filter(pl.col("prompt_hash").rank("dense").over("step") <= MAX_PROMPTS)
    sums: dict[int, list[int]] = {}
    for part in scored.partition_by("step", "prompt_hash", maintain_order=True):
        length, reward = (part[name].to_numpy()[:MAX_GROUP] for name in ("length", "reward"))
        signs = np.sign(length[:, None] - length) * np.sign(reward[:, None] - reward)
        total = sums.setdefault(int(part["step"][0]), [0, 0])
        total[0] += int(signs.sum()) // 2
        total[1] += int(np.abs(signs).sum()) // 2
    known = {step: agree / pairs for step, (agree, pairs) in sums.items() if pairs >= MIN_PAIRS}
    if not known:
        return None
    return finite_series("agreement of length and reward", np.array(list(known), np.int64),
                         np.array(list(known.values())), raw_name="text_len")  # fmt: skip


def agreement_by_block(one: Series, two: Series) -> Series | None:
    """Return how often two series change in one direction, less how often not, by blocks of five changes.

    Changes from one step to the next, so that what both do over the run is no agreement.
    """
    steps, places, others = np.intersect1d(one.finite()[0], two.finite()[0], return_indices=True)
    changes: list[FloatArray] = [
        np.sign(np.diff(series.finite()[1][at])) for series, at in ((one, places), (two, others))
    ]
    count = (len(steps) - 1) // BLOCK
    if count < 1:
        return None
    signs = (changes[0] * changes[1])[: count * BLOCK].reshape(count, BLOCK)
    return finite_series("agreement of length and reward", steps[BLOCK : count * BLOCK + 1 : BLOCK],
                         signs.mean(axis=1), raw_name=one.raw_name)  # fmt: skip
