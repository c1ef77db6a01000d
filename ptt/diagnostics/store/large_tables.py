"""Tables by name; the largest are built on first access, in parts, because most runs never need them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

Parts = Callable[[], Iterable[pl.DataFrame]]


@dataclass(frozen=True)
class Tables(Mapping[str, pl.DataFrame]):
    """Tables of a diagnosis; those of `parts` are made anew each time, in frames of the same columns."""

    made: Mapping[str, pl.DataFrame]
    parts: Mapping[str, Parts]

    def __getitem__(self, name: str) -> pl.DataFrame:
        """Return a table whole."""
        return pl.concat(self.parts[name]()) if name in self.parts else self.made[name]

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        yield from self.made
        yield from self.parts

    def __len__(self) -> int:
        """Return how many tables there are."""
        return len(self.made) + len(self.parts)


def with_tables(tables: Mapping[str, pl.DataFrame], more: Mapping[str, pl.DataFrame]) -> Mapping[str, pl.DataFrame]:
    """Return tables with others beside them, which take the place of those of their names."""
    if not isinstance(tables, Tables):
        return {**tables, **more}
    return Tables({**tables.made, **more}, {name: part for name, part in tables.parts.items() if name not in more})


def write_table(tables: Mapping[str, pl.DataFrame], name: str, file: Path) -> None:
    """Write one table as Parquet, part by part where it is made in parts."""
    if not isinstance(tables, Tables) or name not in tables.parts:
        tables[name].write_parquet(file, compression="lz4", statistics=False)
        return
    writer: pq.ParquetWriter | None = None
    for part in tables.parts[name]():
        rows = part.to_arrow(compat_level=pl.CompatLevel.oldest())
        writer = writer or pq.ParquetWriter(file, rows.schema, compression="lz4", write_statistics=False)
        writer.write_table(rows)
    if writer is not None:
        writer.close()
