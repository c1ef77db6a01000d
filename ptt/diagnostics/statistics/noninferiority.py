"""Return whether one run's tails lie above another's beyond the noise of both, span by matched span."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.step_matching import MIN_SPANS
from ptt.diagnostics.statistics.tail_curves import Curve, floor_curve, third_of
from ptt.diagnostics.statistics.tail_growth import LEVEL_FLOOR
from ptt.diagnostics.statistics.trend import block_correlation
from ptt.diagnostics.statistics.windows import WINDOWS

AR1_PRIOR: Final = {0.0: 0.1, 0.2: 0.1, 0.4: 0.1, 0.6: 0.15, 0.8: 0.4, 0.9: 0.15}
"""AR(1) between steps, and its prior weight. A dozen spans of a few steps hardly determine it: weight lies where
trust would do harm, so that intervals still cover 95 % where steps are correlated at 0.8."""
STEP_NOISE_SDS: Final = tuple(0.015 * 1.8**power for power in range(8))  # log-SD of a span's step noise, 0.015 to 0.92
SEED_NOISE_SDS: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)  # log-SD between seeds of one setting
MEAN_SEED_SD: Final = 0.15
"""Its prior mean (exponential). Two or three seeds alone determine it so badly that no factor of 1.6 would show;
where they lie further apart than this, they say so themselves."""
PERSISTENT_SHARES: Final = (1.0, 0.5)  # share of a seed's offset that stays over the run; the rest is each window's own
MISSING_VARIANCE: Final = 1e6  # variance of a value that is not there
MIN_VARIANCE: Final = 1e-8
NEGLIGIBLE_WEIGHT: Final = 1e-6  # weight, against the likeliest noise's, of one that is left out
SEARCH_SDS: Final = 12.0  # standard deviations that cover all but 1e-32 of a normal part
BISECTIONS: Final = 45
MAX_SPAN_STEPS: Final = 1000  # steps in a span beyond which a longer one gives the same correlations


@dataclass(frozen=True)
class NormalMixture:
    """What is known of one number: normal parts with weights that add up to 1."""

    weights: FloatArray
    means: FloatArray
    spreads: FloatArray

    def mean(self) -> float:
        """Return the expectation."""
        return float((self.weights * self.means).sum())

    def above(self, value: float) -> float:
        """Return the probability of a number above `value`."""
        scaled = (value - self.means) / (self.spreads * math.sqrt(2.0))
        return float((self.weights * np.array([0.5 * math.erfc(z) for z in scaled])).sum())

    def quantile(self, q: float) -> float:
        """Return the number that lies above q of the probability."""
        low = float((self.means - SEARCH_SDS * self.spreads).min())
        high = float((self.means + SEARCH_SDS * self.spreads).max())
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.above(middle) > 1 - q else (low, middle)
        return (low + high) / 2


@dataclass(frozen=True)
class MixedModel:
    """The offset d of each window: a mixture over the grid of noises."""

    weights: FloatArray  # (grid,)
    means: FloatArray  # (grid, windows)
    covariances: FloatArray  # (grid, windows, windows)

    def of(self, contrast: FloatArray) -> NormalMixture:
        """Return what is known of a weighted mean of the offsets."""
        variances = np.einsum("w,gwv,v->g", contrast, self.covariances, contrast)
        kept = self.weights > NEGLIGIBLE_WEIGHT * self.weights.max()
        weights = self.weights[kept] / self.weights[kept].sum()
        return NormalMixture(weights, (self.means * contrast).sum(axis=1)[kept], np.sqrt(variances[kept]))


def fit_mixed_model(
    values: FloatArray, own: FloatArray, *, upper: BoolArray, windows: IntArray, steps: FloatArray
) -> MixedModel:
    """Fit the offsets of the runs that are `upper` over the others.

    values, own: (runs, spans) log levels and their own variance, NaN where missing; windows: (spans,) counted from 0;
    steps: (runs,) in a span.
    """
    there = np.isfinite(values) & np.isfinite(own)
    y = np.where(there, values, 0.0)
    noise = np.where(there, np.maximum(own, MIN_VARIANCE), MISSING_VARIANCE)
    variances, prior = _variances(noise, windows, steps, seeds=len(values) > 2)
    precision = np.linalg.inv(variances)  # (grid, runs, spans, spans)
    member = (windows[:, None] == np.arange(windows.max() + 1)).astype(np.float64)
    weighted = np.einsum("grij,rj->gri", precision, y)
    levels = precision.sum(axis=1)  # information on the level that both sides share at each span
    cross = np.einsum("gij,jw->giw", precision[:, upper].sum(axis=1), member)
    level_covariance = np.linalg.inv(levels)
    level_means = np.einsum("gij,gj->gi", level_covariance, weighted.sum(axis=1))
    information = np.einsum("iw,giv->gwv", member, cross) - np.einsum(
        "giw,gij,gjv->gwv", cross, level_covariance, cross
    )
    score = np.einsum("iw,gi->gw", member, weighted[:, upper].sum(axis=1)) - np.einsum("giw,gi->gw", cross, level_means)
    covariances = np.linalg.inv(information)
    means = np.einsum("gwv,gv->gw", covariances, score)
    squares = np.einsum("ri,gri->g", y, weighted) - (weighted.sum(axis=1) * level_means).sum(axis=1)
    squares = squares - (means * score).sum(axis=1)
    log_determinants = [np.linalg.slogdet(matrix)[1] for matrix in (variances, levels, information)]
    likely = np.log(prior) - 0.5 * (
        squares + log_determinants[0].sum(axis=1) + log_determinants[1] + log_determinants[2]
    )
    weights = np.exp(likely - likely.max())
    return MixedModel(weights / weights.sum(), means, covariances)


def _variances(own: FloatArray, windows: IntArray, steps: FloatArray, *, seeds: bool) -> tuple[FloatArray, FloatArray]:
    """Return each run's covariance for each noise of the grid, (grid, runs, spans, spans), and that noise's weight."""
    count = own.shape[1]
    followed = np.array(
        [
            [block_correlation(count, int(np.clip(round(span_steps), 1, MAX_SPAN_STEPS)), ar1) for span_steps in steps]
            for ar1 in AR1_PRIOR
        ]
    )
    stepped = np.square(STEP_NOISE_SDS)[None, :, None, None, None] * followed[:, None]
    plain = stepped.reshape(-1, *followed.shape[1:]) + own[:, :, None] * np.eye(count)
    prior = np.repeat(list(AR1_PRIOR.values()), len(STEP_NOISE_SDS))
    if not seeds:
        return plain, prior / prior.sum()
    sizes = np.repeat(SEED_NOISE_SDS, len(PERSISTENT_SHARES))
    lasting = np.tile(PERSISTENT_SHARES, len(SEED_NOISE_SDS))[:, None, None]
    offsets = np.square(sizes)[:, None, None] * (lasting + (1 - lasting) * (windows[:, None] == windows))
    every = plain[:, None] + offsets[None, :, None]
    prior = (prior[:, None] * sizes * np.exp(-sizes / MEAN_SEED_SD)).reshape(-1)
    return every.reshape(-1, *plain.shape[1:]), prior / prior.sum()


Decision = Literal["worse", "not_worse", "cannot_say"]

MIN_WINDOW_SPANS: Final = 2
MATERIAL_NATS: Final = {"p95": math.log(2.0) / 2, "p99": math.log(2.0)}
"""In nats. Tails below are taken for these: a tail that grows from 0.05 to 0.08 harms nobody. p99 as in the signature
(the usual truncation at 2 begins to bite); p95 is half of p99 or so in tails like Student's t."""
RATIO_LIMIT: Final = 1.25  # a factor up to which a tail may lie above the baseline's
EXCLUDED_RATIO: Final = 1.6  # a factor that must be excluded before "not worse" is said
FALSE_ALARM_RATE: Final = 0.02  # of all tests of one pair together
TESTED_WINDOWS: Final = ("all", "late")


