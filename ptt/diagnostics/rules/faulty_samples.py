"""Template for rules on a fault that single recorded samples show: their share, and since when.

    def check(evidence: Evidence, limits: Limits) -> Verdict:
        return judge_faulty(counts, limits, unrecorded=NotJudged(...), words=_words)

`words` gets the counts since the fault is there, and since when, as a sentence begins with it. Limits: `share` of the
samples from which it is told, and `high`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.counts import Counts
from ptt.diagnostics.evidence.sample_faults import since
from ptt.diagnostics.model import JsonScalar, Severity, Steps
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict
from ptt.diagnostics.wording import counted, pct

MIN_HITS: Final = 10  # faulty samples: fewer are an incident
MIN_TRIALS: Final = 20
SUDDEN_STEPS: Final = 3  # recorded ones on either side of a change
SUDDEN_FACTOR: Final = 4.0  # times the share before: what grows over many steps gains less within these


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a finding says, but for the numbers that every such finding has."""

    claim: str
    causes: tuple[str, ...]
    confirm: tuple[str, ...]
    next: tuple[str, ...]
    evidence: Mapping[str, JsonScalar] = field(default_factory=dict)


def judge_faulty(
    counts: Counts | None,
    limits: Limits,
    *,
    unrecorded: NotJudged,
    words: Callable[[Counts, str], Told],
    sudden: bool = False,
) -> Verdict:
    """Judge a share of samples; where `sudden`, only one that is there from one step to the next, or from the first."""
    if counts is None or counts.total < MIN_TRIALS:
        return unrecorded
    found = since(counts, limits["share"])
    told = found is not None and found[1].hits.sum() >= MIN_HITS
    if found is None or not told or (sudden and not _is_sudden(counts, found[1], limits["share"])):
        return Healthy(reason=f"share of {counts.name}: {pct(counts.share)} of {counts.total}")
    return finding_since(*found, counts, limits, words)


def _is_sudden(counts: Counts, after: Counts, share: float) -> bool:
    place = len(counts.steps) - len(after.steps)
    just_before = counts.before(place).from_place(max(0, place - SUDDEN_STEPS))
    just_after = after.before(SUDDEN_STEPS).share
    return just_after >= share and (place == 0 or just_after >= SUDDEN_FACTOR * just_before.share)


def finding_since(
    interval: Steps | None, after: Counts, counts: Counts, limits: Limits, words: Callable[[Counts, str], Told]
) -> Finding:
    """Return the finding of a share since an interval of steps, None for from the first recorded step on."""
    before = counts.before(len(counts.steps) - len(after.steps)) if interval is not None else None
    if before is not None:
        when = f"From step {after.steps[0]} on ({pct(before.share)} before)"
    else:
        steps = len(after.steps)
        when = f"In all {counted(steps, 'recorded steps')}" if steps > 1 else "In the only recorded step"
    told = words(after, when)
    return Finding(
        severity=Severity.HIGH if after.share >= limits["high"] else Severity.MEDIUM,
        claim=told.claim,
        observed=after.share,
        limit=limits["share"],
        unit="share",
        onset_step=int(after.steps[0]) if interval is None else interval[1],
        onset_interval=interval,
        evidence={
            "metric": counts.name,
            "faulty": int(after.hits.sum()),
            "looked_at": after.total,
            "share_before": None if before is None else before.share,
            **told.evidence,
        },
        causes=told.causes,
        confirm=told.confirm,
        next=told.next,
    )
