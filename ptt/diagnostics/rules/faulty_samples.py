"""Template for rules on a fault that single recorded samples show: their share, and since when.

    def check(evidence: Evidence, limits: Limits) -> Verdict:
        return judge_faulty(counts, limits, unrecorded=NotJudged(...), words=_words)

`words` gets the counts since the fault is there, and says it. Limits: `share` of the samples from which it is told, and
`high`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ptt.diagnostics.evidence.counts import Counts
from ptt.diagnostics.evidence.sample_faults import since
from ptt.diagnostics.model import JsonScalar, Severity, Steps
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict
from ptt.diagnostics.wording import counted, pct

MIN_HITS: Final = 10  # faulty samples: fewer are an incident
MIN_TRIALS: Final = 20


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a finding says, but for the numbers that every such finding has."""

    claim: str
    causes: tuple[str, ...]
    confirm: tuple[str, ...]
    next: tuple[str, ...]
    evidence: Mapping[str, JsonScalar] = field(default_factory=dict)


def judge_faulty(
    counts: Counts | None, limits: Limits, *, unrecorded: NotJudged, words: Callable[[Counts, str], Told]
) -> Verdict:
    """Judge a share of samples; `words` also gets since when, as it ends a clause."""
    if counts is None or counts.total < MIN_TRIALS:
        return unrecorded
    found = since(counts, limits["share"])
    if found is None or found[1].hits.sum() < MIN_HITS:
        return Healthy(reason=f"share of {counts.name}: {pct(counts.share)} of {counts.total}")
    return finding_since(*found, counts, limits, words)


def finding_since(
    interval: Steps | None, after: Counts, counts: Counts, limits: Limits, words: Callable[[Counts, str], Told]
) -> Finding:
    """Return the finding of a share since an interval of steps, None for from the first recorded step on."""
    before = counts.before(len(counts.steps) - len(after.steps)) if interval is not None else None
    when = (
        f"at the {counted(len(after.steps), 'recorded step(s)')}"
        if interval is None
        else f"from step {interval[1]} on, {pct(before.share) if before else ''} before"
    )
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
