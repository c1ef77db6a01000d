"""Each run's tails over spans that stand for the same stretch of training, with their redrawings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.compare.comparison import Arm, Member
from ptt.diagnostics.evidence.logged_metrics import Series
from ptt.diagnostics.statistics.autocorrelated_mean import MeanEstimate
from ptt.diagnostics.statistics.step_matching import (
    LoggedTotal,
    MatchedSpans,
    NotMatched,
    match_by_steps,
    match_by_tokens,
)
from ptt.diagnostics.statistics.tail_curves import SPAN_COUNT, Curve, Profile, resample_tails, split_thirds, tail_curves
from ptt.diagnostics.statistics.tail_growth import FLOOR, SliceTails
from ptt.diagnostics.statistics.trend import block_correlation
from ptt.diagnostics.statistics.windows import Span

FloatArray = npt.NDArray[np.float64]

DRAWN_SPANS: Final = 24
"""For figures and windows: eight a third."""
MIN_TOKENS: Final = 300  # of a slice in a window: three above p99; fewer, and its p99 is an anecdote
COUNTER_NAME: Final = "tokens/seen"  # a running total of tokens trained on, where a trainer logs one
FREEDOM: Final = 15  # of the noise of a span, told from some 24 of them
STEP_CORRELATION: Final = 0.8  # AR(1) between steps, the most that is seen
MIN_SPANS: Final = 6  # fewer do not tell how noisy they are


@dataclass(frozen=True, kw_only=True)
class MeasuredRun:
    """One run on one axis: for each slice its tails over spans, and its curves for tests."""

    profile: Profile
    spans: tuple[Span, ...]
    tails: Mapping[str, SliceTails]
    curves: Mapping[str, Mapping[str, Curve]]  # slice -> percentile -> curve

    def window(self, slice_name: str, quantile: str, place: int) -> MeanEstimate:
        """Return the log of a window's percentile; NaN where the window holds too few tokens."""
        tails = self.tails[slice_name]
        value = float(tails.percentiles[quantile].windows[place])
        if tails.window_tokens[place] < MIN_TOKENS or not math.isfinite(value):
            return UNKNOWN
        return _level(value, self._error(slice_name, quantile, place))

    def growth(self, slice_name: str, quantile: str) -> MeanEstimate:
        """Return the log of late over early."""
        early, late = (self.window(slice_name, quantile, place) for place in (0, 2))
        if math.isnan(early.mean) or math.isnan(late.mean):
            return UNKNOWN
        return replace(late, mean=late.mean - early.mean, error=math.hypot(early.error, late.error))

    def span(self, slice_name: str, quantile: str, place: int) -> MeanEstimate:
        """Return the log of a span's percentile, with the noise that redrawing its sequences gives it."""
        percentile = self.tails[slice_name].percentiles[quantile]
        value = float(percentile.blocks[place])
        if not math.isfinite(value):
            return UNKNOWN
        return _level(value, math.sqrt(_own(percentile.drawn[place : place + 1])[0]))

    def _error(self, slice_name: str, quantile: str, window_index: int) -> float:
        """Return the standard error of a window's log percentile, as of a mean over its spans.

        Its noise is what redrawing sequences gives each span, and that of steps: what neighbouring spans differ by
        besides, at the median, since neither growth nor an onset is noise. Steps are taken to follow one another as
        closely as is known of training; where a span holds many of them that hardly counts.
        """
        percentile = self.tails[slice_name].percentiles[quantile]
        usable = np.isfinite(percentile.blocks)
        if usable.sum() < MIN_SPANS:
            return math.nan
        levels = np.log(np.maximum(percentile.blocks[usable], FLOOR))
        differing = (float(np.median(np.abs(np.diff(levels)))) / 0.6745) ** 2 / 2
        own = float(np.median(_own(percentile.drawn[usable])))
        in_window = split_thirds(self.spans)[window_index]
        count = sum(in_window.first <= span.first <= in_window.last for span in self.spans)
        steps = max(1, round((self.spans[-1].last - self.spans[0].first + 1) / len(self.spans)))
        correlation = block_correlation(max(count, 2), steps, STEP_CORRELATION)
        stepped = max(0.0, differing - own) / (1 - float(correlation[0, 1]))
        return math.sqrt(own / count + stepped * float(correlation.mean()))


UNKNOWN: Final = MeanEstimate(mean=math.nan, error=math.nan, freedom=0, noise=math.nan, values=0)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """All runs on one axis."""

    name: str  # steps or tokens
    matched: MatchedSpans
    runs: Mapping[str, MeasuredRun]  # by member


def measure(arms: Sequence[Arm], slices: Sequence[str], held: Mapping[str, Series], axis: str) -> Axis | NotMatched:
    """Measure all runs over matched spans of trainer steps, or of model tokens trained on."""
    members = [member for arm in arms for member in arm.members]
    fine, coarse = (_matched(members, held, axis, count) for count in (DRAWN_SPANS, SPAN_COUNT))
    if isinstance(fine, NotMatched):
        return fine
    if isinstance(coarse, NotMatched):
        return coarse
    runs = {}
    for member, spans, wide in zip(members, fine.spans, coarse.spans, strict=True):
        profile = member.profile
        assert profile is not None, "only runs with a profile are measured"
        slice_names = [name for name in slices if name in profile.slices.values()]
        runs[member.name] = MeasuredRun(
            profile=profile,
            spans=spans,
            tails={
                # a name of its own for each run: two runs' redrawings must not move together
                name: resample_tails(profile, slice_name=name, spans=spans, name=f"{axis} {member.name}")
                for name in slice_names
            },
            curves={name: tail_curves(profile, slice_name=name, spans=wide) for name in slice_names},
        )
    return Axis(name=axis, matched=fine, runs=runs)


def _matched(
    members: Sequence[Member], series: Mapping[str, Series], axis: str, count: int
) -> MatchedSpans | NotMatched:
    profiles = [member.profile for member in members if member.profile is not None]
    names = [member.name for member in members if member.profile is not None]
    if axis == "steps":
        return match_by_steps(profiles, count, names)
    totals = [series[member.name].get(COUNTER_NAME) for member in members]
    logged = [None if total is None else LoggedTotal(steps=total.steps, totals=total.values) for total in totals]
    return match_by_tokens(profiles, count, logged, names)


def _own(drawn: FloatArray) -> FloatArray:
    """Return the variance of the log of redrawn percentiles, row by row."""
    variances: FloatArray = np.log(np.maximum(drawn, FLOOR)).var(axis=1)
    return variances


def _level(value: float, error: float) -> MeanEstimate:
    return MeanEstimate(mean=math.log(max(value, FLOOR)), error=error, freedom=FREEDOM, noise=math.nan, values=1)
