"""Do tails grow with the age of the rollouts: |r| by how many versions behind the policy was that sampled.

lag = (step - policy_version), counted from the smallest such difference in the run: trainers count versions
from 0 or 1, before or after the update. So a run that is never fresh shows lags relative to its freshest
sequence; the offset says how far that was behind by its own count. One version a step is presumed. Null stays
unknown and is never taken for 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray, product
from ptt.diagnostics.statistics.bootstrap import (
    SEED,
    coarse_percentile,
    draw_counts,
    finite_or_none,
    histogram_entries,
    interval,
)
from ptt.diagnostics.statistics.slices import SLICES
from ptt.diagnostics.statistics.tail_growth import FLOOR
from ptt.diagnostics.statistics.windows import Span, label_spans

BUCKETS: Final = ("0", "1", "2-3", "4-7", "8-15", "16+")
UNKNOWN: Final = "unknown"
MIN_TOKENS: Final = 200  # fewer, and p99 of a bucket is its largest token or two: it takes no part in the slope
DRAWS: Final = 200

SCHEMA: Final[dict[str, pl.DataType]] = {
    "slice": pl.UInt8(),
    "lag": pl.String(),  # bucket, or "unknown"
    "n": pl.Int64(),
    "n_sequences": pl.Int64(),
    "p95": pl.Float64(),  # of |r|, from bins of a quarter octave: within 25%
    "p99": pl.Float64(),
    "share": pl.Float64(),  # of the slice's tokens
    "offset": pl.Int64(),  # smallest step - version, counted as lag 0
    "slope": pl.Float64(),  # log p99 for each doubling of 1 + lag, in the slice
    "slope_lo": pl.Float64(),
    "slope_hi": pl.Float64(),
}


def add_lags(identity: pl.DataFrame) -> tuple[pl.DataFrame, int | None]:
    """Add `lag` and its `bucket` to rows with step and policy_version; give the offset too."""
    raw = pl.col("step") - pl.col("policy_version")
    offset = identity.select(raw.min()).item()
    lag = raw - (0 if offset is None else int(offset))
    bucket = pl.when(lag.is_null()).then(pl.lit(UNKNOWN)).otherwise(pl.lit(BUCKETS[0]))
    for least, name in ((1, "1"), (2, "2-3"), (4, "4-7"), (8, "8-15"), (16, "16+")):
        bucket = pl.when(lag >= least).then(pl.lit(name)).otherwise(bucket)
    labelled = identity.with_columns(lag.alias("lag"), bucket.alias("bucket"))
    return labelled, None if offset is None else int(offset)


def staleness(sequences: pl.DataFrame, identity: pl.DataFrame, blocks: Sequence[Span]) -> tuple[pl.DataFrame, str]:
    """Return tails by slice and lag bucket, or an empty table and the reason why.

    `sequences`: rows of the token pass of the main pair; `identity`: seq and, where recorded, policy_version;
    `blocks` of steps, within which sequences are redrawn.
    """
    empty = pl.DataFrame(schema=SCHEMA)
    if "policy_version" not in identity.columns:
        return empty, "no policy version is recorded"
    joined = sequences.join(identity.select("seq", "policy_version"), on="seq", how="left", maintain_order="left")
    rows, offset = add_lags(joined)
    if offset is None:
        return empty, "every recorded policy version is null"
    rows = label_spans(rows.sort("step", "seq", "slice"), blocks, name="block")
    table = []
    for number in range(len(SLICES)):
        part = rows.filter(pl.col("slice") == number)
        if part.height:
            table += _slice_rows(part, number, offset)
    return pl.DataFrame(table, schema=SCHEMA, orient="row"), ""


def _slice_rows(rows: pl.DataFrame, number: int, offset: int) -> list[tuple[object, ...]]:
    row, coarse, n = histogram_entries(rows)
    cell, size = row * bins.COARSE_COUNT + coarse, rows.height * bins.COARSE_COUNT
    table = np.bincount(cell, weights=n, minlength=size).astype(np.float64).reshape(rows.height, bins.COARSE_COUNT)
    slope = _slope_with_interval(rows, table)
    bucket = rows["bucket"].to_numpy()
    table_rows: list[tuple[object, ...]] = []
    for name in (*BUCKETS, UNKNOWN):
        in_bucket = bucket == name
        if in_bucket.any():
            histogram = table[in_bucket].sum(axis=0)
            p95, p99 = (float(coarse_percentile(histogram, q)) for q in (0.95, 0.99))
            n_tokens = int(histogram.sum())
            share = n_tokens / float(table.sum())
            table_rows.append((number, name, n_tokens, int(in_bucket.sum()), p95, p99, share, offset, *slope))
    return table_rows


def _slope_with_interval(rows: pl.DataFrame, table: FloatArray) -> list[float | None]:
    """Fit log p99 of the buckets on log2(1 + mean lag), each weighing as many tokens as it holds."""
    bucket = rows["bucket"].to_numpy()
    number = np.full(len(bucket), -1)
    lag, n = rows["lag"].fill_null(0).to_numpy(), rows["n"].to_numpy().astype(np.float64)
    x: list[float] = []
    for name in BUCKETS:
        in_bucket = bucket == name
        if n[in_bucket].sum() >= MIN_TOKENS:
            number[in_bucket] = len(x)
            x.append(math.log2(1 + float(np.average(lag[in_bucket], weights=n[in_bucket]))))
    if len(x) < 2:
        return [None, None, None]
    recorded = np.stack([table[number == index].sum(axis=0) for index in range(len(x))])
    drawn = _resample_rows(rows["block"].to_numpy(), number, table, len(x))
    value = float(_slopes(recorded[None], np.array(x))[0])
    return finite_or_none((value, *interval(_slopes(drawn, np.array(x)))))


def _slopes(histograms: FloatArray, x: FloatArray) -> FloatArray:
    """Return the weighted slope of log p99 on x for (draws, buckets, bins); NaN without two buckets."""
    p99 = coarse_percentile(histograms, 0.99)
    known = np.isfinite(p99)
    y = np.log(np.maximum(np.where(known, p99, FLOOR), FLOOR))
    weight = histograms.sum(axis=-1) * known
    with np.errstate(invalid="ignore", divide="ignore"):
        total = weight.sum(axis=-1)
        mean_x, mean_y = (weight * x).sum(axis=-1) / total, (weight * y).sum(axis=-1) / total
        off = x - mean_x[:, None]
        spread = (weight * off**2).sum(axis=-1)
        slope = (weight * off * (y - mean_y[:, None])).sum(axis=-1) / spread
    return np.where((known.sum(axis=-1) >= 2) & (spread > 0), slope, np.nan)


def _resample_rows(block: IntArray, number: IntArray, table: FloatArray, buckets: int) -> FloatArray:
    """Redraw as many rows of each block as it holds: (draws, buckets, COARSE_COUNT) token counts.

    `number` is the bucket of each row; rows of none (-1) are drawn as well, but counted nowhere.
    """
    generator = np.random.default_rng(SEED)
    order = np.lexsort((number, block))
    block, number, table = block[order], number[order], table[order].astype(np.float32)  # counts stay exact
    drawn = np.zeros((DRAWS, buckets, bins.COARSE_COUNT))
    for start, end in pairwise(np.flatnonzero(np.diff(block, prepend=-1, append=-1))):
        count = int(end - start)
        times = draw_counts(count, DRAWS, generator, np.int32).astype(np.float32)
        edges = np.searchsorted(number[start:end], np.arange(buckets + 1))
        for index, (first, last) in enumerate(pairwise(edges)):
            if last > first:
                drawn[:, index] += product(times[:, first:last], table[start + first : start + last])
    return drawn
