"""This run shows a learning rate of 0 while training should continue.

What: the logged learning rate is exactly 0 at every step, or from some step on for at least a fifth of the logged steps
and ten of them.
Why it matters: the weights do not move; the other curves show only noise in the data.
What it is not: the last step of a schedule that ends at 0, or the first step of a warm-up. Where a console prints too
few digits to show a small rate, the rule does not judge.
What to do: set the rate, or give the scheduler the number of optimiser steps that the run really takes.
Source: `get_scheduler` of transformers keeps the rate at 0 once the planned steps are done; veRL prints three decimals.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.policy_update import DECIMALS, LOG_LEARNING_RATE, shows_small_numbers
from ptt.diagnostics.rules.single_series import metric_evidence, requires_metric

ZERO_SHARE = 0.2  # of the logged steps: a schedule may well end at 0 some steps early, not a fifth of the run
MIN_ZEROS = 10  # logged steps
MIN_VALUES = 5


@requires_metric("lr", what="learning rate", enable=LOG_LEARNING_RATE, minimum=MIN_VALUES)
def check(series: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the zeros at the end, or throughout."""
    steps, values = series.finite()
    moving = np.flatnonzero(values != 0.0)
    first = int(moving[-1]) + 1 if len(moving) else 0
    zeros = len(values) - first
    if first and zeros < max(MIN_ZEROS, limits["zero_share"] * len(values)):
        return Healthy(reason=f"the learning rate is above 0 at {len(moving)} of {len(values)} logged steps")
    if not (len(moving) and float(values[moving].min()) < 10.0**-DECIMALS) and not shows_small_numbers(
        evidence, besides="lr"
    ):
        return NotJudged(
            reason=f"{series.raw_name} is 0 at {zeros} steps, in a log with at most {DECIMALS} decimals",
            missing=("lr",),
            enable=LOG_LEARNING_RATE,
        )
    onset = int(steps[first])
    return Finding(
        severity=Severity.MEDIUM if first else Severity.HIGH,
        claim=f"The learning rate is 0 from step {onset} to the end: the last {zeros} logged steps trained nothing"
        if first
        else f"The learning rate is 0 at all {zeros} logged steps: nothing was trained",
        observed=zeros / len(values),
        limit=limits["zero_share"],
        unit="share",
        onset_step=onset,
        onset_interval=(int(steps[first - 1]) if first else onset, onset),
        evidence=metric_evidence(series, zero_steps=zeros),
        causes=("a scheduler that was given fewer steps than the run takes", "gradient accumulation counted as steps")
        if first
        else ("a rate of 0 in the configuration", "a warm-up longer than the run", "an optimiser without parameters"),
        confirm=("compare the weights of two checkpoints after that step: if they are equal, nothing is trained",),
        next=("set the scheduler's number of steps to the optimiser steps of the run, or keep the rate constant",)
        if first
        else ("set the learning rate, and check that the first logged value after warm-up is the configured one",),
    )


RULE = rule(
    check, "learning-rate-zero", Link.POLICY_UPDATE, max_severity=Severity.HIGH, zero_share=ZERO_SHARE, families=EVERY
)
