"""Check that tables and records could come from this piece: what was kept may be damaged, or belong to another run.

Readers use values of these tables as array indices and bin widths. A refused piece is computed again, so a check that
is too strict costs only time. The records of a piece's first batches are kept unmerged: when the run has grown, the
piece continues from them, and its tables come out the same to the last bit."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.flat_lists import flatten, list_offsets
from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.cells import (
    BIN_BITS,
    KINDS,
    LOGP_COLUMNS,
    POWERS,
    SAMPLE,
    SEQUENCE_SUMS,
    STEP_LIMIT,
    STRETCH,
    SUMS,
    Columns,
    Lists,
)
from ptt.diagnostics.statistics.fill_values import Anomaly
from ptt.diagnostics.statistics.observation_position import DISTANCES, FLOOR
from ptt.diagnostics.statistics.partial_tables import SCHEMAS, PartialTables, TableSet, places

MAY_LACK: Final[Mapping[str, tuple[str, ...]]] = {
    "rows": ("step",),  # in a row whose lists differ in length
    "samples": ("step", "model_mask", *LOGP_COLUMNS),
}
ROUNDING: Final = 1e-6  # relative, for a sum of up to 2^32 values
COARSE_FLOOR: Final = int(bins.coarse_bin_of(bins.bin_of(np.array([FLOOR])))[0])


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What the tables must cover: sequences from `first` to before `end`, and how they were folded (see PassPlan)."""

    first: int
    end: int
    pairs: int
    bits_dropped: int
    sample_every: int


@dataclass(frozen=True, kw_only=True)
class _Sequences:
    """The rows' facts by sequence, (sequences,) from the first one on; `step` is -1 where there is no row."""

    first: int
    step: IntArray
    known: BoolArray  # has a row
    ok: BoolArray
    length: IntArray
    n_model: IntArray
    n_obs: IntArray

    def place(self, frame: pl.DataFrame, *, sound: bool = True) -> IntArray | None:
        """Return the indices of a table's sequences; None if one has no row, a bad row, or another step."""
        at = frame["seq"].to_numpy().astype(np.int64) - self.first
        if not _all((at >= 0) & (at < len(self.step))) or not _all((self.ok if sound else self.known)[at]):
            return None
        return at if "step" not in frame.columns or np.array_equal(_steps(frame), self.step[at]) else None

    def have(self, step: IntArray) -> bool:
        """Tell whether all of these are steps of sound rows."""
        return bool(np.isin(step, self.step[self.ok]).all())


def _complete(tables: TableSet, schemas: Mapping[str, Mapping[str, pl.DataType]]) -> bool:
    """Tell whether every table has its columns, and nulls only where it may."""
    for name, schema in schemas.items():
        frame: pl.DataFrame = getattr(tables, name)
        whole = [column for column in schema if column not in MAY_LACK.get(name, ())]
        if dict(frame.schema) != schema or any(frame[column].null_count() for column in whole):
            return False
    return True


def is_sound(part: PartialTables, expected: Expected) -> bool:
    """Tell whether tables that were read back can be those of some sequences."""
    sequences = _sequences(part.rows, expected) if _complete(part, SCHEMAS) else None
    return (
        sequences is not None
        and _sound_cells(part, sequences, expected)
        and _sound_single(part, sequences)
        and _sound_stretches(part.stretches, sequences)
        and _sound_losses(part, sequences, expected)
        and _sound_samples(part.samples, sequences, expected)
    )


def _all(flags: BoolArray) -> bool:
    return bool(flags.all())


def _integers(frame: pl.DataFrame, *names: str) -> list[IntArray]:
    return [frame[name].to_numpy().astype(np.int64) for name in names]


def _steps(frame: pl.DataFrame) -> IntArray:
    """Return the steps of rows, -1 for none."""
    return (frame["step"].fill_null(-1) if frame["step"].null_count() else frame["step"]).to_numpy()


def _finite(frame: pl.DataFrame, names: tuple[str, ...]) -> bool:
    return all(_all(np.isfinite(frame[name].to_numpy())) for name in names)


def _distinct(key: IntArray) -> bool:
    return _all(key[1:] > key[:-1]) or len(np.unique(key)) == len(key)


