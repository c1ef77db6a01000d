"""Labels that stand at their lines instead of in a legend, none over another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ptt.reports.figures.marks import place_beside
from ptt.reports.figures.style import INK, PAPER, SMALL
from ptt.reports.numbers import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINE_HEIGHT = 14.0  # pixels between two labels
EARLY = 24.0  # pixels before the end of the longest line: a line that ends there ended early


@dataclass(frozen=True, kw_only=True)
class EndLabel:
    """What stands at the end of a line: its name, and its last value."""

    x: float
    y: float
    text: str
    value: str
    colour: str


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A drawn curve that wants a label."""

    x: np.ndarray[Any, Any]
    y: np.ndarray[Any, Any]
    colour: str
    text: str


def end_labels(ax: Axes, labels: Sequence[EndLabel]) -> None:
    """Write labels at the ends of their lines, right of the axes, none over another.

    A line that ends early is labelled where it ends: a leader from there would look like more line.
    """
    box = ax.get_window_extent()
    spots = [ax.transData.transform((label.x, label.y)) for label in labels]
    latest = min(box.x1, max((float(spot[0]) for spot in spots), default=box.x1))
    for label, spot in zip(labels, spots, strict=True):
        if spot[0] < latest - EARLY:
            text = f"{label.text} {label.value}"
            texts = [f"{text}, last at {count(round(label.x))}", text]
            place_beside(ax, texts, label.x, near=label.y, color=label.colour)
    outside = [i for i, spot in enumerate(spots) if spot[0] >= latest - EARLY]
    heights = spread([float(spots[i][1]) for i in outside], 2 * LINE_HEIGHT, box.y0 + 4, box.y1 + 10)
    for i, height in zip(outside, heights, strict=True):
        label = labels[i]
        leader = {"arrowstyle": "-", "color": label.colour, "linewidth": 0.8, "shrinkA": 0.0, "shrinkB": 3.0}
        ax.annotate(
            f"{label.text}\n{label.value}",
            (label.x, label.y),
            xytext=(box.x1 + 7, height),
            textcoords="figure points",
            color=label.colour,
            fontsize=SMALL,
            va="center",
            linespacing=1.1,
            annotation_clip=False,
            arrowprops={**leader, "relpos": (0.0, 0.5)},
        )


def spread(wanted: Sequence[float], height: float, low: float, high: float) -> list[float]:
    """Move the centres of labels of one height apart, as little as possible, between two bounds."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed = list(wanted)
    floor = low + height / 2
    for i in order:
        placed[i] = max(placed[i], floor)
        floor = placed[i] + height
    ceiling = high - height / 2
    for i in reversed(order):
        placed[i] = min(placed[i], ceiling)
        ceiling = placed[i] - height
    return placed


def label_curves(ax: Axes, curves: Sequence[Curve], levels: tuple[float, float, float]) -> None:
    """Label up to three neighbouring curves where they are apart: the left one on its left, the others right.

    The levels are the heights of the label for the left, the middle and the right curve.
    """
    ordered = sorted(curves, key=lambda curve: _crossing(curve, levels[1]))
    wished = {1: (levels[2],), 2: (levels[0], levels[2])}.get(len(ordered), levels)
    pairs = zip(ordered, wished, strict=True)
    reached = [float(np.clip(level, curve.y.min(), curve.y.max())) for curve, level in pairs]
    points = [(_crossing(curve, level), level) for curve, level in zip(ordered, reached, strict=True)]
    pixels = [ax.transData.transform(point) for point in points]
    box = ax.get_window_extent()
    heights = spread([float(pixel[1]) for pixel in pixels], LINE_HEIGHT, box.y0, box.y1)
    for index, (curve, point) in enumerate(zip(ordered, points, strict=True)):
        on_left = index == 0 and len(ordered) > 1
        outermost = max(_crossing(other, point[1]) for other in ordered)
        away = float(ax.transData.transform((outermost, point[1]))[0] - pixels[index][0])
        leader = {"arrowstyle": "-", "color": curve.colour, "linewidth": 0.8, "shrinkA": 0.0, "shrinkB": 0.0}
        ax.annotate(
            curve.text,
            point,
            xytext=(-7 if on_left else away + 9, heights[index] - float(pixels[index][1])),
            textcoords="offset points",
            ha="right" if on_left else "left",
            va="center",
            fontsize=SMALL,
            color=INK,
            arrowprops=leader if away > 1 and not on_left else None,
            zorder=6,
            bbox={"facecolor": PAPER, "alpha": 0.75, "linewidth": 0, "pad": 0.8},
        )


def _crossing(curve: Curve, level: float) -> float:
    rising = curve.y[-1] > curve.y[0]
    reached = np.flatnonzero(curve.y >= level) if rising else np.flatnonzero(curve.y <= level)
    return float(curve.x[reached[0]] if len(reached) else curve.x[-1])
