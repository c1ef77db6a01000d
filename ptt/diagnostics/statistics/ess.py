"""Whether means of importance weights can be trusted: effective sample size, Pareto k-hat, second moment and chi^2.

Kish's n_eff = (sum w)^2 / sum w^2, as a share of n, over sliding windows (not the autocorrelation ESS of MCMC chains).
k-hat and moments come at three levels: single tokens; sequences, with weight exp(sum r); sequences normalised by
length, with weight exp(mean r) (GSPO, arXiv 2507.18071). In a slice, a sequence's weight covers its tokens in that
slice; `all` covers the whole sequence. Each is given in both directions, rho and 1/rho."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.cells import EXPONENT_CAP
from ptt.diagnostics.statistics.histograms import Histograms, largest_log_ratios
from ptt.diagnostics.statistics.slices import SLICES
from ptt.diagnostics.statistics.tail_curves import Profile
from ptt.diagnostics.statistics.windows import WINDOWS, Span, label_spans

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

    share: float  # NaN: too few units, or weights that are not finite
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


MIN_TAIL: Final = 5  # weights above the cutoff: of fewer, the prior would be the answer
MAX_THRESHOLD: Final = 0.7
RANGE_NATS: Final = 300.0  # nats below the largest weight: what lies lower is 0 beside it
PRIOR_K: Final = 0.5  # prior of k-hat, weighted as 10 observations
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
HEAVINESS_SCHEMA: Final[dict[str, pl.DataType]] = {
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
    """Return a row for each window, slice (`names`, and `all`), level and direction that has a weight.

    `sequences` come from the token pass, sorted by seq. Token moments and everything at sequence level are exact for
    them; k-hat at token level uses all tokens, with each |r| known to its cell (0.4% wide in runs of few steps).
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
    return pl.DataFrame(rows, schema=HEAVINESS_SCHEMA, orient="row")


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
