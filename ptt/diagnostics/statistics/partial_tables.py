"""What one piece of a run leaves of its tokens, and how the pieces add up to the run's tables.

A piece is a fixed range of sequences, whoever folds it and wherever: sums are taken within pieces first and then over
them in their order, so the same input gives the same sums to the last bit on one core or on many machines.

Memory stays bounded however long a run is. With more steps, percentiles of one step are kept to wider bins (sums stay
what they are); with more sequences, single ones are kept of a fixed share of the prompt groups. A run of 250 steps and
100,000 sequences loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.arrays import BoolArray, IntArray
from ptt.diagnostics.statistics.cells import (
    ANOMALY,
    BAD,
    BIN_BITS,
    CELL,
    EXPONENT_CAP,
    POWERS,
    ROW,
    SAMPLE,
    SEQUENCE,
    SIGNED_CELL,
    STEP_LIMIT,
    STRETCH,
    SUMS,
    grouped_sums,
)


@dataclass(frozen=True, kw_only=True)
class PartialTables:
    """What is left of one piece: as TokenTables, but for cells, which are still split by the sign of r."""

    cells: pl.DataFrame  # cells.SIGNED_CELL, sorted by key
    powers: pl.DataFrame  # cells.POWER_SUMS: one row per (pair, step, slice), sorted
    sequences: pl.DataFrame
    stretches: pl.DataFrame
    rows: pl.DataFrame
    bad: pl.DataFrame
    anomalies: pl.DataFrame
    samples: pl.DataFrame

    def __reduce__(self) -> tuple[Callable[..., PartialTables], tuple[dict[str, bytes]]]:
        """Pickle as Arrow streams: Polars 2.1 hangs on frames whose columns NumPy owns (it waits, holding the GIL)."""
        return _unpacked, ({one.name: _packed(getattr(self, one.name)) for one in fields(self)},)

    def to_bytes(self) -> bytes:
        """Write all tables one behind the other, as Arrow streams."""
        sink = pa.BufferOutputStream()
        for one in fields(self):
            table = getattr(self, one.name).to_arrow()
            with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
                writer.write_table(table)
        return bytes(sink.getvalue())

    @classmethod
    def from_bytes(cls, content: bytes) -> PartialTables:
        """Read what `to_bytes` wrote."""
        source = pa.BufferReader(content)
        return cls(**{one.name: pl.DataFrame(pa.ipc.open_stream(source).read_all()) for one in fields(cls)})


def _packed(frame: pl.DataFrame) -> bytes:
    table, stream = frame.to_arrow(), pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    return bytes(stream.getvalue())


def _unpacked(streams: dict[str, bytes]) -> PartialTables:
    frames = {name: pl.DataFrame(pa.ipc.open_stream(stream).read_all()) for name, stream in streams.items()}
    return PartialTables(**frames)


@dataclass(frozen=True, kw_only=True)
class TokenTables:
    """What is left of the tokens of a run.

    cells: one row per (pair, step, slice, bin): n and cells.SUMS.
    sequences: one row per (seq, slice) of the first pair: step, n, n_bad, cells.SEQUENCE_SUMS,
        the least and greatest r, and the coarse histogram as two lists.
    stretches: one row per (seq, observations before, distance after the last one) of the first pair: n, and of the
        tokens with a large |r| the greatest, where it is, and the coarse histogram.
    rows: one row per sequence: step, length, n_model, n_obs, ok (false: its lists disagree in length).
    bad: per (pair, step, slice): model tokens whose r is null, NaN, infinite, or taken for a placeholder.
    anomalies: per (seq, column, kind): values that are no logprobs (see placeholder_values.Anomaly).
    samples: every `sample_every`-th sequence, whole.
    """

    cells: pl.DataFrame
    sequences: pl.DataFrame
    stretches: pl.DataFrame
    rows: pl.DataFrame
    bad: pl.DataFrame
    anomalies: pl.DataFrame
    samples: pl.DataFrame

    def cells_of(self, pair: int) -> pl.DataFrame:
        """Return the cells of one pair."""
        every = self.cells["pair"].to_numpy()
        return self.cells if (every == pair).all() else self.cells.filter(pl.col("pair") == pair)


WIDER: Final = ((256, 0), (1024, 2), (4096, 4), (16384, 5))
"""Up to so many steps, that many bits fewer of a bin: 256, 64, 16 and 8 bins an octave, 0.4% to 9% wide."""
WIDEST: Final = 6
SINGLE_SEQUENCES: Final = 1 << 17  # kept one by one; of more than that every second prompt group, every fourth, ...
PENDING: Final = 1 << 20  # cells that wait to be added up
BIN_MASK: Final = (1 << BIN_BITS) - 1


def kept_sequences(unit: npt.NDArray[np.uint64]) -> BoolArray | None:
    """Choose the sequences that are kept one by one: all (None), or every second unit, every fourth, by a hash.

    `unit`: (sequences,) of each a number of the prompt group it belongs to, or else its own.
    """
    share = 1
    while len(unit) > share * SINGLE_SEQUENCES:
        share *= 2
    if share == 1:
        return None
    hashed = (unit ^ (unit >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)  # splitmix64 (Steele et al., 2014)
    hashed = (hashed ^ (hashed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    kept: BoolArray = (hashed ^ (hashed >> np.uint64(31))) % np.uint64(share) == 0
    return kept if kept.any() else None


def bits_dropped(steps: int) -> int:
    """Return how many bits of a bin a run of so many steps does without."""
    return next((bits for most, bits in WIDER if steps <= most), WIDEST)


class Merger:
    """Adds pieces up, in their order."""

    def __init__(self, kept: BoolArray | None = None) -> None:
        """`kept`: of every sequence of the run, whether it is kept one by one (None: all are)."""
        self._kept = kept
        self._cells: dict[int, _CellsInOrder] = {}  # by pair
        self._dropped = 0
        self._steps = np.empty(0, np.int64)
        self._frames: dict[str, list[pl.DataFrame]] = {
            "sequences": [pl.DataFrame(schema=SEQUENCE)],
            "stretches": [pl.DataFrame(schema=STRETCH)],
            "rows": [pl.DataFrame(schema=ROW)],
            "bad": [pl.DataFrame(schema=BAD)],
            "anomalies": [pl.DataFrame(schema=ANOMALY)],
            "samples": [pl.DataFrame(schema=SAMPLE)],
        }

    def add(self, part: PartialTables) -> None:
        """Take the next piece."""
        for name, frames in self._frames.items():
            frame: pl.DataFrame = getattr(part, name)
            if self._kept is not None and name in ("sequences", "stretches"):
                frame = frame.filter(self._kept[frame["seq"].to_numpy()])
            if frame.height:
                frames.append(frame)
        self._steps = np.union1d(self._steps, part.powers["step"].to_numpy())
        dropped = bits_dropped(len(self._steps))
        if dropped > self._dropped:
            self._dropped = dropped
            for held in self._cells.values():
                held.widen(dropped)
        cells = finish_cells(part.cells, part.powers, dropped=dropped)
        pairs = cells["pair"].to_numpy()
        bounds = [*np.flatnonzero(np.diff(pairs, prepend=~pairs[:1])).tolist(), cells.height]
        for first, end in pairwise(bounds):
            self._cells.setdefault(int(pairs[first]), _CellsInOrder()).add(cells[first:end])

    def tables(self) -> TokenTables:
        """Return the tables of all pieces."""
        cells = self._merged_cells()
        if self._dropped:
            cells = at_their_means(cells)
        whole = {name: pl.concat(frames) for name, frames in self._frames.items()}
        return TokenTables(
            cells=cells,
            sequences=_sort_sequences(whole["sequences"]),
            stretches=whole["stretches"]
            if whole["stretches"]["seq"].is_sorted()
            else whole["stretches"].sort("seq", "turn", "distance"),
            rows=whole["rows"].sort("seq"),
            bad=whole["bad"].group_by("pair", "step", "slice").agg(pl.col("n_bad").sum()).sort("pair", "step", "slice"),
            anomalies=whole["anomalies"].unique(["seq", "column", "kind"]).sort("seq", "column", "kind"),
            samples=whole["samples"].sort("seq"),
        )

    def _merged_cells(self) -> pl.DataFrame:
        merged = [held.merged() for _, held in sorted(self._cells.items())]
        return pl.concat(merged, rechunk=True) if merged else pl.DataFrame(schema=CELL)


class _CellsInOrder:
    """The cells of one pair: pieces whose steps follow one another are put end to end, others are added up."""

    def __init__(self) -> None:
        self._frames: list[pl.DataFrame] = []
        self._last = -1  # the last step held
        self._waiting = 0  # cells of pieces whose steps had been there before

    def add(self, cells: pl.DataFrame) -> None:
        """Take the cells of the next piece, which are sorted."""
        steps = cells["step"]
        first, last = int(steps[0]), int(steps[-1])
        if first == self._last and not self._waiting:  # the bound between two pieces lies in a step
            before = self._frames.pop()
            held, ahead = before["step"].search_sorted(first), steps.search_sorted(first, side="right")
            shared = _add_up(pl.concat([before[held:], cells[:ahead]], rechunk=True))
            self._frames += [frame for frame in (before[:held], shared, cells[ahead:]) if frame.height]
        else:
            self._frames.append(cells)
            if first <= self._last or self._waiting:
                self._waiting += cells.height
                if self._waiting > PENDING:
                    self._frames, self._waiting = [self.merged()], 0
        self._last = max(self._last, last)

    def widen(self, dropped: int) -> None:
        """Join neighbouring bins."""
        self._frames = [widen(frame, dropped) for frame in self._frames]

    def merged(self) -> pl.DataFrame:
        """Return all cells, sorted and added up."""
        cells = pl.concat(self._frames, rechunk=True)
        return _add_up(cells) if self._waiting else cells


def finish_cells(signed: pl.DataFrame, powers: pl.DataFrame, *, dropped: int = 0) -> pl.DataFrame:
    """Join the two signs of each bin, and derive what is summed over its tokens (cells.CELL) from n and the sum of |r|.

    n and the sums of r and |r| are exact in every bin. Squares and powers are taken at a bin's mean (it is 0.39% of |r|
    wide, w nats say, so exp(r) is off by less than w^2 / 8 of itself, 5e-5 at 5 nats), and then scaled to the sums over
    all tokens of their step and slice, which are exact. `dropped`: see widen, in the same go.
    """
    key = signed["key"].to_numpy()
    n, s_abs = signed["n"].to_numpy(), signed["s_abs"].to_numpy()
    mean = s_abs / n
    r = np.where(key & np.uint64(1), -mean, mean)
    rho = np.exp(np.clip(r, -EXPONENT_CAP, EXPONENT_CAP))
    sums = {
        "s_rho": n * rho,
        "s_rho2": n * rho * rho,
        "s_r": np.where(r < 0, -s_abs, s_abs),
        "s_r2": n * r * r,
        "s_abs": s_abs,
    }
    place = (key >> np.uint64(1)).astype(np.int64)
    if dropped:
        place = (place >> BIN_BITS << BIN_BITS) | _joined(place & BIN_MASK, dropped)
    new = np.diff(place, prepend=place[:1] - 1) != 0
    at = np.cumsum(new) - 1
    place = place[new]
    added = {name: np.bincount(at, values, len(place)) for name, values in (("n", n), *sums.items())}
    group = place >> BIN_BITS
    start = np.flatnonzero(np.diff(group, prepend=-1))
    for name in POWERS:
        taken = _sums(added[name], start)
        scale = np.divide(powers[name].to_numpy(), taken, out=np.ones(len(start)), where=taken.astype(np.float64) > 0)
        added[name] = added[name] * np.repeat(scale, np.diff(start, append=len(group)))
    columns = {"pair": group // (2 * STEP_LIMIT), "step": group // 2 % STEP_LIMIT, "slice": group % 2}
    columns["bin"] = place & BIN_MASK
    return pl.DataFrame(columns | added).select(pl.col(name).cast(kind) for name, kind in CELL.items())


def widen(cells: pl.DataFrame, dropped: int) -> pl.DataFrame:
    """Join neighbouring bins, `dropped` bits of them: the bin of a cell becomes the lowest of those it joins."""
    joined = _joined(cells["bin"].to_numpy().astype(np.int64), dropped)
    return _add_up(cells.with_columns(pl.Series("bin", joined, pl.UInt16)))


def _joined(fine: IntArray, dropped: int) -> IntArray:
    inside = (fine >= 1) & (fine <= bins.BIN_COUNT)
    return np.where(inside, ((fine - 1) >> dropped << dropped) + 1, fine)


def at_their_means(cells: pl.DataFrame) -> pl.DataFrame:
    """Place cells of joined bins in the bin of their mean |r|, so that percentiles are off by less than their width."""
    fine = cells["bin"].to_numpy()
    mean = bins.bin_of(cells["s_abs"].to_numpy() / cells["n"].to_numpy()).astype(np.uint16)
    inside = (fine >= 1) & (fine <= bins.BIN_COUNT)
    return cells.with_columns(pl.Series("bin", np.where(inside, np.maximum(mean, fine), fine), pl.UInt16))


def _add_up(cells: pl.DataFrame) -> pl.DataFrame:
    """Add up cells of the same place in the order they come, sorted by place."""
    pair, step, slice_, fine = (cells[name].to_numpy().astype(np.int64) for name in ("pair", "step", "slice", "bin"))
    place = ((pair * STEP_LIMIT + step) * 2 + slice_) << BIN_BITS | fine
    del pair, step, slice_, fine
    ascending = bool((np.diff(place) >= 0).all())
    order = None if ascending else np.argsort(place, kind="stable")
    if order is not None:
        place = place[order]
    first = np.flatnonzero(np.diff(place, prepend=place[:1] - 1))
    if len(first) == cells.height:
        return cells if order is None else cells[order]
    kept = first if order is None else order[first]
    columns = {name: cells[name].gather(kept) for name in ("pair", "step", "slice", "bin")}
    for name in ("n", *SUMS):
        values = cells[name].to_numpy()
        columns[name] = pl.Series(name, _sums(values if order is None else values[order], first), CELL[name])
    return pl.DataFrame(columns)


def merge_signed(cells: pl.DataFrame) -> pl.DataFrame:
    """Add up signed cells of the same key in the order they come, sorted by key."""
    key = cells["key"].to_numpy()
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.flatnonzero(np.diff(key, prepend=~key[:1]))
    return pl.DataFrame(
        {
            "key": key[first],
            "n": _sums(cells["n"].to_numpy()[order], first),
            "s_abs": _sums(cells["s_abs"].to_numpy()[order], first),
        },
        schema=SIGNED_CELL,
    )


def merge_powers(powers: pl.DataFrame) -> pl.DataFrame:
    """Add up records of the same pair, step and slice in the order they come."""
    return grouped_sums(powers, ("pair", "step", "slice"), POWERS) if powers.height else powers


def _sums(values: npt.NDArray[np.generic], first: IntArray) -> npt.NDArray[np.generic]:
    added: npt.NDArray[np.generic] = np.add.reduceat(values, first) if len(first) else values[:0]
    return added


def _sort_sequences(sequences: pl.DataFrame) -> pl.DataFrame:
    """Sort by seq and slice; as they come they are in order, and sorting lists is slow."""
    order = 2 * sequences["seq"].to_numpy().astype(np.int64) + sequences["slice"].to_numpy()
    return sequences if (np.diff(order) > 0).all() else sequences.sort("seq", "slice")
