"""This run shows a value loss that rises instead of falling.

What: the value loss stays above twice its own early level, beyond its noise. If the explained variance holds, or the
reward rose, the finding is low: the returns spread more than before and the critic follows. A reward that rose g-fold
excuses a loss g times as large where it is a share of successes, and g squared where it has no bounds.
Why it matters: advantages are returns less values; where the values are wrong, noise drives the policy.
What it is not: a large loss: it goes with the square of the returns' scale, so only a floor applies, and none where the
critic explained the returns and no longer does. Nor a sparse start: while every answer fails there is nothing to
predict, and the loss is 0.
What to do: train the critic alone on one batch of rollouts. If it cannot fit them, fix targets and masks before
anything else; then look at the scale of the returns, then at the critic's learning rate.
Source: the common PPO debugging guides ("value loss does not decrease"); relative limits are our own.
"""

import math

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, lasting_rise
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.critic import FIT, LEARNT_VARIANCE, MIN_LOSS, REPAIRS, critic_metric
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.rules.reward_outcome import reward_range
from ptt.diagnostics.rules.single_series import last_mean, measured, more_rows, peak_median, series_evidence
from ptt.diagnostics.wording import pct, sig

RISE_FACTOR = 2.0  # a loss that should fall has doubled: values are off by 1.4 times as much as at first
HIGH_FACTOR = 10.0  # times the early level: the values are off by three times as much
MIN_REWARD_RISE = 0.25  # of the reward's range, from the first to the last mean: the returns changed too
MIN_GROWTH = 2.0  # times: any rising reward may spread the returns this much
LARGEST_SHARE = 1.5  # a mean reward up to this may be a share of successes, with a little for the format


@requires(critic_metric("critic/value_loss", what="value loss"))
def check(series: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the value loss against its own beginning."""
    values = series.finite()[1]
    if len(values) < MIN_VALUES:
        return NotJudged(
            reason=f"{len(values)} value losses are logged; a rise takes {MIN_VALUES} to show",
            missing=("critic/value_loss",),
            enable=more_rows(evidence, series),
        )
    rise = lasting_rise(series, floor=0.0 if _unlearnt(evidence) else MIN_LOSS, factor=limits["times_early"])
    if rise is None or rise.ended or rise.early <= 0:
        early = float(values[: series.width].mean())
        return Healthy(reason=f"the value loss went from {sig(early)} to {sig(last_mean(series))}")
    excuse = _excuse(evidence, rise.last / rise.early)
    large = rise.last > HIGH_FACTOR * rise.early
    return Finding(
        severity=Severity.LOW if excuse else Severity.HIGH if large else Severity.MEDIUM,
        claim=f"The value loss rose from {sig(rise.early)} to {sig(rise.last)}{excuse}",
        unit="loss",
        **measured(rise),
        evidence=series_evidence(series, early=rise.early, highest_mean=rise.extreme),
        causes=(
            "the returns grew in scale and the critic did not keep up",
            "a critic learning rate that is too high or too low",
            "wrong bootstrap targets or masks at the end of a sequence",
            "the policy moves faster than the critic learns",
        ),
        confirm=(FIT,),
        next=REPAIRS,
    )


def _explained(evidence: Evidence) -> Series | None:
    series = evidence.metrics.get("critic/explained_variance")
    return series if series is not None and len(series.finite()[0]) >= MIN_LOGGED else None


def _unlearnt(evidence: Evidence) -> bool:
    """Return whether the critic explained the returns once and ends explaining nothing of them."""
    explained = _explained(evidence)
    return (
        explained is not None
        and peak_median(explained) >= 2 * LEARNT_VARIANCE
        and last_mean(explained) < LEARNT_VARIANCE
    )


def _excuse(evidence: Evidence, times: float) -> str:
    """Return why a rise to `times` times the early loss may not be the critic's fault, or ""."""
    explained = _explained(evidence)
    if explained is not None:
        last = last_mean(explained)
        return f"; it still explains {pct(last)} of the returns' variance" if last >= LEARNT_VARIANCE else ""
    reward = reward_range(evidence)
    if reward is None or not reward.last - reward.first >= MIN_REWARD_RISE * (reward.best - reward.worst) > 0:
        return ""
    grown = reward.last / reward.first if reward.first > 0 else math.inf
    share = reward.worst >= 0 and reward.best <= LARGEST_SHARE
    if times > max(MIN_GROWTH, grown if share else grown**2):
        return ""
    return "; the reward rose as well, so the returns changed"


RULE = rule(check, "value-loss-rising", Link.CRITIC, times_early=RISE_FACTOR)
