"""Run the token pass on this machine, around files that turn out to be damaged inside."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import closing, suppress
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from zlib import crc32

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.config import Settings
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.engines import freed_memory
from ptt.diagnostics.engines.pieces import (
    Group,
    KeptPieces,
    Piece,
    RunPieces,
    RunSum,
    Summand,
    cut,
    fold_begun,
    fold_in_order,
    fold_one,
    group_name,
    groups_of,
    in_order,
    needed,
)
from ptt.diagnostics.schema import FIGURE, LOGPS
from ptt.diagnostics.statistics.arrays import BoolArray
from ptt.diagnostics.statistics.bins import WIDTH
from ptt.diagnostics.statistics.cells import LOGP_COLUMNS, cell_width
from ptt.diagnostics.statistics.fill_values import Fills, find_fills, sampled_tokens
from ptt.diagnostics.statistics.logprob_pairs import Pair, available_pairs
from ptt.diagnostics.statistics.merge_tree import GROUP, Merger, merge_group
from ptt.diagnostics.statistics.partial_tables import (
    SINGLE_SEQUENCES,
    WIDER,
    PartialTables,
    TokenTables,
    bits_dropped,
    kept_sequences,
    share_kept,
)
from ptt.diagnostics.statistics.token_pass import PassPlan, Single, batch_rows, fold
from ptt.diagnostics.store.deduplicate_sources import SequenceFile
from ptt.diagnostics.store.ingest import PIECES
from ptt.diagnostics.store.manifest import Manifest
from ptt.diagnostics.store.scan import (
    ATTRIBUTE,
    READ_ERRORS,
    SequenceScan,
    SingleValues,
    find_damaged,
    read_tokens,
    scan_readable,
    unreadable_files,
    write_tokens,
)
from ptt.diagnostics.wording import sig

FIRST_LOOK = 1 / 8  # of a run's sequences: after so many its samples are first searched for fill values
LOOK_AGAIN = 1.25  # times as many
SAMPLED_TOKENS = 150_000  # of sequences kept whole: most tokens are nearly certain and say nothing
APART_FROM = 1 << 26  # tokens: fewer are folded before other processes have begun
LONE_UNITS = np.uint64(1 << 32)  # sequences without a prompt group have numbers below this, as CRC-32s have
MEMORY_KEPT_FROM = 1 << 26  # tokens: of fewer, the pages that are mapped anew cost less than 0.1 s
PLACEHOLDERS = 4  # tables kept by an earlier version left out other tokens, or had all sequences

SCALARS = ("sample_id", "group_id", "trajectory_id", "env", "rank", "reward", "policy_version", "temperature",
           "top_p", "logp_kind", "tool_names", "tool_failed")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The token tables of a run, what they are of, and what was lost.

    Where no pair of logprobs is recorded, `pairs` is empty, and so are all tables but those of rows and of samples.
    """

    tables: TokenTables
    pairs: tuple[Pair, ...]
    scan: SequenceScan
    kept: Future[None] | None = None  # done when the tables are in the store's cache
    early: Future[pl.DataFrame] | None = None  # the scalars, read while the tokens were

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said of the sequences: which are recorded more than once, and what is taken of some alone."""
        return (*self.scan.notes, *_resolution(self.tables, self.scan.rows))

    @cached_property
    def scalars(self) -> pl.DataFrame:
        """Every sequence's single values (ids, rank, version, reward), by `seq`; lists of tokens are not touched."""
        return (read_scalars(self.scan) if self.early is None else self.early.result()).drop("step")

    @cached_property
    def sound_rows(self) -> pl.DataFrame:
        """The lines of the sequences whose lists fit together."""
        rows = self.tables.rows
        return rows if rows["ok"].all() else rows.filter("ok")  # which copies them

    @cached_property
    def single_scalars(self) -> pl.DataFrame:
        """The single values of the sequences that a long run keeps one by one; of a shorter run all."""
        return self._of_single(self.scalars)

    @cached_property
    def single_rows(self) -> pl.DataFrame:
        """The sound rows of these sequences, without `ok`."""
        return self._of_single(self.sound_rows.drop("ok"))

    def _of_single(self, frame: pl.DataFrame) -> pl.DataFrame:
        if self.scan.rows <= SINGLE_SEQUENCES:
            return frame
        kept = np.zeros(self.scan.rows, np.bool_)
        kept[self.tables.sequences["seq"].to_numpy()] = True
        return frame.filter(kept[frame["seq"].to_numpy()])


