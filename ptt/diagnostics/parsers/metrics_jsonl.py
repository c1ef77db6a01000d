"""Metric logs as JSON lines: one object a log call, flat or nested, from any logger."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import polars as pl

from ptt.diagnostics.metrics.aliases import framework_of
from ptt.diagnostics.parsers.io.byte_counts import (
    count_colons,
    count_keys,
    count_line_ends,
    count_openings,
    holds_null,
    holds_spaced_key,
)
from ptt.diagnostics.parsers.io.counters import KINDS, Counter
from ptt.diagnostics.parsers.io.interface import (
    HEAD_BYTES,
    Context,
    Lost,
    Parser,
    Piece,
    RunFile,
    lost_notes,
)
from ptt.diagnostics.parsers.io.lines import (
    BLOCK_BYTES,
    BOM,
    FIRST_LINES,
    SUFFIXES,
    blocks,
    first_objects,
    is_too_deep,
    is_torn,
    json_object,
    parse_json,
    text_head,
    torn_line,
)
from ptt.diagnostics.parsers.io.metric_blocks import MAX_CELLS, Block, LongBlock, Names, known_names
from ptt.diagnostics.parsers.io.metric_logs import (
    EVALUATION,
    FORM,
    LENGTHS,
    NAME_KEYS,
    VALUE_KEYS,
    WRAPPERS,
    CallLog,
    counter_of,
)
from ptt.diagnostics.parsers.io.metric_rows import (
    STEP_KEYS,
    TIME_KEYS,
    MetricColumns,
    flatten,
    framework_facts,
    name_prefix,
)
from ptt.diagnostics.parsers.io.stand_ins import StandIns, with_stand_ins
from ptt.diagnostics.parsers.io.telemetry import safe_settings
from ptt.diagnostics.parsers.io.values import NON_FINITE

SPELT: Final = frozenset({*NON_FINITE, "true", "false"})
MAX_COLUMNS: Final = 10_000  # each costs some 20 us, whatever it holds
MAX_DEPTH: Final = 16  # of rows that are read as columns; what nests deeper is read line by line
NO_BRACKETS: Final = bytes(set(range(256)) - set(b"{}[]\n"))
MANY_OPEN: Final = re.compile(rb"(?:[{\[][}\]]*){%d}" % (MAX_DEPTH + 1))  # on one line, of what is left then
STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
KEY: Final = re.compile(rb'"([^"\\]*)":')
MIN_LINES: Final = 2  # one line is a document
MAX_OTHER: Final = 3  # lines at the beginning that are none, before the file is taken for a document
MICROSOFT: Final = frozenset({"step", "timestamp", "metrics"})  # rows of a format of its own
TRAINER_STEPS: Final = Counter(keys=STEP_KEYS, unit="step")
FIRST_ROWS: Final = 100  # that tell the columns of a block; where later ones hold more, all are asked
NO_JSON: Final = "line(s) skipped: not a JSON object."
NO_STEP: Final = "row(s) skipped: no training step."
DONE: Final = re.compile(
    r"(?:train(?:ing)?|run)?[ _-]?(?:done|finish(?:ed)?|completed?|ended|end)|succe(?:ss|eded)", re.IGNORECASE
)
ISO: Final = "%Y-%m-%dT%H:%M:%S%.f%:z"  # as Python's isoformat writes an instant


Columns = dict[str, pl.Series]


def fast_block(
    block: bytes,
    file: RunFile,
    *,
    wrappers: tuple[str, ...],
    steps: tuple[str, ...],
    times: tuple[str, ...],
    seq: int,
    schema: pl.Schema | None = None,
    front: str = "",
    spelt_out: bool = False,
) -> Block | LongBlock | None:
    """Read a block of lines, or return None where the slow way has to judge.

    That is a block with numbers among texts; where a line may name a key twice; where rows differ in how they name the
    step; and where they nest so deep, or have so many keys of their own, that columns would fill the memory. Without
    `spelt_out`, also one with null, which in columns looks like a missing key, or with NaN, which polars refuses.
    `schema`: of the block before; `front`: what all names begin with.
    """
    if len(block) > 2 * BLOCK_BYTES or (found := _parse(block, schema, spelt_out=spelt_out)) is None:
        return None
    wide, stand_ins = found
    flat = _flat(wide, wrappers) or {}
    index, rest = _index(flat, file, steps, times, seq)
    if not index or (restored := _numbers(rest, stand_ins, is_form=flat.keys() >= FORM)) is None:
        return None
    numbers, nulls = restored
    texts = {name: column for name, column in rest.items() if column.dtype == pl.String()}
    names = next((texts.pop(name) for name in NAME_KEYS if _has_a_value(rest) and name in texts), None)
    if not all(map(_is_text, texts.values())):
        return None
    if any(_tells_evaluation(texts[name]) for name in KINDS if name in texts):
        return None
    if names is not None:
        return _long(names, numbers, index, front, wide.schema) if _is_named(names, {*steps, *flat}, times) else None
    if not numbers or not index.keys().isdisjoint(front + name for name in numbers):
        return None
    return Block(
        index=index,
        numbers={front + name: column for name, column in numbers.items()},
        nulls={front + name: rows for name, rows in nulls.items()},
        lengths=_lengths(rest, numbers),
        schema=wide.schema,
    )


def _parse(block: bytes, schema: pl.Schema | None, *, spelt_out: bool) -> tuple[pl.DataFrame, StandIns | None] | None:
    """Return the rows of a block as columns, and with `spelt_out` what numbers in them stand for words."""
    wide, stand_ins = _read(block, schema), None
    if wide is None and spelt_out and (stand_ins := with_stand_ins(block)) is not None:
        wide = _read(stand_ins.block, schema)
    return None if wide is None or not wide.height else (wide, stand_ins)


def _numbers(rest: Columns, stand_ins: StandIns | None, *, is_form: bool) -> tuple[Columns, Columns] | None:
    """Return the columns of numbers, and by name in which rows a null stands; None where nulls may mean something."""
    numbers = {
        name: column if column.dtype == pl.Float64() else column.cast(pl.Float64)
        for name, column in rest.items()
        if column.dtype.is_numeric() or column.dtype == pl.Boolean()
    }
    if stand_ins is None:
        return numbers, {}
    return None if stand_ins.has_nulls and (is_form or _has_a_value(rest)) else stand_ins.restored(numbers)


def _has_a_value(rest: Columns) -> bool:
    """Return whether the rows may have a value each, beside its name."""
    return not rest.keys().isdisjoint(VALUE_KEYS)


def _lengths(rest: Columns, numbers: Columns) -> Columns:
    """Return the columns that tell how long the run was to be: whole numbers and texts as they are written."""
    return {
        name: numbers[name] if column.dtype == pl.Float64() else column
        for name, column in rest.items()
        if name in LENGTHS and not column.dtype.is_nested()
    }


def _index(
    flat: Columns, file: RunFile, steps: tuple[str, ...], times: tuple[str, ...], seq: int
) -> tuple[Columns, Columns]:
    """Return step, time and number of each row, none where a row has no plain step or time, and the other columns."""
    step = next((name for name in steps if name in flat), None)
    if step is None or not flat[step].dtype.is_integer() or flat[step].null_count():
        return {}, {}
    clock = next((name for name in times if name in flat), None)
    height = len(flat[step])
    seconds = pl.repeat(None, height, dtype=pl.Float64, eager=True) if clock is None else _seconds(flat[clock], file)
    numbers = flat[step].cast(pl.Int64, strict=False)
    if numbers.null_count() or (clock is not None and seconds.null_count()):
        return {}, {}
    index = {
        "__step": numbers.alias("__step"),
        "__time": seconds.alias("__time"),
        "__seq": pl.int_range(seq, seq + height, dtype=pl.Int64, eager=True).alias("__seq"),
    }
    return index, {name: column for name, column in flat.items() if name not in (step, clock)}


def _long(names: pl.Series, numbers: Columns, index: Columns, front: str, schema: pl.Schema) -> LongBlock | None:
    """Return a block in which each row names its metric, and holds one number, which is the value; None for another."""
    values = next((numbers[name] for name in VALUE_KEYS if name in numbers), None)
    if values is None or len(numbers) > 1 or values.null_count():
        return None
    return LongBlock(index=index, names=Names.of(names).prefixed(front), values=values, schema=schema)


def _is_named(names: pl.Series, keys: set[str], times: tuple[str, ...]) -> bool:
    """Return whether each row has a name, and no name is that of another key, or of a time."""
    if names.null_count() or any(len(keys.intersection(known)) > 1 for known in (NAME_KEYS, VALUE_KEYS)):
        return False
    spelt = names.unique()
    if not _is_text(spelt) or spelt.str.starts_with("[").any():  # a number or a list, which polars writes out
        return False
    return keys.union(times).isdisjoint(spelt)


def _read(block: bytes, schema: pl.Schema | None) -> pl.DataFrame | None:
    """Parse the lines; by the schema of the block before where that loses nothing, which takes a third of the time."""
    if schema is not None:
        try:
            wide = pl.read_ndjson(io.BytesIO(block), schema=schema, infer_schema_length=FIRST_ROWS)
        except (pl.exceptions.PolarsError, OSError):  # bare NaN, ragged types or damage; or another type than before
            wide = None
        if wide is not None and _is_whole(block, wide):
            return wide.rechunk()  # of thousands of columns a chunk is a few rows, and takes more than they do
    if holds_null(block) or holds_spaced_key(block) or _is_deep(block):
        return None
    keys = count_keys(block)
    for sampled in (FIRST_ROWS, None):
        if _is_ragged(block, sampled):
            return None
        try:
            wide = pl.read_ndjson(io.BytesIO(block), infer_schema_length=sampled)
        except (pl.exceptions.PolarsError, OSError):
            continue
        if _cells(wide) == keys:  # every key of every line came to stand in a cell, and none stood twice
            return wide.rechunk()
    return None


def _is_whole(block: bytes, wide: pl.DataFrame) -> bool:
    """Return whether every key of every line came to stand in a cell with a value, and none stood twice.

    There is a colon behind each key, and there are those in names and texts. What of a text is no text, or spelt with
    escapes, cannot be counted so.
    """
    if (colons := _colons(wide)) and b"\\" in block:
        return False
    return not _holds_objects(wide) and count_colons(block) == _cells(wide) + colons


def _is_deep(block: bytes) -> bool:
    """Return whether a line nests deeper than columns may: to tell the types of such a line takes polars minutes."""
    if count_openings(block) <= count_line_ends(block) + MAX_DEPTH:
        return False
    if not MANY_OPEN.search(block.translate(None, NO_BRACKETS)):
        return False
    marks = np.frombuffer(STRING.sub(b"", block).translate(None, NO_BRACKETS).replace(b"\n", b""), np.uint8)
    opening = (marks == ord("{")) | (marks == ord("["))
    depth = np.cumsum(np.where(opening, 1, -1))  # of a block whose brackets do not match, something is wrong anyway
    return bool(depth.max(initial=0) > MAX_DEPTH)


def _is_ragged(block: bytes, sampled: int | None) -> bool:
    """Return whether columns for all keys of the block, or of its first rows, would hold far more cells than values."""
    rows = count_line_ends(block) + 1
    first = block if sampled is None else b"\n".join(block.split(b"\n", sampled)[:sampled])
    keys = first.count(b'":')
    if keys <= MAX_COLUMNS and rows * keys <= MAX_CELLS:
        return False
    width = len(set(KEY.findall(first)))
    return width > MAX_COLUMNS or rows * width > MAX_CELLS


def _cells(frame: pl.DataFrame) -> int:
    """Count the cells that hold something; a nested object counts, and so do its fields."""
    count = 0
    for column in frame.iter_columns():
        count += len(column) - column.null_count()
        if isinstance(column.dtype, pl.Struct):
            count += _cells(column.struct.unnest())
    return count


def _colons(frame: pl.DataFrame) -> int:
    """Count the colons in texts, and in the names of the cells that hold something."""
    count = 0
    for name, column in _unnamed(frame):
        count += name.count(":") * (len(column) - column.null_count())
        if column.dtype == pl.String():
            count += int(column.str.count_matches(":", literal=True).sum())
        elif isinstance(column.dtype, pl.Struct):
            count += _colons(column.struct.unnest())
    return count


def _holds_objects(frame: pl.DataFrame) -> bool:
    """Return whether a text may be an object that stands where rows before have a text: polars writes it out as one."""
    return any(
        _holds_objects(column.struct.unnest())
        if isinstance(column.dtype, pl.Struct)
        else column.dtype == pl.String() and column.str.contains("{", literal=True).any()
        for _, column in _unnamed(frame)
    )


def _unnamed(frame: pl.DataFrame) -> Iterator[tuple[str, pl.Series]]:
    """Yield names and columns; these without their names, since methods of a series called `^a.*$` look for others."""
    for column in frame.iter_columns():
        yield column.name, column.alias("")


def _seconds(column: pl.Series, file: RunFile) -> pl.Series:
    """Return seconds since the epoch; null where there is no such time."""
    if column.dtype == pl.String():
        try:
            instants = column.str.to_datetime(ISO, time_unit="us", time_zone="UTC", strict=True)
            for place in (0, -1):  # the offset changes only with summer time
                file.seconds(column[place])
            return instants.dt.epoch("us") / 1e6
        except pl.exceptions.PolarsError:  # another spelling, or none
            pass
    return pl.Series([file.seconds(at) for at in column.to_list()], dtype=pl.Float64)


def _flat(wide: pl.DataFrame, wrappers: tuple[str, ...]) -> dict[str, pl.Series] | None:
    """Join the names of nested fields with slashes; None if two columns come out under one name."""
    flat: dict[str, pl.Series] = {}
    pending = [(name, column, "" if name in wrappers else name_prefix(f"{name}/")) for name, column in _unnamed(wide)]
    while pending:
        name, column, below = pending.pop()
        if isinstance(column.dtype, pl.Struct):
            inner = [(f"{below}{child}", values) for child, values in _unnamed(column.struct.unnest())]
            pending += [(joined, values, name_prefix(f"{joined}/")) for joined, values in inner]
        elif name in flat:
            return None
        else:
            flat[name] = column
    return flat


def _is_text(column: pl.Series) -> bool:
    """Return whether no cell is a number, which a text column gets where another row spells out its NaN."""
    cells = column.drop_nulls().unique()
    return not (cells.str.to_lowercase().is_in(SPELT).any() or cells.cast(pl.Float64, strict=False).count())


def _tells_evaluation(column: pl.Series) -> bool:
    """Return whether some rows of a block are of evaluations, which their names alone do not tell."""
    kinds = column.drop_nulls().unique().str.strip_chars().str.to_lowercase()
    return bool(kinds.is_in(list(EVALUATION)).any())


def is_closing(found: dict[str, Any]) -> bool:
    """Return whether this is the summary that ms-swift puts behind its last row, with the whole history once more."""
    return "log_history" in found and "step" not in found


def recognises(file: RunFile) -> bool:
    """Recognise lines that are log calls, whatever the file is called."""
    return _counter_of(file) is not None


def _counter_of(file: RunFile) -> Counter | None:
    """Return what counts the rows on a file's first lines, looked into once: a short log is read faster."""
    key = "counter of sampled objects"
    if key not in file.looks:
        file.looks[key] = _counter(sample(file))
    found: Counter | None = file.looks[key]
    return found


