"""This run shows samples of one step that come from weights far older than those of the others.

What: at some recorded steps 3% or more of the samples carry a version of the weights far behind the median of their
step: by more than versions grow in eight steps, and one and the same for all such samples of the step.
Why it matters: one engine of several samples with weights that were left behind: those it started with, after it was
replaced. The trainer takes its samples for the policy's own.
What it is not: a lag of all samples alike (stale-rollouts), episodes that span several updates, or a replay
buffer: their samples are of many versions.
What to do: let an engine answer only when it holds the current weights; leave these samples out.
Source: radixark/miles#1724: a replaced engine is registered before it has its weights. The shares are our own.
"""

from __future__ import annotations

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.sample_faults import STALE_VERSIONS
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.comes_and_goes import NAMED_STEPS
from ptt.diagnostics.rules.faulty_samples import MIN_HITS
from ptt.diagnostics.rules.interface import REWARDED_LANGUAGE, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.wording import counted, pct

SHARE = 0.03  # of the samples of a step: a long episode now and then is older
HIGH_SHARE = 0.3


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the share of samples of old weights, step by step."""
    counts = None if evidence.faults is None else evidence.faults.far_versions
    if counts is None:
        return NotJudged(
            reason="no version of the weights is recorded with single samples",
            missing=("trajectories.policy_version",),
            enable="save each sample with the version of the weights that sampled it (slime, miles: weight_versions)",
            absent=True,
        )
    share = counts.hits / counts.trials
    at = np.flatnonzero((share >= limits["share"]) & (counts.hits >= 2))
    if not len(at) or counts.hits[at].sum() < MIN_HITS:
        return Healthy(
            reason=f"{pct(counts.share)} of samples are of one version more than {STALE_VERSIONS} steps "
            "behind the others'"
        )
    steps = counts.steps[at].tolist()
    named = steps if len(steps) == NAMED_STEPS + 1 else steps[:NAMED_STEPS]
    more = f" and {len(steps) - len(named)} more" if len(steps) > len(named) else ""
    worst = float(counts.hits[at].sum() / counts.trials[at].sum())
    return Finding(
        severity=Severity.HIGH if worst >= limits["high"] else Severity.MEDIUM,
        claim=f"At step{'s' if len(steps) > 1 else ''} {', '.join(map(str, named))}{more}, {pct(worst)} of the samples "
        f"come from weights more than {STALE_VERSIONS} steps older than the others': "
        "an engine that did not have the current weights",
        observed=worst,
        limit=limits["share"],
        unit="share",
        onset_step=int(steps[0]),
        onset_interval=(int(steps[0]), int(steps[0])),
        evidence={"metric": "trajectories.policy_version", "steps": len(steps), "samples": int(counts.hits[at].sum())},
        causes=(
            "an engine that was restarted or replaced answers before it has the trainer's weights",
            "one engine of several misses the weight updates",
            "a replay buffer that gives back samples of one earlier step",
        ),
        confirm=(
            f"find in the console what happened to the engines before step {steps[0]}: a restart, a health check?",
        ),
        next=(
            "register an engine with the router only when it holds the current weights",
            f"leave these samples out of training: {counted(int(counts.hits[at].sum()), 'recorded sample(s)')}",
        ),
    )


RULE = rule(
    check, "old-weights-in-batch", Link.DATA_FRESHNESS, share=SHARE, high=HIGH_SHARE, families=REWARDED_LANGUAGE
)
