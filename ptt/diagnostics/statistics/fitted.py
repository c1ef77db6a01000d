"""Fit how far one side's levels lie above the other's, by window, under noise that follows itself from step to step.

log level of run r in span i = f_i (shared by all runs, free) + d of its window (the variant's runs only) + noise of
the run's seed + noise of its steps, an AR(1), averaged over the span + its sequences' own. The own part is known from
redrawing; the size of the others and how steps follow each other are integrated out over a grid (restricted
likelihood, so the intervals are Student's where the noise is white). No random numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.statistics.trend import block_correlation

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

LIKENESSES: Final = (0.0, 0.2, 0.4, 0.6, 0.8)  # AR(1) between steps, each as likely beforehand
SIZES: Final = tuple(0.01 * 1.5**power for power in range(13))  # log-SD of a span's step noise, 0.01 to 1.3
SEED_SIZES: Final = (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8)  # log-SD between seeds of one setting
USUAL_SEED_SIZE: Final = 0.15  # half of it beforehand lies below: a half-Cauchy
LASTING: Final = 0.5  # share of a seed's offset that stays over the run; the rest is each window's own
MISSING: Final = 1e6  # variance of a value that is not there
LEAST_OWN: Final = 1e-8
LONG: Final = 1000  # steps in a span beyond which neighbours no longer tell it from a longer one


@dataclass(frozen=True)
class Mixture:
    """What is known of one number: normal parts with weights that add up to 1."""

    weights: FloatArray
    means: FloatArray
    spreads: FloatArray

    def mean(self) -> float:
        """Give the expectation."""
        return float((self.weights * self.means).sum())

    def above(self, value: float) -> float:
        """Give the probability of a number above `value`."""
        scaled = (value - self.means) / (self.spreads * math.sqrt(2.0))
        return float((self.weights * np.array([0.5 * math.erfc(z) for z in scaled])).sum())

    def quantile(self, q: float) -> float:
        """Give the number that lies above q of the probability."""
        low = float((self.means - 40 * self.spreads).min())
        high = float((self.means + 40 * self.spreads).max())
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if self.above(middle) > 1 - q else (low, middle)
        return (low + high) / 2


@dataclass(frozen=True)
class Fit:
    """The offset d of each window: a mixture over the grid of noises."""

    weights: FloatArray  # (grid,)
    means: FloatArray  # (grid, windows)
    covariances: FloatArray  # (grid, windows, windows)

    def of(self, contrast: FloatArray) -> Mixture:
        """Give what is known of a weighted mean of the offsets."""
        variances = np.einsum("w,gwv,v->g", contrast, self.covariances, contrast)
        return Mixture(self.weights, (self.means * contrast).sum(axis=1), np.sqrt(variances))


def fit(
    values: FloatArray, own: FloatArray, *, upper: npt.NDArray[np.bool_], windows: IntArray, steps: FloatArray
) -> Fit:
    """Fit the offsets of the runs that are `upper` over the others.

    values, own: (runs, spans) log levels and their own variance, NaN where missing; windows: (spans,) counted from 0;
    steps: (runs,) in a span.
    """
    there = np.isfinite(values) & np.isfinite(own)
    y = np.where(there, values, 0.0)
    noise = np.where(there, np.maximum(own, LEAST_OWN), MISSING)
    variances, prior = _variances(noise, windows, steps, seeds=len(values) > 2)
    precision = np.linalg.inv(variances)  # (grid, runs, spans, spans)
    member = (windows[:, None] == np.arange(windows.max() + 1)).astype(np.float64)
    pulled = np.einsum("grij,rj->gri", precision, y)
    levels = precision.sum(axis=1)
    raised = precision[:, upper].sum(axis=1)
    across = np.einsum("gij,jw->giw", raised, member)
    cleared = np.linalg.inv(levels)
    shared = np.einsum("gij,gj->gi", cleared, pulled.sum(axis=1))
    left = np.einsum("iw,giv->gwv", member, across) - np.einsum("giw,gij,gjv->gwv", across, cleared, across)
    pull = np.einsum("iw,gi->gw", member, pulled[:, upper].sum(axis=1)) - np.einsum("giw,gi->gw", across, shared)
    covariances = np.linalg.inv(left)
    means = np.einsum("gwv,gv->gw", covariances, pull)
    squares = np.einsum("ri,gri->g", y, pulled) - (pulled.sum(axis=1) * shared).sum(axis=1) - (means * pull).sum(axis=1)
    likely = np.log(prior) - 0.5 * (
        squares
        + np.linalg.slogdet(variances)[1].sum(axis=1)
        + np.linalg.slogdet(levels)[1]
        + np.linalg.slogdet(left)[1]
    )
    weights = np.exp(likely - likely.max())
    return Fit(weights / weights.sum(), means, covariances)


def _variances(own: FloatArray, windows: IntArray, steps: FloatArray, *, seeds: bool) -> tuple[FloatArray, FloatArray]:
    """Give each run's covariance for each noise of the grid, (grid, runs, spans, spans), and that noise's weight."""
    count = own.shape[1]
    followed = np.array(
        [
            [block_correlation(count, int(np.clip(round(held), 1, LONG)), likeness) for held in steps]
            for likeness in LIKENESSES
        ]
    )
    stepped = np.square(SIZES)[None, :, None, None, None] * followed[:, None]
    plain = stepped.reshape(-1, *followed.shape[1:]) + own[:, :, None] * np.eye(count)
    if not seeds:
        return plain, np.full(len(plain), 1 / len(plain))
    sizes = np.asarray(SEED_SIZES)
    same = LASTING + (1 - LASTING) * (windows[:, None] == windows)
    every = plain[:, None] + np.square(sizes)[None, :, None, None, None] * same
    prior = np.broadcast_to(sizes / (1 + np.square(sizes / USUAL_SEED_SIZE)), every.shape[:2]).reshape(-1)
    return every.reshape(-1, *plain.shape[1:]), prior / prior.sum()