def _resolution(tables: TokenTables, sequences: int) -> Iterator[str]:
    """Say what is coarser in a run of many steps, and what is taken of a share of many sequences."""
    if (width := cell_width(tables.cells)) > 1:
        steps = tables.cells["step"].n_unique()
        yield (
            f"A run of {steps:,} recorded steps: sums and means are of all tokens as ever, and percentiles of |r| are "
            f"known to {sig(100 * width * WIDTH)}% of their value ({100 * WIDTH:.1g}% in runs of up to {WIDER[0][0]} "
            "steps)."
        )
    if (share := share_kept(sequences)) > 1:
        kept = tables.sequences["seq"].n_unique()
        yield (
            f"A run of {sequences:,} sequences: counts, means and percentiles are of all of them; intervals, "
            f"effective sample sizes, who holds the tail, and lists of single sequences are of {kept:,}, one prompt "
            f"group in {share} of each step."
        )


def read_scalars(scan: SequenceScan, single: SingleValues | None = None) -> pl.DataFrame:
    """Read the steps and the columns of single values, by `seq`; or take them from what was read before."""
    columns = ["seq", *scalar_columns(scan)]
    held = single.take(scan, columns) if single is not None else None
    try:
        rows = scan.frame.select(columns).collect(engine="streaming") if held is None else held.collect()
    except READ_ERRORS:  # damage in a figure costs the figures alone; any other is raised again
        columns = [name for name in columns if not name.startswith(FIGURE)]
        rows = scan.frame.select(columns).collect(engine="streaming")
    return rows.rechunk()  # a piece for each of 10,000 files makes one join take 2 s and 1 GB


def scalar_columns(scan: SequenceScan) -> list[str]:
    """Return the columns of single values of a run."""
    columns = ["step", *(name for name in SCALARS if name in scan.columns)]
    return columns + sorted(name for name in scan.columns if name.startswith((ATTRIBUTE, FIGURE)))


def read_token_tables(
    folder: Path,
    manifest: Manifest,
    root: Path,
    *,
    settings: Settings,
    background: Executor,
    damaged: dict[str, str],
    keep: bool = True,
    run_pieces: RunPieces | None = None,
    progress: Callable[[int, int], None] | None = None,
    single: SingleValues | None = None,
) -> Tokens | None:
    """Return the token tables, from the store's cache where they are; None where no sequence is recorded.

    `damaged`: files that are left out, each with what is wrong with it; those that turn out to be are added.
    `run_pieces`: folds a long run's pieces elsewhere. `single`: what was read of the files before.
    """
    source = _Source(folder, manifest, root, background, single)
    if not source.open(damaged):
        return None
    key: dict[str, object] = {
        "min_observation": settings.min_observation,
        "pairs": [pair.name for pair in source.pairs],
        "files": _hash_scan(source.scan),
        "placeholders": PLACEHOLDERS,
        "group": GROUP,  # pieces that are added up first, which decides the last digits
    }
    if not damaged and (tables := read_tokens(folder, key)) is not None:
        return source.tokens(tables)
    with freed_memory.kept(long=source.scan.rows * source.scan.tokens_per_row >= MEMORY_KEPT_FROM):
        pieces = KeptPieces(folder / PIECES) if keep else None
        folded = _fold_readable(source, Folding(settings.min_observation, pieces, run_pieces, progress), damaged)
    if folded is None:
        return None
    if damaged:
        # kept for comparisons alone: under a key that the next run does not ask for, so that it reports them again
        key["damaged"] = sorted(damaged)
    return source.tokens(folded, background.submit(write_tokens, folder, key, folded) if keep else None)


class _Source:
    """The sequences of a run that can be read; their single values are read in the background meanwhile."""

    scan: SequenceScan
    pairs: tuple[Pair, ...]
    scalars: Future[pl.DataFrame]

    def __init__(
        self, folder: Path, manifest: Manifest, root: Path, background: Executor, single: SingleValues | None
    ) -> None:
        self.manifest, self.root = manifest, root
        self._folder, self._background, self._single = folder, background, single

    def open(self, damaged: dict[str, str]) -> bool:
        """Scan the files except the damaged ones; False if no sequence is left."""
        scan = scan_readable(self._folder, self.manifest, self.root, damaged)
        if scan is None:
            return False
        self.scan, self.pairs = scan, _order_pairs(scan)
        self.scalars = self._background.submit(read_scalars, scan, self._single)
        return True

    def tokens(self, tables: TokenTables, kept: Future[None] | None = None) -> Tokens:
        """Return what was made of them."""
        return Tokens(tables=tables, pairs=self.pairs, scan=self.scan, kept=kept, early=self.scalars)


