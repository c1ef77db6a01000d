"""Empirical distribution functions of |r| per window and slice, exact at bin edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.statistics import bins

POINTS_PER_OCTAVE: Final = 8
_STRIDE = bins.PER_OCTAVE // POINTS_PER_OCTAVE


def ecdf(cells: pl.DataFrame, *, by: Sequence[str]) -> pl.DataFrame:
    """Give P(|r| < x) at 8 edges an octave, from the first edge with a token below it to the last with one above."""
    counts = cells.group_by(*by, "bin").agg(pl.col("n").cast(pl.Int64).sum()).sort(*by, "bin")
    frames = []
    for group in counts.partition_by(*by, maintain_order=True, include_key=True):
        index = group["bin"].to_numpy().astype(np.int64)
        held = np.cumsum(group["n"].to_numpy())
        first = max(1, (int(index[0]) - 1) // _STRIDE * _STRIDE + 1)
        edges = np.arange(first, min(int(index[-1]) + 2 * _STRIDE, bins.OVERFLOW + 1), _STRIDE)
        below = np.searchsorted(index, edges, side="left")  # cells whose bin lies wholly below the edge
        cdf = np.where(below > 0, held[np.maximum(below, 1) - 1], 0) / held[-1]
        frames.append(
            pl.DataFrame({"x": bins.lower_edge(edges), "cdf": cdf}).with_columns(
                *(pl.lit(group[name][0], group.schema[name]).alias(name) for name in by),
                pl.lit(int(held[-1])).alias("n_tokens"),
            )
        )
    schema = pl.Schema({name: counts.schema[name] for name in by})
    schema.update({"x": pl.Float64(), "cdf": pl.Float64(), "n_tokens": pl.Int64()})
    return pl.concat(frames).select(list(schema)) if frames else pl.DataFrame(schema=schema)
