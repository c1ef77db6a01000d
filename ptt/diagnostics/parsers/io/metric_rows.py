"""Undo what tracker exports do to metric rows: run names before, bounds after column names, steps with holes.

W&B's chart export names a column `{run} - {metric}` and adds `…__MIN` and `…__MAX`, the bounds of what it averaged;
its history export has a row a log call, of which only some name the trainer's step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

import polars as pl

from ptt.diagnostics.metrics.aliases import canonical, framework_of, split_of
from ptt.diagnostics.parsers.io.interface import Context, Rows, RunFile
from ptt.diagnostics.parsers.io.values import as_value
from ptt.diagnostics.schema import LOGPS, METRICS, Flag

FLUSH_ROWS = 200_000  # entries kept as Python objects before they become a frame: about 50 MB

# NeMo-RL writes -1 where all ratios of a step are infinite (nemo_rl/algorithms/loss_functions.py of NVIDIA-NeMo/RL).
RATIO_BOUND = r"(?:^|/)probs_ratio(?:_clamped)?_(?:min|max)$"


ENTRY: Final = {"step": pl.Int64, "name_raw": pl.String, "value": pl.Float64, "wall_time": pl.Float64, "seq": pl.Int64}

UNNUMBERED: Final = "console:"
"""Prefix of names in rows that count rows, episodes or epochs: these never join rows with known steps in one series."""


class MetricColumns:
    """Metrics of one file that come entry by entry and leave as frames; a value of None means null in the source."""

    def __init__(self, file: RunFile) -> None:
        self.file = file
        self.names: set[str] = set()  # of all entries so far
        self._entries: list[tuple[int, str, float | None, float | None, int]] = []

    def add(self, step: int, name: str, value: float | None, wall_time: float | None, seq: int) -> None:
        """Append one entry."""
        if name not in self.names:
            if not self.file.budget.name(name):
                self.file.budget.refused_values += 1
                return
            self.names.add(name)
        self._entries.append((step, name, value, wall_time, seq))

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield what was added, if anything, as one frame of the full METRICS schema, and start again empty."""
        if self._entries:
            columns = dict(zip(ENTRY, zip(*self._entries, strict=True), strict=True))
            self._entries = []
            yield metric_frame(pl.DataFrame(columns, schema=ENTRY), self.file.rel)

    def pieces(self) -> Iterator[Rows]:
        """Yield `frames` as pieces."""
        for frame in self.frames():
            yield Rows(table="metrics", frame=frame)

    def flush(self) -> Iterator[Rows]:
        """Yield `pieces` where many entries have gathered."""
        if len(self._entries) >= FLUSH_ROWS:
            yield from self.pieces()

    def framework(self) -> Iterator[Context]:
        """Yield the framework that the names give away, if they do."""
        yield from framework_facts(framework_of(self.names))


def framework_facts(framework: str | None) -> Iterator[Context]:
    """Yield the name of the framework as a fact, where it is known."""
    if framework:
        yield Context(facts={"framework": framework})


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
    raws = entries["name_raw"].unique()
    bare = [raw.removeprefix(UNNUMBERED) for raw in raws.to_list()]
    splits = pl.Series([split_of(name) for name in bare], dtype=pl.String)
    names = pl.Series([canonical(name) for name in bare], dtype=pl.String)
    frame = entries.with_columns(
        flag=flag.cast(pl.UInt8),
        value=pl.when(value.is_finite() & ~unset).then(value),
        split=pl.col("name_raw").replace_strict(raws, splits, return_dtype=pl.String),
        name=pl.col("name_raw").replace_strict(raws, names, return_dtype=pl.String),
        rank=pl.lit(None, dtype=pl.Int32),
        source=pl.lit(source, dtype=pl.String),
    )
    return frame.select(pl.col(name).cast(kind) for name, kind in METRICS.items())


BOUNDS = ("__MIN", "__MAX")
RUN_SEPARATOR = " - "
TRACKER_COLUMNS = frozenset({"_step", "_runtime", "_timestamp", "id", "run_id", "run_name", "log_id", "space_id"})


def metric_names(columns: Iterable[str]) -> dict[str, str]:
    """Return the columns that hold values, with each metric's own name.

    A run's name in front is removed if it is the only one. With several runs in one table the names are left alone,
    since their values belong to different series.
    """
    given = list(columns)
    kept = [name for name in given if not (name.endswith(BOUNDS) and name[: -len(BOUNDS[0])] in given)]
    runs = {name.split(RUN_SEPARATOR, 1)[0] for name in kept if RUN_SEPARATOR in name}
    if len(runs) != 1 or not all(RUN_SEPARATOR in name for name in kept):
        return {name: name for name in kept}
    front = runs.pop() + RUN_SEPARATOR
    return {name: name.removeprefix(front) for name in kept}


