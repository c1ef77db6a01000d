"""The framing of W&B's `.wandb` files: blocks of 32 KiB, checksummed pieces, and the records they make up.

LevelDB's log format with W&B's own file header, and plain CRC-32 over the piece's kind and content; see
`wandb/sdk/internal/datastore.py` of wandb/wandb.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from ptt.diagnostics.parsers.interface import Lost, RunFile

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
