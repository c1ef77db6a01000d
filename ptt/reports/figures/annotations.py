"""Labels that stand at their lines instead of in a legend, none over another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import Diagnosis, Steps
from ptt.reports.figures.style import (
    INK,
    LETTER,
    LINES,
    SMALL,
    annotate,
    backing,
    hover,
    marker_spacing,
    short_slice,
    slice_role,
)
from ptt.reports.text.numbers import count, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes


HEIGHTS = (0.93, 0.07, 0.8, 0.2, 0.65, 0.35, 0.5)  # of a text in the axes, best first
TEXT_CLEARANCE = 13.0  # pixels between the middle of one line of text and the data
LINE_HEIGHT = 14.0  # pixels
Box = tuple[float, float, float, float]  # in pixels: left, right, lower and upper end
LATE_SHARE = 0.7  # of the axes: windows are drawn at their middle, which in a short run is no nearer to the end
EARLY_END = 24.0  # pixels before the end of the longest line: a line that ends there ended early


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


def mark_onset(ax: Axes, diagnosis: Diagnosis, *, labelled: bool = True) -> None:
    """Mark since when the tail grew, a dashed line, and where it passed its limit, a dotted one with its interval.

    Where it passed a limit, the growth before is only named: its interval would be the darker of two bands.
    """
    signature = diagnosis.signature
    grew, passed = signature.onset_step, signature.limit_passed_step
    taken: list[Box] = []
    if passed is not None and passed != grew:
        interval = signature.limit_passed_interval
        taken += _mark_step(ax, "past limit", passed, interval, dashes=(1, 2), labelled=labelled)
    if grew is not None:
        interval = signature.onset_interval if passed is None or passed == grew else None
        _mark_step(ax, "grows from", grew, interval, dashes=(4, 2), labelled=labelled, taken=taken)


def _mark_step(
    ax: Axes,
    name: str,
    step: int,
    interval: Steps | None,
    *,
    dashes: tuple[int, int],
    labelled: bool,
    taken: Sequence[Box] = (),
) -> list[Box]:
    first, last = ax.get_xlim()
    if not first <= step <= last:
        return []
    texts = [f"{name} {count(step)}", f"{name.replace(' ', chr(10))} {count(step)}"]
    if interval is not None:
        low, high = interval
        ax.axvspan(max(low, first), min(high, last), color=INK, alpha=0.10, linewidth=0, zorder=1)
        known = f"[{count(low)}, {count(high)}]"
        texts = [f"{texts[0]} {known}", f"{texts[0]}\n{known}", *texts]
    ax.axvline(step, color=INK, linewidth=1.1, linestyle=(0, dashes), zorder=2)
    return [label_beside(ax, texts, float(step), taken=taken)] if labelled else []


def draw_limit(ax: Axes, limit: float) -> None:
    """Draw a limit across the axes, named at its end where the curves leave most room."""
    line = ax.axhline(limit, color=INK, linewidth=1.1, linestyle=(0, (1, 1.6)), zorder=3)
    text = f"limit {number(limit)}"
    hover(line, text)
    box, width = ax.get_window_extent(), LETTER * (len(text) + 1)
    middle = float(ax.transData.transform((ax.get_xlim()[0], limit))[1])
    ends = [(x, left, side) for x, left, side in ((1.0, box.x1 - width, "right"), (0.0, box.x0, "left"))]
    spots = [
        (_distance(ax, left, left + width, middle + up * TEXT_CLEARANCE / 1.4), up, x, side)
        for up in (1, -1)
        for x, left, side in ends
        if box.y0 + LINE_HEIGHT < middle + up * TEXT_CLEARANCE < box.y1
    ]
    _, up, x, side = max(spots, key=lambda spot: spot[0], default=(0.0, 1, 1.0, "right"))
    style: dict[str, Any] = {
        "ha": side,
        "va": "bottom" if up > 0 else "top",
        "color": INK,
        "zorder": 6,
        "bbox": backing(0.7),
    }
    offset = (-3 if side == "right" else 3, 2 * up)
    annotate(ax, text, (x, limit), coords=("axes fraction", "data"), offset=offset, **style)


def label_beside(
    ax: Axes,
    texts: Sequence[str],
    x: float,
    *,
    near: float | None = None,
    color: str = INK,
    taken: Sequence[Box] = (),
) -> Box:
    """Write the first text that fits beside a value on the x axis without covering data, and return its box.

    `near` is a wished-for height, `taken` the boxes of other labels. If no text is free of data, the one with most
    room is taken.
    """
    spots = [
        spot
        for text in texts
        for spot in _spots(ax, text, x, near)
        if not any(_overlap(_box(ax, spot, x), other) for other in taken)
    ]
    if not spots:  # nothing fits at all: the shortest, on the side with more room
        side = 1.0 if x < sum(ax.get_xlim()) / 2 else -1.0
        spots = [_Spot(text=texts[-1], side=side, height=HEIGHTS[0], clearance=0.0)]
    best = next((spot for spot in spots if spot.clearance >= 1), max(spots, key=lambda spot: spot.clearance))
    annotate(
        ax,
        best.text,
        (x, best.height),
        coords=("data", "axes fraction"),
        offset=(best.side * 5, 0),
        ha="left" if best.side > 0 else "right",
        va="center",
        color=color,
        linespacing=1.1,
        zorder=6,
        bbox=backing(0.9) if best.clearance < 1 else None,
    )
    return _box(ax, best, x)


def _box(ax: Axes, spot: _Spot, x: float) -> Box:
    """Return the left, right, lower and upper end of a text in pixels."""
    axes, lines = ax.get_window_extent(), spot.text.split("\n")
    start = float(ax.transData.transform((x, ax.get_ylim()[0]))[0]) + spot.side * 5
    end = start + spot.side * LETTER * max(map(len, lines))
    y, half = axes.y0 + spot.height * axes.height, LINE_HEIGHT * len(lines) / 2
    return min(start, end), max(start, end), y - half, y + half


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]


@dataclass(frozen=True, kw_only=True)
class _Spot:
    text: str
    side: float  # 1 right of the value, -1 left
    height: float  # as a share of the axes
    clearance: float  # distance to the data, over what the text needs


def _spots(ax: Axes, text: str, x: float, near: float | None) -> Iterator[_Spot]:
    box = ax.get_window_extent()
    start, wished = ax.transData.transform((x, near if near is not None else ax.get_ylim()[0]))
    share = (float(wished) - box.y0) / box.height
    heights = sorted((share, *HEIGHTS), key=lambda h: abs(h - share)) if near is not None else HEIGHTS
    lines = text.split("\n")
    width, needed = LETTER * max(map(len, lines)), TEXT_CLEARANCE + LINE_HEIGHT * (len(lines) - 1) / 2
    for height in heights:
        y = box.y0 + height * box.height
        if not box.y0 + LINE_HEIGHT * len(lines) / 2 < y < box.y1 - LINE_HEIGHT * len(lines) / 2:
            continue
        for side in (1.0, -1.0):
            left, right = sorted((float(start) + side * 5, float(start) + side * (5 + width)))
            if box.x0 <= left and right <= box.x1 + 2:
                yield _Spot(text=text, side=side, height=height, clearance=_distance(ax, left, right, y) / needed)


def _distance(ax: Axes, left: float, right: float, y: float) -> float:
    """Return how far the nearest curve or upright line runs from a text; 0 where one runs through it."""
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


def end_labels(ax: Axes, labels: Sequence[EndLabel]) -> None:
    """Write labels at the ends of their lines, right of the axes, none over another.

    A line that ends early is labelled where it ends: a leader from there would look like more line.
    """
    box = ax.get_window_extent()
    spots = [ax.transData.transform((label.x, label.y)) for label in labels]
    latest = min(box.x1, max((float(spot[0]) for spot in spots), default=box.x1))
    if latest < box.x0 + LATE_SHARE * box.width:
        latest = box.x1  # all of them ended early
    for label, spot in zip(labels, spots, strict=True):
        if spot[0] < latest - EARLY_END:
            text = f"{label.text} {label.value}"
            texts = [f"{text}, last at {count(round(label.x))}", text]
            label_beside(ax, texts, label.x, near=label.y, color=label.colour)
    outside = [i for i, spot in enumerate(spots) if spot[0] >= latest - EARLY_END]
    heights = spread_labels([float(spots[i][1]) for i in outside], 2 * LINE_HEIGHT, box.y0 + 4, box.y1 + 10)
    for i, height in zip(outside, heights, strict=True):
        label = labels[i]
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
        )
        _leader(ax, (box.x1 + 3, height), spots[i], label.colour, gap=3.0)


def _leader(ax: Axes, start: Any, end: Any, colour: str, *, gap: float = 0.0) -> None:
    """Draw the line that leads from a label to its curve, ending so many pixels before it.

    An arrow of matplotlib's would be cut at the label's box by halving, which takes longer than the rest of the label.
    """
    (x, y), (to_x, to_y) = start, end
    length = float(np.hypot(to_x - x, to_y - y))
    if length > gap:
        part = 1 - gap / length
        plot_pixels(ax, [x, x + part * (to_x - x)], [y, y + part * (to_y - y)], color=colour, linewidth=0.8)


def plot_pixels(ax: Axes, x: list[float], y: list[float], **style: Any) -> None:
    """Draw a line in pixels of the figure: the same place whatever the file's resolution."""
    from matplotlib.lines import Line2D
    from matplotlib.transforms import Affine2D

    figure = ax.get_figure(root=True)
    if figure is None:
        raise ValueError("the axes stand in no figure")
    points = Affine2D().scale(1 / 72) + figure.dpi_scale_trans
    figure.add_artist(Line2D(x, y, transform=points, clip_on=False, **style))


