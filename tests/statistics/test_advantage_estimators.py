"""Estimators of advantages against loops over groups, and how rounding is told from the values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ptt.diagnostics.statistics.advantage_estimators import (
    BFLOAT16,
    ESTIMATORS,
    FLOAT32,
    RewardedBatch,
    agrees,
    precision_of,
)
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.statistics.token_advantages import fit_critic

STEPS, GROUPS, SIZE = 3, 4, 5


def batch(seed: int = 3) -> RewardedBatch:
    generator = np.random.default_rng(seed)
    count = STEPS * GROUPS * SIZE
    order = generator.permutation(count)
    group = np.repeat(np.arange(STEPS * GROUPS), SIZE)[order]
    step = group // GROUPS
    rank = step * 2 + generator.integers(0, 2, count)
    return RewardedBatch(
        reward=generator.random(count).round(2) + (group == 0),
        group=group,
        batch=step,
        rank=np.unique(rank, return_inverse=True)[1].astype(np.int64),
        length=generator.integers(3, 40, count).astype(np.float64),
    )


def over(made: RewardedBatch, code: str, each: Callable[[FloatArray, FloatArray], FloatArray]) -> FloatArray:
    """Apply a formula to the rewards (and lengths) of each group, batch or rank, one after another."""
    found = np.empty(len(made.reward))
    codes = getattr(made, code)
    assert made.length is not None
    for one in np.unique(codes):
        rows = codes == one
        found[rows] = each(made.reward[rows], made.length[rows])
    return found


def weighted(values: FloatArray, lengths: FloatArray) -> FloatArray:
    tokens = np.repeat(values, lengths.astype(int))
    return np.asarray((values - tokens.mean()) / (tokens.std(ddof=1) + 1e-8))


def others(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    left = [np.delete(values, at) for at in range(len(values))]
    return np.array([one.mean() for one in left]), np.array([one.std(ddof=1) for one in left])


def twice(made: RewardedBatch, first: FloatArray, *, by_token: bool) -> FloatArray:
    found = np.empty(len(first))
    assert made.length is not None
    for one in np.unique(made.batch):
        rows = made.batch == one
        lengths = made.length[rows] if by_token else np.ones(int(rows.sum()))
        found[rows] = weighted(first[rows], lengths)
    return found


def grpo(r: FloatArray, ddof: int, epsilon: float) -> FloatArray:
    return np.asarray((r - r.mean()) / (r.std(ddof=ddof) + epsilon))


def looped(formula: str, epsilon: float, made: RewardedBatch) -> FloatArray:
    centred = over(made, "group", lambda r, _: r - r.mean())
    normal = over(made, "group", lambda r, _: grpo(r, 1, 1e-6))
    batch_std = over(made, "batch", lambda r, _: np.full(len(r), r.std(ddof=1)))
    length = made.length
    assert length is not None
    found: dict[str, Callable[[], FloatArray]] = {
        "grpo": lambda: over(made, "group", lambda r, _: grpo(r, 1, epsilon)),
        "grpo_population_std": lambda: over(made, "group", lambda r, _: grpo(r, 0, epsilon)),
        "dr_grpo": lambda: centred,
        "rloo": lambda: over(made, "group", lambda r, _: r - others(r)[0]),
        "rloo_std": lambda: over(made, "group", lambda r, _: (r - others(r)[0]) / (others(r)[1] + 1e-6)),
        "grpo_batch_std": lambda: centred / (batch_std + 1e-4),
        "reinforce_plus_plus_baseline": lambda: twice(made, centred, by_token=True),
        "group_mean_whitened": lambda: twice(made, centred, by_token=False),
        "grpo_whitened": lambda: twice(made, normal, by_token=False),
        "grpo_token_whitened": lambda: twice(made, normal, by_token=True),
        "opo": lambda: over(made, "group", lambda r, n: r - (r * n).sum() / n.sum()),
        "grpo_per_token": lambda: normal / length,
        "dr_grpo_per_token": lambda: centred / length,
        "batch_whitening": lambda: over(made, "batch", lambda r, _: grpo(r, 1, epsilon)),
        "reinforce_plus_plus": lambda: over(made, "batch", weighted),
        "batch_centring": lambda: over(made, "batch", lambda r, _: r - r.mean()),
        "rank_whitening": lambda: over(made, "rank", lambda r, _: grpo(r, 1, 1e-8)),
        "reward": lambda: made.reward,
        "reward_over_std": lambda: over(made, "group", lambda r, _: r / (r.std(ddof=1) + 1e-6)),
    }
    return found[formula]()


@pytest.mark.parametrize("at", range(len(ESTIMATORS)), ids=lambda at: f"{ESTIMATORS[at].formula}-{at}")
def test_an_estimator_equals_a_loop_over_groups(at: int) -> None:
    estimator, made = ESTIMATORS[at], batch()
    epsilons = (1e-4, 1e-6, 1e-8)
    same = [one for one in ESTIMATORS if one.formula == estimator.formula]
    order = epsilons if estimator.formula.startswith("grpo") else epsilons[::-1]
    epsilon = order[same.index(estimator)] if len(same) > 1 else 0.0
    found = estimator.estimate(made)
    assert found is not None
    assert np.allclose(found[0], looped(estimator.formula, epsilon, made), rtol=1e-9, atol=1e-9)


def test_one_sample_a_group_has_no_group_relative_advantage() -> None:
    lone = RewardedBatch(reward=np.array([1.0, 0.0]), group=np.arange(2), batch=np.zeros(2, np.int64))
    for estimator in ESTIMATORS:
        if estimator.grouped and estimator.centred and (found := estimator.estimate(lone)) is not None:
            assert np.allclose(found[0], 0.0), estimator.formula


@pytest.mark.parametrize("digits", [3, 4, 5])
def test_decimals_are_told_from_the_values(digits: int) -> None:
    made = batch()
    found = ESTIMATORS[0].estimate(made)
    assert found is not None
    rounded = found[0].round(digits)
    precision = precision_of(rounded, made.reward)
    assert precision.absolute == pytest.approx(0.5 * 10.0**-digits)
    assert agrees(rounded, found, precision).all()


def test_bfloat16_is_told_from_the_values() -> None:
    made = batch()
    found = ESTIMATORS[0].estimate(made)
    assert found is not None
    bits = (found[0].astype(np.float32).view(np.uint32) + np.uint32(0x8000)) & np.uint32(0xFFFF0000)
    short = bits.view(np.float32).astype(np.float64)
    assert precision_of(short, made.reward).relative == BFLOAT16
    assert agrees(short, found, precision_of(short, made.reward)).all()
    assert precision_of(found[0], made.reward).relative == FLOAT32


def generalised(
    reward: float, value: FloatArray, gamma: float, lam: float, penalty: float | FloatArray = 0.0
) -> FloatArray:
    """Return GAE's advantages of one sequence by its recursion; the reward is on the last token, a penalty on each."""
    found, after = np.zeros(len(value)), 0.0
    taken = np.broadcast_to(penalty, value.shape)
    for at in range(len(value) - 1, -1, -1):
        last = at == len(value) - 1
        delta = (reward if last else gamma * value[at + 1]) - value[at] - taken[at]
        after = found[at] = delta + gamma * lam * after
    return found


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 0.95), (0.99, 0.95), (1.0, 1.0)])
@pytest.mark.parametrize("whitened", [False, True])
def test_a_critics_advantages_are_told_with_their_decay(gamma: float, lam: float, *, whitened: bool) -> None:
    generator = np.random.default_rng(5)
    values = [generator.normal(size=generator.integers(4, 30)) for _ in range(40)]
    raw = [generalised(float(generator.random() < 0.5), value, gamma, lam) for value in values]
    sequence = np.repeat(np.arange(40), [len(value) for value in values])
    value, plain = np.concatenate(values), np.concatenate(raw)
    taken = (plain - plain.mean()) / plain.std() if whitened else plain
    fit = fit_critic(taken, value, plain + value, sequence, np.zeros(len(value), np.int64))
    assert (fit.whitened, fit.decay) == (whitened, (gamma, lam))
    other = fit_critic(
        generator.normal(size=len(value)), value, plain + value, sequence, np.zeros(len(value), np.int64)
    )
    assert other.whitened is None


