"""One pass over all tokens: a lazy frame of sequences in, small mergeable tables out.

Polars streams the decoded rows in order; each batch is folded with numpy (subtract, bin, add up) on this thread
while Polars' threads decode the next ones. Order and thread are fixed, so the same input gives the same sums to
the last bit. `docs/decisions/003-token-pass.md` has what else was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from itertools import groupby, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.flat_lists import take
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.cells import (
    KINDS,
    LOGP_COLUMNS,
    POWER_SUMS,
    POWERS,
    ROW,
    SAMPLE,
    SEQUENCE_SUMS,
    SINGLE,
    TOTAL,
    Columns,
    Lists,
    cell_key,
    concat_records,
    conform,
)
from ptt.diagnostics.statistics.fill_values import (
    Fills,
    find_fills,
    find_placeholders,
    placeholder_records,
    sampled_tokens,
    unsampled_tokens,
)
from ptt.diagnostics.statistics.logprob_pairs import Pair
from ptt.diagnostics.statistics.merge_tree import Merger
from ptt.diagnostics.statistics.observation_position import PositionCounter
from ptt.diagnostics.statistics.partial_tables import (
    PartialTables,
    TokenTables,
    bits_dropped,
    finish_cells,
    losing_sequences,
    merge_powers,
    merge_signed,
    sum_by_step,
)
from ptt.diagnostics.statistics.slices import Batch, chunks, is_sound, lay_out
from ptt.diagnostics.statistics.sound_tables import BegunPiece, as_records
from ptt.diagnostics.statistics.token_sums import (
    SIGNED_BINS,
    ArrayPool,
    Segments,
    SingleSums,
    TokenSums,
    sum_tokens,
)

Records = tuple[str, Columns]


@dataclass(frozen=True, kw_only=True)
class Single:
    """Which sequences, from `first` on, are kept one by one (None: all are)."""

    kept: BoolArray | None = None
    first: int = 0

    def of(self, seq: npt.NDArray[Any]) -> BoolArray | None:
        """Return of some sequences whether they are."""
        return None if self.kept is None else self.kept[seq.astype(np.int64) - self.first]


@dataclass(frozen=True, kw_only=True)
class FoldContext:
    """What a piece's batches are folded with; token positions of the main pair are added up over the piece."""

    plan: PassPlan
    single: Single
    pool: ArrayPool
    positions: PositionCounter = field(default_factory=PositionCounter)


def aggregate_batch(frame: pl.DataFrame, context: FoldContext) -> Iterator[Records]:
    """Yield the records of all rows of `frame`, each with its kind, a bounded number of tokens at a time."""
    for chunk in chunks(frame):
        yield from _aggregate_chunk(chunk, context)


def _aggregate_chunk(frame: pl.DataFrame, context: FoldContext) -> Iterator[Records]:
    pairs, min_observation, fills = context.plan.pairs, context.plan.min_observation, context.plan.fills
    logps = sorted({name for pair in pairs for name in (pair.numerator, pair.denominator)})
    batch = lay_out(frame, logps, min_observation)
    if batch is not None:
        yield "rows", _row_records(batch)
        for number, pair in enumerate(pairs):
            yield from _aggregate_pair(batch, pair, number, context)
        return
    usable = frame.select(is_sound(logps)).to_series()
    yield "rows", _unsound_records(frame.filter(~usable))
    frame = frame.filter(usable)
    masks = lay_out(frame, [], min_observation)
    assert masks is not None, "rows found sound must lay out"
    yield "rows", _row_records(masks)
    for number, pair in enumerate(pairs):
        both = [pair.numerator, pair.denominator]
        thirds = {one for name in fills for one in (name, *fills[name].confirm)} - set(both)
        thirds &= set(frame.columns)
        rows = frame.drop_nulls(both).with_columns(_nan_where_null(name) for name in sorted(thirds))
        part = lay_out(rows, [*both, *sorted(thirds)], min_observation)
        assert part is not None, "rows with both logprobs must lay out"
        yield from _aggregate_pair(part, pair, number, context)


def _nan_where_null(name: str) -> pl.Expr:
    nothing = pl.lit(np.nan, pl.Float32).repeat_by(pl.col("model_mask").list.len())
    return pl.when(pl.col(name).is_null()).then(nothing).otherwise(pl.col(name)).alias(name)