def _fold_readable(source: _Source, folding: Folding, damaged: dict[str, str]) -> TokenTables | None:
    """Fold what can be read; what cannot is added to `damaged`. None where no sequence is left.

    A function, so that the parts of the tables are gone before free memory is returned.
    """
    while True:
        try:
            return folding.tables(source.scan, source.pairs, source.scalars)
        except READ_ERRORS:
            unreadable = _find_damaged(source.manifest, source.root, source.scan, folding.suspects, damaged)
            if unreadable.keys() <= damaged.keys():
                raise
            damaged |= unreadable
            if not source.open(damaged):
                return None


def _hash_scan(scan: SequenceScan) -> str:
    """Name the choice of files and steps that the tables are made from."""
    chosen = [(file.name, file.first_row, file.rows, file.columns, sorted(file.skipped)) for file in scan.files]
    return sha256(repr(chosen).encode("utf-8", "surrogateescape")).hexdigest()


def _find_damaged(
    manifest: Manifest, root: Path, scan: SequenceScan, suspects: Sequence[SequenceFile], known: Collection[str]
) -> dict[str, str]:
    """Find the unreadable files: among those that just failed to read, or else among all."""
    if suspects:
        others = {file.name for file in scan.files} - {file.name for file in suspects}
        if found := find_damaged(manifest, root, without=others | set(known)):
            return found
    return find_damaged(manifest, root)


@dataclass(frozen=True, kw_only=True)
class _Unit:
    """What is read or folded as one: a single piece, or a group of pieces."""

    pieces: tuple[Piece, ...]
    names: tuple[str, ...]  # of its pieces
    name: str  # its own
    found: bool  # in the store
    group: Group | None = None


class _EarlyFills:
    """Finds fill values before a run is folded to its end: what two searches in a row find is folded without at once.

    Only the whole run decides; a first part that says something else costs another pass.
    """

    def __init__(self, rows: int) -> None:
        """`rows`: the run's sequences."""
        self.sure: dict[str, Fills] = {}
        self._rows, self._next = rows, FIRST_LOOK * rows
        self._found: dict[str, Fills] = {}
        self._samples: list[pl.DataFrame] = []

    def see(self, samples: pl.DataFrame, end: int) -> bool:
        """Take the samples of the next piece, which ends before sequence `end`; return whether that was enough."""
        self._samples.append(samples)
        if self._next <= end < self._rows:
            before, self._found = self._found, find_fills(sampled_tokens(pl.concat(self._samples), LOGP_COLUMNS))
            self.sure = self._found if self._found == before else {}
            self._next = LOOK_AGAIN * end
        return bool(self.sure)


