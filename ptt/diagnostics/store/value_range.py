"""The range of numbers that can be calculated with.

Values beyond it enter the store as infinite, or as zero; rows of a step beyond it do not enter.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.parsers.io.values import MAX_STEP
from ptt.diagnostics.schema import Flag

MAX_VALUE: Final = 1e100
"""Its cube is finite, and so is the sum of squares over any run; a trainer that logs more has overflowed. Float32's
limit, 3e38, is within it."""
MIN_VALUE: Final = 1e-100
"""No metric but 0 itself is this small; ratios of any two values that are kept are finite."""


def bounded_steps(frame: pl.DataFrame, column: str = "step") -> tuple[pl.DataFrame, int]:
    """Return the rows of steps that can be calculated with, or of none, and how many others there are."""
    if column not in frame.columns or frame.is_empty():
        return frame, 0
    least, most = frame[column].min(), frame[column].max()
    if not any(isinstance(end, int) and abs(end) > MAX_STEP for end in (least, most)):
        return frame, 0
    kept = frame.filter(pl.col(column).is_between(-MAX_STEP, MAX_STEP) | pl.col(column).is_null())
    return kept, frame.height - kept.height


def bounded_values(frame: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return a frame whose numbers can be calculated with, and how many were too large."""
    numbers = [column for column in frame.iter_columns() if column.dtype == pl.Float64]
    if not numbers or frame.is_empty() or all(map(_is_plain, numbers)):
        return frame, 0
    values = pl.col(pl.Float64)  # by type: names may be patterns
    size = values.abs()
    large, tiny = size.is_finite() & (size > MAX_VALUE), (size < MIN_VALUE) & (size > 0)
    beyond = sum(frame.select(large.sum()).row(0))
    if any(frame.select(tiny.any()).row(0)):
        frame = frame.with_columns(pl.when(tiny).then(0.0).otherwise(values).name.keep())
    if not beyond:
        return frame, 0
    if "flag" in frame.columns:  # metrics: null beside the flag that says why
        value = pl.col("value")
        flag = pl.when(value > MAX_VALUE).then(Flag.POS_INF).when(value < -MAX_VALUE).then(Flag.NEG_INF)
        frame = frame.with_columns(
            flag=flag.otherwise(pl.col("flag")).cast(pl.UInt8),
            value=pl.when(value.abs() > MAX_VALUE).then(None).otherwise(value),
        )
    infinite = values.sign() * float("inf")
    return frame.with_columns(pl.when(large).then(infinite).otherwise(values).name.keep()), beyond


def _is_plain(column: pl.Series) -> bool:
    """Return whether no value is too large or too small; infinite values may be neither."""
    size = np.abs(column.to_numpy())
    tiny = size < MIN_VALUE
    return not (bool((size > MAX_VALUE).any()) or (bool(tiny.any()) and bool((tiny & (size > 0)).any())))
