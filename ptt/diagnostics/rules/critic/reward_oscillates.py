"""This run shows a reward that swings ever more widely while its critic explains nothing.

What: the mean reward's distance from its running median (41 logged steps) grows for good to 2.5 times its early size
and by at least a tenth of the reward's level, and the explained variance ends below 0.1.
Why it matters: a critic that explains nothing adds its noise to every advantage. The policy is pushed back and forth:
one update undoes what the last one taught.
What it is not: batches of few prompts, which scatter as widely from the start. Where the critic explains the returns,
the swings come from the reward or the data, and this rule is silent.
What to do: train the critic alone on one batch of rollouts; look at the reward second.
Source: the common PPO debugging guides ("policy reward oscillates"); the factor is our own.
"""

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, lasting_rise
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.critic import FIT, LEARNT_VARIANCE, REPAIRS, critic_metric
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.rules.reward import mean_reward
from ptt.diagnostics.rules.single_series import derived, last_mean, measured, series_evidence
from ptt.diagnostics.wording import pct, sig

WIDENED_FACTOR = 2.5  # times the early swings: six times their variance; shares of solved prompts give 2.3 at most
MIN_SWING = 0.1  # of the reward's level: less changes no decision
HALF_WINDOW = 20  # logged steps to either side: swings of up to forty steps are seen
SD_OF_MEAN_SIZE = math.sqrt(math.pi / 2)  # of a normal distribution: its standard deviation over its mean size


@requires(critic_metric("critic/explained_variance", what="explained variance"))
def check(explained: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the swings of the reward against those of its beginning."""
    reward = mean_reward(evidence, 2 * MIN_VALUES)
    if isinstance(reward, NotJudged):
        return reward
    ends = last_mean(explained)
    if not ends < LEARNT_VARIANCE:
        return Healthy(reason=f"the critic explains {pct(ends)} of the returns' variance")
    steps, values = reward.finite()
    window = sliding_window_view(np.pad(values, HALF_WINDOW, mode="reflect"), 2 * HALF_WINDOW + 1)
    sizes = derived(reward, steps, np.abs(values - np.median(window, axis=1)))
    rise = lasting_rise(sizes, floor=0.0, factor=limits["widened"])
    if rise is None or rise.ended:
        return Healthy(reason="the reward swings no more widely than it did at first")
    swing = SD_OF_MEAN_SIZE * math.sqrt(max(0.0, rise.last**2 - rise.early**2))
    level = float(np.abs(np.median(window, axis=1)).max())
    if swing < limits["swing"] * level:
        return Healthy(reason=f"the reward came to swing by {sig(swing)} around a level of {sig(level)}")
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"The reward swings {sig(rise.last / rise.early)} times as widely as at first, and the critic's "
        f"explained variance ends at {sig(ends)}"
        if rise.early > 0
        else f"The reward now swings by {sig(swing)}, and the critic's explained variance ends at {sig(ends)}",
        unit="distance from the running median",
        **measured(rise),
        evidence=series_evidence(reward, early=rise.early, swing=swing, explained_variance=ends),
        causes=(
            "advantages that carry the critic's noise",
            "a learning rate so high that the policy jumps back and forth",
        ),
        confirm=(FIT,),
        next=REPAIRS,
    )


RULE = rule(
    check, "reward-oscillates", Link.CRITIC, max_severity=Severity.MEDIUM, widened=WIDENED_FACTOR, swing=MIN_SWING
)
