"""Draws when each arm left the baseline, figure by figure: what moved first."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from ptt.diagnostics.compare.comparison import Comparison
from ptt.reports.figures.compare.arms import looks
from ptt.reports.figures.compare.kinds import CompareFigure, arm_name, finite, names, numbers_of, of_arm, rows_of
from ptt.reports.figures.compare.scales import across
from ptt.reports.figures.panels import NO_LINE, DataTable, Panel
from ptt.reports.figures.style import INK, LETTER, MUTED, RULE, SMALL, drawable
from ptt.reports.text.names import joined, metric_name, slice_name
from ptt.reports.text.numbers import count
from ptt.reports.text.sanitize import safe

if TYPE_CHECKING:
    from matplotlib.axes import Axes


WIDE, NARROW = 1000, 430
IDENTICAL = "identical"  # not a figure: the last step at which two runs are one
NAMES = {"wide": 250, "narrow": 150}  # pixels left of the axes
ROW, HEAD, BELOW = 20.0, 22.0, 44
FEW_ARMS, EACH_OF_FEW, EACH_OF_MANY = 5, 8, 2  # events of an arm that are drawn; the table holds all
NUMBERS = 124  # pixels right of the axes: a step and its interval
Line = tuple[str, dict[str, Any] | None]  # an arm, and an event of it; none: its heading


def panels(comparison: Comparison) -> tuple[Panel, ...]:
    """Give the same drawing for wide and for narrow screens."""
    lines = _lines(comparison)
    if not lines:
        return ()
    return tuple(
        Panel(
            key=f"compare-divergence-{shown}",
            title="",
            alt=_alt(lines),
            draw=partial(_draw, comparison=comparison, lines=lines, shown=shown),
            width=WIDE if shown == "wide" else NARROW,
            height=round(NO_LINE + BELOW + sum(HEAD if event is None else ROW for _, event in lines)),
            top=NO_LINE,
            left=NAMES[shown],
            right=NUMBERS,
            shown=shown,
        )
        for shown in ("wide", "narrow")
    )


def caption(comparison: Comparison) -> str:
    """Tell how to read the figure, and which arms never left the baseline."""
    told = [
        "Each mark is the first step from which on a figure of an arm differs lastingly from the baseline's, beyond "
        "the noise of both; the line is its interval. What stands leftmost moved first; it need not be the cause."
    ]
    events = _events(comparison)
    quiet = [arm_name(name) for name in names(comparison)[1:] if not of_arm(events, name).height]
    if quiet:
        told.append(f"Nothing was found for {joined(quiet)}; what could not be looked at stands under Not compared.")
    undated = _undated(comparison).height
    if undated:
        told.append(f"{count(undated)} more left at a step that cannot be told; the table names them.")
    drawn = len([event for _, event in _lines(comparison) if event is not None])
    if drawn < events.height:
        told.append(f"The earliest {count(drawn)} of {count(events.height)} are drawn; the table holds all.")
    return " ".join(told)


def data(comparison: Comparison) -> tuple[DataTable, ...]:
    """Give all events in order of time."""
    rows = tuple(
        (arm_name(row["arm"]), _what(row), _step(row), safe(str(row["words"] or "")))
        for frame in (_events(comparison), _undated(comparison))
        for row in frame.iter_rows(named=True)
    )
    return numbers_of("All, in order of time", ("Arm", "What", "Since", "How"), rows)


def _events(comparison: Comparison) -> pl.DataFrame:
    frame = finite(rows_of(comparison, "divergence"), "step")
    return frame.filter(pl.col("what") != IDENTICAL).sort("step", maintain_order=True) if frame.height else frame


def _undated(comparison: Comparison) -> pl.DataFrame:
    """Give what left the baseline at a step that cannot be told."""
    frame = rows_of(comparison, "divergence")
    return frame.filter(pl.col("step").is_null()) if frame.height else frame


def _identical(comparison: Comparison) -> dict[str, int]:
    """Give the step up to which an arm is the baseline to the last digit, where it is."""
    frame = finite(rows_of(comparison, "divergence", what=IDENTICAL), "step")
    return {row["arm"]: row["step"] for row in frame.iter_rows(named=True)} if frame.height else {}


def _lines(comparison: Comparison) -> list[Line]:
    events, drawn = _events(comparison), names(comparison)[1:]
    most = EACH_OF_FEW if len(drawn) < FEW_ARMS else EACH_OF_MANY
    lines: list[Line] = []
    for name in drawn if events.height else ():
        rows = of_arm(events, name).head(most)
        if rows.height:
            lines += [(name, None), *((name, row) for row in rows.iter_rows(named=True))]
    return lines


def _draw(ax: Axes, *, comparison: Comparison, lines: list[Line], shown: str) -> None:
    arms = looks(comparison)
    across(ax, _range(comparison, lines))
    total = sum(HEAD if event is None else ROW for _, event in lines)
    ax.set_ylim(total, 0)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="x", length=3, width=0.8, pad=5)
    ax.set_xlabel("trainer step")
    ax.grid(axis="x", color=RULE, linewidth=0.7)
    same = _identical(comparison)
    y, before = 0.0, -NAMES[shown] + 8
    letters = int((NAMES[shown] - 24) / LETTER)
    for name, event in lines:
        if event is None:
            label = drawable(name, letters) if shown == "wide" and len(name) <= letters else arms[name].label
            _left(ax, label, y + HEAD / 2, before, INK, bold=True)
            if name in same:
                _left(ax, f"identical up to step {count(same[name])}", y + HEAD / 2, 2, MUTED)
            y += HEAD
            continue
        middle = y + ROW / 2
        _left(ax, drawable(_what(event), letters), middle, before + 10, MUTED)
        _event(ax, event, middle, arms[name].colour, arms[name].marker)
        y += ROW


def _event(ax: Axes, event: dict[str, Any], y: float, colour: str, marker: str) -> None:
    first, last = ax.get_xlim()
    low, high = event["low"], event["high"]
    if low is not None and high is not None:
        ax.plot([max(low, first), min(high, last)], [y, y], color=colour, linewidth=2.0, zorder=3, alpha=0.7)
    ax.plot([event["step"]], [y], color=colour, marker=marker, markersize=7, clip_on=False, zorder=4)
    ax.annotate(
        _step(event),
        (1.0, y),
        xycoords=("axes fraction", "data"),
        xytext=(12, 0),
        textcoords="offset points",
        va="center",
        fontsize=SMALL,
        color=INK,
        annotation_clip=False,
    )


def _left(ax: Axes, text: str, y: float, x: float, colour: str, *, bold: bool = False) -> None:
    ax.annotate(
        text,
        (0, y),
        xycoords=("axes fraction", "data"),
        xytext=(x, 0),
        textcoords="offset points",
        va="center",
        fontsize=SMALL,
        color=colour,
        fontweight="bold" if bold else "normal",
        annotation_clip=False,
    )


def _range(comparison: Comparison, lines: list[Line]) -> tuple[float, float]:
    events = [event for _, event in lines if event is not None]
    steps = [float(event[end]) for event in events for end in ("step", "low", "high") if event[end] is not None]
    shared = comparison.matched.get("steps") or (min(steps), max(steps))
    return min(shared[0], *steps), max(shared[1], shared[0] + 1, *steps)


def _what(event: dict[str, Any]) -> str:
    what = metric_name(str(event["what"]))
    return f"{slice_name(event['slice'])} {what}" if event["slice"] else what


def _step(event: dict[str, Any]) -> str:
    if event["step"] is None:
        return f"cannot be dated ({count(event['low'])} to {count(event['high'])})"
    step = count(round(event["step"]))
    if event["low"] is None or event["high"] is None:
        return step
    return f"{step} ({count(round(event['low']))} to {count(round(event['high']))})"


def _alt(lines: list[Line]) -> str:
    told = ["First step from which on each figure differs lastingly from the baseline's, by arm."]
    told += [f"{arm_name(name)}, {_what(event)}: step {_step(event)}." for name, event in lines if event is not None]
    return " ".join(told)


FIGURE = CompareFigure(
    name="divergence",
    title="When each arm left the baseline",
    columns=1,
    panels=panels,
    caption=caption,
    data=data,
    absence="no figure of any arm differs lastingly from the baseline's at a step that can be named",
)
