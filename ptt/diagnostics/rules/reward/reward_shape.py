"""This run shows rewards that teach little: almost all zero, or almost all at the maximum.

What: 95% of the recorded rewards are zero in every third of the run (sparse); or 95% equal the highest one from the
first third on (too easy). Other rules report rewards that become equal later.
Why it matters: a policy gradient learns from differences. Where nearly all samples earn the same, a few decide every
step, and most samples are wasted.
What it is not: a task that was learnt: rewards that reach the maximum only at the end mean a solved task.
What to do: if sparse: easier tasks first, more samples per prompt, or reward for intermediate steps. If too easy:
harder tasks.
Source: group-relative advantages are zero where all rewards of the group are equal (arXiv 2402.03300).
"""

import math

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.rewards import Samples
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, Verdict, requires, rule
from ptt.diagnostics.rules.reward import recorded_samples
from ptt.diagnostics.wording import pct, sig

EQUAL_SHARE_LIMIT = 0.95  # of samples: of a group of 8, two thirds then hold no difference at all


@requires(recorded_samples)
def check(samples: Samples, _: Evidence, limits: Limits) -> Verdict:
    """Judge the shape of single rewards by thirds of the run."""
    thirds = np.array_split(samples.rewards, 3)
    top = float(samples.rewards.max())
    zeros = [float(np.mean(np.abs(third) < 1e-12)) for third in thirds]
    tops = [float(np.mean(third >= top - 1e-12)) for third in thirds]
    sparse = min(zeros) >= limits["alike"]
    if not sparse and (top == 0 or min(tops) < limits["alike"]):
        return Healthy(reason=f"{pct(zeros[-1])} of the last third are zero, {pct(tops[-1])} at the maximum")
    what, shares = ("zero", zeros) if sparse else (f"{sig(top)}, the highest", tops)
    least = math.floor(1000 * min(shares)) / 10  # per cent: not all are where a single one is not
    of_each = "All" if least == 100 else f"At least {least:.1f}% of"
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"{of_each} single rewards are {what}, in every third of the run",
        observed=min(shares),
        limit=limits["alike"],
        unit="share",
        onset_step=int(samples.steps[0]),
        evidence={"metric": "reward", "samples": len(samples.rewards), "first_third": shares[0],
                  "last_third": shares[-1]},
        causes=("tasks far too hard for this policy", "a scorer that never recognises the answer")
        if sparse
        else ("tasks far too easy", "a scorer that accepts anything"),
        confirm=("score ten samples by hand: would a person score them all the same?",
                 "score ten known good and ten known bad answers: does the reward separate them?"),
        next=("easier tasks first, or reward for intermediate steps" if sparse else "harder tasks, or a finer reward",),
    )  # fmt: skip


RULE = rule(check, "reward-shape", Link.REWARD, max_severity=Severity.MEDIUM, alike=EQUAL_SHARE_LIMIT)
