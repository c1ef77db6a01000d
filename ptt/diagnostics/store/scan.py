"""Read a store: its tables, all sequences as one lazy frame, and what the token pass left there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import cached_property
from itertools import accumulate, groupby
from pathlib import Path
from typing import Final

import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.errors import InputError
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.parsers.io.metric_rows import UNNUMBERED
from ptt.diagnostics.parsers.io.parquet_files import (
    DAMAGE,
    column_called,
    footer_of,
    known_schema,
    layout_of,
    polars_schema,
)
from ptt.diagnostics.schema import COMPONENT, FIGURE, LOGPS, SEQUENCES, TABLES
from ptt.diagnostics.statistics.partial_tables import TokenTables
from ptt.diagnostics.store.deduplicate_sources import SequenceFile, choose_sources, fill_from_duplicates
from ptt.diagnostics.store.manifest import InPlaceFile, Manifest, Part, read_manifest
from ptt.diagnostics.store.wide_metrics import WideMetrics, distinct

STEPS: Final = "steps"  # key in a file's looks: its distinct steps
RECORDED: Final = "recorded.parquet"  # a copy of all sequences, in a stand-alone store

SAMPLED_FILES: Final = 16
FIRST_FILES: Final = 2  # on which the cutting of a run into pieces is based
ROW: Final = "__row of the run"  # a name that no recorder's column has
TOKEN_TABLES: Final = tuple(field.name for field in fields(TokenTables))
ATTRIBUTE: Final = "attribute:"
"""Prefix of columns of recorder files beyond the canonical ones: text, integers or booleans of a sequence, such as the
data set of its prompt. Read as text, from files that are scanned in place."""
RECORDER: Final = "recorder"  # the parser whose files are scanned in place
RECORDER_LINES: Final = "recorder_jsonl"  # the parser of the same format as lines
MAX_ATTRIBUTES: Final = 16  # in a file, by name: a wider one is a table of another kind
SHOWN_ALONE: Final = frozenset({"token_ids", "entropy", "advantage", "value", "return"})
"""Token columns that no conclusion reads, only ptt show: damage in them costs no conclusion."""
ANEW: Final = "make the store again with ptt diagnose or ptt ingest"


def steps_of(file: RunFile) -> Sequence[int | None]:
    """Return the distinct steps of a Parquet file; none where they cannot be read, which the token pass reports."""
    if STEPS not in file.looks:
        file.looks[STEPS] = _read_steps(file)
    found: Sequence[int | None] = file.looks[STEPS]
    return found


def steps_in_place(file: RunFile) -> Callable[[], Sequence[int | None]]:
    """Return what tells the steps of a file later on: from its footer now, while that is held, where it has them."""
    with suppress(*DAMAGE):
        if STEPS not in file.looks and (told := _steps_in_footer(file)) is not None:
            file.looks[STEPS] = sorted(told)
    known = file.looks.get(STEPS)
    return (lambda: steps_of(replace(file, looks={}))) if known is None else lambda: known


def _read_steps(file: RunFile) -> Sequence[int | None]:
    try:
        if (told := _steps_in_footer(file)) is not None:
            return sorted(told)
        steps = pl.scan_parquet([file.path], glob=False).select(pl.col("step").unique()).collect()
    except (*DAMAGE, pl.exceptions.PolarsError):  # gone by now, or damaged
        return []
    return steps.to_series().to_list()


def _steps_in_footer(file: RunFile) -> set[int] | None:
    """Return the steps that the footer tells: trainers write a file a step; None where a row group has several."""
    meta = footer_of(file).metadata
    at = [column.path for column in layout_of(file).columns].index("step")
    groups = [meta.row_group(number).column(at).statistics for number in range(meta.num_row_groups)]
    ranges = {(told.min, told.max) if told is not None and told.has_min_max else None for told in groups}
    if any(told is None or told[0] != told[1] or not isinstance(told[0], int) for told in ranges):
        return None
    return {told[0] for told in ranges if told is not None}


def copy_sequences(frame: pl.LazyFrame, folder: Path) -> None:
    """Copy all sequences into one file of the store, so that they can be read without the run dir."""
    target = folder / RECORDED
    part = target.with_name(target.name + ".part")
    frame.sink_parquet(part)
    part.rename(target)


def recorded_copy(path: Path) -> InPlaceFile:
    """Describe the copy of all sequences as a file that is read where it lies."""
    scan = pl.scan_parquet([path], glob=False)
    rows = int(scan.select(pl.len()).collect().item())
    columns = tuple(name for name in scan.collect_schema().names() if name in TABLES["sequences"])
    return InPlaceFile(path=path.name, rows=rows, columns=columns, kind="recorder")


@dataclass(frozen=True, kw_only=True)
class SequenceScan:
    """All sequences of a run as one lazy frame with `seq`, their number in it."""

    frame: pl.LazyFrame
    files: tuple[SequenceFile, ...]
    columns: frozenset[str]
    tokens_per_row: float
    notes: tuple[str, ...] = ()  # on sequences that are recorded more than once
    divisible: bool = True  # into ranges of sequences that need no other rows
    first_tokens_per_row: float | None = None  # from the first files only, so that it stays the same when the run grows

    @cached_property
    def rows(self) -> int:
        """How many sequences there are, sound or not."""
        return sum(file.rows for file in self.files)

    def logp_rows(self) -> dict[str, int]:
        """How many rows lie in files that hold each logprob."""
        return {name: sum(file.rows for file in self.files if name in file.columns) for name in LOGPS}


def read_table(folder: Path, table: str) -> pl.DataFrame:
    """Read one small table whole; empty if nothing was found for it."""
    single = folder / f"{table}.parquet"
    if single.is_file():
        return pl.read_parquet(single, glob=False)
    parts = sorted((folder / table).glob("part-*.parquet"))
    return (
        pl.concat(pl.read_parquet(part, glob=False) for part in parts) if parts else pl.DataFrame(schema=TABLES[table])
    )


def read_trajectories(folder: Path, wide: WideMetrics, logged_rows: pl.DataFrame) -> pl.DataFrame:
    """Read the trajectories with their split resolved by `logged_rows`, the table of metrics.

    TRL's completions files do not say whether a row was trained on: an evaluation overwrites the training file of its
    step, and the next file repeats its samples. Rows of a step with evaluation metrics, and of the next logged one,
    stay `unknown`; the others are `train`.
    """
    counted = ~pl.col("name_raw").str.starts_with(UNNUMBERED)  # steps that were counted, not read, tell nothing here
    metrics = logged_rows.lazy().filter(counted).select("step", "split").drop_nulls().unique().sort("step").collect()
    logged = distinct([metrics.filter(pl.col("split") == "train")["step"].to_numpy(), wide.steps])
    doubtful: set[int] = set()
    for step in metrics.filter(pl.col("split") == "eval")["step"].to_list():
        later = logged[logged > step]
        doubtful |= {step, int(later[0])} if len(later) else {step}
    unsure = pl.col("step").is_in(sorted(doubtful)) | pl.lit(value=not len(logged))
    resolved = pl.when((pl.col("split") == "unknown") & ~unsure).then(pl.lit("train")).otherwise(pl.col("split"))
    return read_table(folder, "trajectories").with_columns(resolved.alias("split"))


def scan_sequences(folder: Path, manifest: Manifest, root: Path, *, without: Iterable[str] = ()) -> SequenceScan | None:
    """Scan the recorder files in the run dir and the parts in the store as one; None if there are neither.

    `without`: names of files found to be damaged inside.
    """
    listed: list[tuple[Path, str, int, InPlaceFile | Part]]
    listed = [(root / item.path, item.path, 0, item) for item in manifest.in_place]
    listed += [(folder / "sequences" / part.name, part.source, part.first_row, part) for part in manifest.parts]
    left_out = set(without)
    choice = choose_sources(
        [
            SequenceFile(
                path=path, name=name, kind=item.kind, first_row=first, start=0, rows=item.rows, columns=item.columns
            )
            for path, name, first, item in listed
            if name not in left_out and item.rows
        ]
    )
    starts = accumulate((file.rows for file in choice.files), initial=0)
    files = [replace(file, start=start) for file, start in zip(choice.files, starts, strict=False)]
    if not files:
        return None
    frame = pl.concat(_scan_groups(files), how="diagonal_relaxed")
    duplicates = [replace(file, skipped=frozenset()) for file in choice.duplicates]
    frame, filled = fill_from_duplicates(frame, _scan_groups(duplicates))
    return SequenceScan(
        frame=frame,
        files=tuple(files),
        columns=frozenset(frame.collect_schema().names()),
        tokens_per_row=_tokens_per_row(files),
        notes=(*choice.notes, *filled),
        divisible=not filled,
        first_tokens_per_row=_tokens_per_row(files[:FIRST_FILES]),
    )


READ_ERRORS: Final = (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""Raised for a file of the run that is damaged inside, or gone: it was read before, and may have changed since."""


