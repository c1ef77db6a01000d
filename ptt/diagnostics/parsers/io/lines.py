"""Bounded reading of line files, in blocks of complete lines, and the JSON objects on them."""

from __future__ import annotations

import itertools
import json
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final

import msgspec
import pyarrow as pa

from ptt.diagnostics.budget_limits import MB
from ptt.diagnostics.parsers.io.budget import BudgetSpent, to_raise
from ptt.diagnostics.parsers.io.interface import HEAD_BYTES, Lost, RunFile, read_error

PIECE_BYTES = 1 << 18  # what one read asks for
TOTAL_BYTES = 64 << 30  # decompressed; beyond it a small archive is more likely a bomb than a log

GZIP_MAGIC, ZSTD_MAGIC, BOM = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xef\xbb\xbf"
UNUSED = b"\xff"  # never part of UTF-8, so it marks how far a failed read got
DECODER: Final = json.JSONDecoder(strict=False)  # tools print control characters, and writers log these unescaped


def _plain(file: RunFile, *, by_block: bool) -> Iterator[bytes | Lost]:
    begin, stop = file.span or (0, 1 << 63)
    done = begin
    try:
        with file.path.open("rb") as handle:
            handle.seek(done)
            size = PIECE_BYTES
            by_block = by_block and not file.head.startswith(BOM)  # which is no part of the first block
            while True:
                if by_block:
                    size = _block_size(handle, done, stop, origin=begin)
                    by_block = size > PIECE_BYTES
                if not by_block:
                    size = min(PIECE_BYTES - (done - begin) % PIECE_BYTES, stop - done)
                if not (piece := handle.read(size)):
                    break
                done += len(piece)
                file.budget.position = done
                yield piece
                del piece  # so that the next one takes its memory: that of a block is slow to get anew
    except OSError as error:  # the file is gone or its disk fails: keep what was read so far
        yield read_error(file, error, done=done)


def _block_size(handle: BinaryIO, start: int, stop: int, *, origin: int) -> int:
    """Return how many bytes `blocks` would make a block of, in pieces from `origin` on: read as one they need no copy.

    0 where the file ends before, or a line is longer than a piece.
    """
    last = origin + (start + BLOCK_BYTES - 1 - origin) // PIECE_BYTES * PIECE_BYTES
    handle.seek(last)
    size = 0
    for piece in (last, last + PIECE_BYTES):
        if size < BLOCK_BYTES and piece + PIECE_BYTES <= stop:
            cut = handle.read(PIECE_BYTES).rfind(b"\n") + 1
            size = piece + cut - start if cut else 0
    handle.seek(start)
    return size if size >= BLOCK_BYTES else 0


def _gzip(file: RunFile) -> Iterator[bytes | Lost]:
    """Decode by hand: the library's file object forgets what it had decoded when the stream is torn."""
    done = 0
    decoder = zlib.decompressobj(wbits=31)
    try:
        with file.path.open("rb") as handle:
            while raw := handle.read(PIECE_BYTES):
                file.budget.position = handle.tell()
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
            yield Lost(note=f"{file.rel} ends in the middle of its gzip stream; all that could be decoded was read.")
    except zlib.error:  # wrong bits: nothing behind them can be decoded
        yield Lost(
            bytes=max(1, file.size - done),
            note=f"{file.rel} contains damaged gzip data; everything after the damage is lost.",
        )
    except OSError as error:  # as for plain files
        yield read_error(file, error, done=done)


def _zstd(file: RunFile) -> Iterator[bytes | Lost]:
    buffer = bytearray(UNUSED * PIECE_BYTES)
    try:
        handle = file.path.open("rb")
    except OSError as error:
        yield read_error(file, error)
        return
    with handle:
        try:
            stream = pa.CompressedInputStream(handle, "zstd")
            while True:
                buffer[:] = UNUSED * PIECE_BYTES
                count = stream.readinto(buffer)
                if not count:
                    return
                file.budget.position = handle.tell()
                yield bytes(buffer[:count])
        except (OSError, pa.ArrowException):  # torn or damaged: keep what reached the buffer before the error
            if part := bytes(buffer).rstrip(UNUSED):
                yield part
            yield Lost(
                bytes=max(0, file.size - handle.tell()),
                note=f"{file.rel} is torn or damaged inside its zstd stream; all that could be decoded was read.",
            )


