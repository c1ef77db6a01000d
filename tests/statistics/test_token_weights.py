"""Weights of tokens are the derivatives of losses that are written down as loops, token by token."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from builders import Array

from ptt.diagnostics.statistics.token_weights import (
    CONSTANT,
    K1,
    K2,
    PLAIN,
    PRODUCT,
    SEQUENCE,
    SEQUENCES,
    SUMS,
    TRUNCATED,
    Objective,
    PolicyTokens,
    score_bounds,
    token_weights,
)

LENGTHS, STEP = (3, 6, 2, 5), (0, 0, 1, 1)
ROW = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
RNG = np.random.default_rng(3)
OLD, REF, ENGINE = (-RNG.exponential(1.0, len(ROW)) for _ in range(3))
POLICY = OLD + 0.4 * RNG.normal(size=len(ROW))
ADVANTAGE = np.repeat([1.3, -0.7, 0.9, -1.1], LENGTHS)
TRAINED = RNG.random(len(ROW)) < 0.8
H = 1e-6


def tokens(**changes: object) -> PolicyTokens:
    """Lay the made tokens out; all sides are recorded."""
    made = PolicyTokens(
        row=ROW, step=np.array(STEP), advantage=ADVANTAGE, trained=TRAINED, ratio=POLICY - OLD, engine=OLD - ENGINE,
        ref=POLICY - REF,
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def loss(policy: Array, objective: Objective) -> float:
    """Add up the loss of both steps, as papers and trainers write it; gradients flow through `policy` alone."""
    total = 0.0
    for step in set(STEP):
        rows = [row for row, at in enumerate(STEP) if at == step]
        sums, counts = [], []
        for row in rows:
            inside = np.flatnonzero((row == ROW) & TRAINED)
            sums.append(math.fsum(surrogate(policy, at, inside, objective) for at in inside.tolist()))
            counts.append(len(inside))
        filled = [one / many for one, many in zip(sums, counts, strict=True) if many]
        total += {
            "token_mean": sum(sums) / sum(counts),
            "sequence_mean": sum(filled) / len(filled),
            "constant": sum(sums) / (len(filled) * objective.length),
            "sequence_sum": sum(sums) / len(filled),
        }[objective.reduction]
    return total


def surrogate(policy: Array, at: int, inside: npt.NDArray[np.int64], objective: Objective) -> float:
    """Return the loss of one token, with its KL."""
    advantage = ADVANTAGE[at]
    if objective.level == SEQUENCE:  # GSPO, eq. 10: the ratio of the sequence, its gradient by the token
        log_ratio = float(np.mean(POLICY[inside] - OLD[inside])) + policy[at] - POLICY[at]
    elif objective.level == PRODUCT:
        log_ratio = float(np.sum(POLICY[inside] - OLD[inside])) + policy[at] - POLICY[at]
    else:
        log_ratio = policy[at] - OLD[at]
    rho = math.exp(log_ratio)
    low, high = 1 - objective.low, 1 + objective.high
    if objective.surrogate == PLAIN:
        value = advantage * policy[at]
    elif objective.surrogate == TRUNCATED:
        value = min(max(math.exp(POLICY[at] - OLD[at]), low), high) * advantage * policy[at]
    else:
        value = min(rho * advantage, min(max(rho, low), high) * advantage)
        if advantage < 0:
            value = max(value, objective.dual * advantage)
    weight = math.exp(OLD[at] - ENGINE[at])
    if weight > objective.cap:
        weight = 0.0 if objective.cap_masks else objective.cap
    r = policy[at] - REF[at]
    kl = {K1: r, K2: r * r / 2}.get(objective.estimator, math.exp(-r) - 1 + r)
    return float(-weight * value + objective.kl * kl)


OBJECTIVES = {
    "ppo": Objective(),
    "dapo": Objective(high=0.28),
    "dual clip": Objective(dual=1.3),
    "grpo": Objective(reduction=SEQUENCES, kl=0.04),
    "dr_grpo": Objective(reduction=CONSTANT, length=7.0),
    "gspo": Objective(level=SEQUENCE, low=0.05, high=0.08, reduction=SEQUENCES),
    "cispo": Objective(surrogate=TRUNCATED, low=1.0, high=0.1),
    "cispo of verl": Objective(surrogate=TRUNCATED, low=0.1, high=0.1),
    "rloo": Objective(level=PRODUCT, reduction=SUMS),
    "reinforce": Objective(surrogate=PLAIN),
    "tis": Objective(cap=1.2),
    "masked": Objective(cap=1.2, cap_masks=True),
    "k1": Objective(kl=0.3, estimator=K1),
    "k2": Objective(kl=0.3, estimator=K2),
}


def slopes(function: Callable[[Array], float], at: Array) -> Array:
    """Return central differences."""
    steps = np.eye(len(at)) * H
    return np.array([(function(at + one) - function(at - one)) / (2 * H) for one in steps])


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_weight_is_minus_the_derivative_of_the_loss(name: str) -> None:
    objective = OBJECTIVES[name]
    found = token_weights(tokens(), objective)
    assert found.total == pytest.approx(-slopes(lambda policy: loss(policy, objective), POLICY), abs=1e-7)
    assert (found.total[~TRAINED] == 0).all()


@pytest.mark.parametrize("name", OBJECTIVES)
def test_what_guards_took_and_left_is_the_weight_without_any(name: str) -> None:
    objective = OBJECTIVES[name]
    found = token_weights(tokens(), objective)
    bare = replace(objective, low=1.0, high=1e9, dual=math.inf, cap=math.inf)
    shares = token_weights(tokens(advantage=np.ones(len(ROW)), ratio=None, engine=None), replace(bare, kl=0.0))
    ratio = np.ones(len(ROW))
    if objective.surrogate != PLAIN:
        sums = np.bincount(ROW, (POLICY - OLD) * TRAINED)
        levels = {SEQUENCE: (sums / np.bincount(ROW, TRAINED))[ROW], PRODUCT: sums[ROW]}
        ratio = np.exp(levels.get(objective.level, POLICY - OLD))
    by_row = np.array([shares.policy[(row == ROW) & TRAINED][0] for row in range(len(LENGTHS))])
    whole = np.abs(by_row[ROW] * ADVANTAGE * ratio * np.exp(OLD - ENGINE))
    assert np.abs(found.policy) + found.masked + found.truncated + found.clipped == pytest.approx(whole)


def test_the_score_of_a_softmax_lies_within_its_bounds() -> None:
    for spread in (0.1, 1.0, 5.0):
        logits = spread * RNG.normal(size=(200, 30))
        p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        score = np.eye(30)[4] - p
        low, high = score_bounds(np.log(p[:, 4]))
        norm = np.linalg.norm(score, axis=1)
        assert (low <= norm * (1 + 1e-9)).all()
        assert (norm <= high * (1 + 1e-9)).all()
    sure = np.array([[0.4, 0.6, 0.0]])  # all that is left lies in one place: the upper bound is reached
    assert np.linalg.norm(np.array([1, 0, 0]) - sure) == pytest.approx(score_bounds(np.log(sure[:, 0]))[1][0])
