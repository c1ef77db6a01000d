"""Effective sample size over sliding windows, of tokens and of whole sequences, with weights rho and 1/rho.

Kish's n_eff = (sum w)^2 / sum w^2, given as a share of n. (Not the autocorrelation ESS of MCMC chains.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.statistics.windows import Span

FloatArray = npt.NDArray[np.float64]

SCHEMA = {
    "level": pl.String,
    "weights": pl.String,
    "step_first": pl.Int64,
    "step_last": pl.Int64,
    "step_mid": pl.Float64,
    "ess_fraction": pl.Float64,
    "n": pl.Int64,
    "top_share": pl.Float64,
}


def sliding_ess(sequences: pl.DataFrame, spans: Sequence[Span], *, pair: str, inverse: str) -> pl.DataFrame:
    """Give ESS/n per window for tokens and sequences of one slice, both ways round.

    `sequences`: rows of the token pass of one slice, sorted by step. `top_share` is the largest single weight's share
    of all weights: near 1, one token (or sequence) is the window.
    """
    step = sequences["step"].to_numpy()
    rows = []
    for span in spans:
        low, high = np.searchsorted(step, [span.first, span.last + 1])
        window = sequences[int(low) : int(high)]
        if not window.height:
            continue
        place = (span.first, span.last, span.middle)
        for weights, sign, total, square in (
            (pair, 1.0, "s_rho", "s_rho2"),
            (inverse, -1.0, "s_inv", "s_inv2"),
        ):
            tokens = int(window["n"].sum())
            largest = window["max_r"].max() if sign > 0 else -window["min_r"].min()  # type: ignore[operator]
            rows.append(("token", weights, *place, *_tokens(window[total], window[square], tokens, largest)))
            logs = sign * window["s_r"].to_numpy()
            rows.append(("sequence", weights, *place, *log_ess(logs)))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _tokens(total: pl.Series, square: pl.Series, count: int, largest: object) -> tuple[float, int, float]:
    weight = float(total.sum())
    top = float(np.exp(min(float(largest), 300.0)) / weight)  # type: ignore[arg-type]
    return weight**2 / (count * float(square.sum())), count, min(top, 1.0)


def log_ess(logs: FloatArray) -> tuple[float, int, float]:
    """Give ESS/n, n and the largest share for weights exp(logs), however large the logs are."""
    shifted = np.exp(logs - logs.max())
    total = float(shifted.sum())
    return total**2 / (len(logs) * float(np.square(shifted).sum())), len(logs), 1.0 / total
