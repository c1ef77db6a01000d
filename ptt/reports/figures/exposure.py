"""Draws where the growth of the second moment came from: more tool tokens, or heavier tails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptt.diagnostics.model import Diagnosis
from ptt.reports.figures.panels import ONE_LINE, DataTable, FigureKind, Panel
from ptt.reports.figures.style import INK, MUTED, OTHER, PAPER, POST, SMALL, TEXT, dress, linear
from ptt.reports.text.numbers import bounds, number, percent
from ptt.reports.text.sanitize import safe
from ptt.reports.text.tables import pair_of
from ptt.reports.text.why import PARTS, Row, rows_of, too_heavy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT = 262
BARS = (
    ("early", MUTED),
    ("share of\ntools", OTHER),
    ("text-only\ntails", TEXT),
    ("post-tool\ntails", POST),
    ("late", MUTED),
)
HATCHES = ("", "..", "//", "", "")  # told apart in grey print too


def panels(diagnosis: Diagnosis) -> tuple[Panel, ...]:
    """Give one panel of weights as recorded and one of weights cut, for the pair as it is named."""
    pair = pair_of(diagnosis)
    shown = [row for row in rows_of(diagnosis) if safe(row["weights"]) == pair]
    return tuple(
        Panel(
            key=f"exposure-{index}",
            title=f"E[w²], {weights_name(row)}",
            alt=_alt(row),
            draw=lambda ax, row=row: _draw(ax, row),  # type: ignore[misc]
            height=HEIGHT,
            top=ONE_LINE,
        )
        for index, row in enumerate(shown)
    )


def weights_name(row: Row) -> str:
    """Name the weights of a row: the pair, and whether they are cut."""
    cut = f" cut at {number(row['cap'])}" if row["cap"] is not None else " as recorded"
    return f"weights {safe(row['weights'])}{cut}"


def caption(diagnosis: Diagnosis) -> str:
    """Tell how to read the figure."""
    doubt = too_heavy(diagnosis)
    return (
        f"Mean squared weight of all tokens, pair {pair_of(diagnosis)}, early and late third, and the three "
        "parts that make up the difference exactly: a larger share of tokens after tools, heavier weights in "
        "text-only tokens, heavier weights in post-tool tokens (each the mean over all orders of change). "
        "Thin lines are 95 % intervals from redrawing whole prompt groups or sequences within blocks of "
        "steps, and the blocks; for cut weights from redrawing steps. The axis is linear: only there do "
        "parts add up."
    ) + (f" Weights as recorded show what these tokens held and no more: {doubt}." if doubt else "")


def data(diagnosis: Diagnosis) -> tuple[DataTable, ...]:
    """Give the parts for weights both ways round, as recorded and cut."""
    rows = tuple(
        (
            weights_name(row).removeprefix("weights "),
            *(number(row[name]) for name in ("total_early", "total_late")),
            *(f"{number(row[name])} ({bounds(row[f'{name}_lo'], row[f'{name}_hi'])})" for name in PARTS),
            *(f"{percent(row[f'alpha_{end}'])}" for end in ("early", "late")),
            percent(max(row["top_token_early"] or 0.0, row["top_token_late"] or 0.0)),
        )
        for row in rows_of(diagnosis)
    )
    parts = ("More tool tokens", "Text-only tails", "Post-tool tails")
    head = ("Weights", "Early", "Late", *parts, "Tool tokens early", "late", "Largest token")
    return (DataTable(title="Parts of the growth", head=head, rows=rows),) if rows else ()


def _draw(ax: Axes, row: Row) -> None:
    dress(ax, x_name="", y_name="mean squared weight", top=ONE_LINE)
    level = float(row["total_early"])
    spans = [(0.0, level)]
    for name in PARTS:
        spans.append((level, level + float(row[name])))
        level = spans[-1][1]
    spans.append((0.0, float(row["total_late"])))
    top, low = max(max(span) for span in spans), min(min(span) for span in spans)
    ends = (low - 0.02 * (top - low) if low < 0 else 0.0, top + 0.2 * (top - low) or 1.0)
    ax.set_xlim(-0.55, len(BARS) - 0.45)
    ax.set_ylim(*ends)
    linear(ax, "y", ticks=4)
    for index, ((start, end), (_, colour), hatch) in enumerate(zip(spans, BARS, HATCHES, strict=True)):
        bottom, height = min(start, end), abs(end - start)
        ax.bar(index, height, bottom=bottom, width=0.62, color=colour, alpha=0.82, linewidth=0, zorder=3)
        if hatch:
            ax.bar(
                index,
                height,
                bottom=bottom,
                width=0.62,
                fill=False,
                hatch=hatch,
                edgecolor=colour,
                linewidth=0,
            )
        if index + 1 < len(spans):
            ax.plot([index + 0.31, index + 0.69], [end, end], color=MUTED, linewidth=0.8, zorder=2)
    ax.set_xticks(range(len(BARS)), [name for name, _ in BARS])
    ax.tick_params(axis="x", length=0)
    _values(ax, row, spans, ends[1])


def _values(ax: Axes, row: Row, spans: list[tuple[float, float]], ceiling: float) -> None:
    """Write every bar's value above it, and draw the intervals of the parts as far as the axes reach."""
    values = (row["total_early"], *(row[name] for name in PARTS), row["total_late"])
    names = ("", *PARTS, "")
    for index, (value, span, name) in enumerate(zip(values, spans, names, strict=True)):
        top = max(span)
        low, high = (row[f"{name}_lo"], row[f"{name}_hi"]) if name else (None, None)
        if low is not None and high is not None:
            reach = [min(max(span[0] + end, ax.get_ylim()[0]), ceiling) for end in (low, high)]
            ax.plot([index, index], reach, color=INK, linewidth=1.2, zorder=4)
            top = max(top, min(reach[1], ceiling * 0.9))
        sign = "+" if name and value > 0 else ""
        ax.annotate(
            sign + number(value, 2),
            (index, top),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
            fontsize=SMALL,
            color=INK,
            zorder=6,
            bbox={"facecolor": PAPER, "alpha": 0.8, "linewidth": 0, "pad": 0.8},
        )


def _alt(row: Row) -> str:
    told = [
        f"Mean squared weight, {weights_name(row)}: {number(row['total_early'])} in the early third, "
        f"{number(row['total_late'])} in the late third."
    ]
    names = ("More tool tokens", "Text-only tails", "Post-tool tails")
    for name, part in zip(names, PARTS, strict=True):
        told.append(f"{name}: {number(row[part])}, 95 % interval {bounds(row[f'{part}_lo'], row[f'{part}_hi'])}.")
    return " ".join(told)


def absence(_: Diagnosis) -> str:
    """Say nothing: without tails the section itself is left out."""
    return ""


FIGURE = FigureKind(
    name="exposure",
    title="Exposure and intensity",
    columns=2,
    panels=panels,
    caption=caption,
    data=data,
    absence=absence,
)
