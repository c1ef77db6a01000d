"""What a figure is made of: panels that each draw on one pair of axes, a caption, the data behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptt.diagnostics.model import Diagnosis
from ptt.reports.text.names import slice_name
from ptt.reports.text.numbers import count, number
from ptt.reports.text.tables import table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
