"""Draws how many times lower or higher each arm's tails are than the baseline's, by thirds: a forest plot."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from ptt.diagnostics.compare.comparison import Comparison, late_reach, sided
from ptt.reports.figures.axes import LOG_RATIO, annotate_row, logarithmic, row_axes
from ptt.reports.figures.compare.arms import ArmStyle, arm_styles
from ptt.reports.figures.compare.rows import (
    CompareFigure,
    arm_name,
    cut_table,
    drawn_arms,
    finite,
    rows_of,
    slice_title,
    slices,
)
from ptt.reports.figures.panels import DataTable, Panel
from ptt.reports.figures.style import INK, MUTED, PAPER, SHADE, annotate, hover
from ptt.reports.text.names import sentence, slice_name
from ptt.reports.text.numbers import bounds, counted, number, times
from ptt.reports.text.sanitize import safe
from ptt.reports.text.tables import WINDOW_NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes


WIDTH, NUMBERS_WIDTH = 500, 240  # pixels: a panel, and the numbers right of its axes
NAMES_WIDTH = 104  # pixels left of the axes: a percentile and a window
ARM_HEIGHT = 22.0  # pixels of an arm's name above its ratios
MAX_FULL_ARMS = 4  # with more, the first two windows of the second percentile are in the table alone
MAX_NAMED = 3  # arms whose ratios stand in the heading
RATIO_HEIGHT, ARM_GAP = 21.0, 9.0  # pixels: one ratio, and between two arms
TOP, BELOW = 34, 40
LATE = WINDOW_NAMES[-1]
PALE = 0.5
TICKS = ((0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20), (0.3, 0.5, 0.7, 1, 1.4, 2, 3), (0.8, 0.9, 1, 1.1, 1.25))
MAX_REACH = 30.0  # times the outermost estimate: an interval that goes on beyond ends in an arrow
Ratio = tuple[str, str, str, dict[str, Any]]  # an arm, a percentile, a window, and its differences; empty: not compared


def panels(comparison: Comparison) -> tuple[Panel, ...]:
    """Return one panel for each slice."""
    differences = _differences(comparison)
    return tuple(
        Panel(
            key=f"compare-forest-{index}",
            title=slice_title(name, "against the baseline, by thirds"),
            alt=_alt(ratios, name),
            draw=partial(_draw, comparison=comparison, ratios=ratios),
            width=WIDTH,
            height=round(TOP + BELOW + _heights(ratios)[-1] + RATIO_HEIGHT / 2 + ARM_GAP),
            top=TOP,
            left=NAMES_WIDTH,
            right=NUMBERS_WIDTH,
        )
        for index, name in enumerate(slices(comparison, "differences"))
        for rows in (differences.filter(slice=name),)
        if finite(rows, "ratio").height
        for ratios in (_ratios(comparison, rows),)
    )


def takeaway(comparison: Comparison) -> str:
    """Say how far each arm's late tail lies from the baseline's, after tools where there are such tokens."""
    names = slices(comparison, "differences")
    late = finite(_differences(comparison), "ratio").filter(pl.col("window") == "late", pl.col("ratio") > 0)
    rows = late.filter(slice=names[0]) if names else late
    rows = rows.filter(pl.col("q") == pl.col("q").min())
    if rows.is_empty():
        return ""
    styles, sides, words = arm_styles(comparison), Counter[str](), []
    for row in rows.iter_rows(named=True):
        if row["arm"] not in styles:
            continue
        known = row["lo"] is not None and row["hi"] is not None and not row["lo"] <= 1 <= row["hi"]
        sides["lower" if known and row["ratio"] > 1 else "higher" if known else "no different"] += 1
        words.append(f"{styles[row['arm']].label} {_sided(row, '')[0] if known else 'no different'}")
    what = f"late {slice_name(names[0])} {rows['q'][0]}"
    if len(words) > MAX_NAMED:
        words = [f"{counted(how_many, 'arm')} {side}" for side, how_many in sides.most_common()]
    return sentence(f"{what} against {styles[comparison.arms[0].name].label}: {', '.join(words)}").rstrip(".")


def _differences(comparison: Comparison) -> pl.DataFrame:
    return rows_of(comparison, "differences", axis="steps").filter(pl.col("window").is_in(WINDOW_NAMES))


def caption(comparison: Comparison) -> str:
    """Return how to read the figure."""
    seeds = (
        "With one run per side, the interval covers the noise within these runs, not the difference between seeds."
        if all(len(arm.members) == 1 for arm in comparison.arms)
        else "If an arm has several runs, their spread is part of the interval."
    )
    return (
        "How many times lower or higher the arm's tail is than the baseline's in each third of the steps that all "
        f"arms share (late: {late_reach(comparison.tables) or 'as recorded'}): right of 1 it is lower, left of 1 it is "
        "higher; log axis. The early and the middle third are pale. Filled marks are p95, open ones "
        "p99, lines 95% intervals; an arrow means that the interval ends outside the axis. An interval "
        "that contains 1 shows no difference; the arm may still differ by less than its width. " + seeds
    )


def data(comparison: Comparison) -> tuple[DataTable, ...]:
    """Return every ratio of every window on both axes."""
    rows = [
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
        for row in rows_of(comparison, "differences", "ratio").iter_rows(named=True)
    ]
    matched = ("Arm", "Slice", "Percentile", "Window", "Matched by")
    head = (*matched, "Against the baseline", "95% interval", "p", "Detectable")
    return cut_table("All factors against the baseline", head, rows)


def _ratios(comparison: Comparison, rows: pl.DataFrame) -> list[Ratio]:
    """Return one ratio for each arm, percentile and window, also where there is no value."""
    known = finite(rows, "ratio").filter(pl.col("ratio") > 0)
    by_key = {(row["arm"], row["q"], row["window"]): row for row in known.reverse().iter_rows(named=True)}
    percentiles, arms = rows["q"].unique().sort().to_list(), drawn_arms(comparison)[1:]
    return [
        (arm, q, window, by_key.get((arm, q, window), {}))
        for arm in arms
        for q in percentiles
        for window in WINDOW_NAMES
        if window == LATE or q == percentiles[0] or len(arms) <= MAX_FULL_ARMS
    ]


def _draw(ax: Axes, *, comparison: Comparison, ratios: list[Ratio]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter

    low, high = _span(ratios)
    heights = _heights(ratios)
    logarithmic(ax, "x", low, high, ticks=3)  # the axis is short
    if high / low <= LOG_RATIO:  # marked more closely than powers of ten
        inside = [[tick for tick in ticks if low <= tick <= high] for ticks in TICKS]
        ax.xaxis.set_major_locator(FixedLocator(next((ticks for ticks in inside if len(ticks) > 2), inside[-1])))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(max(value, 1 / value), 2)))
    title = "times higher or lower than the baseline, log axis"
    row_axes(ax, title, heights[-1] + RATIO_HEIGHT / 2 + ARM_GAP, -ARM_GAP, grid=(SHADE, 0.8))
    ax.axvline(1.0, color=INK, linewidth=1.1, linestyle=(0, (4, 2)), zorder=2)
    for text, offset, side in (("higher", (-6, 6), "right"), ("lower", (6, 6), "left")):
        annotate(ax, text, (1.0, 1), coords=("data", "axes fraction"), offset=offset, ha=side, color=MUTED)
    styles, before = arm_styles(comparison), ("", "")
    for (arm, q, window, row), y in zip(ratios, heights, strict=True):
        if arm != before[0]:
            annotate_row(ax, styles[arm].label, y - ARM_HEIGHT, 4 - NAMES_WIDTH, INK, fontweight="bold")
        if (arm, q) != before:
            annotate_row(ax, q, y, 12 - NAMES_WIDTH, MUTED)
        before, late = (arm, q), window == LATE
        annotate_row(ax, window, y, 48 - NAMES_WIDTH, INK if late else MUTED)
        if row:
            _draw_interval(ax, styles[arm], row, y, filled=q == ratios[0][1], late=late)
        annotate_row(ax, _text(row), y, 12, INK if row and late else MUTED, right=True)


def _draw_interval(ax: Axes, style: ArmStyle, row: dict[str, Any], y: float, *, filled: bool, late: bool) -> None:
    low, high = ax.get_xlim()
    left, right = (edge if end is None or end != end else end for end, edge in ((row["lo"], low), (row["hi"], high)))
    if row["lo"] is not None or row["hi"] is not None:
        ax.plot(
            [max(left, low), min(right, high)],
            [y, y],
            color=style.colour,
            linewidth=2.0,
            alpha=1 if late else PALE,
            zorder=3,
        )
        for outside, x, marker in ((left <= low, low, "<"), (right >= high, high, ">")):
            if outside:
                ax.plot([x], [y], color=style.colour, marker=marker, markersize=6, clip_on=False, zorder=4)
    (mark,) = ax.plot(
        [row["ratio"]],
        [y],
        alpha=1 if late else PALE,
        color=style.colour,
        marker=style.marker,
        markersize=7.5 if style.marker in "P*X" else 6.5,
        markerfacecolor=style.colour if filled else PAPER,
        markeredgewidth=1.6,
        zorder=5,
    )
    hover(mark, _text(row))


def _text(row: dict[str, Any]) -> str:
    if not row:
        return "not compared"
    factor, interval = _sided(row, "")
    return f"{factor} ({interval})" if interval else f"{factor}, no interval"


def _sided(row: dict[str, Any], unknown: str) -> tuple[str, str]:
    """Write a factor above 1 with its side, and its interval, as the sentences do."""
    low, high = row["lo"], row["hi"]
    known = low is not None and high is not None and low == low and high == high
    factor = sided(row["ratio"], low if known else math.nan, high if known else math.nan)
    interval = factor.interval(number, 2, joint="–") if known else unknown
    return f"×{number(factor.factor, 2)} {factor.side}".rstrip(), interval


def _heights(ratios: list[Ratio]) -> list[float]:
    """Return the middle of each ratio's row, in pixels from the top."""
    arms = list(dict.fromkeys(arm for arm, *_ in ratios))
    above = [ARM_GAP * arms.index(arm) + ARM_HEIGHT * (arms.index(arm) + 1) for arm, *_ in ratios]
    return [RATIO_HEIGHT * (index + 0.5) + room for index, room in enumerate(above)]


def _span(ratios: list[Ratio]) -> tuple[float, float]:
    """Return an axis that holds all estimates, 1, and the intervals unless they reach very far."""
    rows = [row for *_, row in ratios if row]
    estimates = [1.0, *(row["ratio"] for row in rows)]
    least, most = min(estimates), max(estimates)
    ends = [row[side] for row in rows for side in ("lo", "hi") if row[side] is not None]
    ends = [end for end in ends if least / MAX_REACH <= end <= most * MAX_REACH]
    return min([least, *ends]) / 1.25, max([most, *ends]) * 1.25


def _alt(ratios: list[Ratio], name: str) -> str:
    sentences = [f"Each arm's {slice_name(name)} tail against the baseline's by thirds, with 95% intervals."]
    sentences += [f"{arm_name(arm)} {q} {window}: {_text(row)}." for arm, q, window, row in ratios]
    return " ".join(sentences)


FIGURE = CompareFigure(
    name="suppression",
    title="How far from the baseline's",
    columns=2,
    panels=panels,
    caption=caption,
    data=data,
    takeaway=takeaway,
    absence=lambda _: "no arm's late tails could be compared with the baseline",
)
