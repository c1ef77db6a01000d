"""This run shows prompt groups whose rewards are all alike, so that nothing is learnt from them.

What: the share of groups with zero reward spread lies above one half over 20 steps, and stays there.
Why it matters: a group-relative advantage is zero in such a group; the batch shrinks to the rest.
What it is not: a failure, where the reward stands near its best: the task is solved, and the finding is low.
What to do: where the reward is low, make prompts easier or sample more per prompt; where it is high, move on to
harder prompts or stop.
Source: GRPO's advantage (arXiv 2402.03300, eq. 3 of section 4.1); TRL logs `frac_reward_zero_std`.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import MIN_LOGGED
from ptt.diagnostics.model import Broken, Finding, Healthy, Link, NotJudged, RuleVerdict, Severity
from ptt.diagnostics.rules.interface import ONLINE, Limits, Rule
from ptt.diagnostics.rules.reading import reward_range

ID = "no-signal-groups"
ZERO_STD_LIMIT = 0.5  # share of groups: the batch is less than half of what was paid for
SOLVED = 0.8  # of the way from the worst to the best reward: no signal because there is nothing left to learn
LOST = 0.5


def check(evidence: Evidence, limits: Limits) -> RuleVerdict:
    """Judge the logged share of groups without spread."""
    series = evidence.metrics.get("reward/zero_std_frac")
    if series is None or len(series.finite()[0]) < MIN_LOGGED:
        return NotJudged(
            id=ID,
            link=Link.TRAINING_SIGNAL,
            reason="the share of groups with zero reward spread is not logged",
            missing=("reward/zero_std_frac",),
            enable="only group-relative methods have it: TRL logs frac_reward_zero_std, slime rollout/zero_std",
        )
    limit = limits["limit"]
    _, mean = series.rolling()
    last = float(mean[np.isfinite(mean)][-1])
    onset = series.excess(limit)
    if onset is None:
        return Healthy(
            id=ID,
            link=Link.TRAINING_SIGNAL,
            reason=f"{last:.0%} of groups have no spread at the end, limit {limit:.0%}",
        )
    reward = reward_range(evidence)
    share = None
    if reward is not None and reward.best > reward.worst:
        share = (reward.last - reward.worst) / (reward.best - reward.worst)
    solved = share is not None and share >= SOLVED
    lost = share is not None and share < LOST and reward is not None and reward.last < reward.first
    return Broken(
        findings=(
            Finding(
                id=ID,
                severity=Severity.LOW if solved else Severity.HIGH if lost else Severity.MEDIUM,
                link=Link.TRAINING_SIGNAL,
                claim=f"More than {limit:.0%} of prompt groups give no signal"
                + ("; the reward stands near its best, so the task looks solved" if solved else "")
                + ("; the reward fell as well" if lost else ""),
                observed=last,
                limit=limit,
                unit="share",
                onset_step=onset,
                evidence={
                    "metric": "reward/zero_std_frac",
                    "logged_as": series.raw_name,
                    "last_reward_in_its_range": share,
                },
                causes=(
                    "prompts all solved",
                    "prompts all failed",
                    "a collapsed policy that answers always alike",
                ),
                next=("plot the reward by prompt over the last 50 steps: all right, all wrong, or all the same text?",),
            ),
        )
    )


RULE = Rule(id=ID, link=Link.TRAINING_SIGNAL, check=check, families=ONLINE, limits={"limit": ZERO_STD_LIMIT})
