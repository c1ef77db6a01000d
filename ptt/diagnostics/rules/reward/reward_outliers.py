"""This run shows a few single rewards so far from all others that they make the learning signal.

What: one sample in a hundred, or fewer, lies more than ten times as far from the median as the 99th percentile does,
and these hold more than half of all squared deviations.
Why it matters: advantages are scaled by the batch or the group: one such sample sets the scale for all others, and its
gradient is nearly the whole of that step's.
What it is not: a rare success among zeros; rewards that take few values are left to reward-shape.
What to do: read these samples; mend the scorer (a division, an overflow, a missing clamp); clip rewards only then.
Source: Engstrom et al., Implementation Matters in Deep RL (arXiv 2005.12729), on reward scaling and clipping.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.reward.reward_shape import LEAST

FAR_LIMIT = 10.0  # times the 99th percentile's distance from the median: a Gaussian's furthest of a million is at 1.9
SHARE = 0.5  # of the squared deviations
DISTINCT = 10  # values: a reward of few levels has no outliers


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge single rewards by how far the furthest lie."""
    samples = evidence.rewards.samples if evidence.rewards is not None else None
    count = 0 if samples is None else len(samples.rewards)
    if samples is None or count < LEAST:
        return NotJudged(
            reason=f"{count} single rewards are recorded; {LEAST} are needed",
            missing=("reward of each sample",),
            enable="record samples: TRL log_completions=True, veRL trainer.rollout_data_dir, slime --dump-details",
        )
    off = np.abs(samples.rewards - np.median(samples.rewards))
    usual = float(np.quantile(off, 0.99 if count >= 1000 else 0.95))
    far = off > limits["far"] * usual
    held = float(np.square(off[far]).sum() / max(np.square(off).sum(), 1e-300))
    few = len(np.unique(samples.rewards)) < DISTINCT or usual <= 0
    if few or not far.any() or held < SHARE:
        return Healthy(
            reason="rewards take few values"
            if few
            else f"the furthest reward lies {off.max() / usual:.2g} times as far off as the usual extremes"
        )
    places = sorted(np.flatnonzero(far), key=lambda place: (-off[place], samples.ids[place]))
    worst = places[0]
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"{len(places)} of {count} single rewards hold {held:.0%} of all variance; the furthest is"
        f" {samples.rewards[worst]:.4g}",
        observed=float(off[worst] / usual),
        limit=limits["far"],
        unit="x the usual extremes",
        onset_step=int(samples.steps[far][0]),
        evidence={"metric": "reward", "outliers": len(places), "samples": count, "share_of_variance": held,
                  "trajectory_id": samples.ids[worst], "file": samples.sources[worst],
                  "step": int(samples.steps[worst])},
        causes=("a scorer without bounds: a division, a length, an overflow", "a unit mixed up for some tasks"),
        confirm=(f"read {samples.ids[worst]} in {samples.sources[worst]}: is it worth that much?",),
        next=("mend the scorer; clip rewards to the range that is meant, and log how many are clipped",),
    )  # fmt: skip


RULE = rule(check, "reward-outliers", Link.REWARD, far=FAR_LIMIT)
