"""Draws each arm alone over the baseline, where there are too many arms for one panel."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from ptt.diagnostics.compare.comparison import Comparison
from ptt.reports.figures.compare.arms import looks
from ptt.reports.figures.compare.kinds import AFTER, CompareFigure, arm_name, finite, names, of_arm, rows_of, slices
from ptt.reports.figures.compare.scales import AXES, across, matched_range, missing, shade_thirds, tail_height
from ptt.reports.figures.compare.tails import BANDS_UP_TO, band, curve, ends_of, values_of
from ptt.reports.figures.panels import ONE_LINE, Panel
from ptt.reports.figures.style import dress
from ptt.reports.text.names import slice_name
from ptt.reports.text.numbers import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def panels(comparison: Comparison) -> tuple[Panel, ...]:
    """Give one small panel an arm with its band over the baseline's, where there are too many for one panel."""
    every = names(comparison)
    found = [name for name in slices(comparison) if name in AFTER]
    if len(every) <= BANDS_UP_TO or not found:
        return ()
    frame = finite(rows_of(comparison, "curves", axis="steps", slice=found[0]), "value")
    if not frame.height:
        return ()
    rows = frame.filter(pl.col("q") == min(frame["q"].to_list()))
    if not rows.height:
        return ()
    shown = str(rows["q"][0])
    return tuple(
        Panel(
            key=f"compare-each-{index}",
            title=_title(rows, comparison, name),
            alt=_alt_of_one(rows, name, every[0], shown),
            draw=partial(_draw_one, comparison=comparison, rows=rows, name=name),
            width=340,
            height=206,
            top=ONE_LINE,
            right=12,
        )
        for index, name in enumerate(every[1:])
    )


def _draw_one(ax: Axes, *, comparison: Comparison, rows: pl.DataFrame, name: str) -> None:
    arms = looks(comparison)
    across(ax, matched_range(comparison, "steps", rows))
    logged = tail_height(ax, values_of(rows), ends_of(rows))
    dress(ax, x_name=AXES["steps"], y_name="|r|, log axis" if logged else "|r|", top=ONE_LINE)
    shade_thirds(ax, named=False)
    for arm in (names(comparison)[0], name):
        part = of_arm(rows, arm).sort("x_mid")
        if part.height:
            band(ax, part, arms[arm])
            curve(ax, part, arms[arm])


def _title(rows: pl.DataFrame, comparison: Comparison, name: str) -> str:
    """Name the arm, and say what is not drawn of it."""
    absent, ended = missing(comparison, rows)
    if name in absent:
        return f"{arm_name(name)} · no value, not drawn"
    last = dict(ended).get(name)
    return arm_name(name) if last is None else f"{arm_name(name)} · no value after {number(round(last))}"


def _alt_of_one(rows: pl.DataFrame, name: str, baseline: str, shown: str) -> str:
    told = [f"{shown} of |log-ratio| over trainer steps with its interval, and the baseline's."]
    for arm in (name, baseline):
        part = of_arm(rows, arm).sort("x_mid")
        ends = (
            f"from {number(part['value'][0])} to {number(part['value'][-1])}" if part.height else "no value (0 spans)"
        )
        told.append(f"{arm_name(arm)}: {ends}.")
    return " ".join(told)


def caption(comparison: Comparison) -> str:
    """Tell how to read the small panels."""
    shown = slice_name(next(name for name in slices(comparison) if name in AFTER))
    return (
        f"The {shown} tail of each arm (its own colour) over the baseline's (without colour), with 95 % bands; all "
        "panels have the same axes. Where the bands part, the arm differs from the baseline."
    )


FIGURE = CompareFigure(
    name="each_arm",
    title="Each arm against the baseline",
    columns=3,
    panels=panels,
    caption=caption,
    data=lambda _: (),
    absence="",
)