K3: Callable[[FloatArray], FloatArray] = lambda x: np.exp(-x) - 1 + x  # noqa: E731


@pytest.mark.parametrize(("name", "penalty"), [("k1", lambda x: x), ("k2", lambda x: x**2 / 2), ("k3", K3)])
def test_a_penalty_in_the_reward_is_told_with_its_coefficient(
    name: str, penalty: Callable[[FloatArray], FloatArray]
) -> None:
    generator = np.random.default_rng(7)
    values = [generator.normal(size=generator.integers(4, 30)) for _ in range(40)]
    drifts = [generator.normal(0.02, 0.3, size=len(value)) for value in values]
    raw = [
        generalised(1.0, value, 0.99, 0.95, 0.05 * penalty(drift)) for value, drift in zip(values, drifts, strict=True)
    ]
    sequence = np.repeat(np.arange(40), [len(value) for value in values])
    value, advantage, drift = (np.concatenate(rows) for rows in (values, raw, drifts))
    step = np.zeros(len(value), np.int64)
    fit = fit_critic(advantage, value, advantage + value, sequence, step, drift)
    assert fit.decay == (0.99, 0.95)
    assert fit.penalty is not None
    assert fit.penalty[0] == name
    assert fit.penalty[1] == pytest.approx(0.05)
    for unrelated in (generator.normal(size=len(value)), np.full(len(value), np.nan), None):
        assert fit_critic(advantage, value, advantage + value, sequence, step, unrelated).penalty is None
