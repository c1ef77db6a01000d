"""Text in a format of the user's own: lines that entries of `[[logs]]` in ptt.toml say how to read.

What a console tells besides, how the run ended and its lines of trouble, is read of the same file as of any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from typing import Final

import polars as pl

from ptt.diagnostics.log_entries import LogEntry
from ptt.diagnostics.metrics.aliases import canonical_names
from ptt.diagnostics.parsers import console_log
from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, Rows, RunFile, lost_notes
from ptt.diagnostics.parsers.io.lines import blocks, is_torn, torn_line
from ptt.diagnostics.parsers.io.metric_rows import UNNUMBERED, metric_frame
from ptt.diagnostics.parsers.io.telemetry import ESCAPES
from ptt.diagnostics.parsers.io.values import MAX_STEP
from ptt.diagnostics.wording import counted

MAX_LINE: Final = 4096  # characters: no call prints more; a longer line is skipped, and counted
BATCH_CHARS: Final = 1 << 18  # of lines at a time
MAX_QUOTED: Final = 80  # characters of a line that a note quotes
PLACES: Final = frozenset({"row_unit", "rows_placed_by"})  # what the console's own reading says of its rows
TOO_LONG: Final = f"line(s) of more than {MAX_LINE:,} characters skipped."
NO_NUMBER: Final = "value(s) skipped: not a number."

EMPTY: Final = r"(?i)^\W*(?:null|none|n/?a)?\W*$"  # what stands where nothing was logged
NON_FINITE: Final = r"[-+]?(?i:nan|inf(?:inity)?)\b"
NUMBER: Final = {  # behind brackets and quotes; units may follow
    decimal: rf"^[^\w+{point}-]*([-+]?(?:\d{{1,3}}(?:{thousands}\d{{3}})+(?:{point}\d*)?|\d+{point}?\d*|{point}\d+)"
    rf"(?:[eE][-+]?\d+)?|{NON_FINITE})"
    for decimal, point, thousands in ((".", r"\.", ","), (",", ",", r"\."))
}
SCALES: Final = {"%": 0.01, "k": 1e3, "K": 1e3, "M": 1e6, "mnat": 1e-3, "mnats": 1e-3} | {
    micro + unit: 1e-6 for micro in "uµμ" for unit in ("", "nat", "nats")
}
SCALE: Final = "|".join(sorted(SCALES, key=len, reverse=True))
UNIT: Final = rf"[\d.,]\s?({SCALE})[^\w%]*$"  # behind the digits, and nothing behind it


def read(file: RunFile) -> Iterator[Piece]:
    """Yield the values on lines that match, and say what did not."""
    log = _OwnLog(file)
    for block in blocks(file):
        if isinstance(block, Lost):
            yield block
            continue
        *lines, last = block.split(b"\n")
        if last and is_torn(block):  # a number that is cut still looks like one
            yield torn_line(file, last)
        yield from log.rows([plain_frames(line) for line in lines])
    yield from log.notes()
    if log.matched and console_log.recognises(file):
        for piece in console_log.read(file):
            if isinstance(piece, Rows) and piece.table == "events":
                yield piece
            elif isinstance(piece, Context) and (kept := {k: v for k, v in piece.facts.items() if k not in PLACES}):
                yield Context(facts=kept)


def plain_frames(line: bytes) -> list[str]:
    """Return a line without colours; where a progress bar redrew it, each of the texts that it showed."""
    text = line.decode("utf-8", "replace")
    text = ESCAPES.sub("", text) if "\x1b" in text else text
    return [frame for frame in text.split("\r") if frame] or [""]


class _OwnLog:
    """The lines of one file, in their order."""

    def __init__(self, file: RunFile) -> None:
        self._file = file
        self._line = 0  # so many so far
        self._frames = 0  # likewise; a line that was redrawn has several
        self._texts = 0  # of them, that are not blank
        self.matched = 0
        self._numbered = [0] * len(file.own)  # rows without a step, of each entry
        self._bad = 0
        self._long = 0
        self._first_other = ""

    def rows(self, lines: Sequence[Sequence[str]]) -> Iterator[Piece]:
        """Yield the values on so many lines, as many at a time as take a moment: the budget is looked at between."""
        frames = [(self._line + number, frame) for number, line in enumerate(lines, start=1) for frame in line]
        sizes = accumulate(len(frame) for _, frame in frames)
        for _, batch in groupby(zip(sizes, frames, strict=True), lambda entry: entry[0] // BATCH_CHARS):
            numbers, texts = zip(*(frame for _, frame in batch), strict=True)
            yield from self._batch(texts, numbers)
            self._file.budget.tick()
        self._line += len(lines)

    def _batch(self, lines: Sequence[str], numbers: Sequence[int]) -> Iterator[Piece]:
        texts = pl.Series("line", [line if len(line) <= MAX_LINE else "" for line in lines], dtype=pl.String)
        matched = pl.repeat(value=False, n=len(texts), dtype=pl.Boolean, eager=True)
        frames = []
        for number, entry in enumerate(self._file.own):
            table = texts_by_name(entry, texts)
            matched |= table["__matched"]
            frames += self._values(number, entry, table.filter("__matched"))
        if frames:
            rows = pl.concat(frames).sort("seq", maintain_order=True)
            bare = pl.col("name_raw").str.strip_prefix(UNNUMBERED)
            known = pl.when(bare.is_in(sorted(canonical_names()))).then(bare)
            frame = metric_frame(rows, self._file.rel)
            yield Rows(table="metrics", frame=frame.with_columns(name=pl.coalesce("name", known)))
        held = texts.str.strip_chars() != ""
        self._long += sum(len(line) > MAX_LINE for line in lines)
        self._texts += int(held.sum())
        self.matched += int(matched.sum())
        others = (held & ~matched).arg_true()
        if len(others) and not self._first_other:
            text = lines[others[0]].strip()
            quoted = text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}..."
            self._first_other = f"line {numbers[others[0]]}, `{quoted}`"
        self._frames += len(lines)

    def _values(self, number: int, entry: LogEntry, table: pl.DataFrame) -> list[pl.DataFrame]:
        """Return the values of an entry's lines, a row each."""
        stepped = entry.step in entry.names
        if not table.height:
            return []
        if not stepped:
            first = self._numbered[number] + 1
            self._numbered[number] += table.height
            table = table.with_columns(__step=pl.int_range(first, first + table.height, dtype=pl.Int64))
        names = [name for name in entry.names if name != entry.step]
        long = table.unpivot(on=names, index=["__step", "__line"], variable_name="name_raw", value_name="text")
        long = long.filter(~pl.col("text").fill_null("").str.contains(EMPTY)).with_columns(
            value=_number(pl.col("text"), entry.decimal)
        )
        self._bad += long["value"].null_count()
        raw = pl.col("name_raw") if stepped else UNNUMBERED + pl.col("name_raw")
        return [
            long.drop_nulls("value").select(
                step="__step",
                name_raw=raw,
                value="value",
                wall_time=pl.lit(None, dtype=pl.Float64),
                seq=pl.col("__line").cast(pl.Int64) + self._frames,
            )
        ]

    def notes(self) -> Iterator[Lost]:
        """Say what of the file was not read."""
        rel = self._file.rel
        if others := self._texts - self.matched:
            match = "matches" if others == 1 else "match"
            of = f"{counted(others, 'line(s)')} of {self._texts} {match} no [[logs]] entry"
            note = f"{rel}: {of}; the first is {self._first_other}."
            yield Lost(bytes=0 if self.matched else self._file.size, note=note)
        if rows := sum(self._numbered):
            yield Lost(note=f"{rel}: {counted(rows, 'row(s)')} without a step, numbered from 1 in their order.")
        yield from lost_notes(self._file, {NO_NUMBER: self._bad, TOO_LONG: self._long})


