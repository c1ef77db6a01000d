"""Advantages from rewards by each known estimator, for all samples of a run at once.

A sample belongs to one prompt group and one batch, each an integer code. An estimator returns the advantage of every
sample and by how much it moves when a reward does, which tells how far rounded rewards can shift it.
Sources: GRPO (arXiv 2402.03300), Dr. GRPO (2503.20783), RLOO (2402.14740), REINFORCE++ (2501.03262), OPO (2505.23585),
and the code of TRL, veRL, OpenRLHF, NeMo-RL, slime and prime-rl for their epsilons and denominators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class RewardedBatch:
    """Samples with what their advantages are computed from, one entry a sample, codes from 0."""

    reward: FloatArray  # (samples,)
    group: IntArray  # of samples that answer one prompt in one batch
    batch: IntArray  # of samples that one step trains on
    rank: IntArray | None = None  # of samples of one batch on one rank
    length: FloatArray | None = None  # tokens that the policy sampled


Estimate = tuple[FloatArray, FloatArray]
"""The advantage of each sample, and its derivative with respect to a reward, up to a factor near 1."""


@dataclass(frozen=True, kw_only=True)
class Estimator:
    """A formula by its id, the same for every epsilon, and in words."""

    formula: str
    said: str
    estimate: Callable[[RewardedBatch], Estimate | None]  # None where the batch lacks a column that it needs
    grouped: bool  # compares a sample with others of its prompt
    centred: bool  # advantages of a group, or of the batch, have mean 0
    whole_batch: bool = False  # compares a sample with those of other prompts


def mean_by(values: FloatArray, code: IntArray, weights: FloatArray | None = None) -> FloatArray:
    """Return each entry's mean over its code (entries,), weighted where weights (entries,) are given."""
    weight = np.ones(len(values)) if weights is None else weights
    total = np.bincount(code, weights=weight)
    mean: FloatArray = np.bincount(code, weights=values * weight) / np.where(total > 0, total, 1.0)
    return mean[code]


def size_by(code: IntArray) -> FloatArray:
    """Return of each entry how many share its code (entries,)."""
    return np.bincount(code)[code].astype(np.float64)


def std_by(values: FloatArray, code: IntArray, *, ddof: int, weights: FloatArray | None = None) -> FloatArray:
    """Return each entry's standard deviation over its code (entries,); 0 for a code of one entry."""
    weight = np.ones(len(values)) if weights is None else weights
    off = values - mean_by(values, code, weights)
    total = np.bincount(code, weights=weight)
    left = np.maximum(total - ddof, 1e-12)
    variance = np.where(total > ddof, np.bincount(code, weights=weight * off * off) / left, 0.0)
    std: FloatArray = np.sqrt(variance)
    return std[code]


def group_normalised(batch: RewardedBatch, *, ddof: int, epsilon: float) -> Estimate:
    """Return GRPO's advantages: reward less the group's mean, over its standard deviation plus epsilon."""
    scale = 1 / (std_by(batch.reward, batch.group, ddof=ddof) + epsilon)
    return (batch.reward - mean_by(batch.reward, batch.group)) * scale, scale


def group_centred(batch: RewardedBatch) -> Estimate:
    """Return Dr. GRPO's advantages: reward less the group's mean."""
    return batch.reward - mean_by(batch.reward, batch.group), np.ones(len(batch.reward))


def leave_one_out(batch: RewardedBatch) -> Estimate:
    """Return RLOO's advantages: reward less the mean of the group's other samples; 0 for a group of one."""
    size = size_by(batch.group)
    factor = np.where(size > 1, size / np.maximum(size - 1, 1), 0.0)
    return (batch.reward - mean_by(batch.reward, batch.group)) * factor, np.maximum(factor, 1.0)


def leave_one_out_normalised(batch: RewardedBatch) -> Estimate:
    """Return NeMo-RL's advantages: reward less the others' mean, over the others' standard deviation.

    `calculate_baseline_and_std_per_prompt` leaves the sample itself out of both; where all others earn the same, the
    deviation is 0 and is not divided by.
    """
    size = size_by(batch.group)
    others = np.maximum(size - 1, 1)
    centred = batch.reward - mean_by(batch.reward, batch.group)  # moments about the group's mean lose no digits
    mean = -centred / others
    square = (size * mean_by(centred**2, batch.group) - centred**2) / others
    variance = np.maximum(square - mean**2, 0.0) * others / np.maximum(others - 1, 1)
    std = np.where(variance > EQUAL**2, np.sqrt(variance), 0.0)
    scale = np.where(std > 0, 1 / (std + 1e-6), 1.0)
    return np.where(size > 1, (centred - mean) * scale, 0.0), scale


def batch_scaled(batch: RewardedBatch, *, epsilon: float) -> Estimate:
    """Return reward less the group's mean, over the standard deviation of the batch's rewards."""
    scale = 1 / (std_by(batch.reward, batch.batch, ddof=1) + epsilon)
    return (batch.reward - mean_by(batch.reward, batch.group)) * scale, scale


