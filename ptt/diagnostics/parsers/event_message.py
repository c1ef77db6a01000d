"""The few protobuf fields of a TensorBoard event that hold scalars."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ptt.diagnostics.parsers.wire import field_key, fields, signed, varint

FLOAT, DOUBLE = struct.Struct("<f"), struct.Struct("<d")
DT_FLOAT, DT_DOUBLE = 1, 2
WALL_TIME, STEP, SUMMARY = field_key(1, 1), field_key(2, 0), field_key(5, 2)
VALUE, TAG, SIMPLE, TENSOR = field_key(1, 2), field_key(1, 2), field_key(2, 5), field_key(8, 2)
DTYPE, SHAPE, CONTENT = field_key(1, 0), field_key(2, 2), field_key(4, 2)
FLOATS, ONE_FLOAT, DOUBLES, ONE_DOUBLE = field_key(5, 2), field_key(5, 5), field_key(6, 2), field_key(6, 1)
DIM, DIM_SIZE = field_key(2, 2), field_key(1, 0)


def scalars(event: bytes, known: dict[bytes, str]) -> Iterator[tuple[int, str, float, float]]:
    """Yield step, tag, value and wall time of each scalar in one Event message."""
    wall_time, step = 0.0, 0
    summaries: list[tuple[int, int]] = []
    for key, start, stop in fields(event, 0, len(event)):
        if key == WALL_TIME:
            wall_time = DOUBLE.unpack_from(event, start)[0]
        elif key == STEP:
            step = signed(varint(event, start)[0])
        elif key == SUMMARY:
            summaries.append((start, stop))
    for begin, end in summaries:
        for key, start, stop in fields(event, begin, end):
            if key != VALUE:
                continue
            tag, number = _value(event, start, stop)
            if number is not None:
                name = known.get(tag) or known.setdefault(tag, tag.decode("utf-8", "replace"))
                yield step, name, number, wall_time


def _value(event: bytes, begin: int, end: int) -> tuple[bytes, float | None]:
    tag, number = b"", None
    for key, start, stop in fields(event, begin, end):
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
    for key, start, stop in fields(event, begin, end):
        if key == DTYPE:
            dtype = varint(event, start)[0]
        elif key in (CONTENT, FLOATS, ONE_FLOAT, DOUBLES, ONE_DOUBLE):
            content += event[start:stop]
        elif key == SHAPE:
            for dim, at, until in fields(event, start, stop):
                sizes = [varint(event, place)[0] for k, place, _ in fields(event, at, until) if k == DIM_SIZE]
                if dim == DIM and sizes != [1]:
                    return None
    form = {DT_FLOAT: FLOAT, DT_DOUBLE: DOUBLE}.get(dtype)
    if form is None or len(content) != form.size:
        return None
    value: float = form.unpack(content)[0]
    return value
