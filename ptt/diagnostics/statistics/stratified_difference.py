"""Differences of shares, each stratum compared with itself alone, so that trends between strata cancel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.statistics.arrays import FloatArray, IntArray

MIN_TRIALS: Final = 5.0  # trials on either side of a stratum


@dataclass(frozen=True, kw_only=True)
class StratifiedDifference:
    """The share above and below each stratum's own median, over the strata that have both."""

    strata: int
    low: float
    high: float
    load_low: float  # mean of what was split by
    load_high: float
    error: float  # standard error of high - low, from how the strata differ among themselves


def stratified_difference(
    *, stratum: IntArray, by: FloatArray, hits: FloatArray, trials: FloatArray
) -> StratifiedDifference | None:
    """Split each stratum at its median of `by` and compare the share of hits; None with fewer than two strata.

    Entries at the median belong to neither half. What changes from stratum to stratum (the run's trend) cancels; what
    is alike within one (a bad hour) shows in how the strata differ, and so in the error.
    """
    rows = []
    for name in np.unique(stratum):
        members = stratum == name
        middle = float(np.median(by[members]))
        halves = [members & (by < middle), members & (by > middle)]
        counts = [float(trials[half].sum()) for half in halves]
        if min(counts) < MIN_TRIALS:
            continue
        shares = [float(hits[half].sum()) / count for half, count in zip(halves, counts, strict=True)]
        loads = [float(np.average(by[half], weights=trials[half])) for half in halves]
        rows.append((*shares, *loads))
    if len(rows) < 2:
        return None
    table = np.array(rows)
    gaps = table[:, 1] - table[:, 0]
    error = float(gaps.std(ddof=1)) / len(rows) ** 0.5
    low, high, load_low, load_high = table.mean(axis=0).tolist()
    return StratifiedDifference(
        strata=len(rows), low=low, high=high, load_low=load_low, load_high=load_high, error=error
    )


def rate_differences(tables: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Return the pooled difference of rates of each `key`, with Mantel and Haenszel's test.

    `tables`: one row a stratum of each key, with Float64 counts: `n` in it, `s` that succeed, `k` on the named side,
    `a` of these that succeed; 0 < k < n. Returns groups, episodes, side (on the named side), with_rate and without_rate
    (both at the strata's weights k (n - k) / n), difference, variance, z and its two-sided p_value.
    """
    k, a, n, s = (pl.col(name) for name in ("k", "a", "n", "s"))
    rest = n - k
    weight = k * rest / n
    spread = (k * rest * s * (n - s) / (n * n * pl.max_horizontal(n - 1, 1.0))).sum()
    excess = (a - k * s / n).sum()
    pooled = tables.group_by(key).agg(
        pl.len().alias("groups"),
        n.sum().cast(pl.Int64).alias("episodes"),
        k.sum().cast(pl.Int64).alias("side"),
        ((weight * a / k).sum() / weight.sum()).alias("with_rate"),
        ((weight * (s - a) / rest).sum() / weight.sum()).alias("without_rate"),
        spread.alias("variance"),
        (excess / spread.sqrt()).alias("z"),
    )
    z = pooled["z"].to_list()
    tails = [math.erfc(abs(value) / math.sqrt(2)) if math.isfinite(value) else math.nan for value in z]
    return pooled.with_columns(
        (pl.col("with_rate") - pl.col("without_rate")).alias("difference"), pl.Series("p_value", tails, pl.Float64)
    ).sort(key, nulls_last=True)
