"""Advantages with one value a token: what a sequence has of them, and whether a critic's values give them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.flat_lists import flatten
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray

VARIES: Final = 1e-4  # between the tokens of one sequence, of the largest: more than rounding
LEVELS: Final = {"seq": pl.UInt32(), "advantage": pl.Float64(), "varies": pl.Boolean()}


def sequence_levels(part: pl.DataFrame) -> pl.DataFrame:
    """Return seq, the advantage of each sequence, and whether it varies between its sampled tokens (LEVELS).

    Where it does, the advantage is that of the last token, which the reward is on. `part`: seq, advantage and
    model_mask, lists of one length.
    """
    part = part.filter(pl.col("advantage").list.len() > 0)
    if part.is_empty():
        return pl.DataFrame(schema=LEVELS)
    offsets, values = flatten(part["advantage"].cast(pl.List(pl.Float64)))
    sampled = flatten(part["model_mask"])[1] == np.True_
    low, high, last = _reduced(np.where(sampled, values, np.nan), offsets[:-1])
    varies = high - low > VARIES * np.maximum(np.maximum(np.abs(low), np.abs(high)), 1e-6)
    made = part.select("seq").with_columns(
        advantage=pl.Series(np.where(varies, last, low), dtype=pl.Float64), varies=pl.Series(varies)
    )
    return made.filter(pl.col("advantage").is_finite())


def _reduced(values: FloatArray, starts: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the least, the largest and the last number of each list, none empty; NaN for one without any number."""
    known = np.isfinite(values)
    low = np.minimum.reduceat(np.where(known, values, np.inf), starts)
    high = np.maximum.reduceat(np.where(known, values, -np.inf), starts)
    place = np.maximum.reduceat(np.where(known, np.arange(len(values)), -1), starts)
    empty = place < 0
    last = values[np.maximum(place, 0)]
    return np.where(empty, np.nan, low), np.where(empty, np.nan, high), np.where(empty, np.nan, last)


GAMMAS: Final = (1.0, 0.999, 0.99, 0.95, 0.9)
LAMBDAS: Final = (1.0, 0.99, 0.98, 0.97, 0.95, 0.9, 0.8, 0.5, 0.0)
CLOSE: Final = 2e-4  # of the spread of the advantages: sums of some hundred terms in 32 bits
HOLDS: Final = 0.98  # of the tokens
PAIRS: Final = 1 << 16  # of neighbouring tokens that the recursion is tried on, evenly spread
PENALTIES: Final[dict[str, Callable[[FloatArray], FloatArray]]] = {
    "k1": lambda x: x,
    "|k1|": np.abs,
    "k2": lambda x: 0.5 * x**2,
    "k3": lambda x: np.expm1(-x) + x,
}
"""Penalties by token, of x = old less reference logprob, as trainers take them off the reward (veRL, `kl_penalty` in
core_algos.py:2187: kl, abs, mse, low_var_kl)."""


@dataclass(frozen=True, kw_only=True)
class CriticFit:
    """What relates advantages to a critic's values; None where it does not hold."""

    whitened: bool | None  # False: return less value; True: the same, whitened over each step; None: neither
    decay: tuple[float, float] | None  # gamma and lambda whose recursion holds before the last token
    penalty: tuple[str, float] | None = None  # which of PENALTIES is taken off the reward by token, and its coefficient
    error: float  # median distance of the advantages from return less value, over their spread


def fit_critic(
    advantage: FloatArray,
    value: FloatArray,
    returns: FloatArray,
    sequence: IntArray,
    step: IntArray,
    drift: FloatArray | None = None,
) -> CriticFit:
    """Hold advantages against values and returns, all of (sampled tokens,), in order, with codes from 0.

    A_t = R_t - V_t by definition of the return; and A_t = r_t - V_t + gamma V_{t+1} + gamma lambda A_{t+1}, where the
    reward r_t before the last token is 0 or a penalty on `drift`, old less reference logprob, if that is given
    (Schulman et al., arXiv 1506.02438, eq. 16).
    """
    raw = returns - value
    spread = max(float(advantage.std()), 1e-12)
    plain = np.abs(advantage - raw)
    whitened: bool | None = None
    if _holds(plain <= CLOSE * spread):
        whitened = False
    elif _holds(np.abs(advantage - _regressed(raw, advantage, step)) <= CLOSE * spread):
        whitened = True
    inner = np.flatnonzero(sequence[1:] == sequence[:-1])
    inner = inner[:: max(1, len(inner) // PAIRS)]
    scale = max(float(raw.std()), 1e-12)
    rewards = {
        (gamma, lam): raw[inner] - (gamma * value[inner + 1] - value[inner] + gamma * lam * raw[inner + 1])
        for gamma in GAMMAS
        for lam in LAMBDAS
    }
    decay = next((given for given, reward in rewards.items() if _holds(np.abs(reward) <= CLOSE * scale)), None)
    penalty = None
    if decay is None and drift is not None:
        decay, penalty = _penalised(rewards, drift[inner], CLOSE * scale)
    return CriticFit(whitened=whitened, decay=decay, penalty=penalty, error=float(np.median(plain)) / spread)


def _penalised(
    rewards: Mapping[tuple[float, float], FloatArray], drift: FloatArray, close: float
) -> tuple[tuple[float, float] | None, tuple[str, float] | None]:
    """Return gamma and lambda whose rewards by token are a penalty on the drift, which, and its coefficient."""
    for name, penalty_of in PENALTIES.items():
        penalty = penalty_of(drift)
        square = float(penalty @ penalty)
        if not np.isfinite(square) or square <= 0.0:
            continue
        for decay, reward in rewards.items():
            slope = float(reward @ penalty) / square
            if slope < 0.0 and _holds(np.abs(reward - slope * penalty) <= close):
                return decay, (name, -slope)
    return None, None


def _holds(close: BoolArray) -> bool:
    return bool(len(close) and close.mean() >= HOLDS)


def _regressed(x: FloatArray, y: FloatArray, code: IntArray) -> FloatArray:
    """Return the least-squares line of y on x in each code, (entries,); rising ones alone."""
    count = np.bincount(code)
    mean_x, mean_y = (np.bincount(code, weights=one) / count for one in (x, y))
    off_x, off_y = x - mean_x[code], y - mean_y[code]
    square = np.bincount(code, weights=off_x**2)
    slope = np.bincount(code, weights=off_x * off_y) / np.where(square > 0, square, 1.0)
    line: FloatArray = mean_y[code] + np.maximum(slope, 0.0)[code] * off_x
    return line
