"""This run shows a value loss that never falls.

What: over at least 50 steps the value loss stays where it began: a fall by a quarter is excluded, noise allowed for. It
is medium where the explained variance also ends near zero, so the critic learnt nothing; low where no explained
variance is logged and no reward rose.
Why it matters: if the critic learns nothing, advantages are the returns with all their noise. What the policy then
fails to learn is the critic's fault, not the reward's.
What it is not: a critic that was good from the start and explains the returns; a loss below 0.05; or returns that grow
with the reward, which keep the loss of a learning critic up.
What to do: train the critic alone on one batch of rollouts. If it cannot fit them, fix targets and masks. If it can,
check its learning rate and whether the optimiser holds its parameters at all.
Source: the common PPO debugging guides ("value loss does not decrease"); a quarter is our own.
"""

import math

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import lasting_rise, step_noise
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.critic import FIT, LEARNT_VARIANCE, MIN_LOSS, REPAIRS, critic_metric
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.rules.reward_outcome import Outcome, outcome
from ptt.diagnostics.rules.single_series import last_mean, logarithms, more_rows, series_evidence
from ptt.diagnostics.wording import pct, sig

MIN_STEPS = 50  # values: a new critic may need some tens of steps
FALL = 0.25  # of the early loss: a critic that learns anything about the returns reduces it by more
EARLY_VALUES = 10  # the beginning: a critic that learns does so from its first steps
Z_LIMIT = 2.0  # standard errors within which a fall may go unseen


@requires(critic_metric("critic/value_loss", what="value loss"))
def check(series: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge whether the value loss fell at all."""
    values = logarithms(series).finite()[1]
    if len(values) < MIN_STEPS:
        return NotJudged(
            reason=f"{len(values)} value losses above 0 are logged; a critic has to learn within {MIN_STEPS}",
            missing=("critic/value_loss",),
            enable=more_rows(evidence, series),
        )
    late = values[len(values) // 2 :]
    change = float(late.mean() - values[:EARLY_VALUES].mean())
    spread, ar1 = step_noise(values)
    error = spread * math.sqrt((1 + ar1) / (1 - ar1) * (1 / EARLY_VALUES + 1 / len(late)))
    early, last = math.exp(values[:EARLY_VALUES].mean()), math.exp(late.mean())
    went = f"the value loss went from {sig(early)} to {sig(last)}"
    if last < MIN_LOSS or change <= math.log(1 - limits["fall"]):
        return Healthy(reason=went)
    rise = lasting_rise(series, floor=0.0)
    if rise is not None and not rise.ended:
        return Healthy(reason=f"{went}: it rose")
    explained = evidence.metrics.get("critic/explained_variance")
    known = explained is not None and len(explained.finite()[0]) >= MIN_LOGGED
    ends = last_mean(explained) if explained is not None and known else math.nan
    if known and ends >= LEARNT_VARIANCE:
        return Healthy(reason=f"{went}, and the critic explains {pct(ends)} of the returns' variance")
    if not known and outcome(evidence) is Outcome.ROSE:
        return Healthy(reason=f"{went} while the reward rose, so the returns changed as well")
    if change - Z_LIMIT * error <= math.log(1 - limits["fall"]):
        return NotJudged(
            reason=f"{went}; it is too noisy to say whether it fell",
            missing=("critic/explained_variance",),
            enable="log the explained variance of the returns: veRL does, as critic/vf_explained_var",
        )
    return _finding(series, early, last, ends, limits["fall"])


def _finding(series: Series, early: float, last: float, explained: float, fall: float) -> Finding:
    known = math.isfinite(explained)
    steps = series.finite()[0]
    beside = f", and explained variance ends at {sig(explained)}" if known else ""
    return Finding(
        severity=Severity.MEDIUM if known else Severity.LOW,
        claim=f"The value loss {'hardly' if last < early else 'never'} fell: {sig(early)} at first, {sig(last)} in the "
        f"second half{beside}",
        observed=1 - last / early,
        limit=fall,
        unit="share fallen",
        onset_step=int(steps[0]),
        onset_interval=(int(steps[0]), int(steps[0])),
        evidence=series_evidence(series, early=early, explained_variance=explained if known else None),
        causes=(
            "the critic's parameters are frozen or not in the optimiser",
            "a critic learning rate that is far too small",
            "wrong bootstrap targets or masks at the end of a sequence",
            "returns that the state does not predict: a noisy reward",
        ),
        confirm=(FIT, "compare one weight of the value head between the first checkpoint and the last: did it change?"),
        next=REPAIRS,
    )


RULE = rule(check, "value-loss-flat", Link.CRITIC, max_severity=Severity.MEDIUM, fall=FALL)
