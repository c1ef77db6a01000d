"""A comparison as Markdown: compare.md, for a comment on a merge request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from ptt.diagnostics.compare.comparison import Comparison
from ptt.reports.compare.texts import (
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
from ptt.reports.text.markdown import text

NUMBERS: Final = re.compile(r"[\d.,×–−∞() \u202f]*(?:to [\d.,×−∞() \u202f]+)?(?: lower| higher| same| [?≠])?")
MAX_METRICS: Final = 40  # more than a usual trainer logs: a comment on a merge request has an end
MAX_FIGURES: Final = 40  # that left the baseline, an arm
MAX_SETTINGS: Final = 40


def compare_markdown(comparison: Comparison) -> str:
    """Return the text of compare.md; foreign text is escaped."""
    blocks = [f"## {text(_title(comparison))}", f"**{text(comparison.headline)}**", _listed(comparison.sentences)]
    blocks += [*_arms(comparison), *_metrics(comparison), *_settings(comparison), *_diverged(comparison)]
    if questions := not_compared(comparison, remedy=True):
        blocks += ["### Not compared", _listed(questions)]
    blocks.append(
        "×3 lower: a third of the baseline; ×3 higher: three times the baseline. Intervals are 95% intervals."
    )
    return "\n\n".join(block for block in blocks if block) + "\n"


def _title(comparison: Comparison) -> str:
    baseline, *others = (name_of(arm) for arm in comparison.arms)
    return f"{others[0] if len(others) == 1 else f'{len(others)} arms'} against {baseline}"


def _arms(comparison: Comparison) -> list[str]:
    title = tail_title(comparison)
    if not title:
        return ["### Each run alone", _markdown_table(("run", "verdict", "what it says"), verdict_rows(comparison))]
    tails = ("late p95", "late p99", "growth p95", "growth p99", "p95 against the baseline", "p99 against the baseline")
    rows = [(row.full_name, row.status, *row.late, *row.growth, *row.ratio) for row in arm_rows(comparison)]
    return [f"### {text(_capital(title))}", _markdown_table(("arm", "verdict", *tails), rows)]


def _metrics(comparison: Comparison) -> list[str]:
    counted, rows = metrics_counted(comparison), metric_rows(comparison)
    if not counted:
        return []
    blocks = [f"### {text(_capital(metrics_title(comparison)))}", f"{_capital(counted)}."]
    if rows:
        explained = marks_explained(rows[:MAX_METRICS])
        blocks += [_by_arm(comparison, "metric", rows, MAX_METRICS), f"{_capital(explained)}." if explained else ""]
        blocks.append(_more_in_json(len(rows) - MAX_METRICS, "metrics", "aggregates"))
    return blocks


def _settings(comparison: Comparison) -> list[str]:
    blocks = []
    for title, differs in (("Settings that differ", True), ("Settings that only one arm records", None)):
        if rows := setting_rows(comparison, differs=differs):
            more = _more_in_json(len(rows) - MAX_SETTINGS, "settings", "settings")
            blocks += [f"### {title}", _by_arm(comparison, "setting", rows, MAX_SETTINGS), more]
    return blocks


def _by_arm(comparison: Comparison, noun: str, rows: Sequence[ValueRow], most: int) -> str:
    return _markdown_table(
        (noun, *(name_of(arm) for arm in comparison.arms)), [(row.key, *row.cells) for row in rows[:most]]
    )


def _diverged(comparison: Comparison) -> list[str]:
    rows = divergence_rows(comparison, most=MAX_FIGURES)
    if not rows:
        return []
    return [
        "### What left the baseline for good, and when",
        _markdown_table(("arm", "figure", "step (95%)", "how"), rows),
        _more_in_json(divergence_cut(comparison, most=MAX_FIGURES), "figures that left it", "divergence"),
    ]


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"- {text(line)}" for line in lines)


def _cell(cell: str) -> str:
    """Escape a cell, but for numbers of our own: a mark in front of each point would be all there is to read."""
    return cell if NUMBERS.fullmatch(cell) else text(cell)


def _markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [[text(cell) for cell in head], ["---"] * len(head), *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _more_in_json(rest: int, noun: str, table: str) -> str:
    return f"And {rest} more {noun}: see `{table}` in compare.json." if rest > 0 else ""


def _capital(title: str) -> str:
    return title[:1].upper() + title[1:]
