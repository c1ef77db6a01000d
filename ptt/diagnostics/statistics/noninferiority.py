"""Return whether one run's tails lie above another's beyond the noise of both, span by matched span."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.group_difference import SeedPrior, shrunk_prior, simes
from ptt.diagnostics.statistics.step_matching import MIN_SPANS
from ptt.diagnostics.statistics.tail_curves import Curve, floor_curve, third_of
from ptt.diagnostics.statistics.tail_growth import LEVEL_FLOOR
from ptt.diagnostics.statistics.trend import block_correlation
from ptt.diagnostics.statistics.windows import WINDOWS

AR1_PRIOR: Final = {0.0: 0.1, 0.2: 0.1, 0.4: 0.1, 0.6: 0.15, 0.8: 0.4, 0.9: 0.15}
"""AR(1) between steps, and its prior weight. A dozen spans of a few steps hardly determine it: weight lies where
trust would do harm, so that intervals still cover 95% where steps are correlated at 0.8."""
STEP_NOISE_SDS: Final = tuple(0.015 * 1.8**power for power in range(8))  # log-SD of a span's step noise, 0.015 to 0.92
SEED_NOISE_SDS: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)  # log-SD between seeds of one setting
MEAN_SEED_SD: Final = 0.15
"""Its prior mean (exponential) where no `SeedPrior` is given: arms of a comparison may be of any kind."""
SEED_PRIORS: Final = {"p95": SeedPrior(sd=0.11, freedom=8.0), "p99": SeedPrior(sd=0.07, freedom=8.0)}
"""Of late post-tool tails of TRL runs, two or three seeds an arm: log-SDs of 0.115, 0.002 and 0.19 in p95 (0.13 pooled,
the mean of this prior) and of 0.05, 0.08 and 0.04 in p99 (0.06; the mean of this prior is 0.08, for they are few). An
arm one of whose seeds grew a tail of its own (0.81 in p99) is left out: that is what a gate is to find. Eight degrees
of freedom: twice those arms', which agree no worse than one common spread would make them."""
TEXT_SEED_PRIOR: Final = SeedPrior(sd=0.07, freedom=8.0)
"""Of either percentile before tools: p95 of the same arms lies 0.03 apart, p99 0.02."""
SEED_SD_FACTORS: Final = tuple(0.4 * 1.5**power for power in range(9))  # times the prior's sd: 0.4 to 10
PERSISTENT_SHARES: Final = (1.0, 0.5)  # share of a seed's offset that stays over the run; the rest is each window's own
MISSING_VARIANCE: Final = 1e6  # variance of a value that is not there
MIN_VARIANCE: Final = 1e-8
NEGLIGIBLE_WEIGHT: Final = 1e-6  # weight, against the likeliest noise's, of one that is left out
SEARCH_SDS: Final = 12.0  # standard deviations that cover all but 1e-32 of a normal part
BISECTIONS: Final = 45
MAX_SPAN_STEPS: Final = 1000  # steps in a span beyond which a longer one gives the same correlations


@dataclass(frozen=True)
class NormalMixture:
    """A belief about one number: a mixture of normals whose weights add up to 1."""

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
        """Return the belief about a weighted mean of the offsets."""
        variances = np.einsum("w,gwv,v->g", contrast, self.covariances, contrast)
        kept = self.weights > NEGLIGIBLE_WEIGHT * self.weights.max()
        weights = self.weights[kept] / self.weights[kept].sum()
        return NormalMixture(weights, (self.means * contrast).sum(axis=1)[kept], np.sqrt(variances[kept]))


