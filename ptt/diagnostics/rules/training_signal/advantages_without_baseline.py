"""This run shows advantages that equal the rewards: no baseline is subtracted.

What: of the recorded samples that earned something, or have an advantage, nine in ten have an advantage in one
proportion to their reward, within a hundredth, at nine steps in ten. Without single ones: the largest and the smallest
advantage of a step equal those of the rewards, likewise, while the reward moves. Where they are not logged or never
move, the means are compared.
Why it matters: every sample, good or bad, is pushed up by what it earned. The gradient is mostly noise, and with
rewards of one sign the policy is pulled towards whatever it samples.
What it is not: REINFORCE, which has no baseline by choice. Not judged where the rewards that are logged lie
around 0: their baseline may have been taken off before.
What to do: sample several answers per prompt (veRL `actor_rollout_ref.rollout.n`, TRL `num_generations`), or use an
estimator that has a baseline (RLOO, REINFORCE++, a critic).
Source: GRPO subtracts the mean of the group (arXiv 2402.03300); with a group of one veRL takes that mean for 0
(`compute_grpo_outcome_advantage`), so the advantage is the score.
"""

from typing import Final, TypedDict

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.rewards import Samples
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.model import JsonScalar, Link, Severity
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
from ptt.diagnostics.rules.single_series import aligned, logged, metric_evidence
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.wording import pct, sig

