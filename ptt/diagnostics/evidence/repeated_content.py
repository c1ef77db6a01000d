"""Which sequences repeat another's tokens, whatever their ids: a batch recorded at several steps, or for two prompts.

Sequences are alike where the sums of the token pass over them are, to the last bit: lengths, sums and extremes of r.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.validity import Extent, measure_extent
from ptt.diagnostics.statistics.fault_since import FaultSpan, fault_span, weigh_counts

SUMS: Final = ("s_r", "s_inv", "min_r", "max_r")
MIN_TOKENS: Final = 8  # of the policy's: fewer may be the same by chance
USUAL_RATE: Final = 0.02  # of a step's sequences, where batches are new
REPEATED_RATE: Final = 0.5  # and where they are not
MIN_STEPS: Final = 3
MIN_COPIES: Final = 16
MIX: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, kw_only=True)
class Copies:
    """The stretch of steps at which most sequences repeat others, and these sequences."""

    span: FaultSpan
    extent: Extent
    share: float  # of the sequences of the stretch
    of_steps: bool  # they repeat those of earlier steps; else of other prompts at the same step


def find_copies(tokens: Tokens) -> Copies | None:
    """Return the steps whose sequences are mostly copies; None where there are none.

    Copies within a prompt group are what a sure policy gives. Those of earlier steps count where the policy's logprobs
    are recorded: it has moved since, while an old policy scores the rollouts of several steps once.
    """
    known = _contents(tokens)
    if known.is_empty():
        return None
    found = []
    if tokens.pairs[0].numerator == "policy_logp":
        earlier = known["step"] > known.select(pl.col("step").min().over("content")).to_series()
        found.append(_stretch(tokens, known, earlier, of_steps=True))
    if "group_id" in known.columns:
        groups = known.select(pl.col("group_id").n_unique().over("step", "content")).to_series()
        later = known.select(~pl.struct("step", "content").is_first_distinct()).to_series()
        found.append(_stretch(tokens, known, (groups > 1) & later, of_steps=False))
    return next((one for one in found if one is not None), None)


def _contents(tokens: Tokens) -> pl.DataFrame:
    """Return seq, step and content of the sequences long enough, with any r but 0; and their prompt group if known."""
    sequences = tokens.tables.sequences
    mark = _mixed(sequences["n"].to_numpy().astype(np.uint64) * np.uint64(2) + sequences["slice"].to_numpy())
    for name in SUMS:
        mark = _mixed(mark ^ np.ascontiguousarray(sequences[name].to_numpy()).view(np.uint64))
    table = sequences.select("seq", "step", pl.col("n").cast(pl.Int64), "min_r", "max_r").with_columns(
        pl.Series("content", mark)
    )
    table = table.group_by("seq", "step").agg(
        pl.col("n").sum(),
        pl.col("content").sum(),
        (pl.col("max_r") > pl.col("min_r")).any().alias("varies"),
    )
    table = table.filter((pl.col("n") >= MIN_TOKENS) & pl.col("varies")).select("seq", "step", "content").sort("seq")
    if "group_id" in tokens.scan.columns:
        groups = tokens.scalars.select("seq", "group_id").drop_nulls()
        table = table.join(groups, on="seq", how="inner", maintain_order="left")
    return table


def _mixed(number: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    mixed = number * MIX
    return mixed ^ (mixed >> np.uint64(29))


def _stretch(tokens: Tokens, known: pl.DataFrame, copied: pl.Series, *, of_steps: bool) -> Copies | None:
    if copied.sum() < MIN_COPIES:
        return None
    step, hit = known["step"].to_numpy(), copied.to_numpy()
    steps, place = np.unique(step, return_inverse=True)
    hits = np.bincount(place, weights=hit).astype(np.float64)
    trials = np.bincount(place).astype(np.float64)
    span = fault_span(steps, weigh_counts(hits, trials, USUAL_RATE, REPEATED_RATE))
    if span is None:
        return None
    inside = span.holds(step)
    share = float(hit[inside].mean())
    if span.holds(steps).sum() < MIN_STEPS or share < REPEATED_RATE or hit[inside].sum() < MIN_COPIES:
        return None
    rows = tokens.sound_rows.filter(pl.col("seq").is_in(known["seq"].filter(pl.Series(inside & hit)).implode()))
    return Copies(span=span, extent=measure_extent(tokens, rows), share=share, of_steps=of_steps)
