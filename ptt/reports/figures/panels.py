"""What a figure is made of: panels that each draw on one pair of axes, a caption, the data behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import Diagnosis
from ptt.reports.text.tables import table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Source = TypeVar("Source")  # a diagnosis, or a comparison
NO_LINE, ONE_LINE, TWO_LINES = 10, 26, 44  # pixels above the axes: the vertical axis's name, the windows' names below


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
class FigureSpec(Generic[Source]):
    """One figure of a report; no panels means that its source does not hold what it needs."""

    name: str  # of its files
    title: str
    columns: int
    panels: Callable[[Source], tuple[Panel, ...]]
    caption: Callable[[Source], str]
    data: Callable[[Source], tuple[DataTable, ...]] = lambda _: ()
    absence: Callable[[Source], str] = lambda _: ""  # why it has no panels; empty: nothing is to be said
    takeaway: Callable[[Source], str] = lambda _: ""  # what it shows of this source: its heading; empty: its title
    folded: bool = False  # the question of the figure before it asked another way: shown on demand
    keyed: bool = False  # its panels do not name the arms: the page has a key above, a file needs its own


RunFigure = FigureSpec[Diagnosis]


def data_table(title: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> tuple[DataTable, ...]:
    """Make the table behind a figure: none without rows."""
    return (DataTable(title=title, head=head, rows=tuple(rows)),) if rows else ()


def finite_rows(diagnosis: Diagnosis, name: str, value: str, *by: str) -> pl.DataFrame | None:
    """Return the rows of a table whose value is a number, sorted by columns of which the first is never null."""
    frame = table(diagnosis, name)
    if frame is None:
        return None
    usable = frame.filter(pl.col(value).is_finite(), pl.col(by[0]).is_not_null())
    return None if usable.is_empty() else usable.sort(by)
