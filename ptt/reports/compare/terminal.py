"""A comparison on a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import shorten
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ptt.diagnostics.compare.comparison import Comparison
from ptt.reports.compare.texts import (
    NOT_SAME,
    ValueRow,
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
from ptt.reports.text import notebook
from ptt.reports.text.sanitize import safe

MAX_SENTENCES: Final = 2
MAX_NAMED: Final = 5  # arms
PRINTED_METRICS: Final = 6
PRINTED_SETTINGS: Final = 5
MAX_ARMS_ACROSS: Final = 5  # arms beside each other: with more each is a row
UNBOUNDED_WIDTH: Final = 2000  # columns: more than any table is wide
MAX_QUESTIONS: Final = 4
MAX_VERDICTS: Final = 12
MAX_CAUTIONS: Final = 6
MAX_REASON: Final = 400  # letters of a reason; it ends with a whole word
MAX_UNFOLDED_NAME: Final = 20  # an arm's name up to so long is not folded, whatever the terminal's width
MIN_COLUMN: Final = 12
STYLES: Final = {"lower": "green", "higher": "red", "same": "", "cannot say": "cyan", "": "dim"}


def summary(comparison: Comparison) -> str:
    """Return the comparison in a few lines of plain text: the headline, the arms, and what is most telling."""
    names = (
        [row.full_name for row in arm_rows(comparison)]
        if tail_title(comparison)
        else list(map(name_of, comparison.arms))
    )
    base, *others = names
    arms = f"{', '.join(others[:MAX_NAMED])} against {base}"
    more = f" and {len(others) - MAX_NAMED} more" if len(others) > MAX_NAMED else ""
    sentences = (safe(text) for text in comparison.sentences[:MAX_SENTENCES])
    return "\n".join((safe(comparison.headline), arms + more, *sentences))


def notebook_card(comparison: Comparison) -> str:
    """Return the comparison as a notebook shows it: the headline, a row an arm, and what is most telling."""
    title, texts = tail_title(comparison), list(comparison.sentences[: 2 * MAX_SENTENCES])
    if not title:
        rows = verdict_rows(comparison)
        return notebook.card(comparison.headline, head=("run", "verdict", ""), rows=rows, texts=texts)
    head = ("arm", "verdict", "p95", "p99", "growth", "p95 against base", "p99 against base")
    arms = [(row.full_name, row.status, *row.late, " ".join(row.growth), *row.ratio) for row in arm_rows(comparison)]
    return notebook.card(comparison.headline, head=head, rows=arms, texts=[f"Tails: {title}; 95% intervals.", *texts])


def print_comparison(comparison: Comparison, console: Console, report_path: str) -> None:
    """Print the comparison; foreign text steers neither the terminal nor rich."""
    console.print(Text(safe(comparison.headline), style="bold"))
    _print_arms(comparison, console)
    _print_metrics(comparison, console)
    _print_settings(comparison, console)
    _print_divergence(comparison, console)
    _print_cautions(comparison, console)
    _print_not_compared(comparison, console)
    console.print()
    console.print(Text("Report  ", style="dim").append(safe(report_path), style="underline"), soft_wrap=True)


def _print_arms(comparison: Comparison, console: Console) -> None:
    title = tail_title(comparison)
    if not title:
        _print_verdicts(comparison, console)
        return
    rows = arm_rows(comparison)
    table = _terminal_table(("arm", "p95", "p99", "growth", "p95 against base", "p99 against base"))
    table.columns[0].min_width = min(MAX_UNFOLDED_NAME, max(len(row.name) for row in rows))
    for row in rows:
        ratios = (Text(cell, style=STYLES[word]) for cell, word in zip(row.short, row.words, strict=True))
        table.add_row(*map(Text, (row.full_name, *row.late, " ".join(row.growth))), *ratios)
    _heading(console, f"{title}; 95% intervals")
    console.print(table)


def _print_verdicts(comparison: Comparison, console: Console) -> None:
    """Show what the runs are by themselves, where no tail can be set beside another."""
    rows = verdict_rows(comparison)
    _heading(console, "each run by itself")
    console.print(_terminal_table(("run", "verdict", ""), rows[:MAX_VERDICTS]))
    _print_more(console, len(rows) - MAX_VERDICTS, "runs")


def _print_metrics(comparison: Comparison, console: Console) -> None:
    counted = metrics_counted(comparison)
    if not counted:
        return
    rows = metric_rows(comparison)
    differing = [row for row in rows if row.differs or row.notes]
    _heading(console, f"{metrics_title(comparison)}: {counted}")
    shown = _print_by_arm(comparison, console, differing, "metric", PRINTED_METRICS)
    cut = [
        (len(differing) - shown, "more that differ"),
        (len(rows) - len(differing), "that do not differ or are unclear"),
    ]
    rest = ", ".join(f"{number} {which}" for number, which in cut if number)
    if rest:
        _dim(console, f"and {rest}, in the report" if shown else f"{rest}, in the report")
    explained = marks_explained([row for row in differing[:shown] if not row.notes])
    if explained:
        _dim(console, explained)
    for row in differing[:shown]:
        for note in row.notes:
            _dim(console, f"{NOT_SAME} {row.key}: {note}")
    machine = [row for row in metric_rows(comparison, kind="machine") if row.differs]
    for row in machine[:PRINTED_METRICS]:
        _dim(console, f"of the machine: {row.key} {' / '.join(row.cells)}")
    _print_more(console, len(machine) - PRINTED_METRICS, "of the machine")


def _print_by_arm(comparison: Comparison, console: Console, rows: Sequence[ValueRow], noun: str, most: int) -> int:
    """Print values by arm and count their rows: an arm a column where they fit, else a row; none is left out."""
    names = [name_of(arm) for arm in comparison.arms]
    shown = rows[:most]
    if not shown:
        return 0
    table = _terminal_table((noun, *names), [(row.key, *row.cells) for row in shown])
    if len(names) > MAX_ARMS_ACROSS or not _fits(table, console):
        while True:
            table = _terminal_table(
                ("arm", *(row.key for row in shown)), zip(names, *(row.cells for row in shown), strict=True)
            )
            # as many columns as fit without breaking a cell, and one at least
            if len(shown) == 1 or _fits(table, console):
                break
            shown = shown[:-1]
    console.print(table)
    return len(shown)


def _fits(table: Table, console: Console) -> bool:
    unbounded = console.options.update(max_width=UNBOUNDED_WIDTH, width=UNBOUNDED_WIDTH)
    return table.__rich_measure__(console, unbounded).maximum <= console.width


def _print_settings(comparison: Comparison, console: Console) -> None:
    rows = setting_rows(comparison, differs=True)
    if rows:
        _heading(console, "settings that differ")
        _print_more(
            console, len(rows) - _print_by_arm(comparison, console, rows, "setting", PRINTED_SETTINGS), "settings"
        )


def _print_divergence(comparison: Comparison, console: Console) -> None:
    rows = divergence_rows(comparison, most=1)
    if rows:
        _heading(console, "first figure to leave the baseline for good")
        console.print(_terminal_table(("arm", "figure", "step (95%)", ""), rows))
        _print_more(console, divergence_cut(comparison, most=1), "that left it later, or at an unknown step")


def _print_cautions(comparison: Comparison, console: Console) -> None:
    if comparison.cautions:
        _heading(console, "cautions")
    for line in comparison.cautions[:MAX_CAUTIONS]:
        console.print(Text(f"  {safe(line)}"))
    _print_more(console, len(comparison.cautions) - MAX_CAUTIONS, "cautions")


def _print_not_compared(comparison: Comparison, console: Console) -> None:
    questions = not_compared(comparison, remedy=False)
    if questions:
        _heading(console, "not compared")
    for line in questions[:MAX_QUESTIONS]:
        _dim(console, shorten(line, MAX_REASON, placeholder=" …"))
    _print_more(console, len(questions) - MAX_QUESTIONS, "questions")


def _terminal_table(columns: Sequence[str], rows: Iterable[Sequence[str]] = ()) -> Table:
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


def _print_more(console: Console, rest: int, noun: str) -> None:
    if rest > 0:
        _dim(console, f"and {rest} more {noun}, in the report")
