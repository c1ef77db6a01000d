"""This run shows gradient norms far above their own usual level, again and again.

What: the gradient norm exceeds ten times its usual level, at three steps or more and at least one step in a hundred.
The usual level is the median of the 50 steps before, or of the run's first 50 where that is higher, and half of their
upper quartile at least: where a task is solved, or most groups have no signal, most gradients are nearly zero, and an
ordinary one is no spike.
Why it matters: clipping hides the size of such a step but not its direction: a few tokens decide it.
What to do: look at the batch of the first spike: outlier rewards, extreme log-ratios and padding in the loss where the
policy samples its own data; damaged or very short examples where data are given. Fewer spikes are reported at low
severity.
Source: relative to the run's own level, because norms differ a thousandfold between models; one spike is no pattern.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import samples_online
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.single_series import metric_evidence
from ptt.diagnostics.wording import sig

SPIKE_FACTOR = 10.0  # times the median of the steps before: beyond the batch-to-batch noise of a healthy run (2 to 4)
LEVEL_STEPS = 50  # steps that give the usual level
UPPER_SHARE = 0.5  # of the upper quartile: above the median only if half of the steps have hardly any gradient
MIN_SPIKES = 3
MIN_SHARE = 0.01


class Advice(NamedTuple):
    """What makes such steps, and what to do: of a pattern, and of a single spike."""

    causes: tuple[str, ...]
    confirm: tuple[str, ...]
    next: tuple[str, ...]
    single_cause: str
    single_effect: str


SAMPLED = Advice(
    causes=("a few tokens with extreme log-ratios or advantages", "reward outliers"),
    confirm=("compare the norm with the largest |log-ratio| and |advantage| of the same steps",),
    next=("look at the samples of the step of the first spike, largest |advantage| first",),
    single_cause="one batch with an outlier reward, a very short answer or an extreme log-ratio",
    single_effect="check whether reward or KL moved within 20 steps after it",
)
GIVEN = Advice(
    causes=(
        "damaged or foreign examples: wrong template, wrong language, noise, very long or very short answers",
        "a batch with few tokens in the loss",
        "a borderline learning rate, or warm-up that ends too early",
    ),
    confirm=("rank the examples of those batches by their own loss: do a few of them cause the spike?",),
    next=(
        "remove or fix these examples",
        "if the batches are fine: halve the learning rate or double the warm-up, and change nothing else",
    ),
    single_cause="one batch with a damaged, very long or very short example",
    single_effect="check whether the loss rose within 20 steps after it",
)
"""For training on given data, which has neither advantages nor ratios."""


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the logged gradient norm."""
    series = evidence.metrics.get("grad_norm")
    count = 0 if series is None else len(series.finite()[0])
    if series is None or count <= LEVEL_STEPS:
        too_few = f"{count} gradient norms are logged; a usual level needs {LEVEL_STEPS}"
        return NotJudged(
            reason="no gradient norm is logged" if series is None else too_few,
            missing=("grad_norm",),
            enable="log the gradient norm before clipping",
            absent=series is None,
        )
    advice = SAMPLED if samples_online(evidence.algorithm) else GIVEN
    steps, values = series.finite()
    windows = sliding_window_view(values[:-1], LEVEL_STEPS)
    middle, upper = np.quantile(windows, [0.5, 0.75], axis=1)
    usual = np.maximum(np.maximum(middle, UPPER_SHARE * upper), max(middle[0], UPPER_SHARE * upper[0]))
    ratio = np.divide(values[LEVEL_STEPS:], usual, out=np.zeros(len(usual)), where=usual > 0)
    limit = limits["times_median"]
    spikes = np.flatnonzero(ratio > limit)
    largest = float(ratio.max())
    pattern = len(spikes) >= max(MIN_SPIKES, MIN_SHARE * len(ratio))
    above = f"{len(spikes)} of {len(ratio)} steps above {limit:g} times the usual norm"
    reason = f"{above}, the largest {sig(largest)} times"
    if not len(spikes):
        return Healthy(reason=reason)
    step = int(steps[LEVEL_STEPS:][spikes[0] if pattern else np.argmax(ratio)])
    finding = Finding(
        severity=Severity.MEDIUM,
        claim=f"The gradient norm jumped above {limit:g} times its usual level at {len(spikes)} steps",
        observed=largest,
        limit=limit,
        unit="x",
        onset_step=step,
        onset_interval=(step, step),
        evidence=metric_evidence(series, spikes=len(spikes)),
        causes=advice.causes,
        confirm=advice.confirm,
        next=advice.next,
    )
    if pattern:
        return finding
    note = replace(
        finding,
        severity=Severity.LOW,
        claim=f"The gradient norm jumped to {sig(largest)} times its usual level at step {step}, then came back",
        evidence=metric_evidence(series, spikes=1),
        causes=(advice.single_cause,),
        confirm=(),
        next=(f"look at the samples of step {step} if {advice.single_effect}",),
    )
    return Healthy(reason=reason, notes=(note,))


RULE = rule(
    check, "gradient-spikes", Link.NUMERICS, max_severity=Severity.MEDIUM, times_median=SPIKE_FACTOR, families=EVERY
)
