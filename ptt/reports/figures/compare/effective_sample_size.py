"""Draws the effective sample size of the importance weights of all arms: how few tokens carry an update."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from ptt.diagnostics.compare.comparison import Comparison
from ptt.reports.figures.axes import ess_axis, step_range
from ptt.reports.figures.compare.arms import label_column, label_ends, note_above, panel_height
from ptt.reports.figures.compare.missing import notes, plot_arms
from ptt.reports.figures.compare.rows import (
    CompareFigure,
    arm_name,
    cut_table,
    drawn_arms,
    rows_of,
    slice_title,
    slices,
)
from ptt.reports.figures.panels import DataTable, Panel
from ptt.reports.text.names import slice_name
from ptt.reports.text.numbers import count, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes


WIDTH, HEIGHT = 430, 280
TOP, NOTE = 30, 16


def panels(comparison: Comparison) -> tuple[Panel, ...]:
    """Return one panel for each slice."""
    frame = _frame(comparison)
    return tuple(
        Panel(
            key=f"compare-ess-{index}",
            title=slice_title(name, "ESS/n"),
            alt=_alt(comparison, rows, name),
            draw=partial(_draw, comparison=comparison, rows=rows, above=above),
            width=WIDTH,
            height=panel_height(comparison, HEIGHT) + NOTE * len(above),
            top=TOP + NOTE * len(above),
            right=label_column(comparison),
        )
        for index, name in enumerate(slices(comparison, "ess"))
        for rows in (frame.filter(slice=name),)
        if rows.height
        for above in (notes(comparison, rows, name),)
    )


def caption(comparison: Comparison) -> str:
    """Return how to read the figure."""
    sizes = _frame(comparison)["n"].to_numpy()
    return (
        "Effective sample size of the importance weights as a share of n, by windows of steps. At 1 all weights "
        f"are equal; a fall means that few tokens carry the update. It depends "
        f"on n ({count(int(sizes.min()))} to {count(int(sizes.max()))} tokens per window here): compare "
        "arms with similar n, and trends rather than levels."
    )


def data(comparison: Comparison) -> tuple[DataTable, ...]:
    """Return one row for each arm, slice and window."""
    rows = [
        (
            arm_name(row["arm"]),
            slice_name(row["slice"]),
            f"{count(row['step_first'])} to {count(row['x_last'])}",
            number(row["value"]),
            count(row["n"]),
        )
        for row in _frame(comparison).iter_rows(named=True)
    ]
    return cut_table("By window", ("Arm", "Slice", "Steps", "ESS/n", "Tokens"), rows)


def _frame(comparison: Comparison) -> pl.DataFrame:
    """Return the rows of drawn arms under the names that curves have."""
    rows = rows_of(comparison, "ess", "ess_fraction").filter(pl.col("arm").is_in(drawn_arms(comparison)))
    return rows.rename({"step_mid": "x_mid", "step_last": "x_last", "ess_fraction": "value"})


def _draw(ax: Axes, *, comparison: Comparison, rows: pl.DataFrame, above: tuple[str, ...]) -> None:
    middles = rows["x_mid"].to_numpy()
    step_range(ax, float(middles.min()), float(middles.max()))
    ess_axis(ax, "ESS/n", top=TOP + NOTE * len(above))
    label_ends(ax, plot_arms(ax, comparison, rows, bands=False, digits=2))
    note_above(ax, above, 0)


def _alt(comparison: Comparison, rows: pl.DataFrame, name: str) -> str:
    sentences = [f"Effective sample size over n of {slice_name(name)} tokens over training, by arm."]
    for arm in drawn_arms(comparison):
        values = rows.filter(arm=arm).sort("x_mid")["value"]
        ends = f"from {number(values[0])} to {number(values[-1])}" if len(values) else "no value (0 windows)"
        sentences.append(f"{arm_name(arm)}: {ends}.")
    return " ".join(sentences)


FIGURE = CompareFigure(
    name="effective_sample_size",
    title="Effective sample size",
    columns=2,
    panels=panels,
    caption=caption,
    data=data,
    absence=lambda _: "no arm has importance weights to compute an effective sample size from",
)