def whitened(
    batch: RewardedBatch, values: FloatArray, code: IntArray, *, by_token: bool = False, epsilon: float = 1e-8
) -> Estimate | None:
    """Return values less their mean, over their standard deviation, both over each code's samples or tokens."""
    if by_token and batch.length is None:
        return None
    weights = batch.length if by_token else None
    scale = 1 / (std_by(values, code, ddof=1, weights=weights) + epsilon)
    return (values - mean_by(values, code, weights)) * scale, scale


def group_then_batch(batch: RewardedBatch, *, normalised: bool, by_token: bool) -> Estimate | None:
    """Return the group's advantages, Dr. GRPO's or GRPO's, whitened over the batch once more."""
    first, inner = group_normalised(batch, ddof=1, epsilon=1e-6) if normalised else group_centred(batch)
    found = whitened(batch, first, batch.batch, by_token=by_token)
    return None if found is None else (found[0], found[1] * inner)


def length_weighted_baseline(batch: RewardedBatch) -> Estimate | None:
    """Return OPO's advantages: reward less the group's mean weighted by response length."""
    if batch.length is None:
        return None
    return batch.reward - mean_by(batch.reward, batch.group, batch.length), np.ones(len(batch.reward))


def per_token(batch: RewardedBatch, *, normalised: bool) -> Estimate | None:
    """Return GRPO's or Dr. GRPO's advantages divided by the response's length."""
    if batch.length is None:
        return None
    found, scale = group_normalised(batch, ddof=1, epsilon=1e-6) if normalised else group_centred(batch)
    length = np.maximum(batch.length, 1.0)
    return found / length, scale / length


def batch_centred(batch: RewardedBatch) -> Estimate:
    """Return reward less the batch's mean."""
    return batch.reward - mean_by(batch.reward, batch.batch), np.ones(len(batch.reward))


def unchanged(batch: RewardedBatch) -> Estimate:
    """Return the rewards themselves."""
    return batch.reward, np.ones(len(batch.reward))


def group_scaled(batch: RewardedBatch) -> Estimate:
    """Return rewards over the group's standard deviation, from which no mean is subtracted."""
    scale = 1 / (std_by(batch.reward, batch.group, ddof=1) + 1e-6)
    return batch.reward * scale, scale


EQUAL: Final = 1e-6  # rewards of one group that differ by no more count as equal
EPSILONS: Final = (1e-4, 1e-6, 1e-8)  # TRL; veRL, slime, SkyRL; PyTorch's habit


def _plain(epsilon: float) -> str:
    return f"{epsilon:.0e}".replace("e-0", "e-")


def _grpo(ddof: int, epsilon: float) -> Estimator:
    denominator = "n - 1" if ddof else "n"
    return Estimator(
        formula="grpo" if ddof else "grpo_population_std",
        said=f"GRPO: reward less the group's mean over its standard deviation ({denominator}), plus {_plain(epsilon)}",
        estimate=lambda batch: group_normalised(batch, ddof=ddof, epsilon=epsilon),
        grouped=True,
        centred=True,
    )


def _group(formula: str, said: str, estimate: Callable[[RewardedBatch], Estimate | None]) -> Estimator:
    return Estimator(formula=formula, said=said, estimate=estimate, grouped=True, centred=True)


def _batch(
    formula: str,
    said: str,
    estimate: Callable[[RewardedBatch], Estimate | None],
    *,
    grouped: bool = False,
    whole: bool = True,
) -> Estimator:
    return Estimator(
        formula=formula, said=said, estimate=estimate, grouped=grouped, centred=True, whole_batch=whole and not grouped
    )


def _whitening(epsilon: float) -> Estimator:
    return _batch(
        "batch_whitening",
        "reward whitened over all samples of the batch, whatever their prompt",
        lambda batch: whitened(batch, batch.reward, batch.batch, epsilon=epsilon),
    )


