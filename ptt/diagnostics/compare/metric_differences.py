"""Logged metrics side by side: means by window with their intervals, and whether two arms differ in them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.compare.comparison import OTHER, Arm, NotCompared, first_of, metric_name
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.logged_metrics import Logged, Series
from ptt.diagnostics.metrics.catalogue import kind_of
from ptt.diagnostics.statistics.autocorrelated_mean import (
    T95,
    MeanEstimate,
    between_seed_variance,
    estimate_means,
    pool_seeds,
    subtract_means,
)
from ptt.diagnostics.statistics.windows import WINDOWS

EQUIVALENCE_SHARE: Final = 0.1
"""Of the baseline's mean: two runs of one setting differ by as much, and nobody would act on it."""
EQUIVALENCE_NOISE: Final = 0.5
"""Of a single step's standard deviation, for metrics that go below zero: the loss has no level to take a share of."""
PRECISION: Final = 1e-6  # of a value that was not measured: single precision in one file, all digits in another
COMMON_SHARE: Final = 0.8  # of the steps are logged by both: then they are set against each other step by step


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Arm minus baseline in one window, with its 95% interval; NaN where it is not known."""

    difference: float = math.nan
    low: float = math.nan
    high: float = math.nan
    words: str = "cannot_say"
    margin: float = math.nan  # a difference up to here is none that matters


def compare_levels(
    place: int,
    mine: Sequence[MeanEstimate],
    theirs: Sequence[MeanEstimate],
    arm_parts: Sequence[Sequence[Logged]],
    base_parts: Sequence[Sequence[Logged]],
) -> Difference:
    """Compare the arm with the baseline in the window at `place`; levels are of that window, parts of all of them."""
    parts = [run[place] for run in (*arm_parts, *base_parts)]
    if any(part.lost for part in parts) or not all(level.values for level in (*mine, *theirs)):
        return Difference()
    difference = _difference(place, mine, theirs, arm_parts, base_parts)
    low, high = difference.bounds()
    measured = noise_of(mine, theirs) > 0  # for a schedule or a constant, any difference counts
    margin = (EQUIVALENCE_SHARE if measured else PRECISION) * abs(pool_seeds(theirs).mean)
    if all(bool((part.values[np.isfinite(part.values)] > 0).all()) for part in parts):
        # factors: one spike of a long-tailed metric then decides nothing
        logs = [[[_log_values(piece) for piece in run] for run in side] for side in (arm_parts, base_parts)]
        arm, base = ([estimate_means([piece.values for piece in run])[place] for run in side] for side in logs)
        factor = _difference(place, arm, base, *logs)
        words = words_of(factor, math.log1p(EQUIVALENCE_SHARE if measured else PRECISION))
        if words in ("higher", "lower") and factor.mean * difference.mean < 0:
            words = "cannot_say"  # the typical value and the mean went to opposite sides
    else:
        if any(bool((part.values < 0).any()) for part in parts):
            margin = max(margin, EQUIVALENCE_NOISE * noise_of(mine, theirs)) if measured else margin
        words = words_of(difference, margin)
    return Difference(difference=difference.mean, low=low, high=high, words=words, margin=margin)


def words_of(difference: MeanEstimate, margin: float) -> str:
    """Return "higher", "lower", "alike" or "cannot_say" for a difference.

    alike: its 90% interval lies within the margin (two one-sided tests), so that no difference is taken for
    likeness; higher, lower: its 99.8% interval leaves out 0, since so many metrics and windows are asked at once,
    and it is larger than the margin.
    """
    if math.isnan(difference.error):
        return "cannot_say"
    low, high = difference.bounds(T95)
    if max(-low, high) <= margin:
        return "alike"
    sign = difference.exceeds_zero()
    if sign and abs(difference.mean) > margin:
        return "higher" if sign > 0 else "lower"
    return "cannot_say"


def noise_of(mine: Sequence[MeanEstimate], theirs: Sequence[MeanEstimate]) -> float:
    """Return the standard deviation of a single step, of the noisier side."""
    return max(level.noise if math.isfinite(level.noise) else 0.0 for level in (*mine, *theirs))


def _difference(
    window_index: int,
    arm_means: Sequence[MeanEstimate],
    base_means: Sequence[MeanEstimate],
    arm_parts: Sequence[Sequence[Logged]],
    base_parts: Sequence[Sequence[Logged]],
) -> MeanEstimate:
    """Return arm minus baseline: of two single runs step by step where they log the same steps, else of their means."""
    if len(arm_means) == len(base_means) == 1:
        return _paired(arm_parts[0], base_parts[0], window_index) or subtract_means(arm_means[0], base_means[0])
    spread, freedom = between_seed_variance([arm_means, base_means])
    return subtract_means(pool_seeds(arm_means, spread, freedom), pool_seeds(base_means, spread, freedom))


def _paired(arm: Sequence[Logged], base: Sequence[Logged], window_index: int) -> MeanEstimate | None:
    """Return the mean difference step by step, where most steps are logged by both: what steps share then cancels."""
    pieces = []
    for arm_series, base_series in zip(arm, base, strict=True):
        common, at, there = np.intersect1d(arm_series.steps, base_series.steps, return_indices=True)
        if len(common) < COMMON_SHARE * max(len(arm_series.steps), len(base_series.steps)):
            return None
        pieces.append(arm_series.values[at] - base_series.values[there])
    difference = estimate_means(pieces)[window_index]
    return difference if difference.values else None


def _log_values(piece: Logged) -> Logged:
    values = np.full(len(piece.values), math.nan)
    usable = piece.values > 0
    values[usable] = np.log(piece.values[usable])
    return replace(piece, values=values)


MAX_LISTED: Final = 12
AGGREGATES: Final = pl.Schema(
    dict.fromkeys(("arm", "metric", "window"), pl.String)
    | dict.fromkeys(("mean", "lo", "hi"), pl.Float64)
    | dict.fromkeys(("n", "runs", "step_first", "step_last"), pl.Int64)
)
DIFFERENCES: Final = pl.Schema(
    dict.fromkeys(("arm", "metric", "window"), pl.String)
    | dict.fromkeys(("difference", "lo", "hi"), pl.Float64)
    | {"words": pl.String, "alike_within": pl.Float64, "reason": pl.String}
)


def windows_of(low: int, high: int) -> list[tuple[int, int]]:
    """Return three windows as long as each other, of the steps from `low` to `high`."""
    edges = np.linspace(low, high + 1, 4).round().astype(int)
    return [(int(edges[part]), int(edges[part + 1]) - 1) for part in range(3)]


def compare_aggregates(
    arms: Sequence[Arm],
    held: Mapping[str, Series],
    reach: tuple[int, int] | None,
    others: Mapping[str, Mapping[str, str]],
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the tables `aggregates` and `aggregate_differences`; `reach`: the steps that all arms share.

    `others`: by arm, the metrics that are not the baseline's quantity, and why: no verdict is drawn of them.
    """
    means: list[tuple[object, ...]] = []
    rows: list[tuple[object, ...]] = []
    for metric in sorted(_without_counters(name for series in held.values() for name in series) if reach else ()):
        logging = [arm for arm in arms if all(metric in held[member.name] for member in arm.members)]
        if len(logging) < 2 or reach is None:
            continue
        windows = windows_of(*reach)
        pieces = {
            arm.name: [[held[m.name][metric].within(*w) for w in windows] for m in arm.members] for arm in logging
        }
        levels = {name: [estimate_means([p.values for p in run]) for run in runs] for name, runs in pieces.items()}
        for arm in logging:
            lend = {one.name: levels[one.name] for one in logging if _one_quantity(arm, one, metric, others)}
            for index, window in enumerate(WINDOWS):
                means.append(_mean_row(arm, metric, window, index, lend, pieces, windows[index]))
        base = arms[0]
        compared = logging[1:] if logging[0] is base and kind_of(metric) != "schedule" else ()
        for arm in compared:
            if reason := others.get(arm.name, {}).get(metric):
                rows += [(arm.name, metric, window, None, None, None, OTHER, None, reason) for window in WINDOWS]
                continue
            for index, window in enumerate(WINDOWS):
                arm_means, base_means = ([run[index] for run in levels[side.name]] for side in (arm, base))
                difference = compare_levels(index, arm_means, base_means, pieces[arm.name], pieces[base.name])
                numbers = (_finite(difference.difference), _finite(difference.low), _finite(difference.high))
                rows.append((arm.name, metric, window, *numbers, difference.words, _finite(difference.margin), None))
    order = {arm.name: index for index, arm in enumerate(arms)}
    by = [pl.col("arm").replace_strict(order, return_dtype=pl.Int64), pl.col("metric")]
    return (
        pl.DataFrame(means, schema=AGGREGATES, orient="row").sort(by, maintain_order=True),
        pl.DataFrame(rows, schema=DIFFERENCES, orient="row").sort(by, maintain_order=True),
    )


