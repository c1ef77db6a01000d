"""Percentiles, moments, effective sample size and KL estimates of log-ratios, from the cells of the token pass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.cells import MergedCells, grouped_sums, in_parts, merge_cells

QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}
LN2: Final = math.log(2.0)


def percentiles(cells: pl.DataFrame, *, by: Sequence[str]) -> pl.DataFrame:
    """Return n and p50, p95, p99, p99.9 of |r| for every group of `by`.

    The definition is numpy's default (linear between order statistics); each order statistic is known to its cell,
    so a value is off by at most `bins.WIDTH` (0.39%; more in a run of many steps, whose cells reach over several
    bins), and by nothing where its cell holds a single token.
    """
    if by[0] != "step":
        return _percentiles(merge_cells(cells, by=by))
    return pl.concat([_percentiles(merge_cells(part, by=by)) for part in in_parts(cells, "step")], rechunk=True)


def _percentiles(merged: MergedCells) -> pl.DataFrame:
    if not len(merged.n):
        return merged.groups.with_columns(pl.lit(None, pl.Float64).alias(name) for name in QUANTILES)
    cumulative = np.cumsum(merged.n)
    total = merged.groups["n"].to_numpy()
    before = np.cumsum(total) - total
    columns = {}
    for name, q in QUANTILES.items():
        position = (total - 1) * q
        rank = np.floor(position).astype(np.int64)
        low = _order_statistic(merged, cumulative, before + rank)
        high = _order_statistic(merged, cumulative, before + np.minimum(rank + 1, total - 1))
        columns[name] = low + (high - low) * (position - rank)
    return merged.groups.with_columns(pl.Series(name, values) for name, values in columns.items())


def _order_statistic(merged: MergedCells, cumulative: IntArray, rank: IntArray) -> FloatArray:
    """Return |r| at `rank` counted over all cells in order; tokens of a cell are taken as spread evenly over it."""
    cell = np.searchsorted(cumulative, rank, side="right")
    index = merged.bin[cell]
    n = merged.n[cell]
    inside = rank - (cumulative[cell] - n)
    low, high = bins.lower_edge(index), bins.lower_edge(index + merged.width)
    spread = low + (inside + 0.5) / n * (high - low)
    exact = (n == 1) | (index == bins.OVERFLOW)
    return np.where(index == bins.UNDERFLOW, 0.0, np.where(exact, merged.s_abs[cell] / n, spread))


def moments(cells: pl.DataFrame, *, by: Sequence[str], sampled_from: str) -> pl.DataFrame:
    """Return mean r, mean |r|, E[rho^2], chi^2, token ESS/n and k1, k2, k3 for every group of `by`.

    k1, k2, k3 are Schulman's estimators (http://joschu.net/blog/kl-approx.html) of KL(sampler || other), in nats.
    Where the tokens were sampled from the denominator k3 = rho - 1 - r; where from the numerator (drift pairs, as
    in TRL's `kl`) k3 = 1/rho - 1 + r, which needs the sums per sequence: see `k3_from_sequences`.
    """
    n = pl.col("n")
    sign = 1.0 if sampled_from == "numerator" else -1.0
    summed = grouped_sums(cells, by, ("n", "s_rho", "s_rho2", "s_r", "s_r2", "s_abs"))
    k3 = [] if sampled_from == "numerator" else [((pl.col("s_rho") - pl.col("s_r")) / n - 1).alias("k3")]
    return summed.select(
        *by,
        "n",
        (pl.col("s_r") / n).alias("mean_r"),
        (pl.col("s_abs") / n).alias("mean_abs_r"),
        (pl.col("s_rho2") / n).alias("second_moment"),
        (pl.col("s_rho2") / n - 1).alias("chi2"),
        (pl.col("s_rho") ** 2 / (n * pl.col("s_rho2"))).alias("ess_fraction"),
        (sign * pl.col("s_r") / n).alias("k1"),
        (pl.col("s_r2") / (2 * n)).alias("k2"),
        *k3,
    )


def inverse_moments(sequences: pl.DataFrame, *, by: Sequence[str]) -> pl.DataFrame:
    """Return token ESS/n with the weights turned round (1/rho), and k3 for tokens sampled from the numerator."""
    n = pl.col("n")
    summed = grouped_sums(sequences, by, ("n", "s_r", "s_inv", "s_inv2"))
    return summed.select(
        *by,
        (pl.col("s_inv") ** 2 / (n * pl.col("s_inv2"))).alias("ess_fraction_inverse"),
        ((pl.col("s_inv") + pl.col("s_r")) / n - 1).alias("k3_inverse"),
    )


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


"""Spans a run is cut into to be compared with another: four a third, enough to show its noise, few enough to review."""
