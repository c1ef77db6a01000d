"""The protobuf wire format: the fields of a message by number and kind, without a schema compiler."""

from __future__ import annotations

from collections.abc import Iterator

MASK = (1 << 64) - 1  # ten bytes could spell 70 bits


class DamagedMessageError(ValueError):
    """Bytes that are not a message although their checksum is right."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at a place, and the place behind it; IndexError where the data ends first."""
    value = shift = 0
    while shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & MASK, at
        shift += 7
    raise DamagedMessageError("a number longer than 64 bits")


def signed(value: int) -> int:
    """Read a number as two's complement, which is how negative ones are written."""
    return value - ((value >> 63) << 64)


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield key, start and stop of each field; the key holds the field number and the wire type."""
    while at < end:
        key, at = varint(data, at)
        match key & 7:
            case 0:
                start, at = at, varint(data, at)[1]
            case 1:
                start, at = at, at + 8
            case 2:
                size, start = varint(data, at)
                at = start + size
            case 5:
                start, at = at, at + 4
            case _:
                raise DamagedMessageError("a field of an unknown kind")
        if at > end:
            raise DamagedMessageError("a field beyond its message")
        yield key, start, at


def field_key(field: int, wire: int) -> int:
    """Return the key of a field: 0 is a number, 1 eight bytes, 2 bytes with their length, 5 four bytes."""
    return field << 3 | wire
