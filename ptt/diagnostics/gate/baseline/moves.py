"""Tell what moved between two groups of runs: an old baseline and a new one, or a baseline and what passed since."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.gate.baseline.measure import Measured, placed
from ptt.diagnostics.gate.baseline.metrics import DIRECTIONS
from ptt.diagnostics.gate.baseline.tails import curves_of, floored
from ptt.diagnostics.gate.baseline.values import Baseline, Figures, MetricFigures, Moved
from ptt.diagnostics.statistics.group_difference import group_difference, holm_adjust, mean_of
from ptt.diagnostics.statistics.noninferiority import MATERIAL_NATS, noninferiority_test
from ptt.diagnostics.statistics.tail_curves import Curve, join_tail, third_of

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
    """Return each figure: metrics by name, then tails, then effective sample sizes."""
    return (*_metric_spreads(baseline), *_tail_spreads(baseline), *_ess(baseline))


def _metric_spreads(baseline: Baseline) -> list[Spread]:
    results = []
    for name in sorted({metric.name for run in baseline.runs for metric in run.metrics}):
        late = [metric.late for run in baseline.runs for metric in run.metrics if metric.name == name]
        squares = [metric.error**2 for metric in late if math.isfinite(metric.error)]
        noise = math.sqrt(mean_of(squares)) if squares else None
        results.append(_spread(name, None, [metric.mean for metric in late], noise, [metric.n for metric in late]))
    return results


def _tail_spreads(baseline: Baseline) -> list[Spread]:
    results = []
    for slice_, quantile in sorted({(curve.slice, curve.quantile) for run in baseline.runs for curve in run.tails}):
        curves = [
            tail for run in baseline.runs for tail in run.tails if (tail.slice, tail.quantile) == (slice_, quantile)
        ]
        own = [math.sqrt(float(np.nanmean(tail.own))) for tail in curves if np.isfinite(tail.own).any()]
        tokens = [int(tail.tokens[_late_spans(tail)].sum()) for tail in curves]
        results.append(_spread(quantile, slice_, list(map(_late, curves)), mean_of(own) if own else None, tokens))
    return results


def _ess(baseline: Baseline) -> list[Spread]:
    results = []
    for name in sorted({ess.slice for run in baseline.runs for ess in run.ess_late}):
        late = [ess for run in baseline.runs for ess in run.ess_late if ess.slice == name]
        squares = [ess.noise**2 for ess in late if math.isfinite(ess.noise)]
        noise = math.sqrt(mean_of(squares)) if squares else None
        results.append(_spread(ESS, name, [ess.share for ess in late], noise, [ess.tokens for ess in late]))
    for name in sorted({name for run in baseline.runs for name in run.ess}):
        shares = [run.ess[name] for run in baseline.runs if name in run.ess]
        results.append(_spread(ESS_OF_WINDOWS, name, shares, None, []))
    return results


def _spread(
    statistic: str, slice_: str | None, levels: Sequence[float], noise: float | None, counts: Sequence[int]
) -> Spread:
    finite = [level for level in levels if math.isfinite(level)]
    return Spread(
        statistic=statistic,
        slice=slice_,
        mean=mean_of(finite),
        between=float(np.std(finite, ddof=1)) if len(finite) > 1 else None,
        noise=noise,
        runs=len(levels),
        counts=tuple(counts),
    )


def _late(curve: Curve) -> float:
    """Return the geometric mean of the late spans, in nats."""
    values = curve.log_value[_late_spans(curve)]
    return math.exp(float(values.mean())) if len(values) else math.nan


def _late_spans(curve: Curve) -> npt.NDArray[np.bool_]:
    """Return which spans are late and hold enough tokens for a value."""
    is_late: npt.NDArray[np.bool_] = (third_of(len(curve.spans)) == 2) & np.isfinite(curve.log_value)
    return is_late


MAX_FALSE_ALARMS: Final = 0.01  # of telling a move where there is none, of all that is asked together
MIN_MOVE: Final = 1.05  # a smaller one is not worth renewing a baseline for, however surely it is there
MIN_RUNS: Final = 2
"""Of passing runs, before drift is told: what one run shows is the gate's own question."""


def drift(baseline: Baseline, candidates: Sequence[Measured | Figures]) -> tuple[Moved, ...]:
    """Return what passing runs together moved away from their baseline, each of them perhaps within its limit.

    Two or more are needed, none of which the baseline was made of; only what a gate judges is looked at.
    """
    figures = [placed(entry, baseline) if isinstance(entry, Measured) else entry for entry in candidates]
    known = {run.source for run in baseline.runs}
    unique = {entry.source: entry for entry in figures if entry.source not in known}
    if len(unique) < MIN_RUNS:
        return ()
    moved = moves(baseline.runs, [unique[source] for source in sorted(unique)], judged_only=True)
    return tuple(entry for entry in moved if entry.beyond_noise and _material(entry))


def changes(old: Baseline, new: Baseline | Sequence[Measured]) -> tuple[Moved, ...]:
    """Return every figure of an old baseline beside a new one's, or beside runs that are at hand.

    Runs at hand are measured on the old baseline's steps. Two files are compared as they are: where their steps
    differ nothing can be told beyond the figures themselves.
    """
    if not isinstance(new, Baseline):
        return moves(old.runs, [placed(run, old) for run in new])
    return moves(old.runs, new.runs, same_steps=old.steps == new.steps)


