"""Run the token pass on this machine, around files that turn out to be damaged inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from zlib import crc32

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.config import Settings
from ptt.diagnostics.engines import freed_memory
from ptt.diagnostics.engines.pieces import KeptPieces, Piece, RunPieces, cut, fold_in_order, fold_one, needed
from ptt.diagnostics.schema import LOGPS
from ptt.diagnostics.statistics.bins import WIDTH
from ptt.diagnostics.statistics.cells import LOGP_COLUMNS, cell_width
from ptt.diagnostics.statistics.fill_values import find_fills, sampled_tokens
from ptt.diagnostics.statistics.logprob_pairs import Pair, available_pairs
from ptt.diagnostics.statistics.partial_tables import (
    SINGLE_SEQUENCES,
    WIDER,
    Merger,
    PartialTables,
    TokenTables,
    kept_sequences,
    share_kept,
)
from ptt.diagnostics.statistics.token_pass import PassPlan, batch_rows, fold
from ptt.diagnostics.store.ingest import PIECES
from ptt.diagnostics.store.manifest import Manifest
from ptt.diagnostics.store.scan import (
    ATTRIBUTE,
    READ_ERRORS,
    SequenceScan,
    find_damaged,
    read_tokens,
    scan_readable,
    write_tokens,
)

SAMPLED_TOKENS = 150_000  # of sequences kept whole: most tokens are nearly certain and say nothing
APART_FROM = 1 << 26  # tokens: fewer are folded before other processes have begun


PLACEHOLDERS = 3  # tables kept by an earlier version left out every -1.0 and every lone 0, or had all sequences

SCALARS = ("sample_id", "group_id", "trajectory_id", "env", "rank", "reward", "policy_version", "temperature",
           "top_p", "logp_kind", "tool_names", "tool_failed")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The token tables of a run, what they are of, and what was lost."""

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
    def single_scalars(self) -> pl.DataFrame:
        """The single values of the sequences that a long run keeps one by one; of a shorter run all."""
        return self._of_single(self.scalars)

    @cached_property
    def single_rows(self) -> pl.DataFrame:
        """The sound rows of these sequences, without `ok`."""
        return self._of_single(self.tables.rows.filter("ok").drop("ok"))

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
            f"known to {100 * width * WIDTH:.2g}% of their value ({100 * WIDTH:.1g}% in runs of up to {WIDER[0][0]} "
            "steps)."
        )
    if (share := share_kept(sequences)) > 1:
        kept = tables.sequences["seq"].n_unique()
        yield (
            f"A run of {sequences:,} sequences: counts, means and percentiles are of all of them; intervals, "
            f"effective sample sizes, who holds the tail, and lists of single sequences are of {kept:,}, one prompt "
            f"group in {share} of each step."
        )


def read_scalars(scan: SequenceScan) -> pl.DataFrame:
    """Read the steps and the columns of single values, by `seq`."""
    columns = [name for name in SCALARS if name in scan.columns]
    columns += sorted(name for name in scan.columns if name.startswith(ATTRIBUTE))
    return scan.frame.select("seq", "step", *columns).collect(engine="streaming")


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
) -> Tokens | None:
    """Return the token tables, from the store's cache where they are; None where no pair of logprobs is recorded.

    `damaged`: files that are left out, each with what is wrong with it; those that turn out to be are added.
    `run_pieces`: folds a long run's pieces elsewhere.
    """
    scan = scan_readable(folder, manifest, root, damaged)
    pairs = _order_pairs(scan) if scan is not None else ()
    if scan is None or not pairs:
        return None
    key: dict[str, object] = {
        "min_observation": settings.min_observation,
        "pairs": [pair.name for pair in pairs],
        "files": _hash_scan(scan),
        "placeholders": PLACEHOLDERS,
    }
    early = background.submit(read_scalars, scan)
    if not damaged and (tables := read_tokens(folder, key)) is not None:
        return Tokens(tables=tables, pairs=pairs, scan=scan, early=early)
    tables = None
    while tables is None:
        try:
            pieces = KeptPieces(folder / PIECES) if keep and not damaged else None
            tables = _run_token_pass(scan, pairs, settings, progress, pieces, run_pieces, early)
        except READ_ERRORS:
            unreadable = find_damaged(manifest, root)
            if unreadable.keys() <= damaged.keys():
                raise
            damaged |= unreadable
            scan = scan_readable(folder, manifest, root, damaged)
            pairs = _order_pairs(scan) if scan is not None else ()
            if scan is None or not pairs:
                return None
            early = background.submit(read_scalars, scan)
    freed_memory.release()
    if damaged:
        # kept for comparisons alone: under a key that the next run does not ask for, so that it reports them again
        key["damaged"] = sorted(damaged)
    kept = background.submit(write_tokens, folder, key, tables) if keep else None
    return Tokens(tables=tables, pairs=pairs, scan=scan, kept=kept, early=early)


