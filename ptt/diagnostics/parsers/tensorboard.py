"""Scalars of TensorBoard event files, read without TensorBoard: the TFRecord framing and its checksums."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile, read_error
from ptt.diagnostics.parsers.io.metric_rows import MetricColumns
from ptt.diagnostics.parsers.io.protobuf import DamagedMessageError, field_key, fields, signed, varint
from ptt.diagnostics.parsers.io.telemetry import MachineLog, is_device_sample
from ptt.diagnostics.wording import counted

POLYNOMIAL = 0x82F63B78  # Castagnoli, bits reversed
MASK_DELTA = 0xA282EAD8  # TFRecord stores the checksum rotated and shifted by this
LONG = 4096  # records above this are cut into rows that advance together
ONES = 0xFFFFFFFF

Sums = NDArray[np.uint32]
Places = NDArray[np.int64]


def _byte_table() -> Sums:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(POLYNOMIAL), table >> 1).astype(np.uint32)
    return table


TABLE = _byte_table()


def _step(sums: Sums, data: NDArray[np.uint8]) -> Sums:
    result: Sums = TABLE[(sums ^ data) & 0xFF] ^ (sums >> np.uint32(8))
    return result


def masked_crcs(data: NDArray[np.uint8], starts: Places, lengths: Places) -> Sums:
    """Return the masked checksum of each record `data[start : start + length]`."""
    order = np.argsort(-lengths, kind="stable")
    long = int(np.searchsorted(-lengths[order], -LONG, side="left"))
    sums = np.full(len(starts), ONES, dtype=np.uint32)
    for index in order[:long]:
        sums[index] = _long(data[starts[index] : starts[index] + lengths[index]])
    short = order[long:]
    ends, sizes = (starts + lengths)[short], lengths[short]
    running = np.full(len(short), ONES, dtype=np.uint32)
    # All records end together and the longest comes first, so those under way are always a prefix.
    for left in range(int(sizes[0]) if len(sizes) else 0, 0, -1):
        active = int(np.searchsorted(-sizes, -left, side="right"))
        running[:active] = _step(running[:active], data[ends[:active] - left])
    sums[short] = running
    sums ^= np.uint32(ONES)
    return ((sums >> np.uint32(15)) | (sums << np.uint32(17))) + np.uint32(MASK_DELTA)


def _long(data: NDArray[np.uint8]) -> int:
    """Run one long record as many rows side by side, then chain the rows."""
    padded = np.zeros(-(-len(data) // LONG) * LONG, dtype=np.uint8)  # zeros in front leave a zero state alone
    padded[len(padded) - len(data) :] = data
    padded[len(padded) - len(data) :][:4] ^= 0xFF  # the same as starting from all ones
    rows = padded.reshape(-1, LONG)
    sums = np.zeros(len(rows), dtype=np.uint32)
    for column in range(LONG):
        sums = _step(sums, rows[:, column])
    shift = _zeros_tables()
    total = 0
    for row in sums.tolist():
        total = shift[0][total & 255] ^ shift[1][total >> 8 & 255] ^ shift[2][total >> 16 & 255] ^ shift[3][total >> 24]
        total ^= row
    return total


def _zeros_tables() -> list[list[int]]:
    """Return what LONG zero bytes do to each byte of a state; being linear, the parts add up by xor."""
    states = np.arange(256, dtype=np.uint32)[None, :] << (8 * np.arange(4, dtype=np.uint32))[:, None]
    sums = states.astype(np.uint32).ravel()
    nothing = np.zeros(len(sums), dtype=np.uint8)
    for _ in range(LONG):
        sums = _step(sums, nothing)
    tables: list[list[int]] = sums.reshape(4, 256).tolist()
    return tables


FLOAT, DOUBLE = struct.Struct("<f"), struct.Struct("<d")
DT_FLOAT, DT_DOUBLE = 1, 2
WALL_TIME, STEP, SUMMARY = field_key(1, 1), field_key(2, 0), field_key(5, 2)
VALUE, TAG, SIMPLE, TENSOR = field_key(1, 2), field_key(1, 2), field_key(2, 5), field_key(8, 2)
DTYPE, SHAPE, CONTENT = field_key(1, 0), field_key(2, 2), field_key(4, 2)
FLOATS, ONE_FLOAT, DOUBLES, ONE_DOUBLE = field_key(5, 2), field_key(5, 5), field_key(6, 2), field_key(6, 1)
DIM, DIM_SIZE = field_key(2, 2), field_key(1, 0)
TICK_FIELDS = 4096  # between two looks at the clock: an event may hold every scalar of its file


def scalars(file: RunFile, event: bytes, known: dict[bytes, str]) -> Iterator[tuple[int, str, float, float]]:
    """Yield step, tag, value and wall time of each scalar in one Event message, as long as there is time."""
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
        for count, (key, start, stop) in enumerate(fields(event, begin, end)):
            if not count % TICK_FIELDS:
                file.budget.tick()
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
    """Read a tensor of one float or double; None for histograms, texts and everything else."""
    dtype, content = 0, b""
    for key, start, stop in fields(event, begin, end):
        if key == DTYPE:
            dtype = varint(event, start)[0]
        elif key in (CONTENT, FLOATS, ONE_FLOAT, DOUBLES, ONE_DOUBLE):
            content += event[start:stop]
        elif key == SHAPE:
            for dim, at, until in fields(event, start, stop):
                sizes = [varint(event, position)[0] for k, position, _ in fields(event, at, until) if k == DIM_SIZE]
                if dim == DIM and sizes != [1]:
                    return None
    form = {DT_FLOAT: FLOAT, DT_DOUBLE: DOUBLE}.get(dtype)
    if form is None or len(content) != form.size:
        return None
    value: float = form.unpack(content)[0]
    return value


BATCH_BYTES = 16 << 20
RECORD_BYTES = 256 << 20  # images and embeddings stay below; a larger length is a damaged one
HEADER, FOOTER = 12, 4
LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class _Batch:
    """Whole records of one piece of the file, and how far they reach."""

    data: bytes
    starts: list[int]  # start of each record's payload
    sizes: list[int]
    bad_length: bool  # the framing ends here because a length is damaged


def recognises(file: RunFile) -> bool:
    """Recognise the file name with a record that says it is an event file, or at least is a record."""
    if "tfevents" not in file.name:
        return False
    head = file.readable_head
    starts_right = len(head) >= HEADER and not _frames(head[:HEADER]).bad_length
    return starts_right or b"brain.Event:" in head[:64]


def read(file: RunFile) -> Iterator[Piece]:
    """Yield scalars batch by batch up to the tear or the first record whose length is damaged."""
    columns, machine = MetricColumns(file), MachineLog(file)
    known: dict[bytes, str] = {}
    seq = 0
    try:
        with file.path.open("rb") as handle:
            for batch in _batches(handle, file):
                if isinstance(batch, Lost):
                    yield batch
                    continue
                for event in batch:
                    file.budget.tick()
                    try:
                        entries = list(scalars(file, event, known))
                    except (DamagedMessageError, struct.error, IndexError):  # right checksum, wrong content
                        yield Lost(rows=1, bytes=len(event), note=f"{file.rel} contains a record that is not an event.")
                        continue
                    for step, name, value, wall_time in entries:
                        columns.add(step, name, value, wall_time, seq)
                        if name.startswith("ray/") and is_device_sample(name):
                            machine.add(step, wall_time, name, value)
                    seq += 1
                    yield from columns.flush()
                    yield from machine.flush()
    except OSError as error:  # gone, or its disk fails
        yield read_error(file, error, end=" to its end")
    yield from columns.pieces()
    yield from machine.pieces()
    yield from columns.framework()


def _batches(handle: BinaryIO, file: RunFile) -> Iterator[list[bytes] | Lost]:
    pending, want, done = b"", BATCH_BYTES, 0
    while True:
        piece = handle.read(max(want - len(pending), 1))
        pending += piece
        batch = _frames(pending)
        intact = _intact(batch)
        if damaged := len(intact) - sum(intact):
            note = f"{file.rel}: {counted(damaged, 'record(s)')} skipped: wrong checksum."
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
    return _Batch(data=data, starts=starts, sizes=sizes[: len(starts)], bad_length=too_large or right < len(headers))


def _intact(batch: _Batch) -> list[bool]:
    """Return for each record whether its payload is what the writer wrote."""
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
    held_against="real: tensorboard's own writer, in every test run",
    priority=40,
    recognises=recognises,
    read=read,
)
