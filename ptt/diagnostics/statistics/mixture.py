"""Whether the sequences of one pair fall into two kinds: r proportional to the logprob in some, absent in others.

A pair scored at one temperature throughout is of one kind, whichever it is; two kinds side by side are sequences
of different temperatures in one file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.statistics.products import dot
from ptt.diagnostics.statistics.sampled import real

FloatArray = npt.NDArray[np.float64]

FIT_BELOW: Final = -0.01  # nats: surer tokens move too little to be fitted
LEAST_TOKENS: Final = 4  # below FIT_BELOW
LEAST_REACH: Final = -0.7  # nats: one token at least is less likely than one half, or a slope is noise
SLOPE: Final = 0.1  # T of 0.91 or 1.11
FIT: Final = 0.8  # R^2 of a sequence's own line
PLAIN: Final = 0.05  # root mean square of r over that of the logprob: the two columns agree
FIRST_JUDGED: Final = 64
"""Against the reference, so many sequences from the start: later, drift itself has a slope."""


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Of the sampled sequences of a pair that can be fitted: how many are scaled, how many plain.

    slope: median slope of r on the denominator's logprob over the scaled ones, 1/T - 1; spread: their interquartile
    range over its size; both NaN where none is. scaled_seqs: the scaled ones' numbers in the run.
    """

    judged: int
    plain: int
    slope: float
    spread: float
    scaled_seqs: npt.NDArray[np.uint32]

    @property
    def scaled_share(self) -> float:
        """Scaled over fitted."""
        return len(self.scaled_seqs) / max(1, self.judged)

    @property
    def plain_share(self) -> float:
        """Plain over fitted."""
        return self.plain / max(1, self.judged)


def mixture(samples: pl.DataFrame, *, numerator: str, denominator: str, drift: bool) -> Mixture | None:
    """Sort sampled sequences into scaled and plain; None where none can be fitted.

    `drift`: the denominator is the reference; then only the first 64 count, and only positive slopes (T below 1),
    since drift has negative ones of its own.
    """
    fits = []
    for row in samples.drop_nulls([numerator, denominator]).sort("step", "seq").iter_rows(named=True):
        mask = np.array(row["model_mask"], dtype=np.bool_)
        top, bottom = real(row[numerator]), real(row[denominator])
        fit = _fit(top[mask], bottom[mask]) if len(mask) == len(top) == len(bottom) else None
        if fit is not None:
            fits.append((row["seq"], *fit))
        if drift and len(fits) == FIRST_JUDGED:
            break
    if not fits:
        return None
    seqs, slopes, r_squared, size = (np.array(column) for column in zip(*fits, strict=True))
    plain = size < PLAIN
    scaled = ~plain & (r_squared > FIT) & (np.abs(slopes) > SLOPE)
    sign = 1.0 if drift else np.sign(np.median(slopes[scaled])) if scaled.any() else 1.0
    scaled &= np.sign(slopes) == sign
    low, slope, high = np.percentile(slopes[scaled], [25, 50, 75]) if scaled.any() else [np.nan] * 3
    return Mixture(
        judged=len(fits),
        plain=int(plain.sum()),
        slope=float(slope),
        spread=float((high - low) / abs(slope)),
        scaled_seqs=seqs[scaled].astype(np.uint32),
    )


def _fit(top: FloatArray, bottom: FloatArray) -> tuple[float, float, float] | None:
    """Give slope and R^2 of r on the denominator's logprob, and how large r is beside it."""
    with np.errstate(invalid="ignore"):
        r = top - bottom
        usable = np.isfinite(r) & (bottom < FIT_BELOW)
    if usable.sum() < LEAST_TOKENS or bottom[usable].min() > LEAST_REACH:
        return None
    x, y = bottom[usable], r[usable]
    size = math.sqrt(dot(y, y) / dot(x, x))
    x, y = x - x.mean(), y - y.mean()
    across, total = dot(x, x), dot(y, y)
    if across == 0 or total == 0:
        return 0.0, 0.0, size
    slope = dot(x, y) / across
    return slope, slope * dot(x, y) / total, size
