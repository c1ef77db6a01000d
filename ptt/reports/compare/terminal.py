"""A comparison on one screen of a terminal: the headline, the arms, what differs, and where the report lies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import shorten
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ptt.diagnostics.compare.comparison import Comparison
from ptt.reports.compare import tables
from ptt.reports.compare.tables import ValueRow
from ptt.reports.text.sanitize import safe

MAX_METRICS: Final = 6
MAX_SETTINGS: Final = 5
MAX_ARMS_ACROSS: Final = 5  # arms beside each other: with more each is a row
UNBOUNDED_WIDTH: Final = 2000  # columns: more than any table is wide
MAX_QUESTIONS: Final = 4
MAX_VERDICTS: Final = 12
MAX_CAUTIONS: Final = 6
MAX_REASON: Final = 400  # letters of a reason; it ends with a whole word
MAX_UNFOLDED_NAME: Final = 20  # an arm's name up to so long is not folded, whatever the terminal's width
MIN_COLUMN: Final = 12
STYLES: Final = {"lower": "green", "higher": "red", "same": "", "cannot say": "cyan", "": "dim"}


def print_comparison(comparison: Comparison, console: Console, report_path: str) -> None:
    """Print the comparison; foreign text steers neither the terminal nor rich."""
    console.print(Text(safe(comparison.headline), style="bold"))
    _arms(comparison, console)
    _metrics(comparison, console)
    _settings(comparison, console)
    _divergence(comparison, console)
    _cautions(comparison, console)
    _not_compared(comparison, console)
    console.print()
    console.print(Text("Report  ", style="dim").append(safe(report_path), style="underline"), soft_wrap=True)


def _arms(comparison: Comparison, console: Console) -> None:
    title = tables.tail_title(comparison)
    if not title:
        _verdicts(comparison, console)
        return
    rows = tables.arm_rows(comparison)
    table = _table(("arm", "p95", "p99", "growth", "p95 against base", "p99 against base"))
    table.columns[0].min_width = min(MAX_UNFOLDED_NAME, max(len(row.name) for row in rows))
    for row in rows:
        ratios = (Text(cell, style=STYLES[word]) for cell, word in zip(row.short, row.words, strict=True))
        table.add_row(*map(Text, (row.full_name, *row.late, " ".join(row.growth))), *ratios)
    _heading(console, f"{title}; 95% intervals")
    console.print(table)


def _verdicts(comparison: Comparison, console: Console) -> None:
    """Show what the runs are by themselves, where no tail can be set beside another."""
    rows = tables.verdict_rows(comparison)
    _heading(console, "each run by itself")
    console.print(_table(("run", "verdict", ""), rows[:MAX_VERDICTS]))
    _more(console, len(rows) - MAX_VERDICTS, "runs")


def _metrics(comparison: Comparison, console: Console) -> None:
    counted = tables.metrics_counted(comparison)
    if not counted:
        return
    rows = tables.metric_rows(comparison)
    differing = [row for row in rows if row.differs]
    _heading(console, f"{tables.metrics_title(comparison)}: {counted}")
    shown = _by_arm(comparison, console, differing, "metric", MAX_METRICS)
    cut = [
        (len(differing) - shown, "more that differ"),
        (len(rows) - len(differing), "that do not differ or are unclear"),
    ]
    rest = ", ".join(f"{number} {which}" for number, which in cut if number)
    if rest:
        _dim(console, f"and {rest}, in the report" if shown else f"{rest}, in the report")
    explained = tables.marks_explained(differing[:shown])
    if explained:
        _dim(console, explained)
    machine = [row for row in tables.metric_rows(comparison, kind="machine") if row.differs]
    for row in machine[:MAX_METRICS]:
        _dim(console, f"of the machine: {row.key} {' / '.join(row.cells)}")
    _more(console, len(machine) - MAX_METRICS, "of the machine")


def _by_arm(comparison: Comparison, console: Console, rows: Sequence[ValueRow], noun: str, most: int) -> int:
    """Print values by arm and count their rows: an arm a column where they fit, else a row; none is left out."""
    names = [tables.name_of(arm) for arm in comparison.arms]
    shown = rows[:most]
    if not shown:
        return 0
    table = _table((noun, *names), [(row.key, *row.cells) for row in shown])
    if len(names) > MAX_ARMS_ACROSS or not _fits(table, console):
        while True:
            table = _table(("arm", *(row.key for row in shown)), zip(names, *(row.cells for row in shown), strict=True))
            # as many columns as fit without breaking a cell, and one at least
            if len(shown) == 1 or _fits(table, console):
                break
            shown = shown[:-1]
    console.print(table)
    return len(shown)


def _fits(table: Table, console: Console) -> bool:
    unbounded = console.options.update(max_width=UNBOUNDED_WIDTH, width=UNBOUNDED_WIDTH)
    return table.__rich_measure__(console, unbounded).maximum <= console.width


def _settings(comparison: Comparison, console: Console) -> None:
    rows = tables.setting_rows(comparison, differs=True)
    if rows:
        _heading(console, "settings that differ")
        _more(console, len(rows) - _by_arm(comparison, console, rows, "setting", MAX_SETTINGS), "settings")


def _divergence(comparison: Comparison, console: Console) -> None:
    rows = tables.divergence_rows(comparison, most=1)
    if rows:
        _heading(console, "first figure to leave the baseline for good")
        console.print(_table(("arm", "figure", "step (95%)", ""), rows))
        _more(console, tables.divergence_cut(comparison, most=1), "that left it later, or at an unknown step")


def _cautions(comparison: Comparison, console: Console) -> None:
    if comparison.cautions:
        _heading(console, "cautions")
    for line in comparison.cautions[:MAX_CAUTIONS]:
        console.print(Text(f"  {safe(line)}"))
    _more(console, len(comparison.cautions) - MAX_CAUTIONS, "cautions")


def _not_compared(comparison: Comparison, console: Console) -> None:
    questions = tables.not_compared(comparison, remedy=False)
    if questions:
        _heading(console, "not compared")
    for line in questions[:MAX_QUESTIONS]:
        _dim(console, shorten(line, MAX_REASON, placeholder=" …"))
    _more(console, len(questions) - MAX_QUESTIONS, "questions")


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]] = ()) -> Table:
    table = Table(box=None, pad_edge=True, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(Text(column), header_style="dim", overflow="fold", min_width=min(len(column), MIN_COLUMN))
    for cells in rows:
        table.add_row(*map(Text, cells))
    return table


def _heading(console: Console, title: str) -> None:
    console.print()
    console.print(Text(title[:1].upper() + title[1:], style="dim"))


def _dim(console: Console, line: str) -> None:
    console.print(Text(f"  {line}", style="dim"))


def _more(console: Console, rest: int, noun: str) -> None:
    if rest > 0:
        _dim(console, f"and {rest} more {noun}, in the report")
