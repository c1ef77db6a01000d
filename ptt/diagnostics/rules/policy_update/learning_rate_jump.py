"""This run shows a learning rate that jumped far above all earlier values.

What: the logged learning rate rises at one step to more than 5 times its highest earlier value. Warm-up is no jump: the
first five values and a rate that was already rising do not count.
Why it matters: one step at a hundred times the rate can undo the run, and what blows up after it (gradient norm, KL,
NaN) is the consequence.
What it is not: a warm restart, which returns to a rate that was used before.
What to do: go back to the last checkpoint before the jump, and find out what set the rate: a resume that rebuilt the
scheduler, a scheduler stepped twice or given the wrong number of steps, a sweep that edited a live configuration.
Source: schedules of transformers, TRL and veRL never exceed their peak after warm-up, and restarts return to it; 5
leaves room for a rate that was raised by hand.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Finding, Healthy, Limits, Verdict, rule
from ptt.diagnostics.rules.policy_update import LOG_LEARNING_RATE
from ptt.diagnostics.rules.single_series import metric_evidence, requires_metric
from ptt.diagnostics.wording import sig

JUMP_FACTOR = 5.0  # times the highest rate before: no schedule does it, and few people raise a rate so far at once
HIGH_FACTOR = 20.0  # times the highest before: beyond the span between full fine-tuning and adapters (10 times)
MIN_BEFORE = 5  # values: fewer may all be warm-up
RISING = 1.2  # times the value before: the rate was on its way up already


@requires_metric("lr", what="learning rate", enable=LOG_LEARNING_RATE, minimum=MIN_BEFORE + 1)
def check(series: Series, _evidence: Evidence, limits: Limits) -> Verdict:
    """Judge each logged rate against all before it."""
    steps, values = series.finite()
    highest = np.maximum.accumulate(values)
    before = highest[MIN_BEFORE - 1 : -1]
    warming = values[MIN_BEFORE - 1 : -1] > RISING * values[MIN_BEFORE - 2 : -2]
    ratio = np.divide(values[MIN_BEFORE:], before, out=np.zeros(len(before)), where=(before > 0) & ~warming)
    jumps = np.flatnonzero(ratio > limits["times_before"])
    if not len(jumps):
        return Healthy(reason=f"the learning rate stays between {sig(values.min())} and {sig(values.max())}")
    place = int(jumps[0]) + MIN_BEFORE
    step, last_good, peak = int(steps[place]), int(steps[place - 1]), float(values[place:].max())
    times = peak / float(highest[place - 1])
    return Finding(
        severity=Severity.HIGH if times > HIGH_FACTOR else Severity.MEDIUM,
        claim=f"The learning rate jumped from {sig(values[place - 1])} to {sig(values[place])} at step {step}, "
        f"{times:,.0f} times its highest earlier value",
        observed=times,
        limit=limits["times_before"],
        unit="x",
        onset_step=step,
        onset_interval=(last_good, step),
        evidence=metric_evidence(series, before=float(values[place - 1]), after=float(values[place]), highest=peak),
        causes=(
            "a resume that rebuilt the optimiser or its scheduler with a different rate",
            "a scheduler that counts different steps from the trainer",
            "a configuration edited during the run",
        ),
        confirm=(
            f"compare the optimiser state of the checkpoints around step {step}: is the rate the configured one?",
        ),
        next=(
            f"go back to the last checkpoint before step {step}, restore the rate, and resume from there",
            "assert after each resume that the first logged rate equals the last one before it",
        ),
    )


RULE = rule(
    check,
    "learning-rate-jump",
    Link.POLICY_UPDATE,
    max_severity=Severity.HIGH,
    times_before=JUMP_FACTOR,
    families=EVERY,
)
