"""Draws the findings over the steps, one lane a link of the loop: what broke first, and what came after it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import Diagnosis, Finding, Link, Severity, in_unit, since_words
from ptt.reports.figures.axes import annotate_row, linear, row_axes, step_axis
from ptt.reports.figures.panels import DataTable, Panel, RunFigure, data_table
from ptt.reports.figures.style import (
    CRITICAL,
    HIGH,
    INK,
    LETTER,
    LOW,
    MEDIUM,
    MUTED,
    PAPER,
    RULE,
    SHADE,
    backing,
    drawable,
)
from ptt.reports.text.consequences import chains
from ptt.reports.text.names import LINKS, SEVERITIES
from ptt.reports.text.numbers import count, counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MAX_FINDINGS: Final = 24  # drawn; the rest is in the table below
ROW, EMPTY_ROW, PAD = 21, 15, 7  # pixels: a finding, a lane without one, and around each lane
NAME_ROW: Final = 17  # pixels above a lane where they are named there
END_KEYS: Final = ("ended_step", "end_step", "last_step_above")  # evidence by which a rule says that it ended
WIDE, NARROW = 1000, 400
NAMES_WIDTH: Final = 168  # pixels left of the axes where lanes are named beside them
SIDE: Final = 12
TOP: Final = 14
MARKS: Final = {
    Severity.CRITICAL: (CRITICAL, "8", 9.5),
    Severity.HIGH: (HIGH, "^", 9.0),
    Severity.MEDIUM: (MEDIUM, "D", 7.0),
    Severity.LOW: (LOW, "o", 7.0),
}
FAINT, PLAIN = 0.13, 0.34  # of a bar: of what follows from another finding, and of what does not
BAR_HEIGHT: Final = 13.0  # pixels


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One finding's place: its row of pixels from the top of the axes."""

    finding: Finding
    y: float
    follows: bool


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One link's band of pixels, from its top to its bottom, and its findings."""

    link: Link
    top: float
    bottom: float
    entries: tuple[Entry, ...]
    first: bool


def placed(diagnosis: Diagnosis) -> list[Finding]:
    """Return the findings worth a mark: causes in order of time, each followed by its consequences."""
    return [finding for finding, _ in chains(diagnosis) if finding.severity.at_least(Severity.LOW)]


def drawn(diagnosis: Diagnosis) -> list[Finding]:
    """Return the worst of them, as many as can be told apart."""
    every = placed(diagnosis)
    worst = sorted(range(len(every)), key=lambda i: (every[i].severity.rank, i))[:MAX_FINDINGS]
    return [every[i] for i in sorted(worst)]


def step_span(diagnosis: Diagnosis) -> tuple[int, int] | None:
    """Return the first and last step of the run, and of what is placed in it."""
    ends = [diagnosis.run.first_step, diagnosis.run.last_step]
    ends += [step for finding in placed(diagnosis) for step in (finding.seen_step, finding.limit_passed_step)]
    steps = [step for step in ends if step is not None]
    return (min(steps), max(*steps, min(steps) + 1)) if steps else None


def lanes_of(diagnosis: Diagnosis, shown: str) -> tuple[list[Lane], float]:
    """Return the lane of every link, and the height of all."""
    lanes, y = [], 0.0
    known = {finding.id for finding in diagnosis.findings}
    for link in Link:
        findings = [finding for finding in drawn(diagnosis) if finding.link is link]
        top = y
        y += PAD / 2 + (NAME_ROW if shown == "narrow" else 0)
        entries = tuple(
            Entry(
                finding=finding,
                y=y + ROW * (index + 0.5),
                follows=finding.consequence_of in known and finding.consequence_of != finding.id,
            )
            for index, finding in enumerate(findings)
        )
        y += PAD / 2 + (ROW * len(findings) if findings or shown == "narrow" else EMPTY_ROW)
        first = link is diagnosis.verdict.first_broken_link
        lanes.append(Lane(link=link, top=top, bottom=y, entries=entries, first=first))
    return lanes, y


def end_of(finding: Finding, last: int) -> int:
    """Return the step to which a finding lasted, as far as its evidence says that it ended."""
    for name in END_KEYS:
        value = finding.evidence.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= (finding.seen_step or 0):
            return min(value, last)
    return last


def panels(diagnosis: Diagnosis) -> tuple[Panel, ...]:
    """Return the same drawing for wide and for narrow screens; none without a finding to place."""
    if not placed(diagnosis) or step_span(diagnosis) is None:
        return ()
    return _panel(diagnosis, "wide"), _panel(diagnosis, "narrow")


