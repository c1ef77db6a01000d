"""Draws the distributions of |log-ratio| of all arms, early and late, slice by slice: whole, and the right tail."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ptt.diagnostics.compare.comparison import Comparison
from ptt.reports.figures.compare.arms import Look, column, height, legend, looks, note
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
from ptt.reports.figures.distributions import NEAREST, quantile, span, thinned
from ptt.reports.figures.panels import DataTable, Panel
from ptt.reports.figures.style import MUTED, dress, linear, logarithmic, short_slice
from ptt.reports.text.names import slice_name
from ptt.reports.text.numbers import count, number
from ptt.reports.text.tables import error_bound

if TYPE_CHECKING:
    from matplotlib.axes import Axes


WINDOWS = ("early", "late")
WIDTH, HEIGHT = 430, 280
TAIL_FROM, NOTHING = 0.5, 1e-12  # the right tail begins at the median; a share below is rounding
TOP = 30
QUANTILES = (0.5, 0.95, 0.99, 0.999)
Line = tuple[Look, Any, Any]
Numbers = Callable[[Comparison], tuple[DataTable, ...]]


def panels(comparison: Comparison, tail: bool) -> tuple[Panel, ...]:
    """Give two panels a slice, early and late."""
    frame = _frame(comparison)
    if not frame.height:
        return ()
    within = span(frame)
    made = []
    for index, name in enumerate(slices(comparison, "ecdf")):
        for window in WINDOWS:
            rows = frame.filter(pl.col("slice") == name, pl.col("window") == window)
            if not rows.height:
                continue
            absent = [arm for arm in names(comparison) if not of_arm(rows, arm).height]
            top = TOP + (16 if absent else 0)
            made.append(
                Panel(
                    key=f"compare-{'tail' if tail else 'cdf'}-{index}-{window}",
                    title=title_of(name, f"{window} third"),
                    alt=_alt(comparison, rows, name, window),
                    draw=partial(
                        _draw, comparison=comparison, rows=rows, within=within, tail=tail, absent=absent, name=name
                    ),
                    width=WIDTH,
                    height=height(comparison, HEIGHT) + (16 if absent else 0),
                    top=top,
                    right=column(comparison),
                )
            )
    return tuple(made)


def caption(comparison: Comparison, tail: bool) -> str:
    """Tell how to read the figure."""
    if tail:
        return (
            "Share of tokens with |r| above x, from the median on, both axes logarithmic: the right tails of the "
            "distributions above. A curve that reaches further right holds rare tokens with larger ratios. The "
            "upright line is |r| = ln 2, a ratio of two. " + error_bound()
        )
    frame = _frame(comparison)
    sizes = [
        f"{slice_name(name)} {window} {count(_tokens(rows, least=True))} to {count(_tokens(rows, least=False))}"
        for name in slices(comparison, "ecdf")
        for window in WINDOWS
        for rows in (frame.filter(pl.col("slice") == name, pl.col("window") == window),)
        if rows.height
    ]
    return (
        "Share of tokens with |r| up to x in the early and the late third of the matched steps. A curve further "
        f"left has smaller log-ratios everywhere. Tokens an arm: {'; '.join(sizes)}. " + error_bound()
    )


def data(comparison: Comparison) -> tuple[DataTable, ...]:
    """Give the quantiles of each curve."""
    frame = _frame(comparison)
    rows = []
    keys = ["arm", "slice", "window"]
    for key, part in frame.group_by(keys, maintain_order=True) if frame.height else ():
        x, cdf = part["x"].to_numpy(), part["cdf"].to_numpy()
        values = (number(quantile(x, cdf, q)) for q in QUANTILES)
        rows.append(
            (arm_name(str(key[0])), slice_name(str(key[1])), str(key[2]), *values, count(int(part["n_tokens"][0])))
        )
    head = ("Arm", "Slice", "Window", *(f"p{100 * q:g}" for q in QUANTILES), "Tokens")
    return numbers_of("Quantiles by window", head, rows)


def _frame(comparison: Comparison) -> pl.DataFrame:
    frame = finite(finite(rows_of(comparison, "ecdf"), "cdf"), "x")
    if not frame.height:
        return frame
    drawn = frame.filter(
        pl.col("arm").is_in(names(comparison)), pl.col("window").is_in(WINDOWS), pl.col("x") > 0, pl.col("n_tokens") > 0
    )
    moved = drawn.filter(pl.col("cdf").min().over("slice") < 1, pl.col("x").max().over("slice") > NEAREST)
    return moved.sort("x", maintain_order=True)


def _tokens(rows: pl.DataFrame, *, least: bool) -> int:
    values = rows["n_tokens"].to_numpy()
    return int(values.min() if least else values.max())


def _draw(
    ax: Axes,
    *,
    comparison: Comparison,
    rows: pl.DataFrame,
    within: tuple[float, float],
    tail: bool,
    absent: list[str],
    name: str,
) -> None:
    arms = looks(comparison)
    lines = []
    for arm, look in arms.items():
        part = of_arm(rows, arm)
        if part.height:
            x, cdf = thinned(part, within)
            lines.append((look, x, cdf))
    (_tails if tail else _whole)(ax, lines, within, TOP + (16 if absent else 0))
    legend(ax, [look for look, _, _ in lines])
    if absent:
        which = ", ".join(arms[arm].label for arm in absent)
        text = f"no {short_slice(name)} tokens: {which}"
        note(ax, (text if len(text) < 56 else f"no {short_slice(name)} tokens: {count(len(absent))} arms",), 2)


def _whole(ax: Axes, lines: list[Line], within: tuple[float, float], top: int) -> None:
    dress(ax, x_name="|r|, log axis", y_name="share of tokens with |r| up to x", top=top)
    logarithmic(ax, "x", *within, powers=True)
    ax.set_ylim(0, 1.02)
    linear(ax, "y")
    for look, x, cdf in lines:
        ax.plot(x, cdf, **look.line)


def _tails(ax: Axes, lines: list[Line], within: tuple[float, float], top: int) -> None:
    dress(ax, x_name="|r|, log axis", y_name="share of tokens with |r| above x, log axis", top=top)
    drawn = []
    for look, x, cdf in lines:
        above = 1 - cdf
        kept = (above > NOTHING) & (above <= TAIL_FROM)
        if kept.any():
            drawn.append((look, x[kept], above[kept]))
    if not drawn:
        return
    lowest = min(float(y.min()) for _, _, y in drawn)
    left = min(float(x[0]) for _, x, _ in drawn)
    logarithmic(ax, "x", left, within[1], powers=left < 1e-3)
    logarithmic(ax, "y", lowest, TAIL_FROM * 1.2, powers=lowest < 1e-3)
    for look, x, y in drawn:
        ax.plot(x, y, **look.line)
    cap = float(np.log(2))
    if left * 1.3 < cap < within[1] / 1.3:
        ax.axvline(cap, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)), zorder=1)


def _alt(comparison: Comparison, rows: pl.DataFrame, name: str, window: str) -> str:
    told = [f"Distribution of |log-ratio| of {slice_name(name)} tokens in the {window} third, by arm."]
    for arm in names(comparison):
        part = of_arm(rows, arm)
        if not part.height:
            told.append(f"{arm_name(arm)}: no tokens (0).")
            continue
        x, cdf = part["x"].to_numpy(), part["cdf"].to_numpy()
        values = ", ".join(f"p{100 * q:g} {number(quantile(x, cdf, q))}" for q in QUANTILES[:3])
        told.append(f"{arm_name(arm)}: {values}.")
    return " ".join(told)


def _nothing(_: Comparison) -> tuple[DataTable, ...]:
    return ()


def _figure(
    name: str, title: str, *, tail: bool, numbers: Callable[[Comparison], tuple[DataTable, ...]]
) -> CompareFigure:
    return CompareFigure(
        name=name,
        title=title,
        columns=2,
        panels=partial(panels, tail=tail),
        caption=partial(caption, tail=tail),
        data=numbers,
        absence="" if tail else "no arm holds a distribution of log-ratios by window",
    )


WHOLE = _figure("distributions", "Distributions, early and late", tail=False, numbers=data)
RIGHT_TAIL = _figure("right_tails", "Right tails, early and late", tail=True, numbers=_nothing)
