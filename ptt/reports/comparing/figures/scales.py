"""Axes that several figures of a comparison share: matched ranges, tails, the thirds and what diverged when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl

from ptt.diagnostics.comparing.values import Comparison
from ptt.reports.comparing.figures.arms import Look
from ptt.reports.comparing.figures.kinds import finite, of_arm, rows_of
from ptt.reports.figures.style import LOG_FROM, MUTED, SHADE, SMALL, linear, logarithmic
from ptt.reports.numbers import number
from ptt.reports.panels import WINDOW_NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLURAL = {"steps": "trainer steps", "tokens": "model tokens"}
FEW, FAR = 0.05, 5.0  # a share of the values that lies so many times below the others may leave the axis
AXES = {"steps": "trainer step", "tokens": "model tokens trained on"}
Range = tuple[float, float]


def matched_range(comparison: Comparison, axis: str, frame: pl.DataFrame) -> Range:
    """Give the range that all arms share on an axis, or that of the rows."""
    shared = comparison.matched.get(axis)
    first, last = shared if shared is not None else (_least(frame["x_first"]), _most(frame["x_last"]))
    return first, max(last, first + 1)


def range_words(comparison: Comparison, axis: str) -> str:
    """Say which range all arms share."""
    shared = comparison.matched.get(axis)
    if shared is None:
        return ""
    unit = "steps" if axis == "steps" else "model tokens"
    return f"{unit} {_whole(shared[0])} to {_whole(shared[1])}"


def across(ax: Axes, span: Range) -> None:
    """Let the horizontal axis run over a range, with few plainly written ticks."""
    ax.set_xlim(*span)
    linear(ax, "x", ticks=4)


def shade_thirds(ax: Axes, *, named: bool = True) -> None:
    """Shade the early and the late third of the axis lightly and name all three above it."""
    low, high = ax.get_xlim()
    third = (high - low) / len(WINDOW_NAMES)
    for index, name in enumerate(WINDOW_NAMES):
        left = low + index * third
        if index % 2 == 0:
            ax.axvspan(left, left + third, color=SHADE, linewidth=0, zorder=0)
        if named:
            ax.annotate(
                name,
                (left + third / 2, 1),
                xycoords=("data", "axes fraction"),
                xytext=(0, 4),
                textcoords="offset points",
                ha="center",
                fontsize=SMALL,
                color=MUTED,
            )


def tail_height(ax: Axes, values: Sequence[float], ends: Sequence[float] = ()) -> bool:
    """Fit the vertical axis to tails and, above them, to the ends of their intervals; say whether it is a log axis.

    What lies very far below the rest, such as the first step of a run that starts at its reference, leaves the axis.
    """
    positive = sorted(value for value in values if value > 0)
    if not positive:
        ax.set_ylim(0, 1)
        return False
    high = max(*positive, *ends, positive[-1])
    low = lowest(positive)
    logged = len(positive) == len(values) and high / low > LOG_FROM
    if logged:
        logarithmic(ax, "y", low / 1.15, high * 1.25)
    else:
        ax.set_ylim(0, high * 1.1)
        linear(ax, "y")
    return logged


def lowest(values: Sequence[float]) -> float:
    """Give the lower end of an axis of tails: the least value, unless a few lie far below all others."""
    ordered = sorted(value for value in values if value > 0)
    usual = ordered[int(FEW * len(ordered))]
    return usual if usual > FAR * ordered[0] else ordered[0]


def mark_divergence(ax: Axes, comparison: Comparison, arms: Mapping[str, Look], what: str, slice_of: str = "") -> None:
    """Set a triangle on the horizontal axis where an arm left the baseline in one figure."""
    frame = finite(rows_of(comparison, "divergence", what=what), "step")
    if frame.width and slice_of:
        frame = frame.filter(pl.col("slice") == slice_of)
    low, high = ax.get_xlim()
    for name, look in arms.items():
        rows = of_arm(frame, name)
        if not rows.height:
            continue
        step = float(rows["step"][0])
        if low <= step <= high:
            ax.plot(
                [step],
                [0.0],
                transform=ax.get_xaxis_transform(),
                marker=6,  # a caret that points up
                color=look.colour,
                markersize=8,
                clip_on=False,
                zorder=7,
            )


def _least(values: pl.Series) -> float:
    return float(values.to_numpy().min())


def _most(values: pl.Series) -> float:
    return float(values.to_numpy().max())


def _whole(value: float) -> str:
    return number(round(value)) if value == value else number(value)
