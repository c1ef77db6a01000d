"""Turn token tables into tails over time: blocks, windows, and the tables behind the three figures."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.reference import Reference
from ptt.diagnostics.model import Interval
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.bins import UNDERFLOW
from ptt.diagnostics.statistics.bootstrap import finite_or_none, interval
from ptt.diagnostics.statistics.ess import sliding_ess
from ptt.diagnostics.statistics.logprob_pairs import REF_PAIRS
from ptt.diagnostics.statistics.percentiles import ecdf, inverse_moments, moments, percentiles
from ptt.diagnostics.statistics.slices import POST_TOOL, TEXT_ONLY
from ptt.diagnostics.statistics.tail_curves import Profile
from ptt.diagnostics.statistics.tail_growth import (
    TAIL_QUANTILES,
    SliceTails,
    block_count,
    count_within,
    even_blocks,
    far_block_count,
    percentiles_by_span,
    slice_tails,
)
from ptt.diagnostics.statistics.windows import (
    WINDOWS,
    Span,
    bursts,
    join_spans,
    label_spans,
    sliding_windows,
    split_steps,
    whole_periods,
)

ESS_WINDOWS = 24  # about this many windows, overlapping by three quarters
TAIL_NATS = math.log(2.0)  # a weight of two or of a half: the usual truncation cap begins to bite
MIN_RECURRING = 0.1  # of sequences or groups that appear at two steps or more: the steps share rollouts
MIN_STEP_TOKENS = 100  # in a slice of a step or burst: five above p95
CELLS: Final = ("step", "bin", "wide", "n", "s_abs")  # columns that percentiles need
HISTOGRAMS: Final = ("seq", "step", "unit", "coarse_bin", "coarse_n")  # columns that resampling needs
IDS = ("group_id", "trajectory_id", "sample_id")


@dataclass(frozen=True, kw_only=True)
class StepTails:
    """One slice's percentiles by recorded step, (n,) each: finer than blocks, but without intervals.

    Steps of one burst are merged, and so are successive steps with too few tokens.
    """

    spans: tuple[Span, ...]
    percentiles: Mapping[str, FloatArray]


@dataclass(frozen=True, kw_only=True)
class Tails:
    """The tails of one pair: both slices, over the same blocks and windows."""

    pair: str
    blocks: tuple[Span, ...]
    far_blocks: tuple[Span, ...]  # for counting the few tokens beyond p99
    windows: tuple[Span, ...]
    text: SliceTails
    post: SliceTails
    post_steps: StepTails
    zero_share: float  # share of tokens whose r is exactly 0 (below 1e-12)
    bad_tokens: int  # model tokens whose r is null, NaN or infinite
    tokens: int
    steps: int  # steps with tokens
    recorded: IntArray  # those steps, ascending
    observations: int  # steps, or bursts of steps that train on one batch of rollouts
    observed_in_blocks: IntArray  # (blocks,) of these
    gap: float  # training steps from one observation to the next (median)
    unit: str  # what was resampled as a whole: "prompt group" or "sequence"
    late_tail_share: float  # share of the late window's tokens with |r| above TAIL_NATS that follow a tool call
    beyond: Mapping[str, Interval] = field(default_factory=dict)  # by slice: such share of its tokens, early and late
    equal_at: int | None = None  # the first step, if policy and (fixed) reference were equal there, so that r was 0
    periods: int | None = None  # whole periods of a moving reference that make up the blocks; None: it is fixed


@dataclass(frozen=True, kw_only=True)
class ToolUse:
    """Share of recorded sequences with at least one observation, by step."""

    steps: IntArray
    share: FloatArray
    sequences: IntArray


def tool_use_by_step(tokens: Tokens) -> ToolUse | None:
    """Return the share of sequences with an observation, by step."""
    rows = tokens.sound_rows
    if rows.is_empty():
        return None
    by_step = rows.group_by("step").agg((pl.col("n_obs") > 0).mean().alias("share"), pl.len()).sort("step")
    steps, share, sequences = (by_step[name].to_numpy() for name in ("step", "share", "len"))
    return ToolUse(steps=steps, share=share, sequences=sequences.astype(np.int64))


@dataclass(frozen=True, kw_only=True)
class _Cuts:
    """How the steps of a run are divided."""

    steps: list[int]
    observed: tuple[Span, ...]  # observations: single steps, bursts or whole periods
    windows: tuple[Span, ...]
    sixths: tuple[Span, ...]
    blocks: tuple[Span, ...]
    far_blocks: tuple[Span, ...]  # for counting few tokens
    by_period: bool


def _cut_steps(tokens: Tokens, cells: pl.DataFrame, sequences: pl.DataFrame, reference: Reference | None) -> _Cuts:
    """Divide the steps: blocks and windows of whole periods where the pair's reference moves."""
    steps = cells["step"].unique().sort().to_list()
    units = int(sequences.select(pl.struct("step", "unit").n_unique()).item())
    fewest = int(cells.group_by("slice").agg(pl.col("n").cast(pl.Int64).sum())["n"].to_numpy().min())
    count = block_count(steps=len(steps), units=units, tokens=fewest)  # by the slice with fewer tokens
    observed = bursts(steps) if _shares_rollouts(tokens) else split_steps(steps, len(steps))
    windows = split_steps(steps, 3)
    of_reference = tokens.pairs[0].denominator == "ref_logp"
    starts = reference.period_starts(steps[0], steps[-1]) if reference and of_reference else ()
    if starts:
        observed = whole_periods(steps, starts)
        windows = join_spans(observed, 3) if len(observed) >= 3 else windows
    return _Cuts(
        steps=steps,
        observed=observed,
        windows=windows,
        sixths=split_steps(steps, 6),
        blocks=even_blocks(observed, count, [cells.filter(pl.col("slice") == part) for part in (TEXT_ONLY, POST_TOOL)]),
        far_blocks=join_spans(observed, far_block_count(observations=len(observed), tokens=fewest)),
        by_period=bool(starts),
    )


