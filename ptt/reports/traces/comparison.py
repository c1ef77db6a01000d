"""Two sets of agent traces side by side: compare.json, the terminal, and the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ptt.diagnostics.traces.compare import (
    BETTER,
    ERROR_RATE,
    HIGHER,
    LOWER,
    MEANS,
    NONE,
    UNKNOWN,
    WORSE,
    Flip,
    TraceComparison,
    TraceDifference,
    TraceSide,
)
from ptt.reports.figures.axes import annotate_row, linear, row_axes
from ptt.reports.figures.faults import FigureFault
from ptt.reports.figures.panels import DataTable, FigureSpec, Panel
from ptt.reports.figures.style import INK, MUTED, POST, TEXT, annotate, drawable, hover
from ptt.reports.output import fields_of, finite_json, render
from ptt.reports.run.drawn import drawn_figures, fault_lines
from ptt.reports.run.html import Page
from ptt.reports.run.terminal import cell, print_blocks
from ptt.reports.text.names import STATUSES, joined, sentence
from ptt.reports.text.numbers import MINUS, NOTHING, count, counted, number, percent
from ptt.reports.text.sanitize import safe, shortened
from ptt.reports.traces.tool_names import with_short_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCHEMA_VERSION: Final = 1
MAX_NAMED: Final = 3  # differences in the headline
MAX_LINES: Final = 6  # on a terminal
MAX_NAME: Final = 40
MAX_FLIPPED: Final = 200  # tasks in compare.json and on the page
MAX_TESTED: Final = 24  # rows of the figure
WORDS: Final = {
    BETTER: "better", WORSE: "worse", HIGHER: "higher", LOWER: "lower", NONE: "no difference beyond noise",
    UNKNOWN: "cannot say",
}  # fmt: skip
DASH: Final = "–"


def headline(compared: TraceComparison) -> str:
    """Say in a sentence what differs beyond noise."""
    if not compared.compared:
        return "Nothing could be compared: the two sets record no statistic in common."
    differing = compared.differing
    if not differing:
        return f"No difference beyond noise in {counted(compared.compared, 'statistic')}."
    named = [f"{_label(item)} {WORDS[item.verdict]}, {_from_to(item)}" for item in differing[:MAX_NAMED]]
    rest = len(differing) - len(named)
    return sentence("; ".join(named) + (f"; and {counted(rest, 'more difference')}" if rest else ""))


def method(compared: TraceComparison) -> str:
    """Say how the sets were compared."""
    if compared.paired:
        how = f"Task by task over {counted(compared.shared_tasks, 'task')} that both sets hold, each counted once"
    else:
        how = "As wholes, with the interval of each set"
    return (
        f"{how}. Within shares, means and tools p-values are corrected for how many they are (Holm, "
        f"{percent(ERROR_RATE)}); what chance explains is called neither better nor worse."
    )


def _label(item: TraceDifference) -> str:
    return f"failed calls of {safe(item.label)}" if item.name.startswith("tool:") else item.label


def value_words(item: TraceDifference, value: float | None) -> str:
    """Write a share as per cent, and a mean as a number."""
    if value is None:
        return "not recorded"
    return number(value) if item.name in MEANS else percent(value)


def _from_to(item: TraceDifference) -> str:
    return f"{value_words(item, item.first)} to {value_words(item, item.second)}"


def gap_words(item: TraceDifference) -> str:
    """Write a difference with its interval, of shares in percentage points."""
    if item.difference is None:
        return DASH
    of_mean = item.name in MEANS
    scale, unit = (1.0, "") if of_mean else (100.0, " points")
    text = _signed(scale * item.difference) + unit
    if item.interval is None:
        return text
    return f"{text} ({_signed(scale * item.interval[0])} to {_signed(scale * item.interval[1])})"


def _signed(value: float) -> str:
    value = 0.0 if abs(value) < NOTHING else value
    rounded = number(float(f"{value:.3g}"), 3 if abs(value) >= 1 else 2)
    return rounded if rounded.startswith(MINUS) or rounded == "0" else f"+{rounded}"


def compare_traces_json(compared: TraceComparison, version: str) -> str:
    """Return the text of compare.json; the same sets give the same bytes."""
    return finite_json(
        {
            "schema_version": SCHEMA_VERSION,
            "ptt_version": version,
            "kind": "traces",
            "headline": headline(compared),
            "method": {"paired": compared.paired, "shared_tasks": compared.shared_tasks, "error_rate": ERROR_RATE},
            "sets": [_set(side) for side in (compared.first, compared.second)],
            "shares": [_item(item) for item in compared.shares],
            "means": [_item(item) for item in compared.means],
            "tools": [_item(item) for item in compared.tools],
            "tools_of_one_set": {"first": compared.only_first, "second": compared.only_second},
            "error_classes": [asdict(each) for each in compared.errors],
            "flipped": {
                "to_success": sum(flip.second > flip.first for flip in compared.flipped),
                "to_failure": sum(flip.second < flip.first for flip in compared.flipped),
                "tasks": [asdict(flip) for flip in compared.flipped[:MAX_FLIPPED]],
            },
            "notes": compared.notes,
        }
    )


def _set(side: TraceSide) -> dict[str, object]:
    traces, verdict = side.diagnosis.traces, side.diagnosis.verdict
    return fields_of(traces, "name", "episodes", "labelled", "tasks") | fields_of(verdict, "status", "headline")


def _item(item: TraceDifference) -> dict[str, object]:
    low, high = item.interval or (None, None)
    return {
        **fields_of(item, "name", "first", "second", "difference"),
        "low": low,
        "high": high,
        **fields_of(item, "p_value", "verdict", "paired", "clusters"),
        "reason": item.why,
    }


def print_compared(compared: TraceComparison, console: Console, report_path: str) -> None:
    """Print what differs, what does not, and where the rest stands."""
    compared = with_short_names(compared)
    same = [item for item in (*compared.shares, *compared.means) if item.verdict == NONE]
    unknown = [item for item in (*compared.shares, *compared.means, *compared.tools) if item.verdict == UNKNOWN]
    names = [shortened(safe(side.diagnosis.traces.name), MAX_NAME) for side in (compared.first, compared.second)]
    blocks = {
        "Compared": [Text(f"{names[1]} against {names[0]}: ", style="bold").append_text(cell(headline(compared)))],
        "Sets": [cell(_set_words(compared, index)) for index in (0, 1)],
        "Differs": _lines([*compared.differing]),
        "In noise": _lines(same),
        "Tools": map(cell, _tool_words(compared)),
        "Flipped": _flipped_lines(compared),
        "Cannot say": [cell(f"{item.label}: {item.why}") for item in unknown[:MAX_LINES]],
        "How": [cell(method(compared)), *(cell(note) for note in compared.notes)],
        "Report": [Text(safe(report_path), style="underline")],
    }
    print_blocks(blocks, console)


def _set_words(compared: TraceComparison, index: int) -> str:
    side = (compared.first, compared.second)[index]
    traces = side.diagnosis.traces
    tasks = "" if traces.tasks is None else f", {counted(traces.tasks, 'task')}"
    return (
        f"{safe(traces.name)}: {STATUSES[side.diagnosis.verdict.status].lower()}, {counted(traces.episodes, 'episode')}"
        f" ({count(traces.labelled)} labelled){tasks}"
    )


def _lines(items: list[TraceDifference]) -> Iterator[Text]:
    """Yield a line for each difference, in columns."""
    rows = [(_label(item), _from_to(item), _answer(item)) for item in items[:MAX_LINES]]
    widths = [max((cell_len(row[column]) for row in rows), default=0) for column in (0, 1)]
    for row in rows:
        yield Text(
            "  ".join(text + " " * (width - cell_len(text)) for text, width in zip(row, (*widths, 0), strict=True))
        )
    if len(items) > len(rows):
        yield cell(f"and {count(len(items) - len(rows))} more, in the report", style="dim")


def _answer(item: TraceDifference) -> str:
    return gap_words(item) if item.verdict == NONE else f"{gap_words(item)} {WORDS[item.verdict]}"


def flipped_words(compared: TraceComparison) -> str:
    """Say how many tasks turned from success to failure and the other way; "" if none did."""
    worse = sum(flip.second < flip.first for flip in compared.flipped)
    better = len(compared.flipped) - worse
    parts = [f"{counted(worse, 'task')} that succeeded now {'fails' if worse == 1 else 'fail'}"] * bool(worse)
    parts += [f"{counted(better, 'task')} that failed now {'succeeds' if better == 1 else 'succeed'}"] * bool(better)
    return "; ".join(parts)


def _flipped_lines(compared: TraceComparison) -> Iterator[Text]:
    """Yield how many tasks flipped, and the surest of them with an episode of either set."""
    if not compared.flipped:
        return
    yield cell(sentence(flipped_words(compared)))
    for flip in compared.flipped[:MAX_LINES]:
        name, *outcomes, first, second = _flip_row(flip)
        yield cell(f"{name}: {' to '.join(outcomes)}, {first} and {second}".removeprefix(": "))
    if len(compared.flipped) > MAX_LINES:
        yield cell(f"and {count(len(compared.flipped) - MAX_LINES)} more, in the report", style="dim")


def _flip_row(flip: Flip) -> tuple[str, ...]:
    sides = ((flip.first, flip.first_attempts), (flip.second, flip.second_attempts))
    outcomes = [f"{count(round(rate * of))} of {count(of)} succeed" for rate, of in sides]
    return (shortened(safe(flip.task), MAX_NAME), *outcomes, safe(flip.first_episode), safe(flip.second_episode))


def _tool_words(compared: TraceComparison) -> Iterator[str]:
    first, second = (side.diagnosis.traces.name for side in (compared.first, compared.second))
    for name, tools in ((first, compared.only_first), (second, compared.only_second)):
        if tools:
            shown = joined([safe(tool) for tool in tools[:MAX_LINES]])
            more = f" and {count(len(tools) - MAX_LINES)} more" if len(tools) > MAX_LINES else ""
            yield f"only {safe(name)} calls {shown}{more}"


def render_compared(compared: TraceComparison) -> Page:
    """Return compare.html; the same comparison gives the same bytes."""
    compared = with_short_names(compared)
    faults: list[FigureFault] = []
    figures = drawn_figures((FOREST,), compared, faults)
    names = [safe(side.diagnosis.traces.name) for side in (compared.first, compared.second)]
    text = render(
        "traces_compare.html.j2",
        title=f"{names[1]} against {names[0]}",
        headline=headline(compared),
        sentences=[method(compared), *compared.notes],
        sets=[(name, side.diagnosis.verdict.status, _set_words(compared, index).partition(": ")[2],
               sentence(side.diagnosis.verdict.headline))
              for index, (name, side) in enumerate(zip(names, (compared.first, compared.second), strict=True))],
        figures=[figure for figure in figures if figure.panels],
        undrawn=fault_lines(faults),
        folded_captions=True,
        tables=_tables(compared, names),
        tool_notes=[sentence(words) for words in _tool_words(compared)],
    )  # fmt: skip
    return Page(text=text, faults=tuple(faults))


def _tables(compared: TraceComparison, names: list[str]) -> list[DataTable]:
    head = ("What", *names, "Difference (95% interval)", "p, corrected", "Answer")
    made = [
        DataTable(title=title, head=head, rows=tuple(_row(item) for item in items))
        for title, items in (("Shares", compared.shares), ("Means", compared.means), ("Tools", compared.tools))
        if items
    ]
    errors = tuple(
        (safe(each.tool or "no name"), safe(each.error_class), count(each.first), count(each.second))
        for each in compared.errors
    )
    if errors:
        made.append(
            DataTable(title="Classes of errors, calls (not tested)", head=("Tool", "Error", *names), rows=errors)
        )
    if compared.flipped:
        head = ("Task", *names, *(f"Episode of {name}" for name in names))
        rows = tuple(_flip_row(flip) for flip in compared.flipped[:MAX_FLIPPED])
        made.append(DataTable(title=f"Tasks that flipped: {flipped_words(compared)}", head=head, rows=rows))
    return made


def _row(item: TraceDifference) -> tuple[str, ...]:
    label = _label(item)
    return (
        f"{label[:1].upper()}{label[1:]}",
        value_words(item, item.first),
        value_words(item, item.second),
        gap_words(item),
        DASH if item.p_value is None else number(item.p_value, 2),
        f"{WORDS[item.verdict]}: {item.why}" if item.why else WORDS[item.verdict],
    )


def _shown(compared: TraceComparison) -> list[TraceDifference]:
    """Return the shares whose difference has an interval, as many as can be told apart."""
    return [item for item in (*compared.shares, *compared.tools) if item.interval is not None][:MAX_TESTED]


ROW: Final = 24.0
NAMES_WIDTH, NUMBERS_WIDTH, NARROW_NAMES = 230, 190, 132


def _panels(compared: TraceComparison) -> tuple[Panel, ...]:
    items = _shown(compared)
    if not items:
        return ()
    return tuple(
        Panel(
            key=f"differences-{shown}",
            title="Difference of shares, in percentage points",
            alt=" ".join(f"{_label(item)}: {gap_words(item)}, {WORDS[item.verdict]}." for item in items),
            draw=partial(_draw, items=items, narrow=shown == "narrow"),
            width=380 if shown == "narrow" else 860,
            height=round(78 + ROW * len(items)),
            top=30,
            left=NARROW_NAMES if shown == "narrow" else NAMES_WIDTH,
            right=16 if shown == "narrow" else NUMBERS_WIDTH,
            shown=shown,
        )
        for shown in ("wide", "narrow")
    )


def _draw(ax: Axes, *, items: list[TraceDifference], narrow: bool) -> None:
    ends = [abs(100 * end) for item in items for end in item.interval or ()]
    reach = min(max(*ends, 1.0) * 1.08, 100.0)
    ax.set_xlim(-reach, reach)
    linear(ax, "x", ticks=3 if narrow else 5)
    row_axes(ax, "percentage points", ROW * len(items))
    ax.axvline(0, color=INK, linewidth=1.0, linestyle=(0, (4, 2)), zorder=2)
    for text, offset, side in (("lower", (-6, 6), "right"), ("higher", (6, 6), "left")):
        annotate(ax, text, (0, 1), coords=("data", "axes fraction"), offset=offset, ha=side, color=MUTED)
    for index, item in enumerate(items):
        y, low, high = ROW * (index + 0.5), *(item.interval or (0.0, 0.0))
        differs = item.verdict not in (NONE, UNKNOWN)
        colour = MUTED if not differs else POST if item.verdict == WORSE else TEXT
        ax.plot([100 * low, 100 * high], [y, y], color=colour, linewidth=2.0, zorder=3)
        (mark,) = ax.plot([100 * (item.difference or 0.0)], [y], color=colour, marker="o", markersize=6.5, zorder=4)
        hover(mark, f"{drawable(_label(item), 60)}: {gap_words(item)}")
        name = drawable(_label(item), 17 if narrow else 32)
        annotate_row(ax, name, y, 4 - (NARROW_NAMES if narrow else NAMES_WIDTH), INK if differs else MUTED)
        if not narrow:
            annotate_row(ax, f"{_from_to(item)}", y, 10, INK if differs else MUTED, right=True)


FOREST: Final = FigureSpec[TraceComparison](
    name="trace_differences",
    title="How the shares differ",
    columns=1,
    panels=_panels,
    caption=lambda compared: (
        f"Second set less first, with 95% intervals. {method(compared)} Grey lines are differences that chance "
        "explains."
    ),
)
