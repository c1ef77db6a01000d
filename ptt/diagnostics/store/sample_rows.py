"""Read the rows of a few sequences, and nothing else: an index of all, the values of one step, the tokens of one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import polars as pl

from ptt.diagnostics.schema import SEQUENCES, TABLES
from ptt.diagnostics.store.deduplicate_sources import SequenceFile
from ptt.diagnostics.store.scan import ATTRIBUTE, RECORDER, ROW, SequenceScan, scan_files

IDS: Final = ("sample_id", "trajectory_id", "group_id", "token_hash")
MAX_BESIDE: Final = 32  # columns of a recorder file that no table knows, by name: a wider file is a table of its own
LISTS: Final = tuple(name for name, kind in SEQUENCES.items() if isinstance(kind, pl.List))
TOKEN_LISTS: Final = tuple(name for name in LISTS if not name.startswith("tool_"))  # a value a token
SINGLE: Final = tuple(name for name in SEQUENCES if name not in TOKEN_LISTS)


def index_of(scan: SequenceScan) -> pl.DataFrame:
    """Return seq, step, `place` (the number of the sequence among those of its step) and the ids that are recorded."""
    ids = [name for name in IDS if name in scan.columns]
    index = scan.frame.select("seq", "step", *ids).collect(engine="streaming").sort("seq")
    return index.with_columns(place=pl.int_range(pl.len()).over("step"))


def rows_of_step(scan: SequenceScan, step: int | None) -> pl.DataFrame:
    """Return the single values of all sequences of a step, and `advantage` where it is recorded for each token."""
    columns = [name for name in (*SINGLE, "advantage", "model_mask") if name in scan.columns]
    columns += sorted(name for name in scan.columns if name.startswith(ATTRIBUTE))
    wanted = pl.col("step").is_null() if step is None else pl.col("step") == step
    return scan.frame.filter(wanted).select("seq", *columns).collect(engine="streaming").sort("seq")


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
        name for name in source.collect_schema().names() if name not in file.columns and not name.startswith(("__", ROW))
    ]
    if not names:
        return {}
    row = source.slice(seq - file.start, 1).select(sorted(names)[:MAX_BESIDE]).collect()
    return row.row(0, named=True)


def scan_table(folder: Path, table: str) -> pl.LazyFrame:
    """Scan one table of a store; without rows where nothing was found for it."""
    single = folder / f"{table}.parquet"
    parts = [single] if single.is_file() else sorted((folder / table).glob("part-*.parquet"))
    return pl.scan_parquet(parts, glob=False) if parts else pl.LazyFrame(schema=TABLES[table])
