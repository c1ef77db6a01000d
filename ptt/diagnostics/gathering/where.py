"""Which files hold the sequences and samples of each step, so that a finding can say where to look."""

from __future__ import annotations

from typing import Final

import polars as pl

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.gathering.extent import file_names

SCHEMA: Final = {"kind": pl.String, "step": pl.Int64, "path": pl.String}


def files_by_step(tokens: Tokens | None, trajectories: pl.DataFrame) -> pl.DataFrame:
    """Give kind (tokens or samples), step and path: one row a step and kind, its first file."""
    samples = trajectories.select(pl.lit("samples").alias("kind"), "step", pl.col("source").alias("path"))
    frames = [samples]
    if tokens is not None:
        rows = tokens.tables.rows.filter("ok")
        names = file_names(tokens, rows["seq"])
        frames.append(rows.select(pl.lit("tokens").alias("kind"), pl.col("step").cast(pl.Int64), names.alias("path")))
    both = pl.concat([frame.cast(SCHEMA) for frame in frames]).drop_nulls()  # type: ignore[arg-type]
    return both.group_by("kind", "step").agg(pl.col("path").min()).sort("kind", "step")
