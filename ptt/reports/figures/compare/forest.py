"""Draws how many times lower or higher each arm's late tails are than the baseline's: a forest plot."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
from matplotlib.ticker import FixedLocator, FuncFormatter

from ptt.diagnostics.compare.comparison import Comparison
from ptt.diagnostics.compare.readings import late_reach
from ptt.diagnostics.compare.wording import sided
from ptt.reports.figures.compare.arms import Look, looks, name_width
from ptt.reports.figures.compare.kinds import (
    CompareFigure,
    arm_name,
    finite,
    names,
    numbers_of,
    of_arm,
    rows_of,
    slices,
    title_of,
)
from ptt.reports.figures.panels import DataTable, Panel
from ptt.reports.figures.style import INK, LOG_FROM, MUTED, PAPER, SHADE, SMALL, logarithmic
from ptt.reports.text.names import slice_name
from ptt.reports.text.numbers import bounds, number, times
from ptt.reports.text.sanitize import safe

if TYPE_CHECKING:
    from matplotlib.axes import Axes


WINDOW = "late"
WIDTH, NUMBERS = 500, 240  # pixels: a panel, and the numbers right of its axes
PERCENTILE = 44  # pixels between the arms' names and the axes
ROW, GAP = 21.0, 9.0  # pixels: one ratio, and between two arms
TOP, BELOW = 34, 40
TICKS = ((0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20), (0.3, 0.5, 0.7, 1, 1.4, 2, 3), (0.8, 0.9, 1, 1.1, 1.25))
REACH = 30.0  # times the outermost estimate: an interval that goes on beyond ends in an arrow


def panels(comparison: Comparison) -> tuple[Panel, ...]:
    """Give one panel a slice."""
    made = []
    for index, name in enumerate(slices(comparison, "differences")):
        rows = _rows(comparison).filter(pl.col("slice") == name)
        if finite(rows, "ratio").height:
            made.append(_panel(comparison, index, name, rows))
    return tuple(made)


def _panel(comparison: Comparison, index: int, name: str, rows: pl.DataFrame) -> Panel:
    lines = _lines(comparison, rows)
    gaps = len({arm for arm, _, _ in lines}) - 1
    return Panel(
        key=f"compare-forest-{index}",
        title=title_of(name, "against the baseline, late third"),
        alt=_alt(lines, name),
        draw=partial(_draw, comparison=comparison, rows=rows),
        width=WIDTH,
        height=round(TOP + BELOW + ROW * len(lines) + GAP * (gaps + 1)),
        top=TOP,
        left=_left(comparison),
        right=NUMBERS,
    )


def caption(comparison: Comparison) -> str:
    """Tell how to read the figure."""
    return (
        "How many times lower or higher the arm's tail is than the baseline's in the late third of the steps that all "
        f"arms share ({late_reach(comparison.tables) or 'as recorded'}): right of 1 it is lower, left of 1 it is "
        "higher; log axis. Filled marks are p95, open ones "
        "p99, lines 95 % intervals; an arrow leads on to an end outside the axis. An interval that "
        "holds 1 shows no difference: the arm may still differ by less than its width. " + _seeds(comparison)
    )


def _seeds(comparison: Comparison) -> str:
    if all(len(arm.members) == 1 for arm in comparison.arms):
        return (
            "With one run a side the interval holds the noise within these runs, not what another seed would have done."
        )
    return "Where an arm has several runs their spread is part of the interval."


def data(comparison: Comparison) -> tuple[DataTable, ...]:
    """Give every ratio of every window on both axes."""
    frame = finite(rows_of(comparison, "differences"), "ratio")
    rows = tuple(
        (
            arm_name(row["arm"]),
            slice_name(row["slice"]),
            row["q"],
            safe(row["window"]),
            safe(row["axis"]),
            *_sided(row, bounds(row["lo"], row["hi"])),
            number(row["p_value"], 2),
            times(row["detectable"]),
        )
        for row in frame.iter_rows(named=True)
    )
    head = (
        "Arm",
        "Slice",
        "Percentile",
        "Window",
        "Matched by",
        "Against the baseline",
        "95 % interval",
        "p",
        "Detectable",
    )
    return numbers_of("All factors against the baseline", head, rows)


def _rows(comparison: Comparison) -> pl.DataFrame:
    return rows_of(comparison, "differences", axis="steps", window=WINDOW)


def _left(comparison: Comparison) -> int:
    return round(name_width(comparison) + PERCENTILE)


def _lines(comparison: Comparison, rows: pl.DataFrame) -> list[tuple[str, str, dict[str, Any]]]:
    """Give one line an arm and percentile, also where there is no value."""
    percentiles = sorted(set(rows["q"].to_list()))
    lines = []
    for arm in names(comparison)[1:]:
        part = of_arm(rows, arm)
        for q in percentiles:
            found = finite(part.filter(pl.col("q") == q), "ratio")
            found = found.filter(pl.col("ratio") > 0)
            lines.append((arm, q, found.row(0, named=True) if found.height else {}))
    return lines


def _draw(ax: Axes, *, comparison: Comparison, rows: pl.DataFrame) -> None:
    lines, arms = _lines(comparison, rows), looks(comparison)
    low, high = _span(lines)
    places = _places(lines)
    logarithmic(ax, "x", low, high, ticks=3)  # the axis is short
    if high / low <= LOG_FROM:
        _short_ticks(ax, low, high)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(max(value, 1 / value), 2)))
    ax.set_ylim(places[-1] + ROW / 2 + GAP, -GAP)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="x", length=3, width=0.8, pad=5)
    ax.set_xlabel("times higher or lower than the baseline, log axis")
    ax.grid(axis="x", color=SHADE, linewidth=0.8)
    ax.axvline(1.0, color=INK, linewidth=1.1, linestyle=(0, (4, 2)), zorder=2)
    for text, x, side in (("higher", 1.0, "right"), ("lower", 1.0, "left")):
        shift = -6 if side == "right" else 6
        ax.annotate(
            text,
            (x, 1),
            xycoords=("data", "axes fraction"),
            xytext=(shift, 6),
            textcoords="offset points",
            ha=side,
            fontsize=SMALL,
            color=MUTED,
        )
    before = ""
    for (arm, q, row), y in zip(lines, places, strict=True):
        if arm != before:
            _beside(ax, arms[arm].label, y, 4 - _left(comparison), INK)
        before = arm
        _beside(ax, q, y, -36, MUTED)
        _interval(ax, arms[arm], row, y, filled=q == lines[0][1])
        told = _told(row)
        _beside(ax, told, y, None, INK if row else MUTED)


def _interval(ax: Axes, look: Look, row: dict[str, Any], y: float, *, filled: bool) -> None:
    if not row:
        return
    low, high = ax.get_xlim()
    ends = [_end(row["lo"], low), _end(row["hi"], high)]
    if row["lo"] is not None or row["hi"] is not None:
        ax.plot([max(ends[0], low), min(ends[1], high)], [y, y], color=look.colour, linewidth=2.0, zorder=3)
        for outside, place, marker in ((ends[0] <= low, low, "<"), (ends[1] >= high, high, ">")):
            if outside:
                ax.plot([place], [y], color=look.colour, marker=marker, markersize=6, clip_on=False, zorder=4)
    face = look.colour if filled else PAPER
    ax.plot(
        [row["ratio"]],
        [y],
        color=look.colour,
        marker=look.marker,
        markersize=7.5 if look.marker in "P*X" else 6.5,
        markerfacecolor=face,
        markeredgewidth=1.6,
        zorder=5,
    )


def _end(value: float | None, edge: float) -> float:
    return edge if value is None or value != value else value


def _told(row: dict[str, Any]) -> str:
    if not row:
        return "not compared"
    factor, interval = _sided(row, "")
    return f"{factor}, no interval" if not interval else f"{factor} ({interval})"


def _sided(row: dict[str, Any], written: str) -> tuple[str, str]:
    """Write a factor above 1 with its interval and its side, as the sentences do."""
    low, high = row["lo"], row["hi"]
    known = low is not None and high is not None and low == low and high == high
    found = sided(row["ratio"], low if known else math.nan, high if known else math.nan)
    interval = found.interval(number, 2, joint="–") if known else written
    return f"×{number(found.factor, 2)} {found.side}".rstrip(), interval


def _beside(ax: Axes, text: str, y: float, x: float | None, colour: str) -> None:
    """Write left of the axes, so many pixels from them, or right of them."""
    ax.annotate(
        text,
        (0.0 if x is not None else 1.0, y),
        xycoords=("axes fraction", "data"),
        xytext=(x if x is not None else 12, 0),
        textcoords="offset points",
        va="center",
        fontsize=SMALL,
        color=colour,
        annotation_clip=False,
    )


def _places(lines: list[tuple[str, str, dict[str, Any]]]) -> list[float]:
    places: list[float] = []
    y, before = ROW / 2, lines[0][0]
    for arm, _, _ in lines:
        y += GAP if arm != before else 0
        before = arm
        places.append(y)
        y += ROW
    return places


def _span(lines: list[tuple[str, str, dict[str, Any]]]) -> tuple[float, float]:
    """Give an axis that holds all estimates, 1, and the intervals unless they reach very far."""
    ratios = [row["ratio"] for _, _, row in lines if row]
    least, most = min([1.0, *ratios]), max([1.0, *ratios])
    ends = [row[side] for _, _, row in lines if row for side in ("lo", "hi") if row[side] is not None]
    ends = [end for end in ends if least / REACH <= end <= most * REACH]
    return min([least, *ends]) / 1.25, max([most, *ends]) * 1.25


def _short_ticks(ax: Axes, low: float, high: float) -> None:
    """Mark a short range more closely than powers of ten do."""
    inside = [[mark for mark in marks if low <= mark <= high] for marks in TICKS]
    ax.xaxis.set_major_locator(FixedLocator(next((marks for marks in inside if len(marks) > 2), inside[-1])))


def _alt(lines: list[tuple[str, str, dict[str, Any]]], name: str) -> str:
    told = [f"Each arm's late {slice_name(name)} tail against the baseline's, with 95 % intervals."]
    told += [f"{arm_name(arm)} {q}: {_told(row)}." for arm, q, row in lines]
    return " ".join(told)


FIGURE = CompareFigure(
    name="suppression",
    title="How far from the baseline's",
    columns=2,
    panels=panels,
    caption=caption,
    data=data,
    absence="no arm's late tails could be set against the baseline's",
)
