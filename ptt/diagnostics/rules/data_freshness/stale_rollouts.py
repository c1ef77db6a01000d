"""This run shows rollouts that come from a policy many versions old.

What: at a quarter of the steps or more, from the first such step on, the sequences that were trained on are more than
8 versions behind on average. Medium or high where distances between sampler and trainer (or the clip fraction) are
larger at these steps than at fresh ones, or where the lag keeps growing; else low.
Why it matters: the update is made on what another policy did. Loss and gradients can still be computed; but ratios
spread, clipping becomes hard to read, and the policy is pushed by samples it would no longer draw.
What it is not: an asynchronous run as declared. A few versions of lag are its price and do no harm.
What to do: first find why the sampler is behind: a weight sync that is skipped, rare, or fails; a queue that grows.
Then bound the lag. Only then correct for it by weights.
Source: AReaL (arXiv 2505.24298) bounds the lag at 8 and less and loses accuracy beyond; M2PO (arXiv 2510.01161) on what
stale data does before it shows. Versions are taken to go up by one a step, and lags counted from the freshest sequence.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import lasting_rise
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.data_freshness import lag_of, response
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.single_series import last_mean, series_evidence

LAG_LIMIT = 8.0  # versions; see the source above
STALE_SHARE = 0.25  # of the steps from the first stale one on: a sampler refreshed now and then is fresh in between
GROWTH_FACTOR = 2.0  # times its early level: the lag is not held
HIGH_P99 = 1.0  # nats of p99: one token in a hundred is e times likelier or less likely than when it was sampled


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge how many versions behind the trained sequences were."""
    lag = lag_of(evidence)
    if lag is None:
        fresh = evidence.freshness
        return NotJudged(
            reason="no policy version and no staleness is recorded"
            if fresh is None
            else fresh.no_lag_reason or "too few steps have a policy version",
            missing=("policy_version", "staleness/mean"),
            enable="record policy_version with every sequence, counted up with every step of the trainer, or log the "
            "staleness of each batch",
        )
    limit = limits["lag"]
    steps, lags = lag.finite()
    stale = np.flatnonzero(lags > limit)
    if not len(stale) or len(stale) < limits["share"] * (len(lags) - stale[0]):
        average = f"{float(lags.mean()):.2g} versions behind on average, {lags.max():.3g} at most"
        return Healthy(reason=f"the trained sequences are {average}")
    first = int(stale[0])
    interval = (int(steps[max(0, first - 1)]), int(steps[first]))
    effect = response(evidence, lag, limit)
    rise = lasting_rise(lag, floor=limit, factor=GROWTH_FACTOR)
    grows = rise is not None and not rise.ended
    severity = Severity.MEDIUM if effect or grows else Severity.LOW
    clause = "" if grows else "; they show no effect"
    if effect is not None:
        severity = Severity.HIGH if effect.stale > HIGH_P99 else severity
        clause = f", and {effect.measured} is {effect.stale:.2g} there against {effect.fresh:.2g} at fresh steps"
    return Finding(
        severity=severity,
        claim=f"Rollouts are up to {float(lags.max()):.3g} policy versions old{clause}",
        observed=float(np.median(lags[stale])),
        limit=limit,
        unit="versions",
        onset_step=interval[1],
        onset_interval=interval,
        evidence=series_evidence(
            lag,
            share_of_steps=float((lags > limit).mean()),
            last_mean=last_mean(lag),
            most=float(lags.max()),
            lag_grows=grows,
            measured=effect.measured if effect else None,
            at_fresh_steps=effect.fresh if effect else None,
            at_stale_steps=effect.stale if effect else None,
        ),
        causes=(
            "the sampler's weights are synced too rarely, or a sync failed",
            "a rollout queue longer than the trainer can use up",
            "long trajectories that outlive many updates",
        ),
        confirm=(
            f"compare the sampler's weights with the trainer's at step {interval[1]} (a checksum of one layer), or "
            "find the weight syncs in its log",
            "plot the distance of sampler and trainer by lag: near nothing at lag 0, it is staleness and no mismatch",
        ),
        next=(
            "sync the sampler's weights at every step for 50 steps, nothing else changed: the tails must go",
            f"restart from a checkpoint from before step {interval[0]}: what stale samples taught stays learnt",
            "then bound the lag (drop or regenerate what is older), and log it",
            "only then weigh by policy over sampler, capped, for the lag that is left",
        ),
    )


RULE = rule(check, "stale-rollouts", Link.DATA_FRESHNESS, lag=LAG_LIMIT, share=STALE_SHARE)
