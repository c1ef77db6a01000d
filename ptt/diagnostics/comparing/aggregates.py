"""Logged metrics side by side: means by window with their intervals, and whether two arms differ in them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from ptt.diagnostics.comparing.differing import told_apart
from ptt.diagnostics.comparing.logged import Logged, Series, windows_of
from ptt.diagnostics.comparing.phrases import metric_name
from ptt.diagnostics.comparing.values import Arm, NotCompared
from ptt.diagnostics.metrics import COUNTERS, kind_of
from ptt.diagnostics.statistics.levels import Level, between_seeds, levels_of, pooled
from ptt.diagnostics.statistics.windows import WINDOWS

MOST_LISTED: Final = 12
AGGREGATES: Final = pl.Schema(
    {
        "arm": pl.String,
        "metric": pl.String,
        "window": pl.String,
        "mean": pl.Float64,
        "lo": pl.Float64,
        "hi": pl.Float64,
        "n": pl.Int64,
        "runs": pl.Int64,
        "step_first": pl.Int64,
        "step_last": pl.Int64,
    }
)
DIFFERENCES: Final = pl.Schema(
    {
        "arm": pl.String,
        "metric": pl.String,
        "window": pl.String,
        "difference": pl.Float64,
        "lo": pl.Float64,
        "hi": pl.Float64,
        "words": pl.String,
        "alike_within": pl.Float64,
    }
)


def compare_aggregates(
    arms: Sequence[Arm], held: Mapping[str, Series], reach: tuple[int, int] | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Give the tables `aggregates` and `aggregate_differences`; `held`: series by member, `reach`: the steps shared."""
    means: list[tuple[object, ...]] = []
    apart: list[tuple[object, ...]] = []
    for metric in sorted({name for series in held.values() for name in series} - set(COUNTERS) if reach else ()):
        logging = [arm for arm in arms if all(metric in held[member.name] for member in arm.members)]
        if len(logging) < 2 or reach is None:
            continue
        windows = windows_of(*reach)
        pieces = {
            arm.name: [[held[m.name][metric].within(*w) for w in windows] for m in arm.members] for arm in logging
        }
        levels = {name: [levels_of([p.values for p in run]) for run in runs] for name, runs in pieces.items()}
        for arm in logging:
            for place, window in enumerate(WINDOWS):
                means.append(_mean_row(arm, metric, window, place, levels, pieces, windows[place]))
        base = arms[0]
        compared = logging[1:] if logging[0] is base and kind_of(metric) != "schedule" else ()
        for arm in compared:
            for place, window in enumerate(WINDOWS):
                mine, theirs = ([run[place] for run in levels[one.name]] for one in (arm, base))
                found = told_apart(place, mine, theirs, pieces[arm.name], pieces[base.name])
                numbers = (_told(found.difference), _told(found.low), _told(found.high))
                apart.append((arm.name, metric, window, *numbers, found.words, _told(found.margin)))
    order = {arm.name: place for place, arm in enumerate(arms)}
    by = [pl.col("arm").replace_strict(order, return_dtype=pl.Int64), pl.col("metric")]
    return (
        pl.DataFrame(means, schema=AGGREGATES, orient="row").sort(by, maintain_order=True),
        pl.DataFrame(apart, schema=DIFFERENCES, orient="row").sort(by, maintain_order=True),
    )


def logged_by_some(arms: Sequence[Arm], held: Mapping[str, Series]) -> tuple[NotCompared, ...]:
    """List the metrics that some arms log and others do not."""
    by = {arm.name: _of_all([set(held[member.name]) for member in arm.members]) - set(COUNTERS) for arm in arms}
    partly = sorted({name for names in by.values() for name in names} - _of_all(list(by.values())))
    if not partly or not all(by.values()):  # an arm without any metric is told of by itself
        return ()
    told = [
        f"{metric_name(metric)} ({', '.join(name for name, names in by.items() if metric in names)})"
        for metric in partly
    ]
    more = f" and {len(partly) - MOST_LISTED} more" if len(partly) > MOST_LISTED else ""
    reason = f"logged by some arms only: {', '.join(told[:MOST_LISTED])}{more}"
    return (NotCompared(what="metrics of some arms", reason=reason, enable="log the same metrics in all runs"),)


def _of_all(names: Sequence[set[str]]) -> set[str]:
    return set(names[0]).intersection(*names[1:])


def _mean_row(
    arm: Arm,
    metric: str,
    window: str,
    place: int,
    levels: Mapping[str, Sequence[Sequence[Level]]],
    pieces: Mapping[str, Sequence[Sequence[Logged]]],
    steps: tuple[int, int],
) -> tuple[object, ...]:
    mine = [run[place] for run in levels[arm.name]]
    parts = [run[place] for run in pieces[arm.name]]
    head = (arm.name, metric, window)
    if any(part.lost for part in parts) or not all(level.values for level in mine):
        return (*head, None, None, None, sum(level.values for level in mine), len(mine), *steps)
    spread, freedom = between_seeds([[run[place] for run in runs] for runs in levels.values() if _known(runs, place)])
    level = pooled(mine, spread, freedom) if len(mine) > 1 else mine[0]
    low, high = level.bounds()
    return (*head, level.mean, _told(low), _told(high), level.values, len(mine), *steps)


def _known(runs: Sequence[Sequence[Level]], place: int) -> bool:
    return all(run[place].values for run in runs)


def _told(value: float) -> float | None:
    return value if math.isfinite(value) else None
