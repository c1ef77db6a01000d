"""Metric tables as CSV or TSV, one row a step or one row a value: trackers' exports, and what loggers write.

Lightning's and Keras' CSV loggers, stable-baselines3's and RLlib's `progress.csv`, Gym's `monitor.csv`, pandas. The
header tells the table, whatever the file is called; without a counter the rows are numbered.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, pairwise
from typing import Any

import polars as pl

from ptt.diagnostics.metrics.aliases import split_of
from ptt.diagnostics.metrics.name_words import words_of
from ptt.diagnostics.parsers.io import metric_blocks
from ptt.diagnostics.parsers.io.counters import KINDS, Counter, has_several_runs, label_of_runs
from ptt.diagnostics.parsers.io.csv_columns import Columns, columns_of
from ptt.diagnostics.parsers.io.interface import (
    HEAD_BYTES,
    REFUSED,
    Context,
    Lost,
    Parser,
    Piece,
    Rows,
    RunFile,
    lost_notes,
)
from ptt.diagnostics.parsers.io.lines import BOM, PACKED, blocks, is_torn, pieces, text_head, torn_line
from ptt.diagnostics.parsers.io.metric_blocks import known_names
from ptt.diagnostics.parsers.io.metric_logs import (
    EVALUATION,
    TOTALS,
    TRAINING,
    counter_of,
    curve_name,
    is_number_text,
    is_of_update,
    is_table_of_things,
)
from ptt.diagnostics.parsers.io.metric_rows import (
    SAMPLE_KEYS,
    STEP_KEYS,
    TIME_KEYS,
    TRACKER_COLUMNS,
    fill_steps,
    metric_frame,
    metric_names,
)
from ptt.diagnostics.parsers.io.telemetry import Facts
from ptt.diagnostics.parsers.io.values import NON_FINITE, as_step

SUFFIXES = tuple(f"{ending}{packed}" for ending in (".csv", ".tsv") for packed in ("", *PACKED))
SEPARATORS = (",", "\t", ";")
STRUCTURES = ("[", "{", "(", "array(")  # begin the cells that hold no number and no text: RLlib's histograms, configs
COMMENT = "#"  # in front of numpy's headers
MONITOR_SETTINGS = b"#{"  # begins the line that Gym's monitor writes above its header
MONITOR = {"r": "reward", "l": "episode_length", "t": "elapsed"}  # its columns, a row an episode
SAMPLED_ROWS = 200  # that tell what counts the rows
SAMPLED_BYTES = 1 << 20
CHECKED_ROWS = 3  # at least one must hold a number: in a table of texts none does
MAX_COLUMNS = 20_000
MAX_HEADLESS = 16  # columns of a table without a header: a wider one holds features, or tokens
MIN_HEADLESS = 5  # rows of one
MIN_COUNTED = 3  # rows whose step counts on
LOG_WORDS = TRAINING | {
    "log",
    "logs",
    "metrics",
    "history",
    "curve",
    "progress",
    "score",
    "scores",
    "return",
    "returns",
}
MAX_HEADER_BYTES = 4 << 20  # MAX_COLUMNS columns with long names
MAX_CELLS = 1 << 20  # parsed at a time: cells of a byte each would take a hundred times as much as their text
NAME_KEYS = ("metric", "name", "key", "tag")
BAD_ROWS = "row(s) skipped: no step, or text where a number belongs."
TENSORBOARD = ("wall time", "step", "value")  # the header of a curve it exports as run-RUN-tag-TAG.csv
MAX_NAMED = 8  # runs of a file that a note spells out
RUN = "run"  # the metric that numbers the runs of a file
TORN_ROWS = "row(s) lost: torn or run together, with more or fewer fields than the header names."
WHOLE_SHARE = 0.5  # of a block's rows that fit their header: if fewer do, rows have fields without a name
NO_LINE_END = "has no final line end: its last number may be cut, and was read as it stands."
NULLS = ("null", "none", "no log")  # the last in the tables of Hugging Face's notebooks


@dataclass(frozen=True)
class _Dialect:
    separator: str
    header: tuple[str, ...]
    counter: Counter  # by its column, or without one: the rows are numbered
    time: str | None
    name: str | None  # set where the table is long
    value: str | None
    label: str | None = None  # names the runs, one below the other
    headed: bool = True  # the first line names the columns; otherwise these are named by position

    @property
    def step(self) -> str | None:
        """The column that counts the rows."""
        return next(iter(self.counter.keys), None)


def _dialect(lines: list[bytes], file: RunFile) -> _Dialect | None:
    """Read the header and what counts the first rows; None if this is no metric table."""
    named = file.name.lower().endswith(SUFFIXES)
    text = lines[0].decode("utf-8", "replace").strip("\r\n").removeprefix(COMMENT)
    for separator in sorted(SEPARATORS, key=text.count, reverse=True):
        header = tuple(name.strip() for name in _cells(text, separator))
        header = tuple(MONITOR.get(name, name) for name in header) if set(header) == MONITOR.keys() else header
        lower = {name.lower(): name for name in reversed(header)}
        usual = 2 <= len(header) <= MAX_COLUMNS and len(set(header)) == len(header)
        if (
            not usual
            or (
                SAMPLE_KEYS & lower.keys()
                and not (named and _tells_tasks(lines, header, separator))
                and not is_of_update(dict.fromkeys(lower, 0))
            )
            or all(map(is_number_text, filter(None, header)))
        ):
            continue
        counter = _counter(lines, header, separator, named=named)
        if counter is None:
            continue
        times = (lower[key] for key in (*TIME_KEYS, "wall time") if key in lower)
        name = next((lower[key] for key in NAME_KEYS if key in lower), None)
        value = lower.get("value") if name else None
        rows = _sample(lines, header, separator, strict=True) if named and counter.keys and not value else []
        label = label_of_runs(rows, counter.keys[0]) if has_several_runs(rows) else None
        return _Dialect(separator, header, counter, next(times, None), name if value else None, value, label)
    return _headless(lines) if named and not words_of(file.name.split(".")[0]).isdisjoint(LOG_WORDS) else None


def _tells_tasks(lines: list[bytes], header: tuple[str, ...], separator: str) -> bool:
    """Return whether of a sample's names a table holds only the task's, and its step counts on from row to row."""
    lower = {name.lower(): place for place, name in enumerate(header)}
    step = next((lower[key] for key in STEP_KEYS if key in lower), None)
    if step is None or not SAMPLE_KEYS & lower.keys() <= {"task_id"}:
        return False
    rows = [row for row in _first_rows(lines, len(header), separator) if len(row) == len(header)]
    steps = [as_step(_integral(row[step].strip())) for row in rows]
    return len(steps) >= MIN_COUNTED and all(one is not None and other == one + 1 for one, other in pairwise(steps))


def _headless(lines: list[bytes]) -> _Dialect | None:
    """Read a table of only numbers, in a file named as a log: its columns are named by position."""
    for separator in SEPARATORS:
        rows = _first_rows([b"", *lines], 0, separator)
        width = len(rows[0]) if rows else 0
        full = [row for row in rows if len(row) == width]
        plain = all(is_number_text(cell.strip()) for row in full for cell in row)
        if not 1 <= width <= MAX_HEADLESS or len(full) < max(MIN_HEADLESS, len(rows) - 1) or not plain:
            continue
        names = tuple(f"column {place}" for place in range(1, width + 1))
        counts = [step for row in full if (step := as_step(_integral(row[0].strip()))) is not None]
        rising = len(counts) == len(full) and all(one < other for one, other in pairwise(counts))
        counter = Counter(keys=names[:1] if rising and width > 1 else (), unit="row")
        return _Dialect(separator, names, counter, None, None, None, None, headed=False)
    return None


def _tagged(dialect: _Dialect, file: RunFile) -> _Dialect:
    """Name the values of a curve exported by TensorBoard after its file: only that says what they are."""
    if tuple(name.lower() for name in dialect.header) != TENSORBOARD:
        return dialect
    return replace(dialect, header=(*dialect.header[:-1], curve_name(file)))


def _counter(lines: list[bytes], header: tuple[str, ...], separator: str, *, named: bool) -> Counter | None:
    """Choose the column that counts the rows: in a file that says CSV, a tracker's step tells enough."""
    if set(header) == set(MONITOR.values()):
        return Counter(keys=(), unit="episode")
    rows = _sample(lines, header, separator, strict=not named)
    counter = counter_of(rows, trust_steps=named)
    lower = {name.lower(): name for name in reversed(header)}
    step = next((lower[key] for key in STEP_KEYS if key in lower), None) if named else None
    long = "value" in lower and not lower.keys().isdisjoint(NAME_KEYS)
    if (
        step is not None
        and not long
        and (is_table_of_things(rows, (step,)) or (has_several_runs(rows) and not counter))
        and label_of_runs(rows, step) is None
    ):
        return None
    if step is not None and (counter is None or counter.unit == "step"):
        return Counter(keys=(step,), unit="step")
    keys = tuple(key for key in counter.keys if key in header)[:1] if counter else ()
    return replace(counter, keys=keys) if counter else None