def gather_tails(
    tokens: Tokens, *, post_name: str, reference: Reference | None = None
) -> tuple[Tails, dict[str, pl.DataFrame]] | None:
    """Return the tails of the main pair and the tables for the figures; None if there is no token at all.

    With a moving reference, blocks and windows are whole periods, since tails grow from nothing within each.
    """
    cells = tokens.tables.cells_of(0)
    if cells.is_empty():
        return None
    sequences, unit = _join_units(tokens)
    cuts = _cut_steps(tokens, cells, sequences, reference)
    names = {TEXT_ONLY: "text_only", POST_TOOL: post_name}
    cells_of, sequences_of = cells.select(*CELLS, "slice"), sequences.select(*HISTOGRAMS, "slice")  # filters copy
    slices = {
        number: slice_tails(
            cells_of.filter(pl.col("slice") == number),
            sequences_of.filter(pl.col("slice") == number),
            name=name,
            blocks=cuts.blocks,
            windows=cuts.windows,
            sixths=cuts.sixths,
            far=cuts.far_blocks,
        )
        for number, name in names.items()
    }
    post_steps = step_tails(cells_of.filter(pl.col("slice") == POST_TOOL), cuts.observed)
    tables = {
        "tail_emergence": _emergence(slices, cuts.blocks, tokens.tables.steps),
        "ecdf": name_slices(_ecdf(cells, cuts.windows), names),
        "ess": _ess(sequences, cuts.steps, names, tokens),
        "growth": name_slices(_growth(cells, tokens.tables.steps, cuts.windows, cuts.sixths), names),
        "step_stats": step_stats(tokens, names),
    }
    return _describe(tokens, cells, cuts, slices, post_steps, unit, reference), tables