def fit_mixed_model(
    values: FloatArray,
    own: FloatArray,
    *,
    upper: BoolArray,
    windows: IntArray,
    steps: FloatArray,
    seeds: SeedPrior | None = None,
) -> MixedModel:
    """Fit the offsets of the runs that are `upper` over the others.

    values, own: (runs, spans) log levels and their own variance, NaN where missing; windows: (spans,) counted from 0;
    steps: (runs,) in a span; seeds: the prior for how far seeds differ. Without it, runs are assumed to differ by more
    than their own noise only if there are more than two.
    """
    finite = np.isfinite(values) & np.isfinite(own)
    y = np.where(finite, values, 0.0)
    noise = np.where(finite, np.maximum(own, MIN_VARIANCE), MISSING_VARIANCE)
    inside = (windows[:, None] == np.arange(windows.max() + 1)).astype(np.float64)
    precision, noise_sizes, prior = _precisions(noise, inside, steps, *_seed_noise(len(values), seeds))
    weighted = np.einsum("grij,rj->gri", precision, y)
    levels = precision.sum(axis=1)  # information on the level that both sides share at each span
    cross = np.einsum("gij,jw->giw", precision[:, upper].sum(axis=1), inside)
    level_covariance = np.linalg.inv(levels)
    level_means = np.einsum("gij,gj->gi", level_covariance, weighted.sum(axis=1))
    information = np.einsum("iw,giv->gwv", inside, cross) - np.einsum(
        "giw,gij,gjv->gwv", cross, level_covariance, cross
    )
    score = np.einsum("iw,gi->gw", inside, weighted[:, upper].sum(axis=1)) - np.einsum("giw,gi->gw", cross, level_means)
    covariances = np.linalg.inv(information)
    means = np.einsum("gwv,gv->gw", covariances, score)
    squares = np.einsum("ri,gri->g", y, weighted) - (weighted.sum(axis=1) * level_means).sum(axis=1)
    squares = squares - (means * score).sum(axis=1)
    log_determinants = [np.linalg.slogdet(matrix)[1] for matrix in (levels, information)]
    likely = np.log(prior) - 0.5 * (squares + noise_sizes + log_determinants[0] + log_determinants[1])
    weights = np.exp(likely - likely.max())
    return MixedModel(weights / weights.sum(), means, covariances)


def _seed_noise(runs: int, seeds: SeedPrior | None) -> tuple[FloatArray, FloatArray]:
    """Return a grid of seed-noise sizes and the prior weight of each; empty where seed noise cannot be estimated."""
    if seeds is not None:
        sizes = seeds.sd * np.array(SEED_SD_FACTORS)
        log_weights = -seeds.freedom * (np.log(sizes) + 0.5 * np.square(seeds.sd / sizes))  # by the size's logarithm
        return sizes, np.exp(log_weights - log_weights.max())
    if runs <= 2:
        return np.zeros(0), np.zeros(0)
    sizes = np.array(SEED_NOISE_SDS)
    return sizes, sizes * np.exp(-sizes / MEAN_SEED_SD)


