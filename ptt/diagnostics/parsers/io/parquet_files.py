"""What the Parquet parsers share: a schema without its data, batches that fit the budget, and what a cut file means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from polars import selectors

from ptt.diagnostics.budget_limits import MB
from ptt.diagnostics.parsers.io.budget import BudgetSpent
from ptt.diagnostics.parsers.io.interface import REFUSED, Lost, RunFile, read_error
from ptt.diagnostics.parsers.io.parquet_pages import pages, schema_bytes, schema_depth, schema_size

MAGIC = b"PAR1"
TAIL_BYTES: Final = 8  # the length of the footer, and MAGIC
# ValueError covers names that are not UTF-8; Arrow raises the others for a damaged or vanished file.
DAMAGE = (OSError, ValueError, IndexError, pa.ArrowException)
MAX_COLUMNS: Final = 20_000  # per-layer statistics of a large model take thousands
EXPLAINED: Final = 8  # bytes in memory that a byte on disk explains; log-probabilities reach 2, masks more
WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}
TEXT: Final = "BYTE_ARRAY"
LEVELS: Final = 4  # bytes a value of a list takes beside itself while it is decoded
VIEW: Final = 16  # bytes of a text beside its characters
ROW_BYTES: Final = 512  # a sequence as later stages hold it, its tokens not counted
TOKEN_BYTES: Final = 96  # a token while its sequence is counted: a sequence is taken whole
TOKENS_PER_SECOND: Final = 8_000_000  # of CPU time for counting
ROWS_PER_SECOND: Final = 40_000  # of sequences, whose ids, groups and rewards are judged
PYTHON: Final = 16  # times what Arrow needs for a value, for the same value as a Python object in a list
LENGTH_ROWS: Final = 64
SHORT_FOOTER: Final = 16 << 10  # read at first; a row group of six columns takes a thousand bytes
TICK_PAGES: Final = 16  # headers of pages between two looks at the clock
JUDGING: Final = "seconds of judging"  # key in a file's looks: expected CPU time
SCHEMAS_KEPT: Final = 1 << 18  # of files: a run has fewer
_schemas: Final[dict[Path, tuple[tuple[int, int, int], pl.Schema]]] = {}
"""Schemas of the files read last, with their state then: opening a file again would double its cost."""
_distinct_schemas: Final[dict[tuple[tuple[str, pl.DataType], ...], pl.Schema]] = {}
ARROW_SCHEMA: Final = b"ARROW:schema"  # a footer's notes on types that Parquet does not have
LAYOUTS_KEPT: Final = 8


class _Column(NamedTuple):
    """One column of values, as the schema has it."""

    top: str  # the column of the table that it belongs to
    path: str  # from there to the values
    width: int  # bytes of a value in memory; for a text, without its characters
    repeated: bool
    text: bool


@dataclass(frozen=True)
class Layout:
    """What files of one schema share: a run has few schemas, and working one out costs half of opening a file."""

    beginning: bytes | None  # of the footer, up to the end of the schema
    told: bytes | None  # under ARROW_SCHEMA
    parquet: pq.ParquetSchema
    arrow: pa.Schema
    columns: tuple[_Column, ...]
    looks: dict[str, Any] = field(default_factory=dict)  # derived from the schema, by whoever needs it


_layouts: Final[list[Layout]] = []
"""Those met last."""


def schema_of(file: RunFile) -> tuple[pa.Schema, int] | None:
    """Return schema and row count from the footer; None if the file is no readable Parquet."""
    return file.look("parquet schema", lambda: _schema_of(file))


def _schema_of(file: RunFile) -> tuple[pa.Schema, int] | None:
    try:
        meta = footer_of(file).metadata
        rows = sum(meta.row_group(index).num_rows for index in range(meta.num_row_groups))
        return (layout_of(file).arrow, rows) if rows == meta.num_rows >= 0 else None
    except DAMAGE:  # cut, damaged, or not Parquet at all
        return None


def footer_of(file: RunFile) -> pq.ParquetFile:
    """Return a file's footer alone, read once: no column can be read of it; raises one of DAMAGE."""
    if "parquet footer" not in file.looks:
        if not file.beginning.startswith(MAGIC):
            raise ValueError("not Parquet")
        footer = _footer(file)
        _check_schema(file, footer[:-TAIL_BYTES])
        file.looks["parquet footer"] = pq.ParquetFile(pa.BufferReader(MAGIC + footer))
    found: pq.ParquetFile = file.looks["parquet footer"]
    return found