def _counter(rows: list[dict[str, Any]]) -> Counter | None:
    calls = [row for row in rows if not is_closing(row)]
    if not calls or any(row.keys() >= MICROSOFT for row in calls):
        return None
    return counter_of(calls, trust_steps=True)


def sample(file: RunFile) -> list[dict[str, Any]]:
    """Return the objects on the first lines of a file that holds JSON lines; empty for any other."""
    key = "sampled objects"
    if key not in file.looks:
        rows = _lines_of(text_head(file))
        named = file.name.lower().endswith(SUFFIXES)
        file.looks[key] = first_objects(file, FIRST_LINES) if not rows and named else rows
    found: list[dict[str, Any]] = file.looks[key]
    return found


def _lines_of(head: bytes) -> list[dict[str, Any]]:
    """Return the objects on the lines of a file's first bytes; empty where these are no JSON lines."""
    text = head.removeprefix(BOM).lstrip()
    if not text.startswith((b"{", b"[", b'"{')):
        return []
    lines = text.split(b"\n")
    if len(head) == HEAD_BYTES:
        lines.pop()
    rows: list[dict[str, Any]] = []
    whole = other = 0
    for line in filter(bytes.strip, lines):
        found = objects_on(line)
        whole += bool(found)
        other += not found
        if other > MAX_OTHER and other > whole:  # a document, spread over lines
            return []
        rows += found or []
    return rows if whole >= MIN_LINES and other <= whole else []