@dataclass(frozen=True, kw_only=True)
class Noninferiority:
    """One side over the other: a factor with its 95 % interval, and the smallest factor such data could show."""

    ratio: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p_value: float = math.nan  # one-sided: the first side is higher
    detectable: float = math.inf  # a true factor of this size would show in 95 of 100 such pairs; inf: none would
    spans: int = 0  # matched spans with enough tokens on both sides


UNKNOWN: Final = Noninferiority()
"""Too few spans to say anything."""


def noninferiority_test(
    variant: Sequence[Curve], baseline: Sequence[Curve], *, window: str = "all", floor: float | None = LEVEL_FLOOR
) -> Noninferiority:
    """Compare the runs of one side (seeds of one setting) with those of the other, over the spans that all share.

    Levels are paired span by span: what both sides do alike, whatever its shape, cancels. `window` is early, mid or
    late for a third of the spans. Seeds are the units: how far they lie apart is counted. With one seed a side only
    the noise within a run can be known: the interval then says how these two runs differ, not how their settings do.
    """
    return noninferiority_by_window(variant, baseline, windows=(window,), floor=floor)[0]


def noninferiority_by_window(
    variant: Sequence[Curve], baseline: Sequence[Curve], *, windows: Sequence[str], floor: float | None = LEVEL_FLOOR
) -> list[Noninferiority]:
    """Return `noninferiority_test` for several windows, of one fit."""
    curves = [curve if floor is None else floor_curve(curve, floor) for curve in (*variant, *baseline)]
    if not variant or not baseline:
        raise ValueError("either side needs a run")
    if len({len(curve.spans) for curve in curves}) != 1:
        raise ValueError("curves over different spans cannot be paired")
    upper = np.arange(len(curves)) < len(variant)
    values = np.array([curve.log_value for curve in curves])
    own = np.array([curve.own for curve in curves])
    there = np.isfinite(values) & np.isfinite(own)
    paired = there[upper].any(axis=0) & there[~upper].any(axis=0)
    member = third_of(len(paired))[paired]
    if len(member) < MIN_SPANS:
        return [Noninferiority(spans=int(np.isin(member, _window_numbers(window)).sum())) for window in windows]
    present, window_index = np.unique(member, return_inverse=True)
    steps = np.array([(curve.spans[-1].last - curve.spans[0].first + 1) / len(curve.spans) for curve in curves])
    fitted = fit_mixed_model(values[:, paired], own[:, paired], upper=upper, windows=window_index, steps=steps)
    counted = np.bincount(window_index)
    return [_read_ratio(fitted, np.where(np.isin(present, _window_numbers(window)), counted, 0)) for window in windows]