def _sample(lines: list[bytes], header: tuple[str, ...], separator: str, *, strict: bool) -> list[dict[str, Any]]:
    """Return the first rows as log calls; none for a strict table with rows wider or narrower than its header."""
    rows = _first_rows(lines, len(header), separator)
    even = [row for row in rows if len(row) == len(header)]
    if strict and len(even) < len(rows) - 1:  # the last may be cut
        return []
    return [{name: _value(cell.strip()) for name, cell in zip(header, row, strict=True)} for row in even]


def _first_rows(lines: list[bytes], width: int, separator: str) -> list[list[str]]:
    """Return the cells of the lines below the header; together where a cell goes over several of them."""
    texts = [line.decode("utf-8", "replace").strip("\r") for line in lines[1:]]
    rows = [cells for text in texts if (cells := _cells(text, separator))]
    if any(len(row) == width for row in rows):
        return rows
    try:
        return list(csv.reader([f"{text}\n" for text in texts], delimiter=separator))
    except csv.Error:  # a NUL byte or a field beyond the module's limit
        return rows


def _value(cell: str) -> str | float | bool | None:
    """Return what a cell would be in a log call."""
    lower = cell.lower()
    if not cell or lower in NULLS or cell.startswith(STRUCTURES):
        return None
    if lower in ("true", "false"):
        return lower == "true"
    return float(cell) if is_number_text(cell) else cell


