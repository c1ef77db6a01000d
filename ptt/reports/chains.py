"""Findings in order of time, each under the one that brought it about."""

from __future__ import annotations

from collections.abc import Iterable

from ptt.diagnostics.model import Diagnosis, Finding, Link, Severity

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