def plot_slice(ax: Axes, rows: pl.DataFrame, name: str, x: str, y: str, *, digits: int = 3) -> EndLabel:
    """Draw one slice's line, and return the label for its end."""
    style, every, known = LINES[slice_role(name)], marker_spacing(len(rows)), rows.filter(pl.col(y).is_finite())
    (line,) = ax.plot(rows[x].to_numpy(), rows[y].to_numpy(), **style, markevery=every, zorder=4)
    marked = rows.gather_every(every).filter(pl.col(y).is_finite())
    points = [f"{count(round(at))}: {number(value, digits)}" for at, value in marked.select(x, y).iter_rows()]
    hover(line, short_slice(name), points)
    end = float(known[y][-1])
    value = number(end, digits)
    return EndLabel(x=float(known[x][-1]), y=end, text=short_slice(name), value=value, colour=style["color"])


def spread_labels(wanted: Sequence[float], height: float, low: float, high: float) -> list[float]:
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
    heights = spread_labels([float(pixel[1]) for pixel in pixels], LINE_HEIGHT, box.y0, box.y1)
    for index, (curve, point) in enumerate(zip(ordered, points, strict=True)):
        on_left = index == 0 and len(ordered) > 1
        outermost = max(_crossing(other, point[1]) for other in ordered)
        away = float(ax.transData.transform((outermost, point[1]))[0] - pixels[index][0])
        annotate(
            ax,
            curve.text,
            point,
            coords="data",
            offset=(-7 if on_left else away + 9, heights[index] - float(pixels[index][1])),
            ha="right" if on_left else "left",
            va="center",
            color=INK,
            zorder=6,
            bbox=backing(0.75),
        )
        if away > 1 and not on_left:
            _leader(ax, (pixels[index][0] + away + 7, heights[index]), pixels[index], curve.colour)


def _crossing(curve: Curve, level: float) -> float:
    rising = curve.y[-1] > curve.y[0]
    reached = np.flatnonzero(curve.y >= level) if rising else np.flatnonzero(curve.y <= level)
    return float(curve.x[reached[0]] if len(reached) else curve.x[-1])
