"""W&B's own log of a run, offline or online: history as metrics, the machine as ranks, output and exit as events.

Read without wandb: first the framing of records, then the protobuf messages in them.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, BinaryIO

from ptt.diagnostics.metrics.aliases import framework_of
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile, lost_notes, read_error
from ptt.diagnostics.parsers.io.lines import well_formed
from ptt.diagnostics.parsers.io.metric_rows import (
    LOG_CALL,
    STEP_NAMES,
    MetricColumns,
    choose_step_key,
    flatten,
    name_prefix,
)
from ptt.diagnostics.parsers.io.protobuf import DamagedMessageError, field_key, fields, signed, varint
from ptt.diagnostics.parsers.io.setup_files import setup_context
from ptt.diagnostics.parsers.io.telemetry import ESCAPES, EventLog, MachineLog, is_device_sample
from ptt.diagnostics.parsers.io.tracebacks import EndingLog
from ptt.diagnostics.parsers.io.values import as_seconds, as_step, as_value

MAGIC = b":W&B" + struct.pack("<HB", 0xBEE1, 0)
BLOCK_BYTES = 32768  # counted from the start of the file, header included
RECORD_BYTES = 256 << 20  # a table or an artifact manifest stays below; more is a damaged file
PIECE = struct.Struct("<IHB")  # checksum, size, kind
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
SEEDS = {kind: zlib.crc32(bytes([kind])) for kind in (FULL, FIRST, MIDDLE, LAST)}


def records(handle: BinaryIO, file: RunFile) -> Iterator[bytes | Lost]:
    """Yield the records of an open file; what is damaged costs its block and the record it belongs to."""
    pending: bytearray | None = None  # pieces of a record that goes on
    block, number = handle.read(BLOCK_BYTES), 0
    while block:
        following = handle.read(BLOCK_BYTES)
        at = len(MAGIC) if number == 0 else 0
        while at + PIECE.size <= len(block):
            crc, size, kind = PIECE.unpack_from(block, at)
            if kind == 0 and size == 0:  # room the writer made and did not use
                break
            data = block[at + PIECE.size : at + PIECE.size + size]
            if len(data) < size and not following:
                yield _torn(file, len(block) - at + len(pending or b""))
                return
            if kind not in SEEDS or len(data) < size or zlib.crc32(data, SEEDS[kind]) != crc:
                where = number * BLOCK_BYTES + at
                note = f"{file.rel} is damaged at byte {where}: the rest of that block is lost."
                yield Lost(rows=1, bytes=len(block) - at + len(pending or b""), note=note)
                pending = None
                break
            at += PIECE.size + size
            if kind in (FULL, FIRST):
                pending = bytearray()
            if pending is None:  # the beginning was lost, and has been counted
                continue
            pending += data
            if len(pending) > RECORD_BYTES:
                yield Lost(rows=1, bytes=len(pending), note=f"{file.rel} has a record above 256 MB, which was skipped.")
                pending = None
            elif kind in (FULL, LAST):
                yield bytes(pending)
                pending = None
        else:
            if not following and 0 < len(block) - at < PIECE.size and len(block) < BLOCK_BYTES:
                yield _torn(file, len(block) - at + len(pending or b""))
                return
        block, number = following, number + 1
    if pending is not None:
        yield _torn(file, len(pending))


def _torn(file: RunFile, size: int) -> Lost:
    return Lost(rows=1, bytes=size, note=f"{file.rel} ends inside a record: that record is lost.")


HISTORY, SUMMARY, CONFIG, STATS, ALERT, OUTPUT, RUN, EXIT = (
    field_key(number, 2) for number in (2, 3, 5, 7, 10, 13, 17, 18)
)
ITEM, KEY, NESTED_KEY, VALUE = field_key(1, 2), field_key(1, 2), field_key(2, 2), field_key(16, 2)
# Newer writers may give a value by its type instead of as JSON text.
NONE, BOOLEAN, INTEGER, NUMBER = field_key(3, 0), field_key(4, 0), field_key(5, 0), field_key(6, 1)
STRING, JSON = field_key(7, 2), field_key(8, 2)
DOUBLE = struct.Struct("<d")
STEP, STEP_NUMBER = field_key(2, 2), field_key(1, 0)
STATS_TIME, STATS_ITEM, SECONDS, NANOS = field_key(2, 2), field_key(3, 2), field_key(1, 0), field_key(2, 0)
OUTPUT_KIND, OUTPUT_TIME, OUTPUT_LINE = field_key(1, 0), field_key(2, 2), field_key(3, 2)
RUN_CONFIG = field_key(4, 2)
TITLE, TEXT = field_key(1, 2), field_key(2, 2)
EXIT_CODE, RUNTIME = field_key(1, 0), field_key(2, 0)
STDOUT = 1

REST_CHARS = 1 << 16  # of a line of output that continues in the next record
VALUE_BYTES = 1 << 20  # of one value: a number takes 25 bytes, a histogram some thousands
NUMBER_START = frozenset("-0123456789")
CONSTANTS: dict[str, float | None] = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
    "null": None,
    "true": 1.0,
    "false": 0.0,
}

Value = str | float | None  # JSON text, or a value the writer gave by its type


Span = tuple[int, int]  # start and end of a field's content in its record


def last_fields(record: bytes, span: Span) -> dict[int, Span]:
    """Return where each field of a message lies, by its key; of a repeated one the last, as protobuf has it."""
    return {key: (start, stop) for key, start, stop in fields(record, *span)}


def items(record: bytes, span: Span, item: int = ITEM) -> Iterator[tuple[str, Value]]:
    """Yield name and value of each item; the parts of a nested name are joined with dots."""
    for key, start, stop in fields(record, *span):
        if key != item:
            continue
        name, nested = "", []
        value: Value = None
        for inner, begin, end in fields(record, start, stop):
            if inner == KEY:
                name = _text(record, (begin, end))
            elif inner == NESTED_KEY:
                nested.append(_text(record, (begin, end)))
            else:
                value = _value(record, inner, (begin, end), value)
        yield ".".join(nested) if nested else name, value


def _value(record: bytes, key: int, span: Span, before: Value) -> Value:
    start, stop = span
    if key in (VALUE, JSON):
        return _text(record, span) if stop - start <= VALUE_BYTES else "{}"
    if key == STRING:
        return json.dumps(_text(record, (start, min(stop, start + VALUE_BYTES))))
    if key == NUMBER:
        number: float = DOUBLE.unpack_from(record, start)[0]
        return number
    if key == INTEGER:
        coded = varint(record, start)[0]
        return float((coded >> 1) ^ -(coded & 1))  # zigzag
    if key == BOOLEAN:
        return float(varint(record, start)[0] != 0)
    return None if key == NONE else before


def _integer(record: bytes, span: Span | None) -> int:
    """Read a field that holds a number; proto3 leaves zeros out."""
    return 0 if span is None else signed(varint(record, span[0])[0])


def _text(record: bytes, span: Span | None) -> str:
    return "" if span is None else record[slice(*span)].decode("utf-8", "replace")


def value_of(text: Value) -> Any:
    """Read extended JSON; numbers become float, None is null. ValueError for invalid JSON."""
    if text is None or isinstance(text, float):
        return text
    if text in CONSTANTS:
        return CONSTANTS[text]
    if text[:1] in NUMBER_START and "_" not in text:
        return float(text)
    try:
        return well_formed(json.loads(text), text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def time_of(record: bytes, span: Span) -> float:
    """Read a Timestamp message as seconds since the epoch."""
    parts = last_fields(record, span)
    nanos = varint(record, parts[NANOS][0])[0] if NANOS in parts else 0
    return _integer(record, parts.get(SECONDS)) + nanos / 1e9


OWN = ("_step", "_runtime", "_timestamp", "_wandb")  # what W&B adds to every log call


def read_value(value: Value) -> Any:
    """Read a value; None where its JSON is damaged."""
    try:
        return value_of(value)
    except ValueError:  # damaged JSON
        return None


def step_of(value: Value) -> int | None:
    """Read a value as a step; None if it is not one."""
    return as_step(read_value(value))


def numbers_of(found: dict[str, Value]) -> dict[str, float | None]:
    """Keep what is a metric value; nested objects are joined with dots, as W&B shows them."""
    kept: dict[str, float | None] = {}
    for name, value in found.items():
        if name in OWN or name.startswith("_wandb."):
            continue
        try:
            read = value_of(value)
            if isinstance(read, dict):
                if "_type" not in read:  # otherwise a histogram, a table or a picture
                    below = name_prefix(f"{name}.")
                    inner = {f"{below}{key.replace('/', '.')}": entry for key, entry in flatten(read).items()}
                    kept.update(
                        {key: as_value(entry) for key, entry in inner.items() if not isinstance(entry, (str, list))}
                    )
            else:
                kept[name] = as_value(read)
        except (TypeError, ValueError):  # a text, a list, or damage
            continue
    return kept


def settings_of(found: dict[str, Value]) -> dict[str, Any]:
    """Read settings, whose booleans are no numbers, those inside others by names joined with slashes."""
    settings: dict[str, Any] = {}
    for name, value in found.items():
        if name != "_wandb":
            entry = value == "true" if value in ("true", "false") else read_value(value)
            settings |= flatten({name: entry})
    return settings


DAMAGED = "record(s) skipped: damaged, or without a step."
DAMAGE = (DamagedMessageError, IndexError, struct.error)


def recognises(file: RunFile) -> bool:
    """Recognise the name with W&B's file header."""
    return file.name.endswith(".wandb") and file.readable_head.startswith(MAGIC)


