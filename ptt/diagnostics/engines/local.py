"""Run the token pass on this machine, around files that turn out to be damaged inside."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from zlib import crc32

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.config import Settings
from ptt.diagnostics.statistics.logprob_pairs import Pair, available_pairs
from ptt.diagnostics.statistics.partial_tables import SINGLE_SEQUENCES, TokenTables, kept_sequences
from ptt.diagnostics.statistics.token_pass import token_pass
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


PLACEHOLDERS = 2  # tables kept by an earlier version left out every -1.0 and every lone 0

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

    @cached_property
    def scalars(self) -> pl.DataFrame:
        """Every sequence's single values (ids, rank, version, reward), by `seq`; lists of tokens are not touched."""
        return read_scalars(self.scan) if self.early is None else self.early.result()


def read_scalars(scan: SequenceScan) -> pl.DataFrame:
    """Read the columns of single values, by `seq`."""
    columns = [name for name in SCALARS if name in scan.columns]
    columns += sorted(name for name in scan.columns if name.startswith(ATTRIBUTE))
    return scan.frame.select("seq", *columns).collect(engine="streaming")


def read_token_tables(
    folder: Path,
    manifest: Manifest,
    root: Path,
    *,
    settings: Settings,
    background: Executor,
    damaged: dict[str, str],
    keep: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Tokens | None:
    """Return the token tables, from the store's cache where they are; None where no pair of logprobs is recorded.

    `damaged`: files that are left out, each with what is wrong with it; those that turn out to be are added.
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
            tables = _run_token_pass(scan, pairs, settings, progress)
        except READ_ERRORS:
            unreadable = find_damaged(manifest, root)
            if unreadable.keys() <= damaged.keys():
                raise
            damaged |= unreadable
            scan = scan_readable(folder, manifest, root, damaged)
            pairs = _order_pairs(scan) if scan is not None else ()
            if scan is None or not pairs:
                return None
    if damaged:
        # kept for comparisons alone: under a key that the next run does not ask for, so that it reports them again
        key["damaged"] = sorted(damaged)
    kept = background.submit(write_tokens, folder, key, tables) if keep else None
    return Tokens(tables=tables, pairs=pairs, scan=scan, kept=kept, early=None if damaged else early)


def _hash_scan(scan: SequenceScan) -> str:
    """Name the choice of files and steps that the tables are made from."""
    chosen = [(file.name, file.first_row, file.rows, file.columns, sorted(file.skipped)) for file in scan.files]
    return sha256(repr(chosen).encode("utf-8", "surrogateescape")).hexdigest()


def _run_token_pass(
    scan: SequenceScan,
    pairs: tuple[Pair, ...],
    settings: Settings,
    progress: Callable[[int, int], None] | None,
) -> TokenTables:
    done = 0

    def on_rows(rows: int) -> None:
        nonlocal done
        done += rows
        if progress is not None:
            progress(done, scan.rows)

    return token_pass(
        scan.frame.select(_needed_columns(scan, pairs)),
        pairs=pairs,
        min_observation=settings.min_observation,
        tokens_per_row=scan.tokens_per_row,
        sample_every=_sample_every(scan),
        kept=kept_sequences(_units(scan)) if scan.rows > SINGLE_SEQUENCES else None,
        on_rows=on_rows,
    )


def _sample_every(scan: SequenceScan) -> int:
    """Return of how many sequences one is kept whole: a power of two, so that a run that grows keeps its samples."""
    share = int(scan.rows * scan.tokens_per_row / SAMPLED_TOKENS)
    return 1 << max(0, share.bit_length() - 1)


def _units(scan: SequenceScan) -> npt.NDArray[np.uint64]:
    """Number each sequence's prompt group at its step, or where none is recorded the sequence."""
    if "group_id" not in scan.columns:
        return np.arange(scan.rows, dtype=np.uint64)
    rows = scan.frame.select("seq", "step", "group_id").collect(engine="streaming")
    names = rows["group_id"].cast(pl.Categorical)
    number = np.array([crc32(name.encode()) for name in names.cat.get_categories()] or [0], np.uint64)
    group = number[names.to_physical().fill_null(0).to_numpy()] + (
        rows["step"].fill_null(0).cast(pl.UInt64).to_numpy() << np.uint64(32)
    )
    unit = np.arange(scan.rows, dtype=np.uint64)
    recorded = rows["group_id"].is_not_null().to_numpy()
    unit[rows["seq"].to_numpy()[recorded]] = group[recorded]
    return unit


def _needed_columns(scan: SequenceScan, pairs: tuple[Pair, ...]) -> list[pl.Expr]:
    logps = sorted({name for pair in pairs for name in (pair.numerator, pair.denominator)})
    columns = [pl.col("seq", "step", "model_mask", *logps)]
    if "tool_names" in scan.columns:
        columns.append(pl.col("tool_names").list.len().cast(pl.Int64).alias("tool_count"))
    return columns


def _order_pairs(scan: SequenceScan) -> tuple[Pair, ...]:
    """Sort the preferred pair first, unless another covers more than twice the rows."""
    rows = scan.logp_rows()
    pairs = available_pairs({name for name, count in rows.items() if count})
    covered = {pair.name: min(rows[pair.numerator], rows[pair.denominator]) for pair in pairs}
    max_rows = max(covered.values(), default=0)
    first = next((pair for pair in pairs if 2 * covered[pair.name] >= max_rows), None)
    return () if first is None else (first, *(pair for pair in pairs if pair is not first))
