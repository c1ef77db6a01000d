"""This run shows gradient norms far above their own usual level, again and again.

What: the gradient norm exceeds ten times its usual level, at three steps or more and at one step in a hundred at least.
The usual level is the median of the 50 steps before, or of the run's first 50 where that is higher: once a task is
solved most gradients are nearly zero, and an ordinary one is then no spike.
Why it matters: clipping hides the size of such a step but not its direction: a few tokens decide it.
What to do: look at the batch of the first spike: for outlier rewards, extreme log-ratios and padding in the loss where
the policy samples its own data, for damaged or very short examples where data are given.
Fewer spikes than that are told as a note of low severity.
Source: relative to the run's own level, since norms differ a thousandfold between models; one spike is no pattern.
"""

from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Family
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Finding, Healthy, Limits, NotJudged, Rule, Verdict

SPIKE = 10.0  # times the median of the steps before: beyond the batch-to-batch noise of a healthy run (2 to 4)
BEFORE = 50  # steps that tell the usual level
MIN_SPIKES = 3
MIN_SHARE = 0.01


class Advice(NamedTuple):
    """What makes such steps, and what to do."""

    causes: tuple[str, ...]
    confirm: tuple[str, ...]
    next: tuple[str, ...]


SAMPLED = Advice(
    causes=("a few tokens with extreme log-ratios or advantages", "reward outliers"),
    confirm=("compare the norm with the largest |log-ratio| and |advantage| of the same steps",),
    next=("look at the samples of the step of the first spike, largest |advantage| first",),
)
GIVEN = Advice(
    causes=(
        "damaged or foreign examples: wrong template, wrong language, noise, very long or very short answers",
        "a batch with few tokens in the loss",
        "a learning rate at the edge, or warm-up that ends too early",
    ),
    confirm=("rank the examples of those batches by their own loss: do a few of them make the spike?",),
    next=(
        "take out or mend these examples",
        "where the batches are in order: halve the learning rate or double the warm-up, nothing else",
    ),
)
"""Of data that are given there are no advantages and no ratios."""


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the logged gradient norm."""
    series = evidence.metrics.get("grad_norm")
    sampled = evidence.algorithm.family in (None, Family.ONLINE)
    advice = SAMPLED if sampled else GIVEN
    steps, values = series.finite() if series is not None else (np.empty(0, np.int64), np.empty(0))
    if series is None or len(values) <= BEFORE:
        return NotJudged(
            reason="no gradient norm is logged"
            if series is None
            else f"{len(values)} gradient norms are logged; the usual level takes {BEFORE}",
            missing=("grad_norm",),
            enable="log the gradient norm before clipping",
        )
    before = np.median(sliding_window_view(values[:-1], BEFORE), axis=1)
    usual = np.maximum(before, np.median(values[:BEFORE]))
    ratio = np.divide(values[BEFORE:], usual, out=np.zeros(len(usual)), where=usual > 0)
    spikes = np.flatnonzero(ratio > limits["times_median"])
    worst = float(ratio.max())
    largest = int(np.argmax(ratio))
    if len(spikes) < max(MIN_SPIKES, MIN_SHARE * len(ratio)):
        return Healthy(
            reason=f"{len(spikes)} of {len(ratio)} steps above {limits['times_median']:g} times the usual norm, "
            f"the largest {worst:.2g} times",
            notes=(_single(series, int(steps[BEFORE:][largest]), worst, limits["times_median"], sampled),)
            if len(spikes)
            else (),
        )
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"The gradient norm jumped above {limits['times_median']:g} times its usual level at {len(spikes)} steps",
        observed=worst,
        limit=limits["times_median"],
        unit="x",
        onset_step=int(steps[BEFORE:][spikes[0]]),
        evidence={"metric": "grad_norm", "logged_as": series.raw_name, "spikes": len(spikes)},
        onset_interval=(int(steps[BEFORE:][spikes[0]]), int(steps[BEFORE:][spikes[0]])),
        causes=advice.causes,
        confirm=advice.confirm,
        next=advice.next,
    )


def _single(series: Series, step: int, times: float, limit: float, sampled: bool) -> Finding:
    """Note a clear spike that is no pattern."""
    return Finding(
        severity=Severity.LOW,
        claim=f"The gradient norm jumped to {times:.3g} times its usual level at step {step}, and came back",
        observed=times,
        limit=limit,
        unit="x",
        onset_step=step,
        onset_interval=(step, step),
        evidence={"metric": "grad_norm", "logged_as": series.raw_name, "spikes": 1},
        causes=(
            "one batch with an outlier reward, a very short answer or an extreme log-ratio"
            if sampled
            else "one batch with a damaged, very long or very short example",
        ),
        next=(
            f"look at the samples of step {step} if "
            + ("reward or KL moved within 20 steps after it" if sampled else "the loss rose within 20 steps after it"),
        ),
    )


RULE = Rule(id="gradient-spikes", link=Link.NUMERICS, check=check, limits={"times_median": SPIKE}, families=EVERY)
