"""Add up the cells of the token pass by group and bin: what Polars' group_by would do, for small integers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.flat_lists import as_lists
from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Lists:
    """A column of lists: list i of `values` from offsets[i] to offsets[i + 1]."""

    offsets: IntArray
    values: npt.NDArray[Any]

    def series(self, name: str, kind: pl.DataType) -> pl.Series:
        """Return the lists as Polars has them."""
        return as_lists(self.values, self.offsets).alias(name).cast(kind)


AnyInts = npt.NDArray[np.integer[Any]]
Columns = dict[str, npt.NDArray[Any] | pl.Series | Lists]
"""Records of a batch, by column: a data frame for each of many batches would cost as much as computing its sums."""

EXPONENT_CAP: Final = 300.0  # exp(2 * 300) is finite in float64; beyond it a weight is not a weight
SUMS: Final = ("s_rho", "s_rho2", "s_r", "s_r2", "s_abs")
"""Sums over the tokens of a cell: rho = exp(r), its square, r, its square, |r|."""
SEQUENCE_SUMS: Final = ("s_r", "s_rho", "s_rho2", "s_inv", "s_inv2")
"""Sums over the tokens of a (sequence, slice): r, rho, its square, 1/rho, its square."""

CELL: Final[dict[str, pl.DataType]] = {
    "pair": pl.UInt8(),
    "step": pl.Int64(),
    "slice": pl.UInt8(),
    "bin": pl.UInt16(),
    "wide": pl.UInt8(),  # the cell covers 2^wide bins; `bin` is the lowest
    "n": pl.UInt32(),  # Int64 where a cell of many pieces has more tokens (see merge_tree)
    **{name: pl.Float64() for name in SUMS},
}
SIGNED_CELL: Final[dict[str, pl.DataType]] = {
    "key": pl.UInt64(),  # see cell_key
    "n": pl.UInt32(),
    "s_abs": pl.Float64(),
}
"""What the pass itself keeps of a cell: the sums above follow from it (see partial_tables.finish_cells)."""
POWERS: Final = ("s_rho", "s_rho2", "s_r2")
POWER_SUMS: Final[dict[str, pl.DataType]] = {
    "pair": pl.UInt8(),
    "step": pl.Int64(),
    "slice": pl.UInt8(),
    **{name: pl.Float64() for name in POWERS},
}
"""What cells cannot tell to the last digit: sums over all tokens of a step and slice."""
STEP: Final[dict[str, pl.DataType]] = {
    "step": pl.Int64(),
    "slice": pl.UInt8(),
    "sequences": pl.Int64(),  # with a usable token
    "n": pl.Int64(),
    **{name: pl.Float64() for name in ("s_r", "s_inv", "s_inv2")},
}
"""Sums over the sequences of a step and slice: of all, where single ones are kept of a share."""
LOSING: Final[dict[str, pl.DataType]] = {"seq": pl.UInt32(), "n_bad": pl.Int64()}
TOTAL: Final[dict[str, pl.DataType]] = {
    "seq": pl.UInt32(),
    "step": pl.Int64(),
    "slice": pl.UInt8(),
    "n": pl.UInt32(),
    "n_bad": pl.UInt32(),
    **{name: pl.Float64() for name in SEQUENCE_SUMS},
}
"""What every (sequence, slice) adds to its step."""
SINGLE: Final[dict[str, pl.DataType]] = {
    "min_r": pl.Float64(),
    "max_r": pl.Float64(),
    "coarse_bin": pl.List(pl.UInt8()),
    "coarse_n": pl.List(pl.UInt32()),
}
"""Columns that only sequences kept one by one have in addition."""
SEQUENCE: Final = TOTAL | SINGLE
STRETCH: Final[dict[str, pl.DataType]] = {
    "seq": pl.UInt32(),
    "turn": pl.UInt32(),  # observations before it in the sequence
    "distance": pl.UInt8(),  # see observation_position.DISTANCES
    "n": pl.UInt32(),
    "peak": pl.Float64(),  # greatest |r|; 0 where none reaches observation_position.FLOOR
    "peak_at": pl.UInt32(),  # the first token with it, counted in the sequence from 0; 0 where none reaches it
    "coarse_bin": pl.List(pl.UInt8()),  # of tokens at or above observation_position.FLOOR alone
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
    "n_bad": pl.Int64(),  # added up over all sequences of a step: 32 bits may not hold it
}
ANOMALY: Final[dict[str, pl.DataType]] = {
    "seq": pl.UInt32(),
    "step": pl.Int64(),
    "column": pl.UInt8(),  # index into LOGP_COLUMNS
    "kind": pl.UInt8(),  # see fill_values.Anomaly
    "n": pl.UInt32(),
}
LOGP_COLUMNS: Final = ("policy_logp", "old_logp", "rollout_logp", "ref_logp", "prox_logp")
SAMPLE: Final[dict[str, pl.DataType]] = {
    "seq": pl.UInt32(),
    "step": pl.Int64(),
    "model_mask": pl.List(pl.Boolean()),
    **{name: pl.List(pl.Float32()) for name in LOGP_COLUMNS},
}
"""Some sequences kept whole, for questions that sums cannot answer."""
KINDS: Final = {
    "cells": SIGNED_CELL,
    "powers": POWER_SUMS,
    "totals": TOTAL,
    "single": SINGLE,
    "rows": ROW,
    "bad": BAD,
    "anomalies": ANOMALY,
}
BIN_BITS: Final = 14
STEP_LIMIT: Final = 1 << 40
assert 1 << BIN_BITS > bins.OVERFLOW


def cell_key(pair: int, step: IntArray, slice_: IntArray, signed_bin: IntArray) -> npt.NDArray[np.uint64]:
    """Pack pair, step, slice and signed bin into one integer, so that merging and sorting compare one number.

    `signed_bin`: twice the bin of |r|, and one more where r is below 0.
    """
    return (((pair * STEP_LIMIT + step) * 2 + slice_) << (BIN_BITS + 1) | signed_bin).astype(np.uint64)


def conform(frame: pl.DataFrame, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return the columns of a schema, cast to its types; null where the frame lacks one."""
    missing = [pl.lit(None, kind).alias(name) for name, kind in schema.items() if name not in frame.columns]
    return frame.with_columns(missing).select(pl.col(name).cast(kind) for name, kind in schema.items())


