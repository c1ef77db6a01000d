"""What a figure is made of: panels that each draw on one pair of axes, a caption, the data behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from ptt.diagnostics.model import Answer, Diagnosis, Link
from ptt.reports.foreign import safe
from ptt.reports.names import SLICES, sentence, slice_name
from ptt.reports.numbers import count, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BIN_ERROR = 0.004  # the token pass counts |r| in bins this wide, relative to the value
WINDOW_NAMES = ("early", "mid", "late")
THIRDS = len(WINDOW_NAMES)
NO_LINE, ONE_LINE, TWO_LINES = (
    10,
    26,
    44,
)  # pixels above the axes: the vertical axis's name, and the windows' names below it


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One pair of axes: `key` is unique in a report, `alt` tells its content in words and numbers."""

    key: str
    title: str
    alt: str
    draw: Callable[[Axes], None]
    width: int = 420  # in CSS pixels; at 340 on a phone the 12.5 px labels are still 10 px
    height: int = 300
    top: int = TWO_LINES
    left: int | None = None  # pixels left and right of the axes, where a figure needs others than the rest
    right: int | None = None
    shown: str = ""  # wide or narrow: on screens of that width alone; files and notebooks hold no narrow one


@dataclass(frozen=True, kw_only=True)
class DataTable:
    """Numbers behind a figure, ready to show."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class FigureKind:
    """One figure of the report; no panels means that the run does not hold what it needs."""

    name: str  # of its files
    title: str
    columns: int
    panels: Callable[[Diagnosis], tuple[Panel, ...]]
    caption: Callable[[Diagnosis], str]
    data: Callable[[Diagnosis], tuple[DataTable, ...]]
    absence: Callable[[Diagnosis], str]  # empty: nothing is to be said


def table(diagnosis: Diagnosis, name: str) -> pl.DataFrame | None:
    """Give one table of the diagnosis, or nothing if it is absent or empty."""
    frame = diagnosis.tables.get(name)
    return None if frame is None or frame.is_empty() else frame


def slices(frame: pl.DataFrame) -> list[str]:
    """Name the slices of a table, those we know first, in a fixed order."""
    known = list(SLICES)
    names = set(frame["slice"].drop_nulls().to_list())
    return sorted(names, key=lambda name: (known.index(name) if name in known else len(known), name))


def windows(diagnosis: Diagnosis) -> list[tuple[str, int, int]]:
    """Give the early, mid and late window with their first and last steps."""
    for name in ("growth", "ecdf"):
        frame = table(diagnosis, name)
        if frame is None:
            continue
        if name == "growth":
            frame = frame.filter(pl.col("parts") == THIRDS).with_columns(
                pl.col("part").replace_strict(dict(enumerate(WINDOW_NAMES)), return_dtype=pl.String).alias("window")
            )
        ends = frame.group_by("window").agg(pl.col("step_first").min(), pl.col("step_last").max())
        found = {window: (first, last) for window, first, last in ends.iter_rows()}
        if found:
            return [(window, *found[window]) for window in WINDOW_NAMES if window in found]
    return []


def window_words(diagnosis: Diagnosis) -> str:
    """Say which steps the windows hold."""
    return ", ".join(f"{name} {count(first)} to {count(last)}" for name, first, last in windows(diagnosis))


def pair_of(diagnosis: Diagnosis) -> str:
    """Name the pair of every number, or say that it is not named."""
    return safe(diagnosis.signature.pair or "not named")


def growth_table(diagnosis: Diagnosis) -> tuple[DataTable, ...]:
    """Give the percentiles by thirds and sixths of the run, or nothing."""
    frame = table(diagnosis, "growth")
    if frame is None:
        return ()
    head = ("Part", "Steps", "Slice", "p50", "p95", "p99", "p99.9", "Tokens", "Sequences")
    rows = tuple(
        (
            f"{row['part'] + 1} of {row['parts']}",
            f"{count(row['step_first'])} to {count(row['step_last'])}",
            slice_name(row["slice"]),
            *(number(row[name]) for name in ("p50", "p95", "p99", "p999")),
            count(row["n_tokens"]),
            count(row["n_sequences"]),
        )
        for row in frame.sort("parts", "part", "slice").iter_rows(named=True)
    )
    return (DataTable(title="By thirds and sixths of the run", head=head, rows=rows),)


def no_tokens(diagnosis: Diagnosis) -> str:
    """Say why there is nothing to draw from the tokens of this run."""
    signature = diagnosis.signature
    if signature.status is Answer.CANNOT_SAY and signature.reason:
        return f"Not drawn: {sentence(signature.reason)}"
    for item in diagnosis.not_judged:
        if item.link in {Link.POLICY_UPDATE, Link.DATA_VALIDITY}:
            return f"Not drawn: {sentence(item.reason)}"
    return "Not drawn: the run gave no numbers for it."


def error_bound() -> str:
    """State how exact the percentiles are."""
    return f"Percentiles are exact to the bin width, at most {100 * BIN_ERROR:g} %."
