"""Whether sequences of one run were sampled or scored at different temperatures."""

from __future__ import annotations

from typing import Final

import polars as pl

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.records import MixedColumn, MixedPair
from ptt.diagnostics.gathering.extent import extent_of
from ptt.diagnostics.statistics.mixture import mixture

DECIMALS: Final = 6  # of a temperature: what differs less was written by different programs, not set differently


def mixed_column(tokens: Tokens, rows: pl.DataFrame) -> MixedColumn | None:
    """Give the steps at which the recorded temperature differs between sequences; None where it never does."""
    if "temperature" not in tokens.scan.columns:
        return None
    known = tokens.scalars.select("seq", pl.col("temperature").round(DECIMALS)).filter(
        pl.col("temperature").is_finite()
    )
    table = rows.join(known, on="seq", how="inner", maintain_order="left")
    if table["temperature"].n_unique() < 2:
        return None
    usual = table["temperature"].value_counts().sort("count", "temperature", descending=[True, False])["temperature"][0]
    mixed = table.filter(pl.col("temperature").n_unique().over("step") > 1)
    if mixed.is_empty():
        return None
    odd = mixed.filter(pl.col("temperature") != usual)
    return MixedColumn(
        temperatures=tuple(mixed["temperature"].unique().sort().to_list()),
        steps=mixed["step"].n_unique(),
        share=odd.height / mixed.height,
        extent=extent_of(tokens, odd),
    )


def mixed_pairs(tokens: Tokens, rows: pl.DataFrame) -> dict[str, MixedPair]:
    """Sort the sampled sequences of each pair into scaled and plain."""
    samples = tokens.tables.samples
    found = {}
    for pair in tokens.pairs:
        drift = pair.denominator == "ref_logp"
        kinds = mixture(samples, numerator=pair.numerator, denominator=pair.denominator, drift=drift)
        if kinds is not None:
            scaled = rows.filter(pl.col("seq").is_in(kinds.scaled_seqs))
            found[pair.name] = MixedPair(mixture=kinds, sampled=samples.height, extent=extent_of(tokens, scaled))
    return found