def _precisions(
    own: FloatArray, inside: FloatArray, steps: FloatArray, seed_sizes: FloatArray, seed_weights: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return each run's inverse covariance for each noise in the grid, (grid, runs, spans, spans).

    With it come each noise's log-determinant over all runs and its prior weight. The noise between seeds has low rank
    (one number a window), so it is added to the inverse (Woodbury), which is faster than inverting the sum.
    """
    count, windows = inside.shape
    followed = np.array(
        [
            [block_correlation(count, int(np.clip(round(span_steps), 1, MAX_SPAN_STEPS)), ar1) for span_steps in steps]
            for ar1 in AR1_PRIOR
        ]
    )
    stepped = np.square(STEP_NOISE_SDS)[None, :, None, None, None] * followed[:, None]
    plain = stepped.reshape(-1, *followed.shape[1:]) + own[:, :, None] * np.eye(count)
    inverse, log_determinants = np.linalg.inv(plain), np.linalg.slogdet(plain)[1].sum(axis=1)
    prior = np.repeat(list(AR1_PRIOR.values()), len(STEP_NOISE_SDS))
    if not len(seed_sizes):
        return inverse, log_determinants, prior / prior.sum()
    sizes = np.repeat(seed_sizes, len(PERSISTENT_SHARES))[:, None, None]
    lasting = np.tile(PERSISTENT_SHARES, len(seed_sizes))[:, None, None]
    offsets = np.square(sizes) * (lasting + (1 - lasting) * np.eye(windows))  # of windows, each size of it
    columns = inverse @ inside  # (steps' noises, runs, spans, windows)
    added = np.eye(windows) + (inside.T @ columns)[:, None] @ offsets[None, :, None]
    taken = offsets[None, :, None] @ np.linalg.inv(added)
    every = inverse[:, None] - columns[:, None] @ taken @ np.swapaxes(columns, -1, -2)[:, None]
    log_determinants = log_determinants[:, None] + np.linalg.slogdet(added)[1].sum(axis=2)
    prior = prior[:, None] * np.repeat(seed_weights, len(PERSISTENT_SHARES))
    return every.reshape(-1, *plain.shape[1:]), log_determinants.reshape(-1), prior.reshape(-1) / prior.sum()


Decision = Literal["worse", "not_worse", "cannot_say"]

MIN_WINDOW_SPANS: Final = 2
MATERIAL_NATS: Final = {"p95": math.log(2.0) / 2, "p99": math.log(2.0)}
"""In nats. Tails below are taken for these: a tail that grows from 0.05 to 0.08 harms nobody. p99 as in the signature
(the usual truncation at 2 begins to bite); p95 is half of p99 or so in tails like Student's t."""
RATIO_LIMIT: Final = 1.25  # factor above the baseline's tail that is still tolerated
EXCLUDED_RATIO: Final = 1.6  # a factor that must be excluded before "not worse" is said
FALSE_ALARM_RATE: Final = 0.02  # of all tests of one pair together
TESTED_WINDOWS: Final = ("all", "late")
TEXT_ONLY: Final = "text_only"
SURE_SHARE: Final = FALSE_ALARM_RATE / 16
"""A p-value at which a percentile fails whatever the others show (of two percentiles, slices and windows each, an
eighth would do), and still fails where its noise is redrawn."""
MAX_REFITS: Final = 6
OVERSHOOT: Final = 0.005  # log: half a per cent, so that a search from below ends


@dataclass(frozen=True, kw_only=True)
class Noninferiority:
    """One side over the other: a factor with its 95% interval, and the smallest factor such data could show."""

    ratio: float = math.nan
    low: float = math.nan
    high: float = math.nan
    upper: float = math.nan  # one-sided bound at 95%
    p_value: float = math.nan  # one-sided: the first side is higher
    detectable: float = math.inf  # a true factor of this size would show in 95 of 100 such pairs; inf: none would
    least: float = math.nan  # one-sided bound at SURE_SHARE: above 1, the first side is higher whatever else is asked
    spans: int = 0  # matched spans with enough tokens on both sides
    apart: float | None = None  # log-SD of the seeds, where it is wider than assumed and counts instead
    assumed: float = 0.0


UNKNOWN: Final = Noninferiority()
"""Too few spans to say anything."""


def noninferiority_test(
    variant: Sequence[Curve],
    baseline: Sequence[Curve],
    *,
    window: str = "all",
    floor: float | None = LEVEL_FLOOR,
    seeds: SeedPrior | None = None,
) -> Noninferiority:
    """Compare the runs of one side (seeds of one setting) with those of the other, over the spans they share.

    Levels are paired span by span: what both sides do alike, whatever its shape, cancels. `window` is early, mid or
    late for a third of the spans. Seeds are the units, so their spread counts. With one seed a side and no prior
    `seeds`, only the noise within a run can be estimated: the interval then says how these two runs differ, not how
    their settings do.
    """
    return noninferiority_by_window(variant, baseline, windows=(window,), floor=floor, seeds=seeds)[0]


def noninferiority_by_window(
    variant: Sequence[Curve],
    baseline: Sequence[Curve],
    *,
    windows: Sequence[str],
    floor: float | None = LEVEL_FLOOR,
    seeds: SeedPrior | None = None,
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
    finite = np.isfinite(values) & np.isfinite(own)
    paired = finite[upper].any(axis=0) & finite[~upper].any(axis=0)
    thirds = third_of(len(paired))[paired]
    if len(thirds) < MIN_SPANS:
        return [Noninferiority(spans=int(np.isin(thirds, _window_numbers(window)).sum())) for window in windows]
    present, window_index = np.unique(thirds, return_inverse=True)
    steps = np.array([(curve.spans[-1].last - curve.spans[0].first + 1) / len(curve.spans) for curve in curves])
    fitted = fit_mixed_model(
        values[:, paired], own[:, paired], upper=upper, windows=window_index, steps=steps, seeds=seeds
    )
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
        upper=math.exp(known.quantile(0.95)),
        p_value=1 - known.above(0.0),
        detectable=math.exp((high - low) / 2 + known.quantile(0.95) - middle),
        least=math.exp(known.quantile(SURE_SHARE)),
        spans=spans,
    )


def decide(
    result: Noninferiority, *, limit: float = RATIO_LIMIT, p_value: float | None = None, window: str = "all"
) -> Decision:
    """Decide whether a tail is worse: beyond noise and beyond the limit; not worse only where EXCLUDED_RATIO is.

    `p_value`: adjusted for other tests made; the test's own without it. It must be excluded by the 95% interval; in a
    part of the run, which is asked beside the whole, by the one-sided bound at 95%.
    """
    adjusted = result.p_value if p_value is None else p_value
    if adjusted < FALSE_ALARM_RATE and result.ratio > limit:
        return "worse"
    most = result.high if window == "all" else result.upper
    return "not_worse" if most < max(EXCLUDED_RATIO, limit) else "cannot_say"  # NaN is below nothing


Percentiles = Mapping[str, Noninferiority]  # by name: the comparison of each percentile of one slice in one window


def compare_percentiles(
    variant: Sequence[Sequence[Curve]],
    baseline: Sequence[Sequence[Curve]],
    *,
    windows: Sequence[str] = TESTED_WINDOWS,
    setting: Sequence[Sequence[Curve]] = (),
    names: Sequence[str] = tuple(SEED_PRIORS),
) -> list[Percentiles]:
    """Compare every percentile of one slice, each with its floor and its prior, for each of the windows.

    Either side gives one entry a run: its curves, one a percentile. `setting`: all runs that show how far seeds lie
    apart, where they are more than the baseline's.
    """
    by_percentile = {}
    for name in names:
        sides = [[_floored(run, name) for run in side] for side in (variant, baseline, setting or baseline)]
        assumed, apart, prior = seeds_prior(name, sides[2])
        results = noninferiority_by_window(*sides[:2], windows=windows, floor=None, seeds=prior)
        by_percentile[name] = [replace(one, apart=apart, assumed=assumed) for one in results]
    return [{name: found[place] for name, found in by_percentile.items()} for place in range(len(windows))]


def fails_from(
    run: Sequence[Curve],
    baseline: Sequence[Sequence[Curve]],
    found: Percentiles,
    *,
    window: str,
    limit: float = RATIO_LIMIT,
    setting: Sequence[Sequence[Curve]] = (),
) -> float:
    """Return the factor by which a run's tail in a window would have to rise to fail; inf if no factor would do.

    The model is refitted at each height, because a tail that rises above its floor brings its own noise.
    """
    places = np.isin(third_of(len(run[0].spans)), _window_numbers(window))
    starts = {name: _lift(run, name, places, _missing(one, limit)) for name, one in found.items()}
    name = min(starts, key=lambda each: starts[each])
    lift = starts[name] + OVERSHOOT
    for _ in range(MAX_REFITS):
        if not math.isfinite(lift):
            break
        higher = [replace(curve, log_value=curve.log_value + np.where(places, lift, 0.0)) for curve in run]
        (again,) = compare_percentiles([higher], baseline, windows=(window,), setting=setting, names=(name,))
        if (missing := _missing(again[name], limit)) <= 0:  # NaN is no answer, and ends the search
            return math.exp(lift)
        lift += missing + OVERSHOOT
    return math.inf


def _missing(found: Noninferiority, limit: float) -> float:
    """Return how much higher (log) a tail would have to be to fail, whatever the other tests show."""
    least = -math.log(found.least) if found.least > 0 else math.inf
    return max(least, math.log(limit / found.ratio) + OVERSHOOT)


def _lift(run: Sequence[Curve], name: str, places: BoolArray, missing: float) -> float:
    """Return by how much (log) a percentile must be raised for its floored mean to rise by `missing`."""
    values = next(curve for curve in run if curve.quantile == name).log_value[places]
    values, floor = values[np.isfinite(values)], math.log(MATERIAL_NATS[name])
    if not len(values) or not math.isfinite(missing):
        return math.inf
    low, high = 0.0, max(missing, 0.0) + max(0.0, floor - float(values.min()))
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        rise = float((np.maximum(values + middle, floor) - np.maximum(values, floor)).mean())
        low, high = (low, middle) if rise >= missing else (middle, high)
    return high


def seeds_prior(name: str, seeds: Sequence[Curve]) -> tuple[float, float | None, SeedPrior]:
    """Return how far seeds are assumed to lie apart in one percentile, these where that is wider, and what counts.

    Their own spread is that of their mean levels over the run, or late in it, beyond the noise of their own sequences.
    """
    prior = TEXT_SEED_PRIOR if seeds[0].slice == TEXT_ONLY else SEED_PRIORS[name]
    levels, own = np.array([curve.log_value for curve in seeds]), np.array([curve.own for curve in seeds])
    there, widest = (np.isfinite(levels) & np.isfinite(own)).all(axis=0), 0.0
    for window in TESTED_WINDOWS:
        places = there & np.isin(third_of(len(there)), _window_numbers(window))
        if len(seeds) > 1 and places.any():
            noise = own[:, places].sum(axis=1).mean() / places.sum() ** 2
            widest = max(widest, float(levels[:, places].mean(axis=1).var(ddof=1) - noise))
    counts = shrunk_prior(prior, widest, len(seeds) - 1)
    return prior.sd, math.sqrt(widest) if counts is not prior else None, counts


def _floored(curves: Sequence[Curve], name: str) -> Curve:
    """Return one percentile with its floor, and its own noise averaged within each third.

    A span at the floor has next to no noise and a high one has much. Weighted by that, quiet spans would outvote the
    others, and a tail in only a few spans would vanish.
    """
    curve = floor_curve(next(curve for curve in curves if curve.quantile == name), MATERIAL_NATS[name])
    own, thirds = curve.own.copy(), third_of(len(curve.own))
    for third in range(len(WINDOWS)):
        known = (thirds == third) & np.isfinite(own)
        own[known] = own[known].mean() if known.any() else own[known]
    return replace(curve, own=own)


def joint_p_value(found: Percentiles) -> float:
    """Return the p-value of no percentile being higher (Simes: percentiles of the same tokens rise together)."""
    return simes([result.p_value for result in found.values()])


def decide_percentiles(
    found: Percentiles, *, limit: float = RATIO_LIMIT, p_value: float | None = None, window: str = "all"
) -> dict[str, Decision]:
    """Decide each percentile; the tail is worse where one is, not worse where all are not.

    `p_value`: of the joint test, adjusted for the other tests made; a percentile is worse where its own p-value is
    small as well.
    """
    adjusted = joint_p_value(found) if p_value is None else p_value
    return {
        name: decide(one, limit=limit, p_value=max(adjusted, one.p_value), window=window) for name, one in found.items()
    }


def worst_decision(decisions: Sequence[Decision]) -> Decision:
    """Return the worst decision: "worse" if any is, else "cannot_say" if any is."""
    return next((name for name in ("worse", "cannot_say") if name in decisions), "not_worse")