def _describe(
    tokens: Tokens,
    cells: pl.DataFrame,
    cuts: _Cuts,
    slices: Mapping[int, SliceTails],
    post_steps: StepTails,
    unit: str,
    reference: Reference | None,
) -> Tails:
    """Put what was measured beside how much was measured."""
    observed, name = cuts.observed, tokens.pairs[0].name
    total = int(cells["n"].cast(pl.Int64).sum())
    return Tails(
        pair=name,
        blocks=cuts.blocks,
        far_blocks=cuts.far_blocks,
        windows=cuts.windows,
        text=slices[TEXT_ONLY],
        post=slices[POST_TOOL],
        post_steps=post_steps,
        zero_share=int(cells.filter(pl.col("bin") == UNDERFLOW)["n"].cast(pl.Int64).sum()) / total,
        bad_tokens=int(tokens.tables.bad.filter(pl.col("pair") == 0)["n_bad"].cast(pl.Int64).sum()),
        tokens=total,
        steps=len(cuts.steps),
        recorded=np.array(cuts.steps, dtype=np.int64),
        observations=len(observed),
        observed_in_blocks=count_within(observed, cuts.blocks),
        gap=float(np.median(np.diff([span.first for span in observed]))) if len(observed) > 1 else 1.0,
        unit=unit,
        late_tail_share=_post_share(cells, cuts.windows[-1], beyond=TAIL_NATS),
        beyond={
            part.name: (early, late)
            for number, part in slices.items()
            for early, late in [[_share_beyond(cells, number, cuts.windows[place], TAIL_NATS) for place in (0, -1)]]
            if math.isfinite(early) and math.isfinite(late)
        },
        equal_at=_equal_at(reference) if name in REF_PAIRS else None,
        periods=len(observed) if cuts.by_period else None,
    )


def _equal_at(reference: Reference | None) -> int | None:
    """Return the first step, where policy and reference were equal there, of a reference that stays."""
    stays = reference is not None and reference.setting is None and reference.seen is None
    return reference.equal_at if reference is not None and stays else None


def _shares_rollouts(tokens: Tokens) -> bool:
    """Return whether consecutive steps may train on the same rollouts: if ids recur, or there are no ids."""
    if not any(name in tokens.scalars.columns for name in IDS):
        return True
    rows = tokens.sound_rows.lazy().select("seq", "step")
    keyed = tokens.scalars.lazy().select("seq", unit_key(tokens.scalars)[0].alias("key"))
    steps = pl.col("step")
    ends = (
        rows.join(keyed, on="seq")
        .group_by("key")
        .agg(steps.min().alias("first"), steps.max())
        .collect(engine="streaming")
    )
    return ends.height > 0 and float(np.mean((ends["first"] != ends["step"]).to_numpy())) >= MIN_RECURRING


def step_tails(cells: pl.DataFrame, observed: Sequence[Span]) -> StepTails:
    """Return one slice's percentiles by step or burst, from its cells."""
    by_step = cells.group_by("step").agg(pl.col("n").cast(pl.Int64).sum()).sort("step")
    steps, tokens = by_step["step"].to_list(), by_step["n"].to_numpy()
    spans: list[Span] = []
    first, held = None, 0
    for burst in observed:
        first = burst.first if first is None else first
        held += int(tokens[bisect_left(steps, burst.first) : bisect_right(steps, burst.last)].sum())
        if held >= MIN_STEP_TOKENS:
            spans.append(Span(first, burst.last))
            first, held = None, 0
    table = percentiles_by_span(cells, tuple(spans))
    return StepTails(spans=tuple(spans), percentiles={name: table[name].to_numpy() for name in TAIL_QUANTILES})


def _post_share(cells: pl.DataFrame, window: Span, *, beyond: float) -> float:
    """Return the share of post-tool tokens among the window's tokens with |r| above `beyond`; NaN without any."""
    inside = cells.filter(pl.col("step").is_between(window.first, window.last), pl.col("s_abs") > beyond * pl.col("n"))
    counts = inside.select("slice", pl.col("n").cast(pl.Int64))
    total = int(counts["n"].sum())
    return int(counts.filter(pl.col("slice") == POST_TOOL)["n"].sum()) / total if total else math.nan


