"""This run shows episodes that a limit of time ends, and that count as done.

What: a tenth or more of the recorded episodes end at one and the same duration, the longest of the run and five times
as many as shortly before it, and nothing marks them as cut. High from 40% on.
Why it matters: they are scored as if the policy had finished, mostly 0. What takes long is punished, whatever it is
worth, and the counter of ends says that all is well.
What it is not: episodes that say that they timed out (samples-lost), or that were cut at a length.
What to do: raise the limit, or mask what it ends; let the limit set its own reason to stop.
Source: rllm#710: an exit code that a pipe hid, 76 of 178 episodes. The shares are our own.
"""

from __future__ import annotations

import math

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.counts import Counts
from ptt.diagnostics.evidence.sample_faults import PiledUp
from ptt.diagnostics.model import Link
from ptt.diagnostics.rules.faulty_samples import Told, judge_faulty
from ptt.diagnostics.rules.interface import REWARDED_LANGUAGE, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.wording import pct, sig

SHARE = 0.1  # of the episodes
HIGH_SHARE = 0.4
UNRECORDED = NotJudged(
    reason="too few durations of episodes are recorded",
    missing=("trajectories.duration_s",),
    enable="save each episode with its duration in seconds",
    absent=True,
)


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge how many episodes end at the longest duration without saying so."""
    faults = evidence.faults
    if faults is None or not faults.timed:
        return UNRECORDED
    piled = faults.piled
    if piled is None:
        return Healthy(reason="the durations of episodes do not pile up, or those at the longest say why")
    return judge_faulty(piled.counts, limits, unrecorded=UNRECORDED, words=lambda part, when: _told(piled, part, when))


def _told(piled: PiledUp, part: Counts, when: str) -> Told:
    said = f', and say "{piled.ends}"' if piled.ends else ""
    reward = f"; their mean reward is {sig(piled.reward)}, against {sig(piled.reward_of_others)} for the others"
    return Told(
        claim=f"{when}, {pct(part.share)} of episodes end after the same {sig(piled.seconds)} s{said}: a limit of time "
        f"that counts as an end{'' if math.isnan(piled.reward + piled.reward_of_others) else reward}",
        causes=(
            "the limit of an episode's time ends it, and its exit code or reason is lost on the way",
            "tasks or policies that take longer now, under a limit that stayed",
        ),
        confirm=("read the log of one such episode at its end: what stopped it?",),
        next=(
            "mark these episodes as timed out and leave them out of the loss, or raise the limit",
            "do not trust the counter of reasons to stop until it knows the limit",
        ),
        evidence={"seconds": piled.seconds, "says": piled.ends or None, "reward": piled.reward},
    )


RULE = rule(check, "silent-timeouts", Link.ENVIRONMENT, share=SHARE, high=HIGH_SHARE, families=REWARDED_LANGUAGE)