def _cells(text: str, separator: str) -> list[str]:
    try:
        return next(csv.reader([text], delimiter=separator), [])
    except csv.Error:  # a NUL byte or a field beyond the module's limit
        return []


def recognises(file: RunFile) -> bool:
    """Recognise a header over rows of numbers, and of the first rows one with a number."""
    named = file.name.lower().endswith(SUFFIXES)
    head = _header_head(file) if named else text_head(file)
    if not named and (head.lstrip().startswith((b"{", b"[")) or b"\0" in head):
        return False
    lines = _first_lines(head, cut=len(head) >= HEAD_BYTES)
    dialect = _dialect(lines, file) if len(lines) > 1 or named else None
    if dialect is None:
        columns = max(map(head.partition(b"\n")[0].decode("utf-8", "replace").count, SEPARATORS)) + 1
        if named and columns > MAX_COLUMNS:
            file.looks[REFUSED] = f"Its header has {columns} columns or more; at most {MAX_COLUMNS} are read."
        elif named and len(head) >= MAX_HEADER_BYTES and b"\n" not in head:
            file.looks[REFUSED] = f"Its header is longer than {MAX_HEADER_BYTES >> 20} MB, the limit."
        elif named and len(head.partition(b"\n")[0]) > csv.field_size_limit() and _has_long_name(head):
            file.looks[REFUSED] = f"A name in its header is longer than {csv.field_size_limit()} characters, the limit."
        return False
    dialect = _tagged(dialect, file)
    rows = _first_rows(lines if dialect.headed else [b"", *lines], len(dialect.header), dialect.separator)
    frame = _table([row for row in rows if row][:CHECKED_ROWS], dialect)
    metrics = _metrics(frame, dialect, file, 0)[0]
    return metrics.height > 0


def _has_long_name(head: bytes) -> bool:
    names = re.split(rb"[,;\t]", head.partition(b"\n")[0])
    return max(map(len, names)) > csv.field_size_limit()


def _header_head(file: RunFile) -> bytes:
    """Return the first bytes of a text, and as many more as its header and a few rows take."""
    head = text_head(file)
    if len(head) < HEAD_BYTES or head.count(b"\n") > CHECKED_ROWS or b"\0" in head:
        return head
    text = bytearray()
    for piece in pieces(file):
        if isinstance(piece, Lost):
            break
        text += piece
        if len(text) >= MAX_HEADER_BYTES or piece.count(b"\n") > CHECKED_ROWS:
            break
    return bytes(text)


