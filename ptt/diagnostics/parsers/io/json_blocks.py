"""Read blocks of JSON lines as columns of numbers, where reading line by line would give the same.

JSON punctuation is counted in a fraction of the time that `bytes.count` takes. Polars refuses NaN and Infinity, and
cannot distinguish null from a missing key. So each such word after a colon is replaced by a number that the block does
not contain; if afterwards as many cells hold that number, each cell stands for one of the words."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.parsers.io.counters import KINDS
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.parsers.io.lines import BLOCK_BYTES
from ptt.diagnostics.parsers.io.metric_blocks import MAX_CELLS, Block, LongBlock, Names
from ptt.diagnostics.parsers.io.metric_logs import EVALUATION, FORM, LENGTHS, MARKS, NAME_KEYS, VALUE_KEYS
from ptt.diagnostics.parsers.io.metric_rows import name_prefix
from ptt.diagnostics.parsers.io.values import NON_FINITE

CHUNK: Final = 1 << 16  # bytes at a time: arrays made from them stay in the processor's nearest cache
QUOTE, COLON, LINE_END, OPEN_BRACE = b'":\n{'
NULL: Final = b"null"
NULL_WORD: Final = np.frombuffer(NULL, np.uint32)[0]
WORDS_A_CHUNK: Final = CHUNK // len(NULL)
CASE: Final = 0x20  # the bit that sets `{` apart from `[`
SPACE: Final = 0x20  # the greatest byte of white space
SPACED_KEY: Final = re.compile(rb'"[ \t\r]+:')


def count_keys(block: bytes) -> int:
    """Count `":`, which ends each key; most writers put no space between."""
    count = 0
    for chunk in _chunks(block, beyond=1):
        count += int(np.count_nonzero((chunk[:-1] == QUOTE) & (chunk[1:] == COLON)))
    return count


def holds_spaced_key(block: bytes) -> bool:
    """Return whether white space may separate a key from its colon, where `count_keys` would miss it; in texts too."""
    spaced = any(((chunk[:-1] <= SPACE) & (chunk[1:] == COLON)).any() for chunk in _chunks(block, beyond=1))
    return spaced and SPACED_KEY.search(block) is not None


def count_colons(block: bytes) -> int:
    """Count the colons."""
    return sum(int(np.count_nonzero(chunk == COLON)) for chunk in _chunks(block))


def count_openings(block: bytes) -> int:
    """Count the braces and brackets that open."""
    return sum(int(np.count_nonzero((chunk | CASE) == OPEN_BRACE)) for chunk in _chunks(block))


def count_line_ends(block: bytes) -> int:
    """Count the line feeds."""
    return sum(int(np.count_nonzero(chunk == LINE_END)) for chunk in _chunks(block))


def holds_null(block: bytes) -> bool:
    """Return whether `null` occurs anywhere, even in a text: compares four bytes at a time, at each of four offsets."""
    if len(block) < CHUNK:
        return NULL in block
    for offset in range(len(NULL)):
        words = np.frombuffer(block, np.uint32, count=(len(block) - offset) // len(NULL), offset=offset)
        for start in range(0, len(words), WORDS_A_CHUNK):
            if (words[start : start + WORDS_A_CHUNK] == NULL_WORD).any():
                return True
    return False


def _chunks(block: bytes, *, beyond: int = 0) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield the bytes in chunks, each with `beyond` bytes of the next."""
    array = np.frombuffer(block, np.uint8)
    for start in range(0, len(array), CHUNK):
        yield array[start : start + CHUNK + beyond]


STAND_INS: Final[Mapping[bytes, tuple[float, float | None]]] = {
    b"NaN": (-(2.0**1000), float("nan")),
    b"Infinity": (-(2.0**1001), float("inf")),
    b"-Infinity": (-(2.0**1002), float("-inf")),
    b"null": (-(2.0**1003), None),
}
"""The number that replaces a word, and its meaning. Three digits of exponent: a further digit gives no valid number."""
GAPS: Final = (b": ", b":")  # before a value, as writers of JSON have them