def _sequences(rows: pl.DataFrame, expected: Expected) -> _Sequences | None:
    """Lay out the rows by sequence; None where they contradict themselves."""
    seq, length, n_model, n_obs = _integers(rows, "seq", "length", "n_model", "n_obs")
    ok, step = rows["ok"].to_numpy(), _steps(rows)
    at = seq - expected.first
    if not _all((at >= 0) & (seq < expected.end)) or not _distinct(at):
        return None
    counts = (n_model <= length) & (n_obs <= length)
    if not _all(np.where(ok, counts & (step >= 0) & (step < STEP_LIMIT), length + n_model + n_obs == 0)):
        return None
    size = expected.end - expected.first

    def laid_out(values: IntArray, absent: int) -> IntArray:
        out = np.full(size, absent, np.int64)
        out[at] = values
        return out

    return _Sequences(
        first=expected.first,
        step=laid_out(step, -1),
        known=laid_out(np.ones(len(at), np.int64), 0).astype(np.bool_),
        ok=laid_out(ok.astype(np.int64), 0).astype(np.bool_),
        length=laid_out(length, 0),
        n_model=laid_out(n_model, 0),
        n_obs=laid_out(n_obs, 0),
    )


def _sound_cells(part: PartialTables, sequences: _Sequences, expected: Expected) -> bool:
    """Check that each cell's keys are possible, its sums fit tokens in its bins, and its steps are known."""
    cells = part.cells
    if cells.is_empty():
        return part.steps.is_empty() and part.sequences.is_empty()
    pair, step, slice_, low, wide, n = (
        cells[name].to_numpy() for name in ("pair", "step", "slice", "bin", "wide", "n")
    )
    numbered = pair.max() < expected.pairs and 0 <= step.min() <= step.max() < STEP_LIMIT
    of = numbered and slice_.max() <= 1 and low.max() <= bins.OVERFLOW and n.min() > 0
    same_width = wide.min() == wide.max() == expected.bits_dropped
    width = 1 << expected.bits_dropped
    aligned = width == 1 or _all((low == bins.UNDERFLOW) | ((low - np.uint16(1)) & np.uint16(width - 1) == 0))
    if not (of and same_width and aligned):
        return False
    place = places(cells)
    if not _all(place[1:] > place[:-1]):
        return False
    group = place >> BIN_BITS
    start = np.append(0, np.flatnonzero(group[1:] != group[:-1]) + 1)
    main = group[start] < 2 * STEP_LIMIT
    counted = np.add.reduceat(n, start, dtype=np.int64)
    of_rows = sequences.have(group[start] // 2 % STEP_LIMIT)
    if not of_rows or not _sound_steps(part, int(sequences.ok.sum()), group[start][main], counted[main]):
        return False
    sums = {name: cells[name].to_numpy() for name in SUMS}
    mean = sums["s_abs"] / n
    inside = _all(mean >= EDGES[low]) and _all(mean <= _upper_edges(width)[low])
    signs = _all(np.abs(sums["s_r"]) <= sums["s_abs"] * (1 + ROUNDING))
    return inside and signs and all(0 <= sums[name].min() <= sums[name].max() < np.inf for name in POWERS)


EDGES: Final = bins.lower_edge(np.arange(bins.OVERFLOW + 1)) * (1 - ROUNDING)


@cache
def _upper_edges(width: int) -> FloatArray:
    """Return, for each bin, the upper edge of a cell that begins there and spans `width` bins."""
    low = np.arange(bins.OVERFLOW + 1)
    above = np.where(low == bins.UNDERFLOW, 1, np.minimum(low + width, bins.OVERFLOW))
    return np.where(low == bins.OVERFLOW, np.finfo(np.float64).max, bins.lower_edge(above) * (1 + ROUNDING))


def _sound_steps(part: PartialTables, rows: int, known: IntArray, counted: IntArray) -> bool:
    """Check the sums by step and slice: as many tokens as the main pair's cells, and no fewer than single sequences.

    `rows`: how many sequences there are; `known`: (groups,) 2 * step + slice of these cells, ascending; `counted`:
    their tokens.
    """
    steps, slices, sequences, tokens = _integers(part.steps, "step", "slice", "sequences", "n")
    if not np.array_equal(known, 2 * steps + slices) or not np.array_equal(counted, tokens):
        return False
    some = (sequences > 0) & (sequences <= rows)
    if not _all((slices <= 1) & some) or not _finite(part.steps, ("s_r", "s_inv", "s_inv2")):
        return False
    single_step, single_slice, single_n = _integers(part.sequences, "step", "slice", "n")
    of = 2 * single_step + single_slice
    at = np.searchsorted(np.append(known, np.iinfo(np.int64).max), of)
    if not _all((single_slice <= 1) & np.isin(of, known)):
        return False
    single, added = np.bincount(at, minlength=len(known)), np.bincount(at, single_n, minlength=len(known))
    return _all((single <= sequences) & (added <= tokens))


def _sound_single(part: PartialTables, sequences: _Sequences) -> bool:
    """Check the tables of single sequences: no more tokens than these have, and histograms of all of them."""
    frame = part.sequences
    at = sequences.place(frame)
    if at is None or not _finite(frame, (*SEQUENCE_SUMS, "min_r", "max_r")):
        return False
    slice_, n, n_bad = _integers(frame, "slice", "n", "n_bad")
    if not _distinct(2 * at + slice_) or not _all(n > 0):
        return False
    tokens = np.bincount(at, n + n_bad, minlength=len(sequences.step))
    listed = _listed(frame, lowest=0)
    ordered = _all(frame["min_r"].to_numpy() <= frame["max_r"].to_numpy())
    return ordered and _all(tokens <= sequences.n_model) and listed is not None and np.array_equal(listed, n)


def _sound_stretches(frame: pl.DataFrame, sequences: _Sequences) -> bool:
    at = sequences.place(frame)
    if at is None:
        return False
    turn, distance, n, peak_at = _integers(frame, "turn", "distance", "n", "peak_at")
    peak = frame["peak"].to_numpy()
    inside = (turn <= sequences.n_obs[at]) & (distance < len(DISTANCES)) & (n > 0) & (peak_at < sequences.length[at])
    if not _all(inside) or not _distinct(at << 36 | turn << 4 | distance) or not _all(np.isfinite(peak)):
        return False
    listed = _listed(frame, lowest=COARSE_FLOOR)
    if listed is None or not _all(listed <= n):
        return False
    tokens = np.bincount(at, n, minlength=len(sequences.step))
    return _all(tokens <= sequences.n_model) and _all(np.where(listed > 0, peak >= FLOOR, (peak == 0) & (peak_at == 0)))


def _listed(frame: pl.DataFrame, *, lowest: int) -> IntArray | None:
    """Return how many tokens each coarse histogram holds; None if any histogram is malformed."""
    (offsets, bin_), (others, n) = (flatten(frame[name]) for name in ("coarse_bin", "coarse_n"))
    if not np.array_equal(offsets, others) or bin_.dtype != np.uint8 or n.dtype != np.uint32:
        return None  # a null among integers makes them floats
    ascending = np.diff(bin_.astype(np.int64), prepend=-1) > 0
    ascending[offsets[:-1][offsets[:-1] < len(bin_)]] = True
    if not _all(ascending & (bin_ >= lowest) & (bin_ < bins.COARSE_COUNT) & (n > 0)):
        return None
    total = np.append(0, np.cumsum(n, dtype=np.int64))
    return np.diff(total[offsets])


def _sound_losses(part: PartialTables, sequences: _Sequences, expected: Expected) -> bool:
    """Check the counts of unusable tokens."""
    pair, step, slice_, n_bad = _integers(part.bad, "pair", "step", "slice", "n_bad")
    lost = (n_bad > 0) & (n_bad <= sequences.n_model.sum())
    if not _all((pair < expected.pairs) & (slice_ <= 1) & lost) or not sequences.have(step):
        return False
    losing, strange = sequences.place(part.losing), sequences.place(part.anomalies)
    if losing is None or strange is None:
        return False
    (of_each,) = _integers(part.losing, "n_bad")
    column, kind, n = _integers(part.anomalies, "column", "kind", "n")
    named = (column < len(LOGP_COLUMNS)) & (kind <= max(Anomaly)) & (n > 0) & (n <= sequences.n_model[strange])
    return _all((of_each > 0) & (of_each <= sequences.n_model[losing])) and _all(named)


def _sound_samples(samples: pl.DataFrame, sequences: _Sequences, expected: Expected) -> bool:
    """Check that every `sample_every`-th sequence is there once, with a mask as long as its row says."""
    at = sequences.place(samples, sound=False)
    if at is None or not _distinct(at):
        return False
    every = np.arange(sequences.first, sequences.first + len(sequences.step))
    wanted = (
        sequences.known & (every % expected.sample_every == 0) if expected.sample_every else sequences.known & False
    )
    if len(at) != wanted.sum() or not _all(wanted[at]):
        return False
    length = np.diff(list_offsets(samples["model_mask"]))
    return _all(~sequences.ok[at] | (length == sequences.length[at]))


@dataclass(frozen=True, kw_only=True)
class BegunPiece(TableSet):
    """The records of the first batches of a piece, in the order they came; only `stretches` and `samples` are whole."""

    cells: pl.DataFrame
    powers: pl.DataFrame
    totals: pl.DataFrame
    single: pl.DataFrame
    stretches: pl.DataFrame
    rows: pl.DataFrame
    bad: pl.DataFrame
    anomalies: pl.DataFrame
    samples: pl.DataFrame


BEGUN_SCHEMAS: Final = {**KINDS, "stretches": STRETCH, "samples": SAMPLE}
SIGN_AND_BIN: Final = BIN_BITS + 1  # the low bits of a key


def as_records(frame: pl.DataFrame) -> Columns:
    """Return a table as the records of one batch."""
    return {column.name: _values(column) for column in frame}


def _values(column: pl.Series) -> npt.NDArray[Any] | pl.Series | Lists:
    if column.null_count():  # as of rows that cannot be laid out
        return column
    return Lists(*flatten(column)) if isinstance(column.dtype, pl.List) else column.to_numpy()


def can_go_on(begun: BegunPiece, kept: BoolArray | None, first: int, end: int) -> bool:
    """Tell whether records read back can be added up; the sums still have to be checked.

    `kept`: for the sequences from `first` on, whether they are kept one by one (None: all are); `end`: after the last.
    Sums go by the keys of cells, so powers must have the same steps and slices.
    """
    if not _complete(begun, BEGUN_SCHEMAS) or not all(_whole_lists(frame) for frame in (begun.single, begun.stretches)):
        return False
    at = begun.totals["seq"].to_numpy().astype(np.int64) - first
    if not ((at >= 0) & (at < end - first)).all() or begun.single.height != (
        len(at) if kept is None else kept[at].sum()
    ):
        return False
    if not begun.powers["step"].is_between(0, STEP_LIMIT - 1).all() or not (begun.cells["n"] > 0).all():
        return False
    key = begun.cells["key"].to_numpy()
    fine = (key >> np.uint64(1)) & np.uint64((1 << BIN_BITS) - 1)
    groups = np.unique(key >> np.uint64(SIGN_AND_BIN))
    return bool((fine <= bins.OVERFLOW).all()) and np.array_equal(groups, np.unique(_groups(begun.powers)))


def _whole_lists(frame: pl.DataFrame) -> bool:
    """Tell whether histograms have a count for each bin; a null in one makes its numbers floats."""
    (offsets, bin_), (others, n) = (flatten(frame[name]) for name in ("coarse_bin", "coarse_n"))
    return np.array_equal(offsets, others) and bin_.dtype == np.uint8 and n.dtype == np.uint32


def _groups(powers: pl.DataFrame) -> npt.NDArray[np.uint64]:
    """Return pair, step and slice, packed as in the keys of cells."""
    pair, step, slice_ = (powers[name].to_numpy().astype(np.int64) for name in ("pair", "step", "slice"))
    groups: npt.NDArray[np.uint64] = ((pair * STEP_LIMIT + step) * 2 + slice_).astype(np.uint64)
    return groups
