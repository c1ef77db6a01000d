"""Members of a zip file one by one, in memory and bounded: stored, deflated, or zstd, which few Pythons read."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final

import pyarrow as pa

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.parsers.io.interface import RunFile

LOCAL: Final = b"PK\x03\x04"
HEADER: Final = struct.Struct("<4s5H3I2H")  # APPNOTE.TXT 4.3.7
STORED, DEFLATED, ZSTD = 0, 8, 93
MEMBER_BYTES: Final = 256 << 20  # packed or unpacked
MAX_MEMBERS: Final = 200_000
DIRECTORY_BYTES: Final = 64 << 20  # the list of the members; 200,000 of them take 20 MB
DESCRIPTOR_BYTES: Final = 24  # sizes and checksum behind a member that was written as a stream
UTF8: Final = 1 << 11  # the flag that names are UTF-8
END, LOCATOR = b"PK\x05\x06", b"PK\x06\x07"
TAIL_BYTES: Final = (1 << 16) + 42  # longest possible comment, and the record before it
PIECE: Final = 1 << 20
# What zipfile raises for a directory of members that is cut, lies about its place or is split over disks.
BAD_LIST: Final = (zipfile.BadZipFile, ValueError, struct.error, OSError, EOFError, OverflowError, NotImplementedError)


@dataclass(frozen=True, kw_only=True)
class Member:
    """Where a member lies."""

    name: str
    start: int  # offset of its local header
    packed: int
    unpacked: int
    method: int
    crc: int


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The members of a zip file, of each name the last; `torn` if the list at its end is gone."""

    members: tuple[Member, ...]
    torn: bool


def listing(file: RunFile) -> Listing:
    """List the members by the directory at the end, or without one by walking from header to header."""
    try:
        if _directory_bytes(file) > DIRECTORY_BYTES:
            raise ValueError
        with zipfile.ZipFile(file.path) as archive:
            members = [
                Member(
                    name=item.filename,
                    start=item.header_offset,
                    packed=item.compress_size,
                    unpacked=item.file_size,
                    method=item.compress_type,
                    crc=item.CRC,
                )
                for item in archive.infolist()[:MAX_MEMBERS]
            ]
            end = archive.start_dir
        _check_places(file, members, end)
        torn = False
    except BAD_LIST:  # cut while being written, or damaged
        members, torn = list(_walk(file)), True
    last = {member.name: member for member in members}
    return Listing(members=tuple(last.values()), torn=torn)


def _check_places(file: RunFile, members: list[Member], end: int) -> None:
    """Raise where the list does not fit what lies before it: a name differs, or a member lies on or between others.

    Members on top of each other are a few bytes that unpack to any size; one that is not listed would be lost unseen.
    """
    at = 0
    with file.path.open("rb") as handle:
        for member in sorted(members, key=lambda member: member.start):
            header = _header(handle, member.start)
            if not at <= member.start <= at + DESCRIPTOR_BYTES or header is None:
                raise ValueError
            if handle.read(header[5]).decode(*_encoding(header[0])) != member.name:
                raise ValueError
            at = member.start + HEADER.size + header[5] + header[6] + member.packed
    if not at <= end <= at + DESCRIPTOR_BYTES and len(members) < MAX_MEMBERS:
        raise ValueError


def _encoding(flags: int) -> tuple[str, str]:
    return ("utf-8" if flags & UTF8 else "cp437"), "replace"


def _directory_bytes(file: RunFile) -> int:
    """Return how long the list at the end says it is: the library reads it whole."""
    with file.path.open("rb") as handle:
        handle.seek(max(0, file.size - TAIL_BYTES))
        tail = handle.read(TAIL_BYTES)
        at = tail.rfind(END)
        if at < 0 or len(tail) < at + 16:
            raise ValueError
        said = int.from_bytes(tail[at + 12 : at + 16], "little")
        locator = tail[at - 20 : at] if at >= 20 else b""
        if locator.startswith(LOCATOR):
            handle.seek(min(int.from_bytes(locator[8:16], "little"), file.size))
            said = int.from_bytes(handle.read(56)[40:48], "little")
    return said


def _walk(file: RunFile) -> Iterator[Member]:
    try:
        with file.path.open("rb") as handle:
            at = 0
            for _ in range(MAX_MEMBERS):
                header = _header(handle, at)
                if header is None:
                    return
                flags, method, crc, packed, unpacked, name_length, extra_length = header
                name = handle.read(name_length).decode("utf-8", "replace")
                if flags & 0b1001:  # encrypted, or with sizes only behind the data
                    return
                yield Member(name=name, start=at, packed=packed, unpacked=unpacked, method=method, crc=crc)
                at += HEADER.size + name_length + extra_length + packed
    except OSError:  # gone, or its disk fails
        return


def _header(handle: BinaryIO, at: int) -> tuple[int, int, int, int, int, int, int] | None:
    handle.seek(at)
    raw = handle.read(HEADER.size)
    if len(raw) < HEADER.size or not raw.startswith(LOCAL):
        return None
    _, _, flags, method, _, _, crc, packed, unpacked, name_length, extra_length = HEADER.unpack(raw)
    return flags, method, crc, packed, unpacked, name_length, extra_length


def content(file: RunFile, member: Member) -> bytes:
    """Return a member's content; ValueError with the reason if it is damaged, too large or packed in another way."""
    if max(member.packed, member.unpacked) > MEMBER_BYTES:
        raise ValueError(f"is larger than {MEMBER_BYTES >> 20} MB")
    try:
        with file.path.open("rb") as handle:
            header = _header(handle, member.start) if 0 <= member.start < file.size else None
            if header is None:
                raise ValueError("is not where the archive's list says")
            handle.seek(header[5] + header[6], os.SEEK_CUR)
            raw = handle.read(member.packed)
    except OSError as error:
        raise ValueError(f"could not be read: {error.strerror}") from error
    if len(raw) < member.packed:
        raise ValueError("is cut")
    data = _unpacked(raw, member)
    if len(data) != member.unpacked or zlib.crc32(data) != member.crc:
        raise ValueError("is damaged")
    return data


def _unpacked(raw: bytes, member: Member) -> bytes:
    if member.method == STORED:
        return raw
    try:
        if member.method == DEFLATED:
            return zlib.decompressobj(-zlib.MAX_WBITS).decompress(raw, member.unpacked + 1)
        if member.method == ZSTD:
            return _zstd(raw, member.unpacked)
    except (zlib.error, OSError, pa.ArrowException) as error:
        raise ValueError("is damaged") from error
    raise ValueError(f"is compressed by method {member.method}, which ptt does not read")


def _zstd(raw: bytes, size: int) -> bytes:
    """Unpack all frames, up to one byte more than the member's declared size."""
    data = bytearray()
    with pa.CompressedInputStream(pa.BufferReader(raw), "zstd") as stream:
        while len(data) <= size:
            piece = stream.read(min(PIECE, size + 1 - len(data)))
            if not piece:
                break
            data += piece
    return bytes(data)
