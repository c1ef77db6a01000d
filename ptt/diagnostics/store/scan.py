"""Open the tables of a store: sequences lazily, wherever their files lie, and the small ones whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import polars as pl

from ptt.diagnostics.parsers.console_log import UNNUMBERED
from ptt.diagnostics.schema import LOGPS, SEQUENCES, TABLES
from ptt.diagnostics.store.filling import filled_in
from ptt.diagnostics.store.joining import SequenceFile, joined
from ptt.diagnostics.store.manifest import Manifest
from ptt.diagnostics.store.wide import WideMetrics, distinct

SAMPLED_FILES = 16
ROW = "__row of the run"  # a name that no recorder's column has


@dataclass(frozen=True, kw_only=True)
class SequenceScan:
    """All sequences of a run as one lazy frame with `seq`, their number in it."""

    frame: pl.LazyFrame
    files: tuple[SequenceFile, ...]
    columns: frozenset[str]
    tokens_per_row: float
    notes: tuple[str, ...] = ()  # on sequences that are recorded more than once

    @property
    def rows(self) -> int:
        """How many sequences there are, sound or not."""
        return sum(file.rows for file in self.files)

    def logp_rows(self) -> dict[str, int]:
        """How many rows lie in files that hold each logprob."""
        return {name: sum(file.rows for file in self.files if name in file.columns) for name in LOGPS}


def read_table(folder: Path, table: str) -> pl.DataFrame:
    """Read one small table whole; without rows where nothing was found for it."""
    single = folder / f"{table}.parquet"
    if single.is_file():
        return pl.read_parquet(single, glob=False)
    parts = sorted((folder / table).glob("part-*.parquet"))
    return (
        pl.concat(pl.read_parquet(part, glob=False) for part in parts) if parts else pl.DataFrame(schema=TABLES[table])
    )


def read_trajectories(folder: Path, wide: WideMetrics) -> pl.DataFrame:
    """Read the trajectories with their split resolved.

    TRL's completions files do not say whether a row was trained on: an evaluation overwrites the training file of its
    step, and the next file repeats its samples. Rows of a step with evaluation metrics, and of the next logged one,
    stay `unknown`; the others are `train`.
    """
    counted = ~pl.col("name_raw").str.starts_with(UNNUMBERED)  # steps that were counted, not read, tell nothing here
    metrics = read_table(folder, "metrics").filter(counted).select("step", "split").drop_nulls().unique().sort("step")
    logged = distinct([metrics.filter(pl.col("split") == "train")["step"].to_numpy(), wide.steps])
    doubtful: set[int] = set()
    for step in metrics.filter(pl.col("split") == "eval")["step"].to_list():
        later = logged[logged > step]
        doubtful |= {step, int(later[0])} if len(later) else {step}
    unsure = pl.col("step").is_in(sorted(doubtful)) | pl.lit(value=not len(logged))
    resolved = pl.when((pl.col("split") == "unknown") & ~unsure).then(pl.lit("train")).otherwise(pl.col("split"))
    return read_table(folder, "trajectories").with_columns(resolved.alias("split"))


def scan_sequences(folder: Path, manifest: Manifest, root: Path, *, without: Iterable[str] = ()) -> SequenceScan | None:
    """Scan the recorder files in the run dir and the parts in the store as one; None where there is neither.

    `without`: names of files that turned out to be damaged inside.
    """
    left_out = set(without)
    found = [
        *(
            SequenceFile(
                path=root / item.path, name=item.path, kind=item.kind, first_row=0, start=0, rows=item.rows,
                columns=item.columns,
            )
            for item in manifest.in_place
        ),
        *(
            SequenceFile(
                path=folder / "sequences" / part.name, name=part.source, kind=part.kind, first_row=part.first_row,
                start=0, rows=part.rows, columns=part.columns,
            )
            for part in manifest.parts
        ),
    ]  # fmt: skip
    choice = joined([file for file in found if file.name not in left_out and file.rows])
    starts = accumulate((file.rows for file in choice.files), initial=0)
    files = [replace(file, start=start) for file, start in zip(choice.files, starts, strict=False)]
    if not files:
        return None
    frames = [_scan_group(group) for group in _groups(files)]
    frame = pl.concat(frames, how="diagonal_relaxed") if len(frames) > 1 else frames[0]
    beside = [replace(file, skipped=frozenset()) for file in choice.beside]
    frame, told = filled_in(frame, [_scan_group(group) for group in _groups(beside)])
    return SequenceScan(
        frame=frame,
        files=tuple(files),
        columns=frozenset(frame.collect_schema().names()),
        tokens_per_row=_tokens_per_row(files),
        notes=(*choice.notes, *told),
    )


def _groups(files: list[SequenceFile]) -> list[list[SequenceFile]]:
    """Put neighbours of one schema together: one scan takes many files, but only of the same types."""
    groups: list[list[SequenceFile]] = []
    last: object = None
    for file in files:
        schema = _schema(file.path)
        shape = (file.skipped, *((name, str(schema[name])) for name in file.columns))
        if shape != last:
            groups.append([])
            last = shape
        groups[-1].append(file)
    return groups


def _scan_group(files: list[SequenceFile]) -> pl.LazyFrame:
    schema = _schema(files[0].path)
    scan = pl.scan_parquet(
        [file.path for file in files],
        row_index_name=ROW,
        row_index_offset=files[0].start,
        missing_columns="insert",
        extra_columns="ignore",
        hive_partitioning=False,
        glob=False,
    )
    columns = [_canonical(name, schema[name]) for name in SEQUENCES if name in files[0].columns]
    chosen = scan.select(pl.col(ROW).cast(pl.UInt32).alias("seq"), *columns)
    skipped = sorted(files[0].skipped)
    return chosen.filter(~pl.col("step").is_in(skipped)) if skipped else chosen


def _canonical(name: str, found: pl.DataType) -> pl.Expr:
    wanted = SEQUENCES[name]
    column = pl.col(name)
    if found == wanted or (name in LOGPS and found == pl.List(pl.Float64)):
        return column  # float64 is kept: r is taken in float64 anyway
    return column.cast(wanted, strict=False)


def _tokens_per_row(files: list[SequenceFile]) -> float:
    """Estimate from footers, without reading data, how long a row is."""
    import pyarrow.parquet as pq

    values = rows = 0
    for file in files[:: max(1, len(files) // SAMPLED_FILES)][:SAMPLED_FILES]:
        footer = pq.ParquetFile(file.path).metadata
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            rows += group.num_rows
            values += max(
                (
                    group.column(index).num_values
                    for index in range(group.num_columns)
                    if group.column(index).path_in_schema.startswith("model_mask")
                ),
                default=0,
            )
    return values / rows if rows else 1.0


def _schema(path: Path) -> pl.Schema:
    """Give a file's schema; its name is taken as it stands, brackets and stars included."""
    return pl.scan_parquet([path], glob=False).collect_schema()
