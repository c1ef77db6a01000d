"""Link each finding to the earlier one that brought it about, by the table of causes."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Final

from ptt.diagnostics.model import MISCOUNTED, Broken, Finding, Healthy, Link, RuleVerdict, Severity

Explains = Mapping[str, Mapping[str, str]]
"""By the id of a failure: the ids of those it brings about, each with how."""


@cache
def explains() -> Explains:
    """Read the table of causes."""
    text = resources.files(__package__).joinpath("causes.toml").read_text("utf-8")
    table: dict[str, dict[str, str]] = tomllib.loads(text)
    return table


NO_ONSET: Final = 1 << 60  # later than any step
TAILS: Final = frozenset({"tool-tail-growth", "tail-growth-everywhere", "tails-high"})
OF_ONE_RANK: Final = frozenset({Link.DATA_VALIDITY, Link.DATA_FRESHNESS, Link.NUMERICS, Link.SYSTEMS})


def began(finding: Finding) -> int:
    """Return the first step the logs show a finding at; logprobs that cannot be trusted could not from the start."""
    if finding.seen_step is not None:
        return finding.seen_step
    return -1 if finding.link is Link.DATA_VALIDITY else NO_ONSET


def by_onset(finding: Finding) -> tuple[int, int, str]:
    """Return what puts findings in order of time; those without an onset come last, links outside in."""
    return began(finding), list(Link).index(finding.link), finding.id


MIN_RAISING: Final = 2  # failures of high severity: one alone may have set in at the same time by chance


def raise_settings(verdicts: Sequence[RuleVerdict], explains: Explains, *, window: int) -> list[RuleVerdict]:
    """Make a finding of a note on a setting far outside of what is used, where its consequences set in with it.

    The setting alone is a suspicion. That two failures of high severity which it brings about by itself were seen from
    the same steps on (none before it, each within `window` steps of it) is more than chance; later ones prove nothing.
    """
    findings = [finding for verdict in verdicts if isinstance(verdict, Broken) for finding in verdict.findings]
    return [_raised(verdict, findings, explains, window) for verdict in verdicts]


def _raised(verdict: RuleVerdict, findings: Sequence[Finding], explains: Explains, window: int) -> RuleVerdict:
    notes = verdict.notes if isinstance(verdict, Healthy) else ()
    for note in notes:
        if note.evidence.get("far_outside_use") is not True:
            continue
        followed = sorted((one for one in findings if _set_in_with(one, note, explains, window)), key=began)
        if len(followed) < MIN_RAISING:
            continue
        steps = began(followed[0])
        raised = replace(
            note,
            severity=Severity.MEDIUM,
            claim=f"{note.claim}, and {len(followed)} failures that follow from it set in from step {steps} on",
            evidence={**note.evidence, "followed_by": ", ".join(one.id for one in followed)},
        )
        others = tuple(other for other in notes if other is not note)
        return Broken(findings=(raised, *others))
    return verdict


def _set_in_with(finding: Finding, setting: Finding, explains: Explains, window: int) -> bool:
    if finding.id not in explains.get(setting.id, {}) or not finding.severity.at_least(Severity.HIGH):
        return False
    first = began(setting) if setting.seen_interval is None else setting.seen_interval[0]
    return began(setting) < NO_ONSET and first <= began(finding) <= began(setting) + window


def link_causes(findings: Sequence[Finding], explains: Explains, *, window: int = 0) -> list[Finding]:
    """Name the cause of each finding that one before it, or too near to tell which was first, brings about by itself.

    What it would bring about through a failure that was not found, it does not explain. Of several causes the earliest
    counts, and before all others one that the judged metric is miscounted. Two dates cannot be ordered where their
    intervals overlap. A cause that states no interval may have begun up to `window` steps before it was seen: a mean
    over a window passes its limit so late; one that states when it set out for its limit, from there on. What surely
    began after a failure did not bring it about. Of two that could each have brought the other about, and whose dates
    cannot be ordered, the one seen first counts. A note explains no failure: what is below medium has not broken
    anything. No finding comes to stand under itself, by whatever number of links.
    """
    ordered = sorted(findings, key=by_onset)
    above: dict[int, int] = {}  # index of a finding -> index of its cause
    for index, finding in enumerate(ordered):
        candidates = (
            other
            for other, cause in enumerate(ordered)
            if _may_explain(cause, finding, explains)
            and _earliest(cause, window) <= _latest(finding)
            and not _leads_to(other, index, above)
        )
        direct = sorted(candidates, key=lambda other: MISCOUNTED not in ordered[other].evidence)
        first = next(iter(direct), None)
        if first is not None:
            above[index] = first
    causes = {id(ordered[index]): ordered[other].id for index, other in above.items()}
    return [
        replace(finding, consequence_of=causes[id(finding)]) if id(finding) in causes else finding
        for finding in findings
    ]


def _may_explain(cause: Finding, finding: Finding, explains: Explains) -> bool:
    if cause is finding or finding.id not in explains.get(cause.id, {}):
        return False
    if isinstance(metrics := cause.evidence.get(MISCOUNTED), str):
        named = finding.evidence.get("metric")
        if named is None or named not in metrics.split(", "):
            return False  # other metrics are counted right
    if finding.severity.at_least(Severity.MEDIUM) and not cause.severity.at_least(Severity.MEDIUM):
        return False
    if finding.id in TAILS and finding.link is Link.SYSTEMS and cause.link not in OF_ONE_RANK:
        return False  # a tail on one rank is from no fault that all ranks share
    if began(cause) > began(finding) and cause.id in explains.get(finding.id, {}):
        return False
    return began(cause) < NO_ONSET and _latest(finding) < NO_ONSET


def _earliest(finding: Finding, window: int) -> int:
    """Return the earliest step at which a cause may have begun: on its way to its limit."""
    earliest = min(finding.seen_interval[0], began(finding)) if finding.seen_interval else began(finding) - window
    left = finding.evidence.get("left_early_level_at")
    return min(earliest, left) if isinstance(left, int) else earliest


def _latest(finding: Finding) -> int:
    return max(finding.seen_interval[1], began(finding)) if finding.seen_interval else began(finding)


def _leads_to(index: int, goal: int, above: Mapping[int, int]) -> bool:
    """Return whether the chain of causes above `index` holds `goal`."""
    while index != goal and index in above:
        index = above[index]
    return index == goal


SLOWNESS: Final = frozenset({"throughput-drop", "stragglers", "idle-rollout", "tool-latency"})
"""Findings of time that was lost and nothing else."""


SYMPTOMS: Final = frozenset({"metrics-contradict-each-other", "no-signal-groups", "reward-stuck", "idle-rollout"})
"""Findings that say what is seen and not why: of equal weight, another comes first."""


def first_failure(findings: Sequence[Finding]) -> Finding | None:
    """Return the finding the verdict follows from: of the causes of medium severity or above the worst.

    Of equal ones it is what names a cause, then the earliest. A cause is as bad as the worst that follows from it.
    """
    serious = [finding for finding in findings if finding.severity.at_least(Severity.MEDIUM)]
    known = {finding.id for finding in serious}
    roots = [one for one in serious if one.consequence_of not in known or one.consequence_of == one.id]
    return min(
        roots or serious, key=lambda root: (_weight(root, serious), root.id in SYMPTOMS, *by_onset(root)), default=None
    )


def _weight(root: Finding, findings: Sequence[Finding]) -> int:
    """Return how bad a finding is with all that follows from it, 0 the worst.

    Slowness that brought about nothing but slowness weighs less than a fault of the policy: it costs time, not the run.
    """
    below, pending = {root.id}, [root.id]
    while pending:
        cause = pending.pop()
        following = {finding.id for finding in findings if finding.consequence_of == cause} - below
        below |= following
        pending += sorted(following)
    if below <= SLOWNESS and ((below == {root.id} and root.link is Link.SYSTEMS) or root.id == "tool-latency"):
        return Severity.LOW.rank
    return min(finding.severity.rank for finding in findings if finding.id in below)
