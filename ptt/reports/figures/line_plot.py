"""Lays out a small plot of lines over steps as paths and labels in parts of its box, which may have any width.

The paths lie in a square of `SIZE` that the page stretches; labels are text of the page beside it, never stretched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any, Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.reports.text.numbers import count, number, power_of_ten

Floats = np.ndarray[Any, Any]

SIZE: Final = 1000  # units of the box on either axis
COLUMNS: Final = 300  # a longer line is drawn as its extremes in so many columns: more than a phone has pixels
OVERSHOOT: Final = 60  # units that a line may leave the box by, to be cut off there
FEW_POINTS: Final = 40  # so few values are drawn as dots on their line
LABEL_SHARE: Final = 0.09  # of the height of a plot: a line of text
NICE: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
X_TICKS, Y_TICKS = 6, 4


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One path and how it looks."""

    look: str
    d: str


@dataclass(frozen=True, kw_only=True)
class Label:
    """One text and where its anchor lies, in per cent of the box from its left and its top; None: by its look."""

    look: str
    text: str
    left: float | None = None
    top: float | None = None


@dataclass(frozen=True, kw_only=True)
class LinePlot:
    """A finished plot; `alt` tells its content in words and numbers."""

    key: str
    title: str
    alt: str
    shapes: tuple[Shape, ...]
    labels: tuple[Label, ...]


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis: its ends, and whether it is logarithmic."""

    low: float
    high: float
    log: bool = False

    def place(self, values: Floats) -> Floats:
        """Return where values lie, 0 at the low end and 1 at the high one."""
        low, high = self.low, self.high
        if self.log:
            floor = np.finfo(np.float64).tiny
            values, low, high = np.log(np.maximum(values, floor)), math.log(low), math.log(high)
        return (values - low) / (high - low)

    def ticks(self, most: int) -> list[float]:
        """Return few round values between the ends."""
        return _powers(self.low, self.high, most) if self.log else _round_values(self.low, self.high, most)


def _round_values(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * nice for nice in NICE if power * nice >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def _powers(low: float, high: float, most: int) -> list[float]:
    decades = range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
    exponents = list(decades)[:: -(-len(decades) // most) or 1]
    if len(exponents) > 1:
        return [10.0**e for e in exponents]
    finer = [
        m * 10.0**e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1) for m in (1, 2, 5)
    ]
    return [value for value in finer if low <= value <= high][-most:]


@dataclass(kw_only=True)
class Drawing:
    """Collects shapes and labels over two axes."""

    x: Axis
    y: Axis
    shapes: list[Shape] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    _ends: list[tuple[float, str, str]] = field(default_factory=list)  # height, text and look of labels on the right

    def axes(self, step: str) -> None:
        """Draw the grid and the numbers of both axes; the first number on the horizontal one is named."""
        at = self.y.ticks(Y_TICKS)
        self._path("grid", "".join(f"M0 {h}H{SIZE}" for h in self._heights(np.array(at))))
        for value, height in zip(at, self._heights(np.array(at)), strict=True):
            self.labels.append(Label(look="y", text=_tick(value, log=self.y.log), top=_percent(height)))
        steps = [tick for tick in self.x.ticks(X_TICKS) if tick == round(tick)]
        for index, tick in enumerate(steps):
            name = f"{step} {count(round(tick))}" if index == 0 else count(round(tick))
            look = "x odd" if index % 2 else "x"
            self.labels.append(Label(look=look, text=name, left=_percent(self._column(tick))))

    def line(self, look: str, steps: Floats, values: Floats) -> None:
        """Draw a line, its points as well where they are few."""
        usable = np.isfinite(values)
        steps, values = steps[usable].astype(float), values[usable]
        if not len(steps):
            return
        few = len(steps) <= FEW_POINTS
        steps, values = (steps, values) if len(steps) <= 2 * COLUMNS else _extremes(steps, values)
        columns = np.rint(self.x.place(steps) * SIZE).astype(int)
        heights = np.array(self._heights(values))
        if few:
            self._path(f"{look} dots", "".join(f"M{c} {h}h0" for c, h in zip(columns, heights, strict=True)))
        if len(steps) > 1:
            self._path(look, _relative(columns, heights))

    def band(self, look: str, steps: Floats, low: Floats, high: Floats) -> None:
        """Fill what lies between two lines."""
        usable = np.isfinite(low) & np.isfinite(high)
        if usable.sum() < 2:
            return
        columns = np.rint(self.x.place(steps[usable].astype(float)) * SIZE).astype(int)
        below, above = (np.array(self._heights(side[usable])) for side in (low, high))
        self._path(look, _relative(np.append(columns, columns[::-1]), np.append(above, below[::-1])) + "z")

    def span(self, look: str, first: float, last: float) -> None:
        """Shade the steps from one to another, over the whole height."""
        left, right = (min(max(self._column(step), 0), SIZE) for step in (first, last))
        if right > left:
            self._path(look, f"M{left} 0H{right}V{SIZE}H{left}z")

    def level(self, look: str, value: float, text: str) -> None:
        """Draw a level line, and write at its right end what it is."""
        (height,) = self._heights(np.array([value]))
        self._path(look, f"M0 {height}H{SIZE}")
        self.end(look, value, text)

    def end(self, look: str, value: float, text: str) -> None:
        """Write at a height right of the axes."""
        self._ends.append((self._heights(np.array([value]))[0] / SIZE, text, look))

    def step(self, look: str, step: float, text: str) -> None:
        """Draw an upright line, and write at its end what it marks."""
        column = min(max(self._column(step), 0), SIZE)
        self._path(look, f"M{column} 0V{SIZE}")
        side = "left" if column > SIZE / 2 else "right"
        self.labels.append(Label(look=f"{look} {side}", text=text, left=_percent(column)))

    def dots(self, look: str, steps: Floats) -> None:
        """Mark steps along the upper edge."""
        columns = np.unique(np.rint(self.x.place(steps.astype(float)) * SIZE).astype(int))
        if len(columns):
            self._path(look, "".join(f"M{column} 0h0" for column in columns))

    def finish(self, *, key: str, title: str, alt: str) -> LinePlot:
        """Return the plot, its labels on the right apart from each other."""
        ends = sorted(self._ends)
        heights = spread([height for height, _, _ in ends], LABEL_SHARE)
        for (_, text, look), height in zip(ends, heights, strict=True):
            self.labels.append(Label(look=f"end {look}", text=text, top=_percent(height * SIZE)))
        return LinePlot(key=key, title=title, alt=alt, shapes=tuple(self.shapes), labels=tuple(self.labels))

    def _path(self, look: str, d: str) -> None:
        self.shapes.append(Shape(look=look, d=d))

    def _column(self, step: float) -> int:
        return round(float(self.x.place(np.array([float(step)]))[0]) * SIZE)

    def _heights(self, values: Floats) -> list[int]:
        heights = SIZE - self.y.place(values) * SIZE
        return [int(h) for h in np.rint(np.clip(heights, -OVERSHOOT, SIZE + OVERSHOOT))]


def spread(heights: Sequence[float], apart: float) -> list[float]:
    """Move sorted heights so far apart, as little as possible, and keep them within 0 and 1."""
    placed = list(heights)
    for i in range(1, len(placed)):
        placed[i] = max(placed[i], placed[i - 1] + apart)
    ceiling = 1.0
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], ceiling)
        ceiling = placed[i] - apart
    return placed


def _extremes(steps: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Return the least and the greatest value of each of `COLUMNS` parts, in order."""
    starts = np.linspace(0, len(steps), COLUMNS, endpoint=False).astype(int)
    kept = []
    for part in np.split(np.arange(len(steps)), starts[1:]):
        kept += [part[values[part].argmin()], part[values[part].argmax()]]
    order = np.unique(kept)
    return steps[order], values[order]


def _relative(columns: Floats, heights: Floats) -> str:
    """Return a path in relative steps, which are short."""
    pairs = zip(np.diff(columns).tolist(), np.diff(heights).tolist(), strict=True)
    moves = "".join(f" {dx}{'' if dy < 0 else ' '}{dy}" for dx, dy in pairs)
    return f"M{columns[0]} {heights[0]}l{moves.lstrip()}"


def _percent(units: float) -> float:
    return round(100 * units / SIZE, 1)


def _tick(value: float, *, log: bool) -> str:
    power = math.log10(value) if log else 0.5
    if log and abs(power - round(power)) < 1e-9 and abs(power) > 2:
        return power_of_ten(round(power))
    return number(float(value)) if value else "0"