def layout_of(file: RunFile) -> Layout:
    """Return what a file shares with those of its schema; raises one of DAMAGE."""
    if "parquet layout" not in file.looks:
        parquet = footer_of(file)
        beginning, told = schema_bytes(_footer(file)), (parquet.metadata.metadata or {}).get(ARROW_SCHEMA)
        file.looks["parquet layout"] = _known_layout(parquet, beginning, told) or _new_layout(parquet, beginning, told)
    found: Layout = file.looks["parquet layout"]
    return found


def _known_layout(parquet: pq.ParquetFile, beginning: bytes | None, told: bytes | None) -> Layout | None:
    """Return the layout of an earlier file of this schema: the same bytes, and the same in what Arrow makes of them."""
    for layout in _layouts:
        if layout.beginning == beginning is not None and layout.told == told and layout.parquet == parquet.schema:
            return layout
    return None


def _new_layout(parquet: pq.ParquetFile, beginning: bytes | None, told: bytes | None) -> Layout:
    layout = Layout(beginning, told, parquet.schema, parquet.schema_arrow, _columns(parquet))
    _layouts.append(layout)
    del _layouts[:-LAYOUTS_KEPT]
    return layout


def polars_schema(file: RunFile) -> pl.Schema:
    """Return the schema as Polars reads it, from the footer alone."""
    state = _state(file.path)
    layout: Layout | None = file.looks.get("parquet layout")
    if layout is not None and "polars schema" in layout.looks:
        return _remember(file.path, state, layout.looks["polars schema"])
    read = pl.scan_parquet(BytesIO(MAGIC + _footer(file))).collect_schema()
    schema = _distinct_schemas.setdefault(tuple(read.items()), read)
    if layout is not None:
        layout.looks["polars schema"] = schema
    return _remember(file.path, state, schema)


def column_called(name: str) -> pl.Expr:
    """Return the column of a foreign name: `pl.col` takes `*` and `^a.*$` for patterns."""
    return selectors.by_name(name).as_expr()


def share_schema(path: Path, schema: pl.Schema) -> None:
    """Let a file that is known to be of a schema have it without a look."""
    _remember(path, _state(path), schema)


def _remember(path: Path, state: tuple[int, int, int], schema: pl.Schema) -> pl.Schema:
    if len(_schemas) >= SCHEMAS_KEPT:
        _schemas.clear()
    _schemas[path] = state, schema
    return schema


def known_schema(path: Path) -> pl.Schema | None:
    """Return what `polars_schema` returned for a file, if it has not changed since; None if it was never asked."""
    state, schema = _schemas.get(path, (None, None))
    try:
        return schema if state is not None and state == _state(path) else None
    except OSError:  # gone
        return None


