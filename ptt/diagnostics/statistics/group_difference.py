"""The difference between the means of two groups of runs, by the noise within runs and between runs of one setting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ptt.diagnostics.statistics.autocorrelated_mean import WindowMean

MAX_TERMS: Final = 400  # of the continued fraction: some 30 do wherever t is used here
TOLERANCE: Final = 1e-14
MAX_BISECTIONS: Final = 200
MAX_QUANTILE: Final = 1e9  # beyond it a quantile means that nothing is known


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


TAIL_PROBABILITY: Final = 0.025  # either side of a 95 % interval
QUARTILE_Z: Final = -0.6745
"""Normal quantile of 25 %: the variance between runs is taken so large that as small a spread as was seen, or a
smaller, had one chance in four. Two or three seeds lie close together by chance too often to take them at their word:
with their plain variance two groups of one setting differ at one in a hundred in up to ten of a hundred."""


@dataclass(frozen=True, kw_only=True)
class GroupDifference:
    """The first group's mean minus the second's."""

    difference: float
    error: float  # NaN where too little is known
    freedom: float
    between: float  # standard deviation of runs of one setting, beyond their own noise; NaN: cannot be known

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
        """Return the 95 % interval of the difference; infinite where too little is known."""
        if self.error == 0:
            return self.difference, self.difference
        half = t_quantile(TAIL_PROBABILITY, self.freedom) * self.error if self.error > 0 else math.inf
        return self.difference - half, self.difference + half


def group_difference(first: Sequence[WindowMean], second: Sequence[WindowMean]) -> GroupDifference:
    """Compare the mean of two groups of runs; each group is of one setting.

    The variance between runs is pooled over both groups, raised for how few they are (QUARTER), and counted as far as
    it passes what their own noise gives.
    With a single run on either side only the noise within runs can be known.
    """
    difference = _mean([run.mean for run in first]) - _mean([run.mean for run in second])
    parts = [
        (run.error**2 / len(group) ** 2, run.freedom) for group in (first, second) for run in group
    ]  # of the variance, each with its freedom
    between = _between_run_sd(first, second)
    if not math.isnan(between):
        parts.append((between**2 * (1 / len(first) + 1 / len(second)), math.inf))
    variance = math.fsum(part for part, _ in parts)
    if math.isnan(variance):
        return GroupDifference(difference=difference, error=math.nan, freedom=0.0, between=between)
    shares = math.fsum(part**2 / of for part, of in parts if part > 0)
    return GroupDifference(
        difference=difference,
        error=math.sqrt(variance),
        freedom=variance**2 / shares if shares > 0 else math.inf,  # Welch and Satterthwaite
        between=between,
    )


def _between_run_sd(first: Sequence[WindowMean], second: Sequence[WindowMean]) -> float:
    """Return the standard deviation between runs of one setting; NaN with a single run on either side."""
    freedom = len(first) + len(second) - 2
    if not freedom:
        return math.nan
    squares = 0.0
    for group in (first, second):
        middle = _mean([run.mean for run in group])
        squares += math.fsum((run.mean - middle) ** 2 for run in group)
    own = _mean([run.error**2 for run in (*first, *second)])
    small = 2 / (9 * freedom)
    quarter = freedom * (1 - small + QUARTILE_Z * math.sqrt(small)) ** 3  # of chi squared (Wilson and Hilferty 1931)
    excess = squares / quarter - own
    return math.sqrt(excess) if excess > 0 else math.nan if math.isnan(excess) else 0.0


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def holm_adjust(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for how many were asked (Holm 1979); NaN is not asked."""
    order = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))
    adjusted, worst = [math.nan] * len(p_values), 0.0
    for rank, (p, index) in enumerate(order):
        worst = max(worst, min(1.0, p * (len(order) - rank)))
        adjusted[index] = worst
    return adjusted