def takeaway(diagnosis: Diagnosis) -> str:
    """Say which link broke first and when, and how many findings there are besides."""
    first, every = diagnosis.verdict.first_broken_link, placed(diagnosis)
    dated = [finding for finding in every if first in {None, finding.link} and finding.seen_step is not None]
    if not dated:
        return ""
    since = since_words(min(dated, key=lambda finding: finding.seen_step or 0), count)
    more = len(every) - 1
    others = f"; {counted(more, 'more finding')}" if more else ""
    head = f"{LINKS[first]} broke first" if first is not None else "The first finding"
    return in_unit(f"{head}, {since}{others}", diagnosis.run.step_unit)


def caption(diagnosis: Diagnosis) -> str:
    """Return how to read the figure."""
    first = diagnosis.verdict.first_broken_link
    every, shown = placed(diagnosis), drawn(diagnosis)
    sentences = [
        "Each mark is the step at which a finding began, and the line through it is the interval of that step. The "
        "bar shows how long it lasted: to the end of the run unless it is known to have ended."
    ]
    if any(entry.consequence_of for entry in shown):
        sentences.append("Pale findings follow from another; the thin line leads to it.")
    if any(entry.limit_passed_step not in {None, entry.onset_step} for entry in shown):
        sentences.append("A short upright line marks where what grew passed its limit.")
    if any(entry.seen_step is None for entry in shown):
        sentences.append("A dotted outline is a finding with an unknown start.")
    if first is not None:
        sentences.append(f"The shaded lane broke first: {LINKS[first].lower()}.")
    if len(shown) < len(every):
        sentences.append(f"The {len(shown)} worst of {len(every)} findings are drawn.")
    return " ".join(sentences)


def data(diagnosis: Diagnosis) -> tuple[DataTable, ...]:
    """Return the findings in order of time."""
    if not panels(diagnosis):
        return ()
    rows = [
        (
            drawable(finding.id, 60),
            LINKS[finding.link],
            SEVERITIES[finding.severity],
            since_words(finding, count).removeprefix("since ") or "not known",
            drawable(finding.consequence_of or "", 60) or "none known",
        )
        for finding in placed(diagnosis)
    ]
    return data_table("Findings in order of time", ("Finding", "Link", "Severity", "Since", "Follows from"), rows)


def absence(diagnosis: Diagnosis) -> str:
    """Return why findings are not placed; nothing where there is none."""
    return "the run records no steps, so findings have no place in time" if placed(diagnosis) else ""


def _panel(diagnosis: Diagnosis, shown: str) -> Panel:
    lanes, height = lanes_of(diagnosis, shown)
    wide = shown == "wide"
    return Panel(
        key=f"timeline-{shown}",
        title="",
        alt=_alt(diagnosis),
        draw=partial(_draw, diagnosis=diagnosis, lanes=lanes, height=height, shown=shown),
        width=WIDE if wide else NARROW,
        height=round(height) + TOP + 40,
        top=TOP,
        left=NAMES_WIDTH if wide else SIDE,
        right=SIDE + 8,
        shown=shown,
    )


def _draw(ax: Axes, *, diagnosis: Diagnosis, lanes: list[Lane], height: float, shown: str) -> None:
    low, high = step_span(diagnosis) or (0, 1)
    ax.set_xlim(low, high)
    row_axes(ax, step_axis(diagnosis.run), height, tick_color=RULE)
    linear(ax, "x", ticks=8 if shown == "wide" else 4)
    for lane in lanes:
        _draw_lane(ax, lane, shown)
    entries = [entry for lane in lanes for entry in lane.entries]
    by_id = {entry.finding.id: entry for entry in sorted(entries, key=lambda entry: not entry.follows)}
    for entry in entries:
        cause = by_id.get(entry.finding.consequence_of or "")
        if entry.follows and cause is not None:
            _draw_thread(ax, cause, entry, low)
    for entry in entries:
        _draw_entry(ax, entry, low, high)
        _label(ax, entry, low, high)