def _row_records(batch: Batch) -> Columns:
    rows = len(batch.seq)
    return {
        "seq": batch.seq.astype(np.uint32),
        "step": batch.step,
        "length": batch.length.astype(np.uint32),
        "n_model": np.bincount(batch.runs.row, weights=batch.runs.length, minlength=rows).astype(np.uint32),
        "n_obs": batch.runs.observations.astype(np.uint32),
        "ok": np.ones(rows, np.bool_),
    }


def _unsound_records(rows: pl.DataFrame) -> Columns:
    nothing = np.zeros(rows.height, np.uint32)
    copied = {name: rows[name] for name in ("seq", "step")}
    return {name: copied.get(name, pl.Series(nothing)).cast(kind) for name, kind in ROW.items()}


def _aggregate_pair(batch: Batch, pair: Pair, number: int, context: FoldContext) -> Iterator[Records]:
    stretch, pool = batch.stretch, context.pool
    if not stretch[-1]:
        return
    r = pool.of_length(int(stretch[-1])).floats("s_r")
    yield from _differences(batch, pair, context.plan.fills, r)
    bad, finite = np.zeros(2 * len(batch.seq), np.int64), None
    usable = np.isfinite(r, out=pool.flags("finite"))
    if not usable.all():
        finite = usable
        lost = np.append(0, np.cumsum(~finite))
        bad = np.diff(lost[stretch])
        yield "bad", _bad_records(batch, bad, number)
        r, stretch = r[finite], stretch - lost[stretch]
    if not len(r):
        return
    steps, step_index = np.unique(batch.step, return_inverse=True)
    group = np.repeat(step_index, 2) * 2 + np.tile([0, 1], len(step_index))
    kept = context.single.of(batch.seq) if number == 0 else None
    wanted = None if kept is None else np.repeat(kept, 2)
    segments = Segments(r=r, stretch=stretch, group=group, groups=2 * len(steps), kept=wanted)
    folded = sum_tokens(segments, pool, main=number == 0)
    yield "cells", _cell_records(folded, steps, number)
    yield "powers", _power_records(folded, steps, group, number)
    if folded.single is not None:
        yield "totals", _total_records(batch, folded, np.diff(stretch), bad)
        yield "single", _single_records(folded.single)
        context.positions.add(batch, folded.single.large, finite, kept)


def _differences(batch: Batch, pair: Pair, fills: Mapping[str, Fills], out: FloatArray) -> Iterator[Records]:
    """Write r of all model tokens, NaN where one side is no logprob, and yield the records of these."""
    names = pair.columns
    sides = {name: batch.logps[name][batch.is_model] for name in (batch.logps if fills else names)}
    with np.errstate(invalid="ignore"):  # inf - inf gives NaN, which is counted as such
        np.subtract(sides[pair.numerator], sides[pair.denominator], out=out, dtype=np.float64)
    count = np.diff(batch.stretch[::2])
    rows = np.flatnonzero(count)
    placeholders = find_placeholders(names, sides, rows, count[rows], fills)
    if placeholders is not None:
        yield "anomalies", placeholder_records(placeholders, batch.seq, batch.step, LOGP_COLUMNS)
        out[placeholders.unusable] = np.nan
    if len(sides) > len(names) and (unsampled := unsampled_tokens(sides, fills)) is not None:
        out[unsampled] = np.nan


