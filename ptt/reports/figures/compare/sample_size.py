"""Draws the effective sample size of the importance weights of all arms: how few tokens carry an update."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ptt.diagnostics.compare.comparison import Comparison
from ptt.reports.figures.compare.arms import End, column, height, label_ends, looks, note
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
from ptt.reports.figures.compare.scales import across, missing, notes
from ptt.reports.figures.panels import DataTable, Panel
from ptt.reports.figures.style import dress, linear, logarithmic, sparse
from ptt.reports.text.names import slice_name
from ptt.reports.text.numbers import count, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes


WIDTH, HEIGHT = 430, 280
NEAR_ZERO = 0.1  # a median below it is drawn on a log axis, so that the floor can be told from zero
TOP, NOTE = 30, 16


def panels(comparison: Comparison) -> tuple[Panel, ...]:
    """Give one panel a slice."""
    frame = _frame(comparison)
    made = []
    for index, name in enumerate(slices(comparison, "ess") if frame.height else ()):
        rows = frame.filter(pl.col("slice") == name)
        if not rows.height:
            continue
        said = notes(comparison, _as_curve(rows), name)
        made.append(
            Panel(
                key=f"compare-ess-{index}",
                title=title_of(name, "ESS/n"),
                alt=_alt(comparison, rows, name),
                draw=partial(_draw, comparison=comparison, rows=rows, said=said),
                width=WIDTH,
                height=height(comparison, HEIGHT) + NOTE * len(said),
                top=TOP + NOTE * len(said),
                right=column(comparison),
            )
        )
    return tuple(made)


def caption(comparison: Comparison) -> str:
    """Tell how to read the figure."""
    sizes = _frame(comparison)["n"].to_numpy()
    return (
        "Effective sample size of the importance weights as a share of n, by windows of steps. 1 means all weights "
        "alike; falling means that few tokens carry the update. It depends on n "
        f"({count(int(sizes.min()))} to {count(int(sizes.max()))} tokens a window here): compare arms with "
        "alike n, and their course rather than their level."
    )


def data(comparison: Comparison) -> tuple[DataTable, ...]:
    """Give one row an arm, slice and window."""
    frame = _frame(comparison)
    rows = tuple(
        (
            arm_name(row["arm"]),
            slice_name(row["slice"]),
            f"{count(int(row['step_first']))} to {count(int(row['step_last']))}",
            number(row["ess_fraction"]),
            count(int(row["n"])),
        )
        for row in (frame.iter_rows(named=True) if frame.height else ())
    )
    head = ("Arm", "Slice", "Steps", "ESS/n", "Tokens")
    return numbers_of("By window", head, rows)


def _frame(comparison: Comparison) -> pl.DataFrame:
    frame = finite(rows_of(comparison, "ess"), "ess_fraction")
    return frame.filter(pl.col("arm").is_in(names(comparison))) if frame.width else frame


def _as_curve(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.rename({"step_mid": "x_mid", "step_last": "x_last", "ess_fraction": "value"})


def _draw(ax: Axes, *, comparison: Comparison, rows: pl.DataFrame, said: tuple[str, ...]) -> None:
    arms = looks(comparison)
    first, last = float(rows["step_mid"].to_numpy().min()), float(rows["step_mid"].to_numpy().max())
    across(ax, (first, max(last, first + 1)))
    values = rows["ess_fraction"].to_numpy()
    top = TOP + NOTE * len(said)
    if float(np.median(values)) < NEAR_ZERO and (values > 0).any():
        positive = values[values > 0]
        dress(ax, x_name="trainer step", y_name="ESS/n, log axis", top=top)
        low, high = float(positive.min()), float(positive.max())
        logarithmic(ax, "y", low / 1.6, max(high * 1.6, low * 8), powers=low < 2e-3)
        rows = rows.filter(pl.col("ess_fraction") > 0)
    else:
        dress(ax, x_name="trainer step", y_name="ESS/n", top=top)
        ax.set_ylim(0, 1.02)
        linear(ax, "y")
    ends, (_, gone) = [], missing(comparison, _as_curve(rows))
    for arm, look in arms.items():
        part = of_arm(rows, arm).sort("step_mid")
        if not part.height:
            continue
        x, y = part["step_mid"].to_numpy(), part["ess_fraction"].to_numpy()
        ax.plot(x, y, **look.line, marker=look.marker, markevery=sparse(len(part)), zorder=4)
        value = f"until {count(round(dict(gone)[arm]))}" if arm in dict(gone) else number(float(y[-1]), 2)
        ends.append(End(look=look, x=float(x[-1]), y=float(y[-1]), value=value))
    label_ends(ax, ends)
    note(ax, said, 0)


def _alt(comparison: Comparison, rows: pl.DataFrame, name: str) -> str:
    told = [f"Effective sample size over n of {slice_name(name)} tokens over training, by arm."]
    for arm in names(comparison):
        part = of_arm(rows, arm).sort("step_mid")
        ends = (
            f"from {number(part['ess_fraction'][0])} to {number(part['ess_fraction'][-1])}"
            if part.height
            else "no value (0 windows)"
        )
        told.append(f"{arm_name(arm)}: {ends}.")
    return " ".join(told)


FIGURE = CompareFigure(
    name="effective_sample_size",
    title="Effective sample size",
    columns=2,
    panels=panels,
    caption=caption,
    data=data,
    absence="no arm holds importance weights to count an effective sample size from",
)