def concat_records(parts: Sequence[Columns], schema: dict[str, pl.DataType]) -> pl.DataFrame:
    """Put the records of all batches together."""
    if not parts:
        return pl.DataFrame(schema=schema)
    columns = []
    for name, kind in schema.items():
        batches = [part[name] for part in parts]
        arrays = [values for values in batches if isinstance(values, np.ndarray)]
        lists = [values for values in batches if isinstance(values, Lists)]
        if len(arrays) == len(batches):
            columns.append(pl.Series(name, np.concatenate(arrays), kind))
        elif len(lists) == len(batches):
            columns.append(_end_to_end(lists).series(name, kind))
        else:
            columns.append(pl.concat([_series(name, values, kind) for values in batches]))
    return pl.DataFrame(columns)


def _series(name: str, values: npt.NDArray[Any] | pl.Series | Lists, kind: pl.DataType) -> pl.Series:
    return values.series(name, kind) if isinstance(values, Lists) else pl.Series(name, values).cast(kind)


def _end_to_end(parts: Sequence[Lists]) -> Lists:
    held = np.cumsum([0, *(len(part.values) for part in parts)])
    offsets = [part.offsets[:-1] + before for part, before in zip(parts, held, strict=False)]
    return Lists(np.concatenate([*offsets, held[-1:]]), np.concatenate([part.values for part in parts]))


