"""Whether the records hold whole batches: their means beside the log's, the prompt groups, the rows a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.evidence.validity import Extent, measure_extent
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.change_point import mean_change
from ptt.diagnostics.statistics.fault_since import FaultSpan, fault_span, weigh_counts

LOGGED: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "reward": ("reward/mean", ("reward",)),
    "length": ("len/response_mean", ("n_model", "length")),  # some trainers count what tools return, some do not
    "calls": ("tools/call_frequency", ("calls", "n_obs")),
}
"""A batch's logged metric, and the recorded columns that it may be the mean of."""
EQUAL: Final = 2e-3  # of the logged value: logs round to three digits or more
LEAST: Final = 1e-3  # absolute tolerance, where values are near 0
SOUND_RATE: Final = 0.02  # of the steps, have different means although the batch is recorded: one that was read again
FAULTY_RATE: Final = 0.8  # and where another batch is recorded: means of few rewards may agree by chance
MIN_SOUND: Final = 6  # steps with equal means: they show that the log describes these rows
MIN_SOUND_SHARE: Final = 0.9
MIN_FAULTY: Final = 3  # steps in a row
MIN_FAULTY_SHARE: Final = 0.6
MIN_ERROR: Final = 3.0  # times the tolerance, of a mean: any part of samples all alike has the same
MIN_TELLING: Final = 0.5  # of the steps have so large a standard error
ERROR: Final = "error of "
MAX_APART: Final = 0.05  # of all steps, may differ where whole batches are recorded throughout
MIN_GROUP: Final = 2
FULL_RATE: Final = 0.05  # of the prompt groups have an unusual size where groups are whole
PARTIAL_RATE: Final = 0.5  # and where they are not
REGULAR: Final = 0.95  # of the groups in the stretch have one size: another setting, not a part
MIN_ROWS_FACTOR: Final = 1.5  # rows a step before over those after
STEADY: Final = 0.15  # log-SD of rows a step on either side: with batches of varying size there is no change to find
MIN_SIDE: Final = 4  # steps on either side of a jump
MAX_SIDE: Final = 12
MIN_JUMP_SDS: Final = 5.0  # standard errors: the highest of some hundred places of sound noise stays below
NEAR: Final = 3  # values on either side that already show it
AT_ONCE: Final = 0.75  # of the jump: a ramp makes a third here
CLEARER: Final = 1.5  # times the largest change of the same length anywhere else


@dataclass(frozen=True, kw_only=True)
class Part:
    """A stretch of steps whose batches differ from all others', and the records there."""

    span: FaultSpan
    extent: Extent


@dataclass(frozen=True, kw_only=True)
class Witness:
    """One mean of the recorded batches next to the logged one; both agree except over a stretch of steps."""

    name: str  # of LOGGED
    part: Part | None  # None: equal throughout
    recorded: float  # mean over the steps of the stretch
    logged: float


@dataclass(frozen=True, kw_only=True)
class PartialGroups:
    """A stretch of steps whose prompt groups have not the run's usual size."""

    part: Part
    usual: int  # sequences of a group elsewhere
    mean: float  # and in this stretch
    regular: bool  # all groups of the stretch have one size, too


@dataclass(frozen=True, kw_only=True)
class RowsChange:
    """The stretch before or after a lasting change with fewer rows a step, and which means jump at that step."""

    part: Part
    usual: float  # rows a step elsewhere
    few: float  # and in this stretch
    jumps: Mapping[str, tuple[float, float]]  # elsewhere, and in this stretch


@dataclass(frozen=True, kw_only=True)
class RecordedBatches:
    """What tells whether whole batches are recorded."""

    witnesses: tuple[Witness, ...]
    groups: PartialGroups | None
    rows: RowsChange | None


