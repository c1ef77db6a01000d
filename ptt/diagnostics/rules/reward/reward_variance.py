"""This run shows a spread of rewards that grew far beyond what its mean explains.

What: the logged standard deviation of the reward stays above 2.5 times its early level, and variance over mean grew as
much. For a reward of two values that ratio only falls as the mean rises.
Why it matters: a larger spread scales advantages up where they are not normalised, and makes them noisier where they
are.
What it is not: a policy that begins to succeed: as success goes from rare to half the time, the spread of a
pass-or-fail reward grows by itself, up to half of its range. For a spread that vanishes, see no-signal-groups.
What to do: look at the extremes and the parts of the reward; normalise or clip only once the scorer is right.
Source: a reward of 0 or M has variance over mean M (1 - p), p its share of successes.
"""

import math

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, lasting_rise
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.reward import mean_reward
from ptt.diagnostics.rules.single_series import aligned, derived, requires_metric, selected
from ptt.diagnostics.wording import sig

GROWTH_FACTOR = 2.5  # times the early spread
MAX_FULL_REWARD = 1.1  # of a reward of 1 a task (and .1 for its format)
NOTHING = 1e-4  # of the median spread: rewards that are equal, added up in float32
MAX_NOTHING_SHARE = 0.1  # of the logged values: more of them are a spread that vanishes
ENABLE = "log the standard deviation of the reward: TRL logs reward_std"


@requires_metric("reward/std", what="spread of rewards", enable=ENABLE, minimum=MIN_VALUES)
def check(spread: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the logged spread, and the spread against the mean."""
    spread = _measured(spread)
    rise = lasting_rise(spread, floor=0.0, factor=limits["growth"])
    if rise is None or rise.ended or rise.early <= 0:
        return Healthy(reason="the spread of rewards stays near its early level")
    reward = mean_reward(evidence)
    if isinstance(reward, Series) and _within_bounds(reward, rise.last):
        return Healthy(
            reason=f"the spread of rewards ends at {sig(rise.last)}, as far as rewards of 0 and 1 can lie apart"
        )
    index = None if isinstance(reward, NotJudged) else _dispersion_index(spread, reward)
    if index is not None:
        index_rise = lasting_rise(index, floor=0.0, factor=limits["growth"])
        if index_rise is None or index_rise.ended:
            return Healthy(reason="the spread of rewards grew no more than its mean explains")
    return Finding(
        severity=Severity.LOW if index is None else Severity.MEDIUM,
        claim=f"The spread of rewards grew {sig(rise.early)} → {sig(rise.last)}",
        observed=rise.last / rise.early if math.isfinite(rise.last) else None,
        limit=limits["growth"],
        unit="x",
        onset_step=rise.onset,
        onset_interval=rise.interval,
        evidence={
            "metric": "reward/std",
            "logged_as": spread.raw_name,
            "early": rise.early,
            "late": rise.last,
            "beyond_the_mean": index is not None,
        },
        causes=("a part of the reward without bounds", "a few extreme samples", "a mix of tasks that changed"),
        confirm=(
            "plot single rewards of the steps before and after the onset: a few extremes, or all more spread out?",
        ),
        next=("fix or bound the part that grew; only then normalise",),
    )


def _within_bounds(reward: Series, spread: float) -> bool:
    """Return whether a reward of 0 or 1 a task (and .1 for its format) can spread this far: half of its range."""
    values = reward.finite()[1]
    return float(values.min()) >= 0 and float(values.max()) <= MAX_FULL_REWARD and spread <= MAX_FULL_REWARD / 2


def _measured(spread: Series) -> Series:
    """Leave out a few steps whose samples all earn the same, to rounding: they do not show how large rewards are.

    In logarithms one of them outweighs a factor of a hundred, and holds all others against it.
    """
    values = spread.finite()[1]
    nothing = NOTHING * float(np.median(values)) if len(values) else 0.0
    share = float((values <= nothing).mean()) if len(values) else 0.0
    return selected(spread, spread.values > nothing) if 0 < share <= MAX_NOTHING_SHARE else spread


def _dispersion_index(spread: Series, reward: Series) -> Series | None:
    """Return variance over mean where both are logged; None where the mean is not positive throughout."""
    steps, deviations, rewards = aligned(spread, reward)
    if len(steps) < MIN_VALUES:
        return None
    means = derived(reward, steps, rewards).rolling()[1]
    usable = np.isfinite(means)
    if not (means[usable] > 0).all():
        return None
    return derived(spread, steps[usable], np.square(deviations[usable]) / means[usable])


RULE = rule(check, "reward-variance", Link.REWARD, max_severity=Severity.MEDIUM, growth=GROWTH_FACTOR)
