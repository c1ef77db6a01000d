"""This run shows a reward that goes the wrong way.

What: over single samples, those that did the task are paid less than those that did not, by five standard errors; or
the mean reward declines steadily from the first window to the last.
Why it matters: with a sign wrong anywhere (reward, advantage, loss, chosen and rejected swapped) training makes the
policy worse with every step, and all other curves look sound.
What to do: score ten samples by hand; trace one good and one bad sample through reward, advantage and loss, and look at
the sign at each place.
Source: Welch's standard error of the difference of two means; the decline by block means in order of time.
"""

import math

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.level_change import change_since_start
from ptt.diagnostics.evidence.rewards import Samples
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.reward import OUTCOME_ENABLE, REWARD_ENABLE, reward_of, wrong_way

ERRORS_LIMIT = 5.0  # standard errors: samples of one prompt are alike, so that two or three mean little
LEAST_EACH = 30  # samples that did the task, and that did not


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Hold rewards against outcomes, sample by sample; then look at the way of the mean."""
    samples = evidence.rewards.samples if evidence.rewards is not None else None
    apart = _apart(samples) if samples is not None else None
    reward = reward_of(evidence)
    if samples is not None and apart is not None and apart[2] <= -limits["errors"]:
        return _paid_for_failure(samples, apart, limits["errors"])
    if isinstance(reward, NotJudged) and apart is None:
        return NotJudged(
            reason="neither the mean reward nor single rewards with outcomes are recorded",
            missing=("reward/mean", "success"),
            enable=f"{REWARD_ENABLE}; {OUTCOME_ENABLE}",
        )
    if not isinstance(reward, NotJudged) and wrong_way(reward):
        turn = change_since_start(reward)
        if turn is not None:
            return Finding(
                severity=Severity.MEDIUM,
                claim=f"The reward declines steadily from the start, {turn.start:.3g} → {turn.late:.3g}",
                observed=turn.amount,
                limit=0.0,
                unit="reward",
                onset_step=turn.onset,
                onset_interval=turn.interval,
                evidence={"metric": "reward/mean", "logged_as": reward.raw_name, "sds": turn.sds
                          if math.isfinite(turn.sds) else None},
                causes=("a sign: of the reward, of the advantage, or of the loss", "tasks that get harder",
                        "chosen and rejected swapped in the reward model's data"),
                confirm=("compute reward, advantage and gradient sign of one good and one bad sample by hand",
                         "train ten steps with the reward negated: does the old reward then rise?"),
                next=("mend the sign before anything else is changed",))  # fmt: skip
    told = [] if apart is None else [f"samples that did the task are paid {apart[1]:.3g}, others {apart[0]:.3g}"]
    told += [] if isinstance(reward, NotJudged) else ["the mean does not decline steadily"]
    return Healthy(reason="; ".join(told))


def _apart(samples: Samples) -> tuple[float, float, float] | None:
    """Give the mean reward of failures and of successes, and their difference in standard errors."""
    known = np.isfinite(samples.outcomes)
    if not known.any():
        return None
    outcomes, rewards = samples.outcomes[known], samples.rewards[known]
    middle = (outcomes.min() + outcomes.max()) / 2
    done, failed = rewards[outcomes > middle], rewards[outcomes <= middle]
    if min(len(done), len(failed)) < LEAST_EACH:
        return None
    error = math.sqrt(done.var(ddof=1) / len(done) + failed.var(ddof=1) / len(failed))
    difference = float(done.mean() - failed.mean())
    ratio = difference / error if error > 0 else math.copysign(1e9, difference) if difference else 0.0
    return float(failed.mean()), float(done.mean()), ratio


def _paid_for_failure(samples: Samples, apart: tuple[float, float, float], limit: float) -> Finding:
    return Finding(
        severity=Severity.HIGH,
        claim=f"Samples that did the task ({samples.outcome_name}) are paid less than the others:"
        f" {apart[1]:.3g} against {apart[0]:.3g}",
        observed=-apart[2],
        limit=limit,
        unit="standard errors",
        onset_step=int(samples.steps[0]),
        evidence={"metric": "reward", "logged_as": samples.outcome_name, "paid_done": apart[1],
                  "paid_failed": apart[0], "samples": len(samples.rewards)},
        causes=("a sign: of the reward, or of one of its parts", "a part that pays for what failures have more of",
                "the outcome flag is inverted"),
        confirm=("score the five highest and five lowest samples of the audit table by hand",),
        next=("mend the reward before any other change, and score the recorded samples with it again",))  # fmt: skip


RULE = rule(check, "reward-sign", Link.REWARD, errors=ERRORS_LIMIT)
