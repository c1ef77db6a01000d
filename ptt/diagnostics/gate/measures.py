"""What a bound is held against: a statistic of a run over a window, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.gate.policy import Window
from ptt.diagnostics.model import Run
from ptt.diagnostics.statistics.windows import WINDOWS

STOPPED: Final = 0.1
"""Of a run's steps: what is silent for longer than this at an end has no window there. Two of its own intervals are let
pass, since evaluations are rare."""


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


def silent_at(steps: npt.NDArray[np.int64], window: Window, run: Run) -> str:
    """Say up to or from where something is logged that is not at the end of the run that its window is of."""
    if run.first_step is None or run.last_step is None:
        return ""
    reach = reach_of(steps, run)
    if window.name != "early" and run.last_step - int(steps[-1]) > reach:
        return f"up to step {steps[-1]}, and the run up to step {run.last_step}"
    if window.name in ("early", "all") and int(steps[0]) - run.first_step > reach:
        return f"from step {steps[0]} on, and the run from step {run.first_step} on"
    return ""


def reach_of(steps: npt.NDArray[np.int64], run: Run) -> float:
    """Give how many steps something may be silent: a part of the run, or two of its own intervals."""
    apart = float(np.median(np.diff(steps))) if len(steps) > 1 else 0.0
    return max(STOPPED * ((run.last_step or 0) - (run.first_step or 0)), 2 * apart)