def gather_batches(tokens: Tokens, metrics: Mapping[str, Series]) -> RecordedBatches | None:
    """Compare the recorded batches with the log and with each other; None if nothing is recorded."""
    rows = _rows(tokens)
    if rows.is_empty():
        return None
    means = [name for name in ("reward", "n_model", "length", "calls", "n_obs") if name in rows.columns]
    errors = ((pl.col(name).std() / pl.len().sqrt()).alias(ERROR + name) for name in means)
    levels = (pl.col(name).mean() for name in means)
    by_step = rows.group_by("step").agg(pl.len().alias("rows"), *levels, *errors).sort("step")
    found = (_witness(name, by_step, metrics, tokens) for name in LOGGED)
    return RecordedBatches(
        witnesses=tuple(one for one in found if one is not None),
        groups=_partial_groups(rows, tokens) if "group_id" in rows.columns else None,
        rows=_rows_change(by_step, means, tokens),
    )


def _part(span: FaultSpan, tokens: Tokens) -> Part:
    rows = tokens.sound_rows
    return Part(
        span=span, extent=measure_extent(tokens, rows.filter(pl.col("step").is_between(span.since, span.until)))
    )


def _rows(tokens: Tokens) -> pl.DataFrame:
    rows = tokens.sound_rows.select("seq", "step", *(pl.col(n).cast(pl.Int64) for n in ("length", "n_model", "n_obs")))
    wanted = [name for name in ("reward", "tool_names", "group_id") if name in tokens.scan.columns]
    if wanted:
        rows = rows.join(tokens.scalars.select("seq", *wanted), on="seq", how="left", maintain_order="left")
    if "tool_names" in wanted:
        rows = rows.with_columns(pl.col("tool_names").list.len().cast(pl.Int64).alias("calls")).drop("tool_names")
    if "reward" in wanted:
        rows = rows.with_columns(pl.when(pl.col("reward").is_finite()).then("reward").alias("reward"))
    return rows


def _witness(name: str, by_step: pl.DataFrame, metrics: Mapping[str, Series], tokens: Tokens) -> Witness | None:
    """Return a recorded mean beside the logged one; None where they are not equal at enough steps to be the same."""
    logged, columns = LOGGED[name]
    series = metrics.get(logged)
    if series is None:
        return None
    found = [_compared(name, by_step, column, series, tokens) for column in columns if column in by_step.columns]
    known = [one for one in found if one is not None]
    return next((one for one in known if one.part is None), known[0] if known else None)


def _compared(name: str, by_step: pl.DataFrame, column: str, series: Series, tokens: Tokens) -> Witness | None:
    known = by_step.filter(pl.col(column).is_not_null())
    at, values = series.finite()
    steps, own, others = np.intersect1d(known["step"].to_numpy(), at, return_indices=True)
    recorded, logged = known[column].to_numpy()[own].astype(np.float64), values[others]
    limit = np.maximum(LEAST, EQUAL * np.abs(logged))
    apart = np.abs(recorded - logged) > limit
    error = known[ERROR + column].fill_null(0.0).to_numpy()[own]
    if (~apart).sum() < MIN_SOUND or np.mean(error > MIN_ERROR * limit) < MIN_TELLING:
        return None
    span = fault_span(steps, weigh_counts(apart.astype(np.float64), np.ones(len(steps)), SOUND_RATE, FAULTY_RATE))
    off = span.holds(steps) if span is not None else np.zeros(len(steps), np.bool_)
    if (~off).sum() < MIN_SOUND or (~apart[~off]).mean() < MIN_SOUND_SHARE:
        return None
    if off.sum() < MIN_FAULTY or apart[off].mean() < MIN_FAULTY_SHARE:
        if apart.mean() > MAX_APART:  # some steps agree by chance
            return None
        return Witness(name=name, part=None, recorded=float(recorded.mean()), logged=float(logged.mean()))
    assert span is not None
    part = _part(span, tokens)
    return Witness(name=name, part=part, recorded=float(recorded[off].mean()), logged=float(logged[off].mean()))


