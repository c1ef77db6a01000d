"""Rows of tables while a store is made: without secrets, bounded, and written out part by part."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from ptt.diagnostics.parsers.io.interface import Context, Lost, Piece, Wide
from ptt.diagnostics.parsers.io.parquet_files import column_called
from ptt.diagnostics.schema import FIGURE, TABLES
from ptt.diagnostics.scrub.scrub import Scrubber, Sort
from ptt.diagnostics.store.manifest import InPlaceFile
from ptt.diagnostics.store.metric_names import Renames, names_in
from ptt.diagnostics.store.scan import SingleValues, single_columns
from ptt.diagnostics.store.value_range import bounded_values

TEXTS: Final = frozenset(
    {("turns", "text"), ("tool_calls", "args_json"), ("tool_calls", "error_text"), ("events", "text")}
    | {(table, column) for table in TABLES for column in ("stop_reason", "error_type", "note")}
)
IDS: Final = frozenset(
    (table, column) for table in TABLES for column in ("sample_id", "group_id", "trajectory_id", "call_id", "node")
)
"""Random by design, or needed for look-ups: a finding on machines is about the machine named in telemetry."""
OURS: Final = frozenset({"split", "kind", "ok_source", "source", "name"})
"""Our own words, and paths that are scrubbed when they are listed; `name` is canonical only in `metrics`."""

SLICE_ROWS: Final = 2_000  # whose texts are checked together: each is in memory twice
UNREADABLE: Final = "[]"  # replaces what may hold a key but is not JSON

FLUSH_ROWS: Final = 200_000
FLUSH_BYTES: Final = 12_000_000  # of conversations, whose rows have no size limit


def sort_of(table: str, column: str) -> Sort | None:
    """Return what a column's texts are; None where they are words of ours."""
    if (table, column) in TEXTS:
        return Sort.TEXT
    if (table, column) in IDS:
        return Sort.ID
    if table == "conversations":
        return None  # training data, in which only keys of a certain shape are masked
    return None if column in OURS and (table == "metrics" or column != "name") else Sort.NAME


def scrub_pieces(pieces: Iterable[Piece], scrubber: Scrubber) -> Iterator[Piece]:
    """Yield pieces without secrets; rows are scrubbed by `scrub_frame` when they are written, many at once."""
    for piece in pieces:
        match piece:
            case Wide(names=names):
                yield _wide(piece, names, scrubber)
            case Lost(note=str(note)):
                yield replace(piece, note=scrubber.text(note))
            case Context(facts=facts):
                yield replace(piece, facts=scrubber.settings(facts), settings=scrubber.settings(piece.settings))
            case _:
                yield piece


def scrub_frame(table: str, frame: pl.DataFrame, scrubber: Scrubber) -> pl.DataFrame:
    """Return rows of a table without secrets."""
    if table == "conversations":
        frame = scrub_conversations(frame, scrubber)
    sorts = {column: sort for column in frame.columns if (sort := sort_of(table, column)) is not None}
    changed = []
    for sort in Sort:
        columns = [frame[column] for column, of in sorts.items() if of is sort and _holds_texts(frame.schema[column])]
        texts = [_texts(column, sort).alias("") for column in columns]
        masks = scrubber.masks(pl.concat(texts), sort) if texts else {}
        changed += [_masked(column, masks) for column in columns] if masks else []
    return frame.with_columns(changed) if changed else frame


def _holds_texts(dtype: pl.DataType) -> bool:
    return dtype in (pl.String, pl.List(pl.String))


def _texts(column: pl.Series, sort: Sort) -> pl.Series:
    """Return the texts of a column: once each where there are few names in many rows."""
    texts = column.explode() if column.dtype == pl.List(pl.String) else column
    return texts.unique(maintain_order=True) if sort is Sort.NAME else texts


def _masked(column: pl.Series, masks: Mapping[str, str]) -> pl.Series:
    if column.dtype == pl.List(pl.String):
        return column.list.eval(pl.element().replace(masks))
    return column.replace(masks)


def _wide(piece: Wide, names: Mapping[str, str | None], scrubber: Scrubber) -> Wide:
    masks = {raw: name for raw, name in zip(names, scrubber.names(list(names)), strict=True) if raw != name}
    if not masks:
        return piece
    taken = set(names) - set(masks)
    for raw, mask in masks.items():  # a file may hold a column that is called as a mask is
        name = mask
        while name in taken:
            name += "'"
        masks[raw] = name
        taken.add(name)
    return Wide(
        frame=piece.frame.rename(masks, strict=False), names={masks.get(raw, raw): name for raw, name in names.items()}
    )


UNREAD: Final = (OSError, pl.exceptions.ComputeError, pl.exceptions.SchemaError, pl.exceptions.ColumnNotFoundError)
Masks = dict[str, dict[str, str]]
"""By column: each text and its mask."""


