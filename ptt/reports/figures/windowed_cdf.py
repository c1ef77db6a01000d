"""Draws the distribution of |log-ratio| early, mid and late: whether its shape changed, not one number."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ptt.diagnostics.model import Diagnosis
from ptt.reports.figures.annotations import Curve, label_beside, label_curves
from ptt.reports.figures.distributions import (
    LN_2,
    TAIL_FROM,
    Floats,
    cdf_axes,
    drawable_rows,
    mark_ratio_of_two,
    quantile,
    right_tail,
    span,
    tail_axes,
    thinned,
)
from ptt.reports.figures.panels import ONE_LINE, DataTable, Panel, RunFigure, data_table, finite_rows
from ptt.reports.figures.style import MUTED, WINDOW_LINES, slice_ramp
from ptt.reports.text.names import slice_name
from ptt.reports.text.numbers import count, number, percent
from ptt.reports.text.tables import WINDOW_NAMES, error_bound, no_tokens, pair_of, rows_where, slices, window_words
from ptt.reports.text.why import after_slice

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT = 282
QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)


def panels(diagnosis: Diagnosis) -> tuple[Panel, ...]:
    """Return two panels for each slice: the distribution and, on log axes, its right tail."""
    frame = _frame(diagnosis)
    if frame is None:
        return ()
    kinds = (("cdf", "distribution", (0.5, 0.95), _draw_cdf), ("cdf-tail", "right tail", (0.99, 0.999), _draw_tail))
    return tuple(
        Panel(
            key=f"{key}-{index}",
            title=f"{slice_name(name).capitalize()}: {title}",
            alt=_alt(diagnosis, rows, name, quantiles),
            draw=partial(draw, rows=rows, name=name, within=span(frame)),
            height=HEIGHT,
            top=ONE_LINE,
        )
        for index, name in enumerate(slices(frame))
        for rows in (frame.filter(slice=name),)
        for key, title, quantiles, draw in kinds
        if draw is _draw_cdf or any(len(right_tail(*thinned(part, span(frame)))[0]) for _, part in _windows(rows))
    )


def _frame(diagnosis: Diagnosis) -> pl.DataFrame | None:
    rows = finite_rows(diagnosis, "ecdf", "cdf", "slice", "window", "x")
    if rows is None:
        return None
    drawn = drawable_rows(rows.filter(pl.col("x") > 0, pl.col("window").is_in(WINDOW_NAMES)))
    return None if drawn.is_empty() else drawn


def _windows(rows: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    """Return the rows of each window that one slice has, early first."""
    parts = ((window, rows.filter(window=window)) for window in WINDOW_NAMES)
    return [(window, part) for window, part in parts if not part.is_empty()]


def _tokens(rows: pl.DataFrame) -> str:
    return count(int(rows["n_tokens"].to_numpy().max()))


def caption(diagnosis: Diagnosis) -> str:
    """Return how to read the figure, and from how much data it is made."""
    frame = _frame(diagnosis)
    if frame is None:
        return no_tokens(diagnosis)
    sizes = "; ".join(
        f"{slice_name(name)} "
        + ", ".join(f"{window} {_tokens(part)}" for window, part in _windows(frame.filter(slice=name)))
        for name in slices(frame)
    )
    return (
        f"Share of tokens with |r| up to x, r = log-ratio of the pair {pair_of(diagnosis)}, in the early, "
        f"mid and late third ({window_words(diagnosis)}); tokens in each: {sizes}. Dotted is early, dashed "
        "mid, solid late. Distribution: a curve that moves right means larger log-ratios everywhere. "
        "Right tail: the share above x. If it stretches right while the distribution hardly moves, only "
        "rare tokens grew. The vertical line is |r| = ln 2, a ratio of two. " + error_bound()
    )


def shares_above_two(diagnosis: Diagnosis) -> dict[str, tuple[float, float]]:
    """Return the share of each slice's tokens with a ratio beyond two, in the early and in the late third."""
    frame, shares = _frame(diagnosis), {}
    if frame is None:
        return {}
    for name in slices(frame):
        parts = dict(_windows(frame.filter(slice=name)))
        if {"early", "late"} <= parts.keys():
            early, late = (_above_two(diagnosis, name, window, parts[window]) for window in ("early", "late"))
            shares[name] = early, late
    return shares


