"""The tables that token sums leave, for one piece of a run and for all of it (merge_tree adds pieces up).

A piece is a fixed range of sequences, whichever machine folds it. Sums are taken within pieces first and then over
pieces in a fixed tree, so the same input gives the same sums to the last bit on one core or on many machines.

Memory is bounded as steps and sequences grow. With more than 256 steps, cells span several bins (sums stay exact); with
more than 131,072 sequences, only a share of each step's prompt groups is kept sequence by sequence. Every sequence
still keeps its row in TokenTables.rows, some 30 bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.cells import (
    ANOMALY,
    BAD,
    BIN_BITS,
    CELL,
    EXPONENT_CAP,
    LOSING,
    POWERS,
    ROW,
    SAMPLE,
    SEQUENCE,
    SIGNED_CELL,
    STEP,
    STEP_LIMIT,
    STRETCH,
    Columns,
    grouped_sums,
)


class TableSet:
    """A dataclass of tables, which are kept and sent as Arrow streams."""

    def __reduce__(self) -> tuple[Callable[[bytes], Self], tuple[bytes]]:
        """Pickle as Arrow streams: Polars 2.1 hangs on frames whose columns NumPy owns (it waits, holding the GIL)."""
        return type(self).from_bytes, (self.to_bytes(),)

    def to_bytes(self) -> bytes:
        """Write all tables one behind the other, as Arrow streams."""
        sink = pa.BufferOutputStream()
        for name in self._names():
            table = getattr(self, name).to_arrow()
            with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
                writer.write_table(table)
        return bytes(sink.getvalue())

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read what `to_bytes` wrote; pa.ArrowException where its lengths or lists reach beyond what is there."""
        source = pa.BufferReader(content)
        frames = {}
        for name in cls._names():
            table = pa.ipc.open_stream(source).read_all()
            table.validate(full=True)  # Polars does not check what it is given, and would read foreign memory
            frames[name] = pl.DataFrame(table)
        return cls(**frames)

    @classmethod
    def _names(cls) -> Iterator[str]:
        return iter(cls.__dataclass_fields__)  # type: ignore[attr-defined]


@dataclass(frozen=True, kw_only=True)
class PartialTables(TableSet):
    """What is left of one piece, as TokenTables has it of the run."""

    cells: pl.DataFrame  # sorted by pair, step, slice and bin
    steps: pl.DataFrame
    losing: pl.DataFrame
    sequences: pl.DataFrame
    stretches: pl.DataFrame
    rows: pl.DataFrame
    bad: pl.DataFrame
    anomalies: pl.DataFrame
    samples: pl.DataFrame


SCHEMAS: Final = {
    "cells": CELL,
    "steps": STEP,
    "losing": LOSING,
    "sequences": SEQUENCE,
    "stretches": STRETCH,
    "rows": ROW,
    "bad": BAD,
    "anomalies": ANOMALY,
    "samples": SAMPLE,
}


@dataclass(frozen=True, kw_only=True)
class TokenTables:
    """The sums that a pass over a run's tokens leaves.

    cells: one row per (pair, step, slice, bin): n and cells.SUMS; of long runs `wide` (see WIDER).
    steps: one row per (step, slice) of the first pair: how many sequences, and what is summed over all of them.
    losing: one row per sequence with tokens of the first pair that cannot be used, and others that can.
    sequences: one row per (seq, slice) of the first pair: step, n, n_bad, cells.SEQUENCE_SUMS,
        the least and greatest r, and the coarse histogram as two lists; of a share of them (see kept_sequences).
    stretches: of the same sequences, one row per (seq, observations before, distance after the last one) of the first
        pair: n, and of the tokens with a large |r| the greatest, where it is, and the coarse histogram.
    rows: one row per sequence: step, length, n_model, n_obs, ok (false: its lists disagree in length).
    bad: per (pair, step, slice): model tokens whose r is null, NaN, infinite, or taken for a placeholder.
    anomalies: per (seq, column, kind): values that are no logprobs (see fill_values.Anomaly).
    samples: every `sample_every`-th sequence, whole.
    """

    cells: pl.DataFrame
    steps: pl.DataFrame
    losing: pl.DataFrame
    sequences: pl.DataFrame
    stretches: pl.DataFrame
    rows: pl.DataFrame
    bad: pl.DataFrame
    anomalies: pl.DataFrame
    samples: pl.DataFrame

    def cells_of(self, pair: int) -> pl.DataFrame:
        """Return the cells of one pair."""
        every = self.cells["pair"]
        if not every.is_sorted():
            return self.cells.filter(pl.col("pair") == pair)
        return self.cells[every.search_sorted(pair) : every.search_sorted(pair, side="right")]


