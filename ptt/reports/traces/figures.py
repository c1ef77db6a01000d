"""Draws what episodes did over their order, by number of turns and by tool."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from ptt.diagnostics.model import Finding
from ptt.diagnostics.traces.model import TraceDiagnosis, tool_of
from ptt.reports.figures.axes import annotate_row, label_axes, linear, row_axes, step_range
from ptt.reports.figures.drawing import save_figures
from ptt.reports.figures.faults import FigureFault
from ptt.reports.figures.panels import ONE_LINE, DataTable, FigureSpec, Panel, data_table
from ptt.reports.figures.style import INK, MUTED, OTHER, POST, TEXT, annotate, drawable, hover
from ptt.reports.text.names import sentence
from ptt.reports.text.numbers import count, counted, number, percent
from ptt.reports.text.sanitize import safe
from ptt.reports.traces.answers import interval_words, worst_tools
from ptt.reports.traces.tool_names import with_short_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = np.ndarray[Any, Any]
TraceFigure = FigureSpec[TraceDiagnosis]

SHARES: Final = {
    "success": ("Success", "of episodes", TEXT),
    "tool_failures": ("Failed tool calls", "of calls", POST),
    "malformed": ("Malformed tool calls", "of calls", POST),
    "loops": ("Loops", "of episodes", POST),
    "truncated": ("Truncation", "of episodes", OTHER),
    "void": ("Void turns", "of turns", OTHER),
    "reward": ("Reward", "mean", TEXT),
    "turns": ("Turns", "mean per episode", OTHER),
    "calls": ("Tool calls", "mean per episode", OTHER),
    "cost": ("Cost in USD", "mean per episode", OTHER),
}
"""Columns of `over_order`: what each is called, what it is a share or a mean of, and its colour."""
CURVES: Final = {
    "success": "success", "tool-failures": "tool_failures", "malformed-calls": "malformed", "loops": "loops",
    "truncated-episodes": "truncated", "void-turns": "void", "reward-fell": "reward", "longer-episodes": "turns",
    "cost": "cost",
}  # fmt: skip
"""By the id of a finding: the column whose curve it is seen in."""
MEANS: Final = ("reward", "turns", "calls", "cost")
FIRST: Final = ("success", "tool_failures")  # of the first figure
MIN_BLOCKS: Final = 2
MEASURED: Final = {
    "success": "success_rate", "tool_failures": "tool_failure_rate", "malformed": "malformed_rate",
    "loops": "loop_rate", "truncated": "truncated_rate", "void": "void_rate",
}  # fmt: skip
"""By the column: the share of all episodes, by the name that the gate checks."""
HEIGHT, WIDTH = 232, 420
MAX_TOOLS: Final = 16  # rows; the table below has all
ROW: Final = 24.0  # pixels of a tool
NAMES_WIDTH, NUMBERS_WIDTH, NARROW_NAMES = 176, 190, 110
LETTER, TURNS_MARGIN, MAX_LABEL = 8.0, 70.0, 12  # pixels of a letter and beside the axis; letters of a number of turns
MIN_TOP: Final = 0.05  # of the axis of a share: below it, noise would fill the panel


def _blocks(diagnosis: TraceDiagnosis, column: str) -> pl.DataFrame | None:
    """Return the blocks in which a column is known; None where they make no curve."""
    frame = diagnosis.tables.get("over_order")
    if frame is None or column not in frame.columns:
        return None
    known = frame.filter(pl.col(column).cast(pl.Float64).is_finite()).sort("block")
    return known if known.height >= MIN_BLOCKS else None


def _columns(diagnosis: TraceDiagnosis, *, first: bool) -> list[str]:
    """Return what has a curve; of the others only what ever happened."""
    shown = []
    for column in SHARES:
        rows = _blocks(diagnosis, column)
        if rows is None or (column in FIRST) != first:
            continue
        if column in FIRST or column in MEANS or rows[column].max() > 0:  # type: ignore[operator]
            shown.append(column)
    return shown


def _over_order(diagnosis: TraceDiagnosis, *, first: bool) -> tuple[Panel, ...]:
    return tuple(
        Panel(
            key=f"order-{column}",
            title=f"{SHARES[column][0]}, {SHARES[column][1]}",
            alt=_order_alt(diagnosis, column),
            draw=partial(_draw_order, diagnosis=diagnosis, column=column),
            width=WIDTH if first else 340,
            height=HEIGHT if first else 196,
            top=16,
            right=18,
        )
        for column in _columns(diagnosis, first=first)
    )


def _draw_order(ax: Axes, *, diagnosis: TraceDiagnosis, column: str) -> None:
    rows = _blocks(diagnosis, column)
    if rows is None:
        return
    _, _, colour = SHARES[column]
    middle, value = _middles(rows), rows[column].to_numpy().astype(float)
    low, high = _ends(rows, column)
    top = float(np.nanmax([*value, *high[np.isfinite(high)]]))
    bottom = float(np.nanmin([*value, *low[np.isfinite(low)], 0.0]))
    label_axes(ax, x_name=diagnosis.traces.order, top=ONE_LINE)
    step_range(ax, float(rows["first"][0]), float(rows["last"][-1]))
    shares = column not in MEANS
    ax.set_ylim(bottom * 1.05, max(min(top * 1.12, 1.02), MIN_TOP) if shares else (top * 1.12 or 1.0))
    linear(ax, "y", ticks=4)
    if shares:
        ax.yaxis.set_major_formatter(lambda tick, _: percent(float(tick)))
    known = np.isfinite(low) & np.isfinite(high)
    if known.any():
        ax.fill_between(middle[known], low[known], high[known], color=colour, alpha=0.16, lw=0, zorder=2)
    (line,) = ax.plot(middle, value, color=colour, linewidth=1.8, marker="o", markersize=4.5, zorder=4)
    unit = diagnosis.traces.order
    hover(line, SHARES[column][0], [f"{unit}s {a} to {b}: {_shown(v, column)}" for a, b, v in _points(rows, column)])
    for finding in diagnosis.findings:
        if CURVES.get(finding.id) == column and finding.seen_step is not None:
            ax.axvline(finding.seen_step, color=INK, linewidth=1.0, linestyle=(0, (4, 2)), zorder=3)


def _middles(rows: pl.DataFrame) -> Floats:
    middle: Floats = ((rows["first"] + rows["last"]) / 2).to_numpy().astype(float)
    return middle


def _ends(rows: pl.DataFrame, column: str) -> tuple[Floats, Floats]:
    """Return the ends of the intervals of a column; NaN where none is known."""
    ends = []
    for name in (f"{column}_low", f"{column}_high"):
        values = rows[name].cast(pl.Float64).fill_null(math.nan) if name in rows.columns else None
        ends.append(np.full(rows.height, math.nan) if values is None else values.to_numpy())
    return ends[0], ends[1]


def _points(rows: pl.DataFrame, column: str) -> list[tuple[str, str, float]]:
    return [(count(int(a)), count(int(b)), float(v)) for a, b, v in rows.select("first", "last", column).iter_rows()]


def _shown(value: float, column: str) -> str:
    return number(float(value)) if column in MEANS else percent(value)


def _order_alt(diagnosis: TraceDiagnosis, column: str) -> str:
    rows, unit = _blocks(diagnosis, column), diagnosis.traces.order
    if rows is None:
        return ""
    points = _points(rows, column)
    shown = [_shown(value, column) for value in (min(v for *_, v in points), max(v for *_, v in points))]
    words = order_words(diagnosis, column)
    between = f"{SHARES[column][0]} over {unit}s, {counted(len(points), 'block')} between {shown[0]} and {shown[1]}."
    return f"{between} {sentence(words)}" if words else between


def _order_takeaway(diagnosis: TraceDiagnosis) -> str:
    """Say what each curve comes to: how it changed where the diagnosis finds that it did, else its share of all."""
    words = [order_words(diagnosis, column) for column in _columns(diagnosis, first=True)]
    return sentence("; ".join(word for word in words if word)).rstrip(".")


def order_words(diagnosis: TraceDiagnosis, column: str, finding: Finding | None = None) -> str:
    """Say what a column comes to, or a finding seen in it; blocks are of few episodes, and tell no trend on their own.

    The curve of all calls is not spoken of as that of one tool.
    """
    name, unit = SHARES[column][0].lower(), diagnosis.traces.order
    found = [finding] if finding is not None else [one for one in diagnosis.findings if tool_of(one) is None]
    changed = next((one for one in found if _is_change(one) and CURVES.get(one.id) == column), None)
    if changed is not None:
        early, late = (_shown(float(str(changed.evidence[key])), column) for key in ("early", "late"))
        of = f" of {safe(tool)}" if (tool := tool_of(changed)) is not None else ""
        return f"{name}{of} {early} before {unit} {count(changed.onset_step or 0)}, {late} at the end"
    share = diagnosis.measured.get(MEASURED.get(column, ""))
    if share is None or share.value is None or (finding is not None and tool_of(finding) is not None):
        return ""
    interval = f" ({interval_words(share.interval)})" if share.interval is not None else ""
    return f"{name} {percent(share.value)} of all{interval}"


def _is_change(finding: Finding) -> bool:
    """Tell whether a finding is of a change over the order: it is dated, and has a level before and after."""
    return finding.onset_step is not None and {"early", "late"} <= set(finding.evidence)


def _order_caption(diagnosis: TraceDiagnosis) -> str:
    unit = "training step" if diagnosis.traces.order == "step" else "episode, in the order of time or of the files"
    return (
        f"Each point is a block of neighbouring episodes, placed by {unit}; a shaded band is the 95% interval where "
        "one is known. A dashed upright line is where a finding begins."
    )


def _order_data(diagnosis: TraceDiagnosis) -> tuple[DataTable, ...]:
    frame = diagnosis.tables.get("over_order")
    if frame is None or frame.is_empty():
        return ()
    shown = [column for column in SHARES if column in frame.columns and frame[column].count()]
    rows = [
        (
            f"{count(row['first'])} to {count(row['last'])}",
            count(row["episodes"]),
            *(_cell(row[column], column) for column in shown),
        )
        for row in frame.sort("block").to_dicts()
    ]
    head = (f"Block of {diagnosis.traces.order}s", "Episodes", *(SHARES[column][0] for column in shown))
    return data_table("All blocks", head, rows)


def _cell(value: float | None, column: str) -> str:
    return "–" if value is None or math.isnan(value) else _shown(value, column)


def _tools(diagnosis: TraceDiagnosis) -> list[dict[str, Any]]:
    return [row for row in worst_tools(diagnosis) if row["failed"] is not None][:MAX_TOOLS]


def _tool_panels(diagnosis: TraceDiagnosis) -> tuple[Panel, ...]:
    rows = _tools(diagnosis)
    if not rows:
        return ()
    return tuple(
        Panel(
            key=f"tools-{shown}",
            title="Failed calls by tool, with 95% intervals",
            alt=_tool_alt(rows),
            draw=partial(_draw_tools, rows=rows, narrow=shown == "narrow"),
            width=360 if shown == "narrow" else 820,
            height=round(58 + ROW * len(rows)),
            top=10,
            left=NARROW_NAMES if shown == "narrow" else NAMES_WIDTH,
            right=60 if shown == "narrow" else NUMBERS_WIDTH,
            shown=shown,
        )
        for shown in ("wide", "narrow")
    )


def _draw_tools(ax: Axes, *, rows: list[dict[str, Any]], narrow: bool) -> None:
    ends = [row["high"] if row["high"] is not None else row["failed"] for row in rows]
    ax.set_xlim(0, max(min(max(ends) * 1.08, 1.0), MIN_TOP))
    linear(ax, "x", ticks=3 if narrow else 5)
    ax.xaxis.set_major_formatter(lambda tick, _: percent(float(tick)))
    row_axes(ax, "of calls with a known outcome", ROW * len(rows))
    for index, row in enumerate(rows):
        y = ROW * (index + 0.5)
        if row["low"] is not None and row["high"] is not None:
            ax.plot([row["low"], row["high"]], [y, y], color=POST, linewidth=2.0, zorder=3)
        (mark,) = ax.plot([row["failed"]], [y], color=POST, marker="o", markersize=6.5, zorder=4, clip_on=False)
        hover(mark, f"{drawable(row['name'] or 'no name')}: {_tool_words(row)}")
        name = drawable(row["name"] or "no name", 14 if narrow else 23)
        annotate_row(ax, name, y, 4 - (NARROW_NAMES if narrow else NAMES_WIDTH), INK)
        text = percent(row["failed"]) if narrow else f"{percent(row['failed'])} of {count(row['known'])} calls"
        annotate_row(ax, text, y, 10, MUTED, right=True)


def _tool_words(row: dict[str, Any]) -> str:
    interval = interval_words((row["low"], row["high"])) if row["low"] is not None else ""
    return f"{percent(row['failed'])} of {count(row['known'])} calls failed" + (f" ({interval})" if interval else "")


def _tool_alt(rows: list[dict[str, Any]]) -> str:
    return " ".join(f"{safe(row['name'] or 'no name')}: {_tool_words(row)}." for row in rows)


def _turns(diagnosis: TraceDiagnosis) -> list[dict[str, Any]]:
    rows = diagnosis.rows("turn_counts")
    return rows if sum(row["success"] is not None for row in rows) >= MIN_BLOCKS else []


def _turn_panels(diagnosis: TraceDiagnosis) -> tuple[Panel, ...]:
    rows = _turns(diagnosis)
    if not rows:
        return ()
    return (
        Panel(
            key="turns",
            title="",
            alt=" ".join(f"{_turn_words(row)}." for row in rows),
            draw=partial(_draw_turns, rows=rows),
            width=max(WIDTH, round(TURNS_MARGIN + LETTER * len(rows) * (1 + max(map(len, map(_turns_label, rows)))))),
            height=HEIGHT,
            top=ONE_LINE,
            right=18,
        ),
    )


def _draw_turns(ax: Axes, *, rows: list[dict[str, Any]]) -> None:
    label_axes(ax, x_name="assistant turns of the episode", y_name="success", top=ONE_LINE)
    ax.set_xlim(-0.5, len(rows) - 0.5)
    ax.set_ylim(0, 1.02)
    linear(ax, "y", ticks=4)
    ax.yaxis.set_major_formatter(lambda tick, _: percent(float(tick)))
    ax.set_xticks(range(len(rows)), list(map(_turns_label, rows)))
    for index, row in enumerate(rows):
        if row["success"] is None:
            continue
        if row["low"] is not None and row["high"] is not None:
            ax.plot([index, index], [row["low"], row["high"]], color=TEXT, linewidth=2.0, zorder=3)
        (mark,) = ax.plot([index], [row["success"]], color=TEXT, marker="o", markersize=6.5, zorder=4)
        hover(mark, _turn_words(row))
        offset, at = (7, 3), (index, row["success"])
        annotate(ax, count(row["episodes"]), at, coords="data", offset=offset, color=MUTED)


def _turns_label(row: dict[str, Any]) -> str:
    return drawable(str(row["bucket"]).replace(" to ", "-"), MAX_LABEL)


def _turn_words(row: dict[str, Any]) -> str:
    success = "success unknown" if row["success"] is None else f"{percent(row['success'])} succeed"
    return f"{safe(str(row['bucket']))} turns: {success} of {counted(row['episodes'], 'episode')}"


def _tool_takeaway(diagnosis: TraceDiagnosis) -> str:
    rows = _tools(diagnosis)
    if not rows or rows[0]["low"] is None or not rows[0]["failed"]:
        return ""
    first = f"{safe(rows[0]['name'] or 'no name')}: {_tool_words(rows[0])}"
    few = max((row for row in rows if row["low"] is None), key=lambda row: float(row["failed"]), default=None)
    if few is None or few["failed"] <= rows[0]["failed"]:
        return first
    return f"{first}; {safe(few['name'] or 'no name')}: {_tool_words(few)}, too few to judge by"


OVER_ORDER: Final = TraceFigure(
    name="trace_shares",
    title="Success and failed calls over the episodes",
    columns=2,
    panels=partial(_over_order, first=True),
    caption=_order_caption,
    takeaway=_order_takeaway,
    absence=lambda _: "neither success nor the outcome of calls is known over more than one block of episodes",
)
OTHERS: Final = TraceFigure(
    name="trace_other_shares",
    title="Other shares and means over the episodes",
    columns=3,
    panels=partial(_over_order, first=False),
    caption=_order_caption,
    data=_order_data,
    folded=True,
)
TOOLS: Final = TraceFigure(
    name="trace_tools",
    title="Failed calls by tool",
    columns=1,
    panels=_tool_panels,
    caption=lambda _: (
        "Tools by the low end of their interval, the worst first: a tool of few calls does not lead by chance. "
        "Intervals resample whole episodes, since calls of one episode are not independent."
    ),
    takeaway=_tool_takeaway,
    absence=lambda _: "no call has a known outcome",
)
TURNS: Final = TraceFigure(
    name="trace_turns",
    title="Success by number of turns",
    columns=1,
    panels=_turn_panels,
    caption=lambda _: (
        "Share of labelled episodes that succeed, with 95% intervals; the number beside a point is how many "
        "episodes it stands for. Long episodes may fail because they are hard, not because they are long."
    ),
    absence=lambda _: "success is not known for episodes of different lengths",
)
FIGURES: Final = (OVER_ORDER, TOOLS, TURNS, OTHERS)
"""In the order of the page."""


def write_trace_figures(diagnosis: TraceDiagnosis, directory: Path, faults: list[FigureFault]) -> list[Path]:
    """Write every figure that has data as SVG and PNG."""
    return save_figures(FIGURES, with_short_names(diagnosis), drawable(diagnosis.traces.name), directory, faults=faults)
