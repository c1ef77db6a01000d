"""Add up the tables of a run's pieces in a fixed tree: first within groups of sixteen neighbours, then the groups.

Every machine adds floats in the order of this tree. So groups can be added up where their pieces are folded, and one
process or a cluster gets the same sums to the last bit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.statistics.arrays import BoolArray
from ptt.diagnostics.statistics.cells import CELL, SUMS, grouped_sums
from ptt.diagnostics.statistics.partial_tables import (
    BY_STEP,
    SCHEMAS,
    STEP_SUMS,
    PartialTables,
    TokenTables,
    places,
    segment_sums,
)

GROUP: Final = 16
"""Pieces that are added up first, some 50 million tokens. A sixteenth of the tables is left to add up to the whole run;
with more, a file that changed would cost more neighbours, and a cluster would wait longer for the last group."""
PENDING: Final = 1 << 20  # cells that wait to be added up
MAX_NARROW: Final = (1 << 32) - 1  # tokens that a 32-bit cell can count; cells take most of a long run's memory
WIDE: Final = {"n": np.int64, **dict.fromkeys(SUMS, np.float64)}  # what they are added up in
SINGLE: Final = ("sequences", "stretches")  # tables with rows for each sequence; long runs keep only some


class Merger:
    """Adds pieces up, in their order."""

    def __init__(self) -> None:
        self._whole, self._group = _Added(), _Added()
        self._open: int | None = None  # number of the group that pieces are added to

    def add(self, number: int, part: PartialTables) -> None:
        """Take the next piece; `number`: its place among all pieces of the run, counted from 0."""
        if self._open != (group := group_of(number)):
            self._close()
            self._open = group
        self._group.add(part)

    def add_group(self, part: PartialTables) -> None:
        """Take the next group, as merge_group gives it."""
        self._close()
        self._whole.add(part)

    def tables(self) -> TokenTables:
        """Return the tables of all pieces."""
        self._close()
        return self._whole.tables()

    def _close(self) -> None:
        if self._open is not None:
            self._whole.add(self._group.partial())
            self._group, self._open = _Added(), None


def group_of(number: int) -> int:
    """Return the number of the group that a piece belongs to."""
    return number // GROUP


def is_group(number: int, pieces: int) -> bool:
    """Tell whether this many pieces, from this number on, make a whole group of more than one."""
    return number % GROUP == 0 and pieces == GROUP > 1


def merge_group(parts: Iterable[PartialTables]) -> PartialTables:
    """Add up the pieces of a group, given in their order."""
    added = _Added()
    for part in parts:
        added.add(part)
    return added.partial()


def only_kept(part: PartialTables, kept: BoolArray | None, first: int) -> PartialTables:
    """Leave out the single sequences that are not kept one by one; `first`: the sequence that `kept` begins with."""
    if kept is None:
        return part
    tables = {name: getattr(part, name) for name in SCHEMAS}
    for name in SINGLE:
        tables[name] = tables[name].filter(kept[tables[name]["seq"].to_numpy().astype(np.int64) - first])
    return PartialTables(**tables)


def pack(kept: BoolArray | None, first: int, end: int) -> bytes:
    """Return a bit for each sequence from `first` to before `end`, or nothing where all are kept."""
    return b"" if kept is None else np.packbits(kept[first:end]).tobytes()


def unpack(packed: bytes, sequences: int) -> BoolArray | None:
    """Return what was packed."""
    if not packed:
        return None
    return np.unpackbits(np.frombuffer(packed, np.uint8), count=sequences).astype(np.bool_)


def covers(held: bytes, wanted: bytes) -> bool:
    """Tell whether all sequences kept in `wanted` are among those in `held`, both packed and of the same sequences."""
    if not held or not wanted:
        return not held
    bits, asked = (np.frombuffer(packed, np.uint8) for packed in (held, wanted))
    return len(bits) == len(asked) and not (asked & ~bits).any()


class _Added:
    """Tables that are added up in the order they come."""

    def __init__(self) -> None:
        self._cells: dict[int, _CellsInOrder] = {}  # by pair
        self._frames: dict[str, list[pl.DataFrame]] = {
            name: [pl.DataFrame(schema=schema)] for name, schema in SCHEMAS.items() if name != "cells"
        }

    def add(self, part: PartialTables) -> None:
        """Take the next tables."""
        for name, frames in self._frames.items():
            frame: pl.DataFrame = getattr(part, name)
            if frame.height:
                frames.append(frame)
        pairs = part.cells["pair"].to_numpy()
        bounds = [*np.flatnonzero(np.diff(pairs, prepend=~pairs[:1])).tolist(), part.cells.height]
        for first, end in pairwise(bounds):
            self._cells.setdefault(int(pairs[first]), _CellsInOrder()).add(part.cells[first:end])

    def partial(self) -> PartialTables:
        """Return what they add up to, and let go of them.

        Each table is in one piece of memory: later sums over it depend on how it is held, to the last digit.
        """
        cells = self._merged_cells()
        whole = {}
        for name in list(self._frames):  # one after the other, so that one alone is there twice
            whole[name] = pl.concat(self._frames.pop(name), rechunk=True)
        whole |= {"steps": _sum_steps(whole), "bad": _sum_bad(whole)}
        return PartialTables(cells=cells, **whole)

    def tables(self) -> TokenTables:
        """Return the tables of the run, and let go of the parts."""
        cells = self._merged_cells()
        whole = {name: pl.concat(self._frames.pop(name)) for name in list(self._frames)}
        return TokenTables(
            cells=cells,
            steps=_sum_steps(whole),
            losing=whole["losing"].group_by("seq").agg(pl.col("n_bad").sum()).sort("seq"),
            sequences=_sort_sequences(whole["sequences"]),
            stretches=_sorted(whole["stretches"], "seq", "turn", "distance"),
            rows=_sorted(whole["rows"], "seq"),
            bad=_sum_bad(whole),
            anomalies=_of_main_pair(whole["anomalies"]),
            samples=_sorted(whole["samples"], "seq"),
        )

    def _merged_cells(self) -> pl.DataFrame:
        """Return the cells of all pairs and drop the parts: they are most of the memory that a long run takes."""
        merged = [self._cells.pop(pair).merged() for pair in sorted(self._cells)]
        return _end_to_end(merged) if merged else pl.DataFrame(schema=CELL)


def _sorted(frame: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Sort rows that come in order of their sequences as a rule, and sorting copies them."""
    return frame if frame["seq"].is_sorted() else frame.sort(by)


