"""One decision over all tails of a run against its baseline's: what the gate's calibration measures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ptt.diagnostics.statistics.noninferiority import (
    MATERIAL_NATS,
    RATIO_LIMIT,
    TESTED_WINDOWS,
    UNKNOWN,
    Decision,
    Noninferiority,
    decide,
    noninferiority_by_window,
)
from ptt.diagnostics.statistics.tail_curves import Curve, join_tail


@dataclass(frozen=True, kw_only=True)
class TailTest:
    """One slice's tail in one window against the baseline's; p_value is adjusted for all tests made (Holm)."""

    slice: str
    window: str  # all or late
    versus: Noninferiority
    p_value: float
    decision: Decision


@dataclass(frozen=True, kw_only=True)
class TailsAgainst:
    """All of a run's tails against the baseline's, and the one decision over them."""

    decision: Decision
    tests: tuple[TailTest, ...]


def tails_against(
    variant: Mapping[str, Sequence[Sequence[Curve]]],
    baseline: Mapping[str, Sequence[Sequence[Curve]]],
    *,
    limit: float = RATIO_LIMIT,
) -> TailsAgainst:
    """Set every slice's tail, over the whole run and late in it, against the baseline's.

    Both give for each slice one entry a run: its curves of p95 and p99. A slice that one side lacks cannot be said.
    """
    found = []
    for name in sorted({*variant, *baseline}):
        sides = [[join_tail(run, floors=MATERIAL_NATS) for run in side.get(name, ())] for side in (variant, baseline)]
        if not any(one.tokens.any() for side in sides for one in side):
            continue  # nobody has such tokens: nothing to ask
        pair = (
            noninferiority_by_window(*sides, windows=TESTED_WINDOWS, floor=None)
            if all(sides)
            else [UNKNOWN] * len(TESTED_WINDOWS)
        )
        for window, seen in zip(TESTED_WINDOWS, pair, strict=True):
            found.append(TailTest(slice=name, window=window, versus=seen, p_value=math.nan, decision="cannot_say"))
    adjusted = holm([one.versus.p_value for one in found])
    tests = tuple(
        replace(one, p_value=p_value, decision=decide(one.versus, limit=limit, p_value=p_value))
        for one, p_value in zip(found, adjusted, strict=True)
    )
    decisions = {one.decision for one in tests}
    if "worse" in decisions:
        return TailsAgainst(decision="worse", tests=tests)
    return TailsAgainst(decision="not_worse" if decisions == {"not_worse"} else "cannot_say", tests=tests)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for their number (Holm 1979); NaN stays NaN and counts as a test."""
    order = sorted(range(len(p_values)), key=lambda place: (math.isnan(p_values[place]), p_values[place]))
    adjusted, least = [math.nan] * len(p_values), 0.0
    for rank, place in enumerate(order):
        if not math.isnan(p_values[place]):
            least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
            adjusted[place] = least
    return adjusted
