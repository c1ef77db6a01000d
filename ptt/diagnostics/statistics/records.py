"""What a batch of tokens is folded to: five kinds of records, and how a cell is named by one integer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.statistics import bins

IntArray = npt.NDArray[np.int64]
Columns = dict[str, npt.NDArray[Any] | pl.Series]
"""Records of a batch, column by column: a data frame for each of many batches would cost as much as its sums."""

SUMS: Final = ("s_rho", "s_rho2", "s_r", "s_r2", "s_abs")
"""Sums over the tokens of a cell: rho = exp(r), its square, r, its square, |r|."""
SEQUENCE_SUMS: Final = ("s_r", "s_rho", "s_rho2", "s_inv", "s_inv2")
"""Sums over the tokens of a (sequence, slice): r, rho, its square, 1/rho, its square."""

CELL: Final[dict[str, pl.DataType]] = {
    "key": pl.UInt64(),  # see cell_key
    "n": pl.UInt32(),
    **{name: pl.Float64() for name in SUMS},
}
SEQUENCE: Final[dict[str, pl.DataType]] = {
    "seq": pl.UInt32(),
    "step": pl.Int64(),
    "slice": pl.UInt8(),
    "n": pl.UInt32(),
    "n_bad": pl.UInt32(),
    **{name: pl.Float64() for name in SEQUENCE_SUMS},
    "min_r": pl.Float64(),
    "max_r": pl.Float64(),
    "coarse_bin": pl.List(pl.UInt8()),
    "coarse_n": pl.List(pl.UInt32()),
}
STRETCH: Final[dict[str, pl.DataType]] = {
    "seq": pl.UInt32(),
    "turn": pl.UInt32(),  # observations before it in the sequence
    "distance": pl.UInt8(),  # see stretches.DISTANCES
    "n": pl.UInt32(),
    "peak": pl.Float64(),  # greatest |r|; 0 where none reaches stretches.FLOOR
    "peak_at": pl.UInt32(),  # the first token with it, counted in the sequence from 0; 0 where none reaches it
    "coarse_bin": pl.List(pl.UInt8()),  # of tokens at or above stretches.FLOOR alone
    "coarse_n": pl.List(pl.UInt32()),
}
ROW: Final[dict[str, pl.DataType]] = {
    "seq": pl.UInt32(),
    "step": pl.Int64(),
    "length": pl.UInt32(),
    "n_model": pl.UInt32(),
    "n_obs": pl.UInt32(),
    "ok": pl.Boolean(),
}
BAD: Final[dict[str, pl.DataType]] = {
    "pair": pl.UInt8(),
    "step": pl.Int64(),
    "slice": pl.UInt8(),
    "n_bad": pl.UInt32(),
}
ANOMALY: Final[dict[str, pl.DataType]] = {
    "seq": pl.UInt32(),
    "step": pl.Int64(),
    "column": pl.UInt8(),  # index into LOGP_COLUMNS
    "kind": pl.UInt8(),  # see anomalies.Anomaly
    "n": pl.UInt32(),
}
LOGP_COLUMNS: Final = ("policy_logp", "old_logp", "rollout_logp", "ref_logp")
SAMPLE: Final[dict[str, pl.DataType]] = {
    "seq": pl.UInt32(),
    "step": pl.Int64(),
    "model_mask": pl.List(pl.Boolean()),
    **{name: pl.List(pl.Float32()) for name in LOGP_COLUMNS},
}
"""Some sequences kept whole, for questions that sums cannot answer."""
KINDS: Final = {
    "cells": CELL,
    "sequences": SEQUENCE,
    "rows": ROW,
    "bad": BAD,
    "anomalies": ANOMALY,
}
BIN_BITS: Final = 14
STEP_LIMIT: Final = 1 << 40
assert 1 << BIN_BITS > bins.OVERFLOW


def cell_key(pair: int, step: IntArray, slice_: IntArray, bin_: IntArray) -> npt.NDArray[np.uint64]:
    """Pack what a cell is of into one integer, so that merging and sorting compare one number."""
    return (((pair * STEP_LIMIT + step) * 2 + slice_) << BIN_BITS | bin_).astype(np.uint64)


def unpack_cells(cells: pl.DataFrame) -> pl.DataFrame:
    """Turn `key` back into pair, step, slice and bin."""
    key = pl.col("key")
    rest = key // (1 << BIN_BITS)
    return cells.select(
        (rest // (2 * STEP_LIMIT)).cast(pl.UInt8).alias("pair"),
        (rest // 2 % STEP_LIMIT).cast(pl.Int64).alias("step"),
        (rest % 2).cast(pl.UInt8).alias("slice"),
        (key % (1 << BIN_BITS)).cast(pl.UInt16).alias("bin"),
        pl.exclude("key"),
    )


def together(parts: Sequence[Columns], schema: dict[str, pl.DataType]) -> pl.DataFrame:
    """Put the records of all batches together."""
    if not parts:
        return pl.DataFrame(schema=schema)
    columns = []
    for name, kind in schema.items():
        held = [part[name] for part in parts]
        arrays = [values for values in held if not isinstance(values, pl.Series)]
        if len(arrays) == len(held):
            columns.append(pl.Series(name, np.concatenate(arrays), kind))
        else:
            columns.append(pl.concat([pl.Series(name, values).cast(kind) for values in held]))
    return pl.DataFrame(columns)
