"""A comparison as Markdown, for a comment on a merge request or a postmortem: what it found first, then the tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

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
from ptt.reports.text.markdown import text

NUMBERS: Final = re.compile(r"[\d.,×–−∞() \u202f]*(?:to [\d.,×−∞() \u202f]+)?(?: lower| higher| alike| [?])?")
MOST_METRICS: Final = 40  # more than a usual trainer logs: a comment on a merge request has an end
MOST_FIGURES: Final = 40  # that left the baseline, an arm
MOST_SETTINGS: Final = 40


def compare_markdown(comparison: Comparison) -> str:
    """Give the text of compare.md; foreign text is escaped."""
    blocks = [f"## {text(_title(comparison))}", f"**{text(comparison.headline)}**"]
    blocks.append(_listed(comparison.sentences))
    blocks += _arms(comparison)
    blocks += _metrics(comparison)
    blocks += _settings(comparison)
    blocks += _divergence(comparison)
    said = not_compared(comparison, remedy=True)
    if said:
        blocks += ["### Not compared", _listed(said)]
    blocks.append("×3 lower: a third of the baseline's; ×3 higher: three times it. Intervals are 95 %.")
    return "\n\n".join(block for block in blocks if block) + "\n"


def _title(comparison: Comparison) -> str:
    others = [name_of(arm) for arm in comparison.arms[1:]]
    told = others[0] if len(others) == 1 else f"{len(others)} arms"
    return f"{told} against {name_of(comparison.arms[0])}"


def _arms(comparison: Comparison) -> list[str]:
    title = tail_title(comparison)
    if not title:
        return ["### Each run by itself", _table(("run", "verdict", "what it says"), verdict_rows(comparison))]
    head = (
        "arm",
        "verdict",
        "late p95",
        "late p99",
        "growth p95",
        "growth p99",
        "p95 against the baseline",
        "p99 against the baseline",
    )
    rows = []
    for row in arm_rows(comparison):
        name = row.name + (f" ({row.runs} runs)" if row.runs > 1 else "")
        rows.append((name, row.status, *row.late, *row.growth, *row.ratio))
    return [f"### {text(_capital(title))}", _table(head, rows)]


def _metrics(comparison: Comparison) -> list[str]:
    counted, rows = metrics_counted(comparison), metric_rows(comparison)
    if not counted:
        return []
    title, said = f"### {text(_capital(metrics_title(comparison)))}", f"{_capital(counted)}."
    if not rows:
        return [title, said]
    head = ("metric", *(name_of(arm) for arm in comparison.arms))
    shown = rows[:MOST_METRICS]
    table = _table(head, [(row.metric, *row.cells) for row in shown])
    explained = marks_explained(shown)
    return [
        title,
        said,
        table,
        f"{_capital(explained)}." if explained else "",
        _more(len(rows) - MOST_METRICS, "metrics", "aggregates"),
    ]


def _settings(comparison: Comparison) -> list[str]:
    apart, partly = setting_rows(comparison, differs=True), setting_rows(comparison, differs=False)
    head = ("setting", *(name_of(arm) for arm in comparison.arms))
    blocks = []
    for title, rows in (("Settings that differ", apart), ("Settings that one arm alone records", partly)):
        if rows:
            shown = [(row.key, *row.values) for row in rows[:MOST_SETTINGS]]
            blocks += [f"### {title}", _table(head, shown), _more(len(rows) - MOST_SETTINGS, "settings", "settings")]
    return blocks


def _divergence(comparison: Comparison) -> list[str]:
    rows = divergence_rows(comparison, most=MOST_FIGURES)
    if not rows:
        return []
    return [
        "### What left the baseline for good, and when",
        _table(("arm", "figure", "step (95 %)", "how"), rows),
        _more(divergence_cut(comparison, most=MOST_FIGURES), "figures that left it", "divergence"),
    ]


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"- {text(line)}" for line in lines)


def _cell(cell: str) -> str:
    """Escape a cell, but for numbers of our own: a mark in front of each point would be all there is to read."""
    return cell if NUMBERS.fullmatch(cell) else text(cell)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [[text(cell) for cell in head], ["---"] * len(head), *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _more(rest: int, noun: str, table: str) -> str:
    return f"And {rest} more {noun}: `{table}` in compare.json has all." if rest > 0 else ""


def _capital(title: str) -> str:
    return title[:1].upper() + title[1:]
