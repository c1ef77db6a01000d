"""Metric logs as JSON lines: one object a log call, flat or nested, from any logger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ptt.diagnostics.parsers.aliases import framework_of
from ptt.diagnostics.parsers.interface import Context, Lost, Parser, Piece, Rows, RunFile
from ptt.diagnostics.parsers.lines import blocks, first_objects, is_torn, json_object, torn_line
from ptt.diagnostics.parsers.metric_rows import MetricColumns, as_seconds, as_step, as_value
from ptt.diagnostics.parsers.metrics_fast import fast_block, known_names
from ptt.diagnostics.schema import LOGPS

# The trainer's own counters first: `_step` of W&B counts log calls, not training steps.
STEP_KEYS = (
    "step",
    "global_step",
    "train/global_step",
    "training/global_step",
    "trainer/global_step",
    "trainer/step",
    "training_step",
    "train_step",
    "train/step",
    "iteration",
    "iter",
    "global_step/max_steps",  # ms-swift: "3/100"
    "_step",
)
TIME_KEYS = ("time", "_timestamp", "timestamp", "recorded_at", "wall_time")

# Keys of rows about one sample, turn or token run: such rows have a step and numbers too, but are no metrics.
SAMPLE_KEYS = frozenset(
    {"input", "output", "prompt", "completion", "response", "messages", "text", "content", "trajectory"}
    | {
        "episode_id",
        "trajectory_id",
        "sample_id",
        "sample_idx",
        "prompt_id",
        "prompt_idx",
        "request_id",
        "uid",
    }
    | {"traj_idx", "group_idx", "example_id", "task_id", "token_ids", "prompt_tokens", "response_tokens"}
    | {"model_mask", "loss_mask", "completion_mask", "export_sequence_idx", *LOGPS}
)
WRAPPERS = ("data", "metrics")  # objects that hold the whole log call and are no part of its names
LONGEST_TEXT = 200  # a metric row may name its run or host; it holds no prose
LONGEST_LIST = 64  # nor the tokens of a sequence
DEEPEST = 16  # nesting that any logger could mean


@dataclass(frozen=True)
class MetricRow:
    """One log call: what was measured at a step."""

    step: int
    wall_time: float | None
    values: dict[str, float | None]


def metric_row(found: dict[str, Any]) -> MetricRow | None:
    """Read one object as a log call; None if it has no step."""
    flat = flatten({key: value for key, value in found.items() if key not in WRAPPERS})
    for wrapper in WRAPPERS:
        inner = found.get(wrapper)
        flat |= flatten(inner) if isinstance(inner, dict) else {}
    used = next((key for key in STEP_KEYS if key in flat), "")
    step = as_step(flat.get(used))
    if step is None:
        return None
    times = ((key, as_seconds(flat[key])) for key in TIME_KEYS if key in flat)
    clock, wall_time = next((pair for pair in times if pair[1] is not None), ("", None))
    del flat[used]
    flat.pop(clock, None)
    return MetricRow(step, wall_time, numbers(flat))


def flatten(found: dict[str, Any], below: str = "", depth: int = 0) -> dict[str, Any]:
    """Join the keys of nested objects with slashes."""
    flat: dict[str, Any] = {}
    for key, value in found.items():
        if isinstance(value, dict):
            if depth < DEEPEST:
                flat.update(flatten(value, f"{below}{key}/", depth + 1))
        else:
            flat[f"{below}{key}"] = value
    return flat


def numbers(flat: dict[str, Any]) -> dict[str, float | None]:
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


def is_metric_object(found: dict[str, Any]) -> bool:
    """Tell a log call from a sample, a trace or a config by its keys and the size of its values."""
    if not SAMPLE_KEYS.isdisjoint(found) or {"step", "timestamp", "metrics"} <= found.keys():
        return False
    for value in flatten(found).values():
        if isinstance(value, str) and len(value) > LONGEST_TEXT:
            return False
        if isinstance(value, list) and len(value) > LONGEST_LIST:
            return False
    row = metric_row(found)
    return row is not None and any(value is not None for value in row.values.values())


def is_closing(found: dict[str, Any]) -> bool:
    """Whether this is the summary that ms-swift puts behind its last row, with the whole history once more."""
    return "log_history" in found and "step" not in found


def recognises(file: RunFile) -> bool:
    """Say yes to line files that begin with log calls and nothing else."""
    found = [row for row in first_objects(file) if not is_closing(row)]
    return bool(found) and all(map(is_metric_object, found))


def _framework(block: bytes) -> str | None:
    """Name the framework where the shape of the first row leaves no doubt."""
    found = json_object(block.split(b"\n", 1)[0]) or {}
    if found.keys() == {"step", "data"} and isinstance(found["data"], dict):
        return "verl"
    if "global_step/max_steps" in found:
        return "ms-swift"
    if {"training_step", "recorded_at"} <= found.keys():
        return "art"
    own = ("mismatch_kl/", "optim/", "perf/", "off_policy/")
    if {"step", "time"} <= found.keys() and any(name.startswith(own) for name in found):
        return "prime-rl"
    return framework_of(flatten(found))


def read(file: RunFile) -> Iterator[Piece]:
    """Yield metrics block by block; lines that are no log call are counted."""
    framework: str | None = None
    columns = MetricColumns()
    schema = None
    seq = no_json = no_step = 0
    for block in blocks(file):
        if isinstance(block, Lost):
            yield block
            continue
        quick = fast_block(block, wrappers=WRAPPERS, steps=STEP_KEYS, times=TIME_KEYS, seq=seq, schema=schema)
        if quick is not None:
            framework = framework or _framework(block)
            seq, schema = quick.behind, quick.schema
            yield from quick.pieces(file, known_names)
            continue
        framework = framework or _framework(block)
        for line in filter(bytes.strip, block.split(b"\n")):
            found = json_object(line)
            if found is None and is_torn(block):
                yield torn_line(file, line)
            elif found is None:
                no_json += 1
            elif (row := metric_row(found)) is None:
                no_step += not is_closing(found)
            else:
                for name, value in row.values.items():
                    columns.add(row.step, name, value, row.wall_time, seq)
                seq += 1
        if columns.steps:
            yield Rows(table="metrics", frame=columns.take(file.rel))
    if no_json:
        yield Lost(rows=no_json, note=f"{file.rel}: {no_json} line(s) are no JSON objects and do not count.")
    if no_step:
        yield Lost(rows=no_step, note=f"{file.rel}: {no_step} row(s) name no training step and do not count.")
    if framework:
        yield Context(facts={"framework": framework})


PARSER = Parser(
    name="metrics_jsonl",
    describes="Metric logs as JSON lines (veRL's file logger, prime-rl, ART, Tinker, home-made): metrics.",
    priority=20,
    recognises=recognises,
    read=read,
)
