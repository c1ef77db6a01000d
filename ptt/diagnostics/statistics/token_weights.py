"""How much each token weighs in the gradient of a policy loss: the factor of its score, by the loss's own formula.

A loss's gradient is a sum over tokens of a weight times the score, the gradient of the token's logprob. The weights
follow from recorded columns: advantage, log ratios and masks. Positive weights make a token likelier.

Sources: PPO (arXiv 1707.06347, eq. 7), its dual clip (1912.09729, eq. 5), GRPO (2402.03300), Dr. GRPO (2503.20783),
DAPO (2503.14476), GSPO (2507.18071, eq. 5 and 10), CISPO (2506.13585, eq. 4), RLOO (2402.14740); truncated importance
sampling as in verl's `rollout_is` and TRL's `vllm_importance_sampling_cap`. Checked against `_compute_loss` of TRL 1.16
(trl/trainer/grpo_trainer.py, rloo_trainer.py) and verl (verl/trainer/ppo/core_algos.py).
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import AnyFloats, BoolArray, FloatArray, IntArray

CLIPPED, TRUNCATED, PLAIN = "clipped", "truncated", "plain"
"""Surrogates: min of the ratio and its clipped value (PPO, GRPO, GSPO); ratio as a truncated constant factor of the
logprob (CISPO); the logprob alone (REINFORCE)."""
TOKEN, SEQUENCE, PRODUCT = "token", "sequence", "product"
"""What the ratio is of: a token; a sequence's geometric mean (GSPO); the product over a sequence (TRL's RLOO)."""
TOKENS, SEQUENCES, CONSTANT, SUMS, MICRO = "token_mean", "sequence_mean", "constant", "sequence_sum", "micro_batch_mean"
"""What the surrogates are divided by; a micro-batch is taken for the whole step."""
K1, K2, K3 = "k1", "k2", "k3"
MAX_LOG_RATIO: Final = 20.0  # nats: verl clamps there, and no float32 loss survives more


@dataclass(frozen=True, kw_only=True)
class Objective:
    """A policy loss, as far as it decides what a token weighs."""

    surrogate: str = CLIPPED
    level: str = TOKEN
    low: float = 0.2  # the ratio counts from 1 - low
    high: float = 0.2  # to 1 + high
    dual: float = math.inf  # a token with a negative advantage whose ratio lies above gets no gradient
    cap: float = math.inf  # of the engine's weight old/rollout
    cap_masks: bool = False  # beyond the cap the weight is 0, not the cap
    reduction: str = TOKENS
    length: float = 1.0  # constant that CONSTANT divides by
    kl: float = 0.0  # weight of a KL penalty in the loss
    estimator: str = K3  # of that KL


@dataclass(frozen=True, kw_only=True)
class PolicyTokens:
    """Tokens that the policy sampled, laid end to end: (tokens,) unless said otherwise; rows and steps count from 0."""

    row: IntArray  # ascending
    step: IntArray  # (rows,)
    advantage: FloatArray
    trained: BoolArray  # in the loss
    ratio: FloatArray | None = None  # log ratio policy/old; None: the policy is the old one
    engine: FloatArray | None = None  # log ratio old/rollout, where the loss corrects for the engine
    ref: FloatArray | None = None  # log ratio policy/ref, where the loss has a KL

    def take(self, kept: BoolArray) -> PolicyTokens:
        """Return some of the tokens, with all rows."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return PolicyTokens(**{
            name: value if name == "step" or value is None else value[kept] for name, value in values.items()
        })  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TokenWeights:
    """The weight of each token's score, (tokens,) each; what was taken is in absolute weight, below 0 where added."""

    policy: FloatArray  # of the surrogate
    kl: FloatArray  # of the KL penalty
    masked: FloatArray  # taken because the token is not in the loss
    truncated: FloatArray  # by a cap on an importance weight
    clipped: FloatArray  # by the clip

    @property
    def total(self) -> FloatArray:
        """The weight in the loss."""
        return self.policy + self.kl


