"""What the verdict follows from, since when, and what followed from that: sentences for the page and the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ptt.diagnostics.model import Diagnosis, Finding, Link, Severity, Steps
from ptt.reports.text.names import joined, sentence
from ptt.reports.text.numbers import count, counted

UNKNOWN = 1 << 60  # later than any step


def roots(diagnosis: Diagnosis) -> list[Finding]:
    """Give the findings that are nobody's consequence, in order of time: first the weighty ones, then notes."""
    known = {finding.id for finding in diagnosis.findings}
    free = [f for f in diagnosis.findings if f.consequence_of not in known or f.consequence_of == f.id]
    return sorted(free, key=lambda f: (f.severity.rank > Severity.MEDIUM.rank, *_in_time(f)))


def chains(diagnosis: Diagnosis) -> list[tuple[Finding, int]]:
    """Give every finding once: each cause, then what follows from it, with how many links stand above it."""
    followers: dict[str, list[Finding]] = {}
    for finding in sorted(diagnosis.findings, key=_in_time):
        if finding.consequence_of is not None:
            followers.setdefault(finding.consequence_of, []).append(finding)
    found: list[tuple[Finding, int]] = []
    told: set[int] = set()

    def tell(findings: Iterable[Finding], depth: int) -> None:
        for finding in findings:
            if id(finding) not in told:
                told.add(id(finding))
                found.append((finding, depth))
                tell(followers.get(finding.id, ()), depth + 1)

    tell(roots(diagnosis), 0)
    tell(diagnosis.findings, 0)  # findings that name each other as cause: none may be lost
    return found


def followers(diagnosis: Diagnosis) -> dict[int, int]:
    """Give how many findings stand below each root, by the root's identity."""
    counts: dict[int, int] = {}
    root = 0
    for finding, depth in chains(diagnosis):
        if depth == 0:
            root = id(finding)
        counts[root] = counts.get(root, -1) + 1
    return counts


def _in_time(finding: Finding) -> tuple[int, int, str]:
    """Order as the verdict does: untrusted logprobs are so from the start, and what has no onset comes last."""
    links = list(Link)
    if finding.onset_step is not None:
        return finding.onset_step, links.index(finding.link), finding.id
    return -1 if finding.link is Link.DATA_VALIDITY else UNKNOWN, links.index(finding.link), finding.id


TOLD: Final = 2  # consequences in their own words: the others are named


def followed(diagnosis: Diagnosis) -> Finding | None:
    """Give the finding that the verdict follows from, if one is medium or worse."""
    return next((finding for finding in roots(diagnosis) if finding.severity.rank <= 2), None)


def leading(diagnosis: Diagnosis) -> list[str]:
    """Tell the worst finding and how many others follow from it; what the headline has told is not told again."""
    first = followed(diagnosis)
    if first is None:
        return []
    known = first.onset_step is not None
    since = f" since {onset_words(first.onset_step, first.onset_interval)}" if known else ""
    traced = len(_followers(diagnosis, first))
    after = f"; {counted(traced, 'further finding')} can be traced to it" if traced else ""
    told = sentence(first.claim)
    if diagnosis.verdict.headline.startswith(first.claim):
        return [_traced(diagnosis, first)] if traced else []
    return [f"{told[:-1]}{since}{after}." if told.endswith(".") else told]


def _traced(diagnosis: Diagnosis, first: Finding) -> str:
    """Tell what followed from the first failure: the worst two in their own words, the others by name."""
    ids = _followers(diagnosis, first)
    worst = sorted(
        (finding for finding in diagnosis.findings if finding.id in ids),
        key=lambda finding: (finding.severity.rank, finding.onset_step or 0, finding.id),
    )
    told: dict[str, str] = {}
    for finding in worst:
        since = f" (since step {finding.onset_step})" if finding.onset_step is not None else ""
        told.setdefault(finding.id, f"{finding.claim}{since}")
    shown, rest = list(told.values())[:TOLD], sorted(list(told)[TOLD:])
    more = f"; and {joined(rest)}" if rest else ""
    return f"{sentence(counted(len(told), 'further finding'))[:-1]} can be traced to it: {'; '.join(shown)}{more}."


def _followers(diagnosis: Diagnosis, root: Finding) -> set[str]:
    caused = {root.id}
    for _ in diagnosis.findings:
        caused |= {finding.id for finding in diagnosis.findings if finding.consequence_of in caused}
    return caused - {root.id}


def beside(diagnosis: Diagnosis) -> list[str]:
    """Say how many more serious findings there are."""
    others = [f for f in roots(diagnosis) if f.severity.rank <= 1][1:]
    return [f"{counted(len(others), 'more serious finding')} stand beside it."] if len(others) > 1 else []


def onset_words(step: int | None, interval: Steps | None) -> str:
    """Say since which step, and how closely that is known."""
    if step is None:
        return "onset unknown"
    return f"step {count(step)}" + (f" ({span_words(interval)})" if interval else "")


def span_words(interval: Steps) -> str:
    """Give an interval of steps."""
    return f"{count(interval[0])} to {count(interval[1])}"