def pieces(file: RunFile, *, by_block: bool = False) -> Iterator[bytes | Lost]:
    """Yield the text of a file piece by piece, unpacked by its first bytes, not by its name.

    `by_block`: all of it will be read, so that a piece may be a block.
    """
    try:
        head = file.head[:4]
    except OSError as error:
        yield read_error(file, error)
        return
    if head.startswith(GZIP_MAGIC):
        source = _gzip(file)
    elif head.startswith(ZSTD_MAGIC):
        source = _zstd(file)
    else:
        source = _plain(file, by_block=by_block)
    total = 0
    for piece in source:
        file.budget.tick()
        if isinstance(piece, bytes):
            piece = piece if total else piece.removeprefix(BOM)
            total += len(piece)
            if total > TOTAL_BYTES:
                yield Lost(note=f"{file.rel} contains more than 64 GB of text; the rest was not read.")
                return
        yield piece
        del piece


PACKED = (".gz", ".zst")


def text_head(file: RunFile) -> bytes:
    """Return the first bytes of a text, decompressed if its name says so; empty if there are none."""
    if not file.name.lower().endswith(PACKED):
        return file.readable_head
    if "text head" not in file.looks:
        first = next(pieces(file), b"")
        file.looks["text head"] = first[:HEAD_BYTES] if isinstance(first, bytes) else b""
    head: bytes = file.looks["text head"]
    return head


BLOCK_BYTES = 16 << 20  # large enough that the cost per block vanishes, small enough for any machine
LINE_SHARE = 8  # of the memory allowed: a line is held raw, joined and decoded, besides its parsed form
LONG_BYTES = 1 << 20  # of a line: parsing a shorter one takes negligible memory
VALUE_BYTES, CONTAINER_BYTES, QUOTE_BYTES = 40, 72, 30  # in memory, of each comma, bracket and quote of parsed JSON
FIRST_BYTES = 32 << 20  # how far to look for the first rows; a 128k token sequence takes 8 MB
FIRST_LINES = 20
MIN_FIRST_BYTES = 1 << 20  # rows this large come three at a time, not twenty

SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson")
WHITE = b" \t\r\n"


def blocks(file: RunFile) -> Iterator[bytes | Lost]:
    """Yield blocks of complete lines; only a block that is the torn end of the file lacks its line end."""
    for block in _blocks(file):
        if isinstance(block, Lost):
            yield block
            continue
        position = file.budget.position
        yield from _within_memory(file, block)
        del block  # for the next one: see `_plain`
        file.budget.done = position


def _blocks(file: RunFile) -> Iterator[bytes | Lost]:
    max_line = file.budget.limits.memory_mb * MB // LINE_SHARE
    parts: list[bytes] = []  # joined once: growing one buffer would copy each byte three times
    size = 0
    skipped = 0  # bytes already dropped of a line that is too long to hold
    for piece in pieces(file, by_block=True):
        if isinstance(piece, Lost):
            yield piece
            continue
        if skipped:
            cut = piece.find(b"\n") + 1
            skipped += cut or len(piece)
            if not cut:
                continue
            yield _too_long(file, skipped)
            skipped, piece = 0, piece[cut:]
        last = piece.rfind(b"\n") + 1
        if last and size + last >= BLOCK_BYTES:
            whole = b"".join((*parts, piece[:last]))
            parts, size = [piece[last:]] if last < len(piece) else [], len(piece) - last
            del piece
            yield whole
            del whole
            continue
        parts.append(piece)
        size += len(piece)
        if size > max_line:
            whole = b"".join(parts)
            last = whole.rfind(b"\n") + 1
            if last:
                yield whole[:last]
            parts, size = [whole[last:]], len(whole) - last
            if size > max_line:
                skipped, parts, size = size, [], 0
    if skipped:
        yield _too_long(file, skipped)
    rest = b"".join(parts)
    last = rest.rfind(b"\n") + 1
    if last:
        yield rest[:last]
    if len(rest) > last:
        yield rest[last:]


