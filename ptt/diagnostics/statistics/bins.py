"""Bins of |r| whose edges are exact binary numbers, so that binning is a shift and an ECDF at an edge is exact.

A float64 keeps its value as exponent and mantissa. Keeping the exponent and the 8 leading mantissa bits gives
256 equal steps an octave: log-spaced to the eye, 0.20% to 0.39% wide everywhere, and found without a logarithm
or its rounding. (The idea is that of HdrHistogram; the layout here is our own.)
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.statistics.arrays import FloatArray, IntArray

MANTISSA_BITS: Final = 8
PER_OCTAVE: Final = 1 << MANTISSA_BITS
LOWEST_EXPONENT: Final = -40  # 2^-40 is about 1e-12, below the resolution of any recorded float32 logprob
HIGHEST_EXPONENT: Final = 8  # 256 nats; larger |r| are placeholders, not probabilities
BIN_COUNT: Final = (HIGHEST_EXPONENT - LOWEST_EXPONENT) * PER_OCTAVE
UNDERFLOW: Final = 0  # |r| < 2^-40, exact zeros included: counted as 0
OVERFLOW: Final = BIN_COUNT + 1
WIDTH: Final = 1 / PER_OCTAVE  # widest bin relative to its lower edge, 0.39%

COARSE_PER_OCTAVE: Final = 4
COARSE_LOWEST_EXPONENT: Final = -10  # 0.001 nats: no limit of any rule lies below it
COARSE_COUNT: Final = (HIGHEST_EXPONENT - COARSE_LOWEST_EXPONENT) * COARSE_PER_OCTAVE + 1  # bin 0: all below

SHIFT: Final = 52 - MANTISSA_BITS
FIRST: Final = int(np.float64(2.0**LOWEST_EXPONENT).view(np.int64)) >> SHIFT
_FINE_PER_COARSE = PER_OCTAVE // COARSE_PER_OCTAVE
COARSE_SHIFT: Final = _FINE_PER_COARSE.bit_length() - 1
COARSE_SKIPPED: Final = (COARSE_LOWEST_EXPONENT - LOWEST_EXPONENT) * COARSE_PER_OCTAVE


def bin_of(magnitude: FloatArray, *, out: IntArray | None = None) -> IntArray:
    """Return the bin of each |r| (finite, >= 0): 0 underflow, 1..BIN_COUNT, BIN_COUNT + 1 overflow."""
    index: IntArray = np.right_shift(magnitude.view(np.int64), SHIFT, out=out)
    index -= FIRST - 1
    return np.clip(index, UNDERFLOW, OVERFLOW, out=index)


def lower_edge(index: npt.ArrayLike) -> FloatArray:
    """Return the lowest |r| that falls into each bin; 0 for the underflow bin."""
    wanted = np.asarray(index, dtype=np.int64)
    edges = ((wanted + (FIRST - 1)) << SHIFT).view(np.float64)
    return np.where(wanted <= UNDERFLOW, 0.0, edges)


def coarse_bin_of(index: IntArray) -> IntArray:
    """Return the coarse bin (4 an octave above 0.001, one below) that holds each fine bin."""
    return np.clip((index - 1) // _FINE_PER_COARSE - COARSE_SKIPPED + 1, 0, COARSE_COUNT - 1)


def to_coarse_bins(index: IntArray) -> IntArray:
    """Turn fine bins into coarse ones in place; the same as `coarse_bin_of`, for many tokens."""
    index -= 1
    index >>= COARSE_SHIFT
    index -= COARSE_SKIPPED - 1
    return np.clip(index, 0, COARSE_COUNT - 1, out=index)


def coarse_edges() -> FloatArray:
    """Return the COARSE_COUNT + 1 edges of the coarse bins, the first being 0."""
    exponents = COARSE_LOWEST_EXPONENT + np.arange(COARSE_COUNT) // COARSE_PER_OCTAVE
    quarter = np.arange(COARSE_COUNT) % COARSE_PER_OCTAVE
    return np.concatenate([[0.0], np.exp2(exponents) * (1 + quarter / COARSE_PER_OCTAVE)])