def _cell_records(folded: TokenSums, steps: IntArray, number: int) -> Columns:
    group = folded.place // SIGNED_BINS
    return {
        "key": cell_key(number, steps[group // 2], group % 2, folded.place % SIGNED_BINS),
        "n": folded.n.astype(np.uint32),
        "s_abs": folded.s_abs,
    }


def _power_records(folded: TokenSums, steps: IntArray, group_of: IntArray, number: int) -> Columns:
    """Add up by step and slice."""
    group = group_of[folded.used]
    kept = np.flatnonzero(np.bincount(group, minlength=2 * len(steps)))
    sums = {name: np.bincount(group, folded.sums[name])[kept] for name in POWERS}
    return {
        "pair": np.full(len(kept), number, np.uint8),
        "step": steps[kept // 2],
        "slice": (kept % 2).astype(np.uint8),
        **sums,
    }


def _bad_records(batch: Batch, bad: IntArray, number: int) -> Columns:
    where = np.flatnonzero(bad)
    return {
        "pair": np.full(len(where), number, np.uint8),
        "step": batch.step[where // 2],
        "slice": (where % 2).astype(np.uint8),
        "n_bad": bad[where],
    }


def _total_records(batch: Batch, folded: TokenSums, count: IntArray, bad: IntArray) -> Columns:
    used = folded.used
    return {
        "seq": batch.seq[used // 2].astype(np.uint32),
        "step": batch.step[used // 2],
        "slice": (used % 2).astype(np.uint8),
        "n": count[used].astype(np.uint32),
        "n_bad": bad[used].astype(np.uint32),
        **{name: folded.sums[name] for name in SEQUENCE_SUMS},
    }


def _single_records(single: SingleSums) -> Columns:
    histograms = single.histograms
    return {
        "min_r": single.low,
        "max_r": single.high,
        "coarse_bin": Lists(histograms.offsets, histograms.bin),
        "coarse_n": Lists(histograms.offsets, histograms.n),
    }


BATCH_TOKENS: Final = 1 << 18
PIECE_BATCHES: Final = 16  # some four million tokens: a hundredth of a second to merge, half a second to fold anew


@dataclass(frozen=True, kw_only=True)
class PassPlan:
    """What decides a piece's tables, apart from its tokens.

    pairs: the first is the main one. sample_every: one sequence in this many is kept whole (0: none). bits_dropped: see
    partial_tables.WIDER; a growing run keeps its pieces until its steps need wider cells. fills: values that are
    placeholders, by column. doubles: logprobs to read in 64 bits.
    """

    pairs: tuple[Pair, ...]
    min_observation: int
    batch_rows: int
    sample_every: int = 0
    bits_dropped: int = 0
    fills: Mapping[str, Fills] = field(default_factory=dict)
    doubles: frozenset[str] = frozenset()

    @property
    def piece_rows(self) -> int:
        """How many sequences a piece has."""
        return self.batch_rows * PIECE_BATCHES


def batch_rows(tokens_per_row: float) -> int:
    """Return how many sequences to take at a time: a power of two, so that a run that grows keeps its pieces."""
    return 1 << max(4, math.ceil(math.log2(BATCH_TOKENS / max(tokens_per_row, 1.0))))


def token_pass(
    frame: pl.LazyFrame,
    *,
    pairs: tuple[Pair, ...],
    min_observation: int,
    tokens_per_row: float = 1024.0,
    steps: int | None = None,
    sample_every: int = 0,
    kept: BoolArray | None = None,
    on_rows: Callable[[int], None] | None = None,
) -> TokenTables:
    """Fold `frame` (seq, step, model_mask, logp lists, optional tool_count) for `pairs`, the first being the main one.

    `tokens_per_row` only sets how many rows are taken at a time; `steps`: how many the frame has, if known; every
    `sample_every`-th row is kept whole (0: none); `kept`: of every row, whether it is kept one by one (None: all are);
    `on_rows` hears how many were done. Only the whole run tells a fill value from a logprob: where the sample shows
    one, the frame is folded again without it.
    """
    if steps is None:
        steps = frame.select(pl.col("step").n_unique()).collect(engine="streaming").item()
    plan = PassPlan(
        pairs=pairs,
        min_observation=min_observation,
        batch_rows=batch_rows(tokens_per_row),
        sample_every=sample_every,
        bits_dropped=bits_dropped(steps),
    )

    def merged(plan: PassPlan) -> TokenTables:
        merger = Merger()
        for number, part in fold(frame, plan, Single(kept=kept), on_rows):
            merger.add(number, part)
        return merger.tables()

    tables = merged(plan)
    fills = find_fills(sampled_tokens(tables.samples, LOGP_COLUMNS))
    return merged(replace(plan, fills=fills)) if fills else tables


@dataclass(frozen=True, kw_only=True)
class GoingOn:
    """How the piece that a run ends in continues from its kept records, and what is kept for the next time.

    begun: the records of the batches before those folded now. until: the sequence before which the last whole batch
    ends. keep: called with the records of all whole batches.
    """

    begun: BegunPiece | None
    until: int
    keep: Callable[[BegunPiece], None]


def fold(
    frame: pl.LazyFrame,
    plan: PassPlan,
    single: Single,
    on_rows: Callable[[int], None] | None = None,
    going_on: GoingOn | None = None,
) -> Iterator[tuple[int, PartialTables]]:
    """Yield number and tables of each piece of `frame`, in its order; with `going_on` there is only one."""
    pool = ArrayPool()
    for number, batches in groupby(_aligned(frame, plan.batch_rows), key=lambda batch: batch[0] // PIECE_BATCHES):
        context = FoldContext(plan=plan, single=single, pool=pool)
        yield number, fold_piece(batches, context, on_rows, going_on)


def _aligned(frame: pl.LazyFrame, rows: int) -> Iterator[tuple[int, pl.DataFrame]]:
    """Cut the stream where `seq` passes a multiple of `rows`, so that batches do not depend on how Polars streams."""
    stream = frame.collect_batches(chunk_size=rows, maintain_order=True, lazy=True, engine="streaming")
    waiting: list[pl.DataFrame] = []
    at = -1
    for batch in stream:
        numbers = batch["seq"].to_numpy() // rows
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        for start, end in pairwise([*starts.tolist(), batch.height]):
            number = int(numbers[start])
            if number != at and waiting:
                yield at, pl.concat(waiting)
                waiting = []
            at = number
            waiting.append(batch[start:end])
    if waiting:
        yield at, pl.concat(waiting)


def fold_piece(
    batches: Iterable[tuple[int, pl.DataFrame]],
    context: FoldContext,
    on_rows: Callable[[int], None] | None = None,
    going_on: GoingOn | None = None,
) -> PartialTables:
    """Fold the batches of one piece, each with its number."""
    records = _Records(context, None if going_on is None else going_on.begun)
    waiting = going_on
    for number, batch in batches:
        if waiting is not None and (number + 1) * context.plan.batch_rows > waiting.until:
            waiting.keep(records.begun())
            waiting = None
        records.add(batch)
        if on_rows is not None:
            on_rows(batch.height)
    if waiting is not None:
        waiting.keep(records.begun())
    return records.tables()


class _Records:
    """The records of batches of one piece, in their order."""

    def __init__(self, context: FoldContext, begun: BegunPiece | None) -> None:
        """`begun`: of the batches before."""
        self._context = context
        self._parts: dict[str, list[Columns]] = {name: [] for name in KINDS}
        self._samples: list[pa.Table] = []
        self._before = begun
        if begun is not None:
            for name, parts in self._parts.items():
                frame: pl.DataFrame = getattr(begun, name)
                if frame.height:
                    parts.append(as_records(frame))

    def add(self, batch: pl.DataFrame) -> None:
        """Take the next batch."""
        for kind, records in aggregate_batch(batch, self._context):
            self._parts[kind].append(records)
        if every := self._context.plan.sample_every:
            self._samples += _sample_rows(batch, every)

    def begun(self) -> BegunPiece:
        """Return the records as they came."""
        of = {name: concat_records(self._parts[name], schema) for name, schema in KINDS.items()}
        return BegunPiece(**of, stretches=self._stretches(), samples=self._sampled())

    def tables(self) -> PartialTables:
        """Return what they add up to."""
        as_they_are = ("rows", "bad", "anomalies")
        of = {name: concat_records(self._parts[name], KINDS[name]) for name in as_they_are}
        powers = merge_powers(concat_records(self._parts["powers"], POWER_SUMS))
        totals = concat_records(self._parts["totals"], TOTAL)
        kept = self._context.single.of(totals["seq"].to_numpy())
        chosen = totals if kept is None else totals[np.flatnonzero(kept)]
        dropped = self._context.plan.bits_dropped
        return PartialTables(
            cells=finish_cells(merge_signed(self._parts["cells"]), powers, dropped=dropped),
            steps=sum_by_step(totals),
            losing=losing_sequences(totals),
            sequences=chosen.hstack(concat_records(self._parts["single"], SINGLE)),
            stretches=self._stretches(),
            samples=self._sampled(),
            **of,
        )

    def _stretches(self) -> pl.DataFrame:
        own = self._context.positions.records()
        return own if self._before is None else pl.concat([self._before.stretches, own])

    def _sampled(self) -> pl.DataFrame:
        own = _concat_samples(self._samples)
        return own if self._before is None else pl.concat([self._before.samples, own])


def _sample_rows(batch: pl.DataFrame, every: int) -> Iterator[pa.Table]:
    chosen = np.flatnonzero(batch["seq"].to_numpy() % every == 0)
    if len(chosen):
        columns = [name for name in SAMPLE if name in batch.columns]
        yield pa.table([take(batch[name], chosen) for name in columns], names=columns)


def _concat_samples(parts: list[pa.Table]) -> pl.DataFrame:
    """Put kept sequences together; logprobs that a batch lacks are null."""
    if not parts:
        return pl.DataFrame(schema=SAMPLE)
    return conform(pl.DataFrame(pa.concat_tables(parts, promote_options="permissive")), SAMPLE).sort("seq")
