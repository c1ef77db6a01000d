"""Rows of a comparison's tables as its figures need them, and how arms, slices and numbers are written there."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from ptt.diagnostics.compare.comparison import POST, Comparison
from ptt.reports.figures.panels import DataTable, FigureSpec, data_table
from ptt.reports.text.names import SLICES, slice_name
from ptt.reports.text.numbers import bounds, count, number
from ptt.reports.text.sanitize import safe, shortened

MAX_ARMS = 24  # drawn; the tables hold all
MAX_NAME = 60  # letters: the JSON holds it whole
MAX_ROWS = 400  # of a table behind a figure: who needs more reads the JSON
AXES = {"steps": "trainer step", "tokens": "model tokens trained on"}
PLURAL = {"steps": "trainer steps", "tokens": "model tokens"}

CompareFigure = FigureSpec[Comparison]


def arm_name(name: str) -> str:
    """Return an arm's name for prose: harmless, and no longer than a line."""
    return shortened(safe(name), MAX_NAME)


def drawn_arms(comparison: Comparison) -> list[str]:
    """Return the names of the arms that are drawn, the baseline first."""
    return [arm.name for arm in comparison.arms[:MAX_ARMS]]


def rows_of(comparison: Comparison, table: str, *finite_columns: str, **equal: str) -> pl.DataFrame:
    """Return the rows of a table where columns have given values, and others are numbers."""
    return finite(comparison.tables[table], *finite_columns).filter(**equal)


def finite(frame: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Keep the rows whose values are numbers: no value is never drawn as zero."""
    return frame.filter(*(pl.col(column).is_finite() for column in columns))


def slices(comparison: Comparison, table: str = "curves") -> list[str]:
    """Return the slices of a table, those after tools first, then text-only, then others."""
    names = set(comparison.tables[table]["slice"].drop_nulls().to_list())
    known = [*POST, "text_only", *SLICES]
    return sorted(names, key=lambda name: (known.index(name) if name in known else len(known), name))


def matched_range(comparison: Comparison, axis: str, rows: pl.DataFrame) -> tuple[float, float]:
    """Return the range that all arms share on an axis, or that of the rows."""
    return comparison.matched.get(axis) or (
        float(rows["x_first"].to_numpy().min()),
        float(rows["x_last"].to_numpy().max()),
    )


def matched_range_text(comparison: Comparison, axis: str) -> str:
    """Return which range all arms share, in words; empty where they share none."""
    shared = comparison.matched.get(axis)
    if shared is None:
        return ""
    first, last = (number(round(end)) if end == end else number(end) for end in shared)
    return f"{'steps' if axis == 'steps' else 'model tokens'} {first} to {last}"


def cut_table(title: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> tuple[DataTable, ...]:
    """Make the table behind a figure: none without rows, and no more rows than a page can hold."""
    cut = f", the first {count(MAX_ROWS)} of {count(len(rows))}" if len(rows) > MAX_ROWS else ""
    return data_table(f"{title}{cut}", head, rows[:MAX_ROWS])


def slice_title(name: str, rest: str) -> str:
    """Return a panel's title that opens with its slice."""
    shown = slice_name(name)
    return f"{shown[:1].upper()}{shown[1:]}: {rest}"


def with_bounds(value: float | None, low: float | None, high: float | None) -> str:
    """Write a number and its interval, or what is missing of them."""
    if value is None or value != value:
        return "no value"
    if low is None or high is None or low != low or high != high:
        return f"{number(value)} (no interval)"
    return f"{number(value)} ({bounds(low, high)})"
