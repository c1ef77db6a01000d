"""This run shows a loss below zero where none can be.

What: training on given answers logs a total loss below 0 at two or more steps. A cross entropy is a mean of -log p, and
p is never above 1.
Why it matters: what is minimised is not what the loss is called, or its number is computed wrongly: labels that are
masked almost everywhere, a sum divided by a count of something else, a half-precision sum that overflowed.
What it is not: the loss of a policy gradient, or of a preference objective with a margin, which may lie on either side
of 0; nor a single value that rounding put there.
What to do: compute the loss of one batch by hand, from logits and labels; count the labels that are not masked.
Source: the cross entropy is never negative (Cover and Thomas, Elements of Information Theory, section 2.1).
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Family
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, Verdict, does_not_apply, rule
from ptt.diagnostics.rules.single_series import metric_evidence, requires_metric
from ptt.diagnostics.wording import sig

MIN_BELOW = 2.0  # logged values: a single one may be a slip of the writer
MIN_LOSSES = 3  # logged: of fewer, none below 0 says nothing of the run
ROUNDING = 1e-6  # below 0: what a sum of half-precision numbers may be off by


@requires_metric("loss/total", what="loss", enable="log the loss every step", minimum=MIN_LOSSES)
def check(series: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the signs of the logged losses."""
    if evidence.algorithm.family is not Family.SUPERVISED:
        return does_not_apply("training whose loss is no cross entropy, as far as its files tell")
    steps, values = series.finite()
    below = np.flatnonzero(values < -ROUNDING)
    if len(below) < limits["below"]:
        return Healthy(reason=f"the lowest of {len(values)} losses is {sig(values.min())}")
    onset = int(steps[below[0]])
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"The loss is below 0 at {len(below)} of {len(values)} logged steps, which a cross entropy cannot be",
        observed=float(values.min()),
        limit=0.0,
        unit="loss",
        onset_step=onset,
        onset_interval=(onset, onset),
        evidence=metric_evidence(series, below=len(below)),
        causes=(
            "labels that are masked almost everywhere, so that hardly a token counts",
            "a loss that is divided by the wrong count, or that adds a term with the wrong sign",
        ),
        confirm=("compute the loss of one batch by hand, from its logits and labels",),
        next=("count the labels of a batch that are not masked; then look at what the trainer divides the sum by",),
    )


RULE = rule(check, "loss-below-zero", Link.NUMERICS, below=MIN_BELOW, families=frozenset({Family.SUPERVISED}))