def _window_numbers(window: str) -> list[int]:
    return list(range(len(WINDOWS))) if window == "all" else [WINDOWS.index(window)]


def _read_ratio(fitted: MixedModel, counted: IntArray) -> Noninferiority:
    """Read the factor off a fit, each window counting by its spans."""
    spans = int(counted.sum())
    if spans < MIN_WINDOW_SPANS:
        return Noninferiority(spans=spans)
    known = fitted.of(counted / spans)
    middle, low, high = (known.quantile(q) for q in (0.5, 0.025, 0.975))
    return Noninferiority(
        ratio=math.exp(middle),
        low=math.exp(low),
        high=math.exp(high),
        p_value=1 - known.above(0.0),
        detectable=math.exp((high - low) / 2 + known.quantile(0.95) - middle),
        spans=spans,
    )


def decide(result: Noninferiority, *, limit: float = RATIO_LIMIT, p_value: float | None = None) -> Decision:
    """Decide whether a tail is worse: beyond noise and beyond the limit; not worse only where EXCLUDED_RATIO is.

    `p_value`: adjusted for other tests made; the test's own without it.
    """
    adjusted = result.p_value if p_value is None else p_value
    if adjusted < FALSE_ALARM_RATE and result.ratio > limit:
        return "worse"
    return "not_worse" if result.high < max(EXCLUDED_RATIO, limit) else "cannot_say"  # NaN is below nothing
