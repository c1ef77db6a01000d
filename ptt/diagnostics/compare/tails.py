"""Tails side by side: curves, windows, growth, distributions, and how far each arm lies below the baseline."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.compare.comparable import WithTails
from ptt.diagnostics.compare.comparison import LABELS, Arm, Member, NotCompared
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.logged_metrics import Series
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.statistics.autocorrelated_mean import MeanEstimate, between_seed_variance, pool_seeds
from ptt.diagnostics.statistics.clustered_share import Z975
from ptt.diagnostics.statistics.ess import sliding_ess
from ptt.diagnostics.statistics.noninferiority import noninferiority_test
from ptt.diagnostics.statistics.percentiles import ecdf
from ptt.diagnostics.statistics.small_sample import T975
from ptt.diagnostics.statistics.step_matching import (
    LoggedTotal,
    MatchedSpans,
    NotMatched,
    match_by_steps,
    match_by_tokens,
)
from ptt.diagnostics.statistics.tail_curves import (
    SPAN_COUNT,
    Curve,
    Profile,
    resample_tails,
    split_thirds,
    tail_curves,
    third_of,
)
from ptt.diagnostics.statistics.tail_growth import FLOOR, TAIL_QUANTILES, SliceTails
from ptt.diagnostics.statistics.trend import block_correlation
from ptt.diagnostics.statistics.windows import WINDOWS, Span, label_spans

DRAWN_SPANS: Final = 24
"""For figures and windows: eight a third."""
MIN_TOKENS: Final = 300  # of a slice in a window: three above p99; fewer, and its p99 is an anecdote
COUNTER_NAME: Final = "tokens/seen"  # a running total of tokens trained on, where a trainer logs one
FREEDOM: Final = 15  # of a span's noise, estimated from some 24 spans
STEP_CORRELATION: Final = 0.8  # AR(1) between steps, the largest seen
MIN_SPANS: Final = 6  # with fewer, their noise cannot be estimated

ECDF: Final = pl.Schema(
    dict.fromkeys(("arm", "slice", "window"), pl.String) | {"x": pl.Float64, "cdf": pl.Float64, "n_tokens": pl.Int64}
)
ESS: Final = pl.Schema(
    {"arm": pl.String, "slice": pl.String, "step_first": pl.Int64, "step_last": pl.Int64}
    | {"step_mid": pl.Float64, "ess_fraction": pl.Float64, "n": pl.Int64}
)

Row = tuple[object, ...]
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


@dataclass(frozen=True, kw_only=True)
class MeasuredRun:
    """One run on one axis: for each slice its tails over spans, and its curves for tests."""

    profile: Profile
    spans: tuple[Span, ...]
    tails: Mapping[str, SliceTails]
    curves: Mapping[str, Mapping[str, Curve]]  # slice -> percentile -> curve

    def window(self, slice_name: str, quantile: str, place: int) -> MeanEstimate:
        """Return the log of a window's percentile; NaN where the window holds too few tokens."""
        tails = self.tails[slice_name]
        value = float(tails.percentiles[quantile].windows[place])
        if tails.window_tokens[place] < MIN_TOKENS or not math.isfinite(value):
            return UNKNOWN
        return _level(value, self._error(slice_name, quantile, place))

    def growth(self, slice_name: str, quantile: str) -> MeanEstimate:
        """Return the log of late over early."""
        early, late = (self.window(slice_name, quantile, place) for place in (0, 2))
        if math.isnan(early.mean) or math.isnan(late.mean):
            return UNKNOWN
        return replace(late, mean=late.mean - early.mean, error=math.hypot(early.error, late.error))

    def span(self, slice_name: str, quantile: str, place: int) -> MeanEstimate:
        """Return the log of a span's percentile, with the noise that redrawing its sequences gives it."""
        percentile = self.tails[slice_name].percentiles[quantile]
        value = float(percentile.blocks[place])
        if not math.isfinite(value):
            return UNKNOWN
        return _level(value, math.sqrt(_own(percentile.drawn[place : place + 1])[0]))

    def _error(self, slice_name: str, quantile: str, window_index: int) -> float:
        """Return the standard error of a window's log percentile, as of a mean over its spans.

        Its noise is that of resampling sequences within each span, plus the noise of steps: the median further
        difference of neighbouring spans, since neither growth nor an onset is noise. Steps are assumed to be as
        correlated as the highest correlation seen in training; with many steps in a span that hardly matters.
        """
        percentile = self.tails[slice_name].percentiles[quantile]
        usable = np.isfinite(percentile.blocks)
        if usable.sum() < MIN_SPANS:
            return math.nan
        levels = np.log(np.maximum(percentile.blocks[usable], FLOOR))
        differing = (float(np.median(np.abs(np.diff(levels)))) / 0.6745) ** 2 / 2
        own = float(np.median(_own(percentile.drawn[usable])))
        in_window = split_thirds(self.spans)[window_index]
        count = sum(in_window.first <= span.first <= in_window.last for span in self.spans)
        steps = max(1, round((self.spans[-1].last - self.spans[0].first + 1) / len(self.spans)))
        correlation = block_correlation(max(count, 2), steps, STEP_CORRELATION)
        stepped = max(0.0, differing - own) / (1 - float(correlation[0, 1]))
        return math.sqrt(own / count + stepped * float(correlation.mean()))


Sides = Mapping[str, Sequence[MeasuredRun]]