def _one_quantity(arm: Arm, other: Arm, metric: str, others: Mapping[str, Mapping[str, str]]) -> bool:
    """Return whether the seeds of one may lend their spread to the other."""
    apart = [side.name for side in (arm, other) if metric in others.get(side.name, {})]
    return arm is other or not apart


def logged_by_some(arms: Sequence[Arm], held: Mapping[str, Series]) -> tuple[NotCompared, ...]:
    """List the metrics that some arms log and others do not."""
    by = {
        arm.name: _without_counters(_names_in_every_run([set(held[member.name]) for member in arm.members]))
        for arm in arms
    }
    partly = sorted({name for names in by.values() for name in names} - _names_in_every_run(list(by.values())))
    if not partly or not all(by.values()):  # an arm without any metric is told of by itself
        return ()
    arms_of = {metric: ", ".join(name for name, names in by.items() if metric in names) for metric in partly}
    listed = first_of([f"{metric_name(metric)} ({arms_of[metric]})" for metric in partly], MAX_LISTED)
    reason = f"logged by some arms only: {listed}"
    return (NotCompared(what="metrics of some arms", reason=reason, enable="log the same metrics in all runs"),)


def _names_in_every_run(names: Sequence[set[str]]) -> set[str]:
    return set(names[0]).intersection(*names[1:])


