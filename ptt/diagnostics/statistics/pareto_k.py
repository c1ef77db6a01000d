"""Whether means of importance weights can be trusted: Pareto k-hat, second moment, chi^2 and ESS by window and slice.

Three levels: single tokens; sequences, with weight exp(sum r); sequences normalised by length, with weight
exp(mean r) (GSPO, arXiv 2507.18071). In a slice a sequence's weight is that of its tokens in the slice; `all` is the
whole sequence. Each both ways round, rho and 1/rho.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.statistics.cells import EXPONENT_CAP
from ptt.diagnostics.statistics.ess import ess_of_log_weights
from ptt.diagnostics.statistics.histograms import Histograms, largest_log_ratios
from ptt.diagnostics.statistics.slices import SLICES
from ptt.diagnostics.statistics.windows import WINDOWS, Span, label_spans

MIN_TAIL: Final = 5  # weights above the cutoff: of fewer, the prior would be the answer
MAX_THRESHOLD: Final = 0.7
RANGE_NATS: Final = 300.0  # nats below the largest weight: what lies lower is 0 beside it
PRIOR_K: Final = 0.5  # with the weight of 10 observations
PRIOR_N: Final = 10
PRIOR_B: Final = 3  # of Zhang and Stephens
CANDIDATES: Final = 30  # and one more for each square root of the tail's size


def k_threshold(n: int) -> float:
    """Return the k-hat above which a mean of `n` weights cannot be trusted; NaN for n <= 10, where no k-hat is low."""
    return min(1 - 1 / math.log10(n), MAX_THRESHOLD) if n > 10 else math.nan


def tail_size(n: int) -> int:
    """Return how many of `n` weights are taken as their tail: 3 sqrt(n), at most a fifth."""
    return int(min(n / 5, 3 * math.sqrt(n)))


def k_hat(log_weights: FloatArray, *, n: int | None = None) -> float:
    """Return the Pareto shape of the upper tail of exp(log_weights); of `n` weights the largest, n / 5 + 1, will do.

    The scale of the weights does not matter. Where a quarter of the tail equals the cutoff (the largest weight that is
    not of the tail), as where most tokens have r = 0, only what lies above it is fitted. NaN where fewer than
    LEAST_TAIL weights do; inf where so few hold everything that the others are 0 beside them.
    """
    wanted = tail_size(len(log_weights) if n is None else n)
    if wanted < MIN_TAIL:
        return math.nan
    largest = np.sort(np.partition(log_weights, -wanted - 1)[-wanted - 1 :])
    lowest = max(largest[0], largest[-1] - RANGE_NATS)
    tail = largest[1:] - lowest
    if tail[_quartile(wanted)] <= 0:
        tail = tail[tail > 0]
    if np.count_nonzero(tail > 0) < MIN_TAIL:
        return math.inf if lowest > largest[0] else math.nan
    return _fit_shape(np.expm1(np.maximum(tail, 0.0)))


def _quartile(n: int) -> int:
    return int(n / 4 + 0.5) - 1


def _fit_shape(excess: FloatArray) -> float:
    """Return the posterior mean shape of an ascending generalized Pareto sample."""
    n = len(excess)
    candidates = CANDIDATES + int(math.sqrt(n))
    b = 1 - np.sqrt(candidates / (np.arange(1, candidates + 1) - 0.5))
    b = b / (PRIOR_B * excess[_quartile(n)]) + 1 / excess[-1]
    k = np.array([np.log1p(-one * excess).mean() for one in b])  # a table of all would take 100 MB
    profile = n * (np.log(-b / k) - k - 1)
    likelihood = np.exp(profile - profile.max())
    likelihood /= likelihood.sum()
    kept = likelihood >= 10 * np.finfo(np.float64).eps
    mean_b = float((b * likelihood)[kept].sum() / likelihood[kept].sum())
    fitted = float(np.log1p(-mean_b * excess).mean())
    return (n * fitted + PRIOR_N * PRIOR_K) / (n + PRIOR_N)


Numbers = tuple[int, float | None, float | None, float | None, float | None, float | None, float | None, str | None]

ALL: Final = len(SLICES)  # number of the slice that is both
NAMES: Final = (*SLICES, "all")
LEVELS: Final = {"sequence": 0.0, "sequence mean": 1.0}  # power of the length by which sum r is divided
SCHEMA: Final[dict[str, pl.DataType]] = {
    "window": pl.String(),
    "slice": pl.String(),  # text_only, post_tool (by the run's name for it), all
    "level": pl.String(),  # token, sequence, sequence mean
    "weights": pl.String(),  # the pair, or the pair turned round
    "n": pl.Int64(),  # weights: tokens or sequences
    "k_hat": pl.Float64(),  # null: not judged, see reason
    "threshold": pl.Float64(),  # min(1 - 1/log10 n, 0.7); null for n <= 10
    "second_moment": pl.Float64(),  # E[w^2]; null where a weight lies beyond exp(300)
    "chi2": pl.Float64(),  # E[w^2] - 1, the divergence where E[w] = 1
    "chi2_normalised": pl.Float64(),  # E[w^2] / E[w]^2 - 1
    "ess_fraction": pl.Float64(),  # E[w]^2 / E[w^2]
    "reason": pl.String(),  # why k_hat is null
}


def tail_heaviness(
    counted: Histograms, sequences: pl.DataFrame, windows: Sequence[Span], *, pair: str, inverse: str, names: list[str]
) -> pl.DataFrame:
    """Return a row for each window, slice (`names`, and `all`), level and way round that holds a weight.

    `sequences` are those of the token pass, sorted by seq. Token moments and all of the sequences' figures are exact
    for them; a token's k-hat is of all tokens, and knows each |r| to its cell (0.4% wide in runs of few steps).
    """
    labelled = label_spans(sequences.drop("coarse_bin", "coarse_n", strict=False), windows, name="window")
    both = ((pair, 1.0), (inverse, -1.0))
    rows = []
    for window in range(len(windows)):
        in_window = labelled.filter(pl.col("window") == window)
        for number, name in enumerate((*names, "all")):
            part = in_window if number == ALL else in_window.filter(pl.col("slice") == number)
            if part.is_empty():
                continue
            chosen = slice(None) if number == ALL else slice(number, number + 1)
            figures = [
                ("token", weights, _token_figures(counted, window, chosen, part, sign)) for weights, sign in both
            ]
            total, length = _sum_sequences(part)
            for level, power in LEVELS.items():
                figures += [(level, weights, _log_figures(sign * total / length**power)) for weights, sign in both]
            rows += [(WINDOWS[window], name, level, weights, *numbers) for level, weights, numbers in figures]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _token_figures(counted: Histograms, window: int, chosen: slice, part: pl.DataFrame, sign: float) -> Numbers:
    n, s_r, s_abs = (each[window, chosen].sum(axis=0) for each in (counted.n, counted.s_r, counted.s_abs))
    tokens = int(n.sum())
    logs = largest_log_ratios(n, s_r, s_abs, sign=sign, wanted=tail_size(tokens) + 1, width=counted.width)
    first, second = ("s_rho", "s_rho2") if sign > 0 else ("s_inv", "s_inv2")
    summed = int(part["n"].cast(pl.Int64).sum())  # fewer than `tokens` where single sequences are kept of a share
    mean, square = (float(part[name].sum()) / summed for name in (first, second))
    return _figures(tokens, k_hat(logs, n=tokens), mean**2 / square, None if logs.max() > EXPONENT_CAP else square)


def _sum_sequences(part: pl.DataFrame) -> tuple[FloatArray, FloatArray]:
    """Return sum r and the number of tokens of each sequence, over the slices that `part` holds."""
    first = np.flatnonzero(np.diff(part["seq"].to_numpy().astype(np.int64), prepend=-1))
    total, length = (np.add.reduceat(part[name].to_numpy().astype(np.float64), first) for name in ("s_r", "n"))
    return total, length


def _log_figures(logs: FloatArray) -> Numbers:
    fraction, n, _ = ess_of_log_weights(logs)
    square = None if logs.max() > EXPONENT_CAP else float(np.mean(np.exp(2 * logs)))
    return _figures(n, k_hat(logs), fraction, square)


def _figures(n: int, k: float, fraction: float, square: float | None) -> Numbers:
    reason = f"{n} weights are too few" if tail_size(n) < MIN_TAIL else "too many weights are equal"
    known, limit = (None if math.isnan(figure) else figure for figure in (k, k_threshold(n)))
    chi2 = None if square is None else square - 1
    return n, known, limit, square, chi2, 1 / fraction - 1, fraction, reason if known is None else None