def _share_beyond(cells: pl.DataFrame, part: int, window: Span, beyond: float) -> float:
    """Return the share of a slice's tokens in a window with |r| above `beyond`; NaN without any."""
    inside = cells.filter(pl.col("step").is_between(window.first, window.last), pl.col("slice") == part)
    count = pl.col("n").cast(pl.Int64)
    far, every = inside.select(
        count.filter(pl.col("s_abs") > beyond * pl.col("n")).sum(), count.sum().alias("all")
    ).row(0)
    return far / every if every else math.nan


def profile_of(tokens: Tokens, *, post_name: str) -> Profile | None:
    """Return what sets the main pair of this run against another run's; None without a single token."""
    cells = tokens.tables.cells_of(0)
    if cells.is_empty():
        return None
    sequences, unit = _join_units(tokens)
    return Profile(
        pair=tokens.pairs[0].name,
        slices={TEXT_ONLY: "text_only", POST_TOOL: post_name},
        cells=cells.drop("pair"),
        sequences=sequences,
        unit=unit,
    )


def add_units(sequences: pl.DataFrame) -> tuple[pl.DataFrame, bool]:
    """Add `unit`, the least seq of those resampled together: the prompt group if known (True), else the sequence."""
    key, grouped = unit_key(sequences)
    return sequences.with_columns(pl.col("seq").min().over(key).alias("unit")), grouped


def unit_key(sequences: pl.DataFrame) -> tuple[pl.Expr, bool]:
    """Return what those redrawn together share, and no others; True where it is the prompt group."""
    ids = [name for name in IDS if name in sequences.columns]
    grouped = False
    if "group_id" in ids:
        group = sequences["group_id"]
        grouped = group.null_count() < sequences.height / 2 and group.n_unique() > 1
    keys = [name for name in ids if grouped or name != "group_id"]
    whole = next((at for at, name in enumerate(keys) if not sequences[name].null_count()), None)
    if whole is not None:  # what would fill its gaps is not made
        return pl.coalesce(keys[: whole + 1]), grouped
    return pl.coalesce(*keys, pl.concat_str(pl.lit("row "), pl.col("seq"))), grouped


def _join_units(tokens: Tokens) -> tuple[pl.DataFrame, str]:
    """Join the sequences with what they are redrawn by, in the order of steps."""
    units, grouped = add_units(tokens.single_scalars)
    units = units.select("seq", "unit").sort("seq")
    rows = tokens.tables.sequences
    joined = join_unit(rows, units)
    sorted_ = (np.diff(rows["step"].to_numpy()) >= 0).all()  # as files in order are; rows come by seq and slice
    return joined if sorted_ else joined.sort("step", "seq", "slice"), "prompt group" if grouped else "sequence"


def join_unit(sequences: pl.DataFrame, units: pl.DataFrame) -> pl.DataFrame:
    """Add `unit` to rows of sequences, all of them among `units` (seq, ascending, and unit)."""
    index = np.searchsorted(units["seq"].to_numpy(), sequences["seq"].to_numpy())  # a join would copy the histograms
    return sequences.with_columns(units["unit"].gather(index))


EMERGENCE: Final = {
    "slice": pl.String,
    "q": pl.Float64,
    **dict.fromkeys(("step_first", "step_last"), pl.Int64),
    **dict.fromkeys(("step_mid", "value", "lo", "hi"), pl.Float64),
    **dict.fromkeys(("n_tokens", "n_sequences"), pl.Int64),
}


