"""Columns of lists as NumPy arrays laid end to end, and back.

Both ways go through Arrow's buffers: pyarrow's own conversions import pandas wherever that is installed, which takes
half a second and 60 MB.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Values = npt.NDArray[Any]


def flatten(column: pl.Series) -> tuple[Ints, Values]:
    """Return offsets, (rows + 1,) from 0, and the values of a list column of numbers or truth values, end to end.

    Values are not copied where they are numbers without a null. A null is NaN, and None among truth values, whose
    array is of objects then. Lists that are null as a whole must be left out before: what lies behind them counts.
    """
    array = column.rechunk().to_arrow()
    offsets = _offsets(array)
    first, end = int(offsets[0]), int(offsets[-1])
    values = array.values.slice(first, end - first)
    return offsets - first, _values(values)


def _values(array: pa.Array) -> Values:
    if pa.types.is_null(array.type) or not len(array):
        return np.full(len(array), None, array.type.to_pandas_dtype())
    valid, data = array.buffers()
    if pa.types.is_boolean(array.type):
        values: Values = _flags(data, array.offset, len(array))
    else:
        values = np.frombuffer(data, array.type.to_pandas_dtype())[array.offset : array.offset + len(array)]
    if not array.null_count:
        return values
    kind = np.object_ if values.dtype == np.bool_ else np.promote_types(values.dtype, np.float32)
    values = values.astype(kind)
    values[~_flags(valid, array.offset, len(array))] = None if kind == np.object_ else np.nan
    return values


def _flags(packed: pa.Buffer, offset: int, length: int) -> Bools:
    whole, within = divmod(offset, 8)
    bits = np.unpackbits(np.frombuffer(packed, np.uint8)[whole:], count=within + length, bitorder="little")
    return bits[within:].view(np.bool_)


def list_offsets(column: pl.Series) -> Ints:
    """Return where each list of a column begins, and where the last one ends, (rows + 1,)."""
    return _offsets(column.rechunk().to_arrow())


def _offsets(array: pa.Array) -> Ints:
    if not len(array):
        return np.zeros(1, np.int64)
    return np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]


def as_lists(values: Values, offsets: Ints, *, hidden: Bools | None = None, absent: Bools | None = None) -> pl.Series:
    """Cut values laid end to end into lists: list i from offsets[i] to offsets[i + 1].

    `hidden`: (values,) which of them are null; `absent`: (lists,) which of them are.
    """
    kind = pa.from_numpy_dtype(values.dtype)
    data = _bits(values) if values.dtype == np.bool_ else pa.py_buffer(np.ascontiguousarray(values))
    child = pa.Array.from_buffers(kind, len(values), [None if hidden is None else _bits(~hidden), data])
    places = pa.py_buffer(np.ascontiguousarray(offsets, np.int64))
    lists = [None if absent is None else _bits(~absent), places]
    array = pa.Array.from_buffers(pa.large_list(kind), len(offsets) - 1, lists, children=[child])
    return pl.Series(_Exported(array))


class _Exported:
    """An array that polars takes by Arrow's C interface: of one that it knows, it loads pyarrow.compute."""

    def __init__(self, array: pa.Array) -> None:
        self.__arrow_c_array__ = array.__arrow_c_array__


def take(column: pl.Series, rows: Ints) -> pa.Array:
    """Copy some rows, at least one, with Arrow: Polars' own threads may be busy, and would have to be waited for."""
    array = column.rechunk().to_arrow()
    return pa.concat_arrays([array.slice(row, 1) for row in rows.tolist()])


def _bits(flags: Bools) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))