def _state(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino


def _footer(file: RunFile) -> bytes:
    """Read the end of a file from the beginning of its footer; ValueError if it has none."""
    if "parquet tail" not in file.looks:
        with file.path.open("rb") as handle:
            handle.seek(max(0, file.size - SHORT_FOOTER))
            tail = handle.read(SHORT_FOOTER)
            nbytes = int.from_bytes(tail[-TAIL_BYTES:-4], "little") + TAIL_BYTES
            if nbytes + len(MAGIC) > file.size or not tail.endswith(MAGIC):
                raise ValueError("a file without a footer")
            if nbytes > len(tail):
                handle.seek(file.size - nbytes)
                tail = handle.read(nbytes)
        file.looks["parquet tail"] = tail[-nbytes:]
    found: bytes = file.looks["parquet tail"]
    return found


def _check_schema(file: RunFile, footer: bytes) -> None:
    """Raise where building the schema would take more than its columns are worth."""
    if (columns := schema_size(footer) - 1) > MAX_COLUMNS:
        file.looks[REFUSED] = f"Its footer lists {columns} columns; at most {MAX_COLUMNS} are read."
        raise ValueError("a schema of too many columns")
    if schema_depth(footer) > file.budget.limits.depth:
        raise ValueError("a schema that is nested too deeply")


class Chunk(NamedTuple):
    """One column of a row group, as its pages claim it to be."""

    column: str  # its name in the table, of a list or a struct as well
    path: str  # from there to the values
    values: int
    decoded: int  # bytes, with each text of a dictionary counted once
    repeated: bool  # as in a list: one row may hold all of it
    shared: int  # bytes of the texts that each value may refer to
    page: int  # bytes of the largest page


class Group(NamedTuple):
    """One row group."""

    rows: int
    chunks: tuple[Chunk, ...]

    def of(self, columns: Sequence[str]) -> list[Chunk]:
        """Return the chunks of some columns."""
        return [chunk for chunk in self.chunks if chunk.column in columns]


def row_groups(parquet: pq.ParquetFile, file: RunFile) -> Iterator[Group]:
    """Yield what each row group claims to hold; raises one of DAMAGE if its pages cannot be found."""
    meta = parquet.metadata
    columns = layout_of(file).columns if parquet is file.looks.get("parquet footer") else _columns(parquet)
    with file.path.open("rb", buffering=0) as handle:  # headers are far apart
        for number in range(meta.num_row_groups):
            group = meta.row_group(number)
            found = [_chunk(handle, group.column(at), column, file) for at, column in enumerate(columns)]
            yield Group(group.num_rows, tuple(found))


def _columns(parquet: pq.ParquetFile) -> tuple[_Column, ...]:
    names = set(parquet.schema_arrow.names)
    columns = []
    for at in range(parquet.metadata.num_columns):
        column = parquet.schema.column(at)
        path, kind = str(column.path), column.physical_type
        width = VIEW if kind == TEXT else WIDTHS.get(kind, max(1, column.length))
        columns.append(_Column(_top(path, names), path, width, column.max_repetition_level > 0, kind == TEXT))
    return tuple(columns)


def _top(path: str, names: set[str]) -> str:
    """Return the column of the table that values belong to; a name may hold dots, which paths are joined with."""
    parts = path.split(".")
    return next((name for at in range(len(parts)) if (name := ".".join(parts[: at + 1])) in names), path)


def _chunk(handle: BinaryIO, chunk: pq.ColumnChunkMetaData, column: _Column, file: RunFile) -> Chunk:
    start = min(place for place in (chunk.dictionary_page_offset, chunk.data_page_offset) if place)
    values = content = dictionary = largest = 0
    for number, page in enumerate(pages(handle, start, chunk.num_values)):
        if not number % TICK_PAGES:
            file.budget.tick()
        largest = max(largest, page.unpacked)
        if page.is_dictionary:
            dictionary = page.unpacked
        else:
            values += page.values
            content += page.unpacked
    decoded = values * (column.width + (LEVELS if column.repeated else 0)) + dictionary
    shared = 0
    if column.text:
        decoded += content
        shared = content if "DELTA_BYTE_ARRAY" in chunk.encodings else dictionary
    return Chunk(column.top, column.path, values, decoded, column.repeated, shared, largest)


def ask(file: RunFile, nbytes: int, what: str) -> None:
    """Ask the budget for memory beyond what the size of the file explains."""
    file.budget.take(nbytes=max(0, nbytes - EXPLAINED * file.size), what=what)


def batches(file: RunFile, columns: Sequence[str], *, rows: int, cell: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield some columns, at most `rows` rows at a time and no more than the budget allows; may raise one of DAMAGE.

    `cell`: bytes that the caller needs for each value outside of lists; without it, rows become Python objects.
    """
    memory = file.budget.limits.memory_mb * MB
    if cell:
        rows = max(1, min(rows, memory // 4 // (cell * max(1, len(columns)))))
    with pq.ParquetFile(file.path) as parquet:
        fitting, spent = _fitting_groups(parquet, file, columns)
        for batch in parquet.iter_batches(batch_size=rows, row_groups=fitting, columns=list(columns)):
            file.budget.tick()
            yield from (batch,) if cell else _split(file, batch, memory // PYTHON)
        if spent is not None:
            raise spent


def row_batches(
    file: RunFile, columns: Sequence[str], total: int, *, rows: int
) -> Iterator[list[dict[str, Any]] | Lost]:
    """Yield some columns of `total` rows as objects, batch by batch; where a page is damaged, the rest is lost."""
    done = 0
    try:
        for batch in batches(file, columns, rows=rows):
            done += batch.num_rows
            yield batch.to_pylist()
    except DAMAGE:  # keep what was read before it
        lost = max(0, total - done)
        yield Lost(rows=lost, note=f"{file.rel}: its data is damaged; rows lost: {lost} of {total}.")


def frame_of(batch: pa.RecordBatch) -> pl.DataFrame:
    """Return a batch as a frame, its columns under their own names: Polars gives another to one whose name is empty."""
    numbered = pa.Table.from_batches([batch]).rename_columns([str(place) for place in range(batch.num_columns)])
    frame = pl.DataFrame(numbered)
    frame.columns = batch.schema.names
    return frame


def _fitting_groups(
    parquet: pq.ParquetFile, file: RunFile, columns: Sequence[str]
) -> tuple[list[int], BudgetSpent | None]:
    """Return the row groups before the first that asks for too much, and what that is."""
    fitting: list[int] = []
    try:
        for number, group in enumerate(row_groups(parquet, file)):
            check_group(file, number, group.of(columns))
            fitting.append(number)
    except BudgetSpent as spent:
        return fitting, spent
    return fitting, None


def check_group(file: RunFile, number: int, chunks: Sequence[Chunk]) -> None:
    """Ask the budget for what decoding these columns of a row group takes."""
    ask(file, max((2 * chunk.page for chunk in chunks), default=0), "a page")
    ask(file, sum(chunk.decoded for chunk in chunks if chunk.repeated), "a row group")
    texts = [chunk for chunk in chunks if chunk.shared]
    half = file.budget.limits.memory_mb * MB // 2
    if sum(chunk.values * chunk.shared for chunk in texts) > half + EXPLAINED * file.size:
        ask(file, sum(_text_bytes(file, number, chunk) for chunk in texts), "the text of a row group")


def _text_bytes(file: RunFile, number: int, chunk: Chunk) -> int:
    """Count the characters of all values, repeated ones each time."""
    ask(file, chunk.values * VIEW, "the text of a row group")
    with pq.ParquetFile(file.path, read_dictionary=[chunk.path]) as parquet:
        column = parquet.read_row_group(number, columns=[chunk.path]).column(0)
    return sum(_characters(part) for part in column.chunks)


def _characters(array: pa.Array) -> int:
    import pyarrow.compute as pc  # 0.1 s, and only a file that claims much is counted so

    while not pa.types.is_dictionary(array.type):
        if pa.types.is_struct(array.type):
            array = array.field(0)
        elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
            array = array.values
        else:
            return int(array.nbytes)
    lengths = pc.binary_length(array.dictionary.cast(pa.large_binary()))
    return int(pc.sum(pc.take(lengths, array.indices)).as_py() or 0)


def _split(file: RunFile, batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts that Python can hold."""
    if batch.nbytes <= most:
        yield batch
    elif batch.num_rows < 2:
        ask(file, PYTHON * batch.nbytes, "a row")
        yield batch
    else:
        half = batch.num_rows // 2
        yield from _split(file, batch.slice(0, half), most)
        yield from _split(file, batch.slice(half), most)


def check_sequences(file: RunFile, columns: Sequence[str], mask: str) -> None:
    """Ask the budget for what counting the tokens of a whole file takes, which is scanned later; may raise DAMAGE."""
    tokens, rows, seconds = 0, 0, 0.0
    for number, group in enumerate(row_groups(footer_of(file), file)):
        chunks = group.of(columns)
        check_group(file, number, chunks)
        ask(file, 2 * sum(chunk.decoded for chunk in chunks), "a row group")  # two are read at a time
        rows += group.rows
        ask(file, rows * ROW_BYTES, "a table of its sequences")
        inside = max((chunk.values for chunk in chunks if chunk.column == mask), default=0)
        tokens += max((chunk.values for chunk in chunks), default=0)
        seconds = tokens / TOKENS_PER_SECOND + rows / ROWS_PER_SECOND
        if seconds > file.budget.seconds_left:
            what = f"judging its {rows} sequences of {tokens} tokens"
            raise BudgetSpent(f"{what} would take {seconds:.0f} s of CPU time", "file_seconds")
        if inside * TOKEN_BYTES > file.budget.limits.memory_mb * MB + EXPLAINED * file.size:
            ask(file, _longest(file, number, mask) * TOKEN_BYTES, "its longest sequence")
    file.looks[JUDGING] = seconds
    file.budget.charge(seconds)


def _longest(file: RunFile, number: int, column: str) -> int:
    import pyarrow.compute as pc  # as above

    with pq.ParquetFile(file.path) as parquet:
        batched = parquet.iter_batches(batch_size=LENGTH_ROWS, row_groups=[number], columns=[column])
        return max((pc.max(pc.list_value_length(batch.column(0))).as_py() or 0 for batch in batched), default=0)


def is_cut(file: RunFile) -> bool:
    """Return whether the file begins as Parquet, for judging by its path when the footer is unreadable."""
    return file.begins(MAGIC)


def cut_note(file: RunFile) -> Lost:
    """Report what an unreadable footer means."""
    if why := file.looks.get(REFUSED):
        return Lost(bytes=file.size, note=f"{file.rel}: {why}")
    try:
        with file.path.open("rb") as handle:
            handle.seek(max(0, file.size - len(MAGIC)))
            ends_right = handle.read() == MAGIC
    except OSError as error:  # gone, or its disk fails
        return read_error(file, error)
    if ends_right and file.size > 2 * len(MAGIC):
        note = f"{file.rel}: its footer is damaged, so its rows are lost."
    else:
        note = f"{file.rel}: footer missing: the file was cut while being written, so its rows are lost."
    return Lost(bytes=file.size, note=note)
