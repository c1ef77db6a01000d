"""Draws the findings over the steps, one lane a link of the loop: what broke first, and what came after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ptt.diagnostics.model import Diagnosis, Finding, Link, Severity
from ptt.reports.figures.panels import DataTable, FigureKind, Panel
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
    SMALL,
    drawable,
    linear,
)
from ptt.reports.text.consequences import chains, onset_words
from ptt.reports.text.names import LINKS, SEVERITIES
from ptt.reports.text.numbers import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MOST: Final = 24  # findings drawn; the rest is in the table below
ROW, EMPTY, PAD = 21, 15, 7  # pixels: a finding, a lane without one, and around each lane
NAME_ROW: Final = 17  # pixels above a lane where they are named there
ENDS: Final = ("ended_step", "end_step", "last_step_above")  # evidence by which a rule says that it ended


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
    """Give the findings worth a mark: causes in order of time, each followed by its consequences."""
    return [finding for finding, _ in chains(diagnosis) if finding.severity.at_least(Severity.LOW)]


def drawn(diagnosis: Diagnosis) -> list[Finding]:
    """Give the worst of them, as many as can be told apart."""
    every = placed(diagnosis)
    if len(every) <= MOST:
        return every
    worst = sorted(range(len(every)), key=lambda i: (every[i].severity.rank, i))[:MOST]
    return [every[i] for i in sorted(worst)]


def span(diagnosis: Diagnosis) -> tuple[int, int] | None:
    """Give the first and last step of the run, and of what is placed in it."""
    ends = [diagnosis.run.first_step, diagnosis.run.last_step]
    ends += [finding.onset_step for finding in placed(diagnosis)]
    steps = [step for step in ends if step is not None]
    return (min(steps), max(*steps, min(steps) + 1)) if steps else None


def lanes_of(diagnosis: Diagnosis, shown: str) -> tuple[list[Lane], float]:
    """Give every link its lane, and the height of all."""
    found, y = [], 0.0
    known = {finding.id for finding in diagnosis.findings}
    for link in Link:
        held = [finding for finding in drawn(diagnosis) if finding.link is link]
        top = y
        y += PAD / 2 + (NAME_ROW if shown == "narrow" else 0)
        entries = []
        for finding in held:
            follows = finding.consequence_of in known and finding.consequence_of != finding.id
            entries.append(Entry(finding=finding, y=y + ROW / 2, follows=follows))
            y += ROW
        if not held and shown == "wide":
            y += EMPTY
        y += PAD / 2
        first = link is diagnosis.verdict.first_broken_link
        found.append(Lane(link=link, top=top, bottom=y, entries=tuple(entries), first=first))
    return found, y


def end_of(finding: Finding, last: int) -> int:
    """Give the step to which a finding lasted, as far as its evidence says that it ended."""
    for name in ENDS:
        value = finding.evidence.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= (finding.onset_step or 0):
            return min(value, last)
    return last


WIDE, NARROW = 1000, 400
NAMES_WIDTH: Final = 168  # pixels left of the axes where lanes are named beside them
SIDE: Final = 12
TOP: Final = 14
LOOKS: Final = {
    Severity.CRITICAL: (CRITICAL, "8", 9.5),
    Severity.HIGH: (HIGH, "^", 9.0),
    Severity.MEDIUM: (MEDIUM, "D", 7.0),
    Severity.LOW: (LOW, "o", 7.0),
}
FAINT, PLAIN = 0.13, 0.34  # of a bar: of what follows from another finding, and of what does not
BAR: Final = 13.0  # pixels: height of a bar


def panels(diagnosis: Diagnosis) -> tuple[Panel, ...]:
    """Give the same drawing for wide and for narrow screens; none without a finding to place."""
    if not placed(diagnosis) or span(diagnosis) is None:
        return ()
    return _panel(diagnosis, "wide"), _panel(diagnosis, "narrow")


def caption(diagnosis: Diagnosis) -> str:
    """Tell how to read the figure."""
    first = diagnosis.verdict.first_broken_link
    every, shown = placed(diagnosis), drawn(diagnosis)
    told = [
        "Each mark is the step a finding was seen from, the line through it the interval of that step, the bar how "
        "long it lasted: to the end of the run unless it is known to have ended."
    ]
    if any(entry.consequence_of for entry in shown):
        told.append("Pale ones follow from another; the thin line leads to it.")
    if any(entry.onset_step is None for entry in shown):
        told.append("A dotted outline is a finding whose beginning is not known.")
    if first is not None:
        told.append(f"The shaded lane broke first: {LINKS[first].lower()}.")
    if len(shown) < len(every):
        told.append(f"The {len(shown)} worst of {len(every)} findings are drawn.")
    return " ".join(told)


def data(diagnosis: Diagnosis) -> tuple[DataTable, ...]:
    """Give the findings in order of time."""
    if not panels(diagnosis):
        return ()
    rows = tuple(
        (
            drawable(finding.id, 60),
            LINKS[finding.link],
            SEVERITIES[finding.severity],
            onset_words(finding.onset_step, finding.onset_interval),
            drawable(finding.consequence_of or "", 60) or "none known",
        )
        for finding, _ in chains(diagnosis)
        if finding.severity.at_least(Severity.LOW)
    )
    head = ("Finding", "Link", "Severity", "Since", "Follows from")
    return (DataTable(title="Findings in order of time", head=head, rows=rows),)


def absence(diagnosis: Diagnosis) -> str:
    """Say why findings are not placed; nothing where there is none."""
    return "the run records no steps to place the findings by" if placed(diagnosis) else ""


def _panel(diagnosis: Diagnosis, shown: str) -> Panel:
    lanes, height = lanes_of(diagnosis, shown)
    wide = shown == "wide"
    return Panel(
        key=f"timeline-{shown}",
        title="",
        alt=_alt(diagnosis),
        draw=lambda ax: _draw(ax, diagnosis, lanes, height, shown),
        width=WIDE if wide else NARROW,
        height=round(height) + TOP + 40,
        top=TOP,
        left=NAMES_WIDTH if wide else SIDE,
        right=SIDE + 8,
        shown=shown,
    )


def _draw(ax: Axes, diagnosis: Diagnosis, lanes: list[Lane], height: float, shown: str) -> None:
    low, high = span(diagnosis) or (0, 1)
    width = ax.get_window_extent().width
    ax.set_xlim(low, high)
    ax.set_ylim(height, 0)
    ax.set_xlabel("trainer step")
    linear(ax, "x", ticks=8 if shown == "wide" else 4)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.tick_params(length=3, width=0.8, color=RULE, pad=5)
    ax.grid(axis="x", color=RULE, linewidth=0.7)
    for lane in lanes:
        _draw_lane(ax, lane, shown)
    where = {entry.finding.id: entry for lane in lanes for entry in lane.entries if not entry.follows}
    where = {entry.finding.id: entry for lane in lanes for entry in lane.entries} | where
    for lane in lanes:
        for entry in lane.entries:
            cause = where.get(entry.finding.consequence_of or "")
            if entry.follows and cause is not None:
                _draw_thread(ax, cause, entry, low)
    for lane in lanes:
        for entry in lane.entries:
            _draw_entry(ax, entry, low, high, width)


def _draw_lane(ax: Axes, lane: Lane, shown: str) -> None:
    weight = "bold" if lane.first else "normal"
    ink = INK if lane.entries else MUTED
    if lane.first:
        ax.axhspan(lane.top, lane.bottom, color=SHADE, linewidth=0, zorder=0)
    ax.axhline(lane.bottom, color=RULE, linewidth=0.7, zorder=1)
    name = LINKS[lane.link] + (" (first)" if lane.first and shown == "narrow" else "")
    if shown == "narrow":
        place, offset = (0.0, lane.top), (0, -12)
    else:
        place, offset = (0.0, (lane.top + lane.bottom) / 2), (-NAMES_WIDTH + 8, 0)
        name += "\nbroke first" if lane.first and lane.entries and lane.bottom - lane.top > 2 * ROW else ""
    ax.annotate(
        name,
        place,
        xycoords=("axes fraction", "data"),
        xytext=offset,
        textcoords="offset points",
        fontsize=SMALL,
        fontweight=weight,
        color=ink,
        va="center",
        linespacing=1.2,
        annotation_clip=False,
    )


def _draw_thread(ax: Axes, cause: Entry, entry: Entry, low: int) -> None:
    """Lead from a finding to the one it follows from: down from the cause, then across."""
    x = float(cause.finding.onset_step if cause.finding.onset_step is not None else low)
    end = float(entry.finding.onset_step if entry.finding.onset_step is not None else low)
    ax.plot([x, x, end], [cause.y, entry.y, entry.y], color=MUTED, linewidth=0.8, alpha=0.7, zorder=2)


def _draw_entry(ax: Axes, entry: Entry, low: int, high: int, width: float) -> None:
    finding = entry.finding
    colour, marker, size = LOOKS[finding.severity]
    start = float(finding.onset_step if finding.onset_step is not None else low)
    end = float(end_of(finding, high))
    half = BAR / 2
    known = finding.onset_step is not None
    ax.broken_barh(
        [(start, max(end - start, (high - low) * 0.002))],
        (entry.y - half, BAR),
        facecolor=colour if known else "none",
        edgecolor="none" if known else colour,
        linestyle=(0, (1.5, 2)),
        linewidth=0.0 if known else 1.0,
        alpha=(FAINT if entry.follows else PLAIN) if known else 0.8,
        zorder=3,
    )
    if not known:
        _label(ax, entry, low, high, width)
        return
    if finding.onset_interval is not None:
        first, last = max(finding.onset_interval[0], low), min(finding.onset_interval[1], high)
        ax.plot([first, last], [entry.y, entry.y], color=colour, linewidth=1.6, alpha=1, zorder=4)
        for x in (first, last):
            ax.plot([x, x], [entry.y - 4, entry.y + 4], color=colour, linewidth=1.6, zorder=4)
    ax.plot(
        [start],
        [entry.y],
        marker=marker,
        markersize=size * (0.8 if entry.follows else 1.0),
        color=colour if not entry.follows else PAPER,
        markeredgecolor=colour,
        markeredgewidth=1.4,
        linestyle="none",
        clip_on=False,
        zorder=6,
    )
    _label(ax, entry, low, high, width)


def _label(ax: Axes, entry: Entry, low: int, high: int, width: float) -> None:
    """Write the finding's name right of its mark, or left of it where there is no room."""
    finding = entry.finding
    known = finding.onset_step is not None
    interval = finding.onset_interval or ((finding.onset_step or low,) * 2)
    text = drawable(finding.id, 26) + ("" if known else ", since when is unknown")
    scale = width / max(high - low, 1)
    right = max((max(interval[1], finding.onset_step or low) - low) * scale, 0.0)
    left = max((min(interval[0], finding.onset_step if known else low) - low) * scale, 0.0)  # type: ignore[type-var, operator]
    needed = len(text) * LETTER + 12
    on_right = right + needed <= width
    at_edge = not on_right and left < needed  # no room on either side: over the bar, at the right edge
    ax.annotate(
        text,
        (0, entry.y),
        xycoords=("axes fraction", "data"),
        xytext=(right + 9 if on_right else width - 4 if at_edge else left - 9, 0),
        textcoords="offset points",
        ha="left" if on_right else "right",
        va="center",
        fontsize=SMALL,
        color=MUTED if entry.follows else INK,
        fontweight="normal",
        annotation_clip=False,
        zorder=7,
        bbox=None if on_right else {"facecolor": PAPER, "alpha": 0.85, "linewidth": 0, "pad": 0.5},
    )


def _alt(diagnosis: Diagnosis) -> str:
    told = []
    for finding in drawn(diagnosis):
        since = f"from step {count(finding.onset_step)}" if finding.onset_step is not None else "since when is unknown"
        after = f", following from {drawable(finding.consequence_of)}" if finding.consequence_of else ""
        told.append(f"{LINKS[finding.link]}: {drawable(finding.id)}, {finding.severity.value}, {since}{after}.")
    return f"{len(told)} findings over the steps. " + " ".join(told)


FIGURE = FigureKind(
    name="timeline",
    title="What broke when",
    columns=1,
    panels=panels,
    caption=caption,
    data=data,
    absence=absence,
)
