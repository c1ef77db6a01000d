"""This run shows a reward that goes the wrong way.

What: single samples that did the task earn less than those that did not, by five standard errors; or the mean reward
falls from each fifth of the run to the next, each time by at least half of the mean fall.
Why it matters: a wrong sign anywhere (reward, advantage, loss, chosen and rejected swapped) makes the policy worse with
every step, while all other curves look fine.
What it is not: a reward that fell after it had held or risen for a while: see reward-fell.
What to do: score ten samples by hand; trace one good and one bad sample through reward, advantage and loss, and check
the sign at each stage.
Source: Welch's standard error of the difference of two means; the decline is our own.
"""

import math
from typing import NamedTuple

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.rewards import Samples
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.reward import OUTCOME_ENABLE, REWARD_ENABLE, mean_reward, rewards_of, steady_decline
from ptt.diagnostics.statistics.bootstrap import finite_or_none
from ptt.diagnostics.wording import sig

ERRORS_LIMIT = 5.0  # standard errors: samples of one prompt are alike, so that two or three mean little
MIN_EACH = 30  # samples that did the task, and that did not


class Payment(NamedTuple):
    """Mean rewards by outcome."""

    failed: float
    done: float
    z: float  # their difference in standard errors


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Hold rewards against outcomes, sample by sample; then look at the way of the mean."""
    samples = rewards_of(evidence).samples
    payment = _payment(samples) if samples is not None else None
    reward = mean_reward(evidence)
    if samples is not None and payment is not None and payment.z <= -limits["errors"]:
        return _paid_for_failure(samples, payment, limits["errors"])
    checked = []
    if payment is not None:
        checked.append(f"samples that did the task earn {sig(payment.done)}, others {sig(payment.failed)}")
    if not isinstance(reward, NotJudged):
        decline = steady_decline(reward)
        if decline is not None:
            return Finding(
                severity=Severity.MEDIUM,
                claim=f"The reward falls from each fifth of the run to the next: {sig(decline.start)} → "
                f"{sig(decline.late)}",
                observed=decline.amount,
                limit=0.0,
                unit="reward",
                onset_step=decline.onset,
                onset_interval=decline.interval,
                evidence={"metric": "reward/mean", "logged_as": reward.raw_name,
                          "sds": finite_or_none([decline.sds])[0]},
                causes=("a wrong sign: of the reward, of the advantage, or of the loss", "tasks that get harder",
                        "chosen and rejected swapped in the reward model's data"),
                confirm=("compute reward, advantage and gradient sign of one good and one bad sample by hand",
                         "train ten steps with the reward negated: does the old reward then rise?"),
                next=("fix the sign before you change anything else",))  # fmt: skip
        checked.append("the mean does not decline steadily")
    if checked:
        return Healthy(reason="; ".join(checked))
    return NotJudged(
        reason="neither the mean reward nor single rewards with outcomes are recorded",
        missing=("reward/mean", "success"),
        enable=f"{REWARD_ENABLE}; {OUTCOME_ENABLE}",
    )


def _payment(samples: Samples) -> Payment | None:
    known = np.isfinite(samples.outcomes)
    if not known.any():
        return None
    outcomes, rewards = samples.outcomes[known], samples.rewards[known]
    middle = (outcomes.min() + outcomes.max()) / 2
    done, failed = rewards[outcomes > middle], rewards[outcomes <= middle]
    if min(len(done), len(failed)) < MIN_EACH:
        return None
    error = math.sqrt(done.var(ddof=1) / len(done) + failed.var(ddof=1) / len(failed))
    difference = float(done.mean() - failed.mean())
    z = difference / error if error > 0 else math.copysign(1e9, difference) if difference else 0.0
    return Payment(float(failed.mean()), float(done.mean()), z)


def _paid_for_failure(samples: Samples, payment: Payment, limit: float) -> Finding:
    return Finding(
        severity=Severity.HIGH,
        claim=f"Samples that did the task ({samples.outcome_name}) earn less than the others: {sig(payment.done)} "
            f"against {sig(payment.failed)}",
        observed=-payment.z,
        limit=limit,
        unit="standard errors",
        onset_step=int(samples.steps[0]),
        evidence={"metric": "reward", "logged_as": samples.outcome_name, "paid_done": payment.done,
                  "paid_failed": payment.failed, "samples": len(samples.rewards)},
        causes=("a wrong sign: of the reward, or of one of its parts", "a part that rewards what failures have more of",
                "the outcome flag is inverted"),
        confirm=("score the five highest and five lowest samples of the audit table by hand",),
        next=("fix the reward before any other change, and score the recorded samples with it again",))  # fmt: skip


RULE = rule(check, "reward-sign", Link.REWARD, errors=ERRORS_LIMIT)
