"""NumPy array types that statistics take and return, and products made by one thread.

BLAS threads wait for each other on a busy machine and may add in another order.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


AnyFloats = npt.NDArray[np.floating[Any]]

MAD_TO_SD: Final = 1.4826  # median absolute deviation to standard deviation, of a normal distribution
ALONE: Final = 1 << 13
"""Multiplications in one call: OpenBLAS takes threads from some 9,000 on for a vector, 260,000 for a matrix."""
ALONE_MATRIX: Final = 1 << 17


def dot(x: AnyFloats, y: AnyFloats) -> float:
    """Return the sum of x * y, (n,) both."""
    return float(np.sum(x * y))


def product(left: AnyFloats, right: AnyFloats) -> FloatArray:
    """Return left @ right, left (rows, k), right (k,) or (k, columns), some rows at a time."""
    each, limit = (right.shape[0], ALONE) if right.ndim == 1 else (right.size, ALONE_MATRIX)
    step = max(1, limit // max(1, each))
    pieces = [left[start : start + step] @ right for start in range(0, len(left), step)]
    result: FloatArray = np.concatenate(pieces) if pieces else left @ right
    return result