def token_weights(tokens: PolicyTokens, objective: Objective) -> TokenWeights:
    """Return the weights of an objective; what a guard takes is counted in the order mask, cap, clip."""
    share = reduction_shares(tokens, objective)
    log_ratio = level_ratios(tokens, objective.level)
    rho = np.exp(np.clip(log_ratio, -MAX_LOG_RATIO, MAX_LOG_RATIO))
    engine = np.ones(len(share)) if tokens.engine is None else np.exp(np.minimum(tokens.engine, MAX_LOG_RATIO))
    plain = share * tokens.advantage * engine * (1.0 if objective.surrogate == PLAIN else rho)
    kept = np.where(tokens.trained, plain, 0.0)
    masked = np.abs(plain) - np.abs(kept)
    capped = kept * _engine_factor(engine, objective)
    if objective.surrogate == TRUNCATED:
        capped = capped * np.clip(rho, 1 - objective.low, 1 + objective.high) / rho
    final = capped
    if objective.surrogate == CLIPPED:
        final = np.where(is_clipped(rho, tokens.advantage, objective), 0.0, capped)
    return TokenWeights(
        policy=final,
        kl=_kl_weights(tokens, objective, share),
        masked=masked,
        truncated=np.abs(kept) - np.abs(capped),
        clipped=np.abs(capped) - np.abs(final),
    )


def is_clipped(rho: FloatArray, advantage: FloatArray, objective: Objective) -> BoolArray:
    """Return which tokens the clip takes out of the gradient, (tokens,)."""
    above = (advantage > 0) & (rho > 1 + objective.high)
    below = (advantage < 0) & ((rho < 1 - objective.low) | (rho > objective.dual))
    clipped: BoolArray = above | below
    return clipped


def level_ratios(tokens: PolicyTokens, level: str) -> FloatArray:
    """Return the log ratio policy/old that each token's surrogate has, by token or by sequence."""
    if tokens.ratio is None:
        return np.zeros(len(tokens.row))
    if level == TOKEN:
        return tokens.ratio
    rows = len(tokens.step)
    total: FloatArray = np.bincount(tokens.row, tokens.ratio * tokens.trained, rows).astype(np.float64)
    if level == SEQUENCE:
        total /= np.maximum(np.bincount(tokens.row, tokens.trained, rows), 1)
    return total[tokens.row]


def reduction_shares(tokens: PolicyTokens, objective: Objective) -> FloatArray:
    """Return what a token's surrogate is multiplied by when the loss is reduced to one number, (tokens,)."""
    rows = len(tokens.step)
    count = np.bincount(tokens.row, tokens.trained, rows)
    of_step = np.bincount(tokens.step, count)
    trained_rows = np.maximum(np.bincount(tokens.step, count > 0), 1)[tokens.step]
    by_row = {
        TOKENS: 1 / np.maximum(of_step, 1)[tokens.step],
        SEQUENCES: 1 / (trained_rows * np.maximum(count, 1)),
        CONSTANT: 1 / (trained_rows * objective.length),
        SUMS: 1 / trained_rows,
    }[TOKENS if objective.reduction == MICRO else objective.reduction]
    shares: FloatArray = by_row[tokens.row]
    return shares


def _engine_factor(engine: FloatArray, objective: Objective) -> FloatArray:
    """Return by what a cap multiplies the engine's weight."""
    if math.isinf(objective.cap):
        return np.ones(len(engine))
    above = 0.0 if objective.cap_masks else objective.cap / engine
    factor: FloatArray = np.where(engine > objective.cap, above, 1.0)
    return factor


def _kl_weights(tokens: PolicyTokens, objective: Objective, share: FloatArray) -> FloatArray:
    """Return the weights of the KL penalty: minus its derivative by the policy's logprob."""
    if tokens.ref is None or not objective.kl:
        return np.zeros(len(share))
    r = np.clip(tokens.ref, -MAX_LOG_RATIO, MAX_LOG_RATIO)
    slope = {K1: np.ones(len(r)), K2: r, K3: 1 - np.exp(-r)}[objective.estimator]
    weights: FloatArray = np.where(tokens.trained, -objective.kl * share * slope, 0.0)
    return weights


def score_bounds(logp: AnyFloats) -> tuple[FloatArray, FloatArray]:
    """Return the least and the largest norm that a token's score can have at the logits, (tokens,) each.

    The score of a softmax is its one-hot vector less its probabilities: 1 - p at the token and -q elsewhere, where the
    q add up to 1 - p. Its norm is least, 1 - p, where they are spread out, and largest, sqrt(2) (1 - p), in one place.
    """
    left: FloatArray = -np.expm1(np.minimum(logp.astype(np.float64), 0.0))
    return left, math.sqrt(2.0) * left
