"""W&B's own log of a run, offline or online: history as metrics, the machine as ranks, output and exit as events.

Read without wandb: the framing in wandb_log.py, the messages in wandb_record.py.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from ptt.diagnostics.metrics.aliases import framework_of
from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.lines import well_formed
from ptt.diagnostics.parsers.io.metric_rows import TRAINER_STEP_KEYS, MetricColumns, flatten
from ptt.diagnostics.parsers.io.protobuf import DamagedMessageError, field_key, fields, signed, varint
from ptt.diagnostics.parsers.io.telemetry import EventLog, MachineLog, is_device_sample, safe_settings
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
                yield Lost(rows=1, bytes=len(pending), note=f"{file.rel} holds a record above 256 MB, passed over.")
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


@dataclass(frozen=True)
class Parts:
    """What one record holds, by kind; a record is of one kind."""

    kind: int
    start: int
    stop: int


def parts_of(record: bytes) -> Iterator[Parts]:
    """Yield the parts of a record; the caller knows the kinds."""
    for key, start, stop in fields(record, 0, len(record)):
        yield Parts(key, start, stop)


def items(record: bytes, part: Parts, item: int = ITEM) -> Iterator[tuple[str, Value]]:
    """Yield name and value of each item; the parts of a nested name are joined with dots."""
    for key, start, stop in fields(record, part.start, part.stop):
        if key != item:
            continue
        name, nested = "", []
        value: Value = None
        for inner, begin, end in fields(record, start, stop):
            match inner:
                case _ if inner == KEY:
                    name = _text(record[begin:end])
                case _ if inner == NESTED_KEY:
                    nested.append(_text(record[begin:end]))
                case _:
                    value = _value(record, inner, begin, end, value)
        yield ".".join(nested) if nested else name, value


def _value(record: bytes, key: int, start: int, stop: int, before: Value) -> Value:
    if key in (VALUE, JSON):
        return _text(record[start:stop]) if stop - start <= VALUE_BYTES else "{}"
    if key == STRING:
        return json.dumps(_text(record[start : min(stop, start + VALUE_BYTES)]))
    if key == NUMBER:
        number: float = DOUBLE.unpack_from(record, start)[0]
        return number
    if key == INTEGER:
        coded = varint(record, start)[0]
        return float((coded >> 1) ^ -(coded & 1))  # zigzag
    if key == BOOLEAN:
        return float(varint(record, start)[0] != 0)
    return None if key == NONE else before


def history_step(record: bytes, part: Parts) -> int | None:
    """Return W&B's own count of log calls, where the record gives it beside its items."""
    for key, start, stop in fields(record, part.start, part.stop):
        if key == STEP:
            return next(
                (signed(varint(record, at)[0]) for k, at, _ in fields(record, start, stop) if k == STEP_NUMBER), 0
            )
    return None


