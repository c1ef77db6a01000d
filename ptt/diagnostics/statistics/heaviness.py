"""Whether means of importance weights can be trusted: Pareto k-hat, second moment, chi^2 and ESS by window and slice.

Three levels: single tokens; sequences, with weight exp(sum r); sequences normalised by length, with weight
exp(mean r) (GSPO, arXiv 2507.18071). In a slice a sequence's weight is that of its tokens in the slice; `all` is the
whole sequence. Each both ways round, rho and 1/rho.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.statistics.ess import log_ess
from ptt.diagnostics.statistics.histograms import Histograms, largest
from ptt.diagnostics.statistics.pareto import LEAST_TAIL, k_hat, tail_size, threshold
from ptt.diagnostics.statistics.slices import SLICES
from ptt.diagnostics.statistics.windows import WINDOWS, Span, label

FloatArray = npt.NDArray[np.float64]
Numbers = tuple[int, float | None, float | None, float | None, float | None, float | None, float | None, str | None]

EXPONENT_CAP: Final = 300.0  # as in the token pass: beyond it a weight has no square
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


def heaviness(
    counted: Histograms, sequences: pl.DataFrame, windows: Sequence[Span], *, pair: str, inverse: str, names: list[str]
) -> pl.DataFrame:
    """Give a row for each window, slice (`names`, and `all`), level and way round that holds a weight.

    `sequences` are those of the token pass, sorted by seq. Token moments and all of the sequences' figures are exact;
    a token's k-hat knows each |r| to its bin (0.4 % wide).
    """
    labelled = label(sequences, windows, name="window")
    both = ((pair, 1.0), (inverse, -1.0))
    rows = []
    for window in range(len(windows)):
        mine = labelled.filter(pl.col("window") == window)
        for number, name in enumerate((*names, "all")):
            part = mine if number == ALL else mine.filter(pl.col("slice") == number)
            if part.is_empty():
                continue
            for level, weights, numbers in _levels(counted, window, number, part, both):
                rows.append((WINDOWS[window], name, level, weights, *numbers))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _levels(
    counted: Histograms, window: int, number: int, part: pl.DataFrame, both: tuple[tuple[str, float], ...]
) -> Iterator[tuple[str, str, Numbers]]:
    chosen = slice(None) if number == ALL else slice(number, number + 1)
    for weights, sign in both:
        yield "token", weights, _of_tokens(counted, window, chosen, part, sign)
    total, length = _whole(part)
    for level, power in LEVELS.items():
        for weights, sign in both:
            yield level, weights, _of_logs(sign * total / length**power)


def _of_tokens(counted: Histograms, window: int, chosen: slice, part: pl.DataFrame, sign: float) -> Numbers:
    n, s_r, s_abs = (each[window, chosen].sum(axis=0) for each in (counted.n, counted.s_r, counted.s_abs))
    tokens = int(n.sum())
    logs = largest(n, s_r, s_abs, sign=sign, wanted=tail_size(tokens) + 1)
    first, second = ("s_rho", "s_rho2") if sign > 0 else ("s_inv", "s_inv2")
    mean, square = (float(part[name].sum()) / tokens for name in (first, second))
    return _numbers(tokens, k_hat(logs, n=tokens), mean**2 / square, None if logs.max() > EXPONENT_CAP else square)


def _whole(part: pl.DataFrame) -> tuple[FloatArray, FloatArray]:
    """Give sum r and the number of tokens of each sequence, over the slices that `part` holds."""
    first = np.flatnonzero(np.diff(part["seq"].to_numpy().astype(np.int64), prepend=-1))
    total, length = (np.add.reduceat(part[name].to_numpy().astype(np.float64), first) for name in ("s_r", "n"))
    return total, length


def _of_logs(logs: FloatArray) -> Numbers:
    fraction, n, _ = log_ess(logs)
    square = None if logs.max() > EXPONENT_CAP else float(np.mean(np.exp(2 * logs)))
    return _numbers(n, k_hat(logs), fraction, square)


def _numbers(n: int, k: float, fraction: float, square: float | None) -> Numbers:
    limit = threshold(n)
    return (
        n,
        None if math.isnan(k) else k,
        None if math.isnan(limit) else limit,
        square,
        None if square is None else square - 1,
        1 / fraction - 1,
        fraction,
        _reason(n) if math.isnan(k) else None,
    )


def _reason(n: int) -> str:
    if tail_size(n) < LEAST_TAIL:
        return f"{n} weights are too few"
    return "too many weights are equal"
