"""Fold a batch of sequences into records that add up: the inner step of the token pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ptt.diagnostics.statistics import anomalies, bins
from ptt.diagnostics.statistics.layout import Batch, chunks, lay_out, sound
from ptt.diagnostics.statistics.pairs import Pair
from ptt.diagnostics.statistics.records import LOGP_COLUMNS, ROW, SEQUENCE_SUMS, SUMS, Columns, cell_key
from ptt.diagnostics.statistics.stretches import Stretches

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Records = tuple[str, Columns]

EXPONENT_CAP: Final = 300.0  # exp(2 * 300) is finite in float64; beyond it a weight is not a weight
BINS_PER_GROUP: Final = bins.OVERFLOW + 1
COARSE_OF: Final = bins.coarse_of(np.arange(BINS_PER_GROUP))


def fold(
    frame: pl.DataFrame, *, pairs: tuple[Pair, ...], min_observation: int, pool: Pool, stretches: Stretches
) -> Iterator[Records]:
    """Give the records of all rows of `frame`, each with its kind, a bounded number of tokens at a time.

    Stretches of the first pair go to `stretches`, which folds them later.
    """
    for chunk in chunks(frame):
        yield from _fold_chunk(chunk, pairs, min_observation, pool, stretches)


def _fold_chunk(
    frame: pl.DataFrame, pairs: tuple[Pair, ...], min_observation: int, pool: Pool, stretches: Stretches
) -> Iterator[Records]:
    logps = sorted({name for pair in pairs for name in (pair.numerator, pair.denominator)})
    batch = lay_out(frame, logps, min_observation)
    if batch is not None:
        yield "rows", _row_records(batch)
        for number, pair in enumerate(pairs):
            yield from _fold_pair(batch, pair, number, pool, stretches)
        return
    is_sound = frame.select(sound(logps)).to_series()
    yield "rows", _unsound_records(frame.filter(~is_sound))
    frame = frame.filter(is_sound)
    masks = lay_out(frame, [], min_observation)
    assert masks is not None, "rows found sound must lay out"
    yield "rows", _row_records(masks)
    for number, pair in enumerate(pairs):
        both = [pair.numerator, pair.denominator]
        part = lay_out(frame.drop_nulls(both), both, min_observation)
        assert part is not None, "rows with both logprobs must lay out"
        yield from _fold_pair(part, pair, number, pool, stretches)


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
    known = {name: rows[name] for name in ("seq", "step")}
    return {name: known.get(name, pl.Series(nothing)).cast(kind) for name, kind in ROW.items()}


def _fold_pair(batch: Batch, pair: Pair, number: int, pool: Pool, stretches: Stretches) -> Iterator[Records]:
    r = pool.of_length(len(batch.segment)).floats("s_r")
    top, bottom = batch.logps[pair.numerator], batch.logps[pair.denominator]
    sides = top[batch.is_model], bottom[batch.is_model]
    segment = batch.segment
    segments = 2 * len(batch.seq)
    if not len(segment):
        return
    with np.errstate(invalid="ignore"):  # inf - inf is NaN, and counted as such below
        np.subtract(*sides, out=r, dtype=np.float64)
    amiss = _look(batch, pair, sides)
    if amiss is not None:
        yield "anomalies", anomalies.records(amiss, batch.seq, batch.step, LOGP_COLUMNS)
        r[amiss.unusable] = np.nan
    finite = np.isfinite(r)
    bad = np.zeros(segments, np.int64)
    whole = bool(finite.all())
    if not whole:
        bad = np.bincount(segment[~finite], minlength=segments)
        yield "bad", _bad_records(batch, bad, number)
        r, segment = r[finite], segment[finite]
        pool.of_length(len(r))
    if len(r):
        weights, fine = _weights(r, pool)
        yield "cells", _cell_records(batch, weights, fine, segment, number, pool)
        if number == 0:
            inverse = np.divide(1.0, weights["s_rho"], out=pool.floats("s_inv"))
            weights |= {"s_inv": inverse, "s_inv2": np.square(inverse, out=pool.floats("s_inv2"))}
            yield "sequences", _sequence_records(batch, weights, fine, segment, bad, pool)
            stretches.add(batch, weights["s_abs"], fine, None if whole else finite)


def _look(batch: Batch, pair: Pair, sides: tuple[npt.NDArray[Any], npt.NDArray[Any]]) -> anomalies.Found | None:
    bounds = np.searchsorted(batch.segment, np.arange(0, 2 * len(batch.seq) + 1, 2))
    rows = np.flatnonzero(np.diff(bounds))
    return anomalies.look((pair.numerator, pair.denominator), sides, batch.segment >> 1, bounds[rows], rows)


def _weights(r: FloatArray, pool: Pool) -> tuple[dict[str, FloatArray], IntArray]:
    magnitude = np.abs(r, out=pool.floats("s_abs"))
    fine = bins.bin_of(magnitude, out=pool.integers("fine"))
    rho = pool.floats("s_rho")
    if magnitude.max() <= EXPONENT_CAP:
        np.exp(r, out=rho)
    else:
        np.exp(np.clip(r, -EXPONENT_CAP, EXPONENT_CAP, out=rho), out=rho)
    rho2 = np.square(rho, out=pool.floats("s_rho2"))
    r2 = np.square(r, out=pool.floats("s_r2"))
    return {"s_rho": rho, "s_rho2": rho2, "s_r": r, "s_r2": r2, "s_abs": magnitude}, fine


class Pool:
    """Working arrays kept from batch to batch: fresh ones cost a page fault every 4 KB, a fifth of the pass."""

    def __init__(self) -> None:
        self._arrays: dict[str, npt.NDArray[Any]] = {}
        self._length = 0

    def of_length(self, length: int) -> Pool:
        """Set the length of the arrays handed out from now on."""
        self._length = length
        return self

    def floats(self, name: str) -> FloatArray:
        """Give the float array `name`; what it held before is gone."""
        return self._array(name, np.float64)

    def integers(self, name: str) -> IntArray:
        """Give the integer array `name`; what it held before is gone."""
        return self._array(name, np.int64)

    def _array(self, name: str, dtype: type[np.generic]) -> npt.NDArray[Any]:
        held = self._arrays.get(name)
        if held is None or len(held) < self._length:
            held = self._arrays[name] = np.empty(self._length + self._length // 4, dtype)
        return held[: self._length]


def _bad_records(batch: Batch, bad: IntArray, number: int) -> Columns:
    where = np.flatnonzero(bad)
    return {
        "pair": np.full(len(where), number, np.uint8),
        "step": batch.step[where // 2],
        "slice": (where % 2).astype(np.uint8),
        "n_bad": bad[where].astype(np.uint32),
    }


def _cell_records(
    batch: Batch, weights: dict[str, FloatArray], fine: IntArray, segment: IntArray, number: int, pool: Pool
) -> Columns:
    steps, step_index = np.unique(batch.step, return_inverse=True)
    group = np.repeat(step_index.astype(np.int64), 2) * 2 + np.tile([0, 1], len(step_index))
    key = np.take(group * BINS_PER_GROUP, segment, out=pool.integers("key"), mode="clip")
    key += fine
    size = 2 * len(steps) * BINS_PER_GROUP
    if size > 4 * len(key):  # many short steps: adding up into mostly empty tables would cost more than a sort
        used, key = np.unique(key, return_inverse=True)
        size = len(used)
        count = np.bincount(key, minlength=size)
        cell = np.arange(size)
    else:
        count = np.bincount(key, minlength=size)
        used = cell = np.flatnonzero(count)
    group_of = used // BINS_PER_GROUP
    return {
        "key": cell_key(number, steps[group_of // 2], group_of % 2, used % BINS_PER_GROUP),
        "n": count[cell].astype(np.uint32),
        **{name: np.bincount(key, weights=weights[name], minlength=size)[cell] for name in SUMS},
    }


def _sequence_records(
    batch: Batch, weights: dict[str, FloatArray], fine: IntArray, segment: IntArray, bad: IntArray, pool: Pool
) -> Columns:
    """Tokens of a (row, slice) stand side by side, so its sums are sums over stretches."""
    segments = 2 * len(batch.seq)
    bounds = np.searchsorted(segment, np.arange(segments + 1))
    count = np.diff(bounds)
    held = np.flatnonzero(count)
    start = bounds[held]
    key = np.take(COARSE_OF, fine, out=pool.integers("key"), mode="clip")
    key += np.multiply(segment, bins.COARSE_COUNT, out=pool.integers("row"))
    table = np.bincount(key)
    used = np.flatnonzero(table)
    offsets = np.searchsorted(used, np.append(held, segments) * bins.COARSE_COUNT)

    def listed(values: npt.NDArray[Any]) -> pl.Series:
        return pl.Series(pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values)))

    return {
        "seq": batch.seq[held // 2].astype(np.uint32),
        "step": batch.step[held // 2],
        "slice": (held % 2).astype(np.uint8),
        "n": count[held].astype(np.uint32),
        "n_bad": bad[held].astype(np.uint32),
        **{name: np.add.reduceat(weights[name], start) for name in SEQUENCE_SUMS},
        "min_r": np.minimum.reduceat(weights["s_r"], start),
        "max_r": np.maximum.reduceat(weights["s_r"], start),
        "coarse_bin": listed((used % bins.COARSE_COUNT).astype(np.uint8)),
        "coarse_n": listed(table[used].astype(np.uint32)),
    }