ESTIMATORS: Final[tuple[Estimator, ...]] = (
    *(_grpo(1, epsilon) for epsilon in EPSILONS),
    *(_grpo(0, epsilon) for epsilon in EPSILONS),
    _group("dr_grpo", "Dr. GRPO: reward less the group's mean", group_centred),
    _group("rloo", "RLOO: reward less the mean of the group's other samples", leave_one_out),
    _group(
        "rloo_std",
        "leave-one-out: reward less the mean of the group's other samples over their standard deviation",
        leave_one_out_normalised,
    ),
    _batch(
        "grpo_batch_std",
        "reward less the group's mean over the standard deviation of the batch",
        lambda batch: batch_scaled(batch, epsilon=1e-4),
        grouped=True,
    ),
    _batch(
        "reinforce_plus_plus_baseline",
        "REINFORCE++ with baseline: reward less the group's mean, whitened over the batch's tokens",
        lambda batch: group_then_batch(batch, normalised=False, by_token=True),
        grouped=True,
    ),
    _batch(
        "group_mean_whitened",
        "reward less the group's mean, whitened over the batch's samples",
        lambda batch: group_then_batch(batch, normalised=False, by_token=False),
        grouped=True,
    ),
    _batch(
        "grpo_whitened",
        "GRPO, whitened over the batch's samples once more",
        lambda batch: group_then_batch(batch, normalised=True, by_token=False),
        grouped=True,
    ),
    _batch(
        "grpo_token_whitened",
        "GRPO, whitened over the batch's tokens once more",
        lambda batch: group_then_batch(batch, normalised=True, by_token=True),
        grouped=True,
    ),
    _group("opo", "OPO: reward less the group's mean weighted by length", length_weighted_baseline),
    _group("grpo_per_token", "GRPO, divided by the length", lambda batch: per_token(batch, normalised=True)),
    _group("dr_grpo_per_token", "Dr. GRPO, divided by the length", lambda batch: per_token(batch, normalised=False)),
    *(_whitening(epsilon) for epsilon in EPSILONS[::-1]),
    _batch(
        "reinforce_plus_plus",
        "REINFORCE++: reward whitened over all tokens of the batch, whatever their prompt",
        lambda batch: whitened(batch, batch.reward, batch.batch, by_token=True),
    ),
    _batch("batch_centring", "reward less the mean of the batch, whatever the prompt", batch_centred),
    _batch(
        "rank_whitening",
        "reward whitened over the samples of each rank, whatever their prompt",
        lambda batch: None if batch.rank is None else whitened(batch, batch.reward, batch.rank),
    ),
    Estimator(
        formula="reward", said="the reward itself, no baseline", estimate=unchanged, grouped=False, centred=False
    ),
    Estimator(
        formula="reward_over_std",
        said="reward over the group's standard deviation, no mean subtracted",
        estimate=group_scaled,
        grouped=True,
        centred=False,
    ),
)
"""In the order in which they are tried: of two that fit equally well, the first is named."""
OVER_GROUPS: Final = frozenset({"grpo", "grpo_population_std", "dr_grpo", "rloo", "grpo_batch_std"})
CORE: Final = tuple(one for one in ESTIMATORS if one.formula in OVER_GROUPS)
"""Those that can be held against other ways of grouping: of columns beside the reward they need none but a group."""


@dataclass(frozen=True, kw_only=True)
class Precision:
    """How far a recorded number may lie from what was computed."""

    absolute: float  # of an advantage
    relative: float  # of an advantage
    reward: float  # absolute, of a reward


FLOAT32: Final = 2e-5  # relative: mean, deviation and quotient in 32 bits, with room
BFLOAT16: Final = 2.0**-7  # relative: two units in the last place of 8 bits
ULPS: Final = 4 * 2.0**-24  # of a reward in 32 bits: its own rounding and that of the mean
MAX_DECIMALS: Final = 6  # that writers of JSON round to
MIN_DECIMALS: Final = 3  # advantages that need fewer are quotients of small numbers, and exact
MIN_REWARD_DECIMALS: Final = 4  # rewards are made of a few decimals
MIN_ROUNDED: Final = 4  # distinct values on a grid of decimals: fewer lie there without being rounded


def precision_of(advantage: FloatArray, reward: FloatArray) -> Precision:
    """Tell from the values themselves how they were rounded: to decimals, to bfloat16, or to 32 bits."""
    known = advantage[np.isfinite(advantage)]
    bits = known.astype(np.float32).view(np.uint32)
    coarse = not np.any(bits & np.uint32(0xFFFF)) and bool(np.any(bits & np.uint32(0x7 << 16)))
    largest = float(np.abs(reward[np.isfinite(reward)]).max(initial=0.0))
    return Precision(
        absolute=max(1e-6, _half_unit(known, MIN_DECIMALS)),
        relative=BFLOAT16 if coarse else FLOAT32,
        reward=max(ULPS * largest, _half_unit(reward[np.isfinite(reward)], MIN_REWARD_DECIMALS)),
    )


def _half_unit(values: FloatArray, least: int) -> float:
    """Return half a unit in the last decimal that values are rounded to; 0 where they are not rounded."""
    distinct = np.unique(values)
    if len(distinct) < MIN_ROUNDED:
        return 0.0
    for digits in range(MAX_DECIMALS + 1):
        off = distinct * 10.0**digits
        if np.all(np.abs(off - np.round(off)) <= 1e-3 + 1e-7 * np.abs(off)):
            return 0.5 * 10.0**-digits if digits >= least else 0.0
    return 0.0


MAX_SHIFT: Final = 0.05  # by rounded rewards: beyond it, where a group's rewards are equal, any advantage would agree


def agrees(advantage: FloatArray, found: Estimate, precision: Precision) -> BoolArray:
    """Return which advantages are those of an estimate, within rounding (samples,); NaN never agrees."""
    value, scale = found
    shifted = np.minimum(precision.reward * scale, MAX_SHIFT)
    room = precision.absolute + precision.relative * np.abs(value) + shifted
    return np.asarray(np.abs(advantage - value) <= room)
