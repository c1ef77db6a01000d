"""Where the large log-ratios sit: after which observation of the sequence, and how many tokens after it.

Only tokens at or above FLOOR are looked at one by one; how many tokens there are comes from the runs of the mask.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.cells import STRETCH, Lists
from ptt.diagnostics.statistics.slices import Batch, ModelRuns

FLOOR: Final = 0.5
"""In nats, and the edge of a coarse bin. A late tail that begins below it matters for no pair."""
DISTANCES: Final = ("none", "0", "1", "2-3", "4-7", "8-15", "16-31", "32-63", "64-127", "128+")
"""Tokens between the last observation and the token, by octaves; `none`: no observation came before it."""

MAX_GATHERED_TOKENS: Final = 1 << 22

_OCTAVES: Final = len(DISTANCES) - 2  # above distance 0
_NEAREST: Final = np.array([0, 0, *(1 << octave for octave in range(_OCTAVES))])  # of each of DISTANCES
_FAR: Final = int(_NEAREST[-1])
_DISTANCE_OF: Final = np.searchsorted(_NEAREST[1:], np.arange(_FAR + 1), side="right")
_COARSE_OF: Final = bins.coarse_bin_of(np.arange(bins.OVERFLOW + 1))
_FIRST: Final = int(_COARSE_OF[bins.bin_of(np.array([FLOOR]))[0]])
_LARGE_OF: Final = (_COARSE_OF - _FIRST).astype(np.int32)
_LARGE_BINS: Final = bins.COARSE_COUNT - _FIRST
OF_RUNS: Final = ("row", "turn", "length", "place", "since")
_TURN_SHIFT: Final = 4
_ROW_SHIFT: Final = 36


@dataclass(frozen=True, kw_only=True)
class Large:
    """Tokens at or above FLOOR, (large,) each: their number among the finite ones, |r| and its bin."""

    token: IntArray
    magnitude: FloatArray
    fine: IntArray


@dataclass(frozen=True)
class _BatchPart:
    """What is kept of a batch until enough have come together."""

    seq: IntArray
    runs: ModelRuns
    large: IntArray  # model tokens of the batch with a large |r|, their |r| and bin
    magnitude: FloatArray
    fine: IntArray
    dropped: IntArray  # model tokens without a finite r


def distance_of(since: IntArray) -> IntArray:
    """Return the place in DISTANCES of tokens that follow an observation after `since` others."""
    return np.searchsorted(_NEAREST[1:], since, side="right")


class PositionCounter:
    """Gathers batches and folds many at a time: what is kept of one is so little that each call would be overhead."""

    def __init__(self) -> None:
        self._parts: list[_BatchPart] = []
        self._tokens = 0
        self._frames = [pl.DataFrame(schema=STRETCH)]

    def add(self, batch: Batch, large: Large, finite: BoolArray | None, kept: BoolArray | None) -> None:
        """Take the large tokens of a batch, numbered among the tokens that count.

        Those are the model tokens that are `finite`, in the rows that are `kept` (None: all).
        """
        runs = batch.runs
        token, dropped = large.token, large.token[:0]
        if kept is not None:
            here = kept[runs.row]
            finite = finite[np.repeat(here, runs.length)] if finite is not None else None
            of_runs = {name: getattr(runs, name)[here] for name in OF_RUNS}
            runs = ModelRuns(observations=runs.observations, **of_runs)
        if finite is not None:
            token, dropped = np.flatnonzero(finite)[token], np.flatnonzero(~finite)
        self._parts.append(_BatchPart(batch.seq, runs, token, large.magnitude, large.fine, dropped))
        self._tokens += int(runs.length.sum())
        if self._tokens > MAX_GATHERED_TOKENS:
            self._fold()

    def records(self) -> pl.DataFrame:
        """Return all records (cells.STRETCH)."""
        if self._parts:
            self._fold()
        counted = pl.concat(self._frames)
        return (
            counted if counted["seq"].is_sorted() else counted.sort("seq", "turn", "distance")
        )  # sorting lists is slow

    def _fold(self) -> None:
        self._frames.append(_count_positions(_concatenate(self._parts)))
        self._parts, self._tokens = [], 0


def _concatenate(parts: list[_BatchPart]) -> _BatchPart:
    """Lay batches end to end."""
    rows = np.cumsum([0, *(len(part.seq) for part in parts)])
    tokens = np.cumsum([0, *(part.runs.length.sum() for part in parts)])

    def end_to_end(field: str, shift: IntArray | None = None) -> IntArray:
        values = [attrgetter(field)(part) for part in parts]
        return np.concatenate(values if shift is None else [a + by for a, by in zip(values, shift, strict=False)])

    plain = {name: end_to_end(f"runs.{name}") for name in (*OF_RUNS, "observations") if name != "row"}
    return _BatchPart(
        seq=end_to_end("seq"),
        runs=ModelRuns(row=end_to_end("runs.row", rows), **plain),
        large=end_to_end("large", tokens),
        magnitude=np.concatenate([part.magnitude for part in parts]),
        fine=end_to_end("fine"),
        dropped=end_to_end("dropped", tokens),
    )


def _count_positions(part: _BatchPart) -> pl.DataFrame:
    row, turn, distance, start = _cut_runs(part.runs)
    bounds = np.append(start, part.runs.length.sum())
    count = np.diff(bounds - np.searchsorted(part.dropped, bounds))
    among = np.searchsorted(part.large, bounds)
    offsets, coarse, coarse_n = _coarse(part.fine, among)
    peak, peak_at = np.zeros(len(row)), np.zeros(len(row), np.int64)
    with_large = np.flatnonzero(np.diff(among))
    if len(with_large):
        peak[with_large], first = _peaks(part.magnitude, among, with_large)
        peak_at[with_large] = _position_in_row(part.runs, part.large[first])
    counted = pl.DataFrame(
        {
            "seq": part.seq[row].astype(np.uint32),
            "turn": turn.astype(np.uint32),
            "distance": distance.astype(np.uint8),
            "n": count.astype(np.uint32),
            "peak": peak,
            "peak_at": peak_at.astype(np.uint32),
            "coarse_bin": Lists(offsets, coarse.astype(np.uint8)).series("coarse_bin", STRETCH["coarse_bin"]),
            "coarse_n": Lists(offsets, coarse_n.astype(np.uint32)).series("coarse_n", STRETCH["coarse_n"]),
        }
    )
    return counted.filter(pl.col("n") > 0) if len(part.dropped) else counted


def _cut_runs(runs: ModelRuns) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Cut runs where the distance enters the next octave, and join those that a gap other than an observation split.

    Returns row, turn and distance of each stretch, and its first model token in the batch.
    """
    nearest, farthest = distances(runs.turn, np.stack([runs.since, runs.since + runs.length - 1]))
    pieces = farthest - nearest + 1
    last = np.cumsum(pieces)
    run = np.repeat(np.arange(len(pieces)), pieces)
    distance = np.arange(len(run)) + (nearest - last + pieces)[run]
    first = np.cumsum(runs.length) - runs.length
    start = first[run] + np.maximum(0, _NEAREST[distance] - runs.since[run])
    key = ((runs.row << _ROW_SHIFT) + (runs.turn << _TURN_SHIFT))[run] + distance
    fresh = np.flatnonzero(np.diff(key, prepend=-1))
    key = key[fresh]
    turn = (key >> _TURN_SHIFT) & ((1 << (_ROW_SHIFT - _TURN_SHIFT)) - 1)
    return key >> _ROW_SHIFT, turn, distance[fresh], start[fresh]


