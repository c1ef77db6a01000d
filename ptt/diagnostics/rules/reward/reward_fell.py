"""This run shows a reward that fell from its best and did not come back.

What: the mean over the last steps lies below the best window by three tenths of its level, and by six standard
deviations of a window's mean. The onset is where a quarter of the loss is lost for good.
Why it matters: what was learnt is lost. The reward is the last to show it: look which curve moved before the onset.
What it is not: a reward that declines slowly from the first step on: see reward-sign.
What to do: go back to the checkpoint before the onset; find which link moved first (KL, gradient norm, staleness, tool
failures); change one thing.
Source: noise is what the values lie off their running median, widened for steps that follow one another.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.level_change import Z_LIMIT, change_since_best
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.reward import reward_of, wrong_way

FELL_LIMIT = 0.3  # of the best level
GONE = 0.7  # of it: little of what was learnt is left


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Hold the best window of the reward against its end."""
    reward = reward_of(evidence)
    if isinstance(reward, NotJudged):
        return reward
    turn = change_since_best(reward)
    if turn is None or turn.onset is None or turn.sds > -Z_LIMIT or turn.share > -limits["fell"]:
        best, late = (turn.start, turn.late) if turn else (float("nan"), float("nan"))
        return Healthy(reason=f"the reward ends at {late:.3g}, its best window is {best:.3g}")
    if wrong_way(reward):
        return Healthy(reason="the reward never rose; its steady decline is reward-sign")
    return Finding(
        severity=Severity.HIGH if turn.share <= -GONE else Severity.MEDIUM,
        claim=f"The reward fell from {turn.start:.3g} to {turn.late:.3g} and did not come back",
        observed=-turn.share,
        limit=limits["fell"],
        unit="of the best level",
        onset_step=turn.onset,
        onset_interval=turn.interval,
        evidence={"metric": "reward/mean", "logged_as": reward.raw_name, "best": turn.start,
                  "best_step": turn.start_step, "last": turn.late},
        causes=("updates too large: KL, clip fraction or gradient norm moved before",
                "rollouts older than the policy, or logprobs of another engine",
                "the environment or its tools failed, and the reward with them",
                "harder tasks from that step on: a curriculum, another data set"),
        confirm=(f"which curve left its level before step {turn.onset}: KL, gradient norm, staleness, tools?",
                 f"score the checkpoint of step {turn.start_step} on the tasks of the last steps"),
        next=(f"roll back to the last checkpoint before step {turn.onset}",
              "rerun from it with the link that moved first mended, nothing else changed"))  # fmt: skip


RULE = rule(check, "reward-fell", Link.REWARD, fell=FELL_LIMIT)