def scan_readable(folder: Path, manifest: Manifest, root: Path, damaged: dict[str, str]) -> SequenceScan | None:
    """Scan what can be read of the recorder files and parts; what cannot is added to `damaged`, with the reason."""
    while True:
        try:
            return scan_sequences(folder, manifest, root, without=damaged)
        except READ_ERRORS:
            unreadable = find_damaged(manifest, root)
            if unreadable.keys() <= damaged.keys():
                raise
            damaged |= unreadable


def find_damaged(manifest: Manifest, root: Path, *, without: Collection[str] = ()) -> dict[str, str]:
    """Read the run's recorder files one by one; return those that cannot be read, with the reason.

    `without`: names of files to skip.
    """
    damaged = {}
    for item in manifest.in_place:
        if item.path in without:
            continue
        try:
            columns = [name for name in item.columns if name not in SHOWN_ALONE]
            pl.read_parquet([root / item.path], columns=columns, glob=False)
        except READ_ERRORS as error:
            damaged[item.path] = _reason(error)
    return damaged


def unreadable_files(files: Sequence[SequenceFile], columns: Sequence[str]) -> list[SequenceFile]:
    """Return the files with unreadable columns, found by bisection."""
    try:
        frame = pl.concat(_scan_groups(list(files)), how="diagonal_relaxed")
        here = set(frame.collect_schema().names())
        frame.select(name for name in columns if name in here).collect(engine="streaming")
    except READ_ERRORS:
        half = len(files) // 2
        if not half:
            return list(files)
        return unreadable_files(files[:half], columns) + unreadable_files(files[half:], columns)
    return []