def _too_long(file: RunFile, size: int) -> Lost:
    how = f"; {to_raise('memory_mb')}"
    return Lost(rows=1, bytes=size, note=f"{file.rel} contains a line of {size >> 20} MB, which was skipped{how}.")


def _within_memory(file: RunFile, block: bytes) -> Iterator[bytes | Lost]:
    """Yield a block without the lines that would fill the memory when they are parsed."""
    start = at = 0  # start of what is still to be yielded, and of what is still to be checked
    while len(block) - at > LONG_BYTES:
        if cut := block.rfind(b"\n", at, at + LONG_BYTES) + 1:
            at = cut
            continue
        end = block.find(b"\n", at) + 1 or len(block)
        if why := too_large_to_parse(file, block[at:end], "a line"):
            if at > start:
                yield block[start:at]
            yield Lost(rows=1, bytes=end - at, note=f"{file.rel}: {why}; that line is lost.")
            start = end
        at = end
    if start < len(block):
        yield block[start:] if start else block


def too_large_to_parse(file: RunFile, text: bytes | bytearray, what: str, *, row_bytes: int = 0) -> str:
    """Return why JSON may not be parsed, or "" if it may: it takes its text twice, and an object a value, list and key.

    `row_bytes`: memory for what is made from each value without a key, such as a row.
    """
    values, quotes, containers = text.count(b","), text.count(b'"'), text.count(b"[") + text.count(b"{")
    parsed = VALUE_BYTES * values + QUOTE_BYTES * quotes + CONTAINER_BYTES * containers
    keyless = max(0, values - quotes // 2 - containers)
    try:
        file.budget.take(nbytes=2 * len(text) + parsed + row_bytes * keyless, what=what)
    except BudgetSpent as spent:
        if spent.of_time:
            raise
        return str(spent)
    return ""


def torn_line(file: RunFile, line: bytes) -> Lost:
    """Report a last line that is cut."""
    return Lost(rows=1, bytes=len(line), note=f"{file.rel} ends inside a line: that line is lost.")


def is_torn(block: bytes) -> bool:
    """Return whether a block is the end of a file that was cut inside a line, or just lacks its last line end."""
    return not block.endswith(b"\n")


def line_objects(file: RunFile) -> Iterator[dict[str, Any] | Lost | None]:
    """Yield the JSON object on each line, None for a line without one, and what part of the file is lost."""
    return itertools.chain.from_iterable(object_blocks(file))


def object_blocks(file: RunFile) -> Iterator[Iterator[dict[str, Any] | Lost | None]]:
    """Yield what `line_objects` does, block by block."""
    for block in blocks(file):
        yield iter((block,)) if isinstance(block, Lost) else block_objects(file, block)


def block_objects(file: RunFile, block: bytes) -> Iterator[dict[str, Any] | Lost | None]:
    """Yield the JSON object on each line that is not blank, None if it has none; a torn last line is `Lost`."""
    count_halves(file, block)
    for line in filter(bytes.strip, block.split(b"\n")):
        row = json_object(line)
        if row is None or not is_too_deep(file, line, row):
            yield torn_line(file, line) if row is None and is_torn(block) else row


def is_too_deep(file: RunFile, line: bytes, row: Any) -> bool:
    """Return whether a row nests deeper than allowed, and count it as lost."""
    limit = file.budget.limits.depth
    if len(line) <= limit:
        return False
    if line.count(b"{") + line.count(b"[") <= limit:
        return False
    level, depth = [row], 0
    while level and depth <= limit:
        inside = (value for found in level for value in (found.values() if isinstance(found, dict) else found))
        level, depth = [value for value in inside if isinstance(value, dict | list)], depth + 1
    file.budget.deep_rows += depth > limit
    return depth > limit


BACKSLASH: Final = re.compile(rb'\\(["\\/bfnrt]|u[\da-fA-F]{4})|\\')


def json_object(line: bytes) -> dict[str, Any] | None:
    """Read one line as a JSON object, bare NaN, Infinity and lone backslashes included; None for anything else."""
    row = parse_json(line)
    if row is None and b"\\" in line and line.rstrip().endswith(b"}"):  # a path or a pattern that was not escaped
        row = parse_json(BACKSLASH.sub(lambda found: found[0] if found[1] else b"\\\\", line))
    return row if isinstance(row, dict) else None


def parse_json(text: Any) -> Any:
    """Parse JSON from text or bytes, bare NaN and Infinity included; None if invalid or nested too deeply."""
    if not isinstance(text, str | bytes):
        return None
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):  # it is stricter: no bare NaN, no lone surrogate, no number beyond a double
        pass
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    try:
        return well_formed(DECODER.decode(text), text)
    except (ValueError, RecursionError):  # no JSON, or nested deeper than any row
        return None


