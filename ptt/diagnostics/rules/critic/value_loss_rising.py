"""This run shows a value loss that rises instead of falling.

What: the value loss stays above twice its own early level, beyond its noise. With an explained variance that holds, or
a reward that rose, the finding is low: returns then spread more than they did, and the critic follows.
Why it matters: advantages are returns less values; where the values are wrong, the policy is pushed about by noise.
What it is not: a matter of size, beyond a floor: the loss goes with the square of the returns' scale. Nor a sparse
start: while every answer fails, there is nothing to predict and the loss is 0.
What to do: fix one batch of rollouts, keep the policy still and train the critic alone; if it cannot fit them, mend
targets and masks before anything else; then the scale of returns, then the critic's learning rate.
Source: the common PPO debugging guides ("value loss does not decrease"); relative limits are our own.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, BaselineShift, lasting_rise
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.critic import FIT, REPAIRS, of_critic
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Rule, Verdict
from ptt.diagnostics.rules.reward_outcome import reward_range
from ptt.diagnostics.rules.single_series import last_mean, series_evidence

TIMES_EARLY = 2.0  # a loss that should fall has doubled: values are off by 1.4 times as much as at first
FOLLOWS = 0.1  # explained variance from which a critic tells something of the returns
LEAST_LOSS = 0.05  # values off by 0.2 to 0.3: less is little, beside rewards of 0 and 1
MUCH = 10.0  # times the early level: the values are off by three times as much
ROSE = 0.25  # of the reward's range, from the first to the last mean: the returns changed too


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the value loss against its own beginning."""
    series = of_critic(evidence, "critic/value_loss", what="value loss")
    if isinstance(series, NotJudged):
        return series
    values = series.finite()[1]
    if len(values) < MIN_VALUES:
        return NotJudged(
            reason=f"{len(values)} value losses are logged; {MIN_VALUES} are needed to tell a rise from the beginning",
            missing=("critic/value_loss",),
            enable="log every step, or let the run go on",
        )
    found = lasting_rise(series, floor=LEAST_LOSS, factor=limits["times_early"])
    if found is None or found.ended or found.early <= 0:
        went = f"the value loss went from {float(values[: series.width].mean()):.3g} to {last_mean(series):.3g}"
        return Healthy(reason=went)
    return _finding(evidence, series, found)


def _finding(evidence: Evidence, series: Series, found: BaselineShift) -> Finding:
    why = _excused(evidence)
    much = found.last > MUCH * found.early
    severity = Severity.LOW if why else Severity.HIGH if much else Severity.MEDIUM
    return Finding(
        severity=severity,
        claim=f"The value loss rose from {found.early:.3g} to {found.last:.3g}{why}",
        observed=found.last,
        limit=found.limit,
        unit="loss",
        onset_step=found.onset,
        onset_interval=found.interval,
        evidence=series_evidence(series, early=found.early, highest_mean=found.extreme),
        causes=(
            "returns grew in scale and the critic did not follow",
            "the critic's learning rate does not suit it",
            "wrong bootstrap targets or masks at the end of a sequence",
            "the policy moves faster than the critic learns",
        ),
        confirm=(FIT,),
        next=REPAIRS,
    )


def _excused(evidence: Evidence) -> str:
    """Say why a rise may be no fault of the critic, or nothing."""
    explained = evidence.metrics.get("critic/explained_variance")
    if explained is not None and len(explained.finite()[0]) >= MIN_LOGGED:
        last = last_mean(explained)
        return f"; it still explains {last:.0%} of the returns' variance" if last >= FOLLOWS else ""
    reward = reward_range(evidence)
    if reward is not None and reward.last - reward.first >= ROSE * (reward.best - reward.worst) > 0:
        return "; the reward rose as well, so the returns changed"
    return ""


RULE = Rule(id="value-loss-rising", link=Link.CRITIC, check=check, limits={"times_early": TIMES_EARLY})