def _draw_lane(ax: Axes, lane: Lane, shown: str) -> None:
    if lane.first:
        ax.axhspan(lane.top, lane.bottom, color=SHADE, linewidth=0, zorder=0)
    ax.axhline(lane.bottom, color=RULE, linewidth=0.7, zorder=1)
    style: dict[str, Any] = {"fontweight": "bold" if lane.first else "normal", "linespacing": 1.2}
    colour = INK if lane.entries else MUTED
    name = LINKS[lane.link]
    if shown == "narrow":
        name += " (first)" if lane.first else ""
        annotate_row(ax, name, lane.top, 0, colour, down=12, **style)
        return
    name += "\nbroke first" if lane.first and lane.entries and lane.bottom - lane.top > 2 * ROW else ""
    annotate_row(ax, name, (lane.top + lane.bottom) / 2, -NAMES_WIDTH + 8, colour, **style)


def _start(finding: Finding, low: int) -> float:
    return float(low if finding.seen_step is None else finding.seen_step)


def _draw_thread(ax: Axes, cause: Entry, entry: Entry, low: int) -> None:
    """Lead from a finding to the one it follows from: down from the cause, then across."""
    x, end = _start(cause.finding, low), _start(entry.finding, low)
    ax.plot([x, x, end], [cause.y, entry.y, entry.y], color=MUTED, linewidth=0.8, alpha=0.7, zorder=2)


def _draw_entry(ax: Axes, entry: Entry, low: int, high: int) -> None:
    finding = entry.finding
    colour, marker, size = MARKS[finding.severity]
    start, end = _start(finding, low), float(end_of(finding, high))
    known = finding.seen_step is not None
    ax.broken_barh(
        [(start, max(end - start, (high - low) * 0.002))],
        (entry.y - BAR_HEIGHT / 2, BAR_HEIGHT),
        facecolor=colour if known else "none",
        edgecolor="none" if known else colour,
        linestyle=(0, (1.5, 2)),
        linewidth=0.0 if known else 1.0,
        alpha=(FAINT if entry.follows else PLAIN) if known else 0.8,
        zorder=3,
    )
    if not known:
        return
    if finding.seen_interval is not None:
        first, last = max(finding.seen_interval[0], low), min(finding.seen_interval[1], high)
        ax.plot([first, last], [entry.y, entry.y], color=colour, linewidth=1.6, alpha=1, zorder=4)
        for x in (first, last):
            ax.plot([x, x], [entry.y - 4, entry.y + 4], color=colour, linewidth=1.6, zorder=4)
    if finding.limit_passed_step is not None:
        x = finding.limit_passed_step
        ax.plot([x, x], [entry.y - BAR_HEIGHT / 2, entry.y + BAR_HEIGHT / 2], color=colour, linewidth=1.6, zorder=4)
    ax.plot(
        [start],
        [entry.y],
        marker=marker,
        markersize=size * (0.8 if entry.follows else 1.0),
        color=PAPER if entry.follows else colour,
        markeredgecolor=colour,
        markeredgewidth=1.4,
        linestyle="none",
        clip_on=False,
        zorder=6,
    )


def _label(ax: Axes, entry: Entry, low: int, high: int) -> None:
    """Write the finding's name right of its mark, or left of it where there is no room."""
    finding, width = entry.finding, ax.get_window_extent().width
    known = finding.seen_step is not None
    onset = finding.seen_step or low
    interval = finding.seen_interval or (onset, onset)
    text = drawable(finding.id, 26) + ("" if known else ", start unknown")
    scale = width / max(high - low, 1)
    right = max((max(interval[1], onset) - low) * scale, 0.0)
    left = max((min(interval[0], onset if known else low) - low) * scale, 0.0)
    needed = len(text) * LETTER + 12
    on_right = right + needed <= width
    at_edge = not on_right and left < needed  # no room on either side: over the bar, at the right edge
    annotate_row(
        ax,
        text,
        entry.y,
        right + 9 if on_right else width - 4 if at_edge else left - 9,
        MUTED if entry.follows else INK,
        ha="left" if on_right else "right",
        zorder=7,
        bbox=None if on_right else backing(0.85, 0.5),
    )


def _alt(diagnosis: Diagnosis) -> str:
    marks = []
    for finding in drawn(diagnosis):
        since = since_words(finding, count) or "start unknown"
        after = f", following from {drawable(finding.consequence_of)}" if finding.consequence_of else ""
        marks.append(f"{LINKS[finding.link]}: {drawable(finding.id)}, {finding.severity.value}, {since}{after}.")
    return in_unit(f"{len(marks)} findings over the steps. " + " ".join(marks), diagnosis.run.step_unit)


FIGURE = RunFigure(
    name="timeline",
    title="What broke when",
    columns=1,
    panels=panels,
    caption=caption,
    data=data,
    absence=absence,
    takeaway=takeaway,
)
