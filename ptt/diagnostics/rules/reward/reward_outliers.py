"""This run shows a few single rewards so extreme that they dominate the learning signal.

What: one sample in a hundred, or fewer, lies more than ten times as far from the median as the 99th percentile does,
and these hold more than half of all squared deviations.
Why it matters: advantages are scaled by the batch or the group: one such sample sets the scale for all others, and its
gradient makes up nearly all of that step's.
What it is not: a rare success among zeros; reward-shape judges rewards that take few values.
What to do: read these samples; fix the scorer (a division, an overflow, a missing clamp); only then clip rewards.
Source: Engstrom et al., Implementation Matters in Deep RL (arXiv 2005.12729), on reward scaling and clipping.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.rewards import Samples
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, Verdict, requires, rule
from ptt.diagnostics.rules.reward import recorded_samples

DISTANCE_FACTOR = 10.0  # times the 99th percentile's distance from the median: a Gaussian's furthest of a million: 1.9
MIN_VARIANCE_SHARE = 0.5  # of the squared deviations
MIN_LEVELS = 10  # values: a reward of few levels has no outliers


@requires(recorded_samples)
def check(samples: Samples, _: Evidence, limits: Limits) -> Verdict:
    """Judge single rewards by how far the furthest lie."""
    count = len(samples.rewards)
    distance = np.abs(samples.rewards - np.median(samples.rewards))
    usual = float(np.quantile(distance, 0.99 if count >= 1000 else 0.95))
    if len(np.unique(samples.rewards)) < MIN_LEVELS or usual <= 0:
        return Healthy(reason="rewards take only a few values")
    far = distance > limits["far"] * usual
    share = float(np.square(distance[far]).sum() / max(np.square(distance).sum(), 1e-300))
    if not far.any() or share < MIN_VARIANCE_SHARE:
        ratio = distance.max() / usual
        return Healthy(
            reason=f"the most extreme reward is {ratio:.2g} times as far from the median as the usual extremes"
        )
    worst = min(np.flatnonzero(far), key=lambda place: (-distance[place], samples.ids[place]))
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"{far.sum()} of {count} single rewards make up {share:.0%} of all variance; the most extreme is "
            f"{samples.rewards[worst]:.4g}",
        observed=float(distance[worst] / usual),
        limit=limits["far"],
        unit="x the usual extremes",
        onset_step=int(samples.steps[far][0]),
        evidence={"metric": "reward", "outliers": int(far.sum()), "samples": count, "share_of_variance": share,
                  "trajectory_id": samples.ids[worst], "file": samples.sources[worst],
                  "step": int(samples.steps[worst])},
        causes=("a scorer without bounds: a division, a length, an overflow", "units mixed up for some tasks"),
        confirm=(f"read {samples.ids[worst]} in {samples.sources[worst]}: is it worth that much?",),
        next=("fix the scorer; clip rewards to the intended range, and log how many are clipped",),
    )  # fmt: skip


RULE = rule(check, "reward-outliers", Link.REWARD, max_severity=Severity.MEDIUM, far=DISTANCE_FACTOR)
