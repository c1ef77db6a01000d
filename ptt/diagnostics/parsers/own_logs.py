"""Text in a format of the user's own: lines that entries of `[[logs]]` in ptt.toml say how to read.

A line that matches no entry is read as any console's, where the file is one: an evaluation between the lines of an
entry, how the run ended, trouble.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, groupby
from typing import Final

import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.log_entries import LogEntry
from ptt.diagnostics.metrics.aliases import canonical_names
from ptt.diagnostics.parsers.console_log import ConsoleReader
from ptt.diagnostics.parsers.io.console_files import recognises
from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, Rows, RunFile, lost_notes
from ptt.diagnostics.parsers.io.lines import blocks, is_torn, torn_line
from ptt.diagnostics.parsers.io.metric_rows import UNNUMBERED, metric_frame
from ptt.diagnostics.parsers.io.telemetry import ESCAPES
from ptt.diagnostics.parsers.io.values import MAX_STEP
from ptt.diagnostics.wording import counted

MAX_LINE: Final = 4096  # characters: no call prints more; a longer line is skipped, and counted
BATCH_CHARS: Final = 1 << 18  # of lines at a time
BATCH_LINES: Final = 4096  # likewise
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
            redrawn, _, last = last.rpartition(b"\r")
            lines += [redrawn] if redrawn else []
            if last:
                yield torn_line(file, last)
        yield from log.rows([plain_frames(line) for line in lines])
    yield from log.notes()
    if log.matched and recognises(file):
        yield from _console_beside(file)


def _console_beside(file: RunFile) -> Iterator[Piece]:
    """Yield what a console tells on the lines that match no entry, at the steps of those that do."""
    console, places = ConsoleReader(file), [START] * len(file.own)
    for block in blocks(file):
        if isinstance(block, Lost):  # the first reading tells it
            continue
        *lines, last = block.split(b"\n")
        for begin in range(0, len(lines), BATCH_LINES):
            batch = lines[begin : begin + BATCH_LINES]
            for line, at in zip(batch, _placed(file.own, batch, places), strict=True):
                if at is None:
                    console.line(line)
                else:
                    console.line_elsewhere(line, at.step)
            file.budget.tick()
        if last and is_torn(block):
            deque(console.torn(last), maxlen=0)
        yield from _kept(console.flush())
    yield from _kept(console.close())


def _kept(found: Iterable[Piece]) -> Iterator[Piece]:
    for piece in found:
        if isinstance(piece, Context):
            if facts := {name: fact for name, fact in piece.facts.items() if name not in PLACES}:
                yield replace(piece, facts=facts)
        else:
            yield piece


def _placed(entries: Sequence[LogEntry], lines: Sequence[bytes], places: list[Place]) -> list[Place | None]:
    """Return where each line is, None for one that no entry matches; `places`: of each entry, moved on."""
    frames = [(number, frame) for number, line in enumerate(lines) for frame in plain_frames(line)]
    texts = _texts([frame for _, frame in frames])
    found: list[Place | None] = [None] * len(lines)
    for number, entry in enumerate(entries):
        table, places[number] = texts_by_name(entry, texts, places[number])
        steps = table["__step"] if "__step" in table.columns else pl.repeat(None, len(table), eager=True)
        for at in table["__matched"].arg_true():
            found[frames[at][0]] = Place(step=steps[at])
    return found


def _texts(lines: Sequence[str]) -> pl.Series:
    """Return lines as they are matched: one that is too long is empty."""
    return pl.Series("line", [line if len(line) <= MAX_LINE else "" for line in lines], dtype=pl.String)


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
        self._places = [START] * len(file.own)
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
        texts = _texts(lines)
        matched = pl.repeat(value=False, n=len(texts), dtype=pl.Boolean, eager=True)
        frames = []
        for number, entry in enumerate(self._file.own):
            table, self._places[number] = texts_by_name(entry, texts, self._places[number])
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
        long = table.unpivot(on=entry.values, index=["__step", "__line"], variable_name="name_raw", value_name="text")
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


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the lines of an entry have come to."""

    step: int | None = None  # through all epochs
    epoch: int | None = None
    first_epoch: int | None = None  # 0 or 1


START: Final = Place()


def texts_by_name(entry: LogEntry, lines: pl.Series, last: Place = START) -> tuple[pl.DataFrame, Place]:
    """Return what stands under each name on each line, as text, and the place behind these lines.

    `last`: the place before them. `__matched`: the line is one of this entry; `__step`: its step, where it has one.
    """
    names = entry.names
    if entry.line:
        found = lines.str.extract_groups(entry.line).struct.unnest()
        table = found.select(found.to_series(number - 1).alias(name) for name, number in names.items())
    else:
        cells = lines.str.split(entry.separator) if entry.separator else lines.str.extract_all(r"\S+")
        table = pl.select(cells.list.get(number - 1, null_on_oob=True).alias(name) for name, number in names.items())
    table = table.with_columns(__line=pl.int_range(0, len(lines), dtype=pl.Int64))
    values = pl.col(entry.values)
    if entry.step not in names:
        held = _number(values, entry.decimal).is_not_null()
        return table.with_columns(__matched=pl.any_horizontal(held)), last
    step = _whole(_number(pl.col(entry.step), entry.decimal))
    table = table.with_columns(__step=step, __given=step.is_not_null())
    if entry.epoch_steps:
        table, last = _through_epochs(entry, table, last)
    held = pl.any_horizontal(values.is_not_null())
    if entry.carry:
        carried = pl.col("__step").forward_fill().fill_null(pl.lit(last.step, dtype=pl.Int64))
        table = table.with_columns(__step=carried, __matched=pl.col("__given") | (held & carried.is_not_null()))
        return table, replace(last, step=table["__step"][-1] if len(table) else last.step)
    return table.with_columns(__matched=pl.col("__step").is_not_null() & held), last


def _through_epochs(entry: LogEntry, table: pl.DataFrame, last: Place) -> tuple[pl.DataFrame, Place]:
    """Return a table whose steps count on where those of an epoch start again; the first epoch is 0 or 1."""
    epochs = table.select(epoch=_whole(_number(pl.col(entry.epoch), entry.decimal))).to_series()
    told = epochs.drop_nulls()
    if last.first_epoch is None and len(told):
        last = replace(last, first_epoch=min(1, told[0]))
    if entry.carry:
        table = table.with_columns(__given=pl.col("__given") | epochs.is_not_null())
        last_epoch = pl.lit(last.epoch, dtype=pl.Int64)
        epochs = epochs.to_frame().select(pl.col("epoch").forward_fill().fill_null(last_epoch)).to_series()
        last = replace(last, epoch=told[-1] if len(told) else last.epoch)
    before = (epochs.cast(pl.Float64) - (last.first_epoch or 0)) * entry.epoch_steps
    return table.with_columns(__step=_whole(before + pl.col("__step"))), last


def _whole(number: pl.Expr) -> pl.Expr:
    """Return a number where it is whole and no larger than a step may be; else null."""
    return pl.when((number == number.round()) & (number.abs() <= MAX_STEP)).then(number).cast(pl.Int64, strict=False)


def numbers_of(texts: pl.Series, decimal: str) -> pl.Series:
    """Return the numbers that texts begin with, as an entry reads them; null where one begins with none."""
    return texts.to_frame("text").select(_number(pl.col("text"), decimal)).to_series()


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