def fill_steps(steps: pl.Series, calls: Iterable[str]) -> pl.Series:
    """Fill log calls without the trainer's step from the one before, or from the first, as in W&B's own logs."""
    return steps.forward_fill().backward_fill() if {"_step", "run_name"} & set(calls) else steps


# The trainer's own counters first: `_step` of W&B counts log calls, not training steps.
STEP_KEYS = (
    "step", "global_step", "train/global_step", "training/global_step", "trainer/global_step", "trainer/step",
    "training_step", "train_step", "train/step", "iteration", "iter",
    "global_step/max_steps",  # ms-swift: "3/100"
    "_step",
)  # fmt: skip
TIME_KEYS = ("time", "_timestamp", "timestamp", "recorded_at", "wall_time")


# Keys of rows about one sample, turn or token run: such rows have a step and numbers too, but are no metrics.
SAMPLE_KEYS = frozenset(
    {
        "input", "output", "prompt", "completion", "response", "messages", "text", "content", "trajectory",
        "episode_id", "trajectory_id", "sample_id", "sample_idx", "prompt_id", "prompt_idx", "request_id", "uid",
        "traj_idx", "group_idx", "example_id", "task_id", "token_ids", "prompt_tokens", "response_tokens",
        "model_mask", "loss_mask", "completion_mask", "export_sequence_idx", *LOGPS,
    }
)  # fmt: skip
MAX_PREFIX = 512  # characters of a name before its last part: a long key would be repeated for each value below it


def name_prefix(prefix: str) -> str:
    """Return the prefix for names of nested values; a long one is cut, and a hash of the whole appended."""
    if len(prefix) <= MAX_PREFIX:
        return prefix
    digest = sha256(prefix.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{prefix[: MAX_PREFIX - 16]}...{digest}/"


def flatten(found: dict[str, Any]) -> dict[str, Any]:
    """Join the keys of nested objects with slashes; how deep they nest is bounded where they are parsed."""
    flat: dict[str, Any] = {}
    _flatten_into(flat, found, "")
    return flat


def _flatten_into(flat: dict[str, Any], found: dict[str, Any], below: str) -> None:
    for key, value in found.items():
        if isinstance(value, dict):
            _flatten_into(flat, value, name_prefix(f"{below}{key}/"))
        else:
            flat[f"{below}{key}"] = value


def metric_values(flat: Mapping[str, Any]) -> dict[str, float | None]:
    """Keep what is a metric value, spelt-out NaN and null among it; drop texts and lists."""
    kept: dict[str, float | None] = {}
    for key, value in flat.items():
        kind = type(value)
        if kind is float:
            kept[key] = value
        elif kind is not list:
            try:
                kept[key] = as_value(value)
            except TypeError:  # a text: a name, a date, a mode
                continue
    return kept


# `_step` counts log calls; if the trainer has its own counter, that is the step. The first name that occurs wins.
TRAINER_STEP_KEYS = (
    "train/global_step", "global_step", "training/global_step", "trainer/global_step", "trainer/step",
    "rollout/step", "train/step", "step",
)  # fmt: skip


# Names that count other things as well: the step where most log calls hold one, and it only rises.
RISING_STEP_KEYS: Final = (
    "iter", "iteration", "iter_num", "train/iter", "train/iteration", "global_iter", "global_iteration",
    "trainer/iteration", "total_timesteps", "time/total_timesteps", "timesteps", "num_timesteps", "env_step",
    "env_steps",
)  # fmt: skip
STEP_NAMES: Final = frozenset({*TRAINER_STEP_KEYS, *RISING_STEP_KEYS})
LOG_CALL: Final = ""  # stands for a log call among the names that may count it


def choose_step_key(logged: Iterable[tuple[str, int | None]]) -> tuple[str | None, int | None]:
    """Choose the name of the training step, and its first value, at which everything logged earlier is placed.

    `logged`: LOG_CALL once for each call, and names in STEP_NAMES with their values, None for a value that is no step.
    """
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    counts: dict[str, int] = {}
    fell: set[str] = set()
    for name, step in logged:
        if step is None and name != LOG_CALL:
            continue
        counts[name] = counts.get(name, 0) + 1
        if step is not None:
            first.setdefault(name, step)
            fell |= {name} if step < last.get(name, step) else set()
            last[name] = step
    key = next((name for name in TRAINER_STEP_KEYS if name in first), None)
    if key is None:
        usable = [name for name in RISING_STEP_KEYS if name in first and name not in fell and first[name] < last[name]]
        key = next((name for name in usable if 2 * counts[name] >= counts.get(LOG_CALL, 0)), None)
    return key, None if key is None else first[key]
