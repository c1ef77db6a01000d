"""This run shows advantages that equal the rewards: no baseline is subtracted.

What: the largest and the smallest advantage of a step equal those of the rewards at nine steps in ten, within a
hundredth, while the reward moves. Where they are not logged or never move, the means are compared.
Why it matters: every sample, good or bad, is pushed up by what it earned. The gradient is mostly noise, and with
rewards of one sign the policy is pulled towards whatever it samples.
What it is not: REINFORCE, which has no baseline by choice.
What to do: sample several answers per prompt (veRL `actor_rollout_ref.rollout.n`, TRL `num_generations`), or use an
estimator that has a baseline (RLOO, REINFORCE++, a critic).
Source: GRPO subtracts the mean of the group (arXiv 2402.03300); with a group of one veRL takes that mean for 0
(`compute_grpo_outcome_advantage`), so the advantage is the score.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import (
    REWARDED_LANGUAGE,
    Finding,
    Healthy,
    Limits,
    NotJudged,
    Verdict,
    does_not_apply,
    rule,
)
from ptt.diagnostics.rules.single_series import aligned, logged, metric_evidence, requires_metric
from ptt.diagnostics.wording import pct

EQUAL_SHARE = 0.9  # of the steps that log both
SAMPLES = ("rollout_n", "num_generations", "n_samples_per_prompt", "num_samples_per_prompt")
SIDES = ("max", "min")
TOLERANCE = 0.01  # of the spread of the rewards: a normalising epsilon and rounding stay below
ENABLE = "log the mean advantage of each step: veRL logs critic/advantages/mean"


@requires_metric("advantage/mean", what="mean advantage", enable=ENABLE)
def check(advantage: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Hold the mean advantage against the mean reward, step by step."""
    if evidence.algorithm.name == "reinforce":
        return does_not_apply("REINFORCE")
    reward = logged(evidence, "reward/mean", what="mean reward", enable="log the mean reward at every step")
    if isinstance(reward, NotJudged):
        return reward
    extremes = [pair for side in SIDES if (pair := _pair(evidence, side)) is not None]
    moving = all(bool(np.ptp(rewards.finite()[1]) > 0) for _, rewards in extremes)  # pass or fail has fixed extremes
    pairs = extremes if len(extremes) == len(SIDES) and moving else [(advantage, reward)]
    steps, _, rewards = aligned(*pairs[0])
    spread = float(rewards.std()) if len(rewards) else 0.0
    if len(steps) < MIN_LOGGED or spread == 0.0:
        reason = "the reward does not move, so nothing shows what is subtracted"
        return NotJudged(reason=reason, missing=("reward/mean",), enable=ENABLE)
    equal = min(_equal_share(*pair) for pair in pairs)
    if equal < limits["equal"]:
        return Healthy(reason=f"advantages equal rewards at {pct(equal)} of {len(steps)} steps")
    samples = next((evidence.run.context[name] for name in SAMPLES if name in evidence.run.context), None)
    why = "; the run samples one answer per prompt" if samples == 1 else ""
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"Advantages equal rewards at {pct(equal)} of steps: no baseline is subtracted{why}",
        observed=equal,
        limit=limits["equal"],
        unit="share",
        onset_step=int(steps[0]),
        onset_interval=(int(steps[0]), int(steps[0])),
        evidence=metric_evidence(advantage, compared_with=reward.raw_name, samples_a_prompt=samples),
        causes=("a group of one sample per prompt", "a baseline that is always 0"),
        confirm=("check how many samples per prompt the configuration asks for (rollout.n, num_generations)",),
        next=("sample four to sixteen answers per prompt, or use an estimator with a baseline",),
    )


def _pair(evidence: Evidence, side: str) -> tuple[Series, Series] | None:
    """Return the largest or smallest advantage and reward of each step, where both are logged."""
    advantage = evidence.other.get(f"critic/advantages/{side}")
    reward = evidence.other.get(f"critic/rewards/{side}", evidence.other.get(f"critic/score/{side}"))
    return None if advantage is None or reward is None else (advantage, reward)


def _equal_share(advantage: Series, reward: Series) -> float:
    _, advantages, rewards = aligned(advantage, reward)
    if not len(rewards):
        return 0.0
    scale = TOLERANCE * max(float(rewards.std()), float(np.abs(rewards).mean()))
    return float((np.abs(advantages - rewards) <= scale).mean())


RULE = rule(
    check,
    "advantages-without-baseline",
    Link.TRAINING_SIGNAL,
    max_severity=Severity.MEDIUM,
    equal=EQUAL_SHARE,
    families=REWARDED_LANGUAGE,
)