def objects_on(line: bytes) -> list[dict[str, Any]] | None:
    """Return the JSON object on a line, or the objects of a list; None for a line that holds anything else."""
    found = parse_json(line)
    if isinstance(found, str) and found.startswith("{"):  # written by a formatter of JSON, as a message
        found = parse_json(found.encode("utf-8", "replace"))
    if isinstance(found, dict):
        return [found]
    rows = found if isinstance(found, list) else []
    return rows if rows and all(isinstance(row, dict) for row in rows) else None


def _framework(block: bytes) -> str | None:
    """Name the framework where the shape of the first row leaves no doubt."""
    record = json_object(block[: block.find(b"\n") + 1] or block) or {}
    if record.keys() == {"step", "data"} and isinstance(record["data"], dict):
        return "verl"
    if "global_step/max_steps" in record:
        return "ms-swift"
    if {"training_step", "recorded_at"} <= record.keys():
        return "art"
    own = ("mismatch_kl/", "optim/", "perf/", "off_policy/")
    if {"step", "time"} <= record.keys() and any(name.startswith(own) for name in record):
        return "prime-rl"
    return framework_of(flatten(record))


def read(file: RunFile) -> Iterator[Piece]:
    """Yield metrics block by block; lines that are no log call are counted."""
    framework: str | None = None
    counter = _counter_of(file) or TRAINER_STEPS
    log = CallLog(MetricColumns(file), counter)
    schema = None
    settings: dict[str, Any] = {}
    ended = False
    counts = {NO_JSON: 0, NO_STEP: 0}
    for block in blocks(file):
        if isinstance(block, Lost):
            yield block
            continue
        quick = fast_block(
            block,
            file,
            wrappers=WRAPPERS,
            steps=counter.keys,
            times=TIME_KEYS,
            seq=log.seq,
            schema=schema,
            front=counter.prefix,
            spelt_out=True,
        )
        framework = framework or _framework(block)
        if quick is not None:
            log.seq, schema = quick.behind, quick.schema
            quick.tell_length(log)
            ended = False
            del block  # its memory is for the next one
            yield from quick.pieces(file, known_names)
            continue
        for record in _calls(file, block):
            if isinstance(record, Lost):
                yield record
            elif record is None:
                counts[NO_JSON] += 1
            elif is_closing(record):
                continue
            elif log.add(record):
                ended = False
            else:
                header = not log.seq and safe_settings(flatten(record))
                settings |= header or {}
                ended = _says_done(record)
                counts[NO_STEP] += not header and not ended
            yield from log.columns.flush()
        yield from log.columns.pieces()
    yield from lost_notes(file, counts)
    yield from framework_facts(framework)
    if ended:
        settings["status"] = "completed"
    if settings:
        yield Context(facts=settings)
    yield from log.facts()


def _says_done(record: dict[str, Any]) -> bool:
    """Return whether a row that counts nothing says that training is over."""
    told = (record.get(key) for key in (*KINDS, "status", "message"))
    return any(isinstance(word, str) and DONE.fullmatch(word.strip()) for word in told)


def _calls(file: RunFile, block: bytes) -> Iterator[dict[str, Any] | Lost | None]:
    """Yield the objects of each line that is not blank, None where it holds none; a torn last line is `Lost`."""
    for line in filter(bytes.strip, block.split(b"\n")):
        found = objects_on(line)
        if found is None:
            yield torn_line(file, line) if is_torn(block) and block.endswith(line) else None
        elif is_too_deep(file, line, found):
            continue
        yield from found or ()


PARSER = Parser(
    name="metrics_jsonl",
    describes="Metric logs as JSON lines (veRL's file logger, prime-rl, ART, Tinker, home-made): metrics.",
    held_against="real: veRL 0.9.1's file logger and prime-rl's monitor; ms-swift, ART, Tinker, LLaMA-Factory and "
    "RLlib by source",
    priority=20,
    general=True,
    recognises=recognises,
    read=read,
)
