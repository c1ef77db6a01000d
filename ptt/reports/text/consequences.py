"""What the verdict follows from, since when, and what followed from that: sentences for the page and the terminal."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

from ptt.diagnostics.model import Diagnosis, Finding, Severity, Steps, between_words, since_words
from ptt.diagnostics.verdict.causes import by_onset
from ptt.diagnostics.verdict.causes import first_failure as first_of
from ptt.reports.text.names import sentence
from ptt.reports.text.numbers import count, counted, limit_value

MAX_CLAIMS: Final = 2  # consequences in their own words: the others are counted


def roots(diagnosis: Diagnosis) -> list[Finding]:
    """Return the findings that are nobody's consequence, in order of time: first the weighty ones, then notes."""
    known = {finding.id for finding in diagnosis.findings}
    free = [f for f in diagnosis.findings if f.consequence_of not in known or f.consequence_of == f.id]
    return sorted(free, key=lambda f: (f.severity.rank > Severity.MEDIUM.rank, *by_onset(f)))


def chains(diagnosis: Diagnosis) -> list[tuple[Finding, int]]:
    """Return every finding once: each cause, then what follows from it, with how many links stand above it."""
    consequences: defaultdict[str | None, list[Finding]] = defaultdict(list)
    for finding in sorted(diagnosis.findings, key=by_onset):
        consequences[finding.consequence_of].append(finding)
    visited: dict[int, tuple[Finding, int]] = {}

    def visit(findings: Iterable[Finding], depth: int) -> None:
        for finding in findings:
            if id(finding) not in visited:
                visited[id(finding)] = finding, depth
                visit(consequences[finding.id], depth + 1)

    visit(roots(diagnosis), 0)
    visit(diagnosis.findings, 0)  # findings that name each other as cause: none may be lost
    return list(visited.values())


def consequence_counts(diagnosis: Diagnosis) -> Counter[int]:
    """Count the findings that stand below each root, by the root's identity."""
    counts: Counter[int] = Counter()
    root = 0
    for finding, depth in chains(diagnosis):
        root = id(finding) if depth == 0 else root
        counts[root] += depth > 0
    return counts


def first_failure(diagnosis: Diagnosis) -> Finding | None:
    """Return the finding that the verdict follows from, if one is medium or worse."""
    return first_of(diagnosis.findings)


def first_failure_sentence(diagnosis: Diagnosis) -> str:
    """Say what failed first and since when; what the headline says is not said again."""
    first = first_failure(diagnosis)
    if first is None or diagnosis.verdict.headline.startswith(first.claim):
        return ""
    return sentence(_dated(first))


def context_sentences(finding: Finding, *, said: str = "") -> list[str]:
    """Say what the logs show where a finding sets in, and its likely cause; what was `said` is not said again."""
    return [text for text in map(sentence, finding.context) if text not in said]


def consequences_sentence(diagnosis: Diagnosis) -> str:
    """Say what followed from the first failure: the worst two in their own words, the others by their number."""
    first = first_failure(diagnosis)
    claims: dict[str, str] = {}
    followers = _consequences(diagnosis, first) if first is not None else []
    for finding in sorted(followers, key=lambda f: (f.severity.rank, f.seen_step or 0, f.id)):
        claims.setdefault(finding.id, sentence(_dated(finding)))
    if not claims:
        return ""
    shown, rest = list(claims.values())[:MAX_CLAIMS], list(claims)[MAX_CLAIMS:]
    more = [f"{len(rest)} more {'is' if len(rest) == 1 else 'are'} in the report."] if rest else []
    return " ".join([f"{counted(len(claims), 'problem')} {_linked(first, followers)}.", *shown, *more])


def _dated(finding: Finding) -> str:
    return ", ".join(filter(None, (finding.claim.removesuffix("."), since_words(finding, count))))


def _linked(root: Finding | None, followers: list[Finding]) -> str:
    """Say that findings followed, or where some began earlier than their cause is dated, that they belong to it."""
    start = None if root is None else root.seen_step
    dates = [finding.seen_step for finding in followers if finding.seen_step is not None]
    if start is None or all(date >= start for date in dates):
        return "followed"
    return "goes with it" if len(followers) == 1 else "go with it"


def _consequences(diagnosis: Diagnosis, root: Finding) -> list[Finding]:
    """Return the findings that follow from this one, by whatever number of links."""
    caused = {root.id}
    for _ in diagnosis.findings:
        caused |= {finding.id for finding in diagnosis.findings if finding.consequence_of in caused}
    return [finding for finding in diagnosis.findings if finding.id in caused - {root.id}]


def other_failures_sentence(diagnosis: Diagnosis) -> str:
    """Say how many more serious findings there are."""
    others = sum(finding.severity.at_least(Severity.HIGH) for finding in roots(diagnosis)) - 1
    return f"There are {counted(others, 'other serious finding')}." if others > 1 else ""


def onset_words(step: int | None, interval: Steps | None) -> str:
    """Say since which step, and how closely that is known."""
    if step is None:
        return "onset unknown"
    return f"step {count(step)}{between_words(interval, count)}"


def limit_words(finding: Finding) -> str:
    """Say at which step what grew passed its limit; empty where that is not another one than its onset."""
    if finding.onset_step is None or finding.limit_passed_step in {None, finding.onset_step}:
        return ""
    limit = "" if finding.limit is None else f" of {limit_value(finding.limit, finding.unit)}"
    percentile = finding.evidence.get("percentile")
    of = f" ({percentile})" if limit and isinstance(percentile, str) else ""
    when = onset_words(finding.limit_passed_step, finding.limit_passed_interval)
    return f"past its limit{limit}{of} at {when}"


def span_words(interval: Steps) -> str:
    """Write an interval of steps."""
    return f"{count(interval[0])} to {count(interval[1])}"