def moves(
    before: Sequence[Figures], after: Sequence[Figures], *, same_steps: bool = True, judged_only: bool = False
) -> tuple[Moved, ...]:
    """Return each figure that both groups hold: tails by slice, then late means by name."""
    drafts = [*_tail_moves(before, after, same_steps), *_metric_moves(before, after, same_steps, judged_only)]
    adjusted = holm_adjust([p_value for _, p_value in drafts])
    return tuple(_settled(draft, p_value) for (draft, _), p_value in zip(drafts, adjusted, strict=True))


Draft = tuple[Moved, float]


def drifted(found: Sequence[Moved], runs: int) -> str:
    """Return a sentence on what drifted and what to do; empty where nothing did."""
    if not found:
        return ""
    names = ", ".join(f"{move.slice} tails" if move.slice else move.statistic for move in found)
    return (
        f"{runs} passing runs together differ from the baseline beyond noise in {names}, though each may be within "
        "its limit: find out why, then renew it with `ptt baseline update`"
    )


def _metric_moves(
    before: Sequence[Figures], after: Sequence[Figures], same_steps: bool, judged_only: bool
) -> list[Draft]:
    drafts = []
    for name in sorted({metric.name for run in (*before, *after) for metric in run.metrics}):
        if judged_only and name not in DIRECTIONS:
            continue
        sides = [[metric for run in side for metric in run.metrics if metric.name == name] for side in (before, after)]
        if not all(sides) or len({run.framework or "" for run in (*before, *after)}) > 1:
            drafts.append((_not_comparable(name, sides), math.nan))
        else:
            drafts.append(_metric(name, sides[0], sides[1], same_steps))
    return drafts


def _metric(name: str, before: Sequence[MetricFigures], after: Sequence[MetricFigures], same_steps: bool) -> Draft:
    old = mean_of([metric.late.mean for metric in before])
    known = group_difference([metric.late for metric in after], [metric.late for metric in before])
    low, high = known.interval()
    p_value = _two_sided(known.p_higher(), known.p_lower()) if same_steps else math.nan
    words = "" if same_steps else "different steps"
    return Moved(statistic=name, before=old, after=old + known.difference, low=low, high=high, words=words), p_value


def _not_comparable(name: str, sides: Sequence[Sequence[MetricFigures]]) -> Moved:
    before, after = (mean_of([metric.late.mean for metric in side]) for side in sides)
    words = "not logged before" if not sides[0] else "no longer logged" if not sides[1] else "different frameworks"
    return Moved(statistic=name, before=before, after=after, words=words)


def _tail_moves(before: Sequence[Figures], after: Sequence[Figures], same_steps: bool) -> list[Draft]:
    drafts: list[Draft] = []
    pairs = {run.pair for run in (*before, *after) if run.tails}
    for name in sorted({curve.slice for run in (*before, *after) for curve in run.tails}):
        sides = [[kept for run in side if (kept := curves_of(run, name)) is not None] for side in (before, after)]
        spans = {len(curves[0].spans) for side in sides for curves in side}
        if not all(sides) or len(pairs) > 1 or len(spans) > 1 or not same_steps:
            words = _why_not(sides, pairs, same_steps)
            moved = Moved(statistic="tails", slice=name, before=1.0, after=math.nan, unit="x", words=words)
            drafts.append((moved, math.nan))
            continue
        tails = [[join_tail(run, floors=MATERIAL_NATS) for run in side] for side in sides]
        test = noninferiority_test(tails[1], tails[0], floor=None)
        p_value = _two_sided(test.p_value, 1 - test.p_value)
        moved = Moved(
            statistic="tails", slice=name, before=1.0, after=test.ratio, low=test.low, high=test.high, unit="x",
            note=floored(sides[1], sides[0], window="all"),
        )  # fmt: skip
        drafts.append((moved, p_value))
    return drafts


def _why_not(sides: Sequence[Sequence[object]], pairs: set[str | None], same_steps: bool) -> str:
    if not all(sides):
        return "on one side only"
    return "different pair" if len(pairs) > 1 else "different steps" if not same_steps else "different spans"


def _settled(move: Moved, p_value: float) -> Moved:
    if math.isnan(p_value):
        return replace(move, words=move.words or "too few values to judge")
    beyond = p_value < MAX_FALSE_ALARMS
    return replace(move, beyond_noise=beyond, words="moved beyond noise" if beyond else "within noise")


def _material(move: Moved) -> bool:
    """Return whether a move is worth a renewal: a twentieth of the level, which never counts below its floor."""
    if move.unit == "x":
        return not 1 / MIN_MOVE < move.after < MIN_MOVE
    level = max(abs(move.before), DIRECTIONS[move.statistic].floor)
    return abs(move.after - move.before) > (MIN_MOVE - 1) * level


def _two_sided(higher: float, lower: float) -> float:
    """Return the p-value of a move either way; NaN where either is (min would drop it)."""
    return math.nan if math.isnan(higher + lower) else min(1.0, 2 * min(higher, lower))
