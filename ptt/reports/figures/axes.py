"""Axes that figures share: their names, ticks and ranges, the shaded windows, and rows in place of a vertical axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import STEP, Diagnosis, Run
from ptt.reports.figures.panels import TWO_LINES
from ptt.reports.figures.style import LEFT, MUTED, RULE, SHADE, annotate
from ptt.reports.text.numbers import number, power_of_ten
from ptt.reports.text.tables import WINDOW_NAMES, windows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = np.ndarray[Any, Any]

LOG_RATIO = 12.0  # a range wider than this ratio is drawn on a log axis


def label_axes(ax: Axes, *, x_name: str, y_name: str = "", top: int = TWO_LINES) -> None:
    """Name both axes: the vertical one in a line above it, where it reads without turning the head."""
    ax.set_xlabel(x_name)
    annotate(ax, y_name, (0, 1), coords="axes fraction", offset=(-LEFT + 8, top - 14), color=MUTED, va="baseline")
    ax.grid(axis="y", color=RULE, linewidth=0.7)
    ax.tick_params(length=3, width=0.8, color=RULE, pad=3)
    ax.tick_params(axis="x", pad=7)  # clear of the lowest number on the vertical axis


def linear(ax: Axes, axis: str, *, ticks: int = 5) -> None:
    """Use a linear axis with few, plainly written ticks."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    target = ax.xaxis if axis == "x" else ax.yaxis
    target.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 2.5, 5, 10]))
    target.set_major_formatter(FuncFormatter(lambda value, _: number(float(value)) if value else "0"))


def logarithmic(ax: Axes, axis: str, low: float, high: float, *, powers: bool = False, ticks: int = 6) -> None:
    """Use a log axis over a range; ticks are 1, 2, 5 in a short range and powers of ten in a long one."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

    ax.set(**{f"{axis}scale": "log", f"{axis}lim": (low, high)})
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    marks = [10.0**e for e in decades if low <= 10.0**e <= high]
    for mantissas in ((1, 2, 5), (1, 3)):
        finer = [m * 10.0**e for e in decades for m in mantissas if low <= m * 10.0**e <= high]
        enough = 2 if powers else 4  # between powers of ten only other numbers could stand
        if len(marks) < enough and len(finer) <= ticks + 1:
            marks = finer
            break
    while len(marks) > ticks:
        marks = marks[::-2][::-1]

    def tick_label(value: float, _: int) -> str:
        power = round(math.log10(value))
        return power_of_ten(power) if powers and abs(math.log10(value) - power) < 1e-9 else number(float(value))

    target = ax.xaxis if axis == "x" else ax.yaxis
    target.set_major_locator(FixedLocator(marks))
    target.set_minor_locator(FixedLocator([]))
    target.set_minor_formatter(NullFormatter())
    target.set_major_formatter(FuncFormatter(tick_label))


def step_axis(run: Run) -> str:
    """Name the horizontal axis by what the run's rows are."""
    return "trainer step" if run.step_unit == STEP else run.step_unit


def step_range(ax: Axes, first: float, last: float, *, ticks: int = 4) -> None:
    """Let the horizontal axis run over steps or tokens, one at least."""
    ax.set_xlim(first, max(last, first + 1))
    linear(ax, "x", ticks=ticks)


def step_ends(rows: pl.DataFrame) -> tuple[int, int]:
    """Return the first and the last step of some windows."""
    return int(rows["step_first"].to_numpy().min()), int(rows["step_last"].to_numpy().max())


def tail_axis(ax: Axes, low: float, high: float, *, log: bool) -> None:
    """Fit the vertical axis to percentiles of |r|."""
    if log:
        logarithmic(ax, "y", low / 1.15, high * 1.25)
    else:
        ax.set_ylim(0, high * 1.1)
        linear(ax, "y")


def ess_axis(ax: Axes, name: str, *, top: int = TWO_LINES) -> None:
    """Name the axes of effective sample sizes, shares of n: from 0 to 1 in every run, so that runs can be compared."""
    label_axes(ax, x_name="trainer step", y_name=name, top=top)
    ax.set_ylim(0, 1.02)
    linear(ax, "y")


def shade_windows(ax: Axes, diagnosis: Diagnosis, *, named: bool = True) -> None:
    """Shade the early and the late window of a run lightly, and name all three above the axes."""
    low, high = ax.get_xlim()
    spans = [(name, max(low, first - 0.5), min(high, last + 0.5)) for name, first, last in windows(diagnosis)]
    _shade(ax, spans, named=named)


def shade_thirds(ax: Axes, *, named: bool = True) -> None:
    """Shade the early and the late third of the axis lightly, and name all three above it."""
    edges = np.linspace(*ax.get_xlim(), len(WINDOW_NAMES) + 1).tolist()
    _shade(ax, list(zip(WINDOW_NAMES, edges[:-1], edges[1:], strict=True)), named=named)


