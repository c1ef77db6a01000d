"""This run shows a few single rewards so extreme that they dominate the learning signal.

What: one sample in a hundred, or fewer, lies more than ten times as far from the median as the 99th percentile does,
and these hold more than half of all squared deviations. A single step at which the logged mean or spread of the reward
lies so far off is a finding of low severity.
Why it matters: advantages are scaled by the batch or the group: one such sample sets the scale for all others, and its
gradient makes up nearly all of that step's.
What it is not: a rare success among zeros; reward-shape judges rewards that take few values.
What to do: read these samples; fix the scorer (a division, an overflow, a missing clamp); only then clip rewards.
Source: Engstrom et al., Implementation Matters in Deep RL (arXiv 2005.12729), on reward scaling and clipping.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES
from ptt.diagnostics.evidence.rewards import Samples
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.reward import recorded_samples
from ptt.diagnostics.rules.reward.reward_dips import is_of_reward
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray
from ptt.diagnostics.wording import pct, sig

DISTANCE_FACTOR = 10.0  # times the 99th percentile's distance from the median: a Gaussian's furthest of a million: 1.9
MIN_VARIANCE_SHARE = 0.5  # of the squared deviations
NEIGHBOURS = 10  # steps on either side
MIN_LEVELS = 10  # values: a reward of few levels has no outliers
CAUSES = ("a scorer without bounds: a division, a length, an overflow", "units mixed up for some tasks")


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge single rewards by how far the furthest lie; then the logged mean and spread, step by step."""
    samples = recorded_samples(evidence)
    verdict = samples if isinstance(samples, NotJudged) else _of_samples(samples, limits)
    if isinstance(verdict, Finding):
        return verdict
    curves = [series for name in ("reward/mean", "reward/std") if (series := evidence.metrics.get(name)) is not None]
    dips = {int(step) for one in evidence.excursions or () if is_of_reward(one) for step in one.lead.steps}
    steps = [step for series in curves if (step := _of_steps(series, limits["far"])) is not None]
    steps = [step for step in steps if step.onset_step not in dips]  # those of reward-dips
    return max(steps, key=lambda step: step.observed or 0.0, default=verdict)


def _far(values: FloatArray, factor: float) -> tuple[FloatArray, BoolArray, float]:
    """Return how far values lie from their median in usual extremes, which lie too far, and their share of variance."""
    distance = np.abs(values - np.median(values))
    usual = float(np.quantile(distance, 0.99 if len(values) >= 1000 else 0.95))
    if len(np.unique(values)) < MIN_LEVELS or usual <= 0:
        return np.zeros(len(values)), np.zeros(len(values), np.bool_), 0.0
    far = distance > factor * usual
    squares = np.square(distance / distance.max())  # relative, so that the largest doubles do not overflow
    return distance / usual, far, float(squares[far].sum() / squares.sum())


def _of_steps(series: Series, factor: float) -> Finding | None:
    """Return the finding of the one step that lies too far from all others, or None."""
    steps, values = series.finite()
    if len(values) < MIN_VALUES:
        return None
    distance, far, share = _far(values, factor)
    if far.sum() != 1 or share < MIN_VARIANCE_SHARE or far[0]:
        return None
    place = int(np.argmax(far))
    if np.sort(distance[max(0, place - NEIGHBOURS) : place + NEIGHBOURS + 1])[-2] > distance[place] / 2:
        return None  # the steps around it lie as far off: a level that was left, and no single step
    low, high = np.quantile(np.delete(values, place), [0.025, 0.975])
    return Finding(
        severity=Severity.LOW,
        claim=f"{series.raw_name} is {sig(values[place])} at one step; 95% of the others are {sig(low)} to {sig(high)}",
        observed=float(distance[place]),
        limit=factor,
        unit="x the usual extremes",
        onset_step=int(steps[place]),
        onset_interval=(int(steps[place]), int(steps[place])),
        evidence={"metric": series.name, "logged_as": series.raw_name, "value": float(values[place])},
        causes=CAUSES,
        confirm=(f"read the samples of step {steps[place]} with the highest and the lowest reward",),
        next=("record the reward of each sample: the mean shows a single one only where it is extreme",),
    )


def _of_samples(samples: Samples, limits: Limits) -> Finding | Healthy:
    count = len(samples.rewards)
    distance, far, share = _far(samples.rewards, limits["far"])
    if not distance.any():
        return Healthy(reason="rewards take only a few values")
    if share < MIN_VARIANCE_SHARE:
        ratio = distance.max()
        return Healthy(
            reason=f"the most extreme reward is {sig(ratio)} times as far from the median as the usual extremes"
        )
    worst = min(np.flatnonzero(far), key=lambda place: (-distance[place], samples.ids[place]))
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"{far.sum()} of {count} single rewards make up {pct(share)} of all variance; the most extreme is "
            f"{samples.rewards[worst]:.4g}",
        observed=float(distance[worst]),
        limit=limits["far"],
        unit="x the usual extremes",
        onset_step=int(samples.steps[far][0]),
        evidence={"metric": "reward", "outliers": int(far.sum()), "samples": count, "share_of_variance": share,
                  "trajectory_id": samples.ids[worst], "file": samples.sources[worst],
                  "step": int(samples.steps[worst])},
        causes=CAUSES,
        confirm=(f"read {samples.ids[worst]} in {samples.sources[worst]}: is it worth that much?",),
        next=("fix the scorer; clip rewards to the intended range, and log how many are clipped",),
    )  # fmt: skip


RULE = rule(check, "reward-outliers", Link.REWARD, max_severity=Severity.MEDIUM, far=DISTANCE_FACTOR)
