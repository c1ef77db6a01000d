"""This run shows ranks that are slower than the others, or that stopped recording.

What: over windows of 20 steps a rank's score lies below 0.75 and beyond its noise: the best rank's time over its own,
or its own best time so far over its time now. In half of the windows that is chronic; less often it is a note. A rank
that stops recording while others continue is a separate finding.
Why it matters: the slowest rank sets the pace of all; a score of 0.75 wastes a quarter of every other device.
What it is not: visible in the time of a whole step. A step ends when gradients have been summed over all ranks, so a
slow rank slows every rank and their times are equal. Only the time of work before that point shows which rank is slow.
What to do: move the rank to another device or node: if the slowness stays with the device, it is the machine; if it
follows the rank, it is that rank's share of the work.
Source: both scores and the 0.75 as in NVIDIA's resiliency extension (straggler detection); chronic slowness uses an
exponentially weighted share of windows, so a single hiccup raises no alarm.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.machines import ByRank, Measure
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import (
    EVERY,
    Broken,
    Finding,
    Healthy,
    Limits,
    NotJudged,
    Verdict,
    does_not_apply,
    rule,
)
from ptt.diagnostics.statistics.rank_scores import MIN_STEPS, RankScores, score_ranks, weighted_share
from ptt.diagnostics.wording import sig

SCORE_LIMIT = 0.75  # of the best rank, or of its own best: see the source above
HIGH_SCORE = 0.5
CHRONIC_SHARE = 0.5  # of the windows, or of their weighted share at the end
SILENT_SHARE = 0.1  # of the steps, at the end of the run
SILENT_STEPS = 20
MIN_MEDIAN_SCORE = 0.9  # of the middle rank's score against its own best: below it, all ranks slowed down
MIN_ROWS = 3  # of Microsoft's straggler rows that name one rank, by its own definition of consistent
ENABLE = (
    "record the time of the forward and backward pass by rank, before gradients are summed: NVIDIA's resiliency "
    "extension, AReaL's perf_tracer, or one JSON line per step and rank with a file name that holds rank_N"
)


class SlowRank(NamedTuple):
    """One rank that is slow in one timing."""

    metric: ByRank
    place: str
    score: float  # median over the flagged windows
    own: bool  # against its own best rather than against the best rank
    chronic: bool
    onset: int
    windows: int
    of: int


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge times by rank, and who fell silent."""
    machines = evidence.machines
    timings = machines.of(Measure.TIME, Measure.WHOLE_STEP) if machines else ()
    by_step = [metric for metric in machines.metrics if metric.by_step] if machines else []
    silent = [finding for metric in by_step if (finding := _silent(metric)) is not None][:1]
    scored = [(metric, scores) for metric in timings if metric.by_step and (scores := _scores(metric)) is not None]
    slow = [rank for metric, scores in scored for rank in _slow_ranks(metric, scores, limits["score"])]
    findings = [*_findings(slow, limits["score"]), *silent, *_by_rows(evidence, limits["score"])]
    broken = tuple(finding for finding in findings if finding.severity.at_least(Severity.MEDIUM))
    if broken:
        return Broken(findings=broken)
    notes = tuple(findings)
    inner = [scores for metric, scores in scored if metric.measure is Measure.TIME]
    if inner:
        worst = min(float(scores.overall.min()) for scores in inner)
        reason = f"the slowest rank's score is {worst:.2f} in {len(inner)} timings, limit {limits['score']:g}"
        return Healthy(reason=reason, notes=notes)
    if notes:
        return Healthy(reason=notes[0].claim, notes=notes)
    if not scored and evidence.run.context.get("world_size") == 1:
        return does_not_apply("the run has only one process")
    reason = (
        "the only times by rank are those of whole steps, which end when gradients have been summed: a slow rank "
        "slows every rank and does not show"
        if scored
        else f"fewer than two ranks record times at {MIN_STEPS} common steps"
    )
    return NotJudged(reason=reason, missing=("ranks",), enable=ENABLE)


def _scores(metric: ByRank) -> RankScores | None:
    return score_ranks({place: series.finite() for place, series in metric.places.items()})


def _slow_ranks(metric: ByRank, scores: RankScores, limit: float) -> list[SlowRank]:
    """Return the ranks below the limit, by either score; nobody where most ranks slowed down alike."""
    others = np.median(scores.own, axis=1, keepdims=True) >= MIN_MEDIAN_SCORE
    against_best = (scores.relative < limit) & scores.beyond
    against_self = (scores.own < limit) & others & ~against_best
    slow = []
    for column, place in enumerate(scores.places):
        flags = against_best[:, column] | against_self[:, column]
        if not flags.any():
            continue
        own = int(against_self[:, column].sum()) > int(against_best[:, column].sum())
        score = (scores.own if own else scores.relative)[flags, column]
        share = float(flags.mean())
        chronic = bool(max(share, weighted_share(flags)) >= CHRONIC_SHARE and (flags.sum() > 1 or len(flags) == 1))
        onset, count = int(scores.starts[np.argmax(flags)]), int(flags.sum())
        middle = float(np.median(score))
        if not own:  # against the rank that is best over these windows: the best of each one is the luckiest
            each = np.median(scores.relative[flags], axis=0)
            middle = float(each[column] / each.max())
        slow.append(SlowRank(metric, place, middle, own, chronic, onset, count, len(flags)))
    return slow


