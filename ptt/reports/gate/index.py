"""The page over all gated runs: how many stand how, what failed in each, and the way to its report."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from ptt.diagnostics.gate.results import ORDER, CheckKind, GatedRun, GateReport, Outcome
from ptt.reports.gate.check_text import (
    BLOCKING,
    OUTCOME_TEXT,
    STATUS_TEXT,
    Case,
    CheckStatus,
    cases_of,
    clause,
    headline,
    runs_worst_first,
    worst_first,
)
from ptt.reports.output import render
from ptt.reports.text.names import LINKS, STATUSES, sentence
from ptt.reports.text.numbers import count, counted, with_unit
from ptt.reports.text.sanitize import encodable, safe, shortened

TEMPLATE: Final = "index.html.j2"
MAX_CHECKS: Final = 4  # of one run; the rest is counted, and stands in its report
MAX_NAME: Final = 120
MAX_OPEN_PASSED: Final = 25  # so many passed runs are shown unfolded where nothing else is to be shown
NONE: Final = "–"


@dataclass(frozen=True, kw_only=True)
class Count:
    """How many runs have one outcome."""

    outcome: str
    word: str
    number: str
    meaning: str


@dataclass(frozen=True, kw_only=True)
class CheckLine:
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
    checks: tuple[CheckLine, ...]
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
    """Return the text of index.html; the same report gives the same bytes."""
    return render(TEMPLATE, gate=view(report))


def view(report: GateReport) -> IndexView:
    """Put a gate's answer into words."""
    numbers = Counter(run.outcome for run in report.runs)
    runs = runs_worst_first(report)
    passed = tuple(_row(run, name) for name, run in runs if run.outcome is Outcome.PASSED)
    others = tuple(_row(run, name) for name, run in runs if run.outcome is not Outcome.PASSED)
    return IndexView(
        outcome=report.outcome.value,
        word=OUTCOME_TEXT[report.outcome].heading,
        headline=headline(report),
        counts=tuple(
            Count(
                outcome=outcome.value,
                word=OUTCOME_TEXT[outcome].heading,
                number=count(numbers[outcome]),
                meaning=OUTCOME_TEXT[outcome].heading_meaning,
            )
            for outcome in ORDER
            if numbers[outcome] and len(report.runs) > 1
        ),
        standing_out=others,
        passed=passed,
        passed_title=f"{counted(len(passed), 'run')} passed",
        passed_open=not others and len(passed) <= MAX_OPEN_PASSED,
        policy=tuple((safe(key), _scalar(value)) for key, value in report.policy.items()),
        baseline=safe(report.baseline or ""),
        notes=tuple(map(sentence, report.notes)),
    )


def _row(run: GatedRun, name: str) -> Row:
    cases = worst_first(cases_of(run, name))
    blocking = [case for case in cases if case.check is not None and case.status in BLOCKING]
    rest = len(blocking) - MAX_CHECKS
    waived = sum(case.status is CheckStatus.WAIVED for case in cases)
    verdict = STATUSES[run.status] if run.status is not None else ""
    return Row(
        name=shortened(name, MAX_NAME),
        outcome=run.outcome.value,
        word=OUTCOME_TEXT[run.outcome].heading,
        # nothing where the headline begins with it
        status=f"{verdict}." if verdict and not run.headline.lower().startswith(verdict.lower()) else "",
        headline=sentence(run.error or run.headline),
        first_broken=LINKS[run.first_broken_link] if run.first_broken_link is not None else NONE,
        checks=tuple(
            CheckLine(id=safe(case.id), word=STATUS_TEXT[case.status].word, claim=_claim(case))
            for case in blocking[:MAX_CHECKS]
        ),
        more=f"and {count(rest)} more" if rest > 0 else "",
        waived=f"{counted(waived, 'finding')} allowed for now" if waived else "",
        steps=count(run.steps) if run.steps else NONE,
        tokens=count(run.model_tokens) if run.model_tokens else NONE,
        report=quote(encodable(run.report)) if run.report else "",
        notes=tuple(map(sentence, run.notes)),
    )


def _claim(case: Case) -> str:
    """Return what was seen, of a bound with its value and what was demanded; nothing that the headline already says."""
    check, claim = case.check, sentence(case.claim)
    if not claim or case.run.headline.startswith(case.claim):
        return ""
    if check is None or check.kind is not CheckKind.BOUND or check.observed is None:
        return claim
    value = with_unit(check.observed, safe(check.unit))
    return f"{claim.rstrip('.')}: {value} seen, demanded that {clause(case.title)}"


def _scalar(value: str | float | bool | None) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else safe(str(value))
