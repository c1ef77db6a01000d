"""The few protobuf fields of a TensorBoard event that hold scalars."""

from __future__ import annotations

import struct
from collections.abc import Iterator

FLOAT, DOUBLE = struct.Struct("<f"), struct.Struct("<d")
DT_FLOAT, DT_DOUBLE = 1, 2
MASK = (1 << 64) - 1  # ten bytes could spell 70 bits


class DamagedMessageError(ValueError):
    """Bytes that are no Event though their checksum is right."""


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & MASK, at
        shift += 7
    raise DamagedMessageError("a number longer than 64 bits")


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield key, start and stop of each field; the key holds the field number and the wire type."""
    while at < end:
        key, at = _varint(data, at)
        match key & 7:
            case 0:
                start, at = at, _varint(data, at)[1]
            case 1:
                start, at = at, at + 8
            case 2:
                size, start = _varint(data, at)
                at = start + size
            case 5:
                start, at = at, at + 4
            case _:
                raise DamagedMessageError("a field of an unknown kind")
        if at > end:
            raise DamagedMessageError("a field beyond its message")
        yield key, start, at


def _key(field: int, wire: int) -> int:
    return field << 3 | wire


WALL_TIME, STEP, SUMMARY = _key(1, 1), _key(2, 0), _key(5, 2)
VALUE, TAG, SIMPLE, TENSOR = _key(1, 2), _key(1, 2), _key(2, 5), _key(8, 2)
DTYPE, SHAPE, CONTENT = _key(1, 0), _key(2, 2), _key(4, 2)
FLOATS, ONE_FLOAT, DOUBLES, ONE_DOUBLE = _key(5, 2), _key(5, 5), _key(6, 2), _key(6, 1)
DIM, DIM_SIZE = _key(2, 2), _key(1, 0)


def scalars(event: bytes, known: dict[bytes, str]) -> Iterator[tuple[int, str, float, float]]:
    """Yield step, tag, value and wall time of each scalar in one Event message."""
    wall_time, step = 0.0, 0
    summaries: list[tuple[int, int]] = []
    for key, start, stop in _fields(event, 0, len(event)):
        if key == WALL_TIME:
            wall_time = DOUBLE.unpack_from(event, start)[0]
        elif key == STEP:
            step = _varint(event, start)[0]
            step -= (step >> 63) << 64  # negative numbers are written as two's complement
        elif key == SUMMARY:
            summaries.append((start, stop))
    for begin, end in summaries:
        for key, start, stop in _fields(event, begin, end):
            if key != VALUE:
                continue
            tag, number = _value(event, start, stop)
            if number is not None:
                name = known.get(tag) or known.setdefault(tag, tag.decode("utf-8", "replace"))
                yield step, name, number, wall_time


def _value(event: bytes, begin: int, end: int) -> tuple[bytes, float | None]:
    tag, number = b"", None
    for key, start, stop in _fields(event, begin, end):
        if key == TAG:
            tag = event[start:stop]
        elif key == SIMPLE:
            number = FLOAT.unpack_from(event, start)[0]
        elif key == TENSOR:
            number = _scalar_tensor(event, start, stop)
    return tag, number


def _scalar_tensor(event: bytes, begin: int, end: int) -> float | None:
    """Read a tensor of one float or double; None for histograms, texts and all else."""
    dtype, content = 0, b""
    for key, start, stop in _fields(event, begin, end):
        if key == DTYPE:
            dtype = _varint(event, start)[0]
        elif key in (CONTENT, FLOATS, ONE_FLOAT, DOUBLES, ONE_DOUBLE):
            content += event[start:stop]
        elif key == SHAPE:
            for dim, at, until in _fields(event, start, stop):
                sizes = [_varint(event, place)[0] for k, place, _ in _fields(event, at, until) if k == DIM_SIZE]
                if dim == DIM and sizes != [1]:
                    return None
    form = {DT_FLOAT: FLOAT, DT_DOUBLE: DOUBLE}.get(dtype)
    if form is None or len(content) != form.size:
        return None
    value: float = form.unpack(content)[0]
    return value
