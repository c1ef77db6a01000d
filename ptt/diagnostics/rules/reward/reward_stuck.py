"""This run shows a reward that is stuck at exactly one value.

What: the logged mean reward is exactly the same at every step; or from some step on to the end, for at least ten logged
steps and a fifth of the run, below its best, where the earlier rewards make such a stretch nearly impossible.
Why it matters: samples that all earn the same teach nothing. A reward at its floor means that every answer fails, or
that the scorer itself has failed.
What it is not: a solved task, with every sample at the best reward: that is a note.
What to do: score a few of the last samples by hand; look for a scorer that falls back to a default, an environment that
is down, a format that the policy lost.
Source: a constant reward has no advantage (arXiv 2402.03300, section 4.1); the odds of a stretch follow from how often
the value occurred before it.
"""

from typing import NamedTuple

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.rules.reward import REWARD_ENABLE, mean_reward
from ptt.diagnostics.rules.single_series import metric_evidence

STUCK_SHARE = 0.2  # of the logged steps: shorter stretches come and go
MIN_STUCK = 10  # logged steps
MIN_NEVER_MOVED = 20  # logged steps from the start: a hard task earns nothing for a while
MAX_CHANCE = 1e-4  # of a stretch as long, from how often the value came before
BEST_WINDOW = 3  # logged values: one lucky batch is no level
MIN_FULL_REWARD, MAX_FULL_REWARD = 0.9, 1.1  # of a reward of 1 a task (and .1 for its format)


class Stretch(NamedTuple):
    """The equal values at the end of a series."""

    value: float
    start: int
    length: int


def mean_of_ten(evidence: Evidence) -> Series | NotJudged:
    """Return the mean reward, logged ten times at least."""
    return mean_reward(evidence, minimum=MIN_LOGGED)


@requires(mean_of_ten)
def check(reward: Series, _evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the equal rewards at the end of the run, or throughout it."""
    steps, values = reward.finite()
    stretch = final_stretch(values)
    if stretch.start == 0 and len(values) < MIN_NEVER_MOVED:
        reason = (
            f"all {len(values)} logged rewards are {stretch.value:g}; {MIN_NEVER_MOVED} would show that it never moves"
        )
        return NotJudged(reason=reason, missing=("reward/mean",), enable=REWARD_ENABLE)
    if stretch.start == 0:
        return _never_moved(reward, stretch.value)
    share = stretch.length / len(values)
    before = values[: stretch.start]
    if stretch.length < MIN_STUCK or share < limits["share"] or _chance(before, stretch) > MAX_CHANCE:
        return Healthy(reason=f"the last {stretch.length} of {len(values)} logged rewards are equal")
    width = min(BEST_WINDOW, len(before))
    best = float(np.convolve(before, np.full(width, 1.0 / width), "valid").max())
    onset = int(steps[stretch.start])
    if stretch.value >= best:
        return Healthy(reason=f"the reward stays at {stretch.value:g}, its best, from step {onset} on")
    return Finding(
        severity=Severity.HIGH,
        claim=f"The reward is stuck at exactly {stretch.value:g} for the last {stretch.length} of {len(values)} "
        f"logged steps; it had reached {best:.3g}",
        observed=share,
        limit=limits["share"],
        unit="share",
        onset_step=onset,
        onset_interval=(int(steps[stretch.start - 1]), onset),
        evidence=metric_evidence(reward, value=stretch.value, best=best, equal_values=stretch.length),
        causes=(
            "a scorer or an environment that failed and returns a default",
            "a policy that collapsed onto one answer",
            "a format that the policy lost, so nothing is scored any more",
        ),
        confirm=(f"score ten samples from after step {onset} by hand: does the scorer say the same?",),
        next=(
            "if the scorer fails: fix it, and resume from a checkpoint before that step",
            "if the answers are all the same: look at entropy and the policy update first",
        ),
    )


def final_stretch(values: np.ndarray) -> Stretch:
    """Return the longest run of equal values at the end; `values`: (n,), n of 1 at least."""
    moved = np.flatnonzero(values != values[-1])
    start = int(moved[-1]) + 1 if len(moved) else 0
    return Stretch(float(values[-1]), start, len(values) - start)


def _chance(before: np.ndarray, stretch: Stretch) -> float:
    """Return how likely so many equal values are where each comes as often as before, by Laplace's rule."""
    share = (float((before == stretch.value).sum()) + 1.0) / (len(before) + 2.0)
    return float(share**stretch.length)


def _never_moved(reward: Series, value: float) -> Finding | Healthy:
    steps, values = reward.finite()
    solved = MIN_FULL_REWARD <= value <= MAX_FULL_REWARD
    finding = Finding(
        severity=Severity.LOW if solved else Severity.HIGH,
        claim=f"The reward is exactly {value:g} at all {len(values)} logged steps"
        + (": the task was solved from the start" if solved else ": it does not distinguish answers"),
        observed=1.0,
        limit=STUCK_SHARE,
        unit="share",
        onset_step=int(steps[0]),
        onset_interval=(int(steps[0]), int(steps[0])),
        evidence=metric_evidence(reward, value=value, equal_values=len(values)),
        causes=("tasks that are far too hard or far too easy", "a scorer that always returns the same value"),
        confirm=("score ten samples by hand: does the scorer say the same?",),
        next=("start with tasks that the start model solves in one of ten tries",),
    )
    return Healthy(reason="the task was solved from the start", notes=(finding,)) if solved else finding


RULE = rule(check, "reward-stuck", Link.REWARD, max_severity=Severity.HIGH, share=STUCK_SHARE)
