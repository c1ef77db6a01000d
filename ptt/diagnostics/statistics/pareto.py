"""How heavy a tail of importance weights is: the Pareto shape k-hat, and up to where a mean of them can be trusted.

A generalized Pareto distribution is fitted to the largest weights, as Pareto smoothed importance sampling does
(Vehtari et al., "Pareto smoothed importance sampling", JMLR 25(72), 2024), by the estimator of Zhang and Stephens
(Technometrics 51, 2009) with the former's prior on k. The mean of weights has a variance where k < 1/2 and exists where
k < 1; from samples of n it is unreliable above min(1 - 1/log10 n, 0.7).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

LEAST_TAIL: Final = 5  # weights above the cutoff: of fewer, the prior would be the answer
HIGHEST: Final = 0.7
RANGE: Final = 300.0  # nats below the largest weight: what lies lower is 0 beside it
PRIOR_K: Final = 0.5  # with the weight of 10 observations
PRIOR_N: Final = 10
PRIOR_B: Final = 3  # of Zhang and Stephens
CANDIDATES: Final = 30  # and one more for each square root of the tail's size


def threshold(n: int) -> float:
    """Give the k-hat above which a mean of `n` weights cannot be trusted; NaN for n <= 10, where no k-hat is low."""
    return min(1 - 1 / math.log10(n), HIGHEST) if n > 10 else math.nan


def tail_size(n: int) -> int:
    """Give how many of `n` weights are taken as their tail: 3 sqrt(n), at most a fifth."""
    return int(min(n / 5, 3 * math.sqrt(n)))


def k_hat(log_weights: FloatArray, *, n: int | None = None) -> float:
    """Give the Pareto shape of the upper tail of exp(log_weights); of `n` weights the largest, n / 5 + 1, will do.

    The scale of the weights does not matter. Where a quarter of the tail equals the cutoff (the largest weight that is
    not of the tail), as where most tokens have r = 0, only what lies above it is fitted. NaN where fewer than
    LEAST_TAIL weights do; inf where so few hold everything that the others are 0 beside them.
    """
    wanted = tail_size(len(log_weights) if n is None else n)
    if wanted < LEAST_TAIL:
        return math.nan
    largest = np.sort(np.partition(log_weights, -wanted - 1)[-wanted - 1 :])
    lowest = max(largest[0], largest[-1] - RANGE)
    tail = largest[1:] - lowest
    if tail[_quartile(wanted)] <= 0:
        tail = tail[tail > 0]
    if np.count_nonzero(tail > 0) < LEAST_TAIL:
        return math.inf if lowest > largest[0] else math.nan
    return _shape(np.expm1(np.maximum(tail, 0.0)))


def _quartile(n: int) -> int:
    return int(n / 4 + 0.5) - 1


def _shape(excess: FloatArray) -> float:
    """Give the posterior mean shape of an ascending generalized Pareto sample."""
    n = len(excess)
    candidates = CANDIDATES + int(math.sqrt(n))
    b = 1 - np.sqrt(candidates / (np.arange(1, candidates + 1) - 0.5))
    b = b / (PRIOR_B * excess[_quartile(n)]) + 1 / excess[-1]
    k = np.log1p(-b[:, None] * excess).mean(axis=1)
    profile = n * (np.log(-b / k) - k - 1)
    likelihood = np.exp(profile - profile.max())
    likelihood /= likelihood.sum()
    kept = likelihood >= 10 * np.finfo(np.float64).eps
    mean_b = float((b * likelihood)[kept].sum() / likelihood[kept].sum())
    fitted = float(np.log1p(-mean_b * excess).mean())
    return (n * fitted + PRIOR_N * PRIOR_K) / (n + PRIOR_N)
