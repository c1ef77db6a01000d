"""Distribution functions of |log-ratio|: the rows worth drawing, and the axes of a whole distribution and its tail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ptt.reports.figures.axes import label_axes, linear, logarithmic
from ptt.reports.figures.style import MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = np.ndarray[Any, np.dtype[np.float64]]

MAX_POINTS = 400  # on a curve: about one to a pixel
LEFT_QUANTILE = 0.01  # the axis begins where this share of the tokens lies below
MIN_ABS_RATIO = 1e-6  # |r| below this is rounding of single precision
TAIL_FROM = 0.5  # the right tail begins at the median
MIN_SHARE = 1e-12  # a share below it is rounding
LN_2 = float(np.log(2))


def drawable_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Keep the slices whose |r| is more than rounding and whose distribution is more than one step."""
    return rows.filter(pl.col("cdf").min().over("slice") < 1, pl.col("x").max().over("slice") > MIN_ABS_RATIO)


def span(rows: pl.DataFrame) -> tuple[float, float]:
    """Return the range of |r| that holds the curves of all slices, so that panels can be compared."""
    below = rows.filter(pl.col("cdf") <= LEFT_QUANTILE)["x"]
    inside = rows.filter((pl.col("cdf") > LEFT_QUANTILE) & (pl.col("cdf") < 1))["x"]
    low = float(below.max() if len(below) else rows["x"].min())  # type: ignore[arg-type]
    if len(inside):
        low = min(low, float(inside.min()))  # type: ignore[arg-type]
    high = float(inside.max() if len(inside) else rows["x"].max())  # type: ignore[arg-type]
    low = max(low, MIN_ABS_RATIO)
    return low, max(high * 1.6, low * 10)


def thinned(part: pl.DataFrame, within: tuple[float, float]) -> tuple[Floats, Floats]:
    """Return x and cdf of one curve inside a range, with no more points than can be seen."""
    inside = part.filter(pl.col("x").is_between(*within))
    stride = max(1, len(inside) // MAX_POINTS)
    return inside["x"].to_numpy()[::stride], inside["cdf"].to_numpy()[::stride]


def quantile(x: Floats, cdf: Floats, q: float) -> float | None:
    """Return a quantile read off a curve; None if the curve ends below it."""
    reached = np.flatnonzero(cdf >= q)
    return float(x[reached[0]]) if len(reached) else None


def right_tail(x: Floats, cdf: Floats) -> tuple[Floats, Floats]:
    """Return x and the share above it from the median on; empty where a curve has no such part."""
    above = 1 - cdf
    kept = (above > MIN_SHARE) & (above <= TAIL_FROM)
    return x[kept], above[kept]


def cdf_axes(ax: Axes, span: tuple[float, float], top: int) -> None:
    """Set up the axes of whole distributions."""
    label_axes(ax, x_name="|r|, log axis", y_name="share of tokens with |r| up to x", top=top)
    logarithmic(ax, "x", *span, powers=True)
    ax.set_ylim(0, 1.02)
    linear(ax, "y")


def tail_axes(ax: Axes, tails: Sequence[tuple[Floats, Floats]], right: float, top: int) -> float:
    """Set up the axes of right tails that reach to `right`, and return the least share on them."""
    label_axes(ax, x_name="|r|, log axis", y_name="share of tokens with |r| above x, log axis", top=top)
    if not tails:
        return MIN_SHARE
    least, left = min(float(y.min()) for _, y in tails), min(float(x[0]) for x, _ in tails)
    logarithmic(ax, "x", left, right, powers=left < 1e-3)
    logarithmic(ax, "y", least, TAIL_FROM * 1.2, powers=least < 1e-3)
    return least


def mark_ratio_of_two(ax: Axes, **style: Any) -> bool:
    """Draw an upright line at |r| = ln 2, and return whether it stands well inside the axes."""
    left, right = ax.get_xlim()
    inside = left * 1.3 < LN_2 < right / 1.3
    if inside:
        ax.axvline(LN_2, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)), **style)
    return inside
