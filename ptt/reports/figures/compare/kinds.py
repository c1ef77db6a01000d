"""Says which arms a figure does not show, or not to the end: what is missing is never drawn as zero."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from ptt.diagnostics.compare.comparison import Comparison
from ptt.reports.figures.panels import DataTable, Panel
from ptt.reports.text.names import SLICES, slice_name
from ptt.reports.text.numbers import bounds, count, number
from ptt.reports.text.sanitize import safe, shortened

MOST_ARMS = 24  # drawn; the tables hold all
LONGEST_NAME = 60  # letters: the JSON holds it whole
MOST_ROWS = 400  # of a table behind a figure: who needs more reads the JSON
AFTER = ("post_tool", "post_observation")  # the slice that the question is about, by the names it may have
TEXT = "text_only"


@dataclass(frozen=True, kw_only=True)
class CompareFigure:
    """One figure of a comparison; no panels means that these runs do not hold what it needs."""

    name: str  # of its files
    title: str
    columns: int
    panels: Callable[[Comparison], tuple[Panel, ...]]
    caption: Callable[[Comparison], str]
    data: Callable[[Comparison], tuple[DataTable, ...]]
    absence: str  # said instead
    keyed: bool = False  # its panels do not name the arms: the page has a key above, a file needs its own


def arm_name(name: str) -> str:
    """Name an arm in prose: harmless, and no longer than a line."""
    return shortened(safe(name), LONGEST_NAME)


def names(comparison: Comparison) -> list[str]:
    """Name the arms that are drawn, the baseline first."""
    return [arm.name for arm in comparison.arms[:MOST_ARMS]]


def rows_of(comparison: Comparison, table: str, **equal: str) -> pl.DataFrame:
    """Give the rows of one table where columns have given values; an absent table has none."""
    frame = comparison.tables.get(table)
    if frame is None or frame.is_empty():
        return pl.DataFrame()
    return frame.filter(**equal) if equal else frame


def of_arm(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    """Give one arm's rows."""
    return frame.filter(pl.col("arm") == name) if frame.width else frame


def finite(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """Keep the rows whose value is a number: no value is never drawn as zero."""
    return frame.filter(pl.col(column).is_not_null() & pl.col(column).is_finite()) if frame.width else frame


def slices(comparison: Comparison, table: str = "curves") -> list[str]:
    """Name the slices of a table, those after tools first, then text-only, then others."""
    frame = rows_of(comparison, table)
    found = set(frame["slice"].drop_nulls().to_list()) if frame.width else set()
    known = [*AFTER, TEXT, *SLICES]
    return sorted(found, key=lambda name: (known.index(name) if name in known else len(known), name))


def numbers_of(title: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> tuple[DataTable, ...]:
    """Make the table behind a figure: none without rows, and no more rows than a page can hold."""
    cut = f", the first {count(MOST_ROWS)} of {count(len(rows))}" if len(rows) > MOST_ROWS else ""
    return (DataTable(title=f"{title}{cut}", head=head, rows=tuple(rows[:MOST_ROWS])),) if rows else ()


def title_of(slice_of: str, rest: str) -> str:
    """Open a panel's title with its slice."""
    shown = slice_name(slice_of)
    return f"{shown[:1].upper()}{shown[1:]}: {rest}"


def with_bounds(value: float | None, low: float | None, high: float | None) -> str:
    """Write a number and its interval, or what is missing of them."""
    if value is None or value != value:
        return "no value"
    if low is None or high is None or low != low or high != high:
        return f"{number(value)} (no interval)"
    return f"{number(value)} ({bounds(low, high)})"
