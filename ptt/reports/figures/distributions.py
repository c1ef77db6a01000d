"""Reads the distributions of |log-ratio| by slice and window, as figures need them."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from ptt.diagnostics.model import Diagnosis
from ptt.reports.text.numbers import count
from ptt.reports.text.tables import WINDOW_NAMES, table

Floats = np.ndarray[Any, np.dtype[np.float64]]

TABLE = "ecdf"
POINTS = 400  # on a curve: about one to a pixel
LEFT_SHARE = 0.01  # the axis begins where this share of the tokens lies below
NEAREST = 1e-6  # |r| below this is rounding of single precision


def frame(diagnosis: Diagnosis) -> pl.DataFrame | None:
    """Give the usable rows of the distributions, or nothing."""
    rows = table(diagnosis, TABLE)
    if rows is None:
        return None
    usable = rows.filter(
        pl.col("cdf").is_finite(),
        pl.col("x") > 0,
        pl.col("window").is_in(WINDOW_NAMES),
        pl.col("slice").is_not_null(),
    )
    moved = usable.filter(pl.col("cdf").min().over("slice") < 1, pl.col("x").max().over("slice") > NEAREST)
    return None if moved.is_empty() else moved.sort("slice", "window", "x")


def curves(rows: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    """Give the curve of each window that one slice has, early first."""
    parts = ((window, rows.filter(pl.col("window") == window)) for window in WINDOW_NAMES)
    return [(window, part) for window, part in parts if not part.is_empty()]


def sizes(rows: pl.DataFrame, name: str) -> str:
    """Say how many tokens each window of a slice has."""
    parts = curves(rows.filter(pl.col("slice") == name))
    return ", ".join(f"{window} {count(int(part['n_tokens'].max()))}" for window, part in parts)  # type: ignore[arg-type]


def span(rows: pl.DataFrame) -> tuple[float, float]:
    """Give the range of |r| that holds the curves of all slices, so that panels can be compared."""
    below = rows.filter(pl.col("cdf") <= LEFT_SHARE)["x"]
    inside = rows.filter((pl.col("cdf") > LEFT_SHARE) & (pl.col("cdf") < 1))["x"]
    low = float(below.max() if len(below) else rows["x"].min())  # type: ignore[arg-type]
    if len(inside):
        low = min(low, float(inside.min()))  # type: ignore[arg-type]
    high = float(inside.max() if len(inside) else rows["x"].max())  # type: ignore[arg-type]
    low = max(low, NEAREST)
    return low, max(high * 1.6, low * 10)


def thinned(part: pl.DataFrame, within: tuple[float, float]) -> tuple[Floats, Floats]:
    """Give x and cdf of one curve inside a range, with no more points than can be seen."""
    inside = part.filter(pl.col("x").is_between(*within))
    stride = max(1, len(inside) // POINTS)
    return inside["x"].to_numpy()[::stride], inside["cdf"].to_numpy()[::stride]


def quantile(x: Floats, cdf: Floats, q: float) -> float | None:
    """Read a quantile off a curve; nothing if the curve ends below it."""
    reached = np.flatnonzero(cdf >= q)
    return float(x[reached[0]]) if len(reached) else None
