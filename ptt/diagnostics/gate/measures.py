"""What a bound is held against: a statistic of a run over a window, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptt.diagnostics.gate.policy import Window
from ptt.diagnostics.statistics.windows import WINDOWS


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A statistic of a run with its 95 % interval (NaN where none is known) and what it was taken from."""

    value: float
    low: float
    high: float
    data: str
    file: str | None = None


@dataclass(frozen=True, kw_only=True)
class Unmeasured:
    """Why a statistic cannot be given; `no_number` where NaN stands in its place, which no policy lets pass."""

    reason: str
    enable: str
    data: str = ""
    no_number: bool = False


def window_of(count: int, window: Window) -> slice:
    """Give which of `count` values in their order a window holds."""
    if window.name == "last":
        return slice(max(0, count - window.count), count)
    if window.name == "all":
        return slice(0, count)
    bounds = np.cumsum([0, *(len(part) for part in np.array_split(np.arange(count), 3))])
    third = WINDOWS.index(window.name)
    return slice(int(bounds[third]), max(int(bounds[third + 1]), int(bounds[third]) + 1))


def window_words(window: Window) -> str:
    """Say what a window is."""
    match window.name:
        case "all":
            return "the whole run"
        case "last":
            return f"the last {window.count} logged steps"
        case third:
            return f"the {third} third"
