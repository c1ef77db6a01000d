"""Bytes to arrays: every size, stride and offset is checked before memory is asked for."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ptt.diagnostics.parsers.unpickle.values import Array, RefusedError

MAX_DIMS: Final = 16
MAX_NUMBER: Final = 1 << 62
BF16: Final = "bfloat16"

DTYPES: Final = {
    **{name: name for name in ("float16", "float32", "float64", "int8", "int16", "int32", "int64")},
    **{name: name for name in ("uint8", "uint16", "uint32", "uint64", "bool", BF16)},
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "short": "int16",
    "int": "int32",
    "long": "int64",
}
STORAGES: Final = {
    "FloatStorage": "float32", "DoubleStorage": "float64", "HalfStorage": "float16", "BFloat16Storage": BF16,
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "UntypedStorage": "uint8",
}  # fmt: skip
SAFETENSORS: Final = {
    "F16": "float16", "F32": "float32", "F64": "float64", "BF16": BF16, "I8": "int8", "I16": "int16",
    "I32": "int32", "I64": "int64", "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64", "BOOL": "bool",
}  # fmt: skip
_NUMPY: Final = re.compile(r"[<>|=]?(?:[iu][1248]|f[248]|b1|\?|[US]\d{1,4})")


def itemsize(dtype: str) -> int:
    """Bytes an element takes on disk."""
    return 2 if dtype == BF16 else np.dtype(dtype).itemsize


def numpy_dtype(text: str) -> np.dtype[Any] | None:
    """Return a dtype of numbers or texts by NumPy's short name; None for objects and records."""
    return np.dtype(text) if _NUMPY.fullmatch(text) else None


def whole(values: object) -> tuple[int, ...]:
    """Read a shape or strides; refuse negative numbers and anything that is not an integer."""
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) > MAX_DIMS:
        raise RefusedError("a tensor's shape is not a shape")
    if any(type(value) is not int or not 0 <= value < MAX_NUMBER for value in values):
        raise RefusedError("a tensor's shape or stride is negative or not an integer")
    return tuple(values)


def strided(
    data: memoryview, dtype: str, *, shape: Sequence[int], strides: Sequence[int] | None = None, offset: int = 0
) -> Array:
    """Copy a tensor out of its storage; `strides` and `offset` in elements, contiguous rows by default."""
    shape = whole(shape)
    strides = contiguous(shape) if strides is None else whole(strides)
    if len(strides) != len(shape) or offset < 0:
        raise RefusedError("a tensor's strides do not fit its shape")
    stored = "uint16" if dtype == BF16 else "uint8" if dtype == "bool" else dtype
    size = np.dtype(stored).itemsize
    if 0 in shape:
        made = np.zeros(shape, stored)
    else:
        last = offset + sum((count - 1) * stride for count, stride in zip(shape, strides, strict=True))
        if (last + 1) * size > data.nbytes:
            raise RefusedError("a tensor reaches beyond its storage")
        steps = tuple(stride * size for stride in strides)
        made = np.ndarray(shape, stored, data, offset * size, steps).copy()
    if dtype == BF16:
        return (made.astype(np.uint32) << 16).view(np.float32)
    return made != 0 if dtype == "bool" else made


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of an array that lies row by row."""
    return tuple(math.prod(shape[at + 1 :]) for at in range(len(shape)))


def array_of(data: object, dtype: object, shape: object) -> Array:
    """Make an array from a uint8 array of its bytes in row order; refuse what does not fit.

    `dtype` is torch's or NumPy's name, such as `torch.bfloat16` or `int64`.
    """
    name = DTYPES.get(str(dtype).removeprefix("torch."))
    if name is None or not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 1:
        raise RefusedError("a tensor has no bytes, or a type that ptt does not read")
    return strided(np.ascontiguousarray(data).data, name, shape=whole(shape))
