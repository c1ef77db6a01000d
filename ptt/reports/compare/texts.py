"""A comparison as text: its tables as short finished strings, on a terminal, as Markdown, and as compare.json."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from textwrap import shorten
from typing import Final

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ptt.diagnostics.compare.comparison import (
    LABELS,
    OTHER,
    SAME,
    Arm,
    Comparison,
    Member,
    Tail,
    by_interest,
    figure_name,
    late_mean,
    late_others,
    late_reach,
    late_steps,
    late_words,
    post_slice,
    sided,
    tail_of,
)
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.metrics.catalogue import Kind
from ptt.reports.output import fields_of, finite_json
from ptt.reports.text import notebook
from ptt.reports.text.markdown import text
from ptt.reports.text.names import STATUSES, metric_name
from ptt.reports.text.numbers import number, times
from ptt.reports.text.sanitize import LONGEST, safe, shortened

NONE: Final = "–"
MAX_NAME: Final = 40
MAX_VALUE: Final = 60
MAX_VERDICT: Final = 160
WORDS: Final = {"lower": "lower", "higher": "higher", "alike": "same", "cannot_say": "cannot say"}
NOT_SAME: Final = "≠"
MARKS: Final = WORDS | {"cannot_say": "?", OTHER: NOT_SAME, "": ""}
MARK_MEANINGS: Final = {
    "same": "same: within a margin of the baseline",
    "?": "?: unclear, which does not mean the same",
    NOT_SAME: f"{NOT_SAME}: not the same quantity as the baseline's",
}


@dataclass(frozen=True, kw_only=True)
class ArmRow:
    """One arm in the small table."""

    name: str
    runs: int
    status: str
    late: tuple[str, ...]  # p95, p99
    growth: tuple[str, ...]
    ratio: tuple[str, ...]  # with its interval; the baseline has none
    short: tuple[str, ...]  # the same in few letters
    words: tuple[str, ...]  # lower, higher, same, cannot say; empty for the baseline

    @property
    def full_name(self) -> str:
        """The name, and of how many runs the arm is where it has several."""
        return f"{self.name} ({self.runs} runs)" if self.runs > 1 else self.name


@dataclass(frozen=True, kw_only=True)
class ValueRow:
    """One metric late in the run, or one setting, by arm."""

    key: str
    cells: tuple[str, ...]  # one an arm; of a metric its mean, and what it is against the baseline's
    differs: bool | None  # in any arm; None: not recorded by two
    notes: tuple[str, ...] = ()  # why no verdict is drawn from an arm's value


def name_of(arm: Arm) -> str:
    """Return an arm's name, harmless and short."""
    return shortened(safe(arm.name), MAX_NAME)


def tail_title(comparison: Comparison) -> str:
    """Return what the table of arms shows."""
    name = post_slice(comparison.tables) or next(iter(comparison.tables["windows"]["slice"].unique().sort()), "")
    if not name:
        return ""
    reach = comparison.matched.get("steps")
    late = late_reach(comparison.tables)
    steps = ""
    if reach:
        ends = f"{number(reach[0])} to {number(reach[1])}"
        steps = f", late third ({late} of {ends})" if late else f", late third of steps {ends}"
    return f"{LABELS.get(name, safe(name))} |r| in nats ({safe(comparison.pair or '')}){steps}"


def arm_rows(comparison: Comparison) -> tuple[ArmRow, ...]:
    """Return the small table of arms: late level, growth, and baseline over arm with its interval."""
    base = comparison.arms[0]
    name = post_slice(comparison.tables) or "text_only"
    rows = []
    for arm in comparison.arms:
        tails = [tail_of(comparison.tables, arm, base, name, quantile) for quantile in ("p95", "p99")]
        rows.append(
            ArmRow(
                name=name_of(arm),
                runs=len(arm.members),
                status="/".join(dict.fromkeys(STATUSES[m.diagnosis.verdict.status] for m in arm.members)),
                late=tuple(_or_none(tail.late) for tail in tails),
                growth=tuple(_or_none(tail.growth, times) for tail in tails),
                ratio=tuple(NONE if arm is base else _ratio(tail) for tail in tails),
                short=tuple(NONE if arm is base else _short_ratio(tail) for tail in tails),
                words=tuple("" if arm is base else WORDS[tail.words] for tail in tails),
            )
        )
    return tuple(rows)