def _mean_row(
    arm: Arm,
    metric: str,
    window: str,
    window_index: int,
    levels: Mapping[str, Sequence[Sequence[MeanEstimate]]],
    pieces: Mapping[str, Sequence[Sequence[Logged]]],
    steps: tuple[int, int],
) -> tuple[object, ...]:
    arm_means = [run[window_index] for run in levels[arm.name]]
    parts = [run[window_index] for run in pieces[arm.name]]
    head = (arm.name, metric, window)
    if any(part.lost for part in parts) or not all(level.values for level in arm_means):
        return (*head, None, None, None, sum(level.values for level in arm_means), len(arm_means), *steps)
    spread, freedom = between_seed_variance(
        [[run[window_index] for run in runs] for runs in levels.values() if _known(runs, window_index)]
    )
    level = pool_seeds(arm_means, spread, freedom) if len(arm_means) > 1 else arm_means[0]
    low, high = level.bounds()
    return (*head, level.mean, _finite(low), _finite(high), level.values, len(arm_means), *steps)


def _known(runs: Sequence[Sequence[MeanEstimate]], window_index: int) -> bool:
    return all(run[window_index].values for run in runs)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _without_counters(names: Iterable[str]) -> set[str]:
    """Leave out running totals: other metrics show what they grow by."""
    return {name for name in names if kind_of(name) != "counter"}
