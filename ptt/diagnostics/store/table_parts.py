"""Tables of rows while a store is made: what grows is scrubbed and written out part by part."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import polars as pl

from ptt.diagnostics.schema import FIGURE, TABLES
from ptt.diagnostics.scrub.scrub import Scrubber
from ptt.diagnostics.store.metric_names import Renames, names_in
from ptt.diagnostics.store.scrub_pieces import scrub_frame
from ptt.diagnostics.store.value_range import bounded_values

FLUSH_ROWS: Final = 200_000
FLUSH_BYTES: Final = 12_000_000  # of conversations: a row of them has no bound


class TableParts:
    """Rows by table: some wait to be written, the others lie in the store's folder."""

    def __init__(self, folder: Path, scrubber: Scrubber) -> None:
        """`folder`: of the store that is made."""
        self._folder, self._scrubber = folder, scrubber
        self._waiting: dict[str, list[pl.DataFrame]] = {}
        self._waiting_rows: dict[str, int] = {}
        self._written: dict[str, int] = {}  # parts
        self._names: list[pl.DataFrame] = []  # of metrics that were written out

    def add(self, table: str, frame: pl.DataFrame, *, source: str, priority: int) -> int:
        """Add rows of a file to a table; return how many of their values are too large to calculate with."""
        schema = TABLES[table]
        if "source" in schema and "source" not in frame.columns:
            frame = frame.with_columns(source=pl.lit(source))
        if table == "metrics":
            frame = frame.with_columns(priority=pl.lit(priority, pl.Int32))
            schema = {**schema, "priority": pl.Int32()}
        frame, beyond = bounded_values(_matched(frame, schema))
        self._wait(table, frame)
        if self._waiting_rows[table] > FLUSH_ROWS or (table == "conversations" and self._is_large(table)):
            self._flush(table)
        return beyond

    def add_sequences(self, frame: pl.DataFrame) -> tuple[Path, tuple[str, ...], int]:
        """Write sequences as a part of their own; return it, its columns, and how many values are too large."""
        schema = TABLES["sequences"] | {name: pl.Float64() for name in frame.columns if name.startswith(FIGURE)}
        names = [name for name in schema if name in frame.columns]
        names = [name for name in names if frame[name].null_count() < frame.height]  # nulls alone: nothing recorded
        frame = _matched(
            pl.DataFrame([frame.get_column(name) for name in names]), {name: schema[name] for name in names}
        )
        frame, beyond = bounded_values(frame)
        self._wait("sequences", frame)
        return self._flush("sequences"), tuple(frame.columns), beyond

    def next_part(self, table: str) -> Path:
        """Return where the next part of a table goes."""
        number = self._written.get(table, 0)
        self._written[table] = number + 1
        target = self._folder / table / _part_name(number)
        target.parent.mkdir(exist_ok=True)
        return target

    def metric_names(self) -> list[pl.DataFrame]:
        """Write out the metrics that wait, and return the names in each part (metric_names.LOGGED)."""
        if "metrics" in self._waiting:
            self._flush("metrics")
        return self._names

    def rename_metrics(self, renames: Renames) -> None:
        """Rename metrics in the parts that are already on disk."""
        for number in range(self._written.get("metrics", 0)):
            path = self._folder / "metrics" / _part_name(number)
            renames.rows(pl.read_parquet(path, glob=False)).write_parquet(path, compression_level=1)

    def add_renamed(self, metrics: pl.DataFrame) -> None:
        """Add metrics that have their names and their priority already."""
        self._wait("metrics", metrics)

    def close(self) -> None:
        """Write what is still waiting."""
        for table in list(self._waiting):
            self._flush(table)

    def _wait(self, table: str, frame: pl.DataFrame) -> None:
        self._waiting.setdefault(table, []).append(frame)
        self._waiting_rows[table] = self._waiting_rows.get(table, 0) + frame.height

    def _is_large(self, table: str) -> bool:
        return sum(frame.estimated_size() for frame in self._waiting[table]) > FLUSH_BYTES

    def _flush(self, table: str) -> Path:
        target = self.next_part(table)
        self._waiting_rows[table] = 0
        frame = scrub_frame(table, pl.concat(self._waiting.pop(table)), self._scrubber)
        if table == "metrics":
            self._names.append(names_in(frame))
        frame.write_parquet(target, compression_level=1)  # as small as by default, in half the time
        return target


def _matched(frame: pl.DataFrame, schema: dict[str, pl.DataType]) -> pl.DataFrame:
    return frame.match_to_schema(
        pl.Schema(schema), missing_columns="insert", extra_columns="raise", integer_cast="upcast"
    )


def _part_name(number: int) -> str:
    """Return what a part of a table is called in the store."""
    return f"part-{number:05d}.parquet"
