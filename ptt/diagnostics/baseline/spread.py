"""What the runs of a baseline have in common and how far they lie apart, figure by figure, late in the run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.baseline.values import Baseline
from ptt.diagnostics.statistics.curves import Curve, window_of

ESS: Final = "ess"  # of all late tokens at once
ESS_OF_WINDOWS: Final = "ess of windows"  # mean over sliding windows of each window's own


@dataclass(frozen=True, kw_only=True)
class Spread:
    """One figure over the runs that have it."""

    statistic: str  # canonical name of a metric, p95, p99, ESS or ESS_OF_WINDOWS
    slice: str | None
    mean: float
    between: float | None  # standard deviation of the runs; None: one run
    noise: float | None  # of one run: standard error of its mean; of tails, relative and of a span; of ESS, relative
    runs: int
    counts: tuple[int, ...]  # of each run: the late values, or late tokens, that its figure is of


def spreads(baseline: Baseline) -> tuple[Spread, ...]:
    """Give each figure: metrics by name, then tails, then effective sample sizes."""
    return (*_metrics(baseline), *_tails(baseline), *_ess(baseline))


def _metrics(baseline: Baseline) -> list[Spread]:
    found = []
    for name in sorted({one.name for run in baseline.runs for one in run.metrics}):
        late = [one.late for run in baseline.runs for one in run.metrics if one.name == name]
        squares = [one.error**2 for one in late if math.isfinite(one.error)]
        noise = math.sqrt(_mean(squares)) if squares else None
        found.append(_spread(name, None, [one.mean for one in late], noise, [one.n for one in late]))
    return found


def _tails(baseline: Baseline) -> list[Spread]:
    found = []
    for slice_, quantile in sorted({(curve.slice, curve.quantile) for run in baseline.runs for curve in run.tails}):
        curves = [one for run in baseline.runs for one in run.tails if (one.slice, one.quantile) == (slice_, quantile)]
        own = [math.sqrt(float(np.nanmean(one.own))) for one in curves if np.isfinite(one.own).any()]
        tokens = [int(one.tokens[_held(one)].sum()) for one in curves]
        found.append(_spread(quantile, slice_, list(map(_late, curves)), _mean(own) if own else None, tokens))
    return found


def _ess(baseline: Baseline) -> list[Spread]:
    found = []
    for name in sorted({one.slice for run in baseline.runs for one in run.ess_late}):
        late = [one for run in baseline.runs for one in run.ess_late if one.slice == name]
        squares = [one.noise**2 for one in late if math.isfinite(one.noise)]
        noise = math.sqrt(_mean(squares)) if squares else None
        found.append(_spread(ESS, name, [one.share for one in late], noise, [one.tokens for one in late]))
    for name in sorted({name for run in baseline.runs for name in run.ess}):
        held = [run.ess[name] for run in baseline.runs if name in run.ess]
        found.append(_spread(ESS_OF_WINDOWS, name, held, None, []))
    return found


def _spread(
    statistic: str, slice_: str | None, levels: Sequence[float], noise: float | None, counts: Sequence[int]
) -> Spread:
    finite = [level for level in levels if math.isfinite(level)]
    return Spread(
        statistic=statistic,
        slice=slice_,
        mean=_mean(finite),
        between=float(np.std(finite, ddof=1)) if len(finite) > 1 else None,
        noise=noise,
        runs=len(levels),
        counts=tuple(counts),
    )


def _late(curve: Curve) -> float:
    """Give the geometric mean of the late spans, in nats."""
    values = curve.log_value[_held(curve)]
    return math.exp(float(values.mean())) if len(values) else math.nan


def _held(curve: Curve) -> npt.NDArray[np.bool_]:
    """Tell which spans are late and hold enough tokens for a value."""
    held: npt.NDArray[np.bool_] = (window_of(len(curve.spans)) == 2) & np.isfinite(curve.log_value)
    return held


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
