"""Draws when each arm left the baseline, figure by figure: what moved first."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from ptt.diagnostics.compare.comparison import SAME, Comparison
from ptt.reports.figures.axes import annotate_row, row_axes, step_range
from ptt.reports.figures.compare.arms import ArmStyle, arm_styles
from ptt.reports.figures.compare.rows import CompareFigure, arm_name, cut_table, drawn_arms, rows_of
from ptt.reports.figures.panels import NO_LINE, DataTable, Panel
from ptt.reports.figures.style import INK, LETTER, MUTED, drawable
from ptt.reports.text.names import joined, metric_name, slice_name
from ptt.reports.text.numbers import count
from ptt.reports.text.sanitize import safe

if TYPE_CHECKING:
    from matplotlib.axes import Axes


WIDE, NARROW = 1000, 430
NAMES_WIDTH = {"wide": 250, "narrow": 150}  # pixels left of the axes
NUMBERS_WIDTH = 124  # pixels right of the axes: a step and its interval
EVENT_HEIGHT, HEAD_HEIGHT, BELOW = 20.0, 22.0, 44
# events of an arm that are drawn, where arms are few and where they are many; the table holds all
MANY_ARMS, MAX_EVENTS_FEW_ARMS, MAX_EVENTS_MANY_ARMS = 5, 8, 2
EventRow = tuple[str, dict[str, Any] | None]  # an arm, and an event of it; none: its heading


def panels(comparison: Comparison) -> tuple[Panel, ...]:
    """Return the same drawing for wide and for narrow screens."""
    rows = _rows(comparison)
    if not rows:
        return ()
    height = sum(HEAD_HEIGHT if event is None else EVENT_HEIGHT for _, event in rows)
    return tuple(
        Panel(
            key=f"compare-divergence-{shown}",
            title="",
            alt=_alt(rows),
            draw=partial(_draw, comparison=comparison, rows=rows, height=height, shown=shown),
            width=WIDE if shown == "wide" else NARROW,
            height=round(NO_LINE + BELOW + height),
            top=NO_LINE,
            left=names_width,
            right=NUMBERS_WIDTH,
            shown=shown,
        )
        for shown, names_width in NAMES_WIDTH.items()
    )


def takeaway(comparison: Comparison) -> str:
    """Say which arm left the baseline first, and in what."""
    events = _events(comparison)
    if events.is_empty():
        return ""
    first = events.row(0, named=True)
    styles = arm_styles(comparison)
    named = styles[first["arm"]].label if first["arm"] in styles else arm_name(first["arm"])
    return f"{named} left the baseline first, in {_what(first)} at step {count(round(first['step']))}"


def caption(comparison: Comparison) -> str:
    """Return how to read the figure, and which arms never left the baseline."""
    sentences = [
        "Each mark is the first step from which a figure of an arm differs lastingly from the baseline, "
        "beyond the noise of both; the line is its interval. The leftmost mark moved first; it need not be the cause."
    ]
    events = _events(comparison)
    quiet = [arm_name(name) for name in drawn_arms(comparison)[1:] if events.filter(arm=name).is_empty()]
    if quiet:
        sentences.append(f"{joined(quiet)} did not leave the baseline; see Not compared for what could not be judged.")
    undated = _undated(comparison).height
    if undated:
        sentences.append(f"{count(undated)} more left at an unknown step; the table lists them.")
    drawn = len([event for _, event in _rows(comparison) if event is not None])
    if drawn < events.height:
        sentences.append(f"The earliest {count(drawn)} of {count(events.height)} are drawn; the table holds all.")
    return " ".join(sentences)


def data(comparison: Comparison) -> tuple[DataTable, ...]:
    """Return all events in order of time."""
    rows = [
        (arm_name(row["arm"]), _what(row), _step(row), safe(str(row["words"] or "")))
        for frame in (_events(comparison), _undated(comparison))
        for row in frame.iter_rows(named=True)
    ]
    return cut_table("All, in order of time", ("Arm", "What", "Since", "How"), rows)


def _events(comparison: Comparison) -> pl.DataFrame:
    return rows_of(comparison, "divergence", "step").filter(pl.col("what") != SAME).sort("step", maintain_order=True)


def _undated(comparison: Comparison) -> pl.DataFrame:
    return comparison.tables["divergence"].filter(pl.col("step").is_null())


def _rows(comparison: Comparison) -> list[EventRow]:
    events, arms = _events(comparison), drawn_arms(comparison)[1:]
    most = MAX_EVENTS_FEW_ARMS if len(arms) < MANY_ARMS else MAX_EVENTS_MANY_ARMS
    rows: list[EventRow] = []
    for name in arms:
        first = events.filter(arm=name).head(most)
        if first.height:
            rows += [(name, None), *((name, event) for event in first.iter_rows(named=True))]
    return rows


def _draw(ax: Axes, *, comparison: Comparison, rows: list[EventRow], height: float, shown: str) -> None:
    styles = arm_styles(comparison)
    step_range(ax, *_range(comparison, rows))
    row_axes(ax, "trainer step", height)
    # the step up to which an arm is the baseline to the last digit, where it is
    same = dict(rows_of(comparison, "divergence", "step", what=SAME).select("arm", "step").iter_rows())
    y, left = 0.0, -NAMES_WIDTH[shown] + 8
    letters = int((NAMES_WIDTH[shown] - 24) / LETTER)
    for name, event in rows:
        if event is None:
            label = drawable(name, letters) if shown == "wide" and len(name) <= letters else styles[name].label
            annotate_row(ax, label, y + HEAD_HEIGHT / 2, left, INK, fontweight="bold")
            if name in same:
                annotate_row(ax, f"identical up to step {count(same[name])}", y + HEAD_HEIGHT / 2, 2, MUTED)
            y += HEAD_HEIGHT
            continue
        middle = y + EVENT_HEIGHT / 2
        annotate_row(ax, drawable(_what(event), letters), middle, left + 10, MUTED)
        _draw_event(ax, event, middle, styles[name])
        y += EVENT_HEIGHT


def _draw_event(ax: Axes, event: dict[str, Any], y: float, style: ArmStyle) -> None:
    first, last = ax.get_xlim()
    low, high = event["low"], event["high"]
    if low is not None and high is not None:
        ax.plot([max(low, first), min(high, last)], [y, y], color=style.colour, linewidth=2.0, zorder=3, alpha=0.7)
    ax.plot([event["step"]], [y], color=style.colour, marker=style.marker, markersize=7, clip_on=False, zorder=4)
    annotate_row(ax, _step(event), y, 12, INK, right=True)


def _range(comparison: Comparison, rows: list[EventRow]) -> tuple[float, float]:
    events = [event for _, event in rows if event is not None]
    steps = [float(event[end]) for event in events for end in ("step", "low", "high") if event[end] is not None]
    first, last = comparison.matched.get("steps") or (min(steps), max(steps))
    return min(first, *steps), max(last, first + 1, *steps)


def _what(event: dict[str, Any]) -> str:
    what = metric_name(str(event["what"]))
    return f"{slice_name(event['slice'])} {what}" if event["slice"] else what


def _step(event: dict[str, Any]) -> str:
    if event["step"] is None:
        return f"step unknown ({count(event['low'])} to {count(event['high'])})"
    step = count(round(event["step"]))
    if event["low"] is None or event["high"] is None:
        return step
    return f"{step} ({count(round(event['low']))} to {count(round(event['high']))})"


def _alt(rows: list[EventRow]) -> str:
    sentences = ["First step from which each figure differs lastingly from the baseline, by arm."]
    sentences += [f"{arm_name(arm)}, {_what(event)}: step {_step(event)}." for arm, event in rows if event is not None]
    return " ".join(sentences)


FIGURE = CompareFigure(
    name="divergence",
    title="When each arm left the baseline",
    columns=1,
    panels=panels,
    caption=caption,
    data=data,
    takeaway=takeaway,
    absence=lambda _: "no figure of any arm differs lastingly from the baseline at a known step",
)
