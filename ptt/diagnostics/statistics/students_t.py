"""Student's t for any number of degrees of freedom: how likely a value is passed, and which value is."""

from __future__ import annotations

import math
from typing import Final

TERMS: Final = 400  # of the continued fraction: some 30 do wherever t is used here
CLOSE: Final = 1e-14
HALVINGS: Final = 200
FAR: Final = 1e9  # beyond it a quantile means that nothing is known


def beyond(t: float, freedom: float) -> float:
    """Give the probability of a value above `t`; NaN where either is no number or there is no freedom."""
    if math.isnan(t) or not freedom > 0:
        return math.nan
    if math.isinf(t):
        return 0.0 if t > 0 else 1.0
    if math.isinf(freedom):
        return 0.5 * math.erfc(t / math.sqrt(2))
    half = 0.5 * _beta(freedom / (freedom + t * t), freedom / 2, 0.5)
    return half if t > 0 else 1 - half


def quantile(share: float, freedom: float) -> float:
    """Give the value that is passed with probability `share` (0 < share <= 0.5); inf where it lies too far out."""
    if not freedom > 0 or not 0 < share <= 0.5:
        return math.nan
    low, high = 0.0, 1.0
    while beyond(high, freedom) > share:
        low, high = high, 2 * high
        if high > FAR:
            return math.inf
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if beyond(middle, freedom) > share else (low, middle)
    return (low + high) / 2


def _beta(x: float, a: float, b: float) -> float:
    """Give the regularised incomplete beta function (Lentz's continued fraction; DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):  # the fraction is quick on one side of the middle only
        return 1 - _beta(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    tiny = 1e-300
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1), tiny)
    fraction = d
    for m in range(1, TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d, c = 1 / _away(1 + even * d, tiny), _away(1 + even / c, tiny)
        fraction *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d, c = 1 / _away(1 + odd * d, tiny), _away(1 + odd / c, tiny)
        fraction *= d * c
        if abs(d * c - 1) < CLOSE:
            break
    return math.exp(log_front) * fraction / a


def _away(value: float, least: float) -> float:
    return value if abs(value) > least else least