def verdict_rows(comparison: Comparison) -> tuple[tuple[str, str, str], ...]:
    """Return what each run is by itself: name, verdict, what the verdict says."""
    return tuple(
        (
            shortened(safe(member.name), MAX_NAME),
            STATUSES[member.diagnosis.verdict.status],
            shortened(safe(member.diagnosis.verdict.headline), MAX_VERDICT),
        )
        for arm in comparison.arms
        for member in arm.members
    )


def metric_rows(comparison: Comparison, *, kind: Kind = "training") -> tuple[ValueRow, ...]:
    """Return the metrics of a kind that are set against the baseline's, first those that differ in any arm.

    Those that are another quantity in an arm come next: they have their means, and no verdict.
    """
    words = {arm.name: late_words(comparison.tables, arm, kind=kind) for arm in comparison.arms[1:]}
    others = {arm.name: late_others(comparison.tables, arm, kind=kind) for arm in comparison.arms[1:]}
    apart = {metric for by_metric in others.values() for metric in by_metric}
    every = {metric for by_metric in words.values() for metric in by_metric} | apart
    differing = {m for by_metric in words.values() for m, word in by_metric.items() if word in ("higher", "lower")}
    rows = []
    for metric in (*by_interest(differing), *by_interest(apart - differing), *by_interest(every - differing - apart)):
        cells = []
        for arm in comparison.arms:
            mean = late_mean(comparison.tables, arm, metric)
            word = OTHER if metric in others.get(arm.name, {}) else words.get(arm.name, {}).get(metric, "")
            cells.append(f"{_or_none(mean)} {MARKS[word]}".rstrip())
        notes = tuple(dict.fromkeys(safe(by_metric[metric]) for by_metric in others.values() if metric in by_metric))
        rows.append(ValueRow(key=metric_name(metric), cells=tuple(cells), differs=metric in differing, notes=notes))
    return tuple(rows)


def marks_explained(rows: Sequence[ValueRow]) -> str:
    """Explain the marks behind the means of these rows; empty if there are no marks."""
    ends = {cell.rpartition(" ")[2] for row in rows for cell in row.cells}
    return "; ".join(meaning for mark, meaning in MARK_MEANINGS.items() if mark in ends)


def metrics_counted(comparison: Comparison) -> str:
    """Return of how many metrics what was found, over all arms; empty without metrics."""
    words = Counter(word for arm in comparison.arms[1:] for word in late_words(comparison.tables, arm).values())
    apart = sum(len(late_others(comparison.tables, arm)) for arm in comparison.arms[1:])
    if not words and not apart:
        return ""
    of = "metrics" if len(comparison.arms) == 2 else "pairs of an arm and a metric"
    rest = f"{words['alike']} are the same, {words['cannot_say']} are unclear"
    rest += f", {apart} {'is' if apart == 1 else 'are'} not the same quantity" if apart else ""
    return f"of {words.total() + apart} {of}, {words['higher'] + words['lower']} differ, {rest}"


def metrics_title(comparison: Comparison) -> str:
    """Return which window of the logged metrics is shown, and its steps."""
    steps = late_steps(comparison.tables)
    return f"metrics, late third ({steps})" if steps else "metrics, late third"


def setting_rows(
    comparison: Comparison,
    *,
    differs: bool | None,
    missing: str = NONE,
    empty: str = "",
    max_key: int = LONGEST,
    max_value: int = MAX_VALUE,
) -> tuple[ValueRow, ...]:
    """Return the settings that differ, that are the same, or (None) that fewer than two arms record."""

    def shown(value: str | None) -> str:
        if value is None:
            return missing
        content = json.loads(value)  # text without its quotes
        return shortened(safe(content if isinstance(content, str) else value), max_value) or empty

    rows = comparison.tables["settings"].filter(pl.col("differs").eq_missing(differs))
    by_key = rows.group_by("key", maintain_order=True)
    values = ((key, dict(group.select("arm", "value").iter_rows())) for (key,), group in by_key)
    return tuple(
        ValueRow(
            key=shortened(safe(str(key)), max_key),
            cells=tuple(shown(by_arm.get(arm.name)) for arm in comparison.arms),
            differs=differs,
        )
        for key, by_arm in values
    )