@dataclass(frozen=True)
class StandIns:
    """A block whose words are replaced, and how many of each."""

    block: bytes
    counts: Mapping[bytes, int]

    @property
    def has_nulls(self) -> bool:
        """Whether a null was replaced."""
        return b"null" in self.counts

    def restored(self, numbers: Mapping[str, pl.Series]) -> tuple[dict[str, pl.Series], dict[str, pl.Series]] | None:
        """Return the columns with the words restored, and by name the rows with a null.

        None if a word was anywhere but in a cell of its own.
        """
        found = dict(numbers)
        nulls: dict[str, pl.Series] = {}
        for word, count in self.counts.items():
            stand_in, meant = STAND_INS[word]
            left = count
            for name, column in found.items():
                here = (column == stand_in).fill_null(value=False)
                if not (cells := int(here.sum())):
                    continue
                left -= cells
                found[name] = column.to_frame("").select(pl.when(here).then(meant).otherwise(pl.first())).to_series()
                if meant is None:
                    nulls[name] = here
            if left:
                return None
        return found, nulls


def with_stand_ins(block: bytes) -> StandIns | None:
    """Replace the words; None if there are none, or one of the numbers occurs already."""
    counts: dict[bytes, int] = {}
    for word, (stand_in, _) in STAND_INS.items():
        number = repr(stand_in).encode()
        for gap in GAPS:
            if not (count := block.count(gap + word)):
                continue
            if not counts.get(word) and number in block:
                return None
            counts[word] = counts.get(word, 0) + count
            block = block.replace(gap + word, gap + number)
    return StandIns(block, counts) if counts else None


SPELT: Final = frozenset({*NON_FINITE, "true", "false"})
MAX_COLUMNS: Final = 10_000  # each costs some 20 us, whatever it contains
MAX_DEPTH: Final = 16  # of rows read as columns; deeper ones are read line by line
NO_BRACKETS: Final = bytes(set(range(256)) - set(b"{}[]\n"))
MANY_OPEN: Final = re.compile(rb"(?:[{\[][}\]]*){%d}" % (MAX_DEPTH + 1))  # on one line, of what is left then
STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
KEY: Final = re.compile(rb'"([^"\\]*)":')
FIRST_ROWS: Final = 100  # that tell the columns of a block; where later ones hold more, all are asked
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
    """Read a block of JSON lines as columns; None if it has to be read line by line.

    That is the case if numbers and texts mix, if a line may repeat a key, if rows name the step differently, or if they
    nest so deeply, or have so many different keys, that columns would fill the memory. Without `spelt_out` it is also
    the case with null, which in columns looks like a missing key, and with NaN, which Polars refuses. `schema`: of the
    previous block; `front`: prefix of all names.
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
    if any(rest[name].dtype == pl.Boolean and rest[name].any() for name in MARKS if name in rest):
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
    """Return a block's rows as columns, and with `spelt_out` the numbers in them that stand for words."""
    wide, stand_ins = _read(block, schema), None
    if wide is None and spelt_out and (stand_ins := with_stand_ins(block)) is not None:
        wide = _read(stand_ins.block, schema)
    return None if wide is None or not wide.height else (wide, stand_ins)


def _numbers(rest: Columns, stand_ins: StandIns | None, *, is_form: bool) -> tuple[Columns, Columns] | None:
    """Return the columns of numbers, and by name the rows with null; None if a null may mean something."""
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
    """Return the columns that show the planned length of the run: whole numbers, and texts as written."""
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
    """Return a block whose rows each name a metric and hold one number, its value; None for any other block."""
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
            return wide.rechunk()  # with thousands of columns, a chunk has only a few rows and costs more than they do
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
        if _cells(wide) == keys:  # every key of every line got its own cell
            return wide.rechunk()
    return None


def _is_whole(block: bytes, wide: pl.DataFrame) -> bool:
    """Return whether every key of every line got a cell of its own with a value.

    This counts colons: one after each key, and those within names and texts. Values kept as raw JSON, or texts with
    escapes, cannot be counted like this.
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
    depth = np.cumsum(np.where(opening, 1, -1))  # if a block's brackets do not match, it is broken anyway
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
    """Return whether a text may be an object where earlier rows had a text: Polars then writes it out as text."""
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
    """Return whether some rows of a block belong to evaluations, which their names alone do not show."""
    kinds = column.drop_nulls().unique().str.strip_chars().str.to_lowercase()
    return bool(kinds.is_in(list(EVALUATION)).any())
