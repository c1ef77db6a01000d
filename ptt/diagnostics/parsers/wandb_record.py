"""The fields of W&B's Record messages that tell of a run: history, summary, settings, machine, output and exit.

Field numbers after `wandb/proto/wandb_internal.proto` of wandb/wandb.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ptt.diagnostics.parsers.lines import well_formed
from ptt.diagnostics.parsers.wire import field_key, fields, signed, varint

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
