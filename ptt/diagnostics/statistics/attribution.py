"""Who holds the late tail: by slice, group, rank, environment, staleness and turns, down to the file and row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.slices import POST_TOOL
from ptt.diagnostics.statistics.tails import percentiles

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
    "reward": pl.Float64(),
}


def tail_limit(late_cells: pl.DataFrame) -> int:
    """Give the coarse bin the tail begins at: its edge is the nearest to the late post-tool p99 of |r|.

    Where no post-tool token is left, p99 of all late tokens stands in.
    """
    post = late_cells.filter(pl.col("slice") == POST_TOOL)
    found = percentiles(late_cells if post.is_empty() else post, by=[])if False else _p99(late_cells, post)
    edges = bins.coarse_edges()[1:-1]
    if found <= 0:
        return 1
    return 1 + int(np.abs(np.log(edges) - math.log(found)).argmin())
