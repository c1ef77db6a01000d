"""What readers of token lists in JSON lines share: blocks as frames of a given shape, cut to each row's response."""

from __future__ import annotations

import io
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import blake2b
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ptt.diagnostics.flat_lists import flatten
from ptt.diagnostics.parsers.io.interface import Lost, RunFile
from ptt.diagnostics.parsers.io.lines import blocks, is_torn, json_object, torn_line
from ptt.diagnostics.wording import counted

Shape = dict[str, pl.DataType]
IntArray = npt.NDArray[np.int64]

THREADS: Final = 2  # blocks in work at once: more would not be faster than what is written behind them


def frames(file: RunFile, shape: Shape) -> Iterator[pl.DataFrame | Lost]:
    """Yield the lines of a file block by block, as columns of `shape`; other fields of a line are ignored.

    A value of another type becomes null. A line that is not a JSON object is counted. Blocks are read one ahead, on a
    separate thread, and yielded in order.
    """
    bad = 0
    unfit: Counter[str] = Counter()
    with ThreadPoolExecutor(THREADS) as threads:
        waiting: deque[Future[_Block] | Lost] = deque()
        torn: list[bytes] = []

        def take() -> Iterator[pl.DataFrame | Lost]:
            nonlocal bad
            done = waiting.popleft()
            if isinstance(done, Lost):
                yield done
                return
            frame, wrong, foreign = done.result()
            unfit.update(foreign)
            if wrong and torn and not waiting:
                yield torn_line(file, torn[0])
            else:
                bad += wrong
            if frame.height:
                yield frame

        for block in blocks(file):
            if isinstance(block, Lost):
                waiting.append(block)
            else:
                torn = [block] if is_torn(block) else []
                waiting.append(threads.submit(_read, block, shape))
            if len(waiting) > THREADS:
                yield from take()
        while waiting:
            yield from take()
    if bad:
        yield Lost(rows=bad, note=f"{file.rel}: {counted(bad, 'line(s)')} skipped: not a JSON object.")
    for name, count in sorted(unfit.items()):
        yield Lost(note=f"{file.rel}: {name} lost in {counted(count, 'row(s)')}: not the type its writer gives.")


_Block: TypeAlias = tuple[pl.DataFrame, int, Counter[str]]
"""Rows, the number of lines without one, and by name the number of rows with a value of another type."""


def _read(block: bytes, shape: Shape) -> _Block:
    try:
        return pl.read_ndjson(io.BytesIO(block), schema=shape), 0, Counter()
    except (pl.exceptions.PolarsError, OSError):  # bare NaN, another type or damage: some line needs a closer look
        return _by_line(block, shape)


def _by_line(block: bytes, shape: Shape) -> _Block:
    """Read line by line, each value for itself."""
    kinds = pl.DataFrame(schema=shape).to_arrow().schema
    columns: dict[str, list[pa.Array]] = {name: [] for name in shape}
    bad, unfit = 0, Counter[str]()
    for line in block.split(b"\n"):
        if not line.strip():
            continue
        record = json_object(line)
        if record is None:
            bad += 1
            continue
        for name in shape:
            value = record.get(name)
            columns[name].append(_value(value, kinds.field(name).type))
            unfit[name] += value is not None and columns[name][-1].null_count > 0
    whole = {name: pa.chunked_array(parts, kinds.field(name).type) for name, parts in columns.items()}
    frame = pl.DataFrame(pl.from_arrow(pa.table(whole)))
    return frame.select(pl.col(name).cast(kind) for name, kind in shape.items()), bad, +unfit


def _value(value: Any, kind: pa.DataType) -> pa.Array:
    try:
        return pa.array([value], kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):  # of another type: counts as missing
        return pa.nulls(1, kind)


def responses(
    frame: pl.DataFrame, *, mask: str, lists: Sequence[str], end: str | None = None
) -> tuple[pl.DataFrame, int, int]:
    """Cut each row's lists to its response: from its first model token to `end`, or to the end of the lists.

    `mask`: the column of 0 and 1 (or booleans) that marks model tokens; it becomes boolean. `lists`: the columns to
    cut with it; one that is null as a whole stays null. Returns the rows that can be used, with `start`, the place of
    the response in the whole sequence; how many rows have lists that do not fit together; how many no model token.
    """
    length = pl.col(mask).list.len()
    fits = pl.all_horizontal(
        length > 0, *(pl.col(name).is_null() | (pl.col(name).list.len() == length) for name in lists)
    )
    stop = length if end is None else pl.min_horizontal(length, pl.col(end).fill_null(0))
    sized = frame.with_columns(fits.fill_null(value=False).alias("_fits"), stop.cast(pl.Int64).alias("_stop"))
    fitting = _where(sized, "_fits")
    if not fitting.height:
        return fitting.clear(), frame.height, 0
    offsets, values = flatten(fitting[mask])
    if values.dtype == np.object_:  # a null among them: of a mask it says nothing
        values = np.array([bool(value) for value in values.tolist()])
    marked = np.flatnonzero(values)
    first = np.append(marked, len(values))[np.searchsorted(marked, offsets[:-1])]
    within = pl.col("start") < pl.col("_stop")
    cut = _where(
        fitting.with_columns(start=pl.Series(first - offsets[:-1], dtype=pl.Int64)).with_columns(_within=within),
        "_within",
    )
    span = (pl.col("start"), pl.col("_stop") - pl.col("start"))
    chosen = cut.with_columns(
        pl.col(mask).cast(pl.List(pl.Boolean)).list.slice(*span), *(pl.col(name).list.slice(*span) for name in lists)
    )
    return chosen.drop("_fits", "_stop", "_within"), frame.height - fitting.height, fitting.height - cut.height


def _where(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    """Filter, without the copy that a filter makes of every list where it leaves nothing out."""
    return frame if frame[name].all() else frame.filter(name)


def lost_rows(file: RunFile, wrong: int, empty: int) -> Iterator[Lost]:
    """Report which rows do not count, and why."""
    if wrong:
        skipped = counted(wrong, "row(s) skipped: a list is missing, or their lengths differ.")
        yield Lost(rows=wrong, note=f"{file.rel}: {skipped}")
    if empty:
        skipped = counted(empty, "row(s) skipped: no token sampled by the model.")
        yield Lost(rows=empty, note=f"{file.rel}: {skipped}")


def token_hash(token_ids: npt.NDArray[Any]) -> int:
    """Hash all token ids of a sample: BLAKE2b of 8 bytes, read as big-endian, over the ids as little-endian int32."""
    data = np.ascontiguousarray(token_ids, dtype="<i4").tobytes()
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


def token_hashes(column: pl.Series) -> pl.Series:
    """Hash the token ids of each row; null if it has none."""
    filled = column.fill_null([])
    offsets, values = flatten(filled)
    values = np.ascontiguousarray(values, dtype="<i4")
    present = column.is_not_null().to_list()
    pairs = zip(offsets[:-1].tolist(), offsets[1:].tolist(), present, strict=True)
    hashes = [token_hash(values[start:stop]) if there else None for start, stop, there in pairs]
    return pl.Series("token_hash", hashes, dtype=pl.UInt64)
