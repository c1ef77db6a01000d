"""This run shows logged metrics that contradict each other.

What: two or more metrics of the same steps cannot all be right: a mean lies outside of its minimum and maximum, a share
above 1, a total beside parts that no longer sum to it, an importance ratio that the logged gap does not allow. Broken
beyond what rounding and the row's tolerance explain, at so many more steps of a stretch than it holds at; some bounds
break at a single step. Each group of identities with one cause gives one finding.
Why it matters: at least one of these curves is not what its name says. Where the number is also used in training (a
ratio, a reward, an advantage, a learning rate), training uses the wrong one, too.
What it is not: rounded or smoothed values, metrics of other windows or of an evaluation, names that only look alike:
these are left out, or are allowed for.
What to do: print the quantities of one batch where they are logged, with shapes and masks, and reduce them by hand.
Source: docs/audit.md lists every identity with its source; huggingface/trl issue 5814 (ratio of sequences).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.contradictions import MIN_EXCESS, RULE_ID, Break, Contradiction
from ptt.diagnostics.evidence.validity import Extent
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.data_validity import extent
from ptt.diagnostics.rules.interface import EVERY, Broken, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.wording import counted

EFFECT: Final = "at least one of these curves is not what its name says; verdicts that rest on it may be wrong"
MAX_NAMED: Final = 6  # metrics that a finding lists
MAX_CLAIMS: Final = 2  # further claims that a sentence takes
Pair = tuple[Contradiction, Break]
"""A broken identity, and where it is broken worst."""


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Report every identity that the metrics break, one finding a cause."""
    held = evidence.contradictions
    if not held:
        return NotJudged(
            reason="no two metrics are logged whose relation is known",
            missing=("further metrics of the same steps",),
            enable="log loss, gradient norm and learning rate, and mean with minimum and maximum: docs/audit.md",
        )
    broken = [(one, worst) for one in held if (worst := _worst(one, limits)) is not None]
    if not broken:
        return Healthy(reason=f"{counted(len(held), 'relation(s)')} between logged metrics hold")
    broken.sort(key=lambda pair: (_severity(*pair).rank, -pair[1].broken))
    return Broken(findings=tuple(_finding(pairs, limits) for pairs in _of_one_cause(broken)))


def _of_one_cause(broken: list[Pair]) -> list[list[Pair]]:
    """Gather identities that one cause breaks: of one group, or about one metric; the worst first."""
    groups: list[list[Pair]] = []
    for pair in broken:
        akin = [group for group in groups if any(_are_akin(pair, member) for member in group)]
        groups = [group for group in groups if group not in akin]
        groups.append([*(member for group in akin for member in group), pair])
    return groups


def _are_akin(pair: Pair, other: Pair) -> bool:
    same = pair[0].identity.group == other[0].identity.group
    return same or not {*pair[1].names}.isdisjoint(other[1].names)


def _worst(one: Contradiction, limits: Limits) -> Break | None:
    return next((found for found in one.breaks if found.excess >= limits["steps"]), None)


def _severity(one: Contradiction, found: Break) -> Severity:
    """Return the severity of an identity; a few steps, or gaps of both signs, are a fault of the log."""
    return Severity(one.identity.severity) if found.broken >= MIN_EXCESS and not found.scattered else Severity.LOW


def _finding(pairs: list[Pair], limits: Limits) -> Finding:
    (first, found), *others = pairs
    names = _named([found, *(other for _, other in others), *first.breaks])
    also = "".join(f"; {other.claim}" for _, other in others[:MAX_CLAIMS])
    interval = None if found.before is None else (found.before + 1, found.since)
    return Finding(
        severity=_severity(first, found),
        claim=f"{_capitalised(found)}{also}",
        observed=float(found.broken),
        limit=limits["steps"],
        unit="steps",
        onset_step=found.since if interval else None,
        onset_interval=interval,
        held_from_step=None if interval else found.since,
        evidence={
            "metric": found.names[0],
            "metrics": ", ".join(names[:MAX_NAMED]),
            "identities": ", ".join(one.identity.id for one, _ in pairs),
            "must_hold": first.identity.says,
            "steps_compared": found.steps,
            "steps_broken": found.broken,
            "left": found.left,
            "right": found.right,
            **extent(
                Extent(tokens=0, sequences=0, first_step=found.since, last_step=found.until, files=0, example=None),
                EFFECT,
            ),
        },
        causes=tuple(dict.fromkeys(cause for _, one in pairs for cause in one.causes)),
        confirm=(f"recompute {' and '.join(found.names[:MAX_NAMED])} of one of these steps from its batch",),
        next=tuple(dict.fromkeys(step for _, one in pairs for step in one.next)),
    )


def _capitalised(found: Break) -> str:
    """Return the claim with a capital, unless it begins with a metric's name, which keeps its spelling."""
    return found.claim if found.claim.startswith(found.names) else f"{found.claim[:1].upper()}{found.claim[1:]}"


def _named(breaks: Iterable[Break]) -> list[str]:
    return list(dict.fromkeys(name for found in breaks for name in found.names))


MIN_STEPS: Final = MIN_EXCESS  # by which broken steps must outnumber the others in a stretch

RULE = rule(
    check,
    RULE_ID,
    Link.DATA_VALIDITY,
    max_severity=Severity.HIGH,
    families=EVERY,
    steps=MIN_STEPS,
)
