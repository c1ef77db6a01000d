"""CRC-32C over many records at once; byte by byte in Python it would outlast all other parsing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