def _first_lines(text: bytes, *, cut: bool) -> list[bytes]:
    """Return the header and the first rows; a monitor's settings in front are no header."""
    lines = text[:SAMPLED_BYTES].removeprefix(BOM).split(b"\n", SAMPLED_ROWS + 2)
    if cut or len(lines) > SAMPLED_ROWS + 2:
        lines.pop()
    front = 1 if lines and lines[0].startswith(MONITOR_SETTINGS) else 0
    return lines[front:] or [b""]


def read(file: RunFile) -> Iterator[Piece]:
    """Yield metrics block by block; an empty cell is no value, a torn last line is counted."""
    dialect: _Dialect | None = None
    columns: Columns | None = None
    schema: pl.Schema | None = None
    seq = bad = torn = 0
    totals: set[int | None] = set()
    runs: dict[str, str] = {}
    for block in blocks(file):
        if isinstance(block, Lost):
            yield block
            continue
        if dialect is None:
            lines = _first_lines(block, cut=len(block) > SAMPLED_BYTES)
            dialect = _dialect(lines, file)
            if dialect is None:
                yield Lost(bytes=file.size, note=f"{file.rel}: its header names no step column.")
                return
            dialect = _tagged(dialect, file)
            columns = _columns(dialect, file)
            skipped = 2 if block.removeprefix(BOM).startswith(MONITOR_SETTINGS) else 1
            if dialect.headed:
                block = block.split(b"\n", skipped)[-1] if block.count(b"\n") >= skipped else b""
            if not block:
                continue
        if is_torn(block):
            last = block[block.rfind(b"\n") + 1 :]
            cells = _cells(last.decode("utf-8", "replace"), dialect.separator)
            if len(cells) < len(dialect.header):
                yield torn_line(file, last)
                block = block[: len(block) - len(last)]
            elif is_number_text(cells[-1].strip()):  # a number that is cut still looks like one
                yield Lost(note=f"{file.rel} {NO_LINE_END}")
        block, cut = _whole_rows(block, dialect)
        torn += cut
        large = file.size >= metric_blocks.WIDE_BYTES
        quick = columns_of(block, columns, seq, schema) if columns and large else None
        if quick is not None:
            seq, schema = quick.behind, quick.schema
            del block  # its memory is for the next one
            yield from quick.pieces(file, known_names)
            continue
        for part in _parts(block, dialect):
            table = _parse(part, dialect)
            if dialect.label:
                table = _numbered(table, dialect.label, runs)
            totals |= _totals(table, dialect)
            frame, wrong = _metrics(table, dialect, file, seq)
            seq += table.height
            bad += wrong
            if frame.height:
                yield Rows(table="metrics", frame=frame)
    yield from lost_notes(file, {BAD_ROWS: bad, TORN_ROWS: torn})
    if runs and dialect is not None:
        yield Lost(note=f"{file.rel}: {dialect.label} names {len(runs)} runs: {'; '.join(islice(runs, MAX_NAMED))}.")
    facts: Facts = {}
    if seq and dialect is not None and dialect.counter.unit != "step":
        facts["row_unit"] = dialect.counter.unit
    if dialect is not None and len(totals) == 1 and (total := next(iter(totals))):
        facts[f"planned_{dialect.counter.unit}s"] = total
    if facts:
        yield Context(facts=facts)


def _numbered(table: pl.DataFrame, label: str, runs: dict[str, str]) -> pl.DataFrame:
    """Number the runs that a column names, in the order of the file: metrics hold no texts."""
    for name in table[label].drop_nulls().unique(maintain_order=True):
        runs.setdefault(name, str(len(runs)))
    return table.with_columns(pl.col(label).replace(runs))


def _totals(table: pl.DataFrame, dialect: _Dialect) -> set[int | None]:
    """Return what the rows say about the planned length of the run."""
    named = [name for name in dialect.header if name.lower() in TOTALS[dialect.counter.unit] and name != dialect.step]
    return {as_step(_integral(cell)) for name in named[:1] for cell in table[name].drop_nulls().unique().to_list()}