def _hash_scan(scan: SequenceScan) -> str:
    """Name the choice of files and steps that the tables are made from."""
    chosen = [(file.name, file.first_row, file.rows, file.columns, sorted(file.skipped)) for file in scan.files]
    return sha256(repr(chosen).encode("utf-8", "surrogateescape")).hexdigest()


def _run_token_pass(
    scan: SequenceScan,
    pairs: tuple[Pair, ...],
    settings: Settings,
    progress: Callable[[int, int], None] | None,
    kept_pieces: KeptPieces | None,
    run_pieces: RunPieces | None,
    scalars: Future[pl.DataFrame],
) -> TokenTables:
    """Fold a run piece by piece, and once more where its samples show values that stand for no logprob."""
    done = 0

    def on_rows(rows: int) -> None:
        nonlocal done
        done += rows
        if progress is not None:
            progress(min(done, scan.rows), scan.rows)

    plan = PassPlan(
        pairs=pairs,
        min_observation=settings.min_observation,
        batch_rows=batch_rows(scan.first_tokens_per_row or scan.tokens_per_row),
        sample_every=_sample_every(scan),
        doubles=_doubles(scan),
    )
    kept = kept_sequences(*_units(scan, scalars)) if scan.rows > SINGLE_SEQUENCES else None

    used: set[str] = set()

    def merged(plan: PassPlan) -> TokenTables:
        merger = Merger(kept)
        for part in _parts(scan, plan, on_rows, kept_pieces, run_pieces, used):
            merger.add(part)
        return merger.tables()

    tables = merged(plan)
    fills = find_fills(sampled_tokens(tables.samples, LOGP_COLUMNS))
    if fills:
        tables = merged(replace(plan, fills=fills))
    if kept_pieces is not None:
        kept_pieces.leave_only(used)
    return tables


def _parts(
    scan: SequenceScan,
    plan: PassPlan,
    on_rows: Callable[[int], None],
    kept_pieces: KeptPieces | None,
    run_pieces: RunPieces | None,
    used: set[str],
) -> Iterator[PartialTables]:
    """Yield the tables of all pieces in their order: those that are kept, and the others folded.

    The names of all pieces go to `used`.
    """
    if not scan.divisible:
        yield from (part for _, part in fold(needed(scan.frame, scan.columns, plan), plan, on_rows))
        return
    pieces = cut(scan, plan)
    names = {piece.first: piece.name() for piece in pieces} if kept_pieces is not None else {}
    used |= set(names.values())
    found = {piece.first for piece in pieces if kept_pieces is not None and kept_pieces.has(names[piece.first])}
    missing = [piece for piece in pieces if piece.first not in found]
    tokens = sum(piece.end - piece.first for piece in missing) * scan.tokens_per_row
    if run_pieces is not None and len(missing) > 1 and tokens >= APART_FROM:
        folded = _in_order(run_pieces(missing), missing, on_rows)
    else:
        folded = fold_in_order(scan, missing, on_rows)
    waiting = next(folded, None)
    for piece in pieces:
        part, keep = None, piece.end - piece.first == plan.piece_rows
        if piece.first in found and kept_pieces is not None:
            part = kept_pieces.read(names[piece.first], piece)
            keep = part is None
            part = fold_one(piece) if part is None else part
            on_rows(piece.end - piece.first)
        elif waiting is not None and waiting[0] is piece:
            part, waiting = waiting[1], next(folded, None)
        if part is None:
            continue
        if keep and kept_pieces is not None:
            with suppress(OSError):  # a full disk costs the next look its time, and nothing else
                kept_pieces.write(names[piece.first], part)
        yield part


def _in_order(
    results: Iterator[tuple[int, PartialTables]], pieces: Sequence[Piece], on_rows: Callable[[int], None]
) -> Iterator[tuple[Piece, PartialTables]]:
    """Yield pieces in their order; the few that are done early wait."""
    early: dict[int, PartialTables] = {}
    following = 0
    for number, part in results:
        early[number] = part
        on_rows(pieces[number].end - pieces[number].first)
        while following in early:
            yield pieces[following], early.pop(following)
            following += 1


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
        unit[seq[recorded]] = number.drop_nulls().to_numpy().astype(np.uint64) + np.uint64(scan.rows)
    return step, unit


def _order_pairs(scan: SequenceScan) -> tuple[Pair, ...]:
    """Sort the preferred pair first, unless another covers more than twice the rows."""
    rows = scan.logp_rows()
    pairs = available_pairs({name for name, count in rows.items() if count})
    covered = {pair.name: min(rows[pair.numerator], rows[pair.denominator]) for pair in pairs}
    max_rows = max(covered.values(), default=0)
    first = next((pair for pair in pairs if 2 * covered[pair.name] >= max_rows), None)
    return () if first is None else (first, *(pair for pair in pairs if pair is not first))
