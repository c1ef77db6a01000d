"""This run shows single rewards in a shape that teaches little: almost all zero, or almost all alike at the top.

What: 95 % of the recorded rewards are zero in every third of the run (sparse); or 95 % equal the highest one from the
first third on (too easy). Rewards that come to be all alike later are told by other rules.
Why it matters: a policy gradient learns from differences. Where nearly all samples are paid alike, a few decide every
step, and most of what is sampled is thrown away.
What it is not: a task that was learnt: all at the top at the end only is a solved task.
What to do: sparse: easier tasks first, more samples a prompt, or pay steps on the way. Too easy: harder tasks.
Source: advantages relative to a group are zero where all rewards of the group are (arXiv 2402.03300).
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule

ALIKE_LIMIT = 0.95  # share of samples: of a group of 8, two thirds then hold no difference at all
LEAST = 150  # samples: 50 a third


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the shape of single rewards by thirds of the run."""
    samples = evidence.rewards.samples if evidence.rewards is not None else None
    count = 0 if samples is None else len(samples.rewards)
    if samples is None or count < LEAST:
        return NotJudged(
            reason=f"{count} single rewards are recorded; {LEAST} are needed",
            missing=("reward of each sample",),
            enable="record samples: TRL log_completions=True, veRL trainer.rollout_data_dir, slime --dump-details",
        )
    thirds = np.array_split(samples.rewards, 3)
    top = float(samples.rewards.max())
    zeros = [float(np.mean(np.abs(part) < 1e-12)) for part in thirds]
    tops = [float(np.mean(part >= top - 1e-12)) for part in thirds]
    if min(zeros) >= limits["alike"]:
        return _finding("zero", zeros, limits["alike"], int(samples.steps[0]), count)
    if top != 0 and min(tops) >= limits["alike"]:
        return _finding(f"{top:.3g}, the highest", tops, limits["alike"], int(samples.steps[0]), count)
    ended = f"{zeros[-1]:.0%} of the last third are zero, {tops[-1]:.0%} at the top"
    return Healthy(reason=ended)


def _finding(what: str, shares: list[float], limit: float, step: int, count: int) -> Finding:
    sparse = what == "zero"
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"{min(shares):.1%} of single rewards or more are {what}, in every third of the run",
        observed=min(shares),
        limit=limit,
        unit="share",
        onset_step=step,
        evidence={"metric": "reward", "samples": count, "first_third": shares[0], "last_third": shares[-1]},
        causes=("tasks far too hard for this policy", "a scorer that never recognises the answer")
        if sparse
        else ("tasks far too easy", "a scorer that accepts anything"),
        confirm=("score ten samples by hand: would a person pay them alike?",
                 "score ten known good and ten known bad answers: does the reward tell them apart?"),
        next=("easier tasks first, or reward for steps on the way" if sparse else "harder tasks, or a finer reward",),
    )  # fmt: skip


RULE = rule(check, "reward-shape", Link.REWARD, alike=ALIKE_LIMIT)
