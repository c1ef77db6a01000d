"""One pass over all tokens: a lazy frame of sequences in, small mergeable tables out.

Polars streams the decoded rows in order; each batch is folded with numpy (subtract, bin, add up) on this thread
while Polars' threads decode the next ones. Order and thread are fixed, so the same input gives the same sums to
the last bit. `docs/decisions/003-token-pass.md` has what else was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.batch_layout import Batch, chunks, is_sound, lay_out
from ptt.diagnostics.statistics.cells import (
    ANOMALY,
    BAD,
    EXPONENT_CAP,
    KINDS,
    LOGP_COLUMNS,
    POWER_SUMS,
    POWERS,
    ROW,
    SAMPLE,
    SEQUENCE,
    SEQUENCE_SUMS,
    SIGNED_CELL,
    Columns,
    cell_key,
    concat_records,
    conform,
)
from ptt.diagnostics.statistics.fill_values import Fills, find_fills, sampled_tokens
from ptt.diagnostics.statistics.logprob_pairs import Pair
from ptt.diagnostics.statistics.observation_position import PositionCounter, list_series
from ptt.diagnostics.statistics.partial_tables import Merger, PartialTables, TokenTables, merge_powers, merge_signed
from ptt.diagnostics.statistics.placeholder_values import find_placeholders, placeholder_records

Records = tuple[str, Columns]

SIGNED_BINS: Final = 2 * (bins.OVERFLOW + 1)  # of a step and slice


def aggregate_batch(
    frame: pl.DataFrame,
    *,
    pairs: tuple[Pair, ...],
    min_observation: int,
    fills: Mapping[str, Fills],
    pool: ArrayPool,
    positions: PositionCounter,
) -> Iterator[Records]:
    """Yield the records of all rows of `frame`, each with its kind, a bounded number of tokens at a time.

    Positions of the first pair go to `positions`, which adds them up later.
    """
    for chunk in chunks(frame):
        yield from _aggregate_chunk(chunk, pairs, min_observation, fills, pool, positions)


def _aggregate_chunk(
    frame: pl.DataFrame,
    pairs: tuple[Pair, ...],
    min_observation: int,
    fills: Mapping[str, Fills],
    pool: ArrayPool,
    positions: PositionCounter,
) -> Iterator[Records]:
    logps = sorted({name for pair in pairs for name in (pair.numerator, pair.denominator)})
    batch = lay_out(frame, logps, min_observation)
    if batch is not None:
        yield "rows", _row_records(batch)
        for number, pair in enumerate(pairs):
            yield from _aggregate_pair(batch, pair, number, fills, pool, positions)
        return
    usable = frame.select(is_sound(logps)).to_series()
    yield "rows", _unsound_records(frame.filter(~usable))
    frame = frame.filter(usable)
    masks = lay_out(frame, [], min_observation)
    assert masks is not None, "rows found sound must lay out"
    yield "rows", _row_records(masks)
    for number, pair in enumerate(pairs):
        both = [pair.numerator, pair.denominator]
        thirds = {name for column in both if column in fills for name in fills[column].confirm} - set(both)
        rows = frame.drop_nulls(both).with_columns(_nan_where_null(name) for name in sorted(thirds))
        part = lay_out(rows, [*both, *sorted(thirds)], min_observation)
        assert part is not None, "rows with both logprobs must lay out"
        yield from _aggregate_pair(part, pair, number, fills, pool, positions)


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


def _aggregate_pair(
    batch: Batch, pair: Pair, number: int, fills: Mapping[str, Fills], pool: ArrayPool, positions: PositionCounter
) -> Iterator[Records]:
    r = pool.of_length(len(batch.segment)).floats("s_r")
    names = pair.numerator, pair.denominator
    thirds = {third for name in names if name in fills for third in fills[name].confirm} & batch.logps.keys()
    sides = {name: batch.logps[name][batch.is_model] for name in (*names, *sorted(thirds.difference(names)))}
    segment = batch.segment
    segments = 2 * len(batch.seq)
    if not len(segment):
        return
    with np.errstate(invalid="ignore"):  # inf - inf is NaN, and counted as such below
        np.subtract(sides[pair.numerator], sides[pair.denominator], out=r, dtype=np.float64)
    bounds = np.searchsorted(segment, np.arange(0, segments + 1, 2))
    rows = np.flatnonzero(np.diff(bounds))
    placeholders = find_placeholders(names, sides, segment >> 1, bounds[rows], rows, fills)
    if placeholders is not None:
        yield "anomalies", placeholder_records(placeholders, batch.seq, batch.step, LOGP_COLUMNS)
        r[placeholders.unusable] = np.nan
    finite = np.isfinite(r)
    bad = np.zeros(segments, np.int64)
    whole = bool(finite.all())
    if not whole:
        bad = np.bincount(segment[~finite], minlength=segments)
        yield "bad", _bad_records(batch, bad, number)
        r, segment = r[finite], segment[finite]
        pool.of_length(len(r))
    if not len(r):
        return
    magnitude = np.abs(r, out=pool.floats("s_abs"))
    fine = bins.bin_of(magnitude, out=pool.integers("fine"))
    yield "cells", _cell_records(batch, r, magnitude, fine, segment, number, pool)
    weights = _weights(r, magnitude, pool)
    stretch = np.searchsorted(segment, np.arange(segments + 1))
    yield "powers", _power_records(batch, weights, stretch, number)
    if number == 0:
        inverse = np.divide(1.0, weights["s_rho"], out=pool.floats("s_inv"))
        weights |= {"s_inv": inverse, "s_inv2": np.square(inverse, out=pool.floats("s_inv2"))}
        yield "sequences", _sequence_records(batch, weights, fine, stretch, segment, bad, pool)
        positions.add(batch, magnitude, fine, None if whole else finite)


def _weights(r: FloatArray, magnitude: FloatArray, pool: ArrayPool) -> dict[str, FloatArray]:
    """Return r, rho and their squares, token by token."""
    rho = pool.floats("s_rho")
    capped = r if magnitude.max() <= EXPONENT_CAP else np.clip(r, -EXPONENT_CAP, EXPONENT_CAP, out=rho)
    np.exp(capped, out=rho)
    rho2, r2 = np.square(rho, out=pool.floats("s_rho2")), np.square(r, out=pool.floats("s_r2"))
    return {"s_r": r, "s_r2": r2, "s_rho": rho, "s_rho2": rho2}


def _power_records(batch: Batch, weights: dict[str, FloatArray], stretch: IntArray, number: int) -> Columns:
    """Add up by step and slice; tokens of a (row, slice) stand side by side from stretch[i] to stretch[i + 1]."""
    used = np.flatnonzero(np.diff(stretch))
    steps, step_index = np.unique(batch.step, return_inverse=True)
    group = step_index[used // 2] * 2 + used % 2
    kept = np.flatnonzero(np.bincount(group, minlength=2 * len(steps)))
    sums = {name: np.bincount(group, np.add.reduceat(weights[name], stretch[used]))[kept] for name in POWERS}
    return {
        "pair": np.full(len(kept), number, np.uint8),
        "step": steps[kept // 2],
        "slice": (kept % 2).astype(np.uint8),
        **sums,
    }


class ArrayPool:
    """Working arrays kept from batch to batch: fresh ones cost a page fault every 4 KB, a fifth of the pass."""

    def __init__(self) -> None:
        self._arrays: dict[str, npt.NDArray[Any]] = {}
        self._length = 0

    def of_length(self, length: int) -> ArrayPool:
        """Set the length of the arrays handed out from now on."""
        self._length = length
        return self

    def floats(self, name: str) -> FloatArray:
        """Return the float array `name`; what it held before is gone."""
        return self._array(name, np.float64)

    def flags(self, name: str) -> BoolArray:
        """Return the array of truth values `name`; what it held before is gone."""
        return self._array(name, np.bool_)

    def integers(self, name: str) -> IntArray:
        """Return the integer array `name`; what it held before is gone."""
        return self._array(name, np.int64)

    def _array(self, name: str, dtype: type[np.generic]) -> npt.NDArray[Any]:
        array = self._arrays.get(name)
        if array is None or len(array) < self._length:
            array = self._arrays[name] = np.empty(self._length + self._length // 4, dtype)
        return array[: self._length]


def _bad_records(batch: Batch, bad: IntArray, number: int) -> Columns:
    where = np.flatnonzero(bad)
    return {
        "pair": np.full(len(where), number, np.uint8),
        "step": batch.step[where // 2],
        "slice": (where % 2).astype(np.uint8),
        "n_bad": bad[where].astype(np.uint32),
    }


def _cell_records(
    batch: Batch, r: FloatArray, magnitude: FloatArray, fine: IntArray, segment: IntArray, number: int, pool: ArrayPool
) -> Columns:
    steps, step_index = np.unique(batch.step, return_inverse=True)
    group = np.repeat(step_index.astype(np.int64), 2) * 2 + np.tile([0, 1], len(step_index))
    key = np.take(group * SIGNED_BINS, segment, out=pool.integers("key"), mode="clip")
    key += np.left_shift(fine, 1, out=pool.integers("row"))
    key += np.less(r, 0.0, out=pool.flags("negative"))
    size = 2 * len(steps) * SIGNED_BINS
    if size > 4 * len(key):  # many short steps: adding up into mostly empty tables would cost more than a sort
        used, key = np.unique(key, return_inverse=True)
        size = len(used)
        count = np.bincount(key, minlength=size)
        cell = np.arange(size)
    else:
        count = np.bincount(key, minlength=size)
        used = cell = np.flatnonzero(count)
    group_of = used // SIGNED_BINS
    return {
        "key": cell_key(number, steps[group_of // 2], group_of % 2, used % SIGNED_BINS),
        "n": count[cell].astype(np.uint32),
        "s_abs": np.bincount(key, weights=magnitude, minlength=size)[cell],
    }


def _sequence_records(
    batch: Batch,
    weights: dict[str, FloatArray],
    fine: IntArray,
    bounds: IntArray,
    segment: IntArray,
    bad: IntArray,
    pool: ArrayPool,
) -> Columns:
    """Tokens of a (row, slice) stand side by side, so its sums are sums over stretches."""
    segments = 2 * len(batch.seq)
    count = np.diff(bounds)
    used_segments = np.flatnonzero(count)
    start = bounds[used_segments]
    key = pool.integers("key")
    np.copyto(key, fine)
    bins.to_coarse_bins(key)
    key += np.multiply(segment, bins.COARSE_COUNT, out=pool.integers("row"))
    table = np.bincount(key)
    used = np.flatnonzero(table)
    offsets = np.searchsorted(used, np.append(used_segments, segments) * bins.COARSE_COUNT)
    return {
        "seq": batch.seq[used_segments // 2].astype(np.uint32),
        "step": batch.step[used_segments // 2],
        "slice": (used_segments % 2).astype(np.uint8),
        "n": count[used_segments].astype(np.uint32),
        "n_bad": bad[used_segments].astype(np.uint32),
        **{name: np.add.reduceat(weights[name], start) for name in SEQUENCE_SUMS},
        "min_r": np.minimum.reduceat(weights["s_r"], start),
        "max_r": np.maximum.reduceat(weights["s_r"], start),
        "coarse_bin": list_series(offsets, (used % bins.COARSE_COUNT).astype(np.uint8)),
        "coarse_n": list_series(offsets, table[used].astype(np.uint32)),
    }


BATCH_TOKENS: Final = 1 << 18
PIECE_BATCHES: Final = 16  # some four million tokens: a hundredth of a second to merge, half a second to fold anew


@dataclass(frozen=True, kw_only=True)
class PassPlan:
    """What decides the tables of a piece, besides its tokens.

    pairs: the first is the main one. sample_every: of the sequences, every so many-th is kept whole (0: none).
    fills: values that stand for no logprob, by column. doubles: logprobs to read in 64 bits.
    """

    pairs: tuple[Pair, ...]
    min_observation: int
    batch_rows: int
    sample_every: int = 0
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
    sample_every: int = 0,
    kept: BoolArray | None = None,
    on_rows: Callable[[int], None] | None = None,
) -> TokenTables:
    """Fold `frame` (seq, step, model_mask, logp lists, optional tool_count) for `pairs`, the first being the main one.

    `tokens_per_row` only sets how many rows are taken at a time; every `sample_every`-th row is kept whole (0: none);
    `kept`: see Merger; `on_rows` hears how many were done. Only the whole run tells a fill value from a logprob:
    where the sample shows one, the frame is folded again without it.
    """
    plan = PassPlan(
        pairs=pairs,
        min_observation=min_observation,
        batch_rows=batch_rows(tokens_per_row),
        sample_every=sample_every,
    )

    def merged(plan: PassPlan) -> TokenTables:
        merger = Merger(kept)
        for _, part in fold(frame, plan, on_rows):
            merger.add(part)
        return merger.tables()

    tables = merged(plan)
    fills = find_fills(sampled_tokens(tables.samples, LOGP_COLUMNS))
    return merged(replace(plan, fills=fills)) if fills else tables


def fold(
    frame: pl.LazyFrame, plan: PassPlan, on_rows: Callable[[int], None] | None = None
) -> Iterator[tuple[int, PartialTables]]:
    """Yield the number and the tables of each piece of `frame`, in the frame's order."""
    pool = ArrayPool()
    for number, batches in groupby(_aligned(frame, plan.batch_rows), key=lambda batch: batch[0] // PIECE_BATCHES):
        yield number, fold_piece((batch for _, batch in batches), plan, pool, on_rows)


def _aligned(frame: pl.LazyFrame, rows: int) -> Iterator[tuple[int, pl.DataFrame]]:
    """Cut what Polars streams where a multiple of `rows` is passed by `seq`: batches that depend on nothing else."""
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
    batches: Iterable[pl.DataFrame],
    plan: PassPlan,
    pool: ArrayPool,
    on_rows: Callable[[int], None] | None = None,
) -> PartialTables:
    """Fold the batches of one piece."""
    parts: dict[str, list[Columns]] = {name: [] for name in KINDS}
    samples: list[pa.Table] = []
    positions = PositionCounter()
    for batch in batches:
        for kind, records in aggregate_batch(
            batch,
            pairs=plan.pairs,
            min_observation=plan.min_observation,
            fills=plan.fills,
            pool=pool,
            positions=positions,
        ):
            parts[kind].append(records)
        if plan.sample_every:
            samples.append(_sample_rows(batch, plan.sample_every))
        if on_rows is not None:
            on_rows(batch.height)
    return PartialTables(
        cells=merge_signed(concat_records(parts["cells"], SIGNED_CELL)),
        powers=merge_powers(concat_records(parts["powers"], POWER_SUMS)),
        sequences=concat_records(parts["sequences"], SEQUENCE),
        stretches=positions.records(),
        rows=concat_records(parts["rows"], ROW),
        bad=concat_records(parts["bad"], BAD),
        anomalies=concat_records(parts["anomalies"], ANOMALY),
        samples=_concat_samples(samples),
    )


def _sample_rows(batch: pl.DataFrame, every: int) -> pa.Table:
    """Copy some rows, with Arrow: Polars' own threads are busy decoding, and would have to be waited for."""
    chosen = pa.array(np.flatnonzero(batch["seq"].to_numpy() % every == 0))
    columns = [name for name in SAMPLE if name in batch.columns]
    return pa.table([batch[name].to_arrow().take(chosen) for name in columns], names=columns)


def _concat_samples(parts: list[pa.Table]) -> pl.DataFrame:
    """Put kept sequences together; logprobs that a batch lacks are null."""
    filled = [part for part in parts if part.num_rows]
    if not filled:
        return pl.DataFrame(schema=SAMPLE)
    return conform(pl.DataFrame(pa.concat_tables(filled, promote_options="permissive")), SAMPLE).sort("seq")
