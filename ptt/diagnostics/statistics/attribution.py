"""Who holds the late tail: by slice, group, rank, environment, lag and turns, down to the file and row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl
from polars.dataframe.group_by import GroupBy

from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.bootstrap import entries_in_parts
from ptt.diagnostics.statistics.cells import conform
from ptt.diagnostics.statistics.percentiles import percentiles
from ptt.diagnostics.statistics.slices import POST_TOOL

TOP_GROUPS: Final = 10
TOP_SEQUENCES: Final = 20
TOP_SHARES: Final = (0.001, 0.01)  # of the sequences, those with most tail tokens

SCHEMA: Final[dict[str, pl.DataType]] = {
    "by": pl.String(),
    "value": pl.String(),  # null: not recorded for these sequences, or, with `rest`, all values not listed
    "rest": pl.Boolean(),
    "tail": pl.Int64(),  # tokens of the late window with |r| at or above `limit`
    "tokens": pl.Int64(),
    "tail_share": pl.Float64(),
    "token_share": pl.Float64(),
    "lift": pl.Float64(),  # tail_share / token_share
    "n_sequences": pl.Int64(),
    "tail_sequences": pl.Int64(),  # those of them with a tail token
    "limit": pl.Float64(),  # nats
}
TOP_SCHEMA: Final[dict[str, pl.DataType]] = {
    "path": pl.String(),
    "row": pl.Int64(),  # in the file, from 0
    "step": pl.Int64(),
    "sample_id": pl.String(),
    "group_id": pl.String(),
    "tail": pl.Int64(),
    "tokens": pl.Int64(),
    "tail_share": pl.Float64(),
    "max_abs_r": pl.Float64(),
    "max_at": pl.Int64(),  # the first token with it, counted in the sequence from 0; null below FLOOR
    "max_turn": pl.Int64(),  # observations before that token
    "reward": pl.Float64(),
    "text": pl.String(),  # of the sample, from there; null where none was kept
}


def tail_limit(late_cells: pl.DataFrame) -> int:
    """Return the coarse bin the tail begins at: its lower edge is the nearest to the late post-tool p99 of |r|.

    Where no post-tool token is left, p99 of all late tokens stands in.
    """
    post = late_cells.filter(pl.col("slice") == POST_TOOL)
    tail_cells = (late_cells if post.is_empty() else post).with_columns(every=pl.lit(0))
    p99 = float(percentiles(tail_cells, by=["every"])["p99"][0])
    edges = bins.coarse_edges()[1:-1]
    return 1 + int(np.abs(np.log(edges) - math.log(p99)).argmin()) if p99 > 0 else 1


def bin_limit(first_bin: int) -> float:
    """Return the |r| in nats that coarse bin `first_bin` begins at."""
    return float(bins.coarse_edges()[first_bin])


def add_tail_counts(sequences: pl.DataFrame, first_bin: int) -> pl.DataFrame:
    """Add `tail`: how many tokens of each row lie in coarse bin `first_bin` or above."""
    tail = np.zeros(sequences.height, np.int64)
    for part, row, coarse, n in entries_in_parts(sequences):
        above = coarse >= first_bin
        tail[part] = np.bincount(row[above], weights=n[above], minlength=part.stop - part.start)
    return sequences.with_columns(pl.Series("tail", tail))


Split = tuple[pl.DataFrame, Mapping[str, pl.Expr]]


def attribution(
    rows: pl.DataFrame, by: Mapping[str, pl.Expr], *, limit: float, finer: Split | None = None
) -> pl.DataFrame:
    """Give, for every value of each of `by`, its share of the tail and of the tokens.

    `rows`: late (seq, slice) rows with n and tail, and what `by` asks for (string expressions). Values beyond
    the ten with most tail are put together (`rest`); the shares of each `by` sum to 1. `finer`: the
    same tokens cut more finely, and what to tell those rows apart by. The last rows are the sequences with most tail
    tokens, the top 0.1 % and 1 % of them.
    """
    total, tail = int(rows["n"].cast(pl.Int64).sum()), int(rows["tail"].sum())
    if not total:
        return pl.DataFrame(schema=SCHEMA)
    frames = [
        _top_values(cut.with_columns(value.cast(pl.String).alias("value"))).with_columns(by=pl.lit(name))
        for cut, keys in ((rows, by), finer or (rows, {}))
        for name, value in keys.items()
    ]
    counted = pl.concat([*frames, _concentration(rows)], how="diagonal")
    tail_share, token_share = pl.col("tail") / max(tail, 1), pl.col("tokens") / total
    return counted.with_columns(
        tail_share.alias("tail_share"),
        token_share.alias("token_share"),
        pl.when(tail > 0).then(tail_share / token_share).alias("lift"),
        pl.lit(limit).alias("limit"),
    ).select(pl.col(name).cast(kind) for name, kind in SCHEMA.items())


def _top_values(rows: pl.DataFrame) -> pl.DataFrame:
    """Sum by `value`, most tail first; those after the tenth become one row."""
    order = ["tail", "tokens", "value"]
    every = _sums(rows.group_by("value")).sort(order, descending=[True, True, False], nulls_last=True)
    every = every.with_columns(rest=pl.lit(value=False))
    if every.height <= TOP_GROUPS + 1:
        return every
    listed = every.head(TOP_GROUPS)
    others = rows.join(listed.select("value"), on="value", how="anti", nulls_equal=True)
    rest = _sums(others.group_by(pl.lit(None, pl.String).alias("value"))).with_columns(rest=pl.lit(value=True))
    return pl.concat([listed, rest])


def _sums(grouped: GroupBy) -> pl.DataFrame:
    return grouped.agg(
        pl.col("tail").sum(),
        pl.col("n").cast(pl.Int64).sum().alias("tokens"),
        pl.col("seq").n_unique().alias("n_sequences"),
        pl.col("seq").filter(pl.col("tail") > 0).n_unique().alias("tail_sequences"),
    )


def _concentration(rows: pl.DataFrame) -> pl.DataFrame:
    ordered = by_sequence(rows)
    hit = (pl.col("tail") > 0).sum().cast(pl.UInt32)
    frames = []
    for share in TOP_SHARES:
        top = ordered.head(max(1, math.ceil(share * ordered.height)))
        sums = top.select(pl.col("tail", "tokens").sum(), n_sequences=pl.len().cast(pl.UInt32), tail_sequences=hit)
        value = pl.lit(f"{100 * share:g} %")
        frames.append(sums.with_columns(by=pl.lit("top sequences"), value=value, rest=pl.lit(value=False)))
    return pl.concat(frames)


def by_sequence(rows: pl.DataFrame) -> pl.DataFrame:
    """Put the slices of each sequence together, most tail tokens first, the larger |r| first among equals."""
    return (
        rows.group_by("seq")
        .agg(
            pl.col("step").first(),
            pl.col("tail").sum(),
            pl.col("n").cast(pl.Int64).sum().alias("tokens"),
            pl.max_horizontal(-pl.col("min_r"), "max_r").max().clip(0).alias("max_abs_r"),
        )
        .sort("tail", "max_abs_r", "seq", descending=[True, True, False])
    )


def top_sequences(
    rows: pl.DataFrame, identity: pl.DataFrame, stretches: pl.DataFrame, files: Sequence[tuple[str, int, int]]
) -> pl.DataFrame:
    """Return the 20 sequences with most tail tokens, with their `seq`, where they lie and where their largest |r| is.

    `identity`: seq with sample_id, group_id and reward where they are recorded; `files`: name, first
    seq and the row it is in that file, in order.
    """
    total = max(1, int(rows["tail"].sum()))
    top = by_sequence(rows).filter(pl.col("tail") > 0).head(TOP_SEQUENCES)
    named = [name for name in ("sample_id", "group_id", "reward") if name in identity.columns]
    top = top.join(identity.select("seq", *named), on="seq", how="left", maintain_order="left")
    peaks = stretches.filter(pl.col("seq").is_in(top["seq"].implode()) & (pl.col("peak") > 0))
    peaks = peaks.sort("peak", "peak_at", descending=[True, False]).unique("seq", keep="first", maintain_order=True)
    peaks = peaks.select("seq", max_at="peak_at", max_turn="turn")
    top = top.join(peaks, on="seq", how="left", maintain_order="left")
    seq = top["seq"].to_numpy().astype(np.int64)
    starts = np.array([start for _, start, _ in files], dtype=np.int64)
    file = np.searchsorted(starts, seq, side="right") - 1
    offsets = np.array([first_row - start for _, start, first_row in files], dtype=np.int64)
    top = top.with_columns(
        pl.Series("path", [files[i][0] if i >= 0 else None for i in file.tolist()], dtype=pl.String),
        pl.Series("row", np.where(file >= 0, seq + offsets[file] if len(starts) else seq, 0)),
        (pl.col("tail") / total).alias("tail_share"),
    )
    return conform(top, {"seq": top.schema["seq"], **TOP_SCHEMA})