def read(file: RunFile) -> Iterator[Piece]:
    """Yield metrics, machine samples and events; the file is read twice, first for the name of the step."""
    try:
        with file.path.open("rb") as handle:
            if handle.read(len(MAGIC)) != MAGIC:
                yield Lost(bytes=file.size, note=f"{file.rel} does not begin like a W&B log.")
                return
            handle.seek(0)
            run = _Run(file, *choose_step_key(_logged_steps(file, records(handle, file))))
            handle.seek(0)
            for record in records(handle, file):
                yield from (record,) if isinstance(record, Lost) else run.take(record)
    except OSError as error:  # gone, or its disk fails
        yield read_error(file, error, end=" to its end")
        return
    yield from run.close()


def _logged_steps(file: RunFile, stream: Iterator[bytes | Lost]) -> Iterator[tuple[str, int | None]]:
    """Yield what is logged under each name that a trainer's step may have."""
    for record in stream:
        file.budget.tick()
        if isinstance(record, Lost):
            continue
        with suppress(*DAMAGE):
            for key, start, stop in fields(record, 0, len(record)):
                if key == HISTORY:
                    yield LOG_CALL, None
                for name, value in items(record, (start, stop)) if key == HISTORY else ():
                    if name in STEP_NAMES:
                        yield name, step_of(value)


