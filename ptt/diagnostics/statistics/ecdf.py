"""Empirical distribution functions of |r| per window and slice, exact at bin edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.cells import merge_cells

POINTS_PER_OCTAVE: Final = 8
_STRIDE = bins.PER_OCTAVE // POINTS_PER_OCTAVE


def ecdf(cells: pl.DataFrame, *, by: Sequence[str]) -> pl.DataFrame:
    """Return P(|r| < x) from the first edge with a token below it to the last with one above.

    Edges are 8 an octave, or 4 where cells are that wide.
    """
    merged = merge_cells(cells, by=by)
    frames = []
    stride = max(_STRIDE, merged.width)
    for group, first_cell, last_cell in zip(merged.groups.iter_rows(named=True), *merged.bounds, strict=True):
        index = merged.bin[first_cell:last_cell]
        cumulative = np.cumsum(merged.n[first_cell:last_cell])
        first = max(1, (int(index[0]) - 1) // stride * stride + 1)
        edges = np.arange(first, min(int(index[-1]) + 2 * stride, bins.OVERFLOW + 1), stride)
        below = np.searchsorted(index, edges, side="left")  # cells whose bin lies wholly below the edge
        cdf = np.where(below > 0, cumulative[np.maximum(below, 1) - 1], 0) / cumulative[-1]
        frames.append(
            pl.DataFrame({"x": bins.lower_edge(edges), "cdf": cdf}).with_columns(
                *(pl.lit(group[name], merged.groups.schema[name]).alias(name) for name in by),
                pl.lit(int(cumulative[-1])).alias("n_tokens"),
            )
        )
    schema = pl.Schema({name: cells.schema[name] for name in by})
    schema.update({"x": pl.Float64(), "cdf": pl.Float64(), "n_tokens": pl.Int64()})
    return pl.concat(frames).select(list(schema)) if frames else pl.DataFrame(schema=schema)