def _shade(ax: Axes, spans: Sequence[tuple[str, float, float]], *, named: bool) -> None:
    for index, (name, left, right) in enumerate(spans):
        if right <= left:
            continue
        if index % 2 == 0:
            ax.axvspan(left, right, color=SHADE, linewidth=0, zorder=0)
        if named:
            middle = (left + right) / 2
            annotate(ax, name, (middle, 1), coords=("data", "axes fraction"), offset=(0, 4), ha="center", color=MUTED)


def row_axes(
    ax: Axes,
    x_name: str,
    bottom: float,
    top: float = 0,
    *,
    tick_color: str = MUTED,
    grid: tuple[str, float] = (RULE, 0.7),
) -> None:
    """Replace the vertical axis by rows, in pixels from the top; `grid` is the colour and width of upright lines."""
    ax.set_ylim(bottom, top)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="x", length=3, width=0.8, pad=5, color=tick_color)
    ax.set_xlabel(x_name)
    ax.grid(axis="x", color=grid[0], linewidth=grid[1])


def annotate_row(
    ax: Axes, text: str, y: float, x: float, color: str, *, right: bool = False, down: float = 0, **style: Any
) -> None:
    """Write at the height of a row, so many pixels from the left or the right end of the axes, or below that height."""
    at, look = (1.0 if right else 0.0, y), {"va": "center", "color": color, "annotation_clip": False}
    annotate(ax, text, at, coords=("axes fraction", "data"), offset=(x, -down), **(look | style))


LOG_PEAK_RATIO = 300.0  # of a curve's peak to the median of its mean: from here on it is drawn on a log axis
MIN_SPIKE_POINTS = 40  # values of the mean: in fewer a spike is no small part of the run
SPIKE_QUANTILE, SPIKE_FACTOR = 0.95, 3.0  # few steps reach what is cut off, so many usual ranges above them
LIMIT_REACH = 4.0  # a limit further off than this many ranges of the data is written, not drawn
MIN_OUTLIER_POINTS = 20  # values: in fewer, every one is shown
OUTLIER_QUANTILES = (0.005, 0.995)  # single steps beyond these shares may leave the axes


@dataclass(frozen=True, kw_only=True)
class CurveScale:
    """The ends of a curve's vertical axis, and whether the limit stands on it: not where it would flatten the data."""

    low: float
    high: float
    log: bool
    limit_shown: bool

    def apply(self, ax: Axes) -> None:
        """Use this scale on the vertical axis."""
        if self.log:
            logarithmic(ax, "y", self.low, self.high, powers=True, ticks=5)
        else:
            ax.set_ylim(self.low, self.high)
            linear(ax, "y", ticks=4)


def spans_powers(mean: Floats) -> bool:
    """Return whether a curve spans so many powers of ten that a linear axis would show its peaks alone."""
    return len(mean) > 0 and bool(mean.min() > 0) and float(mean.max()) > LOG_PEAK_RATIO * float(np.median(mean))


def spike_cutoff(mean: Floats) -> float:
    """Return the height above which a spike of the mean would crush the rest of its curve; infinite where none does.

    A rise that lasts is no spike: only what few of the steps reach, and far above the others, is cut off.
    """
    if len(mean) < MIN_SPIKE_POINTS:
        return math.inf
    low, usual = np.quantile(mean, [1 - SPIKE_QUANTILE, SPIKE_QUANTILE])
    cut = float(usual + SPIKE_FACTOR * (usual - low))
    return cut if mean.max() > cut and usual > low else math.inf


def curve_scale(raw: Floats, mean: Floats, limit: float | None = None) -> CurveScale:
    """Fit a vertical axis to a curve's single steps and their mean, below a spike, or over powers of ten."""
    if spans_powers(mean):
        low, high = float(mean.min()), max(float(raw.max()), float(mean.max()))
        shown = limit is not None and limit > 0
        if limit is not None and shown:
            low, high = min(low, limit), max(high, limit)
        return CurveScale(low=low / 2, high=high * 2, log=True, limit_shown=shown)
    top = spike_cutoff(mean)
    raw = raw[raw <= top] if (raw <= top).any() else raw
    low, high = np.quantile(raw, OUTLIER_QUANTILES) if len(raw) > MIN_OUTLIER_POINTS else (raw.min(), raw.max())
    means = mean[mean <= top].tolist()  # a short run has no mean yet
    low, high = min([float(low), *means]), max([float(high), *means])
    span = (high - low) or max(abs(high), 1.0) * 0.1
    shown = limit is not None and low - LIMIT_REACH * span < limit < high + LIMIT_REACH * span
    if limit is not None and shown:
        low, high = min(low, limit), max(high, limit)
        span = high - low
    above = 0.3 if limit is not None and not shown else 0.14
    return CurveScale(low=low - 0.06 * span, high=high + above * span, log=False, limit_shown=shown)