def _whole_rows(block: bytes, dialect: _Dialect) -> tuple[bytes, int]:
    """Return a block without lines that are torn or run together, and how many of these there are.

    Their cells would get the names of others. A line with an open quote continues on the next one, so such a block is
    left alone.
    """
    separator, width = dialect.separator.encode(), len(dialect.header)
    lines = [line for line in block.split(b"\n") if line.strip()]
    widths = [line.count(separator) + 1 for line in lines]
    odd = [at for at, cells in enumerate(widths) if cells != width]
    if not odd or any(lines[at].count(b'"') % 2 for at in odd):
        return block, 0
    for at in odd:
        if b'"' in lines[at]:
            widths[at] = len(_cells(lines[at].decode("utf-8", "replace"), dialect.separator))
    if widths.count(width) < WHOLE_SHARE * len(lines):
        return block, 0
    kept = [line for line, cells in zip(lines, widths, strict=True) if cells == width]
    return b"".join(line + b"\n" for line in kept), len(lines) - len(kept)


def _parts(block: bytes, dialect: _Dialect) -> Iterator[bytes]:
    """Cut a block between lines, so that each part holds a bounded number of cells."""
    cells = max(block.count(dialect.separator.encode()), block.count(b"\n") * len(dialect.header))
    size = len(block) if cells <= MAX_CELLS else len(block) * MAX_CELLS // cells + 1
    start = 0
    while start < len(block):
        stop = start + size
        if stop < len(block):
            stop = block.rfind(b"\n", start, stop) + 1 or block.find(b"\n", stop) + 1 or len(block)
        yield block[start:stop]
        start = stop


def _parse(block: bytes, dialect: _Dialect) -> pl.DataFrame:
    """Read a block as text columns; line by line where a stray quote would swallow the rest."""
    if not block.strip():
        return _table([], dialect)
    try:
        table = pl.read_csv(
            io.BytesIO(block),
            has_header=False,
            new_columns=list(dialect.header),
            schema_overrides=dict.fromkeys((f"column_{i + 1}" for i in range(len(dialect.header))), pl.String),
            separator=dialect.separator,
            infer_schema=False,
            truncate_ragged_lines=True,
            encoding="utf8-lossy",
        )
    except pl.exceptions.PolarsError:  # quotes that do not close
        table = None
    if table is not None and table.width == len(dialect.header):
        return table
    lines = block.decode("utf-8", "replace").splitlines()
    return _table([cells for line in lines if (cells := _cells(line, dialect.separator))], dialect)


def _table(rows: list[list[str]], dialect: _Dialect) -> pl.DataFrame:
    width = len(dialect.header)
    even = [[cell or None for cell in row[:width]] + [None] * (width - len(row)) for row in rows]
    return pl.DataFrame(even, schema=dict.fromkeys(dialect.header, pl.String), orient="row")


def _integral(cell: str | None) -> str | float | None:
    """Read `3.0`, which a table with holes makes of 3."""
    try:
        return float(cell) if cell and "." in cell else cell
    except ValueError:  # a text with a dot
        return None


def _steps(rows: pl.DataFrame, dialect: _Dialect, seq: int) -> pl.Series:
    if dialect.step is None:
        return pl.int_range(seq + 1, seq + 1 + rows.height, dtype=pl.Int64, eager=True).alias("step")
    steps = [as_step(_integral(cell)) for cell in rows[dialect.step].to_list()]
    return fill_steps(pl.Series("step", steps, dtype=pl.Int64), [] if dialect.step == "_step" else dialect.header)


def _times(rows: pl.DataFrame, dialect: _Dialect, file: RunFile) -> pl.Series:
    if dialect.time is None:
        return pl.repeat(None, rows.height, dtype=pl.Float64, eager=True)
    return _seconds(file, rows[dialect.time])


def _seconds(file: RunFile, cells: pl.Series) -> pl.Series:
    """Return seconds since the epoch; null where there is no such time."""
    times: list[float | None] = []
    for cell in cells.to_list():
        try:
            times.append(file.seconds(float(cell)) if cell else None)
        except ValueError:  # a date, or no time at all
            times.append(file.seconds(cell))
    return pl.Series(times, dtype=pl.Float64)


