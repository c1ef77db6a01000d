"""One lane for every link of the training loop: what was judged there, and with what outcome."""

from __future__ import annotations

from dataclasses import dataclass

from ptt.diagnostics.model import Diagnosis, Link, Severity
from ptt.reports.names import LINKS

BROKEN_FROM = Severity.MEDIUM  # below it a finding is a note, and its link is not called broken


@dataclass(frozen=True, kw_only=True)
class Lane:
    """What is known of one link; `state` is broken, healthy, noted, blind or silent."""

    link: str
    state: str
    word: str
    detail: str
    first: bool


def lanes(diagnosis: Diagnosis) -> tuple[Lane, ...]:
    """Give every link its lane, outside in."""
    return tuple(_lane(diagnosis, link) for link in Link)


def _lane(diagnosis: Diagnosis, link: Link) -> Lane:
    findings = [finding for finding in diagnosis.findings if finding.link is link]
    broken = [finding for finding in findings if finding.severity.at_least(BROKEN_FROM)]
    healthy = sum(check.link is link for check in diagnosis.healthy)
    unanswered = [item for item in diagnosis.not_judged if item.link is link]
    blind = sum(item.applies for item in unanswered)
    absent = len(unanswered) - blind
    counts = (
        (len(broken), "broken"),
        (len(findings) - len(broken), "noted"),
        (healthy, "healthy"),
        (blind, "not judged"),
        (absent, "does not apply" if absent == 1 else "do not apply"),
    )
    silence = "no rule asks about it yet"
    if diagnosis.from_findings and not findings:
        state, word, silence = "silent", "No finding", "whether a check looked is not in findings.json"
    elif broken:
        state, word = "broken", "Broken"
    elif findings:
        state, word = "noted", "Noted"
    elif healthy and blind:
        state, word = "blind", "Partly judged"
    elif healthy:
        state, word = "healthy", "Healthy"
    elif blind:
        state, word = "blind", "Not judged"
    elif absent:
        state, word = "silent", "Does not apply"
    else:
        state, word = "silent", "No check"
    return Lane(
        link=LINKS[link],
        state=state,
        word=word,
        detail=", ".join(f"{number} {what}" for number, what in counts if number) or silence,
        first=link is diagnosis.verdict.first_broken_link,
    )
