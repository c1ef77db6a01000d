"""Keep what the token pass made, so that a second look at the same run does not read its tokens again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import polars as pl

from ptt.diagnostics.errors import InputError
from ptt.diagnostics.parsers.console_log import UNNUMBERED
from ptt.diagnostics.schema import LOGPS, SEQUENCES, TABLES
from ptt.diagnostics.statistics.token_pass import TokenTables
from ptt.diagnostics.store.deduplicate_sources import SequenceFile, filled_in, joined
from ptt.diagnostics.store.ingest import RECORDED, recorded_copy
from ptt.diagnostics.store.manifest import Manifest, read_manifest
from ptt.diagnostics.store.wide_metrics import WideMetrics, distinct

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


FRAMES = ("cells", "sequences", "stretches", "rows", "bad", "anomalies", "samples")


def read_tokens(folder: Path, key: dict[str, object]) -> TokenTables | None:
    """Give the tables kept under `key`, or None."""
    place = folder / "tokens"
    try:
        if json.loads((place / "key.json").read_text(encoding="ascii")) != key:
            return None
        return TokenTables(**{name: pl.read_parquet(place / f"{name}.parquet", glob=False) for name in FRAMES})
    except (OSError, ValueError, pl.exceptions.PolarsError):  # absent or half written: made anew
        return None


def write_tokens(folder: Path, key: dict[str, object], tables: TokenTables) -> None:
    """Keep `tables` under `key`; the key is written last, so a torn write is no write."""
    place = folder / "tokens"
    place.mkdir(exist_ok=True)
    (place / "key.json").unlink(missing_ok=True)
    for name in FRAMES:
        getattr(tables, name).write_parquet(place / f"{name}.parquet", compression="lz4")
    (place / "key.json").write_text(json.dumps(key, sort_keys=True), encoding="ascii")


ANEW = "make the store anew with ptt diagnose or ptt ingest"


def check_entries(store: Path) -> None:
    """Refuse a store that would have files read which lie elsewhere, or never end."""
    try:
        strange = _strange_entry(store)
    except OSError as error:
        raise InputError(f"{store}: cannot be read: {error.strerror or error}.") from error
    if strange is not None:
        raise InputError(f"{store}: holds {strange}, a link or special file, which no store does; {ANEW}.")


def _strange_entry(store: Path) -> str | None:
    waiting = [store]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                elif not entry.is_file(follow_symlinks=False):
                    return Path(entry.path).relative_to(store).as_posix()
    return None


def open_existing(store: Path) -> Manifest | None:
    """Give the manifest of a store that can be judged without its run; None where its tokens lay in the run."""
    manifest = read_manifest(store)
    if manifest is None:
        raise InputError(f"{store}: is no store of this version; make it anew with ptt diagnose or ptt ingest.")
    copied = store / RECORDED
    if not copied.is_file():
        return None if manifest.in_place else manifest
    try:
        held, schema = recorded_copy(copied), pl.read_parquet_schema(copied)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{copied}: cannot be read; {ANEW}.") from error
    wrong = [name for name in held.columns if not _as_written(name, schema[name])]
    if wrong or not {"step", "model_mask"} <= set(held.columns):
        raise InputError(f"{copied}: its columns are not those of a store ({', '.join(wrong)[:100]}); {ANEW}.")
    return replace(manifest, in_place=(held,), parts=())


def _as_written(name: str, found: pl.DataType) -> bool:
    return found == SEQUENCES[name] or (name in LOGPS and found == pl.List(pl.Float64))