def takeaway(diagnosis: Diagnosis) -> str:
    """Say which share of the tokens has a ratio beyond two, early and late."""
    shares = {
        name: [percent(float(f"{share:.2g}")) for share in both] for name, both in shares_above_two(diagnosis).items()
    }
    ordered = sorted(shares, key=lambda name: name != after_slice(diagnosis))[:2]
    words = [
        f"{slice_name(name)} {early} " + ("throughout" if early == late else f"early, {late} late")
        for name in ordered
        for early, late in (shares[name],)
    ]
    return f"Tokens beyond a ratio of two: {'; '.join(words)}" if words else ""


def _above_two(diagnosis: Diagnosis, name: str, window: str, part: pl.DataFrame) -> float:
    """Return the share as it was counted; where nobody counted it, as the curve has it between its points."""
    counted = rows_where(diagnosis, "extremes", slice=name, window=window)
    if counted:
        return float(counted[0]["above_2"])
    return 1 - float(np.interp(np.log(LN_2), np.log(part["x"].to_numpy()), part["cdf"].to_numpy()))


def data(diagnosis: Diagnosis) -> tuple[DataTable, ...]:
    """Return the quantiles of each curve, and the share of tokens whose ratio passes a factor of two."""
    frame = _frame(diagnosis)
    if frame is None:
        return ()
    rows = []
    for name in slices(frame):
        for window, part in _windows(frame.filter(slice=name)):
            x, cdf = part["x"].to_numpy(), part["cdf"].to_numpy()
            values = (number(quantile(x, cdf, q)) for q in QUANTILES)
            rows.append(
                (slice_name(name), window, _tokens(part), *values, percent(_above_two(diagnosis, name, window, part)))
            )
    head = ("Slice", "Window", "Tokens", *(f"p{100 * q:g}" for q in QUANTILES), "|r| > ln 2")
    return data_table("Quantiles by window", head, rows)


def _draw_cdf(ax: Axes, *, rows: pl.DataFrame, name: str, within: tuple[float, float]) -> None:
    cdf_axes(ax, within, ONE_LINE)
    curves = [_curve(name, window, *thinned(part, within)) for window, part in _windows(rows)]
    curves = [curve for curve in curves if len(curve.x)]
    if not curves:
        return
    _plot(ax, curves)
    base = max(float(curve.y[0]) for curve in curves)
    left, middle, right = (base + (1 - base) * share for share in (0.62, 0.42, 0.22))
    label_curves(ax, curves, (left, middle, right))


def _draw_tail(ax: Axes, *, rows: pl.DataFrame, name: str, within: tuple[float, float]) -> None:
    curves = [_curve(name, window, *right_tail(*thinned(part, within))) for window, part in _windows(rows)]
    curves = [curve for curve in curves if len(curve.x)]
    least = tail_axes(ax, [(curve.x, curve.y) for curve in curves], within[1], ONE_LINE)
    if not curves:
        return
    _plot(ax, curves)
    if mark_ratio_of_two(ax):
        label_beside(ax, ["ratio 2"], LN_2, color=MUTED)
    left, middle, right = (TAIL_FROM * (least / TAIL_FROM) ** share for share in (0.6, 0.35, 0.15))
    label_curves(ax, curves, (left, middle, right))


def _curve(name: str, window: str, x: Floats, y: Floats) -> Curve:
    return Curve(x=x, y=y, colour=slice_ramp(name)[WINDOW_NAMES.index(window)], text=window)


def _plot(ax: Axes, curves: list[Curve]) -> None:
    for curve in curves:
        ax.plot(curve.x, curve.y, color=curve.colour, **WINDOW_LINES[WINDOW_NAMES.index(curve.text)])


def _alt(diagnosis: Diagnosis, rows: pl.DataFrame, name: str, quantiles: tuple[float, float]) -> str:
    sentences = [f"Distribution of |log-ratio| of {slice_name(name)} tokens, pair {pair_of(diagnosis)}."]
    for window, part in _windows(rows):
        x, cdf = part["x"].to_numpy(), part["cdf"].to_numpy()
        values = ", ".join(f"p{100 * q:g} {number(quantile(x, cdf, q))}" for q in quantiles)
        sentences.append(f"{window.capitalize()}: {values}.")
    return " ".join(sentences)


FIGURE = RunFigure(
    name="windowed_cdf",
    title="Distributions by window",
    columns=2,
    panels=panels,
    caption=caption,
    data=data,
    absence=no_tokens,
    takeaway=takeaway,
)
