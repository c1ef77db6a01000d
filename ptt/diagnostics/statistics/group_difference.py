"""The difference between the means of two groups of runs, by the noise within runs and between runs of one setting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.autocorrelated_mean import WindowMean

MAX_TERMS: Final = 400  # terms of the continued fraction: some 30 suffice wherever t is used here
TOLERANCE: Final = 1e-14
MAX_BISECTIONS: Final = 200
MAX_QUANTILE: Final = 1e9  # a larger quantile means that nothing is known


def t_survival(t: float, freedom: float) -> float:
    """Return the probability of a value above `t`; NaN where either is no number or there is no freedom."""
    if math.isnan(t) or not freedom > 0:
        return math.nan
    if math.isinf(t):
        return 0.0 if t > 0 else 1.0
    if math.isinf(freedom):
        return 0.5 * math.erfc(t / math.sqrt(2))
    half = 0.5 * _beta(freedom / (freedom + t * t), freedom / 2, 0.5)
    return half if t > 0 else 1 - half


def f_survival(f: float, above: float, below: float) -> float:
    """Return the probability of a ratio of two variances above `f`, by their degrees of freedom."""
    return _beta(below / (below + above * f), below / 2, above / 2)


def t_quantile(share: float, freedom: float) -> float:
    """Return the value that is passed with probability `share` (0 < share <= 0.5); inf where it lies too far out."""
    if not freedom > 0 or not 0 < share <= 0.5:
        return math.nan
    low, high = 0.0, 1.0
    while t_survival(high, freedom) > share:
        low, high = high, 2 * high
        if high > MAX_QUANTILE:
            return math.inf
    for _ in range(MAX_BISECTIONS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if t_survival(middle, freedom) > share else (low, middle)
    return (low + high) / 2


def _beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function (Lentz's continued fraction; DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):  # the fraction is quick on one side of the middle only
        return 1 - _beta(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    tiny = 1e-300
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1), tiny)
    fraction = d
    for m in range(1, MAX_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d, c = 1 / _away_from_zero(1 + even * d, tiny), _away_from_zero(1 + even / c, tiny)
        fraction *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d, c = 1 / _away_from_zero(1 + odd * d, tiny), _away_from_zero(1 + odd / c, tiny)
        fraction *= d * c
        if abs(d * c - 1) < TOLERANCE:
            break
    return math.exp(log_front) * fraction / a


def _away_from_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny


TAIL_PROBABILITY: Final = 0.025  # either side of a 95% interval


@dataclass(frozen=True, kw_only=True)
class SeedPrior:
    """What is known in advance of how far seeds of one setting differ: a scaled inverse chi-squared for their variance.

    It counts like `freedom` + 1 seeds whose levels have standard deviation `sd`. With it, even a baseline of one seed
    allows for other seeds, and every seed added sharpens it.
    """

    sd: float
    freedom: float


NO_PRIOR: Final = SeedPrior(sd=0.0, freedom=0.0)
CONTRADICTED: Final = 0.05  # probability, if the prior held, of a spread as wide as one that counts against it
CONTRADICTED_FREEDOM: Final = 2.0  # what a prior still weighs then


def shrunk_prior(prior: SeedPrior, variance: float, freedom: int) -> SeedPrior:
    """Return the prior, or, where seeds spread wider than it allows (F test), one moved towards their spread.

    The variance becomes the mean of the prior's and the seeds', weighted by degrees of freedom (Smyth 2004, Statistical
    Applications in Genetics and Molecular Biology 3(1)): three seeds have 2, and alone would widen every interval
    several times. A prior that does not fit gets less weight than its own freedom, or it would hide the spread (Phipson
    et al. 2016, Annals of Applied Statistics 10(2)).
    """
    if freedom < 1 or not f_survival(variance / prior.sd**2, freedom, prior.freedom) < CONTRADICTED:
        return prior
    pooled = (CONTRADICTED_FREEDOM * prior.sd**2 + freedom * variance) / (CONTRADICTED_FREEDOM + freedom)
    return replace(prior, sd=math.sqrt(pooled))


@dataclass(frozen=True, kw_only=True)
class GroupDifference:
    """The first group's mean minus the second's."""

    difference: float
    error: float  # NaN where too little is known
    freedom: float
    between: float  # standard deviation of runs of one setting, beyond their own noise; NaN: too little is known

    def p_higher(self) -> float:
        """Return the one-sided p-value of the first group being higher; NaN where too little is known."""
        return self._p_value(self.difference)

    def p_lower(self) -> float:
        """Return the one-sided p-value of the first group being lower; NaN where too little is known."""
        return self._p_value(-self.difference)

    def _p_value(self, excess: float) -> float:
        if not self.error >= 0 or math.isnan(excess):
            return math.nan
        if self.error == 0:
            return 1.0 if excess <= 0 else 0.0
        return t_survival(excess / self.error, self.freedom)

    def interval(self) -> tuple[float, float]:
        """Return the 95% interval of the difference; infinite where too little is known."""
        if self.error == 0:
            return self.difference, self.difference
        half = t_quantile(TAIL_PROBABILITY, self.freedom) * self.error if self.error > 0 else math.inf
        return self.difference - half, self.difference + half


def group_difference(
    first: Sequence[WindowMean], second: Sequence[WindowMean], *, seeds: SeedPrior = NO_PRIOR
) -> GroupDifference:
    """Compare the means of two groups of runs; each group has one setting.

    The variance between runs starts from the prior `seeds` and is updated by how far runs of a group differ beyond
    their own noise. With a single run on either side and no prior, only the noise within runs can be estimated.
    """
    difference = mean_of([run.mean for run in first]) - mean_of([run.mean for run in second])
    parts = [
        (run.error**2 / len(group) ** 2, run.freedom) for group in (first, second) for run in group
    ]  # of the variance, each with its freedom
    between, freedom = _between_run_variance(first, second, seeds)
    parts.append((between * (1 / len(first) + 1 / len(second)), freedom))
    variance = math.fsum(part for part, _ in parts)
    if math.isnan(variance):
        return GroupDifference(difference=difference, error=math.nan, freedom=0.0, between=math.sqrt(between))
    shares = math.fsum(part**2 / of for part, of in parts if part > 0)
    return GroupDifference(
        difference=difference,
        error=math.sqrt(variance),
        freedom=variance**2 / shares if shares > 0 else math.inf,  # Welch and Satterthwaite
        between=math.sqrt(between),
    )


def _between_run_variance(
    first: Sequence[WindowMean], second: Sequence[WindowMean], seeds: SeedPrior
) -> tuple[float, float]:
    """Return the variance between runs of one setting, and its degrees of freedom."""
    squares = 0.0
    for group in (first, second):
        middle = mean_of([run.mean for run in group])
        squares += math.fsum((run.mean - middle) ** 2 for run in group)
    seen = len(first) + len(second) - 2
    own = mean_of([run.error**2 for run in (*first, *second)])
    excess = squares - seen * own if seen else 0.0
    freedom = seeds.freedom + seen
    known = seeds.freedom * seeds.sd**2 + (excess if math.isnan(excess) else max(0.0, excess))
    return known / freedom if freedom else 0.0, freedom


def mean_of(values: Sequence[float]) -> float:
    """Return the mean; NaN where there is no value."""
    return math.fsum(values) / len(values) if values else math.nan


def holm_adjust(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for how many were asked (Holm 1979); NaN is not asked."""
    order = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))
    adjusted, worst = [math.nan] * len(p_values), 0.0
    for rank, (p, index) in enumerate(order):
        worst = max(worst, min(1.0, p * (len(order) - rank)))
        adjusted[index] = worst
    return adjusted


def simes(p_values: Sequence[float]) -> float:
    """Return the p-value of none being true (Simes 1986), for tests that rise together; NaN is not asked."""
    known = sorted(p for p in p_values if not math.isnan(p))
    return min((len(known) * p / rank for rank, p in enumerate(known, 1)), default=math.nan)


def hommel_adjust(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for the number of tests, assuming they are positively dependent (Hommel 1988); NaN is no test.

    This is the closed Simes test: as strict as Holm on a single small p-value, less strict where several are small.
    """
    order = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))
    known, count = [p for p, _ in order], len(order)
    adjusted = list(known)
    for size in range(2, count + 1):  # every subset of this size that could keep one from being rejected
        largest = known[count - size + 1 :]  # with the size - 1 largest beside it
        beside = min(size * p / rank for rank, p in enumerate(largest, 2))
        for place, p in enumerate(known):
            inside = place > count - size  # one of the largest itself: its subset is the largest `size`
            smallest = known[count - size] if inside else p
            adjusted[place] = max(adjusted[place], min(size * smallest, beside))
    settled = [math.nan] * len(p_values)
    for (_, index), p in zip(order, adjusted, strict=True):
        settled[index] = min(1.0, p)
    return settled