class _Run:
    """State while records are read; `step` is that of the latest log call that named one."""

    def __init__(self, file: RunFile, step_key: str | None, step: int | None) -> None:
        self.file, self.step_key, self.step = file, step_key, step
        self.columns, self.events, self.machine = MetricColumns(file), EventLog(file), MachineLog(file)
        self.endings = EndingLog(self.events)
        self.rest: dict[str, str] = {}  # by stream: output without a line end so far
        self.log_calls = self.bad = 0
        self.ended = False
        self.summary: dict[str, float | None] = {}
        self.settings: dict[str, Any] = {}

    def take(self, record: bytes) -> Iterator[Piece]:
        """Take one record, and yield rows where many have gathered."""
        self.file.budget.tick()
        try:
            for key, start, stop in fields(record, 0, len(record)):
                self._part(key, record, (start, stop))
        except DAMAGE:  # right checksum, wrong content
            self.bad += 1
        yield from self.columns.flush()
        yield from self.machine.flush()

    def _part(self, kind: int, record: bytes, span: Span) -> None:
        if kind == HISTORY:
            self._history(record, span)
        elif kind == SUMMARY:
            self.summary.update(numbers_of(dict(items(record, span))))
        elif kind == STATS:
            times = (time_of(record, (a, b)) for key, a, b in fields(record, *span) if key == STATS_TIME)
            when = next(times, None)
            for name, value in numbers_of(dict(items(record, span, STATS_ITEM))).items():
                self.machine.add(self.step, when, name, value)
        elif kind == OUTPUT:
            parts = last_fields(record, span)
            stream = "stdout" if _integer(record, parts.get(OUTPUT_KIND)) == STDOUT else "stderr"
            when = time_of(record, parts[OUTPUT_TIME]) if OUTPUT_TIME in parts else None
            text = _text(record, parts.get(OUTPUT_LINE))
            self.events.add_output(self.step, when, stream, text)
            self._printed(stream, when, text)
        elif kind == ALERT:
            texts = [_text(record, (a, b)) for key, a, b in fields(record, *span) if key in (TITLE, TEXT)]
            self.events.add(self.step, None, "alert", ": ".join(filter(None, texts)))
        elif kind == EXIT:
            self._end_output()
            parts = last_fields(record, span)
            after = f" after {_integer(record, parts[RUNTIME])} s" if RUNTIME in parts else ""
            self.events.add(self.step, None, "exit", f"exit code {_integer(record, parts.get(EXIT_CODE))}{after}")
            self.ended = True
        elif kind == CONFIG:
            self.settings.update(settings_of(dict(items(record, span))))
        elif kind == RUN:
            for config in [(a, b) for key, a, b in fields(record, *span) if key == RUN_CONFIG][:1]:
                self.settings.update(settings_of(dict(items(record, config))))

    def _printed(self, stream: str, when: float | None, text: str) -> None:
        """Read whole lines of output for how the run ended; a record may hold several, or a part of one."""
        *lines, rest = (self.rest.get(stream, "") + text).split("\n")
        self.rest[stream] = rest[-REST_CHARS:]
        for line in lines:
            shown = line.rstrip("\r").rpartition("\r")[2]
            self.endings.line(self.step, when, ESCAPES.sub("", shown) if "\x1b" in shown else shown)

    def _end_output(self) -> None:
        """Take what was printed last, without a line end too."""
        for stream in list(self.rest):
            self._printed(stream, None, "\n")
        self.endings.close(self.step)

    def _history(self, record: bytes, span: Span) -> None:
        values = dict(items(record, span))
        if self.step_key is not None:
            step = step_of(values.pop(self.step_key, None))
        elif "_step" in values:
            step = step_of(values.get("_step"))
        else:  # W&B's own count of log calls, where the record gives it beside its items
            counts = [last_fields(record, (a, b)) for key, a, b in fields(record, *span) if key == STEP]
            step = _integer(record, counts[0].get(STEP_NUMBER)) if counts else None
        self.step = self.step if step is None else step
        if self.step is None:
            self.bad += 1
            return
        stamp = read_value(values.get("_timestamp"))
        wall_time = as_seconds(stamp) if isinstance(stamp, float) else None
        for name, value in numbers_of(values).items():
            self.columns.add(self.step, name, value, wall_time, self.log_calls)
            if is_device_sample(name):
                self.machine.add(self.step, wall_time, name, value)
        self.log_calls += 1

    def close(self) -> Iterator[Piece]:
        """Yield what is known at the end: values that only the summary holds, the rest, and what the settings tell."""
        logged = set(self.columns.names)
        if self.step is not None:
            for name in sorted(self.summary.keys() - logged - {self.step_key}):
                self.columns.add(self.step, name, self.summary[name], None, self.log_calls)
        self._end_output()
        ended = self.endings.close(self.step)
        for rows in (self.columns, self.machine, self.events):
            yield from rows.pieces()
        yield from lost_notes(self.file, {DAMAGED: self.bad})
        if not self.ended:
            note = f"{self.file.rel} has no exit record: the run was killed, crashed, or is still running."
            yield Lost(note=note)
        facts = ended if self.ended else {"exit_record": False} | ended
        if framework := framework_of(logged):
            facts["framework"] = framework
        if facts or self.settings:
            yield setup_context(self.settings, facts)


PARSER = Parser(
    name="wandb",
    describes="W&B's `.wandb` logs, offline or online: metrics, samples of the machine, output that speaks of trouble.",
    held_against="real: wandb 0.31, offline",
    priority=25,
    recognises=recognises,
    read=read,
)