def _emergence(slices: dict[int, SliceTails], blocks: tuple[Span, ...], by_step: pl.DataFrame) -> pl.DataFrame:
    counts = label_spans(by_step, blocks, name="block").group_by("slice", "block").agg(pl.col("sequences").sum())
    n_sequences = {(number, block): count for number, block, count in counts.iter_rows()}
    rows = []
    for number, tails in slices.items():
        for name, q in TAIL_QUANTILES.items():
            percentile = tails.percentiles[name]
            for index in np.flatnonzero(np.isfinite(percentile.blocks)).tolist():
                span, ends = blocks[index], finite_or_none(interval(percentile.drawn[index]))
                position = (tails.name, q, span.first, span.last, span.middle)
                n = (int(tails.tokens[index]), n_sequences.get((number, index), 0))
                rows.append((*position, float(percentile.blocks[index]), *ends, *n))
    return pl.DataFrame(rows, schema=EMERGENCE, orient="row")


def _join_spans(frame: pl.DataFrame, spans: tuple[Span, ...]) -> pl.DataFrame:
    bounds = pl.DataFrame([(span.first, span.last) for span in spans], schema=["step_first", "step_last"], orient="row")
    bounds = bounds.with_columns(part=pl.int_range(pl.len(), dtype=pl.Int32))
    return frame.join(bounds, on="part", how="left", maintain_order="left")


def _ecdf(cells: pl.DataFrame, windows: tuple[Span, ...]) -> pl.DataFrame:
    table = _join_spans(ecdf(label_spans(cells, windows, name="part"), by=["slice", "part"]), windows)
    names = dict(enumerate(WINDOWS))
    return table.with_columns(pl.col("part").replace_strict(names, return_dtype=pl.String).alias("window"))


def _growth(
    cells: pl.DataFrame, by_step: pl.DataFrame, windows: tuple[Span, ...], sixths: tuple[Span, ...]
) -> pl.DataFrame:
    frames = []
    for spans in (windows, sixths):
        table = percentiles(label_spans(cells, spans, name="part"), by=["slice", "part"]).rename({"n": "n_tokens"})
        by_part = label_spans(by_step, spans, name="part").group_by("slice", "part")
        counted = by_part.agg(pl.col("sequences").sum().alias("n_sequences"))
        table = table.join(counted, on=["slice", "part"], how="left", maintain_order="left")
        frames.append(_join_spans(table, spans).with_columns(parts=pl.lit(len(spans), pl.Int64)))
    return pl.concat(frames)


def _ess(sequences: pl.DataFrame, steps: list[int], names: dict[int, str], tokens: Tokens) -> pl.DataFrame:
    width = max(4, len(steps) // 6)
    spans = sliding_windows(steps, width=width, stride=max(1, (len(steps) - width) // ESS_WINDOWS))
    pair = tokens.pairs[0]
    frames = []
    sequences = sequences.drop("coarse_bin", "coarse_n")  # which every filter would copy
    for number, name in names.items():
        in_slice = sequences.filter(pl.col("slice") == number)
        frames.append(
            sliding_ess(in_slice, spans, pair=pair.name, inverse=pair.inverse).with_columns(slice=pl.lit(name))
        )
    return pl.concat(frames)


def step_stats(tokens: Tokens, names: dict[int, str]) -> pl.DataFrame:
    """Return percentiles, ESS, second moment and KL estimates of every recorded step, slice and pair."""
    frames = []
    for number, pair in enumerate(tokens.pairs):
        cells = tokens.tables.cells_of(number)
        by = ["step", "slice"]
        means = moments(cells, by=by, sampled_from=pair.sampled_from).drop("n")
        table = percentiles(cells, by=by).join(means, on=by, how="left", maintain_order="left")
        if number == 0:
            inverse = inverse_moments(tokens.tables.steps, by=by)
            table = table.join(inverse, on=by, how="left", maintain_order="left")
            if pair.sampled_from == "numerator":
                table = table.with_columns(k3=pl.col("k3_inverse"))
            table = table.drop("k3_inverse")
        frames.append(table.with_columns(pair=pl.lit(pair.name)))
    return name_slices(pl.concat(frames, how="diagonal"), names)


def name_slices(frame: pl.DataFrame, names: dict[int, str]) -> pl.DataFrame:
    """Return the table with slices under their names."""
    return frame.with_columns(pl.col("slice").replace_strict(names, return_dtype=pl.String))
