"""This run shows values on a different scale from the returns they predict.

What: over 20 steps the mean value is off the mean return by more than half the return's usual size, for at least 30
logged steps and up to the end of the run.
Why it matters: the same difference enters every advantage. Without normalisation all samples are pushed up or down
together; with it, the critic has still not learnt the level.
What it is not: a new critic. It starts at zero and closes in; only a gap that lasts to the end counts. Where returns
scatter around zero their mean has no size, and nothing is judged.
What to do: check that reward scaling and return normalisation reach the critic's target too, then its learning rate.
Source: the common PPO debugging guides ("value prediction scale much smaller than return"); one half is our own.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import step_noise
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.critic import ENABLE, FIT, REPAIRS, critic_metric
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.rules.single_series import aligned, derived, last_mean, lasting_excess, measured, series_evidence
from ptt.diagnostics.wording import sig

MAX_DISTANCE = 0.5  # of the return's usual size
MIN_STEPS = 30  # logged steps from the onset to the end: time enough for a critic to come nearer
MIN_SIZE = 2.0  # times its scatter that the mean return must be to have a size at all


@requires(critic_metric("critic/value_mean", what="mean value"))
def check(values: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge mean values against mean returns."""
    returns = critic_metric("critic/return_mean", what="mean return")(evidence)
    if isinstance(returns, NotJudged):
        return returns
    steps, value, paid = aligned(values, returns)
    late = paid[len(steps) // 2 :]
    size = float(abs(np.median(late))) if len(late) else 0.0
    scatter = step_noise(late)[0] if len(late) >= MIN_STEPS else 0.0  # without a trend, which is not scatter
    few = len(steps) < MIN_STEPS
    if few or size <= MIN_SIZE * scatter:
        return NotJudged(
            reason=f"{len(steps)} steps have both; {MIN_STEPS} are needed"
            if few
            else "the mean return scatters around zero, so there is no size to compare values with",
            missing=("critic/value_mean", "critic/return_mean"),
            enable=ENABLE,
        )
    excess = lasting_excess(derived(values, steps, np.abs(value - paid) / size), limits["off"])
    ends = f"values end at {sig(last_mean(values))}, returns at {sig(last_mean(returns))}"
    if excess is None or excess.last <= limits["off"] or int((steps >= excess.onset).sum()) < MIN_STEPS:
        return Healthy(reason=ends)
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"The critic's values are on a different scale from the returns: {ends}",
        unit="of the return",
        **measured(excess),
        evidence=series_evidence(values, returns_logged_as=returns.raw_name, last_value=last_mean(values)),
        causes=(
            "reward scaling or return normalisation that does not reach the critic's target",
            "a critic learning rate that is too small",
            "value clipping that holds the values back",
        ),
        confirm=(FIT,),
        next=REPAIRS,
    )


RULE = rule(check, "value-scale", Link.CRITIC, max_severity=Severity.MEDIUM, off=MAX_DISTANCE)