EQUAL_SHARE = 0.9  # of the steps that log both, and of a step's samples
MIN_STEPS = 10  # with informative samples: a handful may agree by chance
MIN_SAMPLES = 4  # of a step
SAMPLES = ("rollout_n", "num_generations", "n_samples_per_prompt", "num_samples_per_prompt")
SIDES = ("max", "min")
CENTRED = 0.05  # of the smaller extreme, that the mean of rewards is off 0: those of groups leave no more
TOLERANCE = 0.01  # of the rewards' spread: a normalising epsilon and rounding stay below it
ENABLE = "log the mean advantage of each step: veRL logs critic/advantages/mean"


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Compare advantages with rewards: of single samples if recorded, else the values logged at each step."""
    if evidence.algorithm.name == "reinforce":
        return does_not_apply("REINFORCE")
    samples = evidence.rewards.samples if evidence.rewards is not None else None
    proportions = _proportions(samples) if samples is not None else None
    if samples is None or proportions is None or len(proportions.steps) < MIN_STEPS:
        return _of_means(evidence, limits)
    return _of_samples(samples, proportions, evidence, limits)


@dataclass(frozen=True, kw_only=True)
class Proportions:
    """By step: the advantage for a reward of 1, and the share of samples whose advantage it explains."""

    steps: IntArray
    factors: FloatArray
    equal: FloatArray
    samples: int


def _proportions(samples: Samples) -> Proportions | None:
    """Return how single advantages relate to single rewards, at steps with enough samples; None if there are none.

    Samples with zero reward and zero advantage fit any relation, so they do not count.
    """
    both = np.isfinite(samples.rewards) & np.isfinite(samples.advantages)
    telling = both & ((np.abs(samples.rewards) > 0) | (np.abs(samples.advantages) > 0))
    if not telling.any():
        return None
    steps, first = np.unique(samples.steps[telling], return_index=True)
    rewards, advantages = samples.rewards[telling], samples.advantages[telling]
    found = []
    for step, reward, advantage in zip(
        steps.tolist(), np.split(rewards, first[1:]), np.split(advantages, first[1:]), strict=True
    ):
        paid = reward != 0
        if len(reward) < MIN_SAMPLES or not paid.any():
            continue
        factor = float(np.median(advantage[paid] / reward[paid]))
        off = np.abs(advantage - factor * reward)
        equal = off <= TOLERANCE * max(abs(factor) * float(np.abs(reward).mean()), float(np.abs(advantage).mean()))
        found.append((step, factor, float(equal.mean()) if factor > 0 else 0.0))
    if not found:
        return None
    columns = list(zip(*found, strict=True))
    return Proportions(
        steps=np.array(columns[0]), factors=np.array(columns[1]), equal=np.array(columns[2]), samples=int(telling.sum())
    )


def _of_samples(samples: Samples, found: Proportions, evidence: Evidence, limits: Limits) -> Verdict:
    wrong = found.equal >= EQUAL_SHARE
    since = _lasting_since(wrong, limits["equal"])
    if since is None:
        return Healthy(
            reason=f"single advantages are in one proportion to rewards at {pct(float(wrong.mean()))} of "
            f"{len(wrong)} steps"
        )
    step, share = int(found.steps[since]), float(wrong[since:].mean())
    factor = float(np.median(found.factors[since:]))
    same = abs(factor - 1) <= TOLERANCE
    begins = since > 0
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"Advantages are {'the rewards themselves' if same else f'{sig(factor)} times the rewards'} at "
        f"{pct(share)} of steps{f' from step {step} on' if begins else ''}, sample by sample: no baseline is subtracted"
        f"{_one_answer(evidence)}",
        observed=share,
        limit=limits["equal"],
        unit="share",
        onset_step=step if begins else None,
        onset_interval=(int(found.steps[since - 1]) + 1, step) if begins else None,
        held_from_step=None if begins else step,
        evidence={
            "metric": "advantage",
            "compared_with": "reward",
            "samples": found.samples,
            "mean_advantage": float(np.nanmean(samples.advantages)),
            "samples_a_prompt": _samples_a_prompt(evidence),
        },
        **ADVICE,
    )


def _lasting_since(wrong: BoolArray, share: float) -> int | None:
    """Return the first step from which, up to the end, at least `share` are wrong; None if too few are."""
    tail = np.cumsum(wrong[::-1])[::-1] / np.arange(len(wrong), 0, -1)
    lasting = np.flatnonzero((tail >= share) & wrong)
    lasting = lasting[len(wrong) - lasting >= MIN_STEPS]
    return int(lasting[0]) if len(lasting) else None


def _of_means(evidence: Evidence, limits: Limits) -> Verdict:
    """Hold what is logged of advantages against what is logged of rewards, step by step."""
    advantage = logged(evidence, "advantage/mean", what="mean advantage", enable=ENABLE)
    if isinstance(advantage, NotJudged):
        return advantage
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
    if len(pairs) == len(SIDES) and _is_centred(evidence, extremes):
        return NotJudged(
            reason="the rewards that are logged lie around 0 at each step: a baseline may have been taken off before",
            missing=("advantage of each sample",),
            enable="record samples with their reward and advantage",
        )
    shares = [_equal_share(*pair) for pair in pairs]
    told = [share for share in shares if share is not None]
    if len(told) < len(shares):
        return NotJudged(
            reason=f"reward and advantage are both 0 at all but a few of {len(steps)} steps",
            missing=("reward/mean",),
            enable="train on tasks that are solved now and then: a reward of 0 shows nothing of a baseline",
        )
    equal = min(told)
    if equal < limits["equal"]:
        return Healthy(reason=f"advantages equal rewards at {pct(equal)} of {len(steps)} steps")
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"Advantages equal rewards at {pct(equal)} of steps: no baseline is subtracted{_one_answer(evidence)}",
        observed=equal,
        limit=limits["equal"],
        unit="share",
        onset_step=int(steps[0]),
        onset_interval=(int(steps[0]), int(steps[0])),
        evidence=metric_evidence(
            advantage, compared_with=reward.raw_name, samples_a_prompt=_samples_a_prompt(evidence)
        ),
        **ADVICE,
    )


class Advice(TypedDict):
    """The advice for either kind of evidence."""

    causes: tuple[str, ...]
    confirm: tuple[str, ...]
    next: tuple[str, ...]


ADVICE: Final[Advice] = {
    "causes": ("a group of one sample per prompt", "a baseline that is always 0, or an advantage that skips it"),
    "confirm": ("check how many samples per prompt the configuration asks for (rollout.n, num_generations)",),
    "next": ("sample four to sixteen answers per prompt, or use an estimator with a baseline",),
}


def _samples_a_prompt(evidence: Evidence) -> JsonScalar:
    return next((evidence.run.context[name] for name in SAMPLES if name in evidence.run.context), None)


def _one_answer(evidence: Evidence) -> str:
    return "; the run samples one answer per prompt" if _samples_a_prompt(evidence) == 1 else ""


def _pair(evidence: Evidence, side: str) -> tuple[Series, Series] | None:
    """Return the largest or smallest advantage and reward of each step, where both are logged."""
    advantage = evidence.other.get(f"critic/advantages/{side}")
    reward = evidence.other.get(f"critic/rewards/{side}", evidence.other.get(f"critic/score/{side}"))
    return None if advantage is None or reward is None else (advantage, reward)


def _is_centred(evidence: Evidence, extremes: list[tuple[Series, Series]]) -> bool:
    """Return whether rewards lie around 0: those that ROLL logs are normalised by group already."""
    mean = evidence.other.get("critic/rewards/mean", evidence.metrics.get("reward/mean"))
    high, low = (float(np.median(rewards.finite()[1])) for _, rewards in extremes)
    if mean is None or low >= 0 or high <= 0:
        return False
    return float(np.median(np.abs(mean.finite()[1]))) <= CENTRED * min(high, -low)


def _equal_share(advantage: Series, reward: Series) -> float | None:
    """Return the share of steps at which both are equal; None where too few have one that is not 0."""
    _, advantages, rewards = aligned(advantage, reward)
    telling = (advantages != 0) | (rewards != 0)
    if int(telling.sum()) < MIN_STEPS:
        return None
    advantages, rewards = advantages[telling], rewards[telling]
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