UNKNOWN: Final = MeanEstimate(mean=math.nan, error=math.nan, freedom=0, noise=math.nan, values=0)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """All runs on one axis."""

    name: str  # steps or tokens
    matched: MatchedSpans
    runs: Mapping[str, MeasuredRun]  # by member


def measure(arms: Sequence[Arm], slices: Sequence[str], held: Mapping[str, Series], axis: str) -> Axis | NotMatched:
    """Measure all runs over matched spans of trainer steps, or of model tokens trained on."""
    members = [member for arm in arms for member in arm.members]
    fine, coarse = (_matched(members, held, axis, count) for count in (DRAWN_SPANS, SPAN_COUNT))
    if isinstance(fine, NotMatched):
        return fine
    if isinstance(coarse, NotMatched):
        return coarse
    runs = {}
    for member, spans, wide in zip(members, fine.spans, coarse.spans, strict=True):
        profile = member.profile
        assert profile is not None, "only runs with a profile are measured"
        slice_names = [name for name in slices if name in profile.slices.values()]
        runs[member.name] = MeasuredRun(
            profile=profile,
            spans=spans,
            tails={
                # a name of its own for each run: two runs' redrawings must not move together
                name: resample_tails(profile, slice_name=name, spans=spans, name=f"{axis} {member.name}")
                for name in slice_names
            },
            curves={name: tail_curves(profile, slice_name=name, spans=wide) for name in slice_names},
        )
    return Axis(name=axis, matched=fine, runs=runs)


def _matched(
    members: Sequence[Member], series: Mapping[str, Series], axis: str, count: int
) -> MatchedSpans | NotMatched:
    profiles = [member.profile for member in members if member.profile is not None]
    names = [member.name for member in members if member.profile is not None]
    if axis == "steps":
        return match_by_steps(profiles, count, names)
    totals = [series[member.name].get(COUNTER_NAME) for member in members]
    logged = [None if total is None else LoggedTotal(steps=total.steps, totals=total.values) for total in totals]
    return match_by_tokens(profiles, count, logged, names)


def _own(drawn: FloatArray) -> FloatArray:
    """Return the variance of the log of redrawn percentiles, row by row."""
    variances: FloatArray = np.log(np.maximum(drawn, FLOOR)).var(axis=1)
    return variances


def _level(value: float, error: float) -> MeanEstimate:
    return MeanEstimate(mean=math.log(max(value, FLOOR)), error=error, freedom=FREEDOM, noise=math.nan, values=1)


def distribution_tables(found: WithTails, axis: Axis) -> dict[str, pl.DataFrame]:
    """Return the tables ecdf and ess over matched steps; tokens of seeds are pooled, their ESS is averaged."""
    cdfs, sizes = [pl.DataFrame(schema=ECDF)], [pl.DataFrame(schema=ESS)]
    for arm in found.arms:
        runs = [axis.runs[member.name] for member in arm.members]
        for name in found.slices[arm.name]:
            cdfs.append(_cdf(arm, runs, name))
            sizes.append(_ess(arm, runs, name, axis))
    return {"ecdf": pl.concat(cdfs), "ess": pl.concat(sizes)}


def _cdf(arm: Arm, runs: Sequence[MeasuredRun], name: str) -> pl.DataFrame:
    cells = [
        label_spans(run.profile.cells.filter(_slice(run, name)), split_thirds(run.spans), name="part") for run in runs
    ]
    named = ecdf(pl.concat(cells), by=["part"]).with_columns(
        pl.lit(arm.name).alias("arm"),
        pl.lit(name).alias("slice"),
        pl.col("part").replace_strict(dict(enumerate(WINDOWS)), return_dtype=pl.String).alias("window"),
    )
    return named.select(pl.col(column).cast(kind) for column, kind in ECDF.items())


def _ess(arm: Arm, runs: Sequence[MeasuredRun], name: str, axis: Axis) -> pl.DataFrame:
    by_run = [_by_span(run, name) for run in runs]
    edges = axis.matched.edges
    rows = []
    for bin_index in range(len(edges) - 1):
        here = [by_bin[bin_index] for by_bin in by_run if bin_index in by_bin]
        if len(here) < len(runs):
            continue
        first, last = math.ceil(edges[bin_index]), math.floor(edges[bin_index + 1])
        share = float(np.mean([fraction for fraction, _ in here]))
        rows.append((arm.name, name, first, last, (first + last) / 2, share, sum(n for _, n in here)))
    return pl.DataFrame(rows, schema=ESS, orient="row")


def _by_span(run: MeasuredRun, name: str) -> dict[int, tuple[float, int]]:
    """Return ESS/n and n of tokens for each span that holds any."""
    profile = run.profile
    rows = profile.sequences.filter(_slice(run, name)).sort("step", maintain_order=True)
    by_span = {}
    for index, span in enumerate(run.spans):
        table = sliding_ess(rows, [span], pair=profile.pair, inverse="inverse")
        token_rows = table.filter((pl.col("level") == "token") & (pl.col("weights") == profile.pair))
        if token_rows.height and math.isfinite(token_rows["ess_fraction"][0]):
            by_span[index] = (float(token_rows["ess_fraction"][0]), int(token_rows["n"][0]))
    return by_span


def _slice(run: MeasuredRun, name: str) -> pl.Expr:
    number = next(key for key, of in run.profile.slices.items() if of == name)
    return pl.col("slice") == number


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


def _factor(level: MeanEstimate) -> Row:
    if not math.isfinite(level.mean):
        return None, None, None
    low, high = level.bounds()
    return math.exp(level.mean), *(None if math.isnan(bound) else math.exp(bound) for bound in (low, high))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