def distances(turn: IntArray, since: IntArray) -> IntArray:
    """Return which of DISTANCES tokens lie at: `turn` observations come before, the last one ends `since` before."""
    places: IntArray = np.where(turn > 0, _DISTANCE_OF[np.minimum(since, _FAR)], 0)
    return places


def _coarse(fine: IntArray, among: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Count large tokens by stretch and coarse bin; stretch i holds those from among[i] to among[i + 1]."""
    count = np.diff(among)
    used_stretches = np.flatnonzero(count)
    key = np.repeat((np.arange(len(used_stretches)) * _LARGE_BINS).astype(np.int32), count[used_stretches])
    key += _LARGE_OF[fine]
    key.sort()
    first = np.flatnonzero(np.diff(key, prepend=-1))
    used = key[first]
    n = np.diff(first, append=len(key))
    listed = np.zeros(len(count), np.int64)
    listed[used_stretches] = np.diff(np.searchsorted(used, np.arange(len(used_stretches) + 1) * _LARGE_BINS))
    return np.append(0, np.cumsum(listed)), used.astype(np.int64) % _LARGE_BINS + _FIRST, n


def _peaks(magnitude: FloatArray, among: IntArray, with_large: IntArray) -> tuple[FloatArray, IntArray]:
    """Return the greatest of each stretch in `held`, and the first large token that has it."""
    start = among[with_large]
    peak = np.maximum.reduceat(magnitude, start)
    equal = np.flatnonzero(magnitude == np.repeat(peak, np.diff(among)[with_large]))
    return peak, equal[np.searchsorted(equal, start)]


def _position_in_row(runs: ModelRuns, token: IntArray) -> IntArray:
    """Return the positions of the batch's model tokens in their rows."""
    first = np.cumsum(runs.length) - runs.length
    run = np.searchsorted(first, token, side="right") - 1
    return runs.place[run] + token - first[run]