def masks_in_place(
    paths: Sequence[Path],
    texts: Sequence[str],
    scrubber: Scrubber,
    *,
    held: SingleValues | None = None,
    alike: InPlaceFile | None = None,
) -> Masks:
    """Return what must be masked in files that are scanned where they lie; all of them hold these columns of texts.

    `held`: is given the single values of the files, if `alike` describes each of them.
    """
    if not texts:
        return {}
    if held is not None and alike is not None:
        try:
            columns = _read_single(paths, texts, held, alike)
            return _masks_of(columns, scrubber)
        except UNREAD:  # below, of texts alone: they are looked through in files with any other damage too
            pass
    try:
        columns = _read_texts(paths, texts)
    except UNREAD:  # one is damaged inside, which the token pass says, or types differ
        each = (masks_in_place([path], texts, scrubber) for path in paths) if len(paths) > 1 else ()
        found: Masks = {}
        for masks in each:
            for column, of_column in masks.items():
                found.setdefault(column, {}).update(of_column)
        return found
    return _masks_of(columns, scrubber)


def _masks_of(columns: Mapping[str, pl.Series], scrubber: Scrubber) -> Masks:
    masks = {name: scrubber.masks(column, sort_of("sequences", name) or Sort.NAME) for name, column in columns.items()}
    return {column: of_column for column, of_column in masks.items() if of_column}


def _read_single(
    paths: Sequence[Path], texts: Sequence[str], held: SingleValues, alike: InPlaceFile
) -> dict[str, pl.Series]:
    """Read the texts, and beside them the single values that are read anyway once files are judged."""
    scan = _scan(paths)
    single = single_columns(alike, scan.collect_schema())
    frame = scan.select(map(column_called, dict.fromkeys([*single, *texts]))).collect(engine="streaming")
    held.hold(paths, pl.DataFrame([frame.get_column(name) for name in single]))
    columns = {name: frame.get_column(name).alias("") for name in texts}
    flat = {name: column.cast(_as_texts(column.dtype)) for name, column in columns.items()}
    return {name: _texts(column, sort_of("sequences", name) or Sort.NAME) for name, column in flat.items()}


def _as_texts(dtype: pl.DataType) -> pl.DataType:
    """Return the type to read texts as: they may be categories, and lists of a fixed length."""
    return pl.List(pl.String) if isinstance(dtype, pl.List | pl.Array) else pl.String()


def _scan(paths: Sequence[Path]) -> pl.LazyFrame:
    return pl.scan_parquet(list(paths), glob=False, hive_partitioning=False, extra_columns="ignore")


def _read_texts(paths: Sequence[Path], texts: Sequence[str]) -> dict[str, pl.Series]:
    scan = _scan(paths)
    schema = scan.collect_schema()
    frame = scan.select(column_called(name).cast(_as_texts(schema[name])) for name in texts).collect(engine="streaming")
    return {name: _texts(frame[name].alias(""), sort_of("sequences", name) or Sort.NAME) for name in texts}


def copy_masked(path: Path, masks: Masks, target: Path, scrubber: Scrubber) -> None:
    """Copy a file with its texts and column names masked."""
    scan = pl.scan_parquet([path], glob=False, hive_partitioning=False)
    columns = []
    for name, dtype in scan.collect_schema().items():
        column = column_called(name)
        if name in masks:
            texts = column.cast(_as_texts(dtype))
            replaced = pl.element().replace(masks[name])
            column = texts.replace(masks[name]) if _as_texts(dtype) == pl.String else texts.list.eval(replaced)
        columns.append(column.alias(scrubber.text(name, Sort.NAME)))
    scan.select(columns).sink_parquet(target)


def scrub_conversations(frame: pl.DataFrame, scrubber: Scrubber) -> pl.DataFrame:
    """Return conversations without keys and tokens; each column stays JSON, and rows say in how many texts one was."""
    return pl.concat([_scrubbed(part, scrubber) for part in frame.iter_slices(SLICE_ROWS)]) if frame.height else frame


def _scrubbed(frame: pl.DataFrame, scrubber: Scrubber) -> pl.DataFrame:
    (prompt, asked), (completion, said), (tools, offered) = (
        _masked_column(frame[name], scrubber) for name in ("prompt", "completion", "tools")
    )
    return frame.with_columns(
        prompt, completion, tools, (asked + offered).alias("masked_prompt"), said.alias("masked_completion")
    )


def _masked_column(column: pl.Series, scrubber: Scrubber) -> tuple[pl.Series, pl.Series]:
    """Return a column without keys and tokens, and of each row the number of texts that held one."""
    changed: dict[str, str] = {}
    counts: dict[str, int] = {}
    for row in scrubber.may_hold_keys(column):
        found = _read(row)
        if found is None:
            changed[row], counts[row] = UNREADABLE, 1
            continue
        masks = scrubber.key_masks(_texts_within(found))
        if masks:
            changed[row] = json.dumps(_replaced(found, masks), ensure_ascii=False)
            counts[row] = sum(text in masks for text in _texts_within(found))
    if not changed:
        return column, pl.zeros(len(column), pl.Int32, eager=True)
    return column.replace(changed), column.replace_strict(counts, default=0, return_dtype=pl.Int32)


