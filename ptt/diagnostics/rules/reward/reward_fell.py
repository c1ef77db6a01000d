"""This run shows a reward that fell from its best and did not come back.

What: the mean over the last steps lies below the best window by three tenths of its level and six standard deviations
of a window's mean. The onset is the step after which at least a quarter of the fall lasts.
Why it matters: the policy lost what it had learnt, or its tasks, its tools or the scorer changed under it. The reward
is the last to show it: look for the curve that moved before the onset.
What it is not: a reward that declines all along: see reward-sign.
What to do: go back to the checkpoint before the onset; find out which metric moved first (KL, gradient norm, staleness,
tool failures); change one thing.
Source: noise is the values' distance from their running median, widened for autocorrelation.
"""

from math import nan

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.level_change import Z_LIMIT, change_since_best
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, Verdict, rule
from ptt.diagnostics.rules.reward import requires_reward, steady_decline

MIN_FALL_SHARE = 0.3  # of the best level
HIGH_FALL_SHARE = 0.7  # of it: little of what was learnt is left


@requires_reward
def check(reward: Series, _: Evidence, limits: Limits) -> Verdict:
    """Hold the best window of the reward against its end."""
    fall = change_since_best(reward)
    if fall is None or fall.onset is None or fall.sds > -Z_LIMIT or fall.share > -limits["fell"]:
        best, late = (fall.start, fall.late) if fall else (nan, nan)
        return Healthy(reason=f"the reward ends at {late:.3g}, its best window is {best:.3g}")
    if steady_decline(reward):
        return Healthy(reason="the reward never rose; reward-sign judges its steady decline")
    return Finding(
        severity=Severity.HIGH if fall.share <= -HIGH_FALL_SHARE else Severity.MEDIUM,
        claim=f"The reward fell from {fall.start:.3g} to {fall.late:.3g} and did not come back",
        observed=-fall.share,
        limit=limits["fell"],
        unit="of the best level",
        onset_step=fall.onset,
        onset_interval=fall.interval,
        evidence={"metric": "reward/mean", "logged_as": reward.raw_name, "best": fall.start,
                  "best_step": fall.start_step, "last": fall.late, "alarm_step": fall.alarm},
        causes=("updates that are too large: KL, clip fraction or gradient norm moved first",
                "rollouts older than the policy, or logprobs from another engine",
                "the environment or its tools failed, and the reward with them",
                "harder tasks from that step on: a curriculum, a different data set"),
        confirm=(f"find the curve that left its level before step {fall.onset}: KL, gradient norm, staleness, tools?",
                 f"score the checkpoint of step {fall.start_step} on the tasks of the last steps"),
        next=(f"roll back to the last checkpoint before step {fall.onset}",
              "rerun from it with the cause fixed that moved first, and change nothing else"))  # fmt: skip


RULE = rule(check, "reward-fell", Link.REWARD, fell=MIN_FALL_SHARE)