def _reason(error: BaseException) -> str:
    """Say why a file cannot be read, without the place that it lies at."""
    if isinstance(error, FileNotFoundError):
        return "it has disappeared since"
    if isinstance(error, OSError):
        return os.strerror(error.errno) if error.errno else "it cannot be opened"
    return (str(error).splitlines() or [type(error).__name__])[0]


def _scan_groups(files: list[SequenceFile]) -> list[pl.LazyFrame]:
    """Scan neighbours of one schema together: one scan takes many files, but only of the same types."""

    kinds: dict[tuple[int, tuple[str, ...], str], tuple[object, ...]] = {}
    schemas: list[pl.Schema] = []  # held, so that each keeps its address

    def shape(file: SequenceFile) -> object:
        schema = _schema(file.path)
        key = (id(schema), file.columns, file.kind)
        if key not in kinds:
            schemas.append(schema)
            further = (*attributes(file, schema), *figure_columns(file.kind, schema))
            kinds[key] = tuple((name, str(schema[name])) for name in (*file.columns, *further))
        return (file.skipped, *kinds[key])

    return [scan_files(list(group)) for _, group in groupby(files, key=shape)]


def scan_range(files: Sequence[SequenceFile], first: int, end: int) -> pl.LazyFrame:
    """Scan the sequences from `first` to before `end`, and of files that reach beyond only the row groups there."""

    def inside(file: SequenceFile) -> bool:
        return first <= file.start and file.start + file.rows <= end

    frames: list[pl.LazyFrame] = []
    for whole, group in groupby(files, key=inside):
        if whole:
            frames += _scan_groups(list(group))
            continue
        for file in group:
            skip = max(0, first - file.start)
            frames.append(scan_files([file], rows=(skip, min(end - file.start, file.rows) - skip)))
    return pl.concat(frames, how="diagonal_relaxed")