def texts_by_name(entry: LogEntry, lines: pl.Series) -> pl.DataFrame:
    """Return what stands under each name on each line, as text; `__matched`: the line is one of this entry."""
    names = entry.names
    if entry.line:
        found = lines.str.extract_groups(entry.line).struct.unnest()
        table = found.select(found.to_series(number - 1).alias(name) for name, number in names.items())
    else:
        cells = lines.str.split(entry.separator) if entry.separator else lines.str.extract_all(r"\S+")
        table = pl.select(cells.list.get(number - 1, null_on_oob=True).alias(name) for name, number in names.items())
    values = [name for name in names if name != entry.step]
    table = table.with_columns(__line=pl.int_range(0, len(lines), dtype=pl.Int64))
    if entry.step not in names:
        held = _number(pl.col(values), entry.decimal).is_not_null()
        return table.with_columns(__matched=pl.any_horizontal(held))
    step = _number(pl.col(entry.step), entry.decimal)
    whole = (step == step.round()) & (step.abs() <= MAX_STEP)
    table = table.with_columns(__step=pl.when(whole).then(step).cast(pl.Int64, strict=False))
    held = pl.col(values).is_not_null()
    return table.with_columns(__matched=pl.col("__step").is_not_null() & pl.any_horizontal(held))


def _number(text: pl.Expr, decimal: str) -> pl.Expr:
    """Return the number that a text begins with, its thousands joined; null where it begins with none."""
    text = text.str.replace_all("\u2212", "-")  # a minus sign of typography
    thousands = "," if decimal == "." else "."
    digits = text.str.extract(NUMBER[decimal]).str.replace_all(thousands, "", literal=True)
    scale = text.str.extract(UNIT).replace_strict(SCALES, default=1.0, return_dtype=pl.Float64)
    return digits.str.replace(decimal, ".", literal=True).cast(pl.Float64, strict=False) * scale


PARSER = Parser(
    name="own_logs",
    describes="Text in a format of your own: the lines that `[[logs]]` in ptt.toml say how to read.",
    held_against="source: the entry in ptt.toml",
    priority=10,
    recognises=lambda file: bool(file.own),
    read=read,
)
