"""Model tokens of sampled sequences, laid end to end, with what both sides make of each and what is known of it."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.flat_lists import flatten
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.fill_values import NO_FILLS
from ptt.diagnostics.statistics.pair_sample import without_placeholders

BEFORE: Final = 2  # tokens before an observation that a text tokenised again changes
AFTER: Final = 3
NOTHING: Final = pl.lit(math.nan, pl.Float32)


@dataclass(frozen=True, kw_only=True)
class ScoredTokens:
    """Model tokens of sampled sequences in order, (n,) each; `row` counts the sequences, which the last five are of.

    boundary: within two tokens before an observation or three after one. reference, policy (after updates on the
    batch): NaN where not recorded. ids: of tokens, -1 where unknown. sample: equal for the same text at two steps.
    prompt: equal for samples of one prompt, NaN where unknown, as are rank and lag.
    """

    row: IntArray
    place: IntArray
    trainer: FloatArray
    engine: FloatArray
    reference: FloatArray
    policy: FloatArray
    boundary: BoolArray
    ids: IntArray
    step: IntArray
    sample: IntArray
    prompt: FloatArray
    rank: FloatArray
    lag: FloatArray


def lay_out_scored(rows: pl.DataFrame) -> ScoredTokens:
    """Lay sequences end to end: step, sample, prompt, rank, lag, model_mask and, as long as it, trainer and engine.

    reference, policy and token_ids are left out where they are null or of another length.
    """
    length = pl.col("model_mask").list.len()
    rows = rows.with_columns(
        pl.when(pl.col(name).list.len() == length).then(pl.col(name)).otherwise(nothing.repeat_by(length)).alias(name)
        for name, nothing in (("reference", NOTHING), ("policy", NOTHING), ("token_ids", pl.lit(-1, pl.Int64)))
    )
    offsets, mask = flatten(rows["model_mask"])
    mask = mask.astype(np.bool_)
    row = np.repeat(np.arange(rows.height), np.diff(offsets))
    trainer, engine, reference, policy = (
        without_placeholders(flatten(rows[name])[1].astype(np.float64), NO_FILLS)
        for name in ("trainer", "engine", "reference", "policy")
    )
    chosen = mask & np.isfinite(trainer) & np.isfinite(engine)
    step, sample = (rows[name].to_numpy().astype(np.int64) for name in ("step", "sample"))
    prompt, rank, lag = (
        rows[name].cast(pl.Float64).fill_null(math.nan).to_numpy() for name in ("prompt", "rank", "lag")
    )
    return ScoredTokens(
        row=row[chosen],
        place=(np.arange(len(row)) - offsets[row])[chosen],
        trainer=trainer[chosen],
        engine=engine[chosen],
        reference=reference[chosen],
        policy=policy[chosen],
        boundary=_boundaries(mask, row)[chosen],
        ids=flatten(rows["token_ids"])[1].astype(np.int64)[chosen],
        step=step,
        sample=sample,
        prompt=prompt,
        rank=rank,
        lag=lag,
    )


def _boundaries(mask: BoolArray, row: IntArray) -> BoolArray:
    """Mark tokens within BEFORE of the next observation of their sequence, or AFTER of the last."""
    near = np.zeros(len(mask), np.bool_)
    for distance in range(1, max(BEFORE, AFTER) + 1):
        beside = row[distance:] == row[:-distance]
        if distance <= AFTER:
            near[distance:] |= beside & ~mask[:-distance]
        if distance <= BEFORE:
            near[:-distance] |= beside & ~mask[distance:]
    return near & mask