def scan_files(
    files: list[SequenceFile], *, rows: tuple[int, int] | None = None, held: pl.DataFrame | None = None
) -> pl.LazyFrame:
    """Scan files of one schema as sequences, those of skipped steps left out; of `rows` (offset, count) alone.

    `held`: some of their columns, which are taken instead of the files.
    """
    schema = _schema(files[0].path) if held is None else held.schema
    scan = (
        held.lazy().with_row_index(ROW, files[0].start)
        if held is not None
        else pl.scan_parquet(
            [file.path for file in files],
            row_index_name=ROW,
            row_index_offset=files[0].start,
            missing_columns="insert",
            extra_columns="ignore",
            hive_partitioning=False,
            glob=False,
        )
    )
    scan = scan if rows is None else scan.slice(*rows)
    names = [name for name in SEQUENCES if name in files[0].columns and (held is None or name in schema)]
    columns = [_canonical(name, schema[name]) for name in names]
    columns += [
        column_called(name).cast(pl.String, strict=False).alias(ATTRIBUTE + name.removeprefix(ATTRIBUTE))
        for name in attributes(files[0], schema)
    ]
    columns += figures(files[0].kind, schema)
    chosen = scan.select(pl.col(ROW).cast(pl.UInt32).alias("seq"), *columns)
    skipped = sorted(files[0].skipped)
    return chosen.filter(~pl.col("step").is_in(skipped)) if skipped else chosen


def attributes(file: SequenceFile | InPlaceFile, schema: pl.Schema) -> list[str]:
    """Return the columns of a recorder file that no table knows and that may set its sequences apart, by name.

    Of `env` and `attribute:env` the first, since both come to one name.
    """
    if file.kind != RECORDER:
        return []
    free = [name for name in schema.names() if name not in file.columns and not name.startswith(("__", ROW))]
    free = [name for name in free if not name.startswith(ATTRIBUTE) or name.removeprefix(ATTRIBUTE) not in schema]
    return sorted(name for name in free if _sets_apart(schema[name]))[:MAX_ATTRIBUTES]


def figure_columns(kind: str, schema: pl.Schema) -> list[str]:
    """Return the columns of a recorder's file that figures of its sequences are taken from."""
    if kind not in (RECORDER, RECORDER_LINES):
        return []
    own = [name for name in ("advantage", "rewards") if name in schema and _holds_figures(schema[name])]
    return [*own, *(name for name in schema.names() if name.startswith(FIGURE) and schema[name].is_numeric())]


def figures(kind: str, schema: pl.Schema) -> list[pl.Expr]:
    """Return the figures of a file's sequences, by name; of two of one name the first."""
    found: dict[str, pl.Expr] = {}
    for name in figure_columns(kind, schema):
        column, dtype = column_called(name), schema[name]
        if isinstance(dtype, pl.Struct):
            parts = [field.name for field in dtype.fields if field.dtype.is_numeric()]
            found |= {COMPONENT + part: column.struct.field(part) for part in parts[:MAX_ATTRIBUTES]}
        else:
            found.setdefault(name if name.startswith(FIGURE) else FIGURE + name, column)
    return [found[name].cast(pl.Float64, strict=False).alias(name) for name in sorted(found)]


def _holds_figures(dtype: pl.DataType) -> bool:
    parts = [part.dtype for part in dtype.fields] if isinstance(dtype, pl.Struct) else [dtype]
    return any(part.is_numeric() for part in parts)


def _sets_apart(dtype: pl.DataType) -> bool:
    return dtype.is_integer() or dtype == pl.Boolean or isinstance(dtype, pl.String | pl.Categorical | pl.Enum)


def _canonical(name: str, dtype: pl.DataType) -> pl.Expr:
    return pl.col(name) if _is_canonical(name, dtype) else pl.col(name).cast(SEQUENCES[name], strict=False)


def _is_canonical(name: str, dtype: pl.DataType) -> bool:
    """Return whether a column needs no cast; float64 logprobs are kept: r is taken in float64 anyway."""
    return dtype == SEQUENCES[name] or (name in LOGPS and dtype == pl.List(pl.Float64))


