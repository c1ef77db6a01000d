"""Join the tails of tokens to the episodes that the tokens are of: after which observation each stretch stands.

A sequence is joined by its own name for its sample, its trajectory, or the hash of its token ids. What no sequence
names, and sequences that name nothing, are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.completions import Completions
from ptt.diagnostics.evidence.tail_details import observations_of_tied, tied_samples
from ptt.diagnostics.evidence.tails import TAIL_NATS, add_units
from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.attribution import add_tail_counts
from ptt.diagnostics.statistics.observation_position import FLOOR

MIN_GROUPS: Final = 20  # prompt groups that are resampled: of fewer, the episodes are
BELOW: Final = int(np.searchsorted(bins.coarse_edges(), FLOOR)) - 1  # the bin that stands for all below FLOOR
FIRST: Final = int(np.searchsorted(bins.coarse_edges(), TAIL_NATS))


@dataclass(frozen=True, kw_only=True)
class EpisodeTails:
    """Stretches of tokens of joined episodes.

    rows: `seq`, `trajectory_id`, `unit` (what is resampled: prompt group or episode), `turn` (observations before it),
    `n`, `tail` (of them with |r| at `begins` nats or above), `coarse_bin` and `coarse_n` (tokens below FLOOR are in
    the last bin below it), `tool`, `failed`, `error_type` and `error_text` of the observation before; null where not
    known. Empty where nothing joins.
    """

    pair: str
    begins: float
    sequences: int  # with tokens, joined or not
    joined: int  # of those that are kept one by one
    rows: pl.DataFrame


def gather_episode_tails(tokens: Tokens, completions: Completions) -> EpisodeTails:
    """Join the tails of the main pair to the samples of a store."""
    rows = tokens.single_rows
    tied = _tied(tokens, completions, rows)
    stretches = tokens.tables.stretches.join(tied, on="seq")
    counted = add_tail_counts(stretches, FIRST).with_columns(_whole_histogram())
    known = observations_of_tied(tokens, completions, rows.join(tied, on="seq", how="semi"), tied)
    logged = completions.observations(rows, tied).select("seq", "turn").join(tied, on="seq")
    errors = logged.join(_errors(completions), on=["trajectory_id", "turn"]).drop("trajectory_id")
    counted = (
        counted.join(known, on=["seq", "turn"], how="left", maintain_order="left")
        .join(errors, on=["seq", "turn"], how="left", maintain_order="left")
        .join(_units(tokens, tied), on="seq", how="left", maintain_order="left")
    )
    return EpisodeTails(
        pair=tokens.pairs[0].name,
        begins=float(bins.coarse_edges()[FIRST]),
        sequences=int(tokens.tables.rows["ok"].sum()),
        joined=tied.height,
        rows=counted.drop("distance", "peak", "peak_at"),
    )


def _tied(tokens: Tokens, completions: Completions, rows: pl.DataFrame) -> pl.DataFrame:
    """Return which episode each sequence is of: by the ids it names, else by the hash of its token ids."""
    by_id = tied_samples(tokens, completions, rows)
    if "token_hash" not in tokens.scan.columns:
        return by_id
    hashed = tokens.scan.frame.select("seq", "token_hash").drop_nulls().collect(engine="streaming")
    once = completions.trajectories.drop_nulls("token_hash").filter(pl.len().over("token_hash") == 1)
    by_hash = hashed.join(once.select("token_hash", "trajectory_id"), on="token_hash").drop("token_hash")
    by_hash = by_hash.join(rows, on="seq", how="semi").with_columns(pl.col("seq").cast(by_id.schema["seq"]))
    return pl.concat([by_id, by_hash]).unique("seq", keep="first", maintain_order=True).sort("seq")


def _whole_histogram() -> list[pl.Expr]:
    below = (pl.col("n") - pl.col("coarse_n").list.sum()).cast(pl.UInt32)
    return [
        pl.concat_list(pl.lit(BELOW, pl.UInt8), "coarse_bin").alias("coarse_bin"),
        pl.concat_list(below, "coarse_n").alias("coarse_n"),
    ]


def _errors(completions: Completions) -> pl.DataFrame:
    """Return what the first failed call of each observation said, by trajectory and number of the observation."""
    number = pl.col("turn_idx").rank("dense").over("trajectory_id").cast(pl.UInt32)
    results = completions.calls.filter(pl.col("ok").is_not_null()).with_columns(number.alias("turn"))
    failed = results.filter(~pl.col("ok")).sort("trajectory_id", "turn", "call_idx")
    first = failed.unique(["trajectory_id", "turn"], keep="first", maintain_order=True)
    return first.select("trajectory_id", "turn", "error_type", "error_text")


def _units(tokens: Tokens, tied: pl.DataFrame) -> pl.DataFrame:
    """Return what each joined sequence is resampled with: a batch that is updated on twice has it twice."""
    units, grouped = add_units(tokens.scalars)
    group = tied.select("seq").join(units.select("seq", "unit"), on="seq", how="left", maintain_order="left")
    if grouped and group["unit"].n_unique() >= MIN_GROUPS:
        return group
    return tied.select("seq", pl.col("trajectory_id").rank("dense").alias("unit"))
