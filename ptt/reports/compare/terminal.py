"""A comparison on one screen of a terminal: the headline, the arms, what differs, and where the report lies."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten
from typing import Final

from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text

from ptt.diagnostics.compare.comparison import Comparison
from ptt.reports.compare.words import (
    arm_rows,
    divergence_cut,
    divergence_rows,
    marks_explained,
    metric_rows,
    metrics_counted,
    metrics_title,
    name_of,
    not_compared,
    setting_rows,
    tail_title,
    verdict_rows,
)
from ptt.reports.text.sanitize import safe

MOST_METRICS: Final = 6
MOST_SETTINGS: Final = 5
MOST_ACROSS: Final = 5  # arms beside each other: with more each is a row
WIDE: Final = 2000  # columns: more than any table is wide
MOST_UNSAID: Final = 4
MOST_VERDICTS: Final = 12
MOST_CAUTIONS: Final = 6
LONGEST: Final = 400  # letters of a reason; it ends with a whole word
WHOLE_NAME: Final = 20  # an arm's name up to so long is not folded, whatever the terminal's width
LEAST_WIDTH: Final = 12
STYLES: Final = {"lower": "green", "higher": "red", "alike": "", "cannot say": "cyan", "": "dim"}


def print_comparison(comparison: Comparison, console: Console, report_path: str) -> None:
    """Print the comparison; foreign text steers neither the terminal nor rich."""
    console.print(Text(safe(comparison.headline), style="bold"))
    _arms(comparison, console)
    _metrics(comparison, console)
    _settings(comparison, console)
    _divergence(comparison, console)
    _cautions(comparison, console)
    _unsaid(comparison, console)
    console.print()
    console.print(Text("Report  ", style="dim").append(safe(report_path), style="underline"), soft_wrap=True)


def _arms(comparison: Comparison, console: Console) -> None:
    title = tail_title(comparison)
    if not title:
        _verdicts(comparison, console)
        return
    table = _table("arm", "p95", "p99", "growth", "p95 against base", "p99 against base")
    table.columns[0].min_width = min(WHOLE_NAME, max((len(row.name) for row in arm_rows(comparison)), default=0))
    for row in arm_rows(comparison):
        runs = f" ({row.runs} runs)" if row.runs > 1 else ""
        growth = Text(" ".join(row.growth))
        ratios = (Text(cell, style=STYLES[word]) for cell, word in zip(row.short, row.words, strict=True))
        table.add_row(Text(row.name + runs), *(Text(cell) for cell in row.late), growth, *ratios)
    _headed(console, f"{title}; 95 % intervals")
    console.print(table)


def _verdicts(comparison: Comparison, console: Console) -> None:
    """Show what the runs are by themselves, where no tail can be set beside another."""
    rows = verdict_rows(comparison)
    _headed(console, "each run by itself")
    table = _table("run", "verdict", "")
    for row in rows[:MOST_VERDICTS]:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
    _more(console, len(rows) - MOST_VERDICTS, "runs")


def _metrics(comparison: Comparison, console: Console) -> None:
    counted = metrics_counted(comparison)
    if not counted:
        return
    rows = metric_rows(comparison)
    apart = [row for row in rows if row.differs]
    _headed(console, f"{metrics_title(comparison)}: {counted}")
    shown = _by_arm(comparison, console, [(row.metric, row.cells) for row in apart], "metric", MOST_METRICS)
    cut = [(len(apart) - shown, "more that differ"), (len(rows) - len(apart), "that do not or cannot be told")]
    rest = ", ".join(f"{number} {which}" for number, which in cut if number)
    if rest:
        console.print(Text(f"  and {rest}, in the report" if shown else f"  {rest}, in the report", style="dim"))
    explained = marks_explained(apart[:shown])
    if explained:
        console.print(Text(f"  {explained}", style="dim"))
    machine = [row for row in metric_rows(comparison, kind="machine") if row.differs]
    for row in machine[:MOST_METRICS]:
        console.print(Text(f"  of the machine: {row.metric} {' / '.join(row.cells)}", style="dim"))
    _more(console, len(machine) - MOST_METRICS, "of the machine")


def _by_arm(
    comparison: Comparison, console: Console, rows: Sequence[tuple[str, Sequence[str]]], noun: str, most: int
) -> int:
    """Show values by arm and say how many: an arm a column where they fit, else a row, so that none is left out."""
    names = [name_of(arm) for arm in comparison.arms]
    if not rows:
        return 0
    shown = list(rows[:most])
    across = _table(noun, *names)
    for key, cells in shown:
        across.add_row(Text(key), *(Text(cell) for cell in cells))
    if len(names) <= MOST_ACROSS and across.__rich_measure__(console, _unbounded(console)).maximum <= console.width:
        console.print(across)
    else:
        while True:
            down = _table("arm", *(key for key, _ in shown))
            for place, name in enumerate(names):
                down.add_row(Text(name), *(Text(cells[place]) for _, cells in shown))
            # as many columns as fit without breaking a cell, and one at least
            if len(shown) == 1 or down.__rich_measure__(console, _unbounded(console)).maximum <= console.width:
                break
            shown.pop()
        console.print(down)
    return len(shown)


def _unbounded(console: Console) -> ConsoleOptions:
    return console.options.update(max_width=WIDE, width=WIDE)


def _settings(comparison: Comparison, console: Console) -> None:
    rows = setting_rows(comparison, differs=True)
    if not rows:
        return
    _headed(console, "settings that differ")
    shown = _by_arm(comparison, console, [(row.key, row.values) for row in rows], "setting", MOST_SETTINGS)
    _more(console, len(rows) - shown, "settings")


def _divergence(comparison: Comparison, console: Console) -> None:
    rows = divergence_rows(comparison, most=1)
    if not rows:
        return
    _headed(console, "first figure to leave the baseline for good")
    table = _table("arm", "figure", "step (95 %)", "")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
    _more(console, divergence_cut(comparison, most=1), "that left it later, or when cannot be told")


def _cautions(comparison: Comparison, console: Console) -> None:
    if not comparison.cautions:
        return
    _headed(console, "cautions")
    for line in comparison.cautions[:MOST_CAUTIONS]:
        console.print(Text(f"  {safe(line)}"))
    _more(console, len(comparison.cautions) - MOST_CAUTIONS, "cautions")


def _unsaid(comparison: Comparison, console: Console) -> None:
    said = not_compared(comparison, remedy=False)
    if not said:
        return
    _headed(console, "not compared")
    for line in said[:MOST_UNSAID]:
        console.print(Text(f"  {shorten(line, LONGEST, placeholder=' …')}", style="dim"))
    _more(console, len(said) - MOST_UNSAID, "questions")


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=True, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(Text(column), header_style="dim", overflow="fold", min_width=min(len(column), LEAST_WIDTH))
    return table


def _headed(console: Console, title: str) -> None:
    console.print()
    console.print(Text(title[:1].upper() + title[1:], style="dim"))


def _more(console: Console, rest: int, noun: str) -> None:
    if rest > 0:
        console.print(Text(f"  and {rest} more {noun}, in the report", style="dim"))
