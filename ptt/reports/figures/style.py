"""How high a curve's axes reach: to its data, below a spike that would crush it, or over powers of ten."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter

from ptt.reports.figures.panels import TWO_LINES
from ptt.reports.text.numbers import number, power_of_ten

if TYPE_CHECKING:
    from matplotlib.axes import Axes


INK, MUTED, RULE, SHADE, PAPER = "#1f2328", "#5b6470", "#d4d9df", "#eef1f5", "#ffffff"
TEXT, POST, OTHER = "#0072b2", "#d55e00", "#009e73"  # Okabe-Ito blue, vermillion, bluish green
TEXT_RAMP = ("#7fb8de", "#3389c4", "#00497a")
POST_RAMP = ("#f2aa72", "#dd6f1a", "#8f3a00")
OTHER_RAMP = ("#86cdb6", "#2aa37f", "#005c42")
# runs side by side: vermillion, blue, green, purple, ochre, violet, crimson, teal, olive, brown; 3:1 or more on white
ARMS = ("#d55e01", "#0072b3", "#009e74", "#c2629c", "#a6761d", "#5b4fb3", "#b3203a", "#00808c", "#6b7a00", "#7b4a2d")
CRITICAL, HIGH, MEDIUM, LOW = "#a3150d", "#c8540a", "#8a6100", "#3b6ea8"  # severities; each has a shape as well

# Each colour's custom property: the page redefines them for the dark, and the same drawing serves both.
PROPERTIES = {
    INK: "--fig-ink",
    MUTED: "--fig-muted",
    RULE: "--fig-rule",
    SHADE: "--fig-shade",
    PAPER: "--fig-paper",
    TEXT: "--fig-text",
    POST: "--fig-post",
    OTHER: "--fig-other",
    CRITICAL: "--fig-critical",
    HIGH: "--fig-high",
    MEDIUM: "--fig-medium",
    LOW: "--fig-low",
    **{colour: f"--fig-arm-{i}" for i, colour in enumerate(ARMS, 1)},
    **{colour: f"--fig-text-{i}" for i, colour in enumerate(TEXT_RAMP, 1)},
    **{colour: f"--fig-post-{i}" for i, colour in enumerate(POST_RAMP, 1)},
    **{colour: f"--fig-other-{i}" for i, colour in enumerate(OTHER_RAMP, 1)},
}

FONT, SMALL = 12.5, 12.0
LEFT, RIGHT, BOTTOM = 46, 74, 40  # margins in pixels
LINES: dict[str, dict[str, Any]] = {
    "text_only": {"color": TEXT, "linestyle": (0, (5, 1.6)), "marker": "o"},
    "post": {"color": POST, "linestyle": "-", "marker": "s"},
    "other": {"color": OTHER, "linestyle": (0, (1, 1.2)), "marker": "^"},
}
WINDOW_LINES: tuple[dict[str, Any], ...] = (
    {"linestyle": (0, (1.2, 1.2)), "linewidth": 1.8},
    {"linestyle": (0, (5, 1.6)), "linewidth": 1.8},
    {"linestyle": "-", "linewidth": 2.2},
)
LETTER = 6.9  # pixels: the mean width of a letter
MARKERS = 20  # on a line, about
LOG_FROM = 12.0  # a range wider than this ratio is drawn on a log axis


def role(slice_name: str) -> str:
    """Tell which of the three looks a slice has."""
    if slice_name == "text_only":
        return "text_only"
    return "post" if slice_name in {"post_tool", "post_observation"} else "other"


def ramp(slice_name: str) -> tuple[str, str, str]:
    """Give the light to dark colours of a slice for early, mid and late."""
    return {"text_only": TEXT_RAMP, "post": POST_RAMP, "other": OTHER_RAMP}[role(slice_name)]


@contextmanager
def look(salt: str) -> Iterator[None]:
    """Draw under our settings; the salt fixes the ids inside the SVG."""
    settings: dict[Any, Any] = {
        "svg.hashsalt": salt,
        "svg.fonttype": "none",
        "text.parse_math": False,
        "font.family": ["DejaVu Sans"],
        "font.size": FONT,
        "text.color": INK,
        "axes.labelcolor": MUTED,
        "axes.edgecolor": RULE,
        "axes.labelsize": SMALL,
        "axes.labelpad": 3.0,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.labelsize": SMALL,
        "ytick.labelsize": SMALL,
        "axes.linewidth": 1.0,
        "lines.linewidth": 2.0,
        "lines.markersize": 3.6,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.unicode_minus": True,
        "path.simplify": True,
        "path.simplify_threshold": 0.25,
    }
    with mpl.rc_context(settings):
        yield


def dress(ax: Axes, *, x_name: str, y_name: str = "", top: int = TWO_LINES) -> None:
    """Name both axes: the vertical one in a line above it, where it reads without turning the head."""
    ax.set_xlabel(x_name)
    ax.annotate(
        y_name,
        (0, 1),
        xycoords="axes fraction",
        xytext=(-LEFT + 8, top - 14),
        textcoords="offset points",
        fontsize=SMALL,
        color=MUTED,
        va="baseline",
    )
    ax.grid(axis="y", color=RULE, linewidth=0.7)
    ax.tick_params(length=3, width=0.8, color=RULE, pad=3)
    ax.tick_params(axis="x", pad=7)  # clear of the lowest number on the vertical axis


def linear(ax: Axes, axis: str, *, ticks: int = 5) -> None:
    """Use a linear axis with few, plainly written ticks."""
    target = ax.xaxis if axis == "x" else ax.yaxis
    target.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 2.5, 5, 10]))
    target.set_major_formatter(FuncFormatter(lambda value, _: number(float(value)) if value else "0"))


def step_axis(ax: Axes, rows: pl.DataFrame) -> None:
    """Let the x axis run over the steps of some windows."""
    first, last = int(rows["step_first"].to_numpy().min()), int(rows["step_last"].to_numpy().max())
    ax.set_xlim(first, max(last, first + 1))
    linear(ax, "x")


def logarithmic(ax: Axes, axis: str, low: float, high: float, *, powers: bool = False, ticks: int = 6) -> None:
    """Use a log axis over a range; ticks are 1, 2, 5 in a short range and powers of ten in a long one."""
    from math import ceil, floor, log10

    if axis == "x":
        ax.set_xscale("log")
        ax.set_xlim(low, high)
    else:
        ax.set_yscale("log")
        ax.set_ylim(low, high)
    first, last = floor(log10(low)), ceil(log10(high))
    decades = range(first, last + 1)
    marks = [10.0**e for e in decades if low <= 10.0**e <= high]
    for mantissas in ((1, 2, 5), (1, 3)):
        finer = [m * 10.0**e for e in decades for m in mantissas if low <= m * 10.0**e <= high]
        enough = 2 if powers else 4  # between powers of ten only other numbers could stand
        if len(marks) < enough and len(finer) <= ticks + 1:
            marks = finer
            break
    while len(marks) > ticks:
        marks = marks[::-2][::-1]
    target = ax.xaxis if axis == "x" else ax.yaxis
    target.set_major_locator(FixedLocator(marks))
    target.set_minor_locator(FixedLocator([]))
    target.set_minor_formatter(NullFormatter())

    def written(value: float, _: int) -> str:
        power = round(log10(value))
        return power_of_ten(power) if powers and abs(log10(value) - power) < 1e-9 else number(float(value))

    target.set_major_formatter(FuncFormatter(written))


def short_slice(name: str) -> str:
    """Name a slice in the few letters that fit beside a line."""
    known = {"text_only": "text-only", "post_tool": "post-tool", "post_observation": "post-obs."}
    return known.get(name) or drawable(name, 10)


def sparse(points: int) -> int:
    """Tell every how many points a marker stands, so that markers never run together."""
    return max(1, points // MARKERS)


def drawable(text: str, limit: int = 40) -> str:
    """Keep of a foreign text what the figure's font can draw."""
    plain = "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in text)
    return plain if len(plain) <= limit else plain[: limit - 3] + "..."


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
