"""Find the step from which each statistic of an arm leaves the baseline's for good, and until when runs are equal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl
from numpy.lib.stride_tricks import sliding_window_view

from ptt.diagnostics.compare.comparison import SAME, Arm, NotCompared
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.baseline_shift import step_noise
from ptt.diagnostics.evidence.logged_metrics import Series
from ptt.diagnostics.metrics.catalogue import kind_of
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.percentiles import percentiles
from ptt.diagnostics.statistics.small_sample import T975
from ptt.diagnostics.statistics.step_matching import MatchedSpans, count_steps, match_by_steps, recorded_steps
from ptt.diagnostics.statistics.tail_growth import LEVEL_FLOOR, MIN_BLOCK_TOKENS, TAIL_QUANTILES
from ptt.diagnostics.statistics.trend import first_lasting_excess
from ptt.diagnostics.statistics.windows import label_spans
from ptt.diagnostics.wording import sig

MIN_DIFFERENCES: Final = 30  # differences: with fewer, half of what there is would be the window that tells
WINDOW_WIDTH: Final = 20  # a window's mean tells, never a step
MIN_WIDTH: Final = 5
MAX_BLOCKS: Final = 400  # a longer series is judged by the means of so many blocks
Z_LIMIT: Final = 4.0  # of a window's mean: it is looked at some hundred times in each of some twenty figures
SHORT_SERIES_PENALTY: Final = 10
"""Values: a short series tells its noise and its AR(1) badly, so limits lie higher by so many over their number."""
MIN_NOISE_SHARE: Final = 1e-9  # of the largest difference: a schedule leaves at its first other value
BOOTSTRAP_DRAWS: Final = 100
SEED: Final = 20_260_611


@dataclass(frozen=True, kw_only=True)
class DivergenceOnset:
    """The first step away, its 95% interval, and how far away the end is."""

    step: int
    low: int
    high: int
    last: float  # mean over the last window
    since: int  # the first step of that window
    until: int  # and its last


def divergence_onset(
    steps: IntArray, values: FloatArray, *, ends: IntArray | None = None, between: float = 0.0
) -> DivergenceOnset | None:
    """Return where differences leave zero for good, or None; `between`: the standard error that seeds add to them.

    steps, ends: the first and the last step that each difference is of, where it is of more than one.

    A window's mean must lie beyond four of its standard errors, at four of five places from there on and at the end,
    always to the same side, and a window of values must follow. The step is where the values up to the window are
    best cut in two, zero before and the later level after; the interval is that of a moving-block bootstrap (Kunsch
    1989), and begins with the step before, since a figure of a step is taken from weights that the steps before made.
    Where all values lie on that side, and the first ones half as far out as the last, it is the first step, exactly.
    """
    usable = np.isfinite(values)
    if usable.sum() < MIN_DIFFERENCES:
        return None
    firsts, lasts, levels = _condensed(steps[usable], (steps if ends is None else ends)[usable], values[usable])
    spread, ar1 = step_noise(levels)
    spread = max(spread, MIN_NOISE_SHARE * float(np.abs(levels).max()))
    width = min(WINDOW_WIDTH, max(MIN_WIDTH, len(levels) // 3))
    errors = np.hypot(_errors(len(levels), width, spread, ar1), between)
    onset = _find_onsets(levels[None], width, errors)[0]
    if onset is None:
        return None
    last = float(levels[-width:].mean())
    sided = math.copysign(1.0, last) * levels
    apart = bool(sided.min() > 0 and sided[:MIN_WIDTH].mean() > abs(last) / 2)  # at every step: it never left
    seen = [
        len(levels) - 1 if index is None else index for index in _find_onsets(_redrawn(levels, width), width, errors)
    ]
    low, high = (int(index) for index in np.percentile([onset, *seen], [2.5, 97.5], method="nearest"))
    low = min(low, _last_within(levels, onset, width, errors))
    return DivergenceOnset(
        step=int(firsts[0 if apart else onset]),
        low=int(firsts[0 if apart else max(0, min(low, onset) - 1)]),
        high=int(firsts[0] if apart else lasts[max(high, onset)]),
        last=last,
        since=int(firsts[-width]),
        until=int(lasts[-1]),
    )


def _condensed(firsts: IntArray, lasts: IntArray, values: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the first steps, the last steps and the means of at most MOST blocks."""
    size = -(-len(values) // MAX_BLOCKS)
    starts = np.arange(0, len(values), size)
    stops = np.append(starts[1:], len(values))
    return firsts[starts], lasts[stops - 1], np.add.reduceat(values, starts) / (stops - starts)


def _redrawn(levels: FloatArray, width: int) -> FloatArray:
    """Return (draws, n): the running median, with what the values lie off it redrawn in blocks."""
    half = width // 2
    centre = np.median(sliding_window_view(np.pad(levels, half, mode="edge"), 2 * half + 1), axis=1)
    starts = np.random.default_rng(SEED).integers(
        0, len(levels) - width + 1, size=(BOOTSTRAP_DRAWS, -(-len(levels) // width))
    )
    places = (starts[..., None] + np.arange(width)).reshape(BOOTSTRAP_DRAWS, -1)[:, : len(levels)]
    redrawn: FloatArray = centre + (levels - centre)[places]
    return redrawn


def _errors(count: int, width: int, spread: float, ar1: float) -> FloatArray:
    """Return the standard error of the mean over the last `width` values at each place; inf before there are five."""
    window_sizes = np.minimum(np.arange(1, count + 1), width)
    error: FloatArray = spread * np.sqrt((1 + ar1) / (1 - ar1) / window_sizes) * (1 + SHORT_SERIES_PENALTY / count)
    error[: MIN_WIDTH - 1] = np.inf
    return error


def _means(rows: FloatArray, width: int) -> FloatArray:
    """Return the mean over the last `width` values, or as many as there are, at each place of each row."""
    sums = np.cumsum(np.pad(rows, ((0, 0), (1, 0))), axis=1)
    ends = np.arange(1, rows.shape[1] + 1)
    begins = np.maximum(0, ends - width)
    means: FloatArray = (sums[:, ends] - sums[:, begins]) / (ends - begins)
    return means


def _find_onsets(rows: FloatArray, width: int, errors: FloatArray) -> list[int | None]:
    """Return for each row the place at which it leaves zero for good."""
    onsets: list[int | None] = []
    for row, mean in zip(rows, _means(rows, width), strict=True):
        sign = float(np.sign(mean[-1]))
        beyond = sign * mean > Z_LIMIT * errors
        excess_at = first_lasting_excess(beyond) if beyond[-1] else None
        onset = None if excess_at is None else _locate_change(row, excess_at, width, sign)
        onsets.append(onset if onset is not None and len(row) - onset >= width else None)
    return onsets


def _last_within(levels: FloatArray, onset: int, width: int, errors: FloatArray) -> int:
    """Return the place that the departure may go back to: half a window before the last mean within its error of zero.

    A small departure passes the limit late; it began when the mean was last where noise leaves it.
    """
    mean = _means(levels[None], width)[0]
    within = np.flatnonzero((np.sign(mean[-1]) * mean <= errors)[:onset])
    return max(0, int(within[-1]) - width // 2) if len(within) else 0


def _locate_change(row: FloatArray, onset: int, width: int, sign: float) -> int:
    """Return the place that best cuts the values around a window into zero before and the later level after."""
    begin, end = max(0, onset - 2 * width + 1), min(len(row), onset + width)
    level = float((sign * row[onset:end]).mean())
    gain = np.cumsum((sign * row[begin : onset + 1] - level / 2)[::-1])[::-1]
    return begin + int(np.argmax(gain))


MAX_SPANS: Final = 60
TOKENS: Final = "tokens/"  # counts of tokens are equal in runs that have nothing else in common
PRECISION: Final = 1e-6
"""Of a value: event files keep single precision, other logs print all digits; one run in two formats stays one run."""
MIN_IDENTICAL: Final = 5
"""Values, neither scheduled nor round, that agree to the last digit: with this many, runs are identical so far."""
ROUND_DIGITS: Final = 6  # digits: counts and shares of a small batch are equal by chance
MAX_INTERVAL_SHARE: Final = 0.5  # of the steps that both log: a wider interval dates nothing
DIVERGENCE: Final = pl.Schema(
    dict.fromkeys(("arm", "what", "slice"), pl.String)
    | dict.fromkeys(("step", "low", "high"), pl.Int64)
    | {"words": pl.String}
)


@dataclass(frozen=True, kw_only=True)
class Statistic:
    """One statistic of one run over its steps, in the form that is compared."""

    what: str  # canonical metric, or p95 / p99 of a slice
    slice: str | None
    steps: IntArray
    ends: IntArray  # the last step that each value covers
    values: FloatArray
    logs: bool = False  # the values are logarithms: a difference is a factor


def metric_figures(series: Series) -> dict[str, Statistic]:
    """Return the logged figures of a run that training can leave another run by."""
    return {
        name: Statistic(what=name, slice=None, steps=logged.steps, ends=logged.steps, values=logged.values)
        for name, logged in series.items()
        if kind_of(name) == "training"
    }


def tail_figures(arm: Arm, base: Arm, slices: Sequence[str]) -> dict[str, dict[str, Statistic]] | NotCompared:
    """Return the tails of the runs of an arm and the baseline, by member, over spans of the steps that these share.

    Of these alone: what a third arm recorded says nothing of when this one left. A span holds two recorded steps or
    more: two updates on one batch have nearly the same tokens.
    """
    members = [member for member in (*base.members, *arm.members) if member.profile is not None]
    profiles = [member.profile for member in members if member.profile is not None]
    steps = [recorded_steps(profile) for profile in profiles]
    low, high = max(int(run_steps[0]) for run_steps in steps), min(int(run_steps[-1]) for run_steps in steps)
    counts = [int(((run_steps >= low) & (run_steps <= high)).sum()) for run_steps in steps]
    fewest = min(counts)
    names = [member.name for member in members]
    matched = match_by_steps(profiles, min(MAX_SPANS, fewest // 2), names) if fewest >= 2 * MIN_DIFFERENCES else None
    if not isinstance(matched, MatchedSpans) or len(matched.spans[0]) < MIN_DIFFERENCES:
        if low > high:
            reason = f"its recorded steps and those of {base.name} do not overlap"
        elif matched is None:
            reason = (
                f"of the steps that it shares with {base.name} ({low} to {high}) {names[counts.index(fewest)]} "
                f"recorded only {count_steps(fewest)}; at least {2 * MIN_DIFFERENCES} are needed to date when tails "
                "diverge"
            )
        elif isinstance(matched, MatchedSpans):
            reason = (
                f"the steps recorded in the range that it shares with {base.name} ({low} to {high}) leave gaps: "
                f"only {len(matched.spans[0])} spans contain one of every run; at least {MIN_DIFFERENCES} are needed "
                "to date when tails diverge"
            )
        else:
            reason = matched.reason
        return NotCompared(what=f"when the tails of {arm.name} left", reason=reason, enable="record more steps")
    edges = np.array(matched.edges)
    firsts, ends = np.ceil(edges[:-1]).astype(np.int64), np.ceil(edges[1:]).astype(np.int64) - 1
    ends[-1] = int(edges[-1])
    figures: dict[str, dict[str, Statistic]] = {}
    for member, spans, profile in zip(members, matched.spans, profiles, strict=True):
        figures[member.name] = {}
        for number, name in profile.slices.items():
            if name not in slices:
                continue
            cells = label_spans(profile.cells.filter(pl.col("slice") == number), spans, name="span")
            rows = percentiles(cells, by=["span"]).filter(pl.col("n") >= MIN_BLOCK_TOKENS)
            for quantile in TAIL_QUANTILES:
                values = np.full(len(spans), np.nan)
                values[rows["span"].to_numpy()] = np.log(np.maximum(rows[quantile].to_numpy(), LEVEL_FLOOR))
                figures[member.name][f"{name} {quantile}"] = Statistic(
                    what=quantile, slice=name, steps=firsts, ends=ends, values=values, logs=True
                )
    return figures


def divergence_table(
    arms: Sequence[Arm], figures: Mapping[str, Mapping[str, Mapping[str, Statistic]]], reach: tuple[int, int] | None
) -> pl.DataFrame:
    """Return the table `divergence`; `figures`: of each arm those of its members and of the baseline's, by member."""
    rows: list[tuple[object, ...]] = []
    for arm in arms[1:] if reach else ():
        arm_figures = [figures[arm.name][member.name] for member in arm.members]
        base_figures = [figures[arm.name][member.name] for member in arms[0].members]
        arm_rows = []
        for key in sorted(set.intersection(*(set(by_name) for by_name in (*arm_figures, *base_figures)))):
            divergence = onset_between(
                [by_name[key] for by_name in arm_figures], [by_name[key] for by_name in base_figures]
            )
            if divergence is not None:
                statistic = arm_figures[0][key]
                shared = _shared([by_name[key] for by_name in (*arm_figures, *base_figures)])
                dated = divergence.high - divergence.low <= MAX_INTERVAL_SHARE * (int(shared[-1]) - int(shared[0]))
                step = divergence.step if dated else None
                row = (arm.name, statistic.what, statistic.slice, step, divergence.low, divergence.high)
                arm_rows.append((*row, _words(divergence, statistic, step)))
        rows += sorted(
            arm_rows, key=lambda row: (math.inf if row[3] is None else row[3], *row[4:6], str(row[2]), row[1])
        )
        if (
            len(arm_figures) == len(base_figures) == 1
            and (same := identical_up_to(arm_figures[0], base_figures[0])) is not None
        ):
            last = max(same, _last_shared(arm_figures[0], base_figures[0]))
            where = f"up to step {same}" if same < last else f"in all steps that both log, up to {same}"
            words = f"identical to the last digit {where}"
            rows.append((arm.name, SAME, None, same, same, last, words))
    return pl.DataFrame(rows, schema=DIVERGENCE, orient="row")


def onset_between(mine: Sequence[Statistic], theirs: Sequence[Statistic]) -> DivergenceOnset | None:
    """Return where an arm's mean leaves the baseline's, over the steps that all their runs have."""
    steps = _shared([*mine, *theirs])
    if len(steps) < MIN_DIFFERENCES:
        return None
    sides = [np.array([_values_at(statistic, steps) for statistic in side]) for side in (mine, theirs)]
    ends = mine[0].ends[np.searchsorted(mine[0].steps, steps)]
    onset = _onset(steps, ends, sides)
    if onset is None or mine[0].logs or any(bool((side[np.isfinite(side)] <= 0).any()) for side in sides):
        return onset
    # noise that grows with its level, as of a mean KL, is small where most steps are and large at the end
    factors = _onset(steps, ends, [np.log(side) for side in sides])
    return onset if factors is not None and factors.last * onset.last > 0 else None


def _shared(figures: Sequence[Statistic]) -> IntArray:
    """Return the steps that all of them have."""
    steps = figures[0].steps
    for statistic in figures[1:]:
        steps = np.intersect1d(steps, statistic.steps)
    return steps


def _last_shared(arm_figures: Mapping[str, Statistic], base_figures: Mapping[str, Statistic]) -> int:
    """Return the last step at which both have a value of anything."""
    shared = [
        np.intersect1d(arm_figures[key].steps, base_figures[key].steps) for key in set(arm_figures) & set(base_figures)
    ]
    return max((int(steps[-1]) for steps in shared if len(steps)), default=0)


def _onset(steps: IntArray, ends: IntArray, sides: Sequence[FloatArray]) -> DivergenceOnset | None:
    arm_mean, base_mean = (side.mean(axis=0) for side in sides)
    rounded = np.abs(arm_mean - base_mean) <= PRECISION * np.maximum(np.abs(arm_mean), np.abs(base_mean))
    return divergence_onset(steps, np.where(rounded, 0.0, arm_mean - base_mean), ends=ends, between=_seed_error(sides))


def _values_at(statistic: Statistic, steps: IntArray) -> FloatArray:
    return statistic.values[np.searchsorted(statistic.steps, steps)]


def _seed_error(sides: Sequence[FloatArray]) -> float:
    """Return the standard error of the difference that seeds make: of window means about their side's, over the run."""
    freedom = sum(len(side) - 1 for side in sides)
    if not freedom:
        return 0.0
    squares = 0.0
    for side in sides:
        off = side - side.mean(axis=0)
        windows = [part.mean(axis=1) for part in np.array_split(off, max(1, off.shape[1] // WINDOW_WIDTH), axis=1)]
        squares += float(np.nanmean([float(np.square(window).sum()) for window in windows]))
    variance = squares / freedom * math.fsum(1 / len(side) for side in sides)
    # four of these are asked for; with few seeds their own spread is hardly known, so it is widened as Student's is
    return math.sqrt(variance) * T975[min(freedom, len(T975)) - 1] / 1.96


def identical_up_to(mine: Mapping[str, Statistic], theirs: Mapping[str, Statistic]) -> int | None:
    """Return the last step up to which two runs are equal to the last digit in all that both log, or None.

    Schedules and shares of a small batch are equal in any two runs: enough other values must be.
    """
    first_other, telling, spans = math.inf, [], []
    for key in set(mine) & set(theirs):
        steps = np.intersect1d(mine[key].steps, theirs[key].steps)
        if key.startswith(TOKENS) or not len(steps):
            continue
        here, there = _values_at(mine[key], steps), _values_at(theirs[key], steps)
        equal = (here == there) | (np.isnan(here) & np.isnan(there))
        if mine[key].logs:  # tails below the floor are equal in any two runs; their spans tell only where runs differ
            ends = mine[key].ends[np.searchsorted(mine[key].steps, steps)]
            spans += list(zip(steps[~equal].tolist(), ends[~equal].tolist(), strict=True))
            continue
        if not equal.all():
            first_other = min(first_other, int(steps[~equal][0]))
        telling += steps[equal & np.isfinite(here) & (here != here.round(ROUND_DIGITS))].tolist()
    # a span that ends after the metrics part differs by what came after: one that ends before parted unseen by them
    first_other = min([first_other, *(first for first, end in spans if end < first_other)])
    same = [step for step in telling if step < first_other]
    return max(same) if len(same) >= MIN_IDENTICAL else None


def _words(onset: DivergenceOnset, statistic: Statistic, step: int | None) -> str:
    side, way = ("above", "higher") if onset.last > 0 else ("below", "lower")
    size = f"×{sig(math.exp(abs(onset.last)))} {way}" if statistic.logs else f"{sig(abs(onset.last))} {way}"
    left = "" if step is not None else "since an unknown step: "
    return f"{left}{side} the baseline, {size} on average over steps {onset.since} to {onset.until}"
