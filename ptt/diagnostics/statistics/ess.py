"""Effective sample size over sliding windows, of tokens and of whole sequences, with weights rho and 1/rho.

Kish's n_eff = (sum w)^2 / sum w^2, given as a share of n. (Not the autocorrelation ESS of MCMC chains.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.cells import EXPONENT_CAP
from ptt.diagnostics.statistics.tail_curves import Profile
from ptt.diagnostics.statistics.windows import Span

MIN_UNITS: Final = 10  # sequences or prompt groups: fewer, and single ones decide an effective sample size
Z_95: Final = 1.96  # standard errors to either side

SCHEMA = {
    "level": pl.String,
    "weights": pl.String,
    "step_first": pl.Int64,
    "step_last": pl.Int64,
    "step_mid": pl.Float64,
    "ess_fraction": pl.Float64,
    "lo": pl.Float64,
    "hi": pl.Float64,
    "n": pl.Int64,
    "top_share": pl.Float64,
}


def sliding_ess(sequences: pl.DataFrame, spans: Sequence[Span], *, pair: str, inverse: str) -> pl.DataFrame:
    """Return ESS/n per window for tokens and sequences of one slice, both ways round, with intervals.

    `sequences`: rows of the token pass of one slice, sorted by step; those of one `unit` (each its own, without that
    column) are left out together for the interval from `lo` to `hi`, null where they are few or one holds all weight.
    It is a 95% interval where weights are light; the heavier they are, the further it lies above the truth, since the
    largest weights are not in the sample. `top_share` is the largest single weight's share of all weights: near 1, one
    token (or sequence) is the window.
    """
    step = sequences["step"].to_numpy()
    known = "unit" in sequences.columns
    units = sequences["unit"].rank("dense").to_numpy().astype(np.int64) if known else np.arange(len(step))
    rows = []
    for span in spans:
        low, high = (int(end) for end in np.searchsorted(step, [span.first, span.last + 1]))
        window, unit = sequences[low:high], units[low:high]
        if not window.height:
            continue
        position = (span.first, span.last, span.middle)
        sizes = window["n"].to_numpy().astype(float)
        for weights, sign, total, square in ((pair, 1.0, "s_rho", "s_rho2"), (inverse, -1.0, "s_inv", "s_inv2")):
            weight, tokens = float(window[total].sum()), int(sizes.sum())  # Polars adds UInt32 up in UInt32
            top = float(np.exp(min(largest_log_weight(window, sign), EXPONENT_CAP)) / weight)
            fraction = weight**2 / (tokens * float(window[square].sum()))
            ends = _interval(fraction, tokens, unit, sizes, window[total].to_numpy(), window[square].to_numpy())
            rows.append(("token", weights, *position, fraction, *ends, tokens, min(top, 1.0)))
            logs = sign * window["s_r"].to_numpy()
            fraction, n, top = ess_of_log_weights(logs)
            shifted = np.exp(logs - logs.max())
            ends = _interval(fraction, n, unit, np.ones(n), shifted, np.square(shifted))
            rows.append(("sequence", weights, *position, fraction, *ends, n, top))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _interval(
    value: float, n: int, unit: IntArray, sizes: FloatArray, first: FloatArray, second: FloatArray
) -> tuple[float | None, float | None]:
    """Return the jackknife interval of ESS/n over units, within what it can be: 1/n to 1."""
    codes = unit - unit.min()
    held = np.bincount(codes)
    sums = [np.bincount(codes, weights=of)[held > 0].astype(np.float64) for of in (sizes, first, second)]
    _, error = jackknife_ess(*sums)
    if not math.isfinite(error):
        return None, None
    reach = math.exp(min(Z_95 * error, EXPONENT_CAP))
    return max(value / reach, 1 / n), min(value * reach, 1.0)


def largest_log_weight(sequences: pl.DataFrame, sign: float) -> float:
    """Return the largest sign * r of the tokens of some rows of the token pass, in nats."""
    return float((sign * sequences["max_r" if sign > 0 else "min_r"].to_numpy()).max())


def ess_of_log_weights(logs: FloatArray) -> tuple[float, int, float]:
    """Return ESS/n, n and the largest share for weights exp(logs), however large the logs are."""
    shifted = np.exp(logs - logs.max())
    total = float(shifted.sum())
    return total**2 / (len(logs) * float(np.square(shifted).sum())), len(logs), 1.0 / total


@dataclass(frozen=True, kw_only=True)
class PooledEss:
    """ESS/n of the token weights of one slice over all tokens of a span of steps, with its jackknife error."""

    share: float  # NaN: too few units, or weights that are no numbers
    error: float  # standard error of the share's logarithm
    tokens: int
    overflows: bool  # sums of weights are no numbers: nothing can be worse


def pooled_ess(profile: Profile, *, slice_name: str, span: Span) -> PooledEss:
    """Return ESS/n of all tokens of a span, with the error that leaving out whole units one at a time gives."""
    number = {name: key for key, name in profile.slices.items()}[slice_name]
    rows = profile.sequences.filter((pl.col("slice") == number) & pl.col("step").is_between(span.first, span.last))
    sums = rows.group_by("unit").agg(pl.col("n").cast(pl.Float64).sum(), pl.col("s_rho", "s_rho2").sum())
    share, error = jackknife_ess(*(sums.sort("unit")[name].to_numpy() for name in ("n", "s_rho", "s_rho2")))
    return PooledEss(
        share=share,
        error=error,
        tokens=int(sums["n"].sum()),
        overflows=not all(math.isfinite(sums[name].sum()) for name in ("s_rho", "s_rho2")),
    )


def jackknife_ess(n: FloatArray, first: FloatArray, second: FloatArray) -> tuple[float, float]:
    """Return (sum w)^2 / (n sum w^2) over units, and the jackknife standard error of its logarithm."""
    units = len(n)
    if units < MIN_UNITS or not (np.isfinite(first).all() and np.isfinite(second).all()):
        return math.nan, math.nan
    with np.errstate(divide="ignore", invalid="ignore"):  # one unit may hold all weight there is
        value = first.sum() ** 2 / (n.sum() * second.sum())
        without = (first.sum() - first) ** 2 / ((n.sum() - n) * (second.sum() - second))
    if not (np.isfinite(without) & (without > 0)).all():
        return float(value), math.nan
    logs = np.log(without)
    return float(value), math.sqrt((units - 1) / units * float(np.square(logs - logs.mean()).sum()))