def _metrics(table: pl.DataFrame, dialect: _Dialect, file: RunFile, seq: int) -> tuple[pl.DataFrame, int]:
    """Turn text cells into metric rows; return them and the count of rows that could not be used."""
    rows = table.with_columns(pl.all().str.strip_chars().replace("", None))
    rows = rows.filter(~pl.all_horizontal(pl.all().is_null()))
    base = rows.select(
        _steps(rows, dialect, seq),
        _times(rows, dialect, file).alias("wall_time"),
        pl.int_range(seq, seq + pl.len(), dtype=pl.Int64).alias("seq"),
    )
    if dialect.name and dialect.value:
        cells = base.with_columns(name_raw=rows[dialect.name], text=rows[dialect.value])
    else:
        plain = _plain_names(dialect)
        columns = list(plain)
        cells = base.hstack([rows[name].alias(str(number)) for number, name in enumerate(columns)])  # no patterns
        cells = cells.unpivot(index=base.columns, variable_name="column", value_name="text").with_columns(
            text=pl.col("text").cast(pl.String),  # without any metric, it would have no type
            name_raw=pl.col("column").replace_strict(
                {str(index): plain[name] for index, name in enumerate(columns)}, return_dtype=pl.String
            ),
        )
    cells = _of_evaluation(cells, rows, seq).with_columns(name_raw=pl.lit(dialect.counter.prefix) + pl.col("name_raw"))
    lower = pl.col("text").str.to_lowercase()
    spelt, null = lower.is_in(list(NON_FINITE)), lower.is_in(list(NULLS))
    cells = cells.filter(pl.col("text").is_not_null(), pl.col("name_raw").is_not_null()).with_columns(
        value=pl.when(spelt)
        .then(lower.replace_strict(NON_FINITE, default=None, return_dtype=pl.Float64))
        .when(~null)
        .then(pl.col("text").cast(pl.Float64, strict=False)),
        usable=spelt | null | pl.col("text").cast(pl.Float64, strict=False).is_not_null(),
    )
    # A column without a single number is text; a lone cell that is not a number in a column of numbers is damage.
    cells = cells.filter(pl.col("usable").any().over("name_raw"))
    good = cells.filter(pl.col("usable"), pl.col("step").is_not_null())
    bad = base.filter(pl.col("step").is_null()).height
    bad += cells.filter(~pl.col("usable"), pl.col("step").is_not_null())["seq"].n_unique()
    entries = good.sort("seq", maintain_order=True).select("step", "name_raw", "value", "wall_time", "seq")
    return metric_frame(entries, file.rel), bad


def _plain_names(dialect: _Dialect) -> dict[str, str]:
    """Return the name of each metric, by that of its column."""
    aside = {dialect.step, dialect.time, dialect.label} | TRACKER_COLUMNS
    names = metric_names(name for name in dialect.header if name not in aside)
    return names | ({dialect.label: RUN} if dialect.label else {})


def _columns(dialect: _Dialect, file: RunFile) -> Columns | None:
    """Return the columns of a table to read as columns; None if it has evaluations.

    They are named by number, since Polars would take a name like `^a.*$` for a pattern.
    """
    if dialect.step is None or dialect.label or any(name.lower() in KINDS for name in dialect.header):
        return None
    number = {name: str(place) for place, name in enumerate(dialect.header)}
    metrics = _plain_names(dialect) if dialect.name is None else {}
    return Columns(
        separator=dialect.separator,
        header=tuple(number.values()),
        step=number[dialect.step],
        time=number[dialect.time] if dialect.time else None,
        metrics={number[column]: dialect.counter.prefix + name for column, name in metrics.items()},
        nulls=NULLS,
        as_times=partial(_seconds, file),
        name=number[dialect.name] if dialect.name else None,
        value=number[dialect.value] if dialect.value else None,
        front=dialect.counter.prefix,
    )


def _of_evaluation(cells: pl.DataFrame, rows: pl.DataFrame, seq: int) -> pl.DataFrame:
    """Name the values of rows that a column says to be of an evaluation."""
    kind = next((name for name in rows.columns if name.lower() in KINDS), None)
    if kind is None:
        return cells
    numbers = pl.Series(range(seq, seq + rows.height), dtype=pl.Int64)
    evaluated = numbers.filter(rows[kind].str.to_lowercase().is_in(list(EVALUATION)).fill_null(False))
    name = pl.col("name_raw")
    told = [raw for raw in cells["name_raw"].drop_nulls().unique().to_list() if split_of(raw) == "eval"]
    plain = pl.col("seq").is_in(evaluated.implode()) & ~name.is_in(told)
    return cells.with_columns(pl.when(plain).then("eval/" + name).otherwise(name).alias("name_raw"))


PARSER = Parser(
    name="metrics_csv",
    describes="Metric tables as CSV or TSV, wide (a column each) or long (one value a row): metrics.",
    held_against="source: pandas and W&B's chart exports, stable-baselines3's and Keras' CSV loggers, Gym's monitor",
    priority=30,
    general=True,
    recognises=recognises,
    read=read,
)
