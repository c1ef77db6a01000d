"""Draws the distributions of |log-ratio| of all arms, early and late, slice by slice: whole, and the right tail."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from ptt.diagnostics.compare.comparison import Comparison
from ptt.reports.figures.compare.arms import arm_styles, label_column, legend, note_above, panel_height
from ptt.reports.figures.compare.rows import (
    CompareFigure,
    arm_name,
    cut_table,
    drawn_arms,
    rows_of,
    slice_title,
    slices,
)
from ptt.reports.figures.distributions import (
    cdf_axes,
    drawable_rows,
    mark_ratio_of_two,
    quantile,
    right_tail,
    span,
    tail_axes,
    thinned,
)
from ptt.reports.figures.panels import DataTable, Panel
from ptt.reports.figures.style import short_slice
from ptt.reports.text.names import slice_name
from ptt.reports.text.numbers import count, number
from ptt.reports.text.tables import error_bound

if TYPE_CHECKING:
    from matplotlib.axes import Axes


WINDOWS = ("early", "late")
WIDTH, HEIGHT = 430, 280
TOP, NOTE = 30, 16
MAX_NOTE = 56  # letters that fit above a panel
QUANTILES = (0.5, 0.95, 0.99, 0.999)


def panels(comparison: Comparison, tail: bool) -> tuple[Panel, ...]:
    """Return two panels for each slice, early and late."""
    frame = _frame(comparison)
    panels = []
    for index, name in enumerate(slices(comparison, "ecdf")):
        for window in WINDOWS:
            rows = frame.filter(slice=name, window=window)
            if not rows.height:
                continue
            note = _note(comparison, rows, name)
            panels.append(
                Panel(
                    key=f"compare-{'tail' if tail else 'cdf'}-{index}-{window}",
                    title=slice_title(name, f"{window} third"),
                    alt=_alt(comparison, rows, name, window),
                    draw=partial(_draw, comparison=comparison, rows=rows, within=span(frame), tail=tail, note=note),
                    width=WIDTH,
                    height=panel_height(comparison, HEIGHT) + NOTE * len(note),
                    top=TOP + NOTE * len(note),
                    right=label_column(comparison),
                )
            )
    return tuple(panels)


def _note(comparison: Comparison, rows: pl.DataFrame, name: str) -> tuple[str, ...]:
    present = set(rows["arm"].to_list())
    absent = [style.label for arm, style in arm_styles(comparison).items() if arm not in present]
    if not absent:
        return ()
    text = f"no {short_slice(name)} tokens: {', '.join(absent)}"
    return (text if len(text) < MAX_NOTE else f"no {short_slice(name)} tokens: {count(len(absent))} arms",)


def caption(comparison: Comparison, tail: bool) -> str:
    """Return how to read the figure."""
    if tail:
        return (
            "Share of tokens with |r| above x, from the median on, both axes logarithmic: the right tails of the "
            "distributions above. A curve that reaches further right has rare tokens with larger ratios. The "
            "vertical line is |r| = ln 2, a ratio of two. " + error_bound()
        )
    frame = _frame(comparison)
    sizes = [
        f"{slice_name(name)} {window} {count(int(tokens.min()))} to {count(int(tokens.max()))}"
        for name in slices(comparison, "ecdf")
        for window in WINDOWS
        for tokens in (frame.filter(slice=name, window=window)["n_tokens"].to_numpy(),)
        if len(tokens)
    ]
    return (
        "Share of tokens with |r| up to x in the early and the late third of the matched steps. A curve further "
        f"left has smaller log-ratios everywhere. Tokens per arm: {'; '.join(sizes)}. " + error_bound()
    )


def data(comparison: Comparison) -> tuple[DataTable, ...]:
    """Return the quantiles of each curve."""
    rows = []
    for (arm, name, window), part in _frame(comparison).group_by("arm", "slice", "window", maintain_order=True):
        x, cdf = part["x"].to_numpy(), part["cdf"].to_numpy()
        values = (number(quantile(x, cdf, q)) for q in QUANTILES)
        rows.append((arm_name(str(arm)), slice_name(str(name)), str(window), *values, count(part["n_tokens"][0])))
    head = ("Arm", "Slice", "Window", *(f"p{100 * q:g}" for q in QUANTILES), "Tokens")
    return cut_table("Quantiles by window", head, rows)


def _frame(comparison: Comparison) -> pl.DataFrame:
    rows = rows_of(comparison, "ecdf", "cdf", "x").filter(
        pl.col("arm").is_in(drawn_arms(comparison)),
        pl.col("window").is_in(WINDOWS),
        pl.col("x") > 0,
        pl.col("n_tokens") > 0,
    )
    return drawable_rows(rows).sort("x", maintain_order=True)


def _draw(
    ax: Axes,
    *,
    comparison: Comparison,
    rows: pl.DataFrame,
    within: tuple[float, float],
    tail: bool,
    note: tuple[str, ...],
) -> None:
    styles, top = arm_styles(comparison), TOP + NOTE * len(note)
    curves = {arm: thinned(part, within) for arm in styles if (part := rows.filter(arm=arm)).height}
    drawn = curves
    if tail:
        tails = {arm: right_tail(*curve) for arm, curve in curves.items()}
        drawn = {arm: curve for arm, curve in tails.items() if len(curve[0])}
        tail_axes(ax, list(drawn.values()), within[1], top)
    else:
        cdf_axes(ax, within, top)
    for arm, (x, y) in drawn.items():
        ax.plot(x, y, **styles[arm].line)
    if tail and drawn:
        mark_ratio_of_two(ax, zorder=1)
    legend(ax, [styles[arm] for arm in curves])
    note_above(ax, note, 2)


def _alt(comparison: Comparison, rows: pl.DataFrame, name: str, window: str) -> str:
    sentences = [f"Distribution of |log-ratio| of {slice_name(name)} tokens in the {window} third, by arm."]
    for arm in drawn_arms(comparison):
        part = rows.filter(arm=arm)
        x, cdf = part["x"].to_numpy(), part["cdf"].to_numpy()
        values = ", ".join(f"p{100 * q:g} {number(quantile(x, cdf, q))}" for q in QUANTILES[:3])
        sentences.append(f"{arm_name(arm)}: {values if part.height else 'no tokens (0)'}.")
    return " ".join(sentences)


WHOLE = CompareFigure(
    name="distributions",
    title="Distributions, early and late",
    columns=2,
    panels=partial(panels, tail=False),
    caption=partial(caption, tail=False),
    data=data,
    absence=lambda _: "no arm has a distribution of log-ratios by window",
)
RIGHT_TAIL = CompareFigure(
    name="right_tails",
    title="Right tails, early and late",
    columns=2,
    panels=partial(panels, tail=True),
    caption=partial(caption, tail=True),
)
