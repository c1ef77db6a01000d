"""One decision over all tails of a run against its baseline's: what the gate's calibration measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ptt.diagnostics.statistics.group_difference import hommel_adjust
from ptt.diagnostics.statistics.noninferiority import (
    RATIO_LIMIT,
    SEED_PRIORS,
    TESTED_WINDOWS,
    UNKNOWN,
    Decision,
    Percentiles,
    compare_percentiles,
    decide_percentiles,
    joint_p_value,
    worst_decision,
)
from ptt.diagnostics.statistics.tail_curves import Curve


@dataclass(frozen=True, kw_only=True)
class TailTest:
    """One slice's tail in one window against the baseline's; p_value is adjusted for all tests made (Hommel)."""

    slice: str
    window: str  # all or late
    versus: Percentiles
    p_value: float
    decision: Decision
    percentiles: Mapping[str, Decision]


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
        sides = [side.get(name, ()) for side in (variant, baseline)]
        if not any(curve.tokens.any() for side in sides for run in side for curve in run):
            continue  # nobody has such tokens: nothing to ask
        unknown: list[Percentiles] = [dict.fromkeys(SEED_PRIORS, UNKNOWN)] * len(TESTED_WINDOWS)
        by_window = compare_percentiles(*sides) if all(sides) else unknown
        found += [(name, window, seen) for window, seen in zip(TESTED_WINDOWS, by_window, strict=True)]
    adjusted = hommel_adjust([joint_p_value(seen) for *_, seen in found])
    tests = []
    for (name, window, seen), p_value in zip(found, adjusted, strict=True):
        each = decide_percentiles(seen, limit=limit, p_value=p_value, window=window)
        decision = worst_decision(list(each.values()))
        tests.append(
            TailTest(slice=name, window=window, versus=seen, p_value=p_value, decision=decision, percentiles=each)
        )
    decisions: list[Decision] = [one.decision for one in tests]
    return TailsAgainst(decision=worst_decision(decisions) if tests else "cannot_say", tests=tuple(tests))
