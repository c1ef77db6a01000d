"""How high a curve's axes reach: to its data, below a spike that would crush it, or over powers of ten."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ptt.reports.figures.style import logarithmic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POWERS_FROM = 300.0  # times the median of the mean: from here on a curve is drawn on a log axis
SPIKE_FROM = 40  # values of the mean: in fewer a spike is no small part of the run
SPIKE_SHARE, SPIKE_TIMES = 0.95, 3.0  # few steps reach what is cut off, and it lies this many usual ranges above them
CROWDING = 4.0  # a limit further off than this many ranges of the data is written, not drawn
STEADY = 20  # values: in fewer, every one is shown
OUTLIERS = (0.005, 0.995)  # single steps beyond these shares may leave the axes


def many_powers(mean: np.ndarray[Any, Any]) -> bool:
    """Tell whether a curve spans so many powers of ten that a linear axis would show its peaks alone."""
    return len(mean) > 0 and bool(mean.min() > 0) and float(mean.max()) > POWERS_FROM * float(np.median(mean))


def powers_reach(
    raw: np.ndarray[Any, Any], mean: np.ndarray[Any, Any], limit: float | None
) -> tuple[float, float, bool]:
    """Give the ends of a log axis, and whether the limit stands on it: from the least mean to the greatest value."""
    low, high = float(mean.min()), max(float(np.nanmax(raw)), float(mean.max()))
    shown = limit is not None and limit > 0
    if limit is not None and shown:
        low, high = min(low, limit), max(high, limit)
    return low / 2, high * 2, shown


def set_powers(ax: Axes, raw: np.ndarray[Any, Any], mean: np.ndarray[Any, Any], limit: float | None) -> bool:
    """Use a log axis from the least of the mean to the greatest value."""
    low, high, shown = powers_reach(raw, mean, limit)
    logarithmic(ax, "y", low, high, powers=True, ticks=5)
    return shown


def ceiling(mean: np.ndarray[Any, Any]) -> float:
    """Give the height above which a spike of the mean would crush the rest of its curve; infinite where none does.

    A rise that lasts is no spike: only what few of the steps reach, and far above the others, is cut off.
    """
    if len(mean) < SPIKE_FROM:
        return float("inf")
    low, usual = np.quantile(mean, [1 - SPIKE_SHARE, SPIKE_SHARE])
    cut = float(usual + SPIKE_TIMES * (usual - low))
    return cut if mean.max() > cut and usual > low else float("inf")


def reach(raw: np.ndarray[Any, Any], mean: list[float], limit: float | None, top: float) -> tuple[float, float, bool]:
    """Give the ends of an axis that fits the data, and whether the limit stands on it: not where it would flatten."""
    raw = raw[raw <= top] if bool((raw <= top).any()) else raw
    low, high = np.quantile(raw, OUTLIERS) if len(raw) > STEADY else (raw.min(), raw.max())
    low, high = min([float(low), *mean]), max([float(high), *mean])  # a short run has no mean yet
    span = (high - low) or max(abs(high), 1.0) * 0.1
    shown = limit is not None and low - CROWDING * span < limit < high + CROWDING * span
    if limit is not None and shown:
        low, high = min(low, limit), max(high, limit)
        span = high - low
    return low - 0.06 * span, high + (0.3 if limit is not None and not shown else 0.14) * span, shown


def set_height(ax: Axes, raw: np.ndarray[Any, Any], mean: list[float], limit: float | None, top: float) -> bool:
    """Fit the vertical axis to the data, and to the limit unless that would flatten the data."""
    low, high, shown = reach(raw, mean, limit, top)
    ax.set_ylim(low, high)
    return shown