def _partial_groups(rows: pl.DataFrame, tokens: Tokens) -> PartialGroups | None:
    """Return the stretch of steps at which most prompt groups differ in size from all others."""
    sizes = rows.drop_nulls("group_id").group_by("step", "group_id").len().sort("step", "group_id")
    if sizes.is_empty():
        return None
    step, size = sizes["step"].to_numpy(), sizes["len"].to_numpy().astype(np.int64)
    steps, place = np.unique(step, return_inverse=True)
    trials = np.bincount(place).astype(np.float64)
    for usual in _usual_sizes(size):
        hits = np.bincount(place, weights=size != usual).astype(np.float64)
        span = fault_span(steps, weigh_counts(hits, trials, FULL_RATE, PARTIAL_RATE))
        if span is None:
            continue
        off = span.holds(steps)
        if off.sum() < MIN_FAULTY or (~off).sum() < MIN_SOUND:
            continue
        inside, here = off[place], size != usual
        if here[~inside].mean() <= FULL_RATE and here[inside].mean() >= PARTIAL_RATE:
            others = size[inside]
            regular = np.bincount(others).max() >= REGULAR * len(others)
            part = _part(span, tokens)
            return PartialGroups(part=part, usual=usual, mean=float(others.mean()), regular=bool(regular))
    return None


def _usual_sizes(size: IntArray) -> list[int]:
    """Return the sizes that may be the usual one, the commonest first: a part of a group may be the longer stretch."""
    counts = np.bincount(size)
    order = np.argsort(-counts, kind="stable")[:3]
    return [int(one) for one in order if one >= MIN_GROUP and counts[one]]


def _rows_change(by_step: pl.DataFrame, means: Sequence[str], tokens: Tokens) -> RowsChange | None:
    """Return the one lasting change of the rows a step, where they are steady before and after."""
    steps, rows = by_step["step"].to_numpy(), by_step["rows"].to_numpy().astype(np.float64)
    change = mean_change(np.log(rows)) if len(rows) >= 2 * MIN_SIDE else None
    if change is None or not MIN_SIDE <= change[0] <= len(rows) - MIN_SIDE:
        return None
    at, low, high = change
    before, after = (float(np.median(part)) for part in (rows[:at], rows[at:]))
    unsteady = max(float(np.std(np.log(part))) for part in (rows[:at], rows[at:]))
    if max(before / after, after / before) < MIN_ROWS_FACTOR or unsteady > STEADY:
        return None
    levels = {name: by_step[name].cast(pl.Float64).to_numpy() for name in means}
    levels |= _mean_ratio(tokens, steps)
    jumps = {name: jump for name, values in levels.items() if (jump := _jump(values, at)) is not None}
    interval = int(steps[low - 1]) + 1 if low else int(steps[0]), int(steps[high])
    early = before < after
    span = FaultSpan(
        since=int(steps[0] if early else steps[at]),
        since_interval=(int(steps[0]),) * 2 if early else interval,
        until=int(steps[at - 1] if early else steps[-1]),
        until_interval=(interval[0] - 1, interval[1] - 1) if early else (int(steps[-1]),) * 2,
        from_start=early,
        to_end=not early,
    )
    jumps = {name: jump[::-1] if early else jump for name, jump in jumps.items()}
    return RowsChange(part=_part(span, tokens), usual=max(before, after), few=min(before, after), jumps=jumps)


def _mean_ratio(tokens: Tokens, steps: IntArray) -> dict[str, FloatArray]:
    """Return the mean |r| of the main pair at these steps."""
    sums = tokens.tables.cells_of(0).group_by("step").agg(pl.col("s_abs").sum(), pl.col("n").cast(pl.Int64).sum())
    known = dict(sums.select("step", pl.col("s_abs") / pl.col("n")).iter_rows())
    values = np.array([known.get(step, np.nan) for step in steps.tolist()], np.float64)
    return {"|r|": values}


def _jump(values: FloatArray, at: int) -> tuple[float, float] | None:
    """Return the levels before and after a place if they change there at once, more than anywhere else; else None."""
    width = min(MAX_SIDE, at, len(values) - at)
    usable = np.isfinite(values)
    if width < MIN_SIDE or not usable.all():
        return None
    total = np.append(0.0, np.cumsum(values))
    places = np.arange(width, len(values) - width + 1)
    change = (total[places + width] - 2 * total[places] + total[places - width]) / width
    here = float(change[at - width])
    near: BoolArray = np.abs(places - at) < width
    elsewhere = float(np.abs(change[~near]).max(initial=0.0))
    parts = values[at - width : at], values[at : at + width]
    at_once = float(parts[1][:NEAR].mean() - parts[0][-NEAR:].mean()) / here if here else 0.0
    error = float(np.sqrt(sum(part.var(ddof=1) for part in parts) / width))
    if abs(here) <= max(MIN_JUMP_SDS * error, CLEARER * elsewhere) or at_once < AT_ONCE:
        return None
    return float(parts[0].mean()), float(parts[1].mean())


