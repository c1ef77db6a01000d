"""Read the rows of a few sequences, and nothing else: an index of all, the values of one step, the tokens of one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import polars as pl

from ptt.diagnostics.schema import SEQUENCES, TABLES
from ptt.diagnostics.store.deduplicate_sources import SequenceFile
from ptt.diagnostics.store.manifest import Manifest
from ptt.diagnostics.store.scan import (
    ATTRIBUTE,
    READ_ERRORS,
    RECORDER,
    ROW,
    SequenceScan,
    find_damaged,
    scan_files,
    scan_readable,
)

IDS: Final = ("sample_id", "trajectory_id", "group_id", "token_hash")
INDEX: Final = {"seq": pl.UInt32(), "step": pl.Int64(), "place": pl.Int64()}
MAX_BESIDE: Final = 32  # columns of a recorder file that no table knows, by name: a wider file is a table of its own
LISTS: Final = tuple(name for name, kind in SEQUENCES.items() if isinstance(kind, pl.List))
TOKEN_LISTS: Final = tuple(name for name in LISTS if not name.startswith("tool_"))  # a value a token
SINGLE: Final = tuple(name for name in SEQUENCES if name not in TOKEN_LISTS)


def open_index(folder: Path, manifest: Manifest, root: Path) -> tuple[SequenceScan | None, pl.DataFrame]:
    """Scan a run's sequences and read their index; files that cannot be read are left out, as judging does."""
    damaged: dict[str, str] = {}
    while True:
        scan = scan_readable(folder, manifest, root, damaged)
        try:
            return scan, pl.DataFrame(schema=INDEX) if scan is None else _index_of(scan)
        except READ_ERRORS:
            unreadable = find_damaged(manifest, root)
            if unreadable.keys() <= damaged.keys():
                raise
            damaged |= unreadable


def _index_of(scan: SequenceScan) -> pl.DataFrame:
    """Return seq, step, `place` (the number of the sequence among those of its step) and the ids that are recorded."""
    ids = [name for name in IDS if name in scan.columns]
    index = scan.frame.select("seq", _step(scan), *ids).collect(engine="streaming").sort("seq")
    return index.with_columns(place=pl.int_range(pl.len()).over("step"))


def rows_of_step(scan: SequenceScan, step: int | None) -> pl.DataFrame:
    """Return the single values of all sequences of a step, and `advantage` where it is recorded for each token."""
    columns = [name for name in (*SINGLE, "advantage", "model_mask") if name in scan.columns]
    columns += sorted(name for name in scan.columns if name.startswith(ATTRIBUTE))
    columns = ["seq", *(name for name in columns if name != "step")]
    wanted = pl.col("step") == step if step is not None else _step(scan).is_null()
    return scan.frame.filter(wanted).select(_step(scan), *columns).collect(engine="streaming").sort("seq")


def _step(scan: SequenceScan) -> pl.Expr:
    """Return the step; a log of calls may name none."""
    return pl.col("step") if "step" in scan.columns else pl.lit(None, pl.Int64()).alias("step")


def file_of(scan: SequenceScan, seq: int) -> SequenceFile:
    """Return the file that holds a sequence."""
    return scan.files[bisect_right([file.start for file in scan.files], seq) - 1]


def tokens_of(scan: SequenceScan, seq: int) -> dict[str, pl.Series | None]:
    """Return the lists of one sequence that are recorded for each token, as its file has them; None for a null."""
    file = file_of(scan, seq)
    names = [name for name in TOKEN_LISTS if name in file.columns]
    row = scan_files([replace(file, skipped=frozenset())]).slice(seq - file.start, 1).select(names).collect()
    return {name: row[name][0] for name in names}


def beside(scan: SequenceScan, seq: int) -> Mapping[str, Any]:
    """Return what a recorder file holds of a sequence beside the canonical columns, a value or a list for each."""
    file = file_of(scan, seq)
    if file.kind != RECORDER:
        return {}
    source = pl.scan_parquet([file.path], glob=False)
    names = [
        name
        for name in source.collect_schema().names()
        if name not in file.columns and not name.startswith(("__", ROW))
    ]
    if not names:
        return {}
    row = source.slice(seq - file.start, 1).select(sorted(names)[:MAX_BESIDE]).collect()
    return row.row(0, named=True)


def advantages_beside(scan: SequenceScan, seqs: Sequence[int]) -> dict[int, float | None]:
    """Return the advantages of sequences whose recorder file holds one for each sequence, not for each token."""
    found: dict[int, float | None] = {}
    for file in {file.path: file for file in (file_of(scan, seq) for seq in seqs)}.values():
        source = pl.scan_parquet([file.path], glob=False)
        kind = source.collect_schema().get("advantage")
        if file.kind != RECORDER or "advantage" in file.columns or kind is None or not kind.is_numeric():
            continue
        rows = source.select(seq=pl.int_range(pl.len()) + file.start, advantage=pl.col("advantage").cast(pl.Float64))
        found |= dict(rows.filter(pl.col("seq").is_in(list(seqs))).collect().iter_rows())
    return found


def scan_table(folder: Path, table: str) -> pl.LazyFrame:
    """Scan one table of a store; without rows where nothing was found for it."""
    single = folder / f"{table}.parquet"
    parts = [single] if single.is_file() else sorted((folder / table).glob("part-*.parquet"))
    return pl.scan_parquet(parts, glob=False) if parts else pl.LazyFrame(schema=TABLES[table])
