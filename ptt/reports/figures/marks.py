"""Marks shared by the figures: shaded windows, the onset with its interval, texts that cover no data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ptt.diagnostics.model import Diagnosis
from ptt.reports.figures.style import INK, MUTED, SHADE, SMALL
from ptt.reports.numbers import count
from ptt.reports.panels import windows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHTS = (0.93, 0.07, 0.8, 0.2, 0.65, 0.35, 0.5)  # of a text in the axes, best first
ROOM = 16.0  # pixels that a label needs above and below it


def shade_windows(ax: Axes, diagnosis: Diagnosis, *, named: bool = True) -> None:
    """Shade the early and the late window lightly, and name all three above the axes."""
    low, high = ax.get_xlim()
    for index, (name, first, last) in enumerate(windows(diagnosis)):
        left, right = max(low, first - 0.5), min(high, last + 0.5)
        if right <= left:
            continue
        if index % 2 == 0:
            ax.axvspan(left, right, color=SHADE, linewidth=0, zorder=0)
        if named:
            ax.annotate(
                name,
                ((left + right) / 2, 1),
                xycoords=("data", "axes fraction"),
                xytext=(0, 4),
                textcoords="offset points",
                ha="center",
                fontsize=SMALL,
                color=MUTED,
            )


def mark_onset(ax: Axes, diagnosis: Diagnosis, *, labelled: bool = True) -> None:
    """Mark the onset of the tail's growth: a line, its interval as a band, and its numbers."""
    signature = diagnosis.signature
    step = signature.onset_step
    if step is None:
        return
    text = f"onset {count(step)}"
    if signature.onset_interval is not None:
        low, high = signature.onset_interval
        ax.axvspan(low, high, color=INK, alpha=0.10, linewidth=0, zorder=1)
        text += f" [{count(low)}, {count(high)}]"
    ax.axvline(step, color=INK, linewidth=1.1, linestyle=(0, (4, 2)), zorder=2)
    if labelled:
        place_beside(ax, text, float(step))


def place_beside(ax: Axes, text: str, x: float, *, near: float | None = None, color: str = INK) -> None:
    """Write a text beside a place on the x axis, where it covers no data; `near` is a wished-for height."""
    box = ax.get_window_extent()
    spot, wished = ax.transData.transform((x, near if near is not None else ax.get_ylim()[0]))
    heights = HEIGHTS
    if near is not None:
        share = (float(wished) - box.y0) / box.height
        heights = tuple(sorted((share, *HEIGHTS), key=lambda height: abs(height - share)))
    width = 7.2 * len(text)
    best: tuple[float, float, float] | None = None
    for side in (1.0, -1.0):
        start = spot + side * 5
        left, right = min(start, start + side * width), max(start, start + side * width)
        if left < box.x0 - 2 or right > box.x1 + 8:
            continue
        for height in heights:
            y = box.y0 + height * box.height
            free = min(_distance(ax, left, right, y), ROOM)
            if best is None or free > best[0] + 0.5:
                best = (free, side, height)
    _, side, height = best or (0.0, 1.0, 0.93)
    ax.annotate(
        text,
        (x, height),
        xycoords=("data", "axes fraction"),
        xytext=(side * 5, 0),
        textcoords="offset points",
        ha="left" if side > 0 else "right",
        va="center",
        fontsize=SMALL,
        color=color,
        zorder=6,
    )


def _distance(ax: Axes, left: float, right: float, y: float) -> float:
    nearest = float("inf")
    for line in ax.get_lines():
        data = np.asarray(line.get_xydata(), dtype=float)
        if len(data) <= 2:
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            points = ax.transData.transform(data)
        grid = np.linspace(left, right, 24)
        heights = np.interp(grid, points[:, 0], points[:, 1], left=np.nan, right=np.nan)
        gaps = np.abs(heights[np.isfinite(heights)] - y)
        nearest = min(nearest, float(gaps.min())) if len(gaps) else nearest
    return nearest
