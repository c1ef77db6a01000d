"""A figure beside its baseline before it is known how many others are judged with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from ptt.diagnostics.baseline.values import Against
from ptt.diagnostics.statistics.versus import SHOWN

FALSE_ALARMS: Final = 0.01
"""Of all metrics of one run, together: a gate runs on every change, and one false alarm a hundred runs is what its
readers stand. Tails have their own (versus.FALSE_ALARMS)."""


def must_show(limit: float) -> float:
    """Give the factor that must be excluded before a figure passes; it lies above the limit by as much as usual."""
    return max(SHOWN, limit * SHOWN / 1.25)


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What is known before Holm's correction; `settle` then gives the outcome by the corrected p-value."""

    found: Against
    p_value: float  # NaN: not asked
    settle: Callable[[Against, float], Against]


def unasked(found: Against) -> Draft:
    """Give a draft of something that is only told, or that cannot be said."""
    return Draft(found=found, p_value=float("nan"), settle=lambda one, _: one)


def settled(draft: Draft, p_value: float) -> Against:
    """Give the finished figure."""
    if p_value != p_value:
        return draft.found
    return draft.settle(replace(draft.found, p_value=p_value), p_value)
