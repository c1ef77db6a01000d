"""What exports of trackers do to column names and steps: run names in front, bounds behind, steps with holes.

W&B's chart export names a column `{run} - {metric}` and adds `…__MIN` and `…__MAX`, the bounds of what it averaged;
its history export has a row a log call, of which only some name the trainer's step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

import polars as pl

from ptt.diagnostics.metrics.aliases import annotate, split_of
from ptt.diagnostics.schema import METRICS, Flag

FLUSH_ROWS = 200_000  # entries kept as Python objects before they become a frame: about 50 MB

# NeMo-RL writes -1 where all ratios of a step are infinite (nemo_rl/algorithms/loss_functions.py of NVIDIA-NeMo/RL).
RATIO_BOUND = r"(?:^|/)probs_ratio(?:_clamped)?_(?:min|max)$"

NON_FINITE = {
    "nan": float("nan"),
    "inf": float("inf"),
    "+inf": float("inf"),
    "infinity": float("inf"),
    "+infinity": float("inf"),
    "-inf": float("-inf"),
    "-infinity": float("-inf"),
}


@dataclass(frozen=True)
class MetricColumns:
    """Columns that grow entry by entry and leave as frames; a value of None means null in the source."""

    steps: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    values: list[float | None] = field(default_factory=list)
    times: list[float | None] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)

    def add(self, step: int, name: str, value: float | None, wall_time: float | None, seq: int) -> None:
        """Append one entry."""
        self.steps.append(step)
        self.names.append(name)
        self.values.append(value)
        self.times.append(wall_time)
        self.seqs.append(seq)

    @property
    def full(self) -> bool:
        """Whether it is time to take the frame out."""
        return len(self.steps) >= FLUSH_ROWS

    def take(self, source: str) -> pl.DataFrame:
        """Return what was added as a frame of the full METRICS schema, and start again empty."""
        columns = {
            "step": pl.Series(self.steps, dtype=pl.Int64),
            "name_raw": pl.Series(self.names, dtype=pl.String),
            "value": pl.Series(self.values, dtype=pl.Float64),
            "wall_time": pl.Series(self.times, dtype=pl.Float64),
            "seq": pl.Series(self.seqs, dtype=pl.Int64),
        }
        for column in (self.steps, self.names, self.values, self.times, self.seqs):
            column.clear()
        return metric_frame(pl.DataFrame(columns), source)


def metric_frame(entries: pl.DataFrame, source: str) -> pl.DataFrame:
    """Complete `step, name_raw, value, wall_time, seq` to METRICS: flags, splits and canonical names."""
    value = pl.col("value")
    unset = (value == -1.0) & pl.col("name_raw").str.contains(RATIO_BOUND)
    flag = (
        pl.when(value.is_null())
        .then(Flag.NULL_IN_SOURCE)
        .when(unset)
        .then(Flag.DROPPED_BY_WRITER)
        .when(value.is_nan())
        .then(Flag.NAN)
        .when(value == float("inf"))
        .then(Flag.POS_INF)
        .when(value == float("-inf"))
        .then(Flag.NEG_INF)
        .otherwise(Flag.FINITE)
    )
    names = entries["name_raw"].unique()
    splits = pl.Series([split_of(name) for name in names.to_list()], dtype=pl.String)
    frame = entries.with_columns(
        flag=flag.cast(pl.UInt8),
        value=pl.when(value.is_finite() & ~unset).then(value),
        split=pl.col("name_raw").replace_strict(names, splits, return_dtype=pl.String),
        rank=pl.lit(None, dtype=pl.Int32),
        source=pl.lit(source, dtype=pl.String),
    )
    return annotate(frame).select(pl.col(name).cast(kind) for name, kind in METRICS.items())


def as_step(found: object) -> int | None:
    """Read a step written as int, as integral float, or as `3/100`; anything else is no step."""
    if isinstance(found, bool):
        return None
    if isinstance(found, str):
        head = found.split("/", 1)[0].strip()
        found = int(head) if head.isdecimal() and head.isascii() and len(head) < 19 else None
    if isinstance(found, float):
        found = int(found) if found.is_integer() else None
    if isinstance(found, int) and abs(found) < 2**63:
        return found
    return None


def as_value(found: object) -> float | None:
    """Read a number, a boolean or a spelt-out NaN; raise TypeError for what is no metric at all."""
    if found is None:
        return None
    if isinstance(found, (bool, float)):
        return float(found)
    if isinstance(found, int):
        try:
            return float(found)
        except OverflowError:  # JSON integers have no limit, doubles do
            return float("inf") if found > 0 else float("-inf")
    if isinstance(found, str) and (number := NON_FINITE.get(found.lower())) is not None:
        return number
    raise TypeError(f"{type(found).__name__} is no metric value")


def as_seconds(found: object) -> float | None:
    """Read a wall time given as seconds since the epoch or as an ISO date."""
    if isinstance(found, (int, float)) and not isinstance(found, bool):
        return float(found) if 1e8 < found < 1e11 else None  # seconds between 1973 and 5138
    if isinstance(found, str):
        try:
            return datetime.fromisoformat(found).timestamp()
        except (ValueError, OverflowError, OSError):  # no date, or one outside what the platform counts
            return None
    return None


BOUNDS = ("__MIN", "__MAX")
BETWEEN = " - "
OWN = frozenset({"_step", "_runtime", "_timestamp", "id", "run_id", "run_name", "log_id", "space_id"})


def plain_names(columns: Iterable[str]) -> dict[str, str]:
    """Give the columns that hold values, with the metric's own name.

    A run's name in front is taken off where it is the only one; with several runs in one table the names stay as they
    are, since their values belong to different series.
    """
    given = list(columns)
    kept = [name for name in given if not (name.endswith(BOUNDS) and name[: -len(BOUNDS[0])] in given)]
    runs = {name.split(BETWEEN, 1)[0] for name in kept if BETWEEN in name}
    if len(runs) != 1 or not all(BETWEEN in name for name in kept):
        return {name: name for name in kept}
    front = runs.pop() + BETWEEN
    return {name: name.removeprefix(front) for name in kept}


def filled(steps: pl.Series, calls: Iterable[str]) -> pl.Series:
    """Give log calls without the trainer's step that of the last one before, or of the first, as in W&B's own logs."""
    return steps.forward_fill().backward_fill() if {"_step", "run_name"} & set(calls) else steps