BINS: Final = bins.OVERFLOW + 1
MAX_KEY: Final = 1 << 62
PART_ROWS: Final = 1 << 17  # about this many rows at a time: each of the dozen arrays made from them is a megabyte
SPARSE_FACTOR: Final = 8  # times as many places as cells: beyond it sorting is cheaper than adding into a table


@dataclass(frozen=True, kw_only=True)
class MergedCells:
    """Cells with tokens, (cells,) each, in the order of group and bin; `groups`: the groups and their n, in order."""

    groups: pl.DataFrame
    bin: IntArray
    n: IntArray
    s_abs: FloatArray
    width: int  # bins that a cell reaches over
    bounds: tuple[IntArray, IntArray]  # (groups,) each: a group's first cell and the one after its last


def merge_cells(cells: pl.DataFrame, *, by: Sequence[str]) -> MergedCells:
    """Add up n and s_abs of cells of the same bin in each group of the integer columns `by`."""
    columns = [_whole(cells[name]) for name in by]
    lows, sizes = _ranges(columns)
    width = cell_width(cells)
    places = -(-bins.OVERFLOW // width) + 1  # in a group: where cells are wide, a place for each bin is too many
    key = _combine(columns, lows, sizes)
    key *= places
    key += _place(cells["bin"].to_numpy(), width)
    key, n, s_abs = _sum_keys(key, cells["n"].to_numpy(), cells["s_abs"].to_numpy(), places=places * math.prod(sizes))
    group = key // places
    first = np.flatnonzero(np.diff(group, prepend=-1))
    total = np.add.reduceat(n, first) if len(first) else n
    group_columns: dict[str, IntArray] = {}
    rest = group[first]
    for name, low, size in reversed(list(zip(by, lows, sizes, strict=True))):
        group_columns[name] = rest % size + low
        rest = rest // size
    groups = pl.DataFrame({**{name: group_columns[name] for name in by}, "n": total})
    return MergedCells(
        groups=groups.cast({name: cells.schema[name] for name in by}),
        bin=np.maximum(key % places * width - (width - 1), bins.UNDERFLOW),
        n=n,
        s_abs=s_abs,
        width=width,
        bounds=(first, np.append(first[1:], len(key)) if len(first) else first),
    )


def _place(first_bin: AnyInts, width: int) -> AnyInts:
    """Number the cells of a group by their first bins: 1, 1 + width, ...; below and above all bins lies a cell each."""
    return first_bin if width == 1 else (first_bin + (width - 1)) // width


def cell_width(cells: pl.DataFrame) -> int:
    """Return how many bins a cell of one run reaches over (see partial_tables.WIDER)."""
    return 1 << int(cells["wide"][0]) if "wide" in cells.columns and cells.height else 1


def in_parts(frame: pl.DataFrame, column: str) -> Iterator[pl.DataFrame]:
    """Yield the rows in parts without copying them, never cutting between equal values of a column of whole numbers.

    At once where they are few, or in no order of that column.
    """
    values = frame[column].to_numpy()
    if len(values) <= PART_ROWS or (values[1:] < values[:-1]).any():
        yield frame
        return
    first = 0
    while first < len(values):
        last = values[min(first + PART_ROWS, len(values)) - 1]
        end = int(np.searchsorted(values, last, side="right"))
        yield frame[first:end]
        first = end


def grouped_sums(frame: pl.DataFrame, by: Sequence[str], names: Sequence[str]) -> pl.DataFrame:
    """Return the sums of `names` for every group of the integer columns `by`, in their order.

    Added up in the order of the rows on one thread, unlike Polars' own, whose last digits depend on how many threads
    were free: the same input must give the same bytes.
    """
    return pl.concat([_sums_of_part(part, by, names) for part in in_parts(frame, by[0])], rechunk=True)


def _sums_of_part(frame: pl.DataFrame, by: Sequence[str], names: Sequence[str]) -> pl.DataFrame:
    """Sum rows by group; no group may have rows outside this frame."""
    columns = [_whole(frame[name]) for name in by]
    new = _group_starts(columns)
    firsts, group = _number_groups(columns) if new is None else (np.flatnonzero(new), np.cumsum(new) - 1)
    columns_out: dict[str, pl.Series] = {name: frame[name].gather(firsts) for name in by}
    for name in names:
        total = np.bincount(group, weights=frame[name].to_numpy(), minlength=len(firsts))
        whole = frame.schema[name].is_integer()
        columns_out[name] = pl.Series(name, total.astype(np.int64) if whole else total)
    return pl.DataFrame(columns_out)


def _whole(column: pl.Series) -> AnyInts:
    """Return a column of whole numbers, in its own integer type if it has one."""
    values = column.to_numpy()
    return values if values.dtype.kind in "iu" else values.astype(np.int64)


def _group_starts(columns: Sequence[AnyInts]) -> BoolArray | None:
    """Tell the rows a new group begins at; None where groups do not come in order."""
    new = np.zeros(len(columns[0]), np.bool_)
    new[:1] = True
    for column in columns:
        here, before = column[1:], column[:-1]
        if ((here < before) & ~new[1:]).any():
            return None
        new[1:] |= here != before
    return new


def _ranges(columns: Sequence[AnyInts]) -> tuple[list[int], list[int]]:
    """Return the least value of each column, and how many values lie from there to its greatest."""
    lows = [int(column.min()) if len(column) else 0 for column in columns]
    highs = [int(column.max()) if len(column) else 0 for column in columns]
    return lows, [high - low + 1 for low, high in zip(lows, highs, strict=True)]


def _combine(columns: Sequence[AnyInts], lows: Sequence[int], sizes: Sequence[int]) -> IntArray:
    """Return one number a row that has the order of the columns."""
    key = np.zeros(len(columns[0]), np.int64)
    for at, (column, low, size) in enumerate(zip(columns, lows, sizes, strict=True)):
        if at:
            key *= size
        key += column
        if low:
            key -= low
    return key


def _number_groups(columns: Sequence[AnyInts]) -> tuple[IntArray, IntArray]:
    """Return the first row of each group, in their order, and the number of each row's; rows come in any order."""
    lows, sizes = _ranges(columns)
    if (places := math.prod(sizes)) > MAX_KEY:
        key = np.zeros(len(columns[0]), np.int64)
        for column in columns:
            values, place = np.unique(column, return_inverse=True)
            key = np.unique(key * len(values) + place, return_inverse=True)[1]
    else:
        key = _combine(columns, lows, sizes)
    if places <= SPARSE_FACTOR * len(key):
        seen = np.zeros(places, np.bool_)
        seen[key] = True
        group = (np.cumsum(seen) - 1)[key]
        firsts = np.empty(int(seen.sum()), np.int64)
        firsts[group[::-1]] = np.arange(len(group))[::-1]  # reversed: the first row of a group is written last and wins
        return firsts, group
    _, firsts, group = np.unique(key, return_index=True, return_inverse=True)
    return firsts, group


def _sum_keys(
    key: IntArray, n: npt.NDArray[np.uint32], s_abs: FloatArray, *, places: int
) -> tuple[IntArray, IntArray, FloatArray]:
    """Add up equal keys in the order they come; keys come out ascending."""
    if not len(key) or (key[1:] > key[:-1]).all():  # as the token pass leaves them
        return key, n.astype(np.int64), s_abs
    if places <= SPARSE_FACTOR * len(key):
        count = np.bincount(key, weights=n, minlength=places)
        used = np.flatnonzero(count)
        total = np.bincount(key, weights=s_abs, minlength=places)[used].astype(np.float64, copy=False)
        return used, count[used].astype(np.int64), total
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    summed: FloatArray = np.add.reduceat(s_abs[order], first)
    return key[first], np.add.reduceat(n[order].astype(np.int64), first), summed
