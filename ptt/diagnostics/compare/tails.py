"""Tails side by side: curves, windows, growth, and how far each arm lies below the baseline."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.compare.comparable import WithTails
from ptt.diagnostics.compare.comparison import Arm, NotCompared
from ptt.diagnostics.compare.tail_measures import MIN_TOKENS, Axis, MeasuredRun
from ptt.diagnostics.compare.wording import LABELS
from ptt.diagnostics.statistics.autocorrelated_mean import MeanEstimate, between_seed_variance, pool_seeds
from ptt.diagnostics.statistics.noninferiority import noninferiority_test
from ptt.diagnostics.statistics.small_sample import T975
from ptt.diagnostics.statistics.tail_curves import third_of
from ptt.diagnostics.statistics.tail_growth import TAIL_QUANTILES
from ptt.diagnostics.statistics.windows import WINDOWS

Row = tuple[object, ...]
Sides = Mapping[str, Sequence[MeasuredRun]]
_KEYS: Final = {"arm": pl.String, "axis": pl.String, "slice": pl.String, "q": pl.String}
CURVES: Final = pl.Schema(
    _KEYS | dict.fromkeys(("x_first", "x_last", "x_mid", "value", "lo", "hi"), pl.Float64)
    | {"n_tokens": pl.Int64, "runs": pl.Int64}
)  # fmt: skip
WINDOW: Final = pl.Schema(
    _KEYS | {"window": pl.String, "value": pl.Float64, "lo": pl.Float64, "hi": pl.Float64}
    | {"n_tokens": pl.Int64, "runs": pl.Int64, "x_first": pl.Float64, "x_last": pl.Float64}
)  # fmt: skip
DIFFERENCES: Final = pl.Schema(
    _KEYS | {"window": pl.String} | dict.fromkeys(("ratio", "lo", "hi", "p_value", "detectable"), pl.Float64)
)
GROWTH: Final = pl.Schema(
    _KEYS | dict.fromkeys(("growth", "lo", "hi", "suppression", "suppression_lo", "suppression_hi"), pl.Float64)
)


def tail_tables(found: WithTails, axes: Sequence[Axis]) -> dict[str, pl.DataFrame]:
    """Return the tables curves, windows, differences and growth over all axes."""
    rows: dict[str, list[Row]] = {"curves": [], "windows": [], "differences": [], "growth": []}
    base = found.arms[0] if found.arms else None
    for arm in found.arms:
        for axis in axes:
            for name in found.slices[arm.name]:
                for quantile in TAIL_QUANTILES:
                    sides = {
                        measured.name: _runs(measured, axis)
                        for measured in found.arms
                        if name in found.slices[measured.name]
                    }
                    head = (arm.name, axis.name, name, quantile)
                    rows["curves"] += [(*head, *row) for row in _curve(arm, sides, axis, name, quantile)]
                    rows["windows"] += [(*head, *row) for row in _windows(arm, sides, axis, name, quantile)]
                    arm_runs, base_runs = sides[arm.name], sides[base.name] if base else ()
                    rows["growth"].append((*head, *_growth(arm_runs, base_runs, sides, name, quantile, arm is base)))
                    if arm is not base:
                        rows["differences"] += [
                            (*head, *row) for row in _differences(arm_runs, base_runs, name, quantile)
                        ]
    schemas = {"curves": CURVES, "windows": WINDOW, "differences": DIFFERENCES, "growth": GROWTH}
    return {name: pl.DataFrame(rows[name], schema=schema, orient="row") for name, schema in schemas.items()}


def vanished(found: WithTails, axis: Axis) -> tuple[NotCompared, ...]:
    """Return which arms have no post-tool tokens left where the baseline has: that is no improvement."""
    said = []
    for name in found.slices[found.arms[0].name]:
        base = _tokens(_runs(found.arms[0], axis), name)
        for arm in found.arms:
            if name not in found.slices[arm.name]:
                continue
            arm_tokens = _tokens(_runs(arm, axis), name)
            if arm_tokens[2] >= MIN_TOKENS:
                continue
            was = f"{arm_tokens[0]} in the early third, {arm_tokens[2]} in the late one"
            beside = "" if arm is found.arms[0] else f" ({found.arms[0].name}: {base[2]})"
            gone = f"too few {LABELS.get(name, name)} tokens are left: {was}{beside}"
            no_gain = "; missing tails are no improvement" if name != "text_only" else ""
            enable = "find out why the tools are no longer called" if name != "text_only" else "record more tokens"
            said.append(
                NotCompared(
                    what=f"late {LABELS.get(name, name)} tails of {arm.name}", reason=gone + no_gain, enable=enable
                )
            )
    return tuple(said)


def _runs(arm: Arm, axis: Axis) -> tuple[MeasuredRun, ...]:
    return tuple(axis.runs[member.name] for member in arm.members)


def _tokens(runs: Sequence[MeasuredRun], name: str) -> list[int]:
    return [sum(int(run.tails[name].window_tokens[window_index]) for run in runs) for window_index in range(3)]


def _of_arm(own_runs: Sequence[MeasuredRun], sides: Sides, get: Callable[[MeasuredRun], MeanEstimate]) -> MeanEstimate:
    """Return one level of an arm; of seeds their mean, with how far seeds of all arms lie apart."""
    levels = [get(run) for run in own_runs]
    if any(math.isnan(level.mean) for level in levels):
        return MeanEstimate(mean=math.nan, error=math.nan, freedom=0, noise=math.nan, values=0)
    if len(levels) == 1:
        return levels[0]
    others = [[get(run) for run in runs] for runs in sides.values()]
    known = [side for side in others if not any(math.isnan(level.mean) for level in side)]
    return pool_seeds(levels, *between_seed_variance(known))


def _curve(arm: Arm, sides: Sides, axis: Axis, name: str, quantile: str) -> list[Row]:
    arm_runs, edges = sides[arm.name], axis.matched.edges
    rows: list[Row] = []
    for index in range(len(edges) - 1):
        level = _of_arm(arm_runs, sides, lambda run, at=index: run.span(name, quantile, at))  # type: ignore[misc]
        if math.isfinite(level.mean):
            first, last = edges[index], edges[index + 1]
            tokens = sum(int(run.tails[name].tokens[index]) for run in arm_runs)
            rows.append((first, last, (first + last) / 2, *_factor(level), tokens, len(arm_runs)))
    return rows


def _windows(arm: Arm, sides: Sides, axis: Axis, name: str, quantile: str) -> list[Row]:
    arm_runs, edges = sides[arm.name], axis.matched.edges
    spans = third_of(len(edges) - 1)
    rows: list[Row] = []
    for index, window in enumerate(WINDOWS):
        level = _of_arm(arm_runs, sides, lambda run, at=index: run.window(name, quantile, at))  # type: ignore[misc]
        in_window = np.flatnonzero(spans == index)
        reach = (edges[in_window[0]], edges[in_window[-1] + 1])
        rows.append((window, *_factor(level), _tokens(arm_runs, name)[index], len(arm_runs), *reach))
    return rows


def _differences(
    arm_runs: Sequence[MeasuredRun], base_runs: Sequence[MeasuredRun], name: str, quantile: str
) -> list[Row]:
    """Return baseline over arm by window; above 1 the arm's tail is the lower one.

    Of a window its percentiles are divided. The interval is the wider of two: what the noise of either side's spans
    gives, and what spans paired one by one give. Over all spans the mean of the paired log ratios is told.
    """
    variant, baseline = (
        [run.curves[name][quantile] for run in arm_runs],
        [run.curves[name][quantile] for run in base_runs],
    )
    sides = {"arm": arm_runs, "base": base_runs}
    rows: list[Row] = []
    for index, window in enumerate(WINDOWS):
        paired = noninferiority_test(variant, baseline, window=window)
        arm, base = (
            _of_arm(runs, sides, lambda run, at=index: run.window(name, quantile, at))  # type: ignore[misc]
            for runs in (arm_runs, base_runs)
        )
        if not math.isfinite(arm.mean) or not math.isfinite(base.mean):
            rows.append((window, None, None, None, None, None))
            continue
        rows.append(
            (
                window,
                *_ratio(base.mean - arm.mean, _reach(arm, base), _half(paired.low, paired.high)),
                _finite(paired.detectable),
            )
        )
    paired = noninferiority_test(variant, baseline)
    known = math.isfinite(paired.ratio)
    middle = -math.log(paired.ratio) if known else math.nan
    rows.append(("all", *_ratio(middle, 0.0, _half(paired.low, paired.high)), _finite(paired.detectable)))
    return rows


def _growth(
    arm_runs: Sequence[MeasuredRun],
    base_runs: Sequence[MeasuredRun],
    sides: Sides,
    name: str,
    quantile: str,
    is_base: bool,
) -> Row:
    level = _of_arm(arm_runs, sides, lambda run: run.growth(name, quantile))
    if is_base:
        return (*_factor(level), None, None, None)
    base = _of_arm(base_runs, sides, lambda run: run.growth(name, quantile))
    if not math.isfinite(level.mean) or not math.isfinite(base.mean):
        return (*_factor(level), None, None, None)
    variant, baseline = (
        [run.curves[name][quantile] for run in arm_runs],
        [run.curves[name][quantile] for run in base_runs],
    )
    halves = []
    for window in ("early", "late"):
        paired = noninferiority_test(variant, baseline, window=window)
        halves.append(_half(paired.low, paired.high))
    suppression = _ratio(base.mean - level.mean, _reach(level, base), math.hypot(*halves))
    return (*_factor(level), *suppression[:3])


def _reach(first: MeanEstimate, second: MeanEstimate) -> float:
    """Return half the 95% interval of a difference of two levels measured apart."""
    freedom = max(1, min(first.freedom, second.freedom, len(T975)))
    return T975[freedom - 1] * math.hypot(first.error, second.error)


def _half(low: float, high: float) -> float:
    """Return half the interval of a factor, on the log scale; NaN where it is not known."""
    return (math.log(high) - math.log(low)) / 2 if low > 0 and math.isfinite(high) else math.nan


def _ratio(middle: float, *halves: float) -> Row:
    """Return a factor, its interval by the wider half, and its two-sided p-value; nulls where one half is not known."""
    half = max(halves) if not any(math.isnan(half_width) for half_width in halves) else math.nan
    if not math.isfinite(middle):
        return None, None, None, None
    if math.isnan(half):
        return math.exp(middle), None, None, None
    z = abs(middle) / half * Z975 if half > 0 else math.inf if middle else 0.0
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half), math.erfc(z / math.sqrt(2.0))


Z975: Final = 1.959964  # standard errors in half a 95% interval


def _factor(level: MeanEstimate) -> Row:
    if not math.isfinite(level.mean):
        return None, None, None
    low, high = level.bounds()
    return math.exp(level.mean), *(None if math.isnan(bound) else math.exp(bound) for bound in (low, high))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
