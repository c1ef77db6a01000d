"""Where each finding stands on the timeline: its lane, its row, and the steps it lasted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ptt.diagnostics.model import Diagnosis, Finding, Link, Severity
from ptt.reports.chains import chains

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
