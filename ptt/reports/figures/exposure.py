"""Draws where the growth of the second moment came from: more tool tokens, or heavier tails."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

from ptt.diagnostics.model import Diagnosis
from ptt.reports.figures.axes import label_axes, linear
from ptt.reports.figures.panels import ONE_LINE, DataTable, Panel, RunFigure, data_table
from ptt.reports.figures.style import INK, MUTED, OTHER, POST, TEXT, annotate, backing
from ptt.reports.text.numbers import bounds, number, percent
from ptt.reports.text.sanitize import safe
from ptt.reports.text.tables import Row, pair_of
from ptt.reports.text.why import PARTS, explained, rows_of, too_heavy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT = 262
# each bar's name and colour
BARS = (
    ("early", MUTED),
    ("share of\ntools", OTHER),
    ("text-only\ntails", TEXT),
    ("post-tool\ntails", POST),
    ("late", MUTED),
)
_INTERVAL = re.compile(r" \(95% interval [^)]*\)")
PART_NAMES = ("More tool tokens", "Text-only tails", "Post-tool tails")


def panels(diagnosis: Diagnosis) -> tuple[Panel, ...]:
    """Return one panel of weights as recorded and one of weights cut, for the pair as it is named."""
    shown = [row for row in rows_of(diagnosis) if safe(row["weights"]) == pair_of(diagnosis)]
    return tuple(
        Panel(
            key=f"exposure-{index}",
            title=f"E[w²], {weights_name(row)}",
            alt=_alt(row),
            draw=partial(_draw, row=row),
            height=HEIGHT,
            top=ONE_LINE,
        )
        for index, row in enumerate(shown)
    )


def weights_name(row: Row) -> str:
    """Return the name of a row's weights: the pair, and whether they are cut."""
    cut = f" cut at {number(row['cap'])}" if row["cap"] is not None else " as recorded"
    return f"weights {safe(row['weights'])}{cut}"


def takeaway(diagnosis: Diagnosis) -> str:
    """Say what the growth came from, as far as it can be told."""
    return _INTERVAL.sub("", explained(diagnosis).partition(";")[0].rstrip("."))


def caption(diagnosis: Diagnosis) -> str:
    """Return how to read the figure."""
    doubt = too_heavy(diagnosis)
    return (
        f"Mean squared weight of all tokens, pair {pair_of(diagnosis)}, in the early and late third. "
        "Three parts add up exactly to the difference: more tokens after tools, heavier weights in "
        "text-only tokens, and heavier weights in post-tool tokens (each averaged over all orders of change). "
        "Thin lines are 95% intervals, from resampling blocks of steps and whole "
        "prompt groups or sequences within them (for cut weights: steps). The axis is linear so "
        "that parts add up."
    ) + (f" Uncut weights describe only the recorded tokens: {doubt}." if doubt else "")


def data(diagnosis: Diagnosis) -> tuple[DataTable, ...]:
    """Return the parts for weights both ways round, as recorded and cut."""
    rows = [
        (
            weights_name(row).removeprefix("weights "),
            *(number(row[name]) for name in ("total_early", "total_late")),
            *(f"{number(row[name])} ({_bounds(row, name)})" for name in PARTS),
            *(percent(row[f"alpha_{end}"]) for end in ("early", "late")),
            percent(max(row["top_token_early"] or 0.0, row["top_token_late"] or 0.0)),
        )
        for row in rows_of(diagnosis)
    ]
    head = ("Weights", "Early", "Late", *PART_NAMES, "Tool tokens early", "late", "Largest token")
    return data_table("Parts of the growth", head, rows)


def _bounds(row: Row, part: str) -> str:
    return bounds(row[f"{part}_lo"], row[f"{part}_hi"])


def _draw(ax: Axes, *, row: Row) -> None:
    label_axes(ax, x_name="", y_name="mean squared weight", top=ONE_LINE)
    level = float(row["total_early"])
    spans = [(0.0, level)]
    for name in PARTS:
        spans.append((level, level + float(row[name])))
        level = spans[-1][1]
    spans.append((0.0, float(row["total_late"])))
    top, low = max(map(max, spans)), min(map(min, spans))
    ax.set_xlim(-0.55, len(BARS) - 0.45)
    ax.set_ylim(low - 0.02 * (top - low) if low < 0 else 0.0, top + 0.2 * (top - low) or 1.0)
    linear(ax, "y", ticks=4)
    for index, ((start, end), (_, colour)) in enumerate(zip(spans, BARS, strict=True)):
        bar: dict[str, Any] = {"height": abs(end - start), "bottom": min(start, end), "width": 0.62, "linewidth": 0}
        ax.bar(index, **bar, color=colour, alpha=0.82, zorder=3)
        if index + 1 < len(spans):
            ax.plot([index + 0.31, index + 0.69], [end, end], color=MUTED, linewidth=0.8, zorder=2)
    ax.set_xticks(range(len(BARS)), [name for name, _ in BARS])
    ax.tick_params(axis="x", length=0)
    _label_bars(ax, row, spans)


def _label_bars(ax: Axes, row: Row, spans: list[tuple[float, float]]) -> None:
    """Write every bar's value above it, and draw the intervals of the parts as far as the axes reach."""
    floor, ceiling = ax.get_ylim()
    for index, (name, (start, end)) in enumerate(zip(("total_early", *PARTS, "total_late"), spans, strict=True)):
        top = max(start, end)
        low, high = (row[f"{name}_lo"], row[f"{name}_hi"]) if name in PARTS else (None, None)
        if low is not None and high is not None:
            interval = [min(max(start + offset, floor), ceiling) for offset in (low, high)]
            ax.plot([index, index], interval, color=INK, linewidth=1.2, zorder=4)
            top = max(top, min(interval[1], ceiling * 0.9))
        sign = "+" if name in PARTS and row[name] > 0 else ""
        text = sign + number(row[name], 2)
        style = {"ha": "center", "color": INK, "zorder": 6, "bbox": backing(0.8)}
        annotate(ax, text, (index, top), coords="data", offset=(0, 4), **style)


def _alt(row: Row) -> str:
    sentences = [
        f"Mean squared weight, {weights_name(row)}: {number(row['total_early'])} in the early third, "
        f"{number(row['total_late'])} in the late third."
    ]
    for name, part in zip(PART_NAMES, PARTS, strict=True):
        sentences.append(f"{name}: {number(row[part])}, 95% interval {_bounds(row, part)}.")
    return " ".join(sentences)


FIGURE = RunFigure(
    name="exposure",
    title="Exposure and intensity",
    columns=2,
    panels=panels,
    caption=caption,
    data=data,
    takeaway=takeaway,
)
