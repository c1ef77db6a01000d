"""Dense metrics of training as columns: how a log of a million rows is kept, and one metric of it read at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.parsers.interface import Parser, Wide
from ptt.diagnostics.schema import METRICS, Flag
from ptt.diagnostics.store.manifest import Manifest, WideColumn, WidePart

FOLDER: Final = "wide"
INDEX: Final = {"__step": "step", "__time": "wall_time", "__seq": "seq"}
ALL: Final = "(every metric of the row)"  # stands for the metrics of a row where only their steps are asked for


def write_wide(folder: Path, number: int, piece: Wide, source: str, parser: Parser | None) -> WidePart:
    """Write one piece as a file of its own; columns are numbered, since a metric may be called anything."""
    raws = [name for name in piece.frame.columns if name not in INDEX]
    columns = {raw: f"m{place}" for place, raw in enumerate(raws)}
    target = folder / FOLDER / f"part-{number:05d}.parquet"
    target.parent.mkdir(exist_ok=True)
    piece.frame.rename(INDEX | columns).write_parquet(target, compression="lz4", statistics=False)
    return WidePart(
        file=target.name,
        source=source,
        priority=parser.priority if parser else 0,
        rows=piece.frame.height,
        columns=tuple(
            WideColumn(
                column=columns[raw],
                raw=raw,
                name=piece.names[raw],
                values=piece.frame.height - piece.frame[raw].null_count(),
            )
            for raw in raws
        ),
    )


@dataclass(frozen=True)
class WideMetrics:
    """The wide metrics of a store."""

    folder: Path
    parts: tuple[WidePart, ...] = ()

    def spellings(self) -> pl.DataFrame:
        """Give name, name_raw, priority and len, the number of values: one row a spelling and source priority."""
        rows = [
            (column.name, column.raw, part.priority, column.values) for part in self.parts for column in part.columns
        ]
        schema = {"name": pl.String, "name_raw": pl.String, "priority": pl.Int32, "len": pl.Int64}
        frame = pl.DataFrame(rows, schema=schema, orient="row")
        return frame.group_by("name", "name_raw", "priority").agg(pl.col("len").sum()).sort(pl.all())

    def values(self, raw: str) -> pl.DataFrame:
        """Give step, value, flag, priority, source and seq of one metric, in the order of the files."""
        frames = []
        for part in self.parts:
            held = next((column.column for column in part.columns if column.raw == raw), None)
            if held is not None:
                frame = self._read(part, ["step", "seq", held]).rename({held: "value"})
                frames.append(frame.drop_nulls("value").with_columns(_source(part)))
        value = pl.col("value")
        flag = (
            pl.when(value.is_nan())
            .then(Flag.NAN)
            .when(value == float("inf"))
            .then(Flag.POS_INF)
            .when(value == float("-inf"))
            .then(Flag.NEG_INF)
            .otherwise(Flag.FINITE)
        )
        return pl.concat(frames).with_columns(
            flag.cast(pl.UInt8).alias("flag"), pl.when(value.is_finite()).then(value).alias("value")
        )

    def of_sources(self, sources: Collection[str], wanted: Callable[[str], bool]) -> pl.DataFrame:
        """Give step, seq, name, value and source of the metrics whose name is wanted, one row a value."""
        schema = {"step": pl.Int64, "seq": pl.Int64, "name": pl.String, "value": pl.Float64, "source": pl.String}
        frames = [pl.DataFrame(schema=schema)]
        for part in (part for part in self.parts if part.source in sources):
            columns = {column.column: column.name or column.raw for column in part.columns}
            names = {column: name for column, name in columns.items() if wanted(name)}
            long = self._read(part, ["step", "seq", *names]).unpivot(
                index=["step", "seq"], variable_name="name", value_name="value"
            )
            told = long.drop_nulls("value").with_columns(
                pl.col("name").replace_strict(names, return_dtype=pl.String), pl.lit(part.source).alias("source")
            )
            frames.append(told.match_to_schema(schema, integer_cast="upcast", float_cast="upcast"))
        return pl.concat(frames)

    def rows(self, metrics: pl.DataFrame) -> pl.DataFrame:
        """Give the table of metrics where the rows of wide sources stand once each, under the name ALL, valueless."""
        if not self.parts:
            return metrics
        sources = sorted({part.source for part in self.parts})
        found = [self._read(part, ["step", "wall_time", "seq"]).with_columns(_source(part)) for part in self.parts]
        mine = (pl.col("split") == "train") & pl.col("source").is_in(sources)
        beside = metrics.filter(mine).select(found[0].columns).unique(maintain_order=True)
        frame = pl.concat([*found, beside]).unique(["source", "seq"], keep="first", maintain_order=True)
        frame = frame.with_columns(split=pl.lit("train"), name_raw=pl.lit(ALL))
        schema = pl.Schema(METRICS | {"priority": pl.Int32()})
        return pl.concat([metrics.filter(~mine), frame.match_to_schema(schema, missing_columns="insert")])

    def steps(self) -> npt.NDArray[np.int64]:
        """Give the steps at which something was logged, ascending."""
        found = [self._read(part, ["step"])["step"].to_numpy() for part in self.parts]
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)

    def _read(self, part: WidePart, columns: Iterable[str]) -> pl.DataFrame:
        return pl.read_parquet(self.folder / FOLDER / part.file, columns=list(columns), glob=False)


def read_wide(folder: Path, manifest: Manifest) -> WideMetrics:
    """Open the wide metrics of a store."""
    return WideMetrics(folder, manifest.wide)


def _source(part: WidePart) -> list[pl.Expr]:
    return [pl.lit(part.source).alias("source"), pl.lit(part.priority, pl.Int32).alias("priority")]