WIDER: Final = ((256, 0), (1024, 2), (4096, 4), (16384, 5))
"""(most steps, n): cells span 2^n bins, which leaves 256, 64, 16 and 8 cells an octave, at most 0.4%, 1.6%, 6% and 13%
wide. The tokens of a cell are assumed to be spread evenly over it."""
WIDEST: Final = 6  # 4 an octave, at most 25% wide: as coarse as the histograms of single sequences
SINGLE_SEQUENCES: Final = 1 << 17  # kept one by one; of more than that, those of half the prompt groups, a fourth, ...
BIN_MASK: Final = (1 << BIN_BITS) - 1


def share_kept(sequences: int) -> int:
    """Return of how many prompt groups one is kept sequence by sequence, a power of two."""
    share = 1
    while sequences > share * SINGLE_SEQUENCES:
        share *= 2
    return share


def kept_sequences(step: npt.NDArray[np.int64], unit: npt.NDArray[np.uint64]) -> BoolArray | None:
    """Choose the sequences to keep one by one: None for all of them, else a share of each step's units.

    `unit`: (sequences,) the number of each one's prompt group, or its own. Whole units are chosen, in the order of a
    hash, at least one for each step; where units are so large that too many sequences would be kept, single sequences
    are chosen instead. A growing run keeps its choice until the share changes, and then part of it.
    """
    share = share_kept(len(unit))
    if share == 1:
        return None
    kept = _lowest(step, unit, share)
    if kept.sum() > 2 * len(unit) // share:
        kept = _lowest(step, np.arange(len(unit), dtype=np.uint64), share)
    return kept


