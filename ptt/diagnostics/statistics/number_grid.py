"""The grid that numbers lie on: which type or rounding they went through before they were written."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

MIN_VALUES: Final = 50  # that are told from 0: fewer may lie on a coarse grid by chance
LEAST: Final = 0.01  # of size: smaller numbers of a softmax are multiples of 2^-24 in every type
FITTING_SHARE: Final = 0.9  # of the values: of float32 logprobs one in a hundred has four decimals by chance
MANTISSA_BITS: Final = {"bfloat16": 7, "float16": 10}
MAX_DECIMALS: Final = 5  # more are as fine as float32 at the usual size of a logprob


@dataclass(frozen=True)
class Grid:
    """A type of coarser numbers than float32 ("bfloat16", "float16"), or a number of decimals (name "decimals")."""

    name: str
    decimals: int = 0
    share: float = 1.0  # of the values that fit

    def spacing(self, value: float) -> float:
        """Return how far neighbouring numbers lie apart at a value."""
        if self.name == "decimals":
            return 10.0**-self.decimals
        exponent = math.floor(math.log2(abs(value))) if value else -24
        return float(2.0 ** (exponent - MANTISSA_BITS[self.name]))


def grid_of(values: npt.NDArray[np.floating]) -> Grid | None:
    """Return the coarsest grid that the values fit; None where it is float32's own or too few are told from 0."""
    single = values[np.isfinite(values) & (np.abs(values) > LEAST)].astype(np.float32)
    if len(single) < MIN_VALUES:
        return None
    share = float(((single.view(np.uint32) & 0xFFFF) == 0).mean())
    if share > FITTING_SHARE:
        return Grid("bfloat16", share=share)
    with np.errstate(over="ignore"):
        half = single.astype(np.float16).astype(np.float32)
    share = float((half == single).mean())
    if share > FITTING_SHARE:
        return Grid("float16", share=share)
    double = single.astype(np.float64)
    for decimals in range(1, MAX_DECIMALS + 1):
        share = float((np.round(double, decimals).astype(np.float32) == single).mean())
        if share > FITTING_SHARE:
            return Grid("decimals", decimals, share)
    return None
