"""Dense metrics of training as columns: how a log of a million rows is kept, and one metric of it read at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ptt.diagnostics.parsers.io.interface import Wide
from ptt.diagnostics.parsers.io.metric_blocks import long_rows
from ptt.diagnostics.parsers.io.metric_rows import metric_frame
from ptt.diagnostics.schema import METRICS, Flag
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.store.manifest import Manifest, WideColumn, WidePart
from ptt.diagnostics.store.metric_names import LOGGED
from ptt.diagnostics.store.value_range import bounded_values

FOLDER: Final = "wide"
INDEX: Final = {"__step": "step", "__time": "wall_time", "__seq": "seq"}
GROUP_CELLS: Final = 1 << 20  # in neighbouring columns that are read at once: 8 MB
NUMBERS: Final = frozenset({pa.int64(), pa.float64()})
KEPT_GROUPS: Final = 8  # a metric may stand in several parts
ALL: Final = "(every metric of the row)"  # stands for all metrics of a row if only their steps are wanted


def write_wide(folder: Path, number: int, pieces: Sequence[Wide], source: str, priority: int) -> tuple[WidePart, int]:
    """Write pieces of one source as a file, and say how many of their values are too large to calculate with.

    Columns are numbered, since a metric may be called anything.
    """
    joined = pl.concat(
        [piece.frame for piece in pieces], how="diagonal"
    ).rechunk()  # each column read back in one piece
    frame, beyond = bounded_values(joined)
    names = {raw: name for piece in pieces for raw, name in piece.names.items()}
    raws = [name for name in frame.columns if name not in INDEX]
    columns = {raw: f"m{number}" for number, raw in enumerate(raws)}
    target = folder / FOLDER / f"part-{number:05d}.arrow"
    target.parent.mkdir(exist_ok=True)
    _write(frame.rename(INDEX | columns), target)
    part = WidePart(
        file=target.name,
        source=source,
        priority=priority,
        rows=frame.height,
        columns=tuple(
            WideColumn(column=columns[raw], raw=raw, name=names[raw], values=frame.height - frame[raw].null_count())
            for raw in raws
        ),
    )
    return part, beyond


def evaluation_rows(folder: Path, part: WidePart, columns: Mapping[str, WideColumn]) -> pl.DataFrame:
    """Return columns of a wide part as rows of an evaluation, as METRICS has them, with their priority."""
    frame = _read(folder / FOLDER / part.file, [*INDEX.values(), *columns])
    raws = {column: stood.raw for column, stood in columns.items()}
    long = long_rows(frame, list(INDEX.values())).with_columns(
        pl.col("name_raw").replace_strict(raws, return_dtype=pl.String)
    )
    rows = metric_frame(long, part.source)
    names = {stood.raw: stood.name for stood in columns.values()}
    return rows.with_columns(
        name=pl.col("name_raw").replace_strict(names, return_dtype=pl.String),
        split=pl.lit("eval"),
        priority=pl.lit(part.priority, pl.Int32),
    )


def names_in_wide(
    folder: Path, parts: Iterable[WidePart], looked_at: Callable[[str, str | None], bool]
) -> pl.DataFrame:
    """Return the names in wide parts, as `metric_names.LOGGED`, with values only for those looked at."""
    rows: list[tuple[object, ...]] = []
    for part in parts:
        asked = [column.column for column in part.columns if looked_at(column.raw, column.name)]
        frame = _read(folder / FOLDER / part.file, asked) if asked else pl.DataFrame()
        for column in part.columns:
            values = frame[column.column].drop_nans() if column.column in frame.columns else pl.Series(dtype=pl.Float64)
            whole = bool((values == values.round()).all()) if len(values) else None
            rows.append((part.source, column.raw, column.name, False, column.values, values.min(), values.max(), whole))
    return pl.DataFrame(rows, schema=LOGGED, orient="row")


def scale_columns(folder: Path, part: WidePart, factors: Mapping[str, float]) -> None:
    """Multiply columns of a wide part where they lie."""
    path = folder / FOLDER / part.file
    frame = _read(path, [*INDEX.values(), *(column.column for column in part.columns)])
    beside = path.with_suffix(".part")  # what was read may still lie in the file
    _write(frame.with_columns(pl.col(column) * factor for column, factor in factors.items()), beside)
    beside.replace(path)


@dataclass(frozen=True)
class Column:
    """One wide metric as logged: values in the order of the files, NaN and infinities included."""

    steps: IntArray
    values: FloatArray
    seqs: IntArray
    rises: bool  # each step is greater than the one before
    sources: tuple[str, ...]
    parts: tuple[tuple[WidePart, int], ...]  # each with the number of its values

    def frame(self) -> pl.DataFrame:
        """Return step, value, flag, priority, source and seq, a row a value."""
        sources = [pl.repeat(part.source, count, eager=True, dtype=pl.String) for part, count in self.parts]
        priorities = [pl.repeat(part.priority, count, eager=True, dtype=pl.Int32) for part, count in self.parts]
        return pl.DataFrame(
            {
                "step": self.steps,
                "value": pl.Series(self.values).fill_nan(None).replace([float("inf"), float("-inf")], None),
                "flag": flags_of(self.values),
                "priority": pl.concat(priorities),
                "source": pl.concat(sources),
                "seq": self.seqs,
            }
        )


def flags_of(values: FloatArray) -> npt.NDArray[np.uint8]:
    """Return the flag of each value: finite, NaN, or one of the infinities."""
    flags = np.zeros(len(values), np.uint8)
    if bool(np.isfinite(values).all()):
        return flags
    flags[np.isnan(values)] = Flag.NAN
    flags[values == np.inf] = Flag.POS_INF
    flags[values == -np.inf] = Flag.NEG_INF
    return flags


@dataclass(frozen=True)
class WideMetrics:
    """The wide metrics of a store."""

    folder: Path
    parts: tuple[WidePart, ...] = ()
    _groups: dict[tuple[str, int], pl.DataFrame] = field(default_factory=dict, compare=False, repr=False)

    def only(self, wanted: Callable[[str], bool]) -> WideMetrics:
        """Return the metrics of the sources that are wanted."""
        return WideMetrics(self.folder, tuple(part for part in self.parts if wanted(part.source)))

    def spellings(self) -> pl.DataFrame:
        """Return name, name_raw, priority and len, the number of values: one row a spelling and source priority."""
        rows = [
            (column.name, column.raw, part.priority, column.values) for part in self.parts for column in part.columns
        ]
        schema = {"name": pl.String, "name_raw": pl.String, "priority": pl.Int32, "len": pl.Int64}
        frame = pl.DataFrame(rows, schema=schema, orient="row")
        return frame.group_by("name", "name_raw", "priority").agg(pl.col("len").sum()).sort(pl.all())

    def column(self, raw: str) -> Column:
        """Read one metric."""
        steps, values, seqs, parts = [], [], [], []
        gaps = False
        for part, (part_steps, part_seqs), places in zip(self.parts, self._index, self._places, strict=True):
            if (place := places.get(raw)) is None:
                gaps = True
                continue
            series = self._kept(part, place)
            known = series.is_not_null().to_numpy() if series.null_count() else slice(None)
            gaps |= series.null_count() > 0
            steps.append(part_steps[known])
            seqs.append(part_seqs[known])
            values.append(series.to_numpy()[known])
            parts.append((part, len(values[-1])))
        joined = (np.concatenate(steps), np.concatenate(seqs)) if gaps else self._every_row
        return Column(
            steps=joined[0],
            values=np.concatenate(values),
            seqs=joined[1],
            rises=_rises(joined[0]) if gaps else self._every_step_rises,
            sources=tuple(sorted({part.source for part, _ in parts})),
            parts=tuple(parts),
        )

    @cached_property
    def order(self) -> dict[str, int]:
        """The place of each metric among all: reading in this order is fastest."""
        raws = dict.fromkeys(raw for places in self._places for raw in places)
        return {raw: place for place, raw in enumerate(raws)}

    def sources_of(self, raw: str) -> set[str]:
        """Return the sources that hold a metric."""
        return {part.source for part, places in zip(self.parts, self._places, strict=True) if raw in places}

    def of_sources(self, sources: Collection[str], wanted: Callable[[str], bool]) -> pl.DataFrame:
        """Return step, seq, name, value and source of the metrics whose name is wanted, one row a value."""
        schema = {"step": pl.Int64, "seq": pl.Int64, "name": pl.String, "value": pl.Float64, "source": pl.String}
        frames = [pl.DataFrame(schema=schema)]
        for part in (part for part in self.parts if part.source in sources):
            columns = {column.column: column.name or column.raw for column in part.columns}
            names = {column: name for column, name in columns.items() if wanted(name)}
            long = self._read(part, ["step", "seq", *names]).unpivot(
                index=["step", "seq"], variable_name="name", value_name="value"
            )
            named = long.drop_nulls("value").with_columns(
                pl.col("name").replace_strict(names, return_dtype=pl.String), pl.lit(part.source).alias("source")
            )
            frames.append(named.match_to_schema(schema, integer_cast="upcast", float_cast="upcast"))
        return pl.concat(frames)

    def rows(self, metrics: pl.DataFrame) -> pl.DataFrame:
        """Return the metrics table with each row of wide sources once, under the name ALL, without a value.

        For a single source that never went back, its first and last row are enough to show its range.
        """
        if not self.parts:
            return metrics
        sources = sorted({part.source for part in self.parts})
        of_run = (pl.col("split") == "train") & pl.col("source").is_in(sources)
        frames = [metrics.filter(~of_run)]
        others = metrics.filter((pl.col("split") == "train") & ~pl.col("source").is_in(sources))
        alone = len(sources) == 1 and others.is_empty()  # otherwise the steps of two sources must be compared
        for source in sources:
            parts = [part for part in self.parts if part.source == source]
            frames_of_source = [
                self._read(part, ["step", "wall_time", "seq"]).with_columns(
                    pl.lit(part.source).alias("source"), pl.lit(part.priority, pl.Int32).alias("priority")
                )
                for part in parts
            ]
            long = metrics.filter(of_run & (pl.col("source") == source)).select(frames_of_source[0].columns)
            frame = pl.concat([*frames_of_source, long])
            if not _rises(frame["seq"].to_numpy()):
                frame = frame.unique("seq", keep="first", maintain_order=True).sort("seq")
            if alone and (frame["step"].diff() >= 0).all():
                frame = frame[[0, -1]] if frame.height > 1 else frame
            frame = frame.with_columns(split=pl.lit("train"), name_raw=pl.lit(ALL))
            schema = pl.Schema(METRICS | {"priority": pl.Int32()})
            frames.append(frame.match_to_schema(schema, missing_columns="insert"))
        return pl.concat(frames)

    def ends(self) -> list[tuple[str, int, int]]:
        """Return source, priority and last step of each part."""
        spans = zip(self.parts, self._index, strict=True)
        return [(part.source, part.priority, int(steps.max())) for part, (steps, _) in spans if len(steps)]

    def steps_of(self, raws: Collection[str]) -> IntArray:
        """Return the steps at which any of these metrics has a value, ascending."""
        steps = []
        for part, (part_steps, _) in zip(self.parts, self._index, strict=True):
            columns = [column for column in part.columns if column.raw in raws]
            if any(column.values == part.rows for column in columns):
                steps.append(part_steps)
            elif columns:
                frame = self._read(part, [column.column for column in columns])
                steps.append(part_steps[frame.select(~pl.all_horizontal(pl.all().is_null())).to_series().to_numpy()])
        return distinct(steps)

    def times(self) -> pl.DataFrame:
        """Return step, wall_time, source and order of each row that has a time."""
        frames = [
            self._read(part, ["step", "wall_time", "seq"]).with_columns(source=pl.lit(part.source))
            for part in self.parts
        ]
        columns = ["step", "wall_time", "source", "seq"]
        schema = {name: METRICS[name] for name in columns}
        frames = [pl.DataFrame(schema=schema), *(frame.select(columns) for frame in frames)]
        return pl.concat(frames).drop_nulls().rename({"seq": "order"})

    @cached_property
    def steps(self) -> IntArray:
        """The steps at which something was logged, ascending."""
        return distinct([self._every_row[0]] if self.parts else [])

    @cached_property
    def _index(self) -> tuple[tuple[IntArray, IntArray], ...]:
        """Step and number of each row, by part: read once, since every metric lies along them."""
        frames = [self._read(part, ["step", "seq"]) for part in self.parts]
        return tuple((frame["step"].to_numpy(), frame["seq"].to_numpy()) for frame in frames)

    @cached_property
    def _every_row(self) -> tuple[IntArray, IntArray]:
        """Step and number of each row of all parts, where most metrics have a value."""
        return np.concatenate([steps for steps, _ in self._index]), np.concatenate([seqs for _, seqs in self._index])

    @cached_property
    def _every_step_rises(self) -> bool:
        return _rises(self._every_row[0])

    @cached_property
    def _places(self) -> tuple[dict[str, int], ...]:
        """The place of each metric among the columns of a part, by part."""
        return tuple({column.raw: place for place, column in enumerate(part.columns)} for part in self.parts)

    def _kept(self, part: WidePart, place: int) -> pl.Series:
        """Read a column with its neighbours, which are asked for next: to open a file of many columns takes longer."""
        size = max(1, GROUP_CELLS // max(1, part.rows))
        key = part.file, place // size
        if key not in self._groups:
            while len(self._groups) >= KEPT_GROUPS:
                self._groups.pop(next(iter(self._groups)))
            first = place // size * size
            self._groups[key] = self._read(part, [column.column for column in part.columns[first : first + size]])
        return self._groups[key][part.columns[place].column]

    def _read(self, part: WidePart, columns: Iterable[str]) -> pl.DataFrame:
        return _read(self.folder / FOLDER / part.file, list(columns))


def _write(frame: pl.DataFrame, path: Path) -> None:
    """Write a part as one batch: Polars cuts it, and to read a column of several pieces takes three times as long."""
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _read(path: Path, columns: Sequence[str]) -> pl.DataFrame:
    """Read columns of a part, those of an earlier version from Parquet; PolarsError where it is damaged."""
    if path.suffix == ".parquet":
        return pl.read_parquet(path, columns=list(columns), glob=False)
    try:
        with pa.memory_map(str(path)) as file:
            found = pa.ipc.open_file(file).read_all().select(columns)
            found.validate()  # a length beyond the file would be believed, and reading there ends the process
            if not NUMBERS.issuperset(found.schema.types):  # texts and lists would need more checks
                raise pa.ArrowInvalid("it holds no numbers alone")
            return pl.DataFrame(found).select(pl.all() * 1)  # a copy: a mapped file cannot be deleted everywhere
    except (pa.ArrowException, KeyError) as error:
        raise pl.exceptions.ComputeError(f"{path.name} is damaged: {error}") from error


def _rises(steps: IntArray) -> bool:
    return bool((steps[1:] > steps[:-1]).all())


def distinct(arrays: Sequence[IntArray]) -> IntArray:
    """Return the distinct steps of several arrays, ascending; most are in order already, and sorting takes longest."""
    joined = arrays[0] if len(arrays) == 1 else np.concatenate([np.empty(0, np.int64), *arrays])
    if not _rises(joined):
        joined = np.sort(joined)
        joined = joined[np.append(True, np.diff(joined) > 0)] if len(joined) else joined
    return joined


def read_wide(folder: Path, manifest: Manifest) -> WideMetrics:
    """Open the wide metrics of a store."""
    return WideMetrics(folder, manifest.wide)
