"""This run shows a mean reward that is taken over turns, not over episodes.

What: at each step whose episodes are recorded, the logged mean reward is the mean over their turns (each episode as
often as it has turns) and lies a twentieth off the mean over the episodes.
Why it matters: an episode that fails runs to its limit of turns and weighs most. The curve follows the length of
episodes; it falls as failing ones get longer, though no more of them fail, and is not what an evaluation measures.
What it is not: a policy that got worse, or an evaluation under other conditions.
What to do: give each episode one weight, in the metric; look whether the loss weighs them by turns as well.
Source: NVIDIA-NeMo/labs-molt pull request 64, .28 in training beside .45 of the same tasks. The limits are our own.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import REWARDED_LANGUAGE, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.single_series import metric_evidence
from ptt.diagnostics.wording import counted, sig

APART = 0.05  # of the reward's unit scale: less changes no conclusion
SAME = 0.2  # of the distance between both means: so near is the logged one to the one it is
MIN_STEPS = 2  # one may fit by chance


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Compare the logged mean with both means of the recorded episodes."""
    reward = evidence.metrics.get("reward/mean")
    means = evidence.faults.turn_means if evidence.faults is not None else None
    if reward is None or means is None:
        return NotJudged(
            reason="no episodes of several turns are recorded beside a mean reward",
            missing=("trajectories.n_turns",) if reward is not None else ("trajectories.n_turns", "reward/mean"),
            enable="save a row an episode, or a turn, with its reward",
            absent=True,
        )
    steps, logged = reward.finite()
    _, here, there = np.intersect1d(steps, means.steps, return_indices=True)
    by_turn, by_episode, own = means.by_turn[there], means.by_episode[there], logged[here]
    apart = np.abs(by_episode - by_turn)
    told = apart >= limits["apart"]
    if told.sum() < MIN_STEPS or not (np.abs(own - by_turn)[told] <= SAME * apart[told]).all():
        return Healthy(reason=f"the mean reward is not one over turns at {counted(len(own), 'recorded step(s)')}")
    shown = float(own[told].mean()), float(by_episode[told].mean())
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"{reward.raw_name} is a mean over turns, not over episodes: {sig(shown[0])} where {sig(shown[1])} is "
        f"the mean of the recorded episodes; those that earn less have {sig(means.turns[1])} turns, the others "
        f"{sig(means.turns[0])}, and weigh as much more: the curve follows their length{_evaluated(evidence)}",
        observed=shown[0],
        limit=shown[1],
        unit="reward",
        evidence={**metric_evidence(reward), "over_episodes": shown[1], "steps_compared": int(told.sum())},
        causes=("rows are turns, and the mean is taken over rows",),
        confirm=("work out the mean over episodes of one step from its saved rows",),
        next=("log the mean over episodes", "see whether the loss and the baseline weigh episodes by their turns too"),
    )


def _evaluated(evidence: Evidence) -> str:
    figures = evidence.evaluation.figures if evidence.evaluation is not None else ()
    found = next((one.series for one in figures if one.outcome and len(one.series.finite()[0])), None)
    if found is None:
        return ""
    return f"; the evaluation ({found.raw_name}, {sig(float(np.median(found.finite()[1])))}) has no such weight"


RULE = rule(check, "mean-over-turns", Link.REWARD, apart=APART, families=REWARDED_LANGUAGE)