def _findings(slow: list[SlowRank], limit: float) -> list[Finding]:
    """Return one finding for each of the five slowest ranks, on the timing in which it is slowest."""
    worst: dict[str, SlowRank] = {}
    for rank in sorted(slow, key=lambda rank: (not rank.chronic, rank.score, rank.place)):
        worst.setdefault(rank.place, rank)
    return [_finding(rank, len(worst), limit) for rank in list(worst.values())[:5]]


def _finding(rank: SlowRank, slow_ranks: int, limit: float) -> Finding:
    name, whole = rank.metric.name, rank.metric.measure is Measure.WHOLE_STEP
    against = "its own best" if rank.own else "the best rank"
    often = f"in {rank.windows} of {rank.of} windows"
    severity = Severity.HIGH if rank.score < HIGH_SCORE else Severity.MEDIUM
    return Finding(
        severity=severity if rank.chronic else Severity.LOW,
        claim=f"{rank.place} takes {sig(1 / rank.score)} times as long as {against} for {name}, {often}"
        + ("; the time includes waiting for all ranks, so the real factor is larger" if whole else ""),
        observed=rank.score,
        limit=limit,
        unit=f"of {against}'s speed" if not rank.own else "of its best speed",
        onset_step=rank.onset,
        evidence={
            "metric": name,
            "rank": rank.place,
            "against": against,
            "chronic": rank.chronic,
            "slow_ranks": slow_ranks,
            "ranks": len(rank.metric.places),
        },
        causes=(
            "a device that throttles or has errors, a slow link",
            "more tokens than the others get, or longer sequences",
            "another process on that node",
        ),
        confirm=(f"swap {rank.place} with another device: does the slowness move with the device or with the rank?",),
        next=("replace the device, or balance the tokens between ranks; change nothing in the optimisation",),
    )


def _silent(metric: ByRank) -> Finding | None:
    """Return the finding on a rank that recorded up to some step and no more."""
    last = {place: int(series.steps[-1]) for place, series in metric.places.items() if len(series.steps) >= MIN_STEPS}
    if len(last) < 2:
        return None
    end, start = max(last.values()), min(int(series.steps[0]) for series in metric.places.values())
    place, at = min(last.items(), key=lambda item: (item[1], item[0]))
    gap, limit = end - at, max(SILENT_STEPS, SILENT_SHARE * (end - start))
    if gap < limit:
        return None
    count = sum(end - step >= gap / 2 for step in last.values())
    return Finding(
        severity=Severity.HIGH if count < len(last) / 2 else Severity.LOW,
        claim=f"{place} stopped recording {metric.name} after step {at}; others continue to step {end}",
        observed=float(gap),
        limit=float(limit),
        unit="steps",
        onset_step=at + 1,
        onset_interval=(at, at + 1),
        evidence={"metric": metric.name, "rank": place, "silent_ranks": count, "ranks": len(last)},
        causes=("the process of that rank hangs or died", "its log was not copied", "fewer ranks after a restart"),
        confirm=(f"look at the end of the output of {place}: a traceback, a timeout of a collective, or nothing?",),
        next=(
            "if it died, everything after that step was averaged over fewer ranks: go back to the checkpoint before",
        ),
    )


def _by_rows(evidence: Evidence, limit: float) -> list[Finding]:
    """Judge Microsoft's rows: a rank and how many times the mean of all ranks its step takes."""
    who, factor = evidence.other.get("straggler_rank"), evidence.other.get("straggler_slowdown_factor")
    if who is None or factor is None or not len(factor.finite()[0]):
        return []
    at, factors = factor.finite()
    ranks, counts = np.unique(who.finite()[1], return_counts=True)
    rank, times = int(ranks[np.argmax(counts)]), int(counts.max())
    median = float(np.median(factors))
    chronic = times >= MIN_ROWS and 1 / median < limit
    return [
        Finding(
            severity=Severity.MEDIUM if chronic else Severity.LOW,
            claim=f"Microsoft's callback noted rank {rank} as the slowest {times} times, at {sig(median)} times the "
            "mean; its times include waiting for all ranks, so the real factor is larger",
            observed=1 / median,
            limit=limit,
            unit="of the mean speed",
            onset_step=int(at[0]),
            evidence={"metric": "straggler_slowdown_factor", "logged_as": factor.raw_name, "rank": rank, "rows": times},
            causes=("a device that throttles or has errors", "more tokens than the others get"),
            confirm=(f"swap rank {rank} with another device: does the slowness move with it?",),
            next=("replace the device, or balance the tokens between ranks",),
        )
    ]


RULE = rule(check, "stragglers", Link.SYSTEMS, score=SCORE_LIMIT, families=EVERY)
