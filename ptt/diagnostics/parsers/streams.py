"""Text out of plain, gzip and zstd files, piece by piece, keeping all that a torn stream still holds."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pyarrow as pa

from ptt.diagnostics.parsers.interface import Lost, RunFile

PIECE_BYTES = 1 << 18  # what one read asks for
TOTAL_BYTES = 64 << 30  # decompressed; beyond it a small archive is more likely a bomb than a log

GZIP_MAGIC, ZSTD_MAGIC, BOM = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xef\xbb\xbf"
UNUSED = b"\xff"  # never part of UTF-8, so it marks how far a failed read got


def _unreadable(file: RunFile, error: OSError, done: int) -> Lost:
    return Lost(bytes=max(0, file.size - done), note=f"{file.rel} could not be read: {error.strerror}.")


def _plain(file: RunFile) -> Iterator[bytes | Lost]:
    done = 0
    try:
        with file.path.open("rb") as handle:
            while piece := handle.read(PIECE_BYTES):
                done += len(piece)
                yield piece
    except OSError as error:  # the file is gone or its disk fails: what was read so far stands
        yield _unreadable(file, error, done)


def _gzip(file: RunFile) -> Iterator[bytes | Lost]:
    """Decode by hand: the library's file object forgets what it had decoded when the stream is torn."""
    done = 0
    decoder = zlib.decompressobj(wbits=31)
    try:
        with file.path.open("rb") as handle:
            while raw := handle.read(PIECE_BYTES):
                while raw:
                    if decoder.eof:
                        if not raw.strip(b"\0"):  # padding behind the last member is allowed
                            break
                        decoder = zlib.decompressobj(wbits=31)
                    if piece := decoder.decompress(raw, PIECE_BYTES):
                        yield piece
                    raw = decoder.unconsumed_tail or decoder.unused_data
                done = handle.tell()
        if rest := decoder.flush():
            yield rest
        if not decoder.eof:
            yield Lost(note=f"{file.rel} ends in the middle of its gzip stream; what could be decoded counts.")
    except zlib.error:  # wrong bits: nothing behind them can be decoded
        yield Lost(
            bytes=max(1, file.size - done),
            note=f"{file.rel} holds damaged gzip data; what follows the damage is lost.",
        )
    except OSError as error:  # as for plain files
        yield _unreadable(file, error, done)


def _zstd(file: RunFile) -> Iterator[bytes | Lost]:
    buffer = bytearray(UNUSED * PIECE_BYTES)
    try:
        handle = file.path.open("rb")
    except OSError as error:
        yield _unreadable(file, error, 0)
        return
    with handle:
        try:
            stream = pa.CompressedInputStream(handle, "zstd")
            while True:
                buffer[:] = UNUSED * PIECE_BYTES
                count = stream.readinto(buffer)
                if not count:
                    return
                yield bytes(buffer[:count])
        except (OSError, pa.ArrowException):  # torn or damaged: keep what reached the buffer before the error
            if part := bytes(buffer).rstrip(UNUSED):
                yield part
            yield Lost(
                bytes=max(0, file.size - handle.tell()),
                note=f"{file.rel} is torn or damaged inside its zstd stream; what could be decoded counts.",
            )


def pieces(file: RunFile) -> Iterator[bytes | Lost]:
    """Yield the text of a file piece by piece, unpacked by its first bytes, not by its name."""
    try:
        head = file.head[:4]
    except OSError as error:
        yield _unreadable(file, error, 0)
        return
    if head.startswith(GZIP_MAGIC):
        source = _gzip(file)
    elif head.startswith(ZSTD_MAGIC):
        source = _zstd(file)
    else:
        source = _plain(file)
    total = 0
    for piece in source:
        if isinstance(piece, bytes):
            piece = piece if total else piece.removeprefix(BOM)
            total += len(piece)
            if total > TOTAL_BYTES:
                yield Lost(note=f"{file.rel} holds more than 64 GB of text; the rest was not read.")
                return
        yield piece
