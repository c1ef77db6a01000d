"""This run shows a critic that explains nothing of the returns.

What: the explained variance stays below zero by more than 0.05 after the first steps (medium); or it ends between -0.05
and 0.1 after at least 50 steps (low): the critic has not learnt.
Why it matters: below zero a critic is worse than predicting the mean return for every state; its advantages add noise
to the reward.
What it is not: a warm-up. A new critic starts at zero, and the first fifth of the run does not count.
What to do: train the critic alone on one batch of rollouts. If it cannot fit them, fix targets and masks; then look at
the scale of the returns, then at its learning rate.
Source: the definition, 1 - Var(return - value) / Var(return), as veRL logs it in `critic/vf_explained_var`.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.critic import FIT, LEARNT_VARIANCE, REPAIRS, critic_metric
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, Verdict, requires, rule
from ptt.diagnostics.rules.single_series import last_mean, lasting_excess, negated, selected, series_evidence
from ptt.diagnostics.wording import sig

MIN_VARIANCE = -0.05  # below zero by more than an estimate from one batch scatters
MIN_STEPS = 50  # logged steps: before that a critic may still be learning
SAME_SHARE = 0.01  # of the reward's range: rewards this close together count as equal
WARM_UP_SHARE = 0.2  # of the logged steps: a new critic starts at zero and may overshoot


@requires(critic_metric("critic/explained_variance", what="explained variance"))
def check(series: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the logged explained variance after its warm-up."""
    if _pays_one_value(evidence):
        return Healthy(reason="the reward stays at its best, so there is no variance of returns to explain")
    steps, last = series.finite()[0], last_mean(series)
    warm = np.arange(len(series.steps)) >= int(WARM_UP_SHARE * len(series.steps))
    worse = lasting_excess(negated(selected(series, warm)), -limits["worse"])
    if worse is not None and last < limits["worse"]:
        severity, limit, onset, interval = Severity.MEDIUM, limits["worse"], worse.onset, worse.interval
        claim = f"The critic predicts worse than the mean return: explained variance ends at {sig(last)}"
    elif last < limits["learnt"] and len(steps) >= MIN_STEPS:
        severity, limit, onset = Severity.LOW, limits["learnt"], int(steps[-1])
        interval = (int(steps[-series.width]), onset)
        claim = f"The critic has not learnt to predict the returns: explained variance ends at {sig(last)}"
    else:
        return Healthy(reason=f"explained variance ends at {sig(last)}")
    return Finding(
        severity=severity,
        claim=claim,
        observed=last,
        limit=limit,
        unit="share of variance",
        onset_step=onset,
        onset_interval=interval,
        evidence=series_evidence(series),
        causes=(
            "a critic learning rate that is too high or too low",
            "returns on a different scale from the values",
            "wrong bootstrap targets or masks at the end of a sequence",
            "returns that the state does not predict: a noisy reward",
        ),
        confirm=(FIT,),
        next=REPAIRS,
    )


def _pays_one_value(evidence: Evidence) -> bool:
    """Return whether every late reward is the same, the best one: a critic then explains nothing, however good."""
    reward = evidence.metrics.get("reward/mean")
    values = np.empty(0) if reward is None else reward.finite()[1]
    late = values[-max(1, len(values) // 10) :]
    return (
        len(values) >= MIN_STEPS
        and float(np.ptp(late)) <= SAME_SHARE * float(np.ptp(values))
        and bool(np.median(late) >= values.max() - SAME_SHARE * float(np.ptp(values)))
    )


RULE = rule(
    check,
    "explained-variance-low",
    Link.CRITIC,
    max_severity=Severity.MEDIUM,
    worse=MIN_VARIANCE,
    learnt=LEARNT_VARIANCE,
)
