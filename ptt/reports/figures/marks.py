"""Marks shared by the figures: shaded windows, the onset with its interval, texts that cover no data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ptt.diagnostics.model import Diagnosis
from ptt.reports.figures.style import INK, LETTER, MUTED, PAPER, SHADE, SMALL
from ptt.reports.numbers import count
from ptt.reports.panels import windows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHTS = (0.93, 0.07, 0.8, 0.2, 0.65, 0.35, 0.5)  # of a text in the axes, best first
ROOM = 13.0  # pixels between the middle of one line of text and the data
LINE = 14.0  # pixels: the height of a line


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
    first, last = ax.get_xlim()
    if step is None or not first <= step <= last:
        return
    texts = [f"onset {count(step)}"]
    if signature.onset_interval is not None:
        low, high = signature.onset_interval
        ax.axvspan(max(low, first), min(high, last), color=INK, alpha=0.10, linewidth=0, zorder=1)
        known = f"[{count(low)}, {count(high)}]"
        texts = [f"{texts[0]} {known}", f"{texts[0]}\n{known}", texts[0]]
    ax.axvline(step, color=INK, linewidth=1.1, linestyle=(0, (4, 2)), zorder=2)
    if labelled:
        place_beside(ax, texts, float(step))


def place_beside(ax: Axes, texts: Sequence[str], x: float, *, near: float | None = None, color: str = INK) -> None:
    """Write the first text that fits beside a place on the x axis without covering data.

    `near` is a wished-for height. If no text is free of data, the one with most room is taken.
    """
    spots = [spot for text in texts for spot in _spots(ax, text, x, near)]
    if not spots:  # nothing fits at all: the shortest, on the side with more room
        side = 1.0 if x < sum(ax.get_xlim()) / 2 else -1.0
        spots = [_Spot(text=texts[-1], side=side, height=HEIGHTS[0], free=0.0)]
    best = next((spot for spot in spots if spot.free >= 1), max(spots, key=lambda spot: spot.free))
    ax.annotate(
        best.text,
        (x, best.height),
        xycoords=("data", "axes fraction"),
        xytext=(best.side * 5, 0),
        textcoords="offset points",
        ha="left" if best.side > 0 else "right",
        va="center",
        fontsize=SMALL,
        color=color,
        linespacing=1.1,
        zorder=6,
        bbox={"facecolor": PAPER, "alpha": 0.9, "linewidth": 0, "pad": 0.8} if best.free < 1 else None,
    )


@dataclass(frozen=True, kw_only=True)
class _Spot:
    text: str
    side: float  # 1 right of the place, -1 left
    height: float  # as a share of the axes
    free: float  # distance to the data, over what the text needs


def _spots(ax: Axes, text: str, x: float, near: float | None) -> Iterator[_Spot]:
    box = ax.get_window_extent()
    start, wished = ax.transData.transform((x, near if near is not None else ax.get_ylim()[0]))
    share = (float(wished) - box.y0) / box.height
    heights = sorted((share, *HEIGHTS), key=lambda h: abs(h - share)) if near is not None else HEIGHTS
    lines = text.split("\n")
    width, needed = LETTER * max(map(len, lines)), ROOM + LINE * (len(lines) - 1) / 2
    for height in heights:
        y = box.y0 + height * box.height
        if not box.y0 + LINE * len(lines) / 2 < y < box.y1 - LINE * len(lines) / 2:
            continue
        for side in (1.0, -1.0):
            left, right = sorted((float(start) + side * 5, float(start) + side * (5 + width)))
            if box.x0 <= left and right <= box.x1 + 2:
                yield _Spot(text=text, side=side, height=height, free=_distance(ax, left, right, y) / needed)


def _distance(ax: Axes, left: float, right: float, y: float) -> float:
    """Give how far the nearest curve or upright line runs from a text; 0 where one runs through it."""
    nearest = float("inf")
    for line in ax.get_lines():
        data = np.asarray(line.get_xydata(), dtype=float)
        with np.errstate(divide="ignore", invalid="ignore"):
            points = line.get_transform().transform(data)
        if len(data) <= 2:
            upright = len(data) == 2 and data[0, 0] == data[1, 0]
            if upright and left <= points[0, 0] <= right:
                return 0.0
            continue
        grid = np.linspace(left, right, 24)
        heights = np.interp(grid, points[:, 0], points[:, 1], left=np.nan, right=np.nan)
        heights = heights[np.isfinite(heights)]
        if not len(heights):
            continue
        low, high = np.minimum(heights[1:], heights[:-1]), np.maximum(heights[1:], heights[:-1])
        gaps = np.maximum(np.maximum(low - y, y - high), 0.0)  # a steep stretch covers all heights between its ends
        gaps = gaps if len(gaps) else np.abs(heights - y)
        nearest = min(nearest, float(gaps.min()))
    return nearest
