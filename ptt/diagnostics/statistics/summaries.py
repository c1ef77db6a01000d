"""One number for a stretch of logged values, with its 95 % interval: what a bound is held against."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.statistics.few_points import T975

FloatArray = npt.NDArray[np.float64]

QUANTILE_OF: Final = {"median": 0.5, "p05": 0.05, "p10": 0.1, "p25": 0.25, "p75": 0.75, "p90": 0.9, "p95": 0.95}
STATISTICS: Final = ("mean", *QUANTILE_OF, "change", "ratio", "slope")
"""change and ratio: the mean of the last third against that of the first; slope: of a straight line, a step."""
LEAST_VALUES: Final = 10
"""Fewer are not summed up: half of them would be one spell of noise."""
LEAST_BEYOND: Final = 2
"""Values beyond a percentile: with fewer a single one would be the percentile."""
Z975: Final = 1.96
NARROW: Final = len(T975)  # degrees of freedom from which the normal distribution is close enough


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A statistic with the interval that noise from step to step gives it."""

    value: float
    low: float
    high: float


def summary(steps: FloatArray, values: FloatArray, statistic: str, *, spread: float, likeness: float) -> Summary | str:
    """Sum up finite values in their order, or say why that cannot be.

    `spread` is the standard deviation of the noise of a value and `likeness` its AR(1): n values tell as much as
    n (1 - likeness) / (1 + likeness) that do not follow one another. Both are what evidence/departures.py measures.
    """
    if len(values) < least_values(statistic):
        return f"{len(values)} finite values are logged there; {least_values(statistic)} are needed for this"
    alike = (1 + likeness) / (1 - likeness)
    if statistic in QUANTILE_OF:
        return _quantile(values, QUANTILE_OF[statistic], len(values) / alike)
    noise = spread * math.sqrt(alike)
    freedom = len(values) - 2
    t = T975[freedom - 1] if freedom <= NARROW else Z975
    if statistic == "ratio":
        return _ratio(values, noise, t)
    weights = _WEIGHTS[statistic](steps)
    value = float(weights @ values)
    reach = t * noise * math.sqrt(float(weights @ weights))
    return Summary(value=value, low=value - reach, high=value + reach)


def least_values(statistic: str) -> int:
    """Give how many values a statistic needs so that a single one does not decide it."""
    q = QUANTILE_OF.get(statistic, 0.5)
    return max(LEAST_VALUES, math.ceil(LEAST_BEYOND / min(q, 1 - q) - 1e-9))


def _mean(steps: FloatArray) -> FloatArray:
    return np.full(len(steps), 1 / len(steps))


def _change(steps: FloatArray) -> FloatArray:
    third = len(steps) // 3
    weights = np.zeros(len(steps))
    weights[:third], weights[-third:] = -1 / third, 1 / third
    return weights


def _slope(steps: FloatArray) -> FloatArray:
    centred = steps - steps.mean()
    weights: FloatArray = centred / float(centred @ centred)
    return weights


_WEIGHTS: Final[dict[str, Callable[[FloatArray], FloatArray]]] = {"mean": _mean, "change": _change, "slope": _slope}


def _ratio(values: FloatArray, noise: float, t: float) -> Summary | str:
    third = len(values) // 3
    early, late = float(values[:third].mean()), float(values[-third:].mean())
    if early <= 0 or late < 0:
        return f"its first third has a mean of {early:.3g} and its last one of {late:.3g}: their ratio says nothing"
    error = noise / math.sqrt(third)
    value = late / early
    if late == 0:
        return Summary(value=0.0, low=0.0, high=t * error / early)
    reach = min(t * math.hypot(error / early, error / late), 700.0)  # exp of it is finite
    return Summary(value=value, low=value * math.exp(-reach), high=value * math.exp(reach))


def _quantile(values: FloatArray, q: float, telling: float) -> Summary:
    """Give a percentile and the order statistics between which it lies (binomial, normal approximation).

    An end that would lie beyond all values is open: so few tell nothing of it.
    """
    reach = Z975 * math.sqrt(q * (1 - q) / telling)
    low, value, high = (float(one) for one in np.quantile(values, [max(0.0, q - reach), q, min(1.0, q + reach)]))
    return Summary(value=value, low=low if q > reach else -math.inf, high=high if q + reach < 1 else math.inf)
