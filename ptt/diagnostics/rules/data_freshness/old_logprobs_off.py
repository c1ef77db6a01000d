"""This run shows old logprobs that do not belong to the policy that sampled.

What: from recorded tokens. Either the current policy matches the engine's logprobs better than the old logprobs do, at
half of the steps or more, although it has been updated since; or policy and old logprobs differ by more than 0.2 nats
on one token in a hundred at every recorded step, including the first.
Why it matters: the clipped ratio is policy over old. If old belongs to another policy (other weights, dropout on, other
prompt, other temperature), the ratio starts away from 1: clipping cuts at random and the gradient is noise.
What it is not: many updates on one batch: there too the first one starts at a ratio of 1. Nor a dump that is written
after the update on its batch: its distance from the old logprobs is the update itself. It is where the old logprobs
are the engine's to 0.05 nats, or where the KL that the trainer logs as the mean over its updates is less than half of
what the dump's distance alone gives (mean |r| squared over 2): the policy was nearer at the earlier ones.
What to do: at the first update on a batch, the ratio must be 1 for all tokens. Find what makes it differ there.
Source: the definition of PPO's ratio (arXiv 1707.06347); the two tests are our own.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity, Steps
from ptt.diagnostics.rules.data_freshness import MIN_STEPS
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.single_series import aligned, series_evidence
from ptt.diagnostics.wording import sig

MAX_NEAREST_P99 = 0.2  # nats of p99: the clip range; the first update on a batch should find nothing at all
MAX_DISTANCE_RATIO = 0.5  # times as far from the engine: the updated policy is clearly the better match
MIN_DISTANCE = 0.05  # nats of mean |old - rollout|: below it both match
MIN_SHARE = 0.5  # of the steps
GREW_IN_BATCH = 0.5  # of the least KL of the dump: below it the trainer saw smaller ratios earlier in the batch


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the old logprobs by the policy's and by the engine's."""
    update = evidence.pairs.get("policy/old")
    if update is None or len(update.p99.finite()[0]) < MIN_STEPS:
        return NotJudged(
            reason="no old logprobs are recorded beside the policy's"
            if update is None
            else f"fewer than {MIN_STEPS} steps have both policy and old logprobs",
            missing=("old_logp", "policy_logp"),
            enable="record old_logp and policy_logp of every step, and rollout_logp where the engine gives it",
        )
    steps, p99 = update.p99.finite()
    nearest = float(p99.min())
    if nearest > limits["never_near"] and (why := _after_update(evidence, update.mean_abs)):
        return Healthy(reason=f"p99 of |policy - old| is at least {sig(nearest)} nats, which is the update: {why}")
    if nearest > limits["never_near"]:
        claim = "The policy never matches its own old logprobs: p99 of |policy - old| is "
        claim += f"at least {sig(nearest)} nats"
        return _finding(claim, update.p99, nearest, limits["never_near"], "nats", (int(steps[0]),) * 2)
    if {"policy/rollout", "old/rollout"} <= set(evidence.pairs):
        old = evidence.pairs["old/rollout"].mean_abs
        steps, near, far = aligned(evidence.pairs["policy/rollout"].mean_abs, old)
        nearer = (far > MIN_DISTANCE) & (near < limits["nearer"] * far)
        if len(steps) >= MIN_STEPS and nearer.mean() >= MIN_SHARE:
            first = int(np.flatnonzero(nearer)[0])
            interval = (int(steps[max(0, first - 1)]), int(steps[first]))
            claim = "The updated policy matches the engine better than the old logprobs do"
            ratio = float(np.median(near[nearer] / far[nearer]))
            return _finding(claim, old, ratio, limits["nearer"], "x", interval)
    return Healthy(reason=f"p99 of |policy - old| is {sig(nearest)} nats where it is smallest")


def _after_update(evidence: Evidence, distance: Series) -> str:
    """Return why the policy's distance from the old logprobs is the update on the batch, or nothing."""
    sampled = evidence.pairs.get("old/rollout")
    if sampled is not None and len(sampled.mean_abs.finite()[0]) >= MIN_STEPS:
        gap = float(np.median(sampled.mean_abs.finite()[1]))
        return f"the old logprobs are the engine's to {sig(gap)} nats" if gap <= MIN_DISTANCE else ""
    logged = evidence.metrics.get("kl/old")
    if logged is None:
        return ""
    steps, kl, mean_abs = aligned(logged, distance)
    if len(steps) < MIN_STEPS:
        return ""
    mean, least = float(np.median(kl)), float(np.median(mean_abs**2 / 2))
    if not 0 < mean < GREW_IN_BATCH * least:
        return ""
    return f"{logged.raw_name} is {sig(mean)} nats over the updates of a batch, {sig(least)} or more in the dump"


def _finding(claim: str, series: Series, observed: float, limit: float, unit: str, interval: Steps) -> Finding:
    return Finding(
        severity=Severity.MEDIUM,
        claim=claim,
        observed=observed,
        limit=limit,
        unit=unit,
        onset_step=interval[1],
        onset_interval=interval,
        evidence=series_evidence(series),
        causes=(
            "old logprobs taken from other weights: the engine's, or those of an earlier step",
            "dropout, or a different temperature, in one of the two passes",
            "sequences and old logprobs in different order",
        ),
        confirm=("at the first update on a batch, print the ratio of ten tokens: all must be 1 to three decimals",),
        next=(
            "recompute the old logprobs with the trainer's weights just before the first update",
            "then switch dropout off and use the same temperature in both passes",
        ),
    )


RULE = rule(
    check,
    "old-logprobs-off",
    Link.DATA_FRESHNESS,
    max_severity=Severity.MEDIUM,
    never_near=MAX_NEAREST_P99,
    nearer=MAX_DISTANCE_RATIO,
)
