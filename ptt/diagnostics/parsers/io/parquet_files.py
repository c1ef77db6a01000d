"""What the Parquet parsers share: a schema without its data, and a sentence on what a cut file means."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from ptt.diagnostics.parsers.io.interface import Lost, RunFile, read_error

MAGIC = b"PAR1"
# ValueError covers names that are no UTF-8; the others are what Arrow raises for a damaged or vanished file.
DAMAGE = (OSError, ValueError, pa.ArrowException)


def schema_of(file: RunFile) -> tuple[pa.Schema, int] | None:
    """Return schema and row count from the footer; None if the file is no readable Parquet."""
    try:
        if not file.head.startswith(MAGIC):
            return None
        with pq.ParquetFile(file.path) as parquet:
            meta = parquet.metadata
            rows = sum(meta.row_group(index).num_rows for index in range(meta.num_row_groups))
            return (parquet.schema_arrow, rows) if rows == meta.num_rows >= 0 else None
    except DAMAGE:  # cut, damaged, or not Parquet at all
        return None


def is_cut(file: RunFile) -> bool:
    """Return whether the file begins as Parquet, for judging by its path when the footer is unreadable."""
    return file.readable_head.startswith(MAGIC)


def cut_note(file: RunFile) -> Lost:
    """Report what an unreadable footer means."""
    try:
        with file.path.open("rb") as handle:
            handle.seek(max(0, file.size - len(MAGIC)))
            ends_right = handle.read() == MAGIC
    except OSError as error:  # gone, or its disk fails
        return read_error(file, error)
    if ends_right and file.size > 2 * len(MAGIC):
        note = f"{file.rel}: its footer is damaged, so its rows are lost."
    else:
        note = f"{file.rel}: footer missing: the file was cut while being written, so its rows are lost."
    return Lost(bytes=file.size, note=note)
