"""The diagnosis in about ten lines on a terminal: Verdict, Why, Next, and where the report lies."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from ptt.diagnostics.model import Diagnosis, Severity, Source, Status
from ptt.reports.run.answers import NOTHING_TO_DO
from ptt.reports.text.consequences import followers, onset_words, roots
from ptt.reports.text.names import LINKS, SEVERITIES, STATUSES, joined, sentence
from ptt.reports.text.numbers import count
from ptt.reports.text.sanitize import safe, shortened
from ptt.reports.text.why import why

TOP_FINDINGS = 3
TOP_STEPS = 2  # the rest stands in the report
INDENT, NARROWEST = 12, 20
LONGEST_NAME = 60
UNREADABLE = "unreadable"  # as the store calls what the system does not let us read
STATUS_STYLES = {
    Status.UNSTABLE: "bold red",
    Status.SUSPECT: "bold yellow",
    Status.HEALTHY: "bold green",
    Status.CANNOT_SAY: "bold cyan",
}
SHAPES = {Status.UNSTABLE: "■", Status.SUSPECT: "▲", Status.HEALTHY: "●", Status.CANNOT_SAY: "◆"}
SEVERITY_STYLES = {
    Severity.CRITICAL: "bold red",
    Severity.HIGH: "red",
    Severity.MEDIUM: "yellow",
    Severity.LOW: "blue",
    Severity.INFO: "dim",
}


def print_diagnosis(diagnosis: Diagnosis, console: Console, report_path: str) -> None:
    """Print the diagnosis; foreign text steers neither the terminal nor rich."""
    width = max(console.width - INDENT, NARROWEST)
    for name, content in _lines(diagnosis, report_path):
        for index, line in enumerate(content.wrap(console, width, overflow="fold")):
            line.rstrip()
            head = Text((name if index == 0 else "").ljust(INDENT), style="dim")
            console.print(head.append_text(line), soft_wrap=True)


def _lines(diagnosis: Diagnosis, report_path: str) -> list[tuple[str, Text]]:
    lines = [("Verdict", _verdict(diagnosis))]
    lines += _listed("Why", [_cell(text) for text in why(diagnosis, covered=False)])
    lines += _listed("Found", _found(diagnosis))
    if any(item.applies for item in diagnosis.not_judged):
        lines.append(("Not judged", _blind(diagnosis)))
    steps = diagnosis.verdict.next or (NOTHING_TO_DO,)
    numbered = [_cell(f"{i}. {sentence(step)}") for i, step in enumerate(steps[:TOP_STEPS], start=1)]
    lines += _listed("Next", numbered if len(steps) > 1 else [_cell(sentence(steps[0]))])
    lines += _listed("Unreadable", [_cell(text) for text in _closed(diagnosis.sources)])
    if diagnosis.judged_with:
        lines.append(("Note", _cell(diagnosis.judged_with)))
    lines.append(("Report", Text(safe(report_path), style="underline")))
    return lines


def _closed(sources: Iterable[Source]) -> Iterable[str]:
    """Say what of the run was not seen, a line for each reason: a verdict with it may be another."""
    by_note: dict[str, list[Source]] = {}
    for source in sources:
        if source.kind == UNREADABLE:
            by_note.setdefault(source.note or "", []).append(source)
    for note, closed in by_note.items():
        files = f"{count(len(closed))} file{'' if len(closed) == 1 else 's'}, the first {closed[0].path}: "
        yield (files if any(source.bytes_lost for source in closed) else "") + note


def _listed(name: str, cells: list[Text]) -> list[tuple[str, Text]]:
    return [(name if index == 0 else "", cell) for index, cell in enumerate(cells)]


def _cell(text: str, style: str = "") -> Text:
    return Text(safe(text), style=style)


def _verdict(diagnosis: Diagnosis) -> Text:
    verdict = diagnosis.verdict
    text = Text(f"{SHAPES[verdict.status]} {STATUSES[verdict.status]}", style=STATUS_STYLES[verdict.status])
    text.append(" ")
    text.append(shortened(safe(diagnosis.run.name), LONGEST_NAME) + ": ", style="bold")
    return text.append_text(_cell(sentence(verdict.headline), style="default"))


def _found(diagnosis: Diagnosis) -> list[Text]:
    """Give the causes in order of time, each with how many follow from it; notes are counted only."""
    told = diagnosis.verdict.headline  # the finding that the headline already tells is not told twice
    counts = followers(diagnosis)
    leading = [finding for finding in roots(diagnosis) if not told.startswith(finding.claim)]
    cells = []
    for finding in leading[:TOP_FINDINGS]:
        text = Text(SEVERITIES[finding.severity], style=SEVERITY_STYLES[finding.severity])
        since = f", since {onset_words(finding.onset_step, None)}" if finding.onset_step is not None else ""
        text.append(f" {LINKS[finding.link].lower()}{since}: ", style="default")
        text.append_text(_cell(sentence(finding.claim), style="default"))
        if counts[id(finding)]:
            text.append(f" And {counts[id(finding)]} that follow from it.", style="dim")
        cells.append(text)
    rest = len(leading) - len(cells)
    if rest > 0:
        more = f"and {count(rest)} more, in the report" if cells else f"{count(rest)} more, in the report"
        cells.append(_cell(more, style="dim"))
    return cells


def _blind(diagnosis: Diagnosis) -> Text:
    asked = [item for item in diagnosis.not_judged if item.applies]
    links = [LINKS[link].lower() for link in dict.fromkeys(item.link for item in asked)]
    how_many = len(asked)
    noun = "question" if how_many == 1 else "questions"
    return _cell(f"{count(how_many)} {noun} ({joined(links)}); the report says what to record")