def divergence_rows(comparison: Comparison, *, most: int) -> tuple[tuple[str, ...], ...]:
    """Return for each arm the figures that left the baseline first: arm, figure, step and interval, where to."""
    rows: list[tuple[str, ...]] = []
    for arm in comparison.arms[1:]:
        departures, identical = _divergence(comparison, arm)
        for row in identical.iter_rows(named=True):
            figure = "identical at first" if row["step"] < row["high"] else "none"  # a figure that left may follow
            rows.append((name_of(arm), figure, f"up to {row['step']}", row["words"]))
        for row in departures.head(most).iter_rows(named=True):
            interval = f"({row['low']} to {row['high']})"
            step = f"{row['step'] if row['step'] is not None else 'step unknown'} {interval}"
            rows.append((name_of(arm), safe(figure_name(row)), step, safe(row["words"])))
    return tuple(rows)


def divergence_cut(comparison: Comparison, *, most: int) -> int:
    """Count the figures that left the baseline and that `divergence_rows` leaves out."""
    return sum(max(0, _divergence(comparison, arm)[0].height - most) for arm in comparison.arms[1:])


def _divergence(comparison: Comparison, arm: Arm) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the figures of an arm that left the baseline, and the row of the step up to which two runs are one."""
    rows = comparison.tables["divergence"].filter(arm=arm.name)
    return rows.filter(pl.col("what") != SAME), rows.filter(pl.col("what") == SAME)


def not_compared(comparison: Comparison, *, remedy: bool) -> tuple[str, ...]:
    """Return what could not be compared, and why, one clause each; with `remedy` what would change that."""
    return tuple(
        f"{safe(item.what)}: {safe(item.reason)}" + (f" ({safe(item.enable)})" if remedy and item.enable else "")
        for item in comparison.not_compared
    )


def _ratio(tail: Tail) -> str:
    if not math.isfinite(tail.ratio):
        return NONE
    factor = sided(tail.ratio, tail.low, tail.high)
    interval = factor.interval(number, 3) if tail.known else "no interval"
    return f"{times(factor.factor)} {factor.side}".rstrip() + f" ({interval})"


def _short_ratio(tail: Tail) -> str:
    if not math.isfinite(tail.ratio):
        return NONE
    factor = sided(tail.ratio, tail.low, tail.high)
    interval = factor.interval(number, 2, joint="–") if tail.known else "?"
    return f"×{number(factor.factor, 2)} {factor.side}".rstrip() + f" [{interval}]"


def _or_none(value: float, write: Callable[[float], str] = number) -> str:
    return write(value) if math.isfinite(value) else NONE


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


SCHEMA_VERSION: Final = 1
TABLES: Final = (
    "windows", "differences", "growth", "aggregates", "aggregate_differences", "divergence", "settings", "curves",
    "ess",
)  # fmt: skip
"""In order of what is read first; the CDFs, thousands of points, are in the figures alone."""


def compare_json(comparison: Comparison, version: str) -> str:
    """Return the text of compare.json; the same comparison gives the same bytes."""
    content: dict[str, object] = {
        "schema_version": SCHEMA_VERSION,
        "ptt_version": version,
        "headline": comparison.headline,
        "sentences": comparison.sentences,
        "cautions": comparison.cautions,
        "baseline": comparison.arms[0].name,
        "pair": comparison.pair,
        "arms": [{"name": arm.name, "runs": [_run(run) for run in arm.members]} for arm in comparison.arms],
        "matched": comparison.matched,
        "not_compared": [asdict(item) for item in comparison.not_compared],
        **{name: comparison.tables[name].to_dicts() for name in TABLES},
    }
    return finite_json(content)


def _run(member: Member) -> dict[str, object]:
    run, verdict = member.diagnosis.run, member.diagnosis.verdict
    return {
        "name": member.name,
        "source": member.source or None,
        **fields_of(run, "framework", "algorithm"),
        "steps": {"first": run.first_step, "last": run.last_step, "count": run.step_count},
        **fields_of(run, "sequences", "model_tokens"),
        **fields_of(verdict, "status", "headline"),
    }
