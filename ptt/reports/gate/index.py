"""The page over all gated runs: how many stand how, what failed in each, and the way to its report."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from ptt.diagnostics.gate.results import ORDER, CheckKind, GatedRun, GateReport, Outcome
from ptt.reports.gate.check_text import (
    COUNTS,
    STANDINGS,
    Case,
    Standing,
    cases_of,
    clause,
    headline,
    named,
    worst_first,
)
from ptt.reports.output import render
from ptt.reports.text.names import LINKS, STATUSES, sentence
from ptt.reports.text.numbers import count, counted, with_unit
from ptt.reports.text.sanitize import encodable, safe, shortened

TEMPLATE: Final = "index.html.j2"
SHOWN_CHECKS: Final = 4  # of one run; the rest is counted, and stands in its report
LONGEST_NAME: Final = 120
OPEN_PASSED: Final = 25  # so many passed runs are shown unfolded where nothing else is to be shown
NONE: Final = "–"
WORDS: Final = {
    Outcome.PASSED: "Passed",
    Outcome.FAILED: "Failed",
    Outcome.BLIND: "Blind",
    Outcome.UNREADABLE: "Unreadable",
    Outcome.CRASHED: "Crashed",
}
MEANINGS: Final = {
    Outcome.PASSED: "every check held",
    Outcome.FAILED: "a check saw what it must not",
    Outcome.BLIND: "a check had nothing to judge by",
    Outcome.UNREADABLE: "the run cannot be read",
    Outcome.CRASHED: "a fault of ptt, or its process was killed",
}


@dataclass(frozen=True, kw_only=True)
class Count:
    """How many runs stand one way."""

    outcome: str
    word: str
    number: str
    meaning: str


@dataclass(frozen=True, kw_only=True)
class Told:
    """One check that did not pass."""

    id: str
    word: str
    claim: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """One run."""

    name: str
    outcome: str
    word: str
    status: str
    headline: str
    first_broken: str
    checks: tuple[Told, ...]
    more: str
    waived: str
    steps: str
    tokens: str
    report: str  # relative address, or nothing
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class IndexView:
    """Everything the page says."""

    outcome: str
    word: str
    headline: str
    counts: tuple[Count, ...]
    standing_out: tuple[Row, ...]  # all that did not pass, worst first, then as given
    passed: tuple[Row, ...]
    passed_title: str
    passed_open: bool
    policy: tuple[tuple[str, str], ...]
    baseline: str
    notes: tuple[str, ...]


def index_html(report: GateReport) -> str:
    """Give the text of index.html; the same report gives the same bytes."""
    return render(TEMPLATE, gate=view(report))


def view(report: GateReport) -> IndexView:
    """Put a gate's answer into words."""
    numbers = Counter(run.outcome for run in report.runs)
    ordered = sorted(named(report).items(), key=lambda entry: ORDER.index(entry[1].outcome))
    passed = tuple(_row(run, name) for name, run in ordered if run.outcome is Outcome.PASSED)
    others = tuple(_row(run, name) for name, run in ordered if run.outcome is not Outcome.PASSED)
    return IndexView(
        outcome=report.outcome.value,
        word=WORDS[report.outcome],
        headline=headline(report),
        counts=tuple(
            Count(outcome=outcome.value, word=WORDS[outcome], number=count(numbers[outcome]), meaning=MEANINGS[outcome])
            for outcome in ORDER
            if numbers[outcome] and len(report.runs) > 1
        ),
        standing_out=others,
        passed=passed,
        passed_title=f"{counted(len(passed), 'run')} passed",
        passed_open=not others and len(passed) <= OPEN_PASSED,
        policy=tuple((safe(key), _scalar(value)) for key, value in report.policy.items()),
        baseline=safe(report.baseline or ""),
        notes=tuple(map(sentence, report.notes)),
    )


def _row(run: GatedRun, name: str) -> Row:
    cases = worst_first(cases_of(run))
    told = [case for case in cases if case.check is not None and case.standing in COUNTS]
    rest = len(told) - SHOWN_CHECKS
    waived = sum(case.standing is Standing.WAIVED for case in cases)
    return Row(
        name=shortened(name, LONGEST_NAME),
        outcome=run.outcome.value,
        word=WORDS[run.outcome],
        status=_status(run),
        headline=sentence(run.error or run.headline),
        first_broken=LINKS[run.first_broken_link] if run.first_broken_link is not None else NONE,
        checks=tuple(_told(case, run.headline) for case in told[:SHOWN_CHECKS]),
        more=f"and {count(rest)} more" if rest > 0 else "",
        waived=f"{counted(waived, 'finding')} allowed for now" if waived else "",
        steps=count(run.steps) if run.steps else NONE,
        tokens=count(run.model_tokens) if run.model_tokens else NONE,
        report=quote(encodable(run.report)) if run.report else "",
        notes=tuple(map(sentence, run.notes)),
    )


def _status(run: GatedRun) -> str:
    """Give the verdict; nothing where the headline begins with it."""
    word = STATUSES[run.status] if run.status is not None else ""
    return "" if not word or run.headline.lower().startswith(word.lower()) else f"{word}."


def _told(case: Case, headline: str) -> Told:
    """Tell a check; what the headline above it says already is not said twice."""
    claim = "" if case.claim and headline.startswith(case.claim) else sentence(case.claim)
    return Told(id=safe(case.id), word=STANDINGS[case.standing], claim=claim and _with_bound(case, claim))


def _with_bound(case: Case, claim: str) -> str:
    """Add to what is said of a bound its value, and what was demanded: limit, window and unit stand there."""
    check = case.check
    if check is None or check.kind is not CheckKind.BOUND or check.observed is None:
        return claim
    value = with_unit(check.observed, safe(check.unit))
    return f"{claim.rstrip('.')}: {value} seen, demanded that {clause(case.title)}"


def _scalar(value: str | float | bool | None) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else safe(str(value))
