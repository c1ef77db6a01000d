"""Measure a run's tails over given spans of its steps, in a form that can be compared with another run's."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.tail_growth import FLOOR, TAIL_QUANTILES, SliceTails, slice_tails
from ptt.diagnostics.statistics.windows import WINDOWS, Span


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The main pair of a run.

    cells: one row per (step, slice, bin): n and cells.SUMS, as token_pass.TokenTables has them.
    sequences: one row per (seq, slice): step, unit (what is redrawn as a whole), n, cells.SEQUENCE_SUMS and the
        coarse histogram as two lists.
    """

    pair: str
    slices: Mapping[int, str]  # number in the tables -> name: 0 text_only, 1 post_tool or post_observation
    cells: pl.DataFrame
    sequences: pl.DataFrame
    unit: str  # "prompt group" or "sequence"


SPAN_COUNT: Final = 12
"""Spans a run is cut into to be compared with another: four a third, enough to show its noise, few enough to review."""
TAIL: Final = "p95 and p99"  # the quantile of a Curve that is the geometric mean of both


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One percentile of |r| in one slice of one run, by span of steps; all arrays have one entry a span.

    log_value: natural log of the percentile in nats (floored), NaN where a span holds too few tokens; own: the variance
    of log_value under resampling of whole units; tokens, units: how many there are in each span.
    """

    slice: str
    quantile: str  # p95, p99, or TAIL
    spans: tuple[Span, ...]
    log_value: FloatArray
    own: FloatArray
    tokens: IntArray
    units: IntArray


def tail_curve(profile: Profile, *, slice_name: str, quantile: str, spans: Sequence[Span]) -> Curve:
    """Measure one percentile of one slice over spans of steps."""
    return tail_curves(profile, slice_name=slice_name, spans=spans)[quantile]


def tail_curves(profile: Profile, *, slice_name: str, spans: Sequence[Span]) -> dict[str, Curve]:
    """Measure p95 and p99 of one slice over disjoint, ascending spans of steps."""
    tails = resample_tails(profile, slice_name=slice_name, spans=spans, name="own noise")
    curves_by_quantile = {}
    for quantile, percentile in tails.percentiles.items():
        log_value = np.log(np.maximum(percentile.blocks, FLOOR))
        drawn = np.log(np.maximum(percentile.drawn, FLOOR))
        whole = np.isfinite(log_value) & np.isfinite(drawn).all(axis=1)
        own = np.where(whole, np.where(whole[:, None], drawn, 0.0).var(axis=1), np.nan)
        units = np.maximum(tails.units, 2)
        curves_by_quantile[quantile] = Curve(
            slice=slice_name,
            quantile=quantile,
            spans=tuple(spans),
            log_value=np.where(whole, log_value, np.nan),
            own=own * units / (units - 1),  # resampling few units underestimates the variance by this factor
            tokens=tails.tokens.astype(np.int64),
            units=tails.units,
        )
    return curves_by_quantile


def resample_tails(profile: Profile, *, slice_name: str, spans: Sequence[Span], name: str) -> SliceTails:
    """Return the tails of one slice over spans and their thirds, with resamples (blocks, then units in them).

    `windows` and `windows_drawn` of its percentiles cover the early, mid and late third of the spans. `name` seeds the
    random numbers: give each run its own, so that two runs' resamples are independent.
    """
    number = {title: key for key, title in profile.slices.items()}[slice_name]
    in_slice = pl.col("slice") == number
    return slice_tails(
        profile.cells.filter(in_slice),
        profile.sequences.filter(in_slice),
        name=slice_name,
        blocks=tuple(spans),
        windows=split_thirds(spans),
        sixths=(),
        seed=name_seed(name),
    )


def split_thirds(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Return early, mid and late: a third of the spans each."""
    pieces = (np.flatnonzero(third_of(len(spans)) == window) for window in range(len(WINDOWS)))
    return tuple(Span(spans[piece[0]].first, spans[piece[-1]].last) for piece in pieces if len(piece))


def third_of(count: int) -> IntArray:
    """Return for each of `count` spans whether it is early (0), mid (1) or late (2)."""
    pieces = np.array_split(np.arange(count), len(WINDOWS))
    return np.repeat(np.arange(len(WINDOWS)), [len(piece) for piece in pieces])


def name_seed(name: str) -> int:
    """Return the seed of a name, the same on every machine."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")


def floor_curve(curve: Curve, floor: float) -> Curve:
    """Return the curve with every value below `floor` nats raised to it, and the noise that is then left.

    own becomes the variance of max(x, floor) for normal x, so a value far below the floor has no noise.
    """
    at = math.log(floor)
    spread = np.sqrt(np.maximum(curve.own, 1e-18))
    distance = (at - curve.log_value) / spread
    below = np.array([0.5 * math.erfc(-z / math.sqrt(2.0)) if math.isfinite(z) else math.nan for z in distance])
    density = np.exp(-0.5 * np.minimum(np.square(distance), 1400.0)) / math.sqrt(2 * math.pi)
    mean = distance * below + density  # E[max(z, distance)], standard normal z
    square = np.square(distance) * below + (1 - below) + distance * density
    own = np.maximum(square - np.square(mean), 0.0) * curve.own
    return replace(curve, log_value=np.maximum(curve.log_value, at), own=np.where(distance > 30, 0.0, own))


def join_tail(percentiles: Sequence[Curve], *, floors: Mapping[str, float] | None = None) -> Curve:
    """Join p95 and p99 of one slice of one run into their geometric mean: one statistic for one test.

    Their noise is assumed to be fully shared, since both come from the same tokens: the conservative bound.
    """
    floored = [floor_curve(curve, floors[curve.quantile]) if floors else curve for curve in percentiles]
    if (
        sorted(curve.quantile for curve in floored) != sorted(TAIL_QUANTILES)
        or len({curve.spans for curve in floored}) != 1
    ):
        raise ValueError("a tail is p95 and p99 over the same spans")
    return replace(
        floored[0],
        quantile=TAIL,
        log_value=np.mean([curve.log_value for curve in floored], axis=0),
        own=np.square(np.mean([np.sqrt(curve.own) for curve in floored], axis=0)),
        tokens=np.min([curve.tokens for curve in floored], axis=0),
        units=np.min([curve.units for curve in floored], axis=0),
    )
