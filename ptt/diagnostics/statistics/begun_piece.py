"""What the first batches of a piece leave, as it came: the piece goes on from there when its run has grown.

A piece is added up when all of its batches are there, so these records are what it would have of them anyway: the
tables come out the same to the last bit, whoever folded the first batches and when.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.flat_lists import flatten
from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.arrays import BoolArray
from ptt.diagnostics.statistics.cells import (
    BIN_BITS,
    KINDS,
    SAMPLE,
    STEP_LIMIT,
    STRETCH,
    Columns,
    Lists,
)
from ptt.diagnostics.statistics.partial_tables import TableSet
from ptt.diagnostics.statistics.sound_tables import MAY_LACK


@dataclass(frozen=True, kw_only=True)
class BegunPiece(TableSet):
    """The records of the first batches of a piece, in the order they came; only `stretches` and `samples` are whole."""

    cells: pl.DataFrame
    powers: pl.DataFrame
    totals: pl.DataFrame
    single: pl.DataFrame
    stretches: pl.DataFrame
    rows: pl.DataFrame
    bad: pl.DataFrame
    anomalies: pl.DataFrame
    samples: pl.DataFrame


SCHEMAS: Final = {**KINDS, "stretches": STRETCH, "samples": SAMPLE}
SIGN_AND_BIN: Final = BIN_BITS + 1  # the low bits of a key


def as_records(frame: pl.DataFrame) -> Columns:
    """Return a table as the records of one batch."""
    return {column.name: _values(column) for column in frame}


def _values(column: pl.Series) -> npt.NDArray[Any] | pl.Series | Lists:
    if column.null_count():  # as of rows that cannot be laid out
        return column
    return Lists(*flatten(column)) if isinstance(column.dtype, pl.List) else column.to_numpy()


def can_go_on(begun: BegunPiece, kept: BoolArray | None, first: int, end: int) -> bool:
    """Tell whether records that were read back can be added up; what comes of them is still to be checked.

    `kept`: of the sequences from `first` on, whether they are kept one by one (None: all are); `end`: after the last.
    Sums are by the keys of cells, and powers have to be of the same steps and slices.
    """
    for name, schema in SCHEMAS.items():
        frame: pl.DataFrame = getattr(begun, name)
        whole = [column for column in schema if column not in MAY_LACK.get(name, ())]
        if dict(frame.schema) != schema or any(frame[column].null_count() for column in whole):
            return False
    if not all(_whole_lists(frame) for frame in (begun.single, begun.stretches)):
        return False
    at = begun.totals["seq"].to_numpy().astype(np.int64) - first
    if not ((at >= 0) & (at < end - first)).all() or begun.single.height != (
        len(at) if kept is None else kept[at].sum()
    ):
        return False
    if not begun.powers["step"].is_between(0, STEP_LIMIT - 1).all() or not (begun.cells["n"] > 0).all():
        return False
    key = begun.cells["key"].to_numpy()
    fine = (key >> np.uint64(1)) & np.uint64((1 << BIN_BITS) - 1)
    groups = np.unique(key >> np.uint64(SIGN_AND_BIN))
    return bool((fine <= bins.OVERFLOW).all()) and np.array_equal(groups, np.unique(_groups(begun.powers)))


def _whole_lists(frame: pl.DataFrame) -> bool:
    """Tell whether histograms have a count for each bin; a null in one makes its numbers floats."""
    (offsets, bin_), (others, n) = (flatten(frame[name]) for name in ("coarse_bin", "coarse_n"))
    return np.array_equal(offsets, others) and bin_.dtype == np.uint8 and n.dtype == np.uint32


def _groups(powers: pl.DataFrame) -> npt.NDArray[np.uint64]:
    """Return pair, step and slice as they stand in the keys of cells."""
    pair, step, slice_ = (powers[name].to_numpy().astype(np.int64) for name in ("pair", "step", "slice"))
    groups: npt.NDArray[np.uint64] = ((pair * STEP_LIMIT + step) * 2 + slice_).astype(np.uint64)
    return groups
