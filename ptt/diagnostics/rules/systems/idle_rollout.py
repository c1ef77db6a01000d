"""This run shows one half of the loop waiting for the other.

What: over 20 steps the trainer waits for samples, or the side that samples waits for weights, for more than half of
the time of a step, and goes on to.
Why it matters: half of the machines stand still. Whoever then raises the number of samples in flight, to fill the
gap, trades time for staleness.
What it is not: generation in a loop that takes turns. There nobody waits who could work, and its share, told as a note
from nine tenths up, says only where time goes.
What to do: find which side is slow and why (long tail of answers, tools, too few engines), then move machines to it.
Source: what prime-rl's guide says of `time/wait_for_batch` and `time/wait_for_policy`; veRL's `idle_ratio`; slime's
`train_wait_time`. Half is the point from which moving one machine in four to the other side pays for itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import early_level
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, NotJudged, Verdict, rule

WAITING = 0.5  # of the time of a step; see the source above
ALL_GENERATION = 0.9
SHARES = {"idle/trainer": "the trainer", "idle/rollout": "the side that samples"}
TIMES = {"time/wait_rollout": "the trainer", "time/wait_trainer": "the side that samples"}
FOR = {"the trainer": "samples", "the side that samples": "new weights"}


class Share(NamedTuple):
    """How much of the time one side waits, by step."""

    who: str
    series: Series


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the share of time either side waits."""
    shares = _shares(evidence)
    if not shares:
        return NotJudged(
            reason="no time that one side waits for the other is logged beside the time of a step",
            missing=("time/wait_rollout", "time/step"),
            enable="only loops whose two sides run at the same time can wait so: prime-rl logs time/wait_for_batch, "
            "slime perf/train_wait_time, NeMo-RL exposed_generation, veRL's asynchronous trainer idle_ratio",
        )
    broken = []
    told = []
    for share in shares:
        _, mean = share.series.rolling()
        last = float(mean[np.isfinite(mean)][-1])
        told.append(f"{share.who} waits for {last:.0%} of a step at the end")
        onset = share.series.excess(limits["waiting"])
        if onset is not None and last > limits["waiting"]:
            broken.append(_finding(share, onset, last, limits["waiting"]))
    if broken:
        return Broken(findings=tuple(broken))
    return Healthy(reason="; ".join(told), notes=_generation(evidence))


def _shares(evidence: Evidence) -> list[Share]:
    """Give the share of each side that is known, the writer's own before one made from times."""
    found: dict[str, Series] = {}
    for name, who in SHARES.items():
        series = evidence.metrics.get(name)
        if series is not None and len(series.finite()[0]) >= MIN_LOGGED:
            found[who] = series
    for name, who in TIMES.items():
        made = share_of(evidence.metrics.get(name), evidence.metrics.get("time/step"))
        if made is not None:
            found.setdefault(who, made)
    return [Share(who, series) for who, series in found.items()]


def share_of(part: Series | None, whole: Series | None) -> Series | None:
    """Give a part's share of the whole at the steps both have; the part may lie outside of what counts as the step."""
    if part is None or whole is None:
        return None
    steps, left, right = np.intersect1d(part.finite()[0], whole.finite()[0], return_indices=True)
    times, wholes = part.finite()[1][left], whole.finite()[1][right]
    usable = (wholes > 0) & (times >= 0)
    if usable.sum() < MIN_LOGGED:
        return None
    ratio = times[usable] / np.maximum(wholes[usable], times[usable])
    return replace(part, steps=steps[usable], values=ratio, flags=np.zeros(int(usable.sum()), np.uint8))


def _finding(share: Share, onset: int, last: float, limit: float) -> Finding:
    trainer = share.who == "the trainer"
    level = early_level(share.series)
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"{share.who.capitalize()} waits for {FOR[share.who]} for {last:.0%} of the time of a step",
        observed=last,
        limit=limit,
        unit="share",
        onset_step=onset,
        onset_interval=(share.series.first_above(limit, onset), onset),
        evidence={
            "metric": share.series.name,
            "logged_as": share.series.raw_name,
            "who_waits": share.who,
            "early_share": level.median if level is not None else None,
        },
        causes=(
            "a few very long answers that a whole batch waits for",
            "slow tools or a slow reward",
            "too few engines for the trainer",
        )
        if trainer
        else ("too few trainer machines for the engines", "a slow transfer of weights", "checkpoints that block"),
        confirm=(
            "compare the longest with the median time of a rollout: a long tail, or all slow alike?"
            if trainer
            else "compare the time of the update with that of sending weights",
        ),
        next=(
            "shorten the tail (time limits, partial rollouts) or move machines to sampling",
            "raise the samples in flight last of all, and watch staleness and the tails of the log-ratio when you do",
        )
        if trainer
        else ("move machines to the trainer, or sample less ahead",),
    )


def _generation(evidence: Evidence) -> tuple[Finding, ...]:
    share = share_of(evidence.metrics.get("time/generation"), evidence.metrics.get("time/step"))
    if share is None or (onset := share.excess(ALL_GENERATION)) is None:
        return ()
    last = float(np.mean(share.finite()[1][-share.width :]))
    note = Finding(
        severity=Severity.INFO,
        claim=f"Generation takes {last:.0%} of a step",
        observed=last,
        limit=ALL_GENERATION,
        unit="share",
        onset_step=onset,
        evidence={"metric": share.name, "logged_as": share.raw_name},
        causes=("long answers", "slow tools"),
        next=("if time matters, look at the longest answers of a batch first",),
    )
    return (note,)


RULE = rule(check, "idle-rollout", Link.SYSTEMS, waiting=WAITING)
