"""This run shows episodes that failed through no fault of the policy and were trained on.

What: a tenth or more of the recorded episodes of a stretch of steps, or of the run, ended in an error of the
environment, have a reward all the same, and are not masked out of the loss. Their advantage is told: as recorded, or as
their reward less the mean over their prompt's attempts. High from 30% on where masks are recorded; without them nothing
says that such episodes were left out, nor that they were not.
Why it matters: the policy is punished for what it did not do, and the attempts beside a failed one are rewarded for no
more than having run. Where whole groups fail, nothing is learnt.
What it is not: an episode that a limit of turns or length ended, or whose calls could not be read: that is the policy.
What to do: give such episodes no reward and mask them; go back to the checkpoint before they began.
Source: NeMo Gym's `mask_sample` and SkyRL's masked instances exist for this; the shares are our own.
"""

import math
from typing import NamedTuple

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.sample_counters import Episodes
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import (
    REWARDED_LANGUAGE,
    Finding,
    Healthy,
    Limits,
    NotJudged,
    Verdict,
    requires,
    rule,
)
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.statistics.excess_stretches import Stretch, stretches_above
from ptt.diagnostics.wording import counted, pct, sig

MEDIUM_SHARE = 0.1  # of the episodes: one in ten lessons is wrong
HIGH_SHARE = 0.3
NEARLY_ALL = 0.9  # of the failed episodes: of two stretches that hold them, the denser one is told
MIN_EPISODES = 20  # recorded, and trained on although they failed: fewer are an incident
ENABLE = "save each episode with its reward, error and whether it is masked (NeMo Gym: rollouts with mask_sample)"


class Taught(NamedTuple):
    """Failed episodes that were trained on, in a stretch of places."""

    stretch: Stretch
    failed: float
    share: float


def _episodes(evidence: Evidence) -> Episodes | NotJudged:
    rows = evidence.counters.episodes if evidence.counters is not None else None
    if rows is None:
        return NotJudged(
            reason="no recorded episode tells how it ended",
            missing=("trajectories.error_type",),
            enable=ENABLE,
            absent=True,
        )
    if rows.asked.sum() < MIN_EPISODES:
        reason = f"only {counted(int(rows.asked.sum()), 'episode(s)')} of training are recorded"
        return NotJudged(reason=reason, missing=("trajectories.error_type",), enable=ENABLE)
    return rows


@requires(_episodes)
def check(rows: Episodes, _: Evidence, limits: Limits) -> Verdict:
    """Judge the share of failed episodes that have a reward and are not masked."""
    share = rows.trained / rows.asked
    places = [Stretch(first=0, last=len(share) - 1, mean=float(share.mean()), excess=math.nan, lasting=True)]
    first = int(np.argmax(rows.trained > 0))
    if first and rows.asked[:first].sum() >= MIN_EPISODES:  # since when any: few steps may be recorded
        rest = share[first:]
        places.append(Stretch(first=first, last=len(share) - 1, mean=float(rest.mean()), excess=math.nan, lasting=True))
    found = [_taught(rows, stretch) for stretch in (*stretches_above(share, margin=limits["medium"]), *places)]
    enough = [one for one in found if one.failed >= MIN_EPISODES and one.share >= limits["medium"]]
    if not enough:
        failed, trained = int(rows.failed.sum()), int(rows.trained.sum())
        total = counted(int(rows.asked.sum()), "recorded episode(s)")
        return Healthy(reason=f"of {total} {failed} failed, and {trained} of these are trained on")
    most = NEARLY_ALL * max(one.failed for one in enough)
    return _finding(rows, max(enough, key=lambda one: (one.failed >= most, one.share, one.failed)), limits)


def _taught(rows: Episodes, stretch: Stretch) -> Taught:
    here = slice(stretch.first, stretch.last + 1)
    failed = float(rows.trained[here].sum())
    return Taught(stretch, failed, failed / float(rows.asked[here].sum()))


def _finding(rows: Episodes, worst: Taught, limits: Limits) -> Finding:
    stretch = worst.stretch
    here = slice(stretch.first, stretch.last + 1)
    first, last = int(rows.steps[stretch.first]), int(rows.steps[stretch.last])
    reward = _mean(rows.failed_reward[here], rows.trained[here])
    advantage = _mean(rows.advantage[here], rows.trained[here])
    whole = stretch.first == 0 and stretch.last == len(rows.steps) - 1
    when = "at the recorded steps" if whole else f"from step {first} to step {last}"
    against = "" if math.isnan(advantage) else f", their {_advantage(rows)} {sig(advantage)}"
    error = next(iter(rows.causes), None)
    return Finding(
        severity=Severity.HIGH if worst.share >= limits["high"] and rows.masks_recorded else Severity.MEDIUM,
        claim=f"{pct(worst.share)} of episodes {when} never ran to their end{f' ({error})' if error else ''} and "
        f"{_counted(rows)}: their reward is {sig(reward)}{against}",
        observed=worst.share,
        limit=limits["medium"],
        unit="share",
        onset_step=first,
        onset_interval=None if stretch.first == 0 else (int(rows.steps[stretch.first - 1]) + 1, first),
        evidence={
            "metric": "trajectories.error_type",
            "last_step": last,
            "failed_and_trained_on": int(worst.failed),
            "reward": reward if math.isfinite(reward) else None,
            "advantage": advantage if math.isfinite(advantage) else None,
        },
        causes=(
            "a failed episode is scored 0 instead of being left out",
            "the mask of failed episodes is switched off",
        ),
        confirm=(f"read ten failed episodes of step {first}: did the policy write anything in them?",),
        next=(
            "give failed episodes no reward, and mask them out of the loss and of their group's baseline",
            "go back to the last checkpoint before these steps",
        ),
    )


def _counted(rows: Episodes) -> str:
    return "are trained on" if rows.masks_recorded else "have a reward all the same, with no mask recorded"


def _advantage(rows: Episodes) -> str:
    return "mean advantage" if rows.advantage_recorded else "mean distance from their prompt's mean"


def _mean(values: FloatArray, weights: FloatArray) -> float:
    usable = np.isfinite(values) & (weights > 0)
    return float(np.average(values[usable], weights=weights[usable])) if usable.any() else math.nan


RULE = rule(
    check,
    "trained-on-failures",
    Link.TRAINING_SIGNAL,
    medium=MEDIUM_SHARE,
    high=HIGH_SHARE,
    families=REWARDED_LANGUAGE,
)