def _of_main_pair(anomalies: pl.DataFrame) -> pl.DataFrame:
    """Keep what the first pair says of a column that several pairs share: each counts tokens of its own."""
    key = ["seq", "column", "kind"]
    return anomalies.unique(key, keep="first", maintain_order=True).sort(key)


def _sum_steps(whole: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    return grouped_sums(whole["steps"], BY_STEP, STEP_SUMS)


def _sum_bad(whole: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    by = ("pair", "step", "slice")
    return whole["bad"].group_by(by).agg(pl.col("n_bad").sum()).sort(by)


class _CellsInOrder:
    """The cells of one pair: pieces of consecutive steps are put end to end, others are added up."""

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
            shared = _add_up(_end_to_end([before[held:], cells[:ahead]]))
            self._frames += [frame for frame in (before[:held], shared, cells[ahead:]) if frame.height]
        else:
            self._frames.append(cells)
            if first <= self._last or self._waiting:
                self._waiting += cells.height
                if self._waiting > PENDING:
                    self._frames, self._waiting = [self.merged()], 0
        self._last = max(self._last, last)

    def merged(self) -> pl.DataFrame:
        """Return all cells, sorted and added up, and let go of the parts."""
        cells = _end_to_end(self._frames)
        return _add_up(cells) if self._waiting else cells


def _end_to_end(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Concatenate frames of cells and empty the list; `n` becomes Int64 where any frame has it so.

    Column by column, so that only one column is in memory twice.
    """
    columns = {name: [frame[name] for frame in frames] for name in CELL}
    frames.clear()
    return pl.DataFrame([_joined(columns.pop(name)) for name in CELL])


def _joined(parts: list[pl.Series]) -> pl.Series:
    if len({part.dtype for part in parts}) > 1:
        parts = [part.cast(pl.Int64) for part in parts]
    return pl.concat(parts, rechunk=True)


def _add_up(cells: pl.DataFrame) -> pl.DataFrame:
    """Add up cells of the same place in the order they come, sorted by place."""
    place = places(cells)
    ascending = bool((np.diff(place) >= 0).all())
    order = None if ascending else np.argsort(place, kind="stable")
    if order is not None:
        place = place[order]
    first = np.flatnonzero(np.diff(place, prepend=place[:1] - 1))
    if len(first) == cells.height:
        return cells if order is None else cells[order]
    kept = first if order is None else order[first]
    columns = {name: cells[name].gather(kept) for name in ("pair", "step", "slice", "bin", "wide")}
    for name in ("n", *SUMS):
        values = cells[name].to_numpy()
        values = segment_sums((values if order is None else values[order]).astype(WIDE[name], copy=False), first)
        narrow = name != "n" or values.max() <= MAX_NARROW
        columns[name] = pl.Series(name, values, CELL[name] if narrow else pl.Int64())
    return pl.DataFrame(columns)


def _sort_sequences(sequences: pl.DataFrame) -> pl.DataFrame:
    """Sort by seq and slice; as they come they are in order, and sorting lists is slow."""
    order = 2 * sequences["seq"].to_numpy().astype(np.int64) + sequences["slice"].to_numpy()
    return sequences if (np.diff(order) > 0).all() else sequences.sort("seq", "slice")
