"""Tell whether one run's tails lie above another's beyond the noise of both, step by matched step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.statistics.profile import Profile
from ptt.diagnostics.statistics.windows import Span

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One percentile of |r| of one slice of one run over spans of steps; all arrays have one entry a span.

    log_value: natural log of the percentile in nats (floored), NaN where a span holds too few tokens; own: the
    variance of log_value that redrawing whole units gives it; tokens and units: what it is made of.
    """

    slice: str
    quantile: str  # p95 or p99
    spans: tuple[Span, ...]
    log_value: FloatArray
    own: FloatArray
    tokens: IntArray
    units: IntArray


@dataclass(frozen=True, kw_only=True)
class Versus:
    """One side over the other: a factor with its 95 % interval, and the smallest factor such data could show."""

    ratio: float
    low: float
    high: float
    p_value: float  # one-sided: the first side is higher
    detectable: float  # a true factor of this size would be told from 1 in 95 of 100 such pairs; inf: none would
    spans: int  # matched spans with enough tokens on both sides


def curve(profile: Profile, *, slice_name: str, quantile: str, spans: Sequence[Span]) -> Curve:
    """Measure one percentile of one slice over spans of steps."""
    raise NotImplementedError


def versus(variant: Sequence[Curve], baseline: Sequence[Curve]) -> Versus:
    """Set the runs of one side (seeds of one setting) against those of the other, over the spans that all share."""
    raise NotImplementedError