def value_of(text: Value) -> Any:
    """Read extended JSON; a number comes as float. None is null; ValueError where it is no JSON."""
    if text is None or isinstance(text, float):
        return text
    if text in CONSTANTS:
        return CONSTANTS[text]
    if text[:1] in NUMBER_START and "_" not in text:
        return float(text)
    try:
        return well_formed(json.loads(text), text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def setting_of(value: Value) -> Any:
    """Read a setting, whose booleans are no numbers; None where it is no JSON."""
    if value in ("true", "false"):
        return value == "true"
    try:
        return value_of(value)
    except ValueError:  # damaged
        return None


def time_of(record: bytes, start: int, stop: int) -> float:
    """Read a Timestamp message as seconds since the epoch."""
    seconds, nanos = 0, 0
    for key, at, _ in fields(record, start, stop):
        if key == SECONDS:
            seconds = signed(varint(record, at)[0])
        elif key == NANOS:
            nanos = varint(record, at)[0]
    return seconds + nanos / 1e9


def stats_time(record: bytes, part: Parts) -> float | None:
    """Return when a sample of the machine was taken."""
    return next(
        (time_of(record, a, b) for key, a, b in fields(record, part.start, part.stop) if key == STATS_TIME), None
    )


def output_of(record: bytes, part: Parts) -> tuple[str, float | None, str]:
    """Return which stream was written to, when, and the text."""
    kind, when, text = "stderr", None, ""
    for key, start, stop in fields(record, part.start, part.stop):
        if key == OUTPUT_KIND:
            kind = "stdout" if varint(record, start)[0] == STDOUT else "stderr"
        elif key == OUTPUT_TIME:
            when = time_of(record, start, stop)
        elif key == OUTPUT_LINE:
            text = _text(record[start:stop])
    return kind, when, text


def alert_of(record: bytes, part: Parts) -> str:
    """Return title and text of an alert as one."""
    texts = [_text(record[a:b]) for key, a, b in fields(record, part.start, part.stop) if key in (TITLE, TEXT)]
    return ": ".join(filter(None, texts))


def exit_of(record: bytes, part: Parts) -> tuple[int, int | None]:
    """Return exit code and, where given, the run time in seconds; proto3 leaves zeros out."""
    code, runtime = 0, None
    for key, start, _ in fields(record, part.start, part.stop):
        if key == EXIT_CODE:
            code = signed(varint(record, start)[0])
        elif key == RUNTIME:
            runtime = signed(varint(record, start)[0])
    return code, runtime


def run_config(record: bytes, part: Parts) -> Parts | None:
    """Return the settings that a run begins with."""
    found = (Parts(key, a, b) for key, a, b in fields(record, part.start, part.stop) if key == RUN_CONFIG)
    return next(found, None)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


OWN = ("_step", "_runtime", "_timestamp", "_wandb")  # what W&B adds to every log call


def read_value(value: Value) -> Any:
    """Read a value; None where its JSON is damaged."""
    try:
        return value_of(value)
    except ValueError:  # damaged JSON
        return None


def step_of(value: Value) -> int | None:
    """Read a value as a step; None if it is none."""
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
                if "_type" not in read:  # else a histogram, a table or a picture
                    inner = {f"{name}.{key.replace('/', '.')}": entry for key, entry in flatten(read).items()}
                    kept.update(
                        {key: as_value(entry) for key, entry in inner.items() if not isinstance(entry, (str, list))}
                    )
            else:
                kept[name] = as_value(read)
        except (TypeError, ValueError):  # a text, a list, or damage
            continue
    return kept


def settings_of(found: dict[str, Value]) -> dict[str, Any]:
    """Read settings, those inside others by names joined with slashes."""
    read: dict[str, Any] = {}
    for name, value in found.items():
        if name != "_wandb":
            entry = setting_of(value)
            read.update(flatten({name: entry}) if isinstance(entry, dict) else {name: entry})
    return read


DAMAGE = (DamagedMessageError, IndexError, struct.error)


@dataclass
class _Run:
    """What is known while the records go by."""

    file: RunFile
    step_key: str | None
    step: int | None  # of the latest log call that named one
    columns: MetricColumns = field(init=False)
    seq: int = 0
    bad: int = 0
    ended: bool = False
    names: set[str] = field(default_factory=set)
    summary: dict[str, float | None] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.columns = MetricColumns(self.file)
        self.events = EventLog(self.file)
        self.machine = MachineLog(self.file)


def recognises(file: RunFile) -> bool:
    """Say yes to the name with W&B's file header."""
    if not file.name.endswith(".wandb"):
        return False
    try:
        return file.head.startswith(MAGIC)
    except OSError:  # unreadable: nobody's
        return False


def read(file: RunFile) -> Iterator[Piece]:
    """Yield metrics, machine samples and events; the file is read twice, first for the name of the step."""
    try:
        with file.path.open("rb") as handle:
            if handle.read(len(MAGIC)) != MAGIC:
                yield Lost(bytes=file.size, note=f"{file.rel} does not begin as a W&B log.")
                return
            handle.seek(0)
            run = _Run(file, *_step_key(records(handle, file)))
            handle.seek(0)
            yield from _pieces(run, records(handle, file))
    except OSError as error:  # gone, or its disk fails
        yield Lost(bytes=file.size, note=f"{file.rel} could not be read to its end: {error.strerror}.")
        return
    yield from _closing(run)


def _step_key(found: Iterator[bytes | Lost]) -> tuple[str | None, int | None]:
    """Choose the name of the training step, and its first value: what is logged before it belongs there."""
    first: dict[str, int] = {}
    for record in found:
        if isinstance(record, Lost):
            continue
        try:
            for part in parts_of(record):
                if part.kind == HISTORY:
                    for name, value in items(record, part):
                        if name in TRAINER_STEP_KEYS and name not in first and (step := step_of(value)) is not None:
                            first[name] = step
        except DAMAGE:
            continue
    key = next((name for name in TRAINER_STEP_KEYS if name in first), None)
    return key, first[key] if key else None


def _pieces(run: _Run, found: Iterator[bytes | Lost]) -> Iterator[Piece]:
    for record in found:
        if isinstance(record, Lost):
            yield record
            continue
        try:
            for part in parts_of(record):
                _take(run, record, part)
        except DAMAGE:  # right checksum, wrong content
            run.bad += 1
        yield from run.columns.flush()
        yield from run.machine.flush()


def _take(run: _Run, record: bytes, part: Parts) -> None:
    """Take one part of a record into the run."""
    if part.kind == HISTORY:
        _take_history(run, record, part)
    elif part.kind == SUMMARY:
        run.summary.update(numbers_of(dict(items(record, part))))
    elif part.kind == STATS:
        when = stats_time(record, part)
        for name, value in numbers_of(dict(items(record, part, STATS_ITEM))).items():
            run.machine.add(run.step, when, name, value)
    elif part.kind == OUTPUT:
        kind, when, text = output_of(record, part)
        run.events.add_output(run.step, when, kind, text)
    elif part.kind == ALERT:
        run.events.add(run.step, None, "alert", alert_of(record, part))
    elif part.kind == EXIT:
        code, seconds = exit_of(record, part)
        after = "" if seconds is None else f" after {seconds} s"
        run.events.add(run.step, None, "exit", f"exit code {code}{after}")
        run.ended = True
    elif part.kind in (CONFIG, RUN):
        inner = part if part.kind == CONFIG else run_config(record, part)
        if inner is not None:
            run.settings.update(settings_of(dict(items(record, inner))))


def _take_history(run: _Run, record: bytes, part: Parts) -> None:
    found = dict(items(record, part))
    if run.step_key is None:
        step = step_of(found.get("_step")) if "_step" in found else history_step(record, part)
    else:
        step = step_of(found.pop(run.step_key, None))
    if step is not None:
        run.step = step
    if run.step is None:
        run.bad += 1
        return
    stamp = read_value(found.get("_timestamp"))
    wall_time = as_seconds(stamp) if isinstance(stamp, float) else None
    for name, value in numbers_of(found).items():
        run.columns.add(run.step, name, value, wall_time, run.seq)
        run.names.add(name)
        if is_device_sample(name):
            run.machine.add(run.step, wall_time, name, value)
    run.seq += 1


def _closing(run: _Run) -> Iterator[Piece]:
    """Yield what is known at the end: values that only the summary holds, the rest, and what the settings tell."""
    if run.step is not None:
        for name in sorted(run.summary.keys() - run.names - {run.step_key}):
            run.columns.add(run.step, name, run.summary[name], None, run.seq)
    yield from run.columns.pieces()
    yield from run.machine.pieces()
    yield from run.events.pieces()
    if run.bad:
        yield Lost(rows=run.bad, note=f"{run.file.rel}: {run.bad} record(s) are damaged or name no step.")
    if not run.ended:
        note = f"{run.file.rel} holds no exit record: the run was killed, crashed, or still goes on."
        yield Lost(note=note)
    facts = safe_settings(run.settings) | ({} if run.ended else {"exit_record": False})
    if framework := framework_of(run.names):
        facts["framework"] = framework
    if facts:
        yield Context(facts=facts)


PARSER = Parser(
    name="wandb",
    describes="W&B's `.wandb` logs, offline or online: metrics, samples of the machine, output that speaks of trouble.",
    priority=25,
    recognises=recognises,
    read=read,
)