def _lowest(step: npt.NDArray[np.int64], unit: npt.NDArray[np.uint64], share: int) -> BoolArray:
    """Choose one in `share` of each step's units: those with the lowest hashes."""
    hashed = _mixed(unit ^ _mixed(step.astype(np.uint64)))
    order = np.lexsort((hashed, step))
    new_step = np.diff(step[order], prepend=step[order][:1] - 1) != 0
    new_unit = new_step | (np.diff(hashed[order], prepend=hashed[order][:1]) != 0)
    number = np.cumsum(new_unit)
    first = np.flatnonzero(new_step)
    units = np.add.reduceat(new_unit.astype(np.int64), first)
    length = np.diff(first, append=len(step))
    rank = number - np.repeat(number[first], length)
    kept = np.empty(len(step), np.bool_)
    kept[order] = rank < np.repeat(-(-units // share), length)
    return kept


def _mixed(number: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Hash numbers (splitmix64: Steele, Lea and Flood, 2014)."""
    hashed = number + np.uint64(0x9E3779B97F4A7C15)
    hashed = (hashed ^ (hashed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashed = (hashed ^ (hashed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashed ^ (hashed >> np.uint64(31))


def bits_dropped(steps: int) -> int:
    """Return how many low bits of its bin a cell drops in a run of this many steps."""
    return next((bits for most, bits in WIDER if steps <= most), WIDEST)


BY_STEP: Final = ("step", "slice")
STEP_SUMS: Final = tuple(name for name in STEP if name not in BY_STEP)


def sum_by_step(sequences: pl.DataFrame) -> pl.DataFrame:
    """Sum over all sequences of a step and slice what cells do not hold (cells.STEP)."""
    if sequences.is_empty():
        return pl.DataFrame(schema=STEP)
    ones = pl.Series("sequences", np.ones(sequences.height, np.int64))
    columns = [ones if name == ones.name else sequences[name] for name in STEP]
    return grouped_sums(pl.DataFrame(columns), BY_STEP, STEP_SUMS)


def losing_sequences(sequences: pl.DataFrame) -> pl.DataFrame:
    """Return the sequences with tokens that cannot be used (cells.LOSING)."""
    losing = np.flatnonzero(sequences["n_bad"].to_numpy())
    return pl.DataFrame([sequences[name].gather(losing).cast(kind) for name, kind in LOSING.items()])


def finish_cells(signed: pl.DataFrame, powers: pl.DataFrame, *, dropped: int = 0) -> pl.DataFrame:
    """Join the two signs of each bin, and derive what is summed over its tokens (cells.CELL) from n and the sum of |r|.

    n and the sums of r and |r| are exact in every bin. Squares and powers are taken at a bin's mean: it is at most
    0.39% of |r| wide, w nats say, so exp(r) is off by less than w^2 / 8 of itself, 5e-5 at 5 nats. What the sums over
    all tokens of a step and slice, which are exact, have more is given to its cells as that bound grows, with the
    square of |r|: a few wild tokens change nothing of the others. `dropped`: 2^dropped neighbouring bins are joined;
    tokens below and above all bins stay apart.
    """
    sums, reach = _at_means(signed)
    place = (signed["key"].to_numpy() >> np.uint64(1)).view(np.int64)
    runs = _Runs(_joined(place, dropped) if dropped else place)
    place = runs.place
    added = {name: runs.sums(values) for name, values in sums.items()}
    share = {name: runs.sums(sums[name] * reach) for name in POWERS}
    group = place >> BIN_BITS
    start = np.flatnonzero(np.diff(group, prepend=-1))
    cells = np.diff(start, append=len(group))
    for name in POWERS:
        missing = powers[name].to_numpy() - segment_sums(added[name], start)
        total = segment_sums(share[name], start)
        rate = np.divide(missing, total, out=np.zeros(len(start)), where=total > 0)
        added[name] = np.maximum(added[name] + share[name] * np.repeat(rate, cells), 0.0)
    group = group[start]
    of = {"pair": group // (2 * STEP_LIMIT), "step": group // 2 % STEP_LIMIT, "slice": group % 2}
    columns = {name: np.repeat(values.astype(NUMPY[name]), cells) for name, values in of.items()}
    columns |= {"bin": (place & BIN_MASK).astype(NUMPY["bin"]), "wide": np.full(len(place), dropped, NUMPY["wide"])}
    return pl.DataFrame(columns | added, schema=CELL)


def _at_means(signed: pl.DataFrame) -> tuple[dict[str, npt.NDArray[Any]], FloatArray]:
    """Return n and the sums of each signed bin, with squares and powers at its mean, and the square of that mean."""
    n, s_abs = signed["n"].to_numpy(), signed["s_abs"].to_numpy()
    mean = s_abs / n
    sign = 1.0 - 2.0 * (signed["key"].to_numpy() & np.uint64(1))
    r = sign * mean
    capped = np.minimum(mean, EXPONENT_CAP)
    rho = np.exp(sign * capped)
    s_rho = n * rho
    sums = {"n": n, "s_rho": s_rho, "s_rho2": s_rho * rho, "s_r": sign * s_abs, "s_r2": n * r * r, "s_abs": s_abs}
    return sums, capped**2


NUMPY: Final = {"pair": np.uint8, "step": np.int64, "slice": np.uint8, "bin": np.uint16, "wide": np.uint8}


class _Runs:
    """Equal places one behind the other, whose values are added up."""

    def __init__(self, place: IntArray) -> None:
        self._first = np.flatnonzero(np.diff(place, prepend=~place[:1]))
        self.place = place[self._first]
        length = np.diff(self._first, append=len(place))
        self._pairs = not len(length) or length.max() <= 2
        self._paired = length == 2
        self._second = np.minimum(self._first + 1, max(len(place) - 1, 0))

    def sums(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the sum of each run."""
        if not self._pairs:
            return segment_sums(values, self._first)
        added = values[self._first]  # with all bins apart, a place has at most two cells, one for each sign
        np.add(added, values[self._second], out=added, where=self._paired)
        return added


def _joined(place: IntArray, dropped: int) -> IntArray:
    """Return the first place of the cell that holds each; what is below all bins keeps its own."""
    inside = (place & BIN_MASK) > bins.UNDERFLOW
    return np.where(inside, ((place - 1) >> dropped << dropped) + 1, place)  # above all bins begins a cell, too


def places(cells: pl.DataFrame) -> IntArray:
    """Pack pair, step, slice and bin into one integer, by which cells are sorted."""
    pair, step, slice_, fine = (cells[name].to_numpy().astype(np.int64) for name in ("pair", "step", "slice", "bin"))
    place: IntArray = ((pair * STEP_LIMIT + step) * 2 + slice_) << BIN_BITS | fine
    return place


def merge_signed(parts: Sequence[Columns]) -> pl.DataFrame:
    """Add up signed cells of the same key in the order they come, sorted by key (cells.SIGNED_CELL)."""
    if not parts:
        return pl.DataFrame(schema=SIGNED_CELL)
    columns = {name: np.concatenate([part[name] for part in parts]) for name in SIGNED_CELL}
    key = columns["key"]
    if not (key[1:] > key[:-1]).all():
        order = np.argsort(key, kind="stable")  # batches come in order of step: nearly sorted, which is fast
        columns = {name: values[order] for name, values in columns.items()}
        first = np.flatnonzero(np.diff(columns["key"], prepend=~columns["key"][:1]))
        columns = {
            name: values[first] if name == "key" else _sums_of_few(values, first) for name, values in columns.items()
        }
    return pl.DataFrame(columns, schema=SIGNED_CELL)


def merge_powers(powers: pl.DataFrame) -> pl.DataFrame:
    """Add up records of the same pair, step and slice in the order they come."""
    return grouped_sums(powers, ("pair", "step", "slice"), POWERS) if powers.height else powers


def segment_sums(values: npt.NDArray[Any], first: IntArray) -> npt.NDArray[Any]:
    """Add up from each of `first` to the next one, pairwise."""
    return np.add.reduceat(values, first) if len(first) else values[:0]


def _sums_of_few(values: npt.NDArray[Any], first: IntArray) -> npt.NDArray[Any]:
    """Do the same where most have one value, which is copied."""
    added = values[first]
    several = np.flatnonzero(np.diff(first, append=len(values)) > 1)
    if len(several):
        bounds = np.append(first, len(values))
        ends = np.stack([bounds[several], bounds[several + 1]], axis=1).ravel()
        added[several] = np.add.reduceat(np.append(values, values[:1]), ends)[::2]
    return added
