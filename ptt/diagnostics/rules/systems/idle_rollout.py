"""This run shows one half of the loop waiting for the other.

What: over 20 steps and to the end, the trainer waits for samples, or the sampler waits for weights, for more than half
of the step time, and did not at first. Low: it has waited as long from the start, as loops whose sides take turns log
it too; or both wait while rewards are scored, for more than half of the step.
Why it matters: half of the machines stand idle. Raising the number of samples in flight to fill the gap trades time for
staleness.
What it is not: generation in a loop whose two sides take turns. There nothing waits that could work; its share, noted
from nine tenths up, only shows where time goes.
What to do: find out which side is slow and why (a long tail of answers, tools, too few engines), then move machines to
it.
Source: what prime-rl's guide says of `time/wait_for_batch` and `time/wait_for_policy`; veRL's `idle_ratio`; slime's
`train_wait_time`. Half is the point from which moving one machine in four to the other side pays for itself.
"""

from __future__ import annotations

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import early_level
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.single_series import aligned, derived, late_mean, metric_evidence
from ptt.diagnostics.wording import pct

WAITING_LIMIT = 0.5  # of the time of a step; see the source above
GENERATION_LIMIT = 0.9
SHARES = {"idle/trainer": "the trainer", "idle/rollout": "the sampler"}
TIMES = {"time/wait_rollout": "the trainer", "time/wait_trainer": "the sampler"}
WAITS_FOR = {"the trainer": "samples", "the sampler": "new weights"}


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the share of time either side waits."""
    shares, scoring = _shares(evidence), _scoring(evidence, limits["waiting"])
    if not shares and not scoring:
        return NotJudged(
            reason="no time that one side waits for the other is logged beside the step time",
            missing=("time/wait_rollout", "time/step"),
            enable="only loops whose two sides run at the same time can wait like this: prime-rl logs "
            "time/wait_for_batch, slime perf/train_wait_time, NeMo-RL exposed_generation, veRL's asynchronous "
            "trainer idle_ratio",
        )
    limit = limits["waiting"]
    findings = list(scoring)
    shares_at_end = []
    for side, share in shares.items():
        _, mean = share.rolling()
        last = float(mean[np.isfinite(mean)][-1])
        shares_at_end.append(f"{side} waits for {pct(last)} of a step at the end")
        onset = share.excess(limit)
        if onset is not None and last > limit:
            findings.append(_finding(side, share, onset, last, limit))
    if findings:
        return Broken(findings=tuple(findings))
    return Healthy(reason="; ".join(shares_at_end), notes=_generation(evidence))


def _shares(evidence: Evidence) -> dict[str, Series]:
    """Return the share of time that each side waits, where known, the writer's own before one made from times."""
    shares: dict[str, Series] = {}
    for name, side in SHARES.items():
        series = evidence.metrics.get(name)
        if series is not None and len(series.finite()[0]) >= MIN_LOGGED:
            shares[side] = series
    for name, side in TIMES.items():
        share = _share_of_step(evidence, name)
        if share is not None:
            shares.setdefault(side, share)
    return shares


def _share_of_step(evidence: Evidence, name: str) -> Series | None:
    """Return a time as a share of the step's, if both are logged; it may fall outside of the step's own time."""
    part, whole = evidence.metrics.get(name), evidence.metrics.get("time/step")
    if part is None or whole is None:
        return None
    steps, times, wholes = aligned(part, whole)
    usable = (wholes > 0) & (times >= 0)
    if usable.sum() < MIN_LOGGED:
        return None
    return derived(part, steps[usable], times[usable] / np.maximum(wholes[usable], times[usable]))


def _finding(side: str, share: Series, onset: int, last: float, limit: float) -> Finding:
    trainer = side == "the trainer"
    level = early_level(share)
    by_design = level is not None and level.median > limit
    return Finding(
        severity=Severity.LOW if by_design else Severity.MEDIUM,
        claim=f"{side.capitalize()} waits for {WAITS_FOR[side]} for {pct(last)} of the step time",
        observed=last,
        limit=limit,
        unit="share",
        onset_step=onset,
        onset_interval=(share.first_above(limit, onset), onset),
        evidence=metric_evidence(share, who_waits=side, early_share=level.median if level is not None else None),
        causes=(
            "a few very long answers that a whole batch waits for",
            "slow tools or a slow reward",
            "too few engines for the trainer",
        )
        if trainer
        else ("too few trainer machines for the engines", "a slow transfer of weights", "checkpoints that block"),
        confirm=(
            "compare the longest rollout with the median: a long tail, or all equally slow?"
            if trainer
            else "compare the time of the update with the time it takes to send weights",
        ),
        next=(
            "shorten the tail (time limits, partial rollouts) or move machines to sampling",
            "only then raise the samples in flight, and watch staleness and the tails of the log-ratio",
        )
        if trainer
        else ("move machines to the trainer, or sample less ahead",),
    )


def _generation(evidence: Evidence) -> tuple[Finding, ...]:
    share = _share_of_step(evidence, "time/generation")
    if share is None or (onset := share.excess(GENERATION_LIMIT)) is None:
        return ()
    last = late_mean(share)
    note = Finding(
        severity=Severity.INFO,
        claim=f"Generation takes {pct(last)} of a step",
        observed=last,
        limit=GENERATION_LIMIT,
        unit="share",
        onset_step=onset,
        evidence=metric_evidence(share),
        causes=("long answers", "slow tools"),
        next=("if time matters, look at the longest answers of a batch first",),
    )
    return (note,)


def _scoring(evidence: Evidence, limit: float) -> tuple[Finding, ...]:
    """Return a finding where scoring rewards takes most of a step to its end: sampler and trainer both wait for it."""
    share = _share_of_step(evidence, "time/reward")
    if share is None or (onset := share.excess(limit)) is None or (last := late_mean(share)) <= limit:
        return ()
    found = Finding(
        severity=Severity.LOW,
        claim=f"Scoring rewards takes {pct(last)} of the step time, while sampler and trainer wait",
        observed=last,
        limit=limit,
        unit="share",
        onset_step=onset,
        onset_interval=(share.first_above(limit, onset), onset),
        evidence=metric_evidence(share, who_waits="both"),
        causes=(
            "a reward model or judge on too few devices",
            "a reward function that runs code or calls a service for one answer after another",
        ),
        confirm=("time the reward of one batch by itself: does the model, the service or the code take it?",),
        next=("score answers as they arrive and many at once, or give the reward more devices",),
    )
    return (found,)


RULE = rule(check, "idle-rollout", Link.SYSTEMS, max_severity=Severity.MEDIUM, waiting=WAITING_LIMIT)