def _tokens_per_row(files: list[SequenceFile]) -> float:
    """Estimate from footers, without reading data, how long a row is."""
    import pyarrow.parquet as pq

    values = rows = 0
    for file in files[:: max(1, len(files) // SAMPLED_FILES)][:SAMPLED_FILES]:
        footer = pq.ParquetFile(file.path).metadata
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            rows += group.num_rows
            columns = map(group.column, range(group.num_columns))
            masks = (column.num_values for column in columns if column.path_in_schema.startswith("model_mask"))
            values += max(masks, default=0)
    return values / rows if rows else 1.0


def _schema(path: Path) -> pl.Schema:
    """Return a file's schema, read once; its name is literal, brackets and stars included."""
    if (known := known_schema(path)) is not None:
        return known
    try:  # the footer alone: Polars takes twice as long for it
        return polars_schema(RunFile(path=path, rel=path.name, size=path.stat().st_size))
    except (*READ_ERRORS, ValueError):  # it says what is wrong
        return pl.scan_parquet([path], glob=False).collect_schema()


def read_tokens(folder: Path, key: dict[str, object]) -> TokenTables | None:
    """Read the tables kept under `key`, or None."""
    tokens = folder / "tokens"
    try:
        if json.loads((tokens / "key.json").read_text(encoding="ascii")) != key:
            return None
        return TokenTables(**{name: pl.read_parquet(tokens / f"{name}.parquet", glob=False) for name in TOKEN_TABLES})
    except (OSError, ValueError, pl.exceptions.PolarsError):  # absent or half written: made anew
        return None


def write_tokens(folder: Path, key: dict[str, object], tables: TokenTables) -> None:
    """Write `tables` under `key`; the key is written last, so a torn write is no write."""
    tokens = folder / "tokens"
    tokens.mkdir(exist_ok=True)
    (tokens / "key.json").unlink(missing_ok=True)
    for name in TOKEN_TABLES:
        getattr(tables, name).write_parquet(tokens / f"{name}.parquet", compression="lz4")
    (tokens / "key.json").write_text(json.dumps(key, sort_keys=True), encoding="ascii")


def check_entries(store: Path) -> None:
    """Refuse a store that would have files read which lie elsewhere, or never end."""
    folders = [store]
    try:
        while folders:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
                    elif not entry.is_file(follow_symlinks=False):
                        name = Path(entry.path).relative_to(store).as_posix()
                        raise InputError(f"{store}: contains {name}, a link or special file, as no store does; {ANEW}.")
    except OSError as error:
        raise InputError(f"{store}: cannot be read: {error.strerror or error}.") from error


def open_existing(store: Path) -> Manifest | None:
    """Return the manifest of a store that can be judged without its run; None where its tokens lay in the run."""
    manifest = read_manifest(store)
    if manifest is None:
        raise InputError(f"{store}: is not a store of this version; make it again with ptt diagnose or ptt ingest.")
    copied = store / RECORDED
    if not copied.is_file():
        return None if manifest.in_place else manifest
    try:
        recorded, schema = recorded_copy(copied), pl.read_parquet_schema(copied)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{copied}: cannot be read; {ANEW}.") from error
    wrong = [name for name in recorded.columns if not _is_canonical(name, schema[name])]
    if wrong or not {"step", "model_mask"} <= set(recorded.columns):
        raise InputError(f"{copied}: its columns are not those of a store ({', '.join(wrong)[:100]}); {ANEW}.")
    return replace(manifest, in_place=(recorded,), parts=())


def single_columns(file: InPlaceFile, schema: pl.Schema) -> list[str]:
    """Return the columns of a file with a value a sequence, or one a tool call, and none a token."""
    canonical = [name for name in SEQUENCES if name in file.columns]
    single = [name for name in canonical if not isinstance(SEQUENCES[name], pl.List) or name.startswith("tool_")]
    return list(dict.fromkeys([*single, *attributes(file, schema), *figure_columns(file.kind, schema)]))


class SingleValues:
    """What was read of the files of a run, held until it is asked for."""

    def __init__(self) -> None:
        """Hold nothing."""
        self._paths: tuple[Path, ...] = ()
        self._frame: pl.DataFrame | None = None

    def hold(self, paths: Sequence[Path], frame: pl.DataFrame) -> None:
        """Hold what files of one schema have, one after another, instead of what was held before."""
        self._paths, self._frame = tuple(paths), frame

    def take(self, scan: SequenceScan, columns: Sequence[str]) -> pl.LazyFrame | None:
        """Return these columns of a scan, once; None where they are not those of exactly its files."""
        frame, self._frame = self._frame, None
        if frame is None or not scan.divisible or scan.rows != frame.height:
            return None
        if self._paths != tuple(file.path for file in scan.files) or any(file.skipped for file in scan.files):
            return None
        held = scan_files(list(scan.files), held=frame)
        known = held.collect_schema()
        whole = scan.frame.collect_schema()
        return held.select(columns) if all(known.get(name) == whole[name] for name in columns) else None
