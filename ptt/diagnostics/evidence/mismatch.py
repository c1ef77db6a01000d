"""Measure how trainer and engine differ token by token, in the sequences that were kept whole."""

from __future__ import annotations

from typing import Final

import polars as pl

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.statistics.mismatch_shape import MismatchShape, mismatch_shape
from ptt.diagnostics.statistics.slices import MIN_OBSERVATION
from ptt.diagnostics.statistics.staleness import add_lags

PAIRS: Final = ("old/rollout", "policy/rollout")  # the former has no update of the policy in it


def gather_mismatch(tokens: Tokens | None, *, post_name: str) -> MismatchShape | None:
    """Return the shape of the differences, of the better pair that is recorded; None where neither is."""
    if tokens is None:
        return None
    recorded = {pair.name: pair for pair in tokens.pairs}
    pair = next((recorded[name] for name in PAIRS if name in recorded), None)
    if pair is None:
        return None
    lags = pl.DataFrame(schema={"seq": pl.UInt32(), "lag": pl.Int64()})
    if "policy_version" in tokens.scan.columns:
        rows = tokens.tables.rows.filter("ok").select("seq", "step")
        lags = add_lags(rows.join(tokens.scalars.select("seq", "policy_version"), on="seq", how="left"))[0]
    return mismatch_shape(
        tokens.tables.samples,
        numerator=pair.numerator,
        denominator=pair.denominator,
        pair=pair.name,
        min_observation=1 if post_name == "post_tool" else MIN_OBSERVATION,
        lags=lags.select("seq", "lag"),
    )
