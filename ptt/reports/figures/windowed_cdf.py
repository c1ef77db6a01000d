"""Draws the distribution of |log-ratio| early, mid and late: whether its shape changed, not one number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ptt.diagnostics.model import Diagnosis
from ptt.reports.figures import distributions
from ptt.reports.figures.annotations import Curve, label_curves, place_beside
from ptt.reports.figures.panels import ONE_LINE, DataTable, FigureKind, Panel
from ptt.reports.figures.style import MUTED, WINDOW_LINES, dress, linear, logarithmic, ramp
from ptt.reports.text.names import slice_name
from ptt.reports.text.numbers import count, number, percent
from ptt.reports.text.tables import WINDOW_NAMES, error_bound, no_tokens, pair_of, slices, window_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT = 282
TAIL_FROM = 0.5  # the right tail begins at the median
NOTHING = 1e-12  # a share below it is rounding
QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)


def panels(diagnosis: Diagnosis) -> tuple[Panel, ...]:
    """Give two panels a slice: the distribution and, on log axes, its right tail."""
    frame = distributions.frame(diagnosis)
    if frame is None:
        return ()
    span = distributions.span(frame)
    made = []
    for index, name in enumerate(slices(frame)):
        rows = frame.filter(pl.col("slice") == name)
        shown = slice_name(name).capitalize()
        made += [
            Panel(
                key=f"cdf-{index}",
                title=f"{shown}: distribution",
                alt=_alt(diagnosis, rows, name, (0.5, 0.95)),
                draw=lambda ax, rows=rows, name=name: _draw_cdf(ax, rows, name, span),  # type: ignore[misc]
                height=HEIGHT,
                top=ONE_LINE,
            ),
            Panel(
                key=f"cdf-tail-{index}",
                title=f"{shown}: right tail",
                alt=_alt(diagnosis, rows, name, (0.99, 0.999)),
                draw=lambda ax, rows=rows, name=name: _draw_tail(ax, rows, name, span),  # type: ignore[misc]
                height=HEIGHT,
                top=ONE_LINE,
            ),
        ]
    return tuple(made)


def caption(diagnosis: Diagnosis) -> str:
    """Tell how to read the figure, and from how much data it is made."""
    frame = distributions.frame(diagnosis)
    if frame is None:
        return no_tokens(diagnosis)
    sizes = "; ".join(f"{slice_name(name)} {distributions.sizes(frame, name)}" for name in slices(frame))
    return (
        f"Share of tokens with |r| up to x, r = log-ratio of the pair {pair_of(diagnosis)}, in the early, "
        f"mid and late third ({window_words(diagnosis)}); tokens in each: {sizes}. Dotted is early, dashed "
        "mid, solid late. Distribution: a curve that moves right means larger log-ratios everywhere. Right "
        "tail: the share above x; one that stretches right while the distribution hardly moves is growth in "
        "rare tokens only. The upright line is |r| = ln 2, a ratio of two. " + error_bound()
    )


def data(diagnosis: Diagnosis) -> tuple[DataTable, ...]:
    """Give the quantiles of each curve, and the share of tokens whose ratio passes a factor of two."""
    frame = distributions.frame(diagnosis)
    if frame is None:
        return ()
    rows = []
    for name in slices(frame):
        for window, part in distributions.curves(frame.filter(pl.col("slice") == name)):
            x, cdf = part["x"].to_numpy(), part["cdf"].to_numpy()
            above = 1 - float(np.interp(np.log(np.log(2)), np.log(x), cdf))
            tokens = count(int(part["n_tokens"].max()))  # type: ignore[arg-type]
            values = (number(distributions.quantile(x, cdf, q)) for q in QUANTILES)
            rows.append((slice_name(name), window, tokens, *values, percent(above)))
    named = (f"p{100 * q:g}" for q in QUANTILES)
    head = ("Slice", "Window", "Tokens", *named, "|r| > ln 2")
    return (DataTable(title="Quantiles by window", head=head, rows=tuple(rows)),)


def _draw_cdf(ax: Axes, rows: pl.DataFrame, name: str, span: tuple[float, float]) -> None:
    dress(ax, x_name="|r|, log axis", y_name="share of tokens with |r| up to x", top=ONE_LINE)
    logarithmic(ax, "x", *span, powers=True)
    ax.set_ylim(0, 1.02)
    linear(ax, "y")
    curves = []
    for window, part in distributions.curves(rows):
        x, y = distributions.thinned(part, span)
        if len(x):
            curves.append(Curve(x=x, y=y, colour=_colour(name, window), text=window))
    if not curves:
        return
    _plot(ax, curves)
    base = max(float(curve.y[0]) for curve in curves)
    left, middle, right = (base + (1 - base) * share for share in (0.62, 0.42, 0.22))
    label_curves(ax, curves, (left, middle, right))


def _draw_tail(ax: Axes, rows: pl.DataFrame, name: str, span: tuple[float, float]) -> None:
    dress(ax, x_name="|r|, log axis", y_name="share of tokens with |r| above x, log axis", top=ONE_LINE)
    curves = []
    for window, part in distributions.curves(rows):
        x, y = distributions.thinned(part, span)
        above = 1 - y
        kept = (above > NOTHING) & (above <= TAIL_FROM)
        if kept.any():
            curves.append(Curve(x=x[kept], y=above[kept], colour=_colour(name, window), text=window))
    if not curves:
        return
    lowest = min(float(curve.y.min()) for curve in curves)
    left_end = min(float(curve.x[0]) for curve in curves)
    logarithmic(ax, "x", left_end, span[1], powers=left_end < 1e-3)
    logarithmic(ax, "y", lowest, TAIL_FROM * 1.2, powers=lowest < 1e-3)
    _plot(ax, curves)
    _ratio_of_two(ax)
    left, middle, right = (TAIL_FROM * (lowest / TAIL_FROM) ** share for share in (0.6, 0.35, 0.15))
    label_curves(ax, curves, (left, middle, right))


def _plot(ax: Axes, curves: list[Curve]) -> None:
    for curve in curves:
        ax.plot(curve.x, curve.y, color=curve.colour, **WINDOW_LINES[WINDOW_NAMES.index(curve.text)])


def _colour(name: str, window: str) -> str:
    return ramp(name)[WINDOW_NAMES.index(window)]


def _ratio_of_two(ax: Axes) -> None:
    left, right = ax.get_xlim()
    cap = float(np.log(2))
    if not left * 1.3 < cap < right / 1.3:
        return
    ax.axvline(cap, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)))
    place_beside(ax, ["ratio 2"], cap, color=MUTED)


def _alt(diagnosis: Diagnosis, rows: pl.DataFrame, name: str, quantiles: tuple[float, float]) -> str:
    told = [f"Distribution of |log-ratio| of {slice_name(name)} tokens, pair {pair_of(diagnosis)}."]
    for window, part in distributions.curves(rows):
        x, cdf = part["x"].to_numpy(), part["cdf"].to_numpy()
        values = ", ".join(f"p{100 * q:g} {number(distributions.quantile(x, cdf, q))}" for q in quantiles)
        told.append(f"{window.capitalize()}: {values}.")
    return " ".join(told)


FIGURE = FigureKind(
    name="windowed_cdf",
    title="Distributions by window",
    columns=2,
    panels=panels,
    caption=caption,
    data=data,
    absence=no_tokens,
)
