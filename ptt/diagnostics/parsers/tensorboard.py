"""Scalars of TensorBoard event files, read without TensorBoard: the TFRecord framing and its checksums."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from ptt.diagnostics.parsers.aliases import framework_of
from ptt.diagnostics.parsers.crc32c import masked_crcs
from ptt.diagnostics.parsers.event_message import scalars
from ptt.diagnostics.parsers.interface import Context, Lost, Parser, Piece, Rows, RunFile
from ptt.diagnostics.parsers.metric_rows import MetricColumns
from ptt.diagnostics.parsers.side_rows import MachineLog, is_machine
from ptt.diagnostics.parsers.wire import DamagedMessageError

BATCH_BYTES = 16 << 20
RECORD_BYTES = 256 << 20  # images and embeddings stay below; a larger length is a damaged one
HEADER, FOOTER = 12, 4
LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class _Batch:
    """Whole records of one piece of the file, and how far they reach."""

    data: bytes
    starts: list[int]  # of each record's payload
    sizes: list[int]
    bad_length: bool  # the framing ends here, since a length is damaged


def recognises(file: RunFile) -> bool:
    """Say yes to the file name with a record that says it is an event file, or at least is a record."""
    if "tfevents" not in file.name:
        return False
    try:
        head = file.head
    except OSError:  # unreadable: nobody's
        return False
    starts_right = len(head) >= HEADER and not _frames(head[:HEADER]).bad_length
    return starts_right or b"brain.Event:" in head[:64]


def read(file: RunFile) -> Iterator[Piece]:
    """Yield scalars batch by batch up to the tear or the first record whose length is damaged."""
    columns, machine = MetricColumns(), MachineLog(file)
    known: dict[bytes, str] = {}
    seq = 0
    try:
        with file.path.open("rb") as handle:
            for batch in _batches(handle, file):
                if isinstance(batch, Lost):
                    yield batch
                    continue
                for event in batch:
                    try:
                        found = list(scalars(event, known))
                    except (DamagedMessageError, struct.error, IndexError):  # right checksum, wrong content
                        yield Lost(rows=1, bytes=len(event), note=f"{file.rel} holds a record that is no event.")
                        continue
                    for step, name, value, wall_time in found:
                        columns.add(step, name, value, wall_time, seq)
                        if name.startswith("ray/") and is_machine(name):
                            machine.add(step, wall_time, name, value)
                    seq += 1
                    if columns.full:
                        yield Rows(table="metrics", frame=columns.take(file.rel))
                        yield from machine.pieces()
    except OSError as error:  # gone, or its disk fails
        yield Lost(bytes=file.size, note=f"{file.rel} could not be read to its end: {error.strerror}.")
    if columns.steps:
        yield Rows(table="metrics", frame=columns.take(file.rel))
    yield from machine.pieces()
    if framework := framework_of(known.values()):
        yield Context(facts={"framework": framework})


def _batches(handle: BinaryIO, file: RunFile) -> Iterator[list[bytes] | Lost]:
    pending, want, done = b"", BATCH_BYTES, 0
    while True:
        piece = handle.read(max(want - len(pending), 1))
        pending += piece
        batch = _frames(pending)
        intact = _intact(batch)
        if damaged := len(intact) - sum(intact):
            note = f"{file.rel}: {damaged} record(s) fail their checksum and were passed over."
            size = sum(size for size, good in zip(batch.sizes, intact, strict=True) if not good)
            yield Lost(rows=damaged, bytes=size, note=note)
        pairs = zip(batch.starts, batch.sizes, intact, strict=True)
        yield [batch.data[start : start + size] for start, size, good in pairs if good]
        used = batch.starts[-1] + batch.sizes[-1] + FOOTER if batch.starts else 0
        done += used
        pending = pending[used:]
        if batch.bad_length:
            note = f"{file.rel} is damaged at byte {done}: no later record can be found, so the rest is lost."
            yield Lost(rows=1, bytes=max(file.size - done, len(pending)), note=note)
            return
        if not piece:
            break
        want = BATCH_BYTES
        if len(pending) >= HEADER:  # a record larger than the batch
            want = max(want, HEADER + LENGTH.unpack_from(pending)[0] + FOOTER)
    if pending:
        yield Lost(rows=1, bytes=len(pending), note=f"{file.rel} ends inside a record: that record is lost.")


def _frames(data: bytes) -> _Batch:
    """Walk the records by their lengths, then check all length checksums at once."""
    headers: list[int] = []
    sizes: list[int] = []
    at, too_large = 0, False
    while at + HEADER <= len(data) and not too_large:
        size = LENGTH.unpack_from(data, at)[0]
        headers.append(at)
        too_large = size > RECORD_BYTES
        if too_large or at + HEADER + size + FOOTER > len(data):
            break
        sizes.append(size)
        at += HEADER + size + FOOTER
    array = np.frombuffer(data, dtype=np.uint8)
    places = np.array(headers, dtype=np.int64)
    good = masked_crcs(array, places, np.full(len(places), LENGTH.size)) == _stored(data, places + LENGTH.size)
    right = len(headers) if good.all() else int(np.argmin(good))
    starts = [header + HEADER for header in headers[: min(right, len(sizes))]]
    return _Batch(
        data=data,
        starts=starts,
        sizes=sizes[: len(starts)],
        bad_length=too_large or right < len(headers),
    )


def _intact(batch: _Batch) -> list[bool]:
    """Tell for each record whether its payload is what the writer wrote."""
    array = np.frombuffer(batch.data, dtype=np.uint8)
    starts, sizes = np.array(batch.starts, dtype=np.int64), np.array(batch.sizes, dtype=np.int64)
    intact: list[bool] = (masked_crcs(array, starts, sizes) == _stored(batch.data, starts + sizes)).tolist()
    return intact


def _stored(data: bytes, places: NDArray[np.int64]) -> NDArray[np.uint32]:
    array = np.frombuffer(data, dtype=np.uint8)
    columns = array[places[:, None] + np.arange(4)]
    return np.ascontiguousarray(columns).view("<u4").ravel()


PARSER = Parser(
    name="tensorboard",
    describes="TensorBoard event files of any framework: scalars as metrics; the rest is ignored.",
    priority=40,
    recognises=recognises,
    read=read,
)