class Folding:
    """Folds a run piece by piece, and goes on where a file turned out to be damaged and the run is without it now.

    A run without a file has the same pieces up to that file, and others from there on.
    """

    def __init__(
        self,
        min_observation: int,
        kept_pieces: KeptPieces | None,
        run_pieces: RunPieces | None,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        """`kept_pieces`: where pieces are kept; `run_pieces`: folds them elsewhere."""
        self.suspects: Sequence[SequenceFile] = ()  # files of what could not be read
        self._min_observation, self._progress = min_observation, progress
        self._kept_pieces, self._run_pieces = kept_pieces, run_pieces
        self._sum: RunSum | None = None
        self._used: set[str] = set()  # names of pieces
        self._done = 0  # sequences

    def tables(self, scan: SequenceScan, pairs: tuple[Pair, ...], scalars: Future[pl.DataFrame]) -> TokenTables:
        """Fold all pieces, and once more where their samples show values that stand for no logprob."""
        self.suspects = ()
        self._used.clear()
        try:
            steps = scalars.result()["step"].n_unique()
        except READ_ERRORS:
            self.suspects = unreadable_files(scan.files, scalar_columns(scan))
            raise
        plan = PassPlan(
            pairs=pairs,
            min_observation=self._min_observation,
            batch_rows=batch_rows(scan.first_tokens_per_row or scan.tokens_per_row),
            sample_every=_sample_every(scan),
            bits_dropped=bits_dropped(steps),
            doubles=_doubles(scan),
        )
        kept = kept_sequences(*_units(scan, scalars)) if scan.rows > SINGLE_SEQUENCES else None
        early = _EarlyFills(scan.rows)
        tables = self._added_up(scan, plan, kept, early)
        fills = early.sure or find_fills(sampled_tokens(tables.samples, LOGP_COLUMNS))
        while fills != plan.fills:
            plan = replace(plan, fills=fills)
            tables = self._added_up(scan, plan, kept)
            fills = find_fills(sampled_tokens(tables.samples, LOGP_COLUMNS))
        if self._kept_pieces is not None:
            with suppress(OSError):  # what stays there of the run before takes room, and nothing else
                self._kept_pieces.leave_only(self._used)
        return tables

    def _added_up(
        self, scan: SequenceScan, plan: PassPlan, kept: BoolArray | None, early: _EarlyFills | None = None
    ) -> TokenTables:
        """Fold the run, or only its first pieces if `early` is sure by then what its fill values are."""
        if not scan.divisible:
            self._sum, self._done = None, 0
            merger, frame = Merger(), needed(scan.frame, scan.columns, plan)
            for number, part in fold(frame, plan, Single(kept=kept), self._count(scan)):
                merger.add(number, part)
            return merger.tables()
        pieces = cut(scan, plan, kept)
        if self._sum is None or not self._sum.goes_on_with(pieces):
            self._sum = RunSum()
        names = [piece.name() if self._kept_pieces is not None else "" for piece in pieces]
        taken = self._sum.pieces
        self._done = pieces[taken].first if taken < len(pieces) else scan.rows
        units = self._units(pieces[taken:], names[taken:])
        with closing(self._summed(scan, units, self._count(scan))) as summed:
            for pieces_of_it, tables in summed:
                self._sum.add(pieces_of_it, tables)
                if early is not None and early.see(tables.samples, pieces_of_it[-1].end):
                    break
        for unit in self._units(pieces, names):
            self._used |= {unit.name} if unit.found else set(unit.names)
        whole, self._sum = self._sum, None  # which lets go of its parts
        return whole.tables()

    def _units(self, pieces: Sequence[Piece], names: Sequence[str]) -> list[_Unit]:
        """Divide neighbouring pieces into whole groups and single pieces.

        Where some pieces of a group are kept, as of a run that has grown, only the others are folded, one by one.
        """
        store = self._kept_pieces
        name_of = dict(zip((piece.first for piece in pieces), names, strict=True))
        units: list[_Unit] = []
        for group in groups_of(pieces):
            own = tuple(name_of[piece.first] for piece in group.pieces)
            held = [store is not None and store.has(name, piece) for name, piece in zip(own, group.pieces, strict=True)]
            name = group_name(own)
            found = group.whole and store is not None and store.has(name, group)
            if found or (group.whole and not any(held)):
                units.append(_Unit(pieces=group.pieces, names=own, name=name, found=found, group=group))
            else:
                each = zip(group.pieces, own, held, strict=True)
                units += [_Unit(pieces=(piece,), names=(name,), name=name, found=found) for piece, name, found in each]
        return units

    def _count(self, scan: SequenceScan) -> Callable[[int], None]:
        def on_rows(rows: int) -> None:
            self._done += rows
            if self._progress is not None:
                self._progress(min(self._done, scan.rows), scan.rows)

        return on_rows

    def _summed(
        self, scan: SequenceScan, units: Sequence[_Unit], on_rows: Callable[[int], None]
    ) -> Generator[tuple[tuple[Piece, ...], PartialTables]]:
        """Yield the tables of pieces and of groups in their order: those that are kept, and the others folded."""
        with closing(self._folded(scan, [unit for unit in units if not unit.found], on_rows)) as folded:
            waiting: Summand | None = None
            for unit in units:
                if unit.found:
                    yield unit.pieces, self._read(unit)
                    on_rows(unit.pieces[-1].end - unit.pieces[0].first)
                    continue
                while (waiting := waiting or next(folded, None)) and waiting.first < unit.pieces[-1].end:
                    tables = waiting.tables
                    if tables is None:
                        tables = self._fold_here(waiting.pieces[0])
                    self._keep(unit, waiting.pieces, tables)
                    yield waiting.pieces, tables
                    waiting = None

    def _folded(self, scan: SequenceScan, units: Sequence[_Unit], on_rows: Callable[[int], None]) -> Generator[Summand]:
        """Yield what is to be added up in its order, folded here or elsewhere."""
        missing = [piece for unit in units for piece in unit.pieces]
        tokens = sum(piece.end - piece.first for piece in missing) * scan.tokens_per_row
        if self._run_pieces is not None and len(missing) > 1 and tokens >= APART_FROM:
            places = accumulate((len(unit.pieces) for unit in units), initial=0)
            groups = {place: unit.group for place, unit in zip(places, units, strict=False) if unit.group is not None}
            with closing(self._run_pieces(missing, groups)) as results:
                yield from in_order(results, missing, groups, on_rows)
        elif missing:
            for piece, part in self._folded_here(scan, missing, on_rows):
                yield Summand(pieces=(piece,), tables=part)

    def _folded_here(
        self, scan: SequenceScan, pieces: Sequence[Piece], on_rows: Callable[[int], None]
    ) -> Iterator[tuple[Piece, PartialTables | None]]:
        """Fold pieces on this machine: the first from where a shorter run left it, the last so that a longer one can.

        None where files cannot be read.
        """
        store = self._kept_pieces
        if store is None:
            yield from fold_in_order(scan, pieces, on_rows)
            return
        middle = list(pieces)
        if store.begun(middle[0]):
            yield middle[0], self._fold_begun(middle.pop(0), store, on_rows)
        last = middle.pop() if middle and middle[-1].end == scan.rows and not middle[-1].full else None
        yield from fold_in_order(scan, middle, on_rows)
        if last is not None:
            yield last, self._fold_begun(last, store, on_rows)

    def _fold_begun(self, piece: Piece, store: KeptPieces, on_rows: Callable[[int], None]) -> PartialTables | None:
        """Fold a piece whose first batches may be kept; None where its files cannot be read."""
        try:
            tables, name = fold_begun(piece, store, on_rows)
        except READ_ERRORS:
            return None
        self._used.add(name)
        return tables

    def _read(self, unit: _Unit) -> PartialTables:
        """Return what is kept of a piece or a group, folded anew here where it is damaged."""
        store, group = self._kept_pieces, unit.group
        assert store is not None, "what is found is in a store"
        tables = store.read(unit.name, group or unit.pieces[0])
        if tables is None:
            parts = map(self._fold_here, unit.pieces)
            tables = next(parts) if group is None else merge_group(parts)
            self._keep(unit, unit.pieces, tables)
        return tables

    def _keep(self, unit: _Unit, pieces: tuple[Piece, ...], tables: PartialTables) -> None:
        """Keep what came of a unit, the group or one of its pieces, but for a piece that changes as the run grows."""
        store = self._kept_pieces
        if store is None or not pieces[-1].full:
            return
        with suppress(OSError):  # a full disk costs the next look its time, and nothing else
            if unit.group is not None and len(pieces) > 1:
                store.write(unit.name, unit.group, tables)
            else:
                store.write(unit.names[pieces[0].number - unit.pieces[0].number], pieces[0], tables)

    def _fold_here(self, piece: Piece) -> PartialTables:
        """Fold a piece that could not be read a moment ago, or keep in mind that it cannot."""
        try:
            return fold_one(piece)
        except READ_ERRORS:
            self.suspects = piece.files
            raise


def _sample_every(scan: SequenceScan) -> int:
    """Return of how many sequences one is kept whole: a power of two, so that a run that grows keeps its samples."""
    share = int(scan.rows * scan.tokens_per_row / SAMPLED_TOKENS)
    return 1 << max(0, share.bit_length() - 1)


def _doubles(scan: SequenceScan) -> frozenset[str]:
    """Return the logprobs that some file holds in 64 bits: all are then read so, whichever piece they are in."""
    schema = scan.frame.collect_schema()
    return frozenset(name for name in LOGPS if schema.get(name) == pl.List(pl.Float64))


def _units(scan: SequenceScan, scalars: Future[pl.DataFrame]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """Return the step of each sequence, and a number of its prompt group, or where none is recorded of its own."""
    rows = scalars.result()
    seq = rows["seq"].to_numpy()
    step = np.full(scan.rows, -1, np.int64)
    step[seq] = rows["step"].fill_null(-1).to_numpy()
    unit = np.arange(scan.rows, dtype=np.uint64)
    if "group_id" in rows.columns:
        groups = rows["group_id"].drop_nulls().unique()
        numbers = pl.DataFrame({"group_id": groups, "number": [crc32(name.encode()) for name in groups]})
        number = rows.join(numbers, on="group_id", how="left", maintain_order="left")["number"]
        recorded = number.is_not_null().to_numpy()
        unit[seq[recorded]] = number.drop_nulls().to_numpy().astype(np.uint64) + LONE_UNITS
    return step, unit


def _order_pairs(scan: SequenceScan) -> tuple[Pair, ...]:
    """Sort the preferred pair first, unless another covers more than twice the rows."""
    rows = scan.logp_rows()
    pairs = available_pairs({name for name, count in rows.items() if count})
    covered = {pair.name: min(rows[pair.numerator], rows[pair.denominator]) for pair in pairs}
    max_rows = max(covered.values(), default=0)
    first = next((pair for pair in pairs if 2 * covered[pair.name] >= max_rows), None)
    return () if first is None else (first, *(pair for pair in pairs if pair is not first))
