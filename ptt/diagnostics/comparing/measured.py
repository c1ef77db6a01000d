"""Each run's tails over spans that stand for the same stretch of training, with their redrawings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.comparing.aggregates import Series
from ptt.diagnostics.comparing.values import Arm, Member
from ptt.diagnostics.statistics.curves import SPANS, Curve, curves, redrawn, thirds
from ptt.diagnostics.statistics.growth import FLOOR, SliceTails
from ptt.diagnostics.statistics.levels import Level
from ptt.diagnostics.statistics.matched import Logged, Matched, NotMatched, matched_by_steps, matched_by_tokens
from ptt.diagnostics.statistics.windows import Span

FloatArray = npt.NDArray[np.float64]

DRAWN_SPANS: Final = 24
"""For figures and windows: eight a third, so that redrawing whole spans knows the noise between steps."""
LEAST_TOKENS: Final = 300  # of a slice in a window: three above p99; fewer, and its p99 is an anecdote
TOTAL: Final = "tokens/seen"  # a running total of tokens trained on, where a trainer logs one
MANY: Final = 22  # degrees of freedom of what is redrawn: its draws tell its error


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One run on one axis: for each slice its tails over spans, and its curves for tests."""

    member: Member
    spans: tuple[Span, ...]
    tails: Mapping[str, SliceTails]
    curves: Mapping[str, Mapping[str, Curve]]  # slice -> percentile -> curve

    def window(self, slice_name: str, quantile: str, place: int) -> Level:
        """Give the log of a window's percentile; NaN where the window holds too few tokens."""
        tails = self.tails[slice_name]
        percentile = tails.percentiles[quantile]
        value = float(percentile.windows[place])
        if tails.window_tokens[place] < LEAST_TOKENS or not math.isfinite(value):
            return UNKNOWN
        return _level(value, percentile.windows_drawn[place], _in_window(self.spans, place))

    def growth(self, slice_name: str, quantile: str) -> Level:
        """Give the log of late over early."""
        early, late = (self.window(slice_name, quantile, place) for place in (0, 2))
        if math.isnan(early.mean) or math.isnan(late.mean):
            return UNKNOWN
        error = math.hypot(early.error, late.error)
        return Level(mean=late.mean - early.mean, error=error, freedom=early.freedom, noise=math.nan, values=1)

    def span(self, slice_name: str, quantile: str, place: int) -> Level:
        """Give the log of a span's percentile; NaN where the span holds too few tokens."""
        percentile = self.tails[slice_name].percentiles[quantile]
        value = float(percentile.blocks[place])
        return _level(value, percentile.drawn[place], 2) if math.isfinite(value) else UNKNOWN


UNKNOWN: Final = Level(mean=math.nan, error=math.nan, freedom=0, noise=math.nan, values=0)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """All runs on one axis."""

    name: str  # steps or tokens
    matched: Matched
    runs: Mapping[str, Measured]  # by member


def measure(arms: Sequence[Arm], slices: Sequence[str], held: Mapping[str, Series], axis: str) -> Axis | NotMatched:
    """Measure all runs over matched spans of trainer steps, or of model tokens trained on."""
    members = [member for arm in arms for member in arm.members]
    fine, coarse = (_matched(members, held, axis, count) for count in (DRAWN_SPANS, SPANS))
    if isinstance(fine, NotMatched):
        return fine
    if isinstance(coarse, NotMatched):
        return coarse
    runs = {}
    for member, spans, wide in zip(members, fine.spans, coarse.spans, strict=True):
        profile = member.profile
        assert profile is not None, "only runs with a profile are measured"
        mine = [name for name in slices if name in profile.slices.values()]
        runs[member.name] = Measured(
            member=member,
            spans=spans,
            tails={
                # a name of its own for each run: two runs' redrawings must not move together
                name: redrawn(profile, slice_name=name, spans=spans, name=f"{axis} {member.name}")
                for name in mine
            },
            curves={name: curves(profile, slice_name=name, spans=wide) for name in mine},
        )
    return Axis(name=axis, matched=fine, runs=runs)


def _matched(members: Sequence[Member], held: Mapping[str, Series], axis: str, count: int) -> Matched | NotMatched:
    profiles = [member.profile for member in members if member.profile is not None]
    if axis == "steps":
        return matched_by_steps(profiles, count)
    totals = [held[member.name].get(TOTAL) for member in members]
    return matched_by_tokens(
        profiles, count, [None if one is None else Logged(steps=one.steps, totals=one.values) for one in totals]
    )


def _level(value: float, drawn: FloatArray, blocks: int) -> Level:
    """Give the log of a percentile with the error of its redrawings.

    Redrawing a few blocks leaves out what their own mean is off by: the variance is raised by n / (n - 1).
    """
    logs = np.log(np.maximum(drawn[np.isfinite(drawn)], FLOOR))
    error = float(logs.std()) * math.sqrt(blocks / (blocks - 1)) if blocks > 1 and len(logs) else math.nan
    return Level(mean=math.log(max(value, FLOOR)), error=error, freedom=MANY, noise=math.nan, values=1)


def _in_window(spans: Sequence[Span], place: int) -> int:
    window = thirds(spans)[place]
    return sum(window.first <= span.first <= window.last for span in spans)
