"""Puts findings in order of time, and each under the earlier one that brought it about."""

from __future__ import annotations

import tomllib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Final

from ptt.diagnostics.model import Finding, Link, Severity

Explains = Mapping[str, Mapping[str, str]]
"""By the id of a failure: the ids of those it brings about, each with how."""


@cache
def explains() -> Explains:
    """Read the table."""
    text = resources.files(__package__).joinpath("causes.toml").read_text("utf-8")
    table: dict[str, dict[str, str]] = tomllib.loads(text)
    return table


def chains(table: Explains, cause: str) -> dict[str, tuple[str, ...]]:
    """Give all that a failure brings about, with the shortest chain from it: the ids after `cause`, in order."""
    found: dict[str, tuple[str, ...]] = {}
    waiting = deque([(cause, tuple[str, ...]())])
    while waiting:
        at, way = waiting.popleft()
        for name in sorted(table.get(at, {})):
            if name != cause and name not in found:
                found[name] = (*way, name)
                waiting.append((name, found[name]))
    return found


def how(table: Explains, cause: str, consequence: str) -> str:
    """Say how one failure brings another about, link by link; empty where it does not."""
    way = chains(table, cause).get(consequence, ())
    return "; ".join(table[one][other] for one, other in zip((cause, *way), way, strict=False))


UNKNOWN: Final = 1 << 60  # later than any step
LONGEST_CHAIN: Final = 2  # links: what took more, with nothing found between, is no story one could check


def began(finding: Finding) -> int:
    """Give the step a failure was seen from; logprobs that cannot be trusted could not from the start."""
    if finding.onset_step is not None:
        return finding.onset_step
    return -1 if finding.link is Link.DATA_VALIDITY else UNKNOWN


def linked(findings: Sequence[Finding], explains: Explains, *, slack: int = 0) -> list[Finding]:
    """Name the cause of each finding that one before it, or too near to tell which was first, brings about.

    A cause may bring it about through one other that was not found; one that does so by itself is preferred, then the
    earliest. Two dates cannot be ordered where their intervals overlap, nor, for what a cause does by itself, where
    they lie within `slack` steps: a mean over a window passes its limit up to a window late. Of two that could each
    have brought the other about the one seen first counts. A note explains no failure: what is below medium has not
    broken anything. No finding comes to stand under itself, by whatever number of links.
    """
    reach = {
        finding.id: frozenset(name for name, way in chains(explains, finding.id).items() if len(way) <= LONGEST_CHAIN)
        for finding in findings
    }
    ordered = sorted(findings, key=lambda finding: (began(finding), list(Link).index(finding.link), finding.id))
    above: dict[int, int] = {}  # place of a finding -> place of its cause
    for place, finding in enumerate(ordered):
        candidates = [
            other
            for other, cause in enumerate(ordered)
            if _may_explain(cause, finding, reach)
            and _earliest(cause) <= _latest(finding) + (slack if finding.id in explains.get(cause.id, {}) else 0)
            and not _leads_to(other, place, above)
        ]
        direct = [other for other in candidates if finding.id in explains.get(ordered[other].id, {})]
        if candidates:
            above[place] = (direct or candidates)[0]
    causes = {id(ordered[place]): ordered[other].id for place, other in above.items()}
    return [
        replace(finding, consequence_of=causes[id(finding)]) if id(finding) in causes else finding
        for finding in findings
    ]


def _may_explain(cause: Finding, finding: Finding, reach: Mapping[str, frozenset[str]]) -> bool:
    if cause is finding or finding.id not in reach[cause.id]:
        return False
    if finding.severity.at_least(Severity.MEDIUM) and not cause.severity.at_least(Severity.MEDIUM):
        return False
    later = began(cause) > began(finding)
    if later and cause.id in reach[finding.id]:
        return False
    return began(cause) < UNKNOWN and _latest(finding) < UNKNOWN


def _earliest(finding: Finding) -> int:
    return min(finding.onset_interval[0], began(finding)) if finding.onset_interval else began(finding)


def _latest(finding: Finding) -> int:
    return max(finding.onset_interval[1], began(finding)) if finding.onset_interval else began(finding)


def _leads_to(place: int, goal: int, above: Mapping[int, int]) -> bool:
    """Tell whether the chain of causes above `place` holds `goal`."""
    while place != goal and place in above:
        place = above[place]
    return place == goal
