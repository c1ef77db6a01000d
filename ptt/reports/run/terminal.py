"""The diagnosis in about ten lines, short enough for a chat: verdict, since when, numbers, what to do, the report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat

from rich.console import Console
from rich.text import Text

from ptt.diagnostics.model import Diagnosis, Severity, Source, Status, in_unit, since_words
from ptt.reports.run.advisories import cause_lines, quiet_line
from ptt.reports.run.answers import NOTHING_TO_DO, happened, tail_first
from ptt.reports.run.audit import recomputed_line
from ptt.reports.run.ledger import ledger_line
from ptt.reports.run.outcome import said_beside_headline
from ptt.reports.text.consequences import consequence_counts, context_sentences, first_failure, limit_words, roots
from ptt.reports.text.names import LINKS, SEVERITIES, joined, sentence, slice_name, status_word
from ptt.reports.text.numbers import count, counted, number
from ptt.reports.text.sanitize import safe, shortened
from ptt.reports.text.support import what_it_follows
from ptt.reports.text.terminal import print_wrapped
from ptt.reports.text.why import SIGNATURE, after_slice, core_coverage, crashes, decided_by, grew, thirds

MAX_FINDINGS = 3
LOST_REWARD = 2 / 3  # of the best level: whoever reads of anything else has to read of this
MAX_REASONS = 2  # sentences under Why; the report has all
MAX_TOLD = 2  # more of what the logs show at the onset
MAX_KNOWN = 2  # known causes; the report has all
MAX_AREAS = 3  # named of what was not judged; more are counted
MAX_STEPS = 2  # the rest stands in the report
INDENT, MIN_WIDTH = 12, 20
MAX_NAME = 60
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
    unit = diagnosis.run.step_unit
    blocks = {
        "Verdict": [verdict_line(diagnosis)],
        "Outcome": outcome_lines(diagnosis),
        "Limit": (cell(in_unit(text, unit)) for text in _limit(diagnosis)),
        "Why": (cell(in_unit(text, unit)) for text in _reasons(diagnosis)),
        "Update": map(cell, filter(None, [in_unit(sentence(ledger_line(diagnosis)), unit)])),
        "Follows": map(cell, filter(None, [what_it_follows(diagnosis.support)])),
        "Found": found_lines(diagnosis),
        "Known": map(cell, known_lines(diagnosis)),
        "Next": next_lines(diagnosis),
        "Covered": map(cell, core_coverage(diagnosis)[:1] if diagnosis.verdict.status is Status.HEALTHY else ()),
        "Recomputed": map(cell, filter(None, [in_unit(recomputed_line(diagnosis), unit)])),
        "Not judged": not_judged_lines(diagnosis),
        "Advisories": map(cell, filter(None, [sentence(quiet_line(diagnosis))])),
        "Unreadable": unreadable_lines(diagnosis.sources),
        "Note": [cell(diagnosis.judged_with)] if diagnosis.judged_with else [],
        "Report": [Text(safe(report_path), style="underline")],
    }
    print_blocks(blocks, console)


def print_blocks(blocks: Mapping[str, Iterable[Text]], console: Console) -> None:
    """Print lines under labels; only the first line under a label shows it."""
    for name, cells in blocks.items():
        for label, content in zip(chain([name], repeat("")), cells, strict=False):
            print_wrapped(console, content, head=Text(label.ljust(INDENT), style="dim"), min_width=MIN_WIDTH)


def known_lines(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield the known causes with what to change, and how many more there are."""
    lines = cause_lines(diagnosis)
    yield from lines[:MAX_KNOWN]
    if len(lines) > MAX_KNOWN:
        yield f"and {count(len(lines) - MAX_KNOWN)} more, in the report"


def outcome_lines(diagnosis: Diagnosis) -> Iterator[Text]:
    """Yield what the run did: how it ended, what moved, what it took."""
    if said := said_beside_headline(diagnosis):
        yield cell(said)


def next_lines(diagnosis: Diagnosis) -> Iterable[Text]:
    """Return the first steps to take, numbered where there are several."""
    steps = diagnosis.verdict.next or (NOTHING_TO_DO,)
    numbered = [f"{i}. {sentence(step)}" for i, step in enumerate(steps[:MAX_STEPS], start=1)]
    return map(cell, numbered if len(steps) > 1 else [sentence(steps[0])])


def _limit(diagnosis: Diagnosis) -> Iterator[str]:
    """Say at which step what grew passed its limit: the headline says since when it grew."""
    first = first_failure(diagnosis)
    if first is not None and (passed := limit_words(first)):
        yield sentence(passed)


