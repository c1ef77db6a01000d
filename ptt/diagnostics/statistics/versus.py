"""Tell whether one run's tails lie above another's beyond the noise of both, span by matched span."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from ptt.diagnostics.statistics.curves import SPANS, TAIL, Curve, curve, curves, raised, redrawn, tail, window_of
from ptt.diagnostics.statistics.fitted import fit
from ptt.diagnostics.statistics.growth import LEVEL_FLOOR
from ptt.diagnostics.statistics.windows import WINDOWS

__all__ = [
    "SPANS",
    "TAIL",
    "Curve",
    "Decision",
    "TailTest",
    "TailsAgainst",
    "Versus",
    "curve",
    "curves",
    "decided",
    "redrawn",
    "tail",
    "tails_against",
    "versus",
]

Decision = Literal["worse", "not_worse", "cannot_say"]

LEAST_SPANS: Final = 6  # fewer do not tell how noisy they are
LEAST_WINDOW_SPANS: Final = 2
MATERIAL: Final = {"p95": math.log(2.0) / 2, "p99": math.log(2.0)}
"""In nats. Tails below are taken for these: a tail that grows from 0.05 to 0.08 harms nobody. p99 as in the signature
(the usual truncation at 2 begins to bite); p95 is half of p99 or so in tails like Student's t."""
LIMIT: Final = 1.25  # a factor up to which a tail may lie above the baseline's
SHOWN: Final = 1.6  # a factor that must be excluded before "not worse" is said
FALSE_ALARMS: Final = 0.02  # of all tests of one pair together
TESTED: Final = ("all", "late")


@dataclass(frozen=True, kw_only=True)
class Versus:
    """One side over the other: a factor with its 95 % interval, and the smallest factor such data could show."""

    ratio: float
    low: float
    high: float
    p_value: float  # one-sided: the first side is higher
    detectable: float  # a true factor of this size would be told from 1 in 95 of 100 such pairs; inf: none would
    spans: int  # matched spans with enough tokens on both sides


def versus(
    variant: Sequence[Curve], baseline: Sequence[Curve], *, window: str = "all", floor: float | None = LEVEL_FLOOR
) -> Versus:
    """Set the runs of one side (seeds of one setting) against those of the other, over the spans that all share.

    Levels are paired span by span: what both sides do alike, whatever its shape, cancels. `window` is early, mid or
    late for a third of the spans. Seeds are the units: how far they lie apart is counted. With one seed a side only
    the noise within a run can be known: the interval then says how these two runs differ, not how their settings do.
    """
    held = [one if floor is None else raised(one, floor) for one in (*variant, *baseline)]
    if not variant or not baseline:
        raise ValueError("either side needs a run")
    if len({len(one.spans) for one in held}) != 1:
        raise ValueError("curves over different spans cannot be paired")
    upper = np.arange(len(held)) < len(variant)
    values = np.array([one.log_value for one in held])
    own = np.array([one.own for one in held])
    there = np.isfinite(values) & np.isfinite(own)
    paired = there[upper].any(axis=0) & there[~upper].any(axis=0)
    windows = window_of(len(paired))
    counted = np.bincount(windows[paired], minlength=len(WINDOWS))
    mine = np.flatnonzero(counted > 0) if window == "all" else np.array([WINDOWS.index(window)])
    spans = int(counted[mine].sum())
    if counted.sum() < LEAST_SPANS or spans < LEAST_WINDOW_SPANS:
        return Versus(ratio=math.nan, low=math.nan, high=math.nan, p_value=math.nan, detectable=math.inf, spans=spans)
    present, place = np.unique(windows[paired], return_inverse=True)
    steps = np.array([(one.spans[-1].last - one.spans[0].first + 1) / len(one.spans) for one in held])
    fitted = fit(values[:, paired], own[:, paired], upper=upper, windows=place, steps=steps)
    contrast = np.where(np.isin(present, mine), counted[present], 0).astype(np.float64)
    known = fitted.of(contrast / contrast.sum())
    middle, low, high = (known.quantile(q) for q in (0.5, 0.025, 0.975))
    return Versus(
        ratio=math.exp(middle),
        low=math.exp(low),
        high=math.exp(high),
        p_value=1 - known.above(0.0),
        detectable=math.exp((high - low) / 2 + known.quantile(0.95) - middle),
        spans=spans,
    )


@dataclass(frozen=True, kw_only=True)
class TailTest:
    """One slice's tail in one window against the baseline's; p_value is adjusted for all tests made (Holm)."""

    slice: str
    window: str  # all or late
    versus: Versus
    p_value: float
    decision: Decision


@dataclass(frozen=True, kw_only=True)
class TailsAgainst:
    """All of a run's tails against the baseline's, and the one decision over them."""

    decision: Decision
    tests: tuple[TailTest, ...]


def decided(found: Versus, *, limit: float = LIMIT, p_value: float | None = None) -> Decision:
    """Decide whether a tail is worse: beyond noise and beyond the limit; not worse only where SHOWN is excluded.

    `p_value`: adjusted for other tests made; the test's own without it.
    """
    adjusted = found.p_value if p_value is None else p_value
    if adjusted < FALSE_ALARMS and found.ratio > limit:
        return "worse"
    return "not_worse" if found.high < max(SHOWN, limit) else "cannot_say"  # NaN is below nothing


def tails_against(
    variant: Mapping[str, Sequence[Sequence[Curve]]],
    baseline: Mapping[str, Sequence[Sequence[Curve]]],
    *,
    limit: float = LIMIT,
) -> TailsAgainst:
    """Set every slice's tail, over the whole run and late in it, against the baseline's.

    Both give for each slice one entry a run: its curves of p95 and p99. A slice that one side lacks cannot be said.
    """
    found = []
    for name in sorted({*variant, *baseline}):
        sides = [[tail(run, floors=MATERIAL) for run in side.get(name, ())] for side in (variant, baseline)]
        if not any(one.tokens.any() for side in sides for one in side):
            continue  # nobody has such tokens: nothing to ask
        for window in TESTED:
            empty = not all(sides)
            seen = NOTHING if empty else versus(sides[0], sides[1], window=window, floor=None)
            found.append(TailTest(slice=name, window=window, versus=seen, p_value=math.nan, decision="cannot_say"))
    adjusted = holm([one.versus.p_value for one in found])
    tests = tuple(
        replace(one, p_value=p_value, decision=decided(one.versus, limit=limit, p_value=p_value))
        for one, p_value in zip(found, adjusted, strict=True)
    )
    decisions = {one.decision for one in tests}
    if "worse" in decisions:
        return TailsAgainst(decision="worse", tests=tests)
    return TailsAgainst(decision="not_worse" if decisions == {"not_worse"} else "cannot_say", tests=tests)


NOTHING: Final = Versus(ratio=math.nan, low=math.nan, high=math.nan, p_value=math.nan, detectable=math.inf, spans=0)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for their number (Holm 1979); NaN stays NaN and counts as a test."""
    order = sorted(range(len(p_values)), key=lambda place: (math.isnan(p_values[place]), p_values[place]))
    adjusted, least = [math.nan] * len(p_values), 0.0
    for rank, place in enumerate(order):
        if not math.isnan(p_values[place]):
            least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
            adjusted[place] = least
    return adjusted