SUMS: Final = ("s_r", "s_inv", "min_r", "max_r")
MIN_TOKENS: Final = 8  # of the policy's own: fewer may match by chance
USUAL_RATE: Final = 0.02  # of a step's sequences are repeats, where batches are new
REPEATED_RATE: Final = 0.5  # and where they are not
MIN_STEPS: Final = 3
MIN_COPIES: Final = 16
MIX: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, kw_only=True)
class Copies:
    """The stretch of steps at which most sequences are copies of others, and how many."""

    span: FaultSpan
    extent: Extent
    share: float  # of the sequences of the stretch
    of_steps: bool  # they repeat sequences of earlier steps; else those of other prompts at the same step


def find_copies(tokens: Tokens) -> Copies | None:
    """Return the steps whose sequences are mostly copies; None where there are none.

    Copies within a prompt group do not count, since a sure policy makes them. Copies of earlier steps count only if the
    updated policy's logprobs are recorded: these change between steps, while an old policy scores the rollouts of
    several steps once.
    """
    known = _contents(tokens)
    if known.is_empty():
        return None
    found = []
    if tokens.pairs[0].numerator == "policy_logp":
        earlier = known["step"] > known.select(pl.col("step").min().over("content")).to_series()
        found.append(_stretch(tokens, known, earlier, of_steps=True))
    if "group_id" in known.columns:
        groups = known.select(pl.col("group_id").n_unique().over("step", "content")).to_series()
        later = known.select(~pl.struct("step", "content").is_first_distinct()).to_series()
        found.append(_stretch(tokens, known, (groups > 1) & later, of_steps=False))
    return next((one for one in found if one is not None), None)


def _contents(tokens: Tokens) -> pl.DataFrame:
    """Return seq, step and content of the sequences long enough, with any r but 0; and their prompt group if known."""
    sequences = tokens.tables.sequences
    mark = _mixed(sequences["n"].to_numpy().astype(np.uint64) * np.uint64(2) + sequences["slice"].to_numpy())
    for name in SUMS:
        mark = _mixed(mark ^ np.ascontiguousarray(sequences[name].to_numpy()).view(np.uint64))
    table = sequences.select("seq", "step", pl.col("n").cast(pl.Int64), "min_r", "max_r").with_columns(
        pl.Series("content", mark)
    )
    table = table.group_by("seq", "step").agg(
        pl.col("n").sum(),
        pl.col("content").sum(),
        (pl.col("max_r") > pl.col("min_r")).any().alias("varies"),
    )
    table = table.filter((pl.col("n") >= MIN_TOKENS) & pl.col("varies")).select("seq", "step", "content").sort("seq")
    if "group_id" in tokens.scan.columns:
        groups = tokens.scalars.select("seq", "group_id").drop_nulls()
        table = table.join(groups, on="seq", how="inner", maintain_order="left")
    return table


def _mixed(number: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    mixed = number * MIX
    return mixed ^ (mixed >> np.uint64(29))


def _stretch(tokens: Tokens, known: pl.DataFrame, copied: pl.Series, *, of_steps: bool) -> Copies | None:
    if copied.sum() < MIN_COPIES:
        return None
    step, hit = known["step"].to_numpy(), copied.to_numpy()
    steps, place = np.unique(step, return_inverse=True)
    hits = np.bincount(place, weights=hit).astype(np.float64)
    trials = np.bincount(place).astype(np.float64)
    span = fault_span(steps, weigh_counts(hits, trials, USUAL_RATE, REPEATED_RATE))
    if span is None:
        return None
    inside = span.holds(step)
    share = float(hit[inside].mean())
    if span.holds(steps).sum() < MIN_STEPS or share < REPEATED_RATE or hit[inside].sum() < MIN_COPIES:
        return None
    rows = tokens.sound_rows.filter(pl.col("seq").is_in(known["seq"].filter(pl.Series(inside & hit)).implode()))
    return Copies(span=span, extent=measure_extent(tokens, rows), share=share, of_steps=of_steps)
