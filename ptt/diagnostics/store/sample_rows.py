"""Read the rows of a few sequences and nothing else: an index of all, the values of one step, the tokens of one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import polars as pl

from ptt.diagnostics.errors import InputError
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
MAX_TOKENS: Final = 4_000_000  # in one sequence: four times the longest context in use
MAX_BESIDE: Final = 32  # columns of a recorder file that no table has, by name: a wider file is a table of another kind
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
    """Return the single values of all sequences of a step, and how many tokens each has."""
    columns = [name for name in SINGLE if name in scan.columns and name != "step"]
    columns += sorted(name for name in scan.columns if name.startswith(ATTRIBUTE))
    length = pl.col("model_mask").list.len() if "model_mask" in scan.columns else pl.lit(None, pl.UInt32())
    wanted = pl.col("step") == step if step is not None else _step(scan).is_null()
    chosen = scan.frame.filter(wanted).select("seq", _step(scan), *columns, length.alias("tokens"))
    return chosen.collect(engine="streaming").sort("seq")


def _step(scan: SequenceScan) -> pl.Expr:
    """Return the step; a log of calls may name none."""
    return pl.col("step") if "step" in scan.columns else pl.lit(None, pl.Int64()).alias("step")


def file_of(scan: SequenceScan, seq: int) -> SequenceFile:
    """Return the file that holds a sequence."""
    return scan.files[bisect_right([file.start for file in scan.files], seq) - 1]


def tokens_of(scan: SequenceScan, seq: int) -> dict[str, pl.Series | None]:
    """Return the lists of one sequence that are recorded for each token, as its file has them; None for a null.

    InputError where it is longer than any model's: a few bytes of a file can claim billions of tokens.
    """
    file = file_of(scan, seq)
    names = [name for name in TOKEN_LISTS if name in file.columns]
    source = scan_files([replace(file, skipped=frozenset())]).slice(seq - file.start, 1)
    for name in names:  # one after the other: each may be all that fits into memory
        length = source.select(pl.col(name).list.len()).collect().item()
        if length is not None and length > MAX_TOKENS:
            row = seq - file.start + file.first_row
            raise InputError(f"{file.name}: row {row} claims {length} tokens; at most {MAX_TOKENS} are shown.")
    row_of = source.select(names).collect()
    return {name: row_of[name][0] for name in names}


def beside(scan: SequenceScan, seq: int) -> Mapping[str, Any]:
    """Return the numbers that a recorder file holds of a sequence beside the canonical columns, single or in lists."""
    file = file_of(scan, seq)
    if file.kind != RECORDER:
        return {}
    source = pl.scan_parquet([file.path], glob=False)
    schema = source.collect_schema()
    free = sorted(name for name in schema.names() if name not in file.columns and not name.startswith(("__", ROW)))
    columns = [column for name in free if (column := _numbers(name, schema[name])) is not None][:MAX_BESIDE]
    return source.slice(seq - file.start, 1).select(columns).collect().row(0, named=True) if columns else {}


def _numbers(name: str, kind: pl.DataType) -> pl.Expr | None:
    """Select a column of numbers; texts are among the attributes of the scan. A list that is too long is null."""
    if kind.is_numeric() or isinstance(kind, pl.Struct):
        return pl.col(name)
    if isinstance(kind, pl.List) and _is_numeric(kind.inner):
        return pl.when(pl.col(name).list.len() <= MAX_TOKENS).then(pl.col(name))
    return None


def _is_numeric(kind: object) -> bool:
    return isinstance(kind, pl.DataType) and kind.is_numeric()


def advantages_of(scan: SequenceScan, seqs: Sequence[int]) -> dict[int, tuple[float, float]]:
    """Return the least and greatest advantage of sequences, over sampled tokens where each token has one."""
    found: dict[int, tuple[float, float]] = {}
    for file in {file.path: file for file in (file_of(scan, seq) for seq in seqs)}.values():
        source = pl.scan_parquet([file.path], glob=False, row_index_name=ROW, row_index_offset=file.start)
        schema = source.collect_schema()
        kind = schema.get("advantage")
        if isinstance(kind, pl.List) and "model_mask" in schema:
            values, mask = pl.col("advantage"), pl.col("model_mask")
            fits = (values.list.len() == mask.list.len()) & (mask.list.len() <= MAX_TOKENS)
            rows = source.filter(pl.col(ROW).is_in(list(seqs)) & fits).select(ROW, "advantage", "model_mask")
            flat = rows.explode("advantage", "model_mask").filter(pl.col("model_mask").cast(pl.Boolean))
        elif kind is not None and kind.is_numeric():
            flat = source.filter(pl.col(ROW).is_in(list(seqs))).select(ROW, "advantage")
        else:
            continue
        flat = flat.select(ROW, pl.col("advantage").cast(pl.Float64)).drop_nulls()
        ends = flat.group_by(ROW).agg(low=_least("advantage"), high=pl.col("advantage").max())
        found |= {seq: (low, high) for seq, low, high in ends.collect().iter_rows()}
    return found


def _least(column: str) -> pl.Expr:
    """Return the least value, or NaN if there is any, so that missing numbers cannot look like numbers."""
    return pl.when(pl.col(column).is_nan().any()).then(pl.lit(float("nan"))).otherwise(pl.col(column).min())


def scan_table(folder: Path, table: str) -> pl.LazyFrame:
    """Scan one table of a store; empty if nothing was found for it."""
    single = folder / f"{table}.parquet"
    parts = [single] if single.is_file() else sorted((folder / table).glob("part-*.parquet"))
    return pl.scan_parquet(parts, glob=False) if parts else pl.LazyFrame(schema=TABLES[table])