def well_formed(found: Any, text: str) -> Any:
    """Replace lone surrogates, which JSON can spell but no table can hold."""
    if "\\ud" not in text and "\\uD" not in text:
        return found
    return json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))


ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|(u[dD][89a-fA-F][\da-fA-F]{2})|.)", re.DOTALL
)
"""A pair of surrogates, a lone one (in the group), or any other escape, whose backslash begins no other one."""


def count_halves(file: RunFile, text: bytes | bytearray) -> None:
    """Count the lone surrogates of a JSON text, which `well_formed` replaces."""
    if b"\\ud" in text or b"\\uD" in text:
        file.budget.lone_surrogates += sum(match[1] is not None for match in ESCAPE.finditer(text))


def begins_with(file: RunFile, test: Callable[[dict[str, Any]], bool]) -> bool:
    """Return whether a line file begins with JSON objects that all pass a test."""
    rows = first_objects(file)
    return bool(rows) and all(map(test, rows))


def first_objects(file: RunFile, count: int = 3) -> list[dict[str, Any]]:
    """Return the first JSON objects of a line file, to recognise its format; empty if there are none."""
    return file.look(f"first {count} objects", lambda: _first_objects(file, count))


def _first_objects(file: RunFile, count: int) -> list[dict[str, Any]]:
    if not file.name.lower().endswith(SUFFIXES):
        return []
    first = _first_lines(file, count)
    first = [line for line in first if len(line) <= LONG_BYTES or not too_large_to_parse(file, line, "a line")]
    rows = (row for line in first if (row := json_object(line)) is not None)
    return list(itertools.islice(rows, count))


def _first_lines(file: RunFile, count: int) -> list[bytes]:
    """Return the first lines of a file that begins with an object; one of more than FIRST_BYTES is passed over."""
    text = bytearray()
    lines = 0
    passing = False  # over a line that is too long to look at
    for piece in pieces(file):
        if isinstance(piece, Lost):
            break
        if passing:
            cut = piece.find(b"\n") + 1
            passing, piece = not cut, piece[cut:] if cut else b""
        text += piece
        lines += piece.count(b"\n")
        if text and not text[:HEAD_BYTES].lstrip(WHITE).startswith(b"{"):
            break
        if lines >= FIRST_LINES or (lines >= count and len(text) >= MIN_FIRST_BYTES):
            break
        if len(text) > FIRST_BYTES:
            if lines:
                break
            passing = True
            text.clear()
    return bytes(text).split(b"\n", FIRST_LINES)[:FIRST_LINES]