def _read(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:  # Python's writer spells NaN and infinities, which JSON does not know
        pass
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _texts_within(found: Any) -> Iterator[str]:
    if isinstance(found, str):
        yield found
    elif isinstance(found, list):
        for item in found:
            yield from _texts_within(item)
    elif isinstance(found, dict):
        for key, value in found.items():
            yield key
            yield from _texts_within(value)


def _replaced(found: Any, masks: Mapping[str, str]) -> Any:
    if isinstance(found, str):
        return masks.get(found, found)
    if isinstance(found, list):
        return [_replaced(item, masks) for item in found]
    if isinstance(found, dict):
        return {masks.get(key, key): _replaced(value, masks) for key, value in found.items()}
    return found


class TableParts:
    """Rows by table: some wait to be written, the others lie in the store's folder."""

    def __init__(self, folder: Path, scrubber: Scrubber) -> None:
        """`folder`: of the store that is made."""
        self._folder, self._scrubber = folder, scrubber
        self._waiting: dict[str, list[pl.DataFrame]] = {}
        self._waiting_rows: dict[str, int] = {}
        self._written: dict[str, int] = {}  # parts
        self._names: list[pl.DataFrame] = []  # of metrics already written out

    def add(self, table: str, frame: pl.DataFrame, *, source: str, priority: int) -> int:
        """Add rows of a file to a table; return how many of their values are too large to calculate with."""
        schema = TABLES[table]
        if "source" in schema and "source" not in frame.columns:
            frame = frame.with_columns(source=pl.lit(source))
        if table == "metrics":
            frame = frame.with_columns(priority=pl.lit(priority, pl.Int32))
            schema = {**schema, "priority": pl.Int32()}
        frame, beyond = bounded_values(_matched(frame, schema))
        self._wait(table, frame)
        if self._waiting_rows[table] > FLUSH_ROWS or (table == "conversations" and self._is_large(table)):
            self._flush(table)
        return beyond

    def add_sequences(self, frame: pl.DataFrame) -> tuple[Path, tuple[str, ...], int]:
        """Write sequences as a part of their own; return it, its columns, and how many values are too large."""
        schema = TABLES["sequences"] | {name: pl.Float64() for name in frame.columns if name.startswith(FIGURE)}
        names = [name for name in schema if name in frame.columns]
        names = [name for name in names if frame[name].null_count() < frame.height]  # nulls alone: nothing recorded
        frame = _matched(
            pl.DataFrame([frame.get_column(name) for name in names]), {name: schema[name] for name in names}
        )
        frame, beyond = bounded_values(frame)
        self._wait("sequences", frame)
        return self._flush("sequences"), tuple(frame.columns), beyond

    def next_part(self, table: str) -> Path:
        """Return where the next part of a table goes."""
        number = self._written.get(table, 0)
        self._written[table] = number + 1
        target = self._folder / table / _part_name(number)
        target.parent.mkdir(exist_ok=True)
        return target

    def metric_names(self) -> list[pl.DataFrame]:
        """Write out the metrics that wait, and return the names in each part (metric_names.LOGGED)."""
        if "metrics" in self._waiting:
            self._flush("metrics")
        return self._names

    def rename_metrics(self, renames: Renames) -> None:
        """Rename metrics in the parts that are already on disk."""
        for number in range(self._written.get("metrics", 0)):
            path = self._folder / "metrics" / _part_name(number)
            renames.rows(pl.read_parquet(path, glob=False)).write_parquet(path, compression_level=1)

    def add_renamed(self, metrics: pl.DataFrame) -> None:
        """Add metrics that have their names and their priority already."""
        self._wait("metrics", metrics)

    def close(self) -> None:
        """Write what is still waiting."""
        for table in list(self._waiting):
            self._flush(table)

    def _wait(self, table: str, frame: pl.DataFrame) -> None:
        self._waiting.setdefault(table, []).append(frame)
        self._waiting_rows[table] = self._waiting_rows.get(table, 0) + frame.height

    def _is_large(self, table: str) -> bool:
        return sum(frame.estimated_size() for frame in self._waiting[table]) > FLUSH_BYTES

    def _flush(self, table: str) -> Path:
        target = self.next_part(table)
        self._waiting_rows[table] = 0
        frame = scrub_frame(table, pl.concat(self._waiting.pop(table)), self._scrubber)
        if table == "metrics":
            self._names.append(names_in(frame))
        frame.write_parquet(target, compression_level=1)  # as small as by default, in half the time
        return target


def _matched(frame: pl.DataFrame, schema: dict[str, pl.DataType]) -> pl.DataFrame:
    return frame.match_to_schema(
        pl.Schema(schema), missing_columns="insert", extra_columns="raise", integer_cast="upcast"
    )


def _part_name(number: int) -> str:
    """Return the file name of a table's part in the store."""
    return f"part-{number:05d}.parquet"