def _reasons(diagnosis: Diagnosis) -> Sequence[str]:
    """Return the sentences that carry the verdict; of tail growth one line of numbers, the rest is in the report."""
    if not tail_first(diagnosis):
        first = first_failure(diagnosis)
        told = 0 if first is None else len(context_sentences(first, said=diagnosis.verdict.headline))
        return happened(diagnosis, short=True)[: MAX_REASONS + min(told, MAX_TOLD)]
    return [text for text in (crashes(diagnosis), _by_thirds(diagnosis)) if text]


def _by_thirds(diagnosis: Diagnosis) -> str:
    name = after_slice(diagnosis)
    after, text = (" → ".join(map(number, thirds(diagnosis, of))) for of in (name, "text_only"))
    if not after:
        return grew(diagnosis)
    beside = f", text-only {text}" if text else ""
    return f"{decided_by(diagnosis)} of |r| by thirds: {slice_name(name)} {after} nats{beside}."


def unreadable_lines(sources: Iterable[Source]) -> Iterator[Text]:
    """Say what of the run was not seen, a line for each reason: a verdict with it may be another."""
    notes: dict[str, list[Source]] = {}
    for source in sources:
        if source.kind == UNREADABLE:
            notes.setdefault(source.note or "", []).append(source)
    for note, unread in notes.items():
        files = f"{counted(len(unread), 'file')}, the first {unread[0].path}: "
        yield cell((files if any(source.bytes_lost for source in unread) else "") + note)


def cell(text: str, style: str = "") -> Text:
    """Return a text as one line that steers nothing."""
    return Text(safe(text), style=style)


def verdict_line(diagnosis: Diagnosis) -> Text:
    """Return the status and the headline."""
    verdict = diagnosis.verdict
    text = Text(f"{SHAPES[verdict.status]} {status_word(verdict)}", style=STATUS_STYLES[verdict.status])
    text.append(" ")
    text.append(shortened(safe(diagnosis.run.name), MAX_NAME) + ": ", style="bold")
    return text.append_text(cell(sentence(verdict.headline), style="default"))


def found_lines(diagnosis: Diagnosis) -> Iterator[Text]:
    """Yield the causes in order of time, each with how many follow from it, and a lost reward wherever it stands."""
    counts, headline = consequence_counts(diagnosis), diagnosis.verdict.headline
    causes = [finding for finding in roots(diagnosis) if not headline.startswith(finding.claim)]
    shown = causes[:MAX_FINDINGS]
    lost = [finding for finding in diagnosis.findings if finding.id == "reward-fell" and finding not in shown]
    said = " ".join((headline, *_reasons(diagnosis))) if lost else ""
    shown += [one for one in lost if (one.observed or 0.0) >= LOST_REWARD and one.claim.rstrip(".") not in said]
    for finding in shown:
        text = Text(SEVERITIES[finding.severity], style=SEVERITY_STYLES[finding.severity])
        since = in_unit(since_words(finding, count), diagnosis.run.step_unit)
        text.append(f" {', '.join(filter(None, (LINKS[finding.link].lower(), since)))}: ", style="default")
        cause = sentence(finding.likely_cause)
        text.append_text(cell(f"{sentence(finding.claim)} {cause}".rstrip(), style="default"))
        if counts[id(finding)]:
            text.append(f" And {counts[id(finding)]} that follow from it.", style="dim")
        yield text
    more = sum(finding not in shown for finding in causes)
    if more:
        yield cell(f"and {count(more)} more, in the report", style="dim")


def not_judged_lines(diagnosis: Diagnosis) -> Iterator[Text]:
    """Yield how many questions have no answer, and in which areas; and what recorded tokens lack for any ratio."""
    asked = [item for item in diagnosis.not_judged if item.applies]
    if asked:
        links = [LINKS[link].lower() for link in dict.fromkeys(item.link for item in asked)]
        areas = f" ({joined(links)})" if len(links) <= MAX_AREAS else f" in {len(links)} areas"
        yield cell(f"{counted(len(asked), 'question')}{areas}; the report says what to record")
    above = " ".join((diagnosis.verdict.headline, *_reasons(diagnosis)))
    for item in asked if diagnosis.run.sequences and diagnosis.signature.pair is None else ():
        if item.id == SIGNATURE and item.missing and sentence(item.reason) not in above:
            yield cell(f"{sentence(item.reason)} {sentence(item.enable)}")
