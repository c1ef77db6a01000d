"""This run shows a spread of rewards that grew far beyond what its mean explains.

What: the logged standard deviation of the reward lies lastingly above two and a half times its early level, while
variance over mean grew as much. For a reward of two values that ratio only falls as the mean rises.
Why it matters: advantages get sharper with the spread where they are not normalised, and noisier where they are.
What it is not: a policy that begins to succeed: from rare to half the time, the spread of a pass-or-fail reward grows
by itself. Nor a spread that vanishes: see no-signal-groups.
What to do: look at the extremes and the parts of the reward; normalise or clip only when the scorer is sound.
Source: a reward of 0 or M has variance over mean M (1 - p), p its share of successes.
"""

import math
from dataclasses import replace

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, lasting_rise
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.reward import reward_of
from ptt.diagnostics.rules.single_series import logged

GROWTH_LIMIT = 2.5  # times the early spread


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the logged spread, and the spread against the mean."""
    spread = logged(
        evidence, "reward/std", what="spread of rewards", minimum=MIN_VALUES,
        enable="log the standard deviation of the reward: TRL logs reward_std")  # fmt: skip
    if isinstance(spread, NotJudged):
        return spread
    found = lasting_rise(spread, floor=0.0, factor=limits["growth"])
    if found is None or found.ended or found.early <= 0:
        return Healthy(reason="the spread of rewards stays near its early level")
    reward = reward_of(evidence)
    index = None if isinstance(reward, NotJudged) else _index(spread, reward)
    if index is not None:
        grown = lasting_rise(index, floor=0.0, factor=limits["growth"])
        if grown is None or grown.ended:
            return Healthy(reason="the spread of rewards grew no more than its mean explains")
    return Finding(
        severity=Severity.LOW if index is None else Severity.MEDIUM,
        claim=f"The spread of rewards grew {found.early:.3g} → {found.last:.3g}",
        observed=found.last / found.early if math.isfinite(found.last) else None,
        limit=limits["growth"],
        unit="x",
        onset_step=found.onset,
        onset_interval=found.interval,
        evidence={"metric": "reward/std", "logged_as": spread.raw_name, "early": found.early,
                  "late": found.last, "beyond_the_mean": index is not None},
        causes=("a part of the reward without bounds", "a few extreme samples", "a mix of tasks that changed"),
        confirm=("plot single rewards of the steps before and after the onset: extremes, or all wider?",),
        next=("mend or bound the part that grew; only then normalise",))  # fmt: skip


def _index(spread: Series, reward: Series) -> Series | None:
    """Give variance over mean where both are logged; None where the mean is not positive throughout."""
    steps, at, beside = np.intersect1d(spread.finite()[0], reward.finite()[0], return_indices=True)
    if len(steps) < MIN_VALUES:
        return None
    level = replace(reward, steps=steps, values=reward.finite()[1][beside], flags=np.zeros(len(steps), np.uint8))
    means = level.rolling()[1]
    usable = np.isfinite(means)
    if not (means[usable] > 0).all():
        return None
    held = np.square(spread.finite()[1][at][usable]) / means[usable]
    return replace(spread, steps=steps[usable], values=held, flags=np.zeros(int(usable.sum()), np.uint8))


RULE = rule(check, "reward-variance", Link.REWARD, growth=GROWTH_LIMIT)
