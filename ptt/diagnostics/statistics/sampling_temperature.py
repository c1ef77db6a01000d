"""At which temperature tokens were sampled, from their logprobs at temperature 1 and the entropies there.

Of a token drawn at temperature T, exp(-(1 - 1/T) s) (s - H) is 0 in the mean, where s is its surprisal and H the
entropy of its distribution, both at temperature 1: the weight undoes the temperature, and s - H is 0 in the mean of
tokens drawn at 1. So T is the root of the sum of this over all tokens, whatever their distributions are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from ptt.diagnostics.statistics.arrays import FloatArray, IntArray

LOWEST, HIGHEST = 0.4, 4.0  # temperatures that are looked for
HALVINGS: Final = 14  # of the range of 1 - 1/T: to four digits
STRATA: Final = (0.0, 0.2, 1.0, math.inf)  # nats of entropy: one temperature must explain sure and open tokens alike
MIN_STRATUM: Final = 200  # tokens
MAX_APART: Final = 0.12  # of a stratum's temperature from that of all: 0.05 at most where it is one
Z_APART: Final = 3.0  # standard errors that it may lie apart besides


@dataclass(frozen=True, kw_only=True)
class SamplingTemperature:
    """The temperature that explains the tokens best; `consistent`: it explains them at every height of the entropy."""

    value: float
    error: float  # standard error, by sequences
    consistent: bool


def sampling_temperature(surprisal: FloatArray, entropy: FloatArray, unit: IntArray) -> SamplingTemperature | None:
    """Estimate T from tokens of finite values; `unit`: of each token its sequence, from 0. None where no T does."""
    whole = _estimate(surprisal, entropy, unit)
    if whole is None:
        return None
    consistent = True
    for low, high in pairwise(STRATA):
        here = (entropy >= low) & (entropy < high)
        if here.sum() < MIN_STRATUM:
            continue
        part = _estimate(surprisal[here], entropy[here], unit[here])
        consistent &= part is not None and abs(part[0] - whole[0]) <= MAX_APART * whole[0] + Z_APART * part[1]
    return SamplingTemperature(value=whole[0], error=whole[1], consistent=consistent)


def _estimate(surprisal: FloatArray, entropy: FloatArray, unit: IntArray) -> tuple[float, float] | None:
    """Return the temperature and its standard error; None where it lies outside what is looked for."""
    excess = surprisal - entropy

    def terms(power: float) -> FloatArray:
        exponent = -power * surprisal
        values: FloatArray = np.exp(exponent - exponent.max()) * excess
        return values

    low, high = 1 - 1 / LOWEST, 1 - 1 / HIGHEST
    if not len(surprisal) or terms(low).sum() <= 0 or terms(high).sum() >= 0:
        return None
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if terms(middle).sum() > 0 else (low, middle)
    values = terms(low)
    slope = abs(float((surprisal * values).sum()))
    spread = math.sqrt(float((np.bincount(unit, values) ** 2).sum()))
    temperature = 1 / (1 - low)
    return temperature, temperature**2 * spread / slope if slope > 0 else math.inf
