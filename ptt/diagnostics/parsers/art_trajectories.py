"""Trajectories of ART: chats with tool calls, rewards and metrics, one file a step.

Source: openpipe-art 0.5.18 art/utils/trajectory_logging.py (`write_trajectory_groups_parquet`) and, for the older lines
of one group each, art/utils/trajectory_migration.py (`trajectory_group_to_dict`): `trajectories/{split}/{step}.parquet`
or `.jsonl`. Logprobs are dropped by the writer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pyarrow.parquet as pq

from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.lines import first_objects
from ptt.diagnostics.parsers.io.parquet_files import DAMAGE, cut_note, is_cut, schema_of
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, attempt, read_lines
from ptt.diagnostics.parsers.io.values import as_score, as_step

COLUMNS: Final = ("group_index", "reward", "metrics", "messages")
BATCH_ROWS: Final = 256
FACTS: Final = {"framework": "art"}


def recognises(file: RunFile) -> bool:
    """Say yes by columns, by place where the footer is gone, and to lines that hold groups of trajectories."""
    if file.name.endswith(".parquet"):
        if not is_cut(file):
            return False
        found = schema_of(file)
        return "trajectories" in file.rel.split("/")[:-1] if found is None else set(found[0].names) >= set(COLUMNS)
    rows = first_objects(file)
    return bool(rows) and all(_histories(row) for row in rows)


def _histories(row: dict[str, Any]) -> bool:
    group = row.get("trajectories")
    return isinstance(group, list) and all(
        isinstance(one, dict) and isinstance(one.get("messages_and_choices"), list) and "reward" in one for one in group
    )


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a row."""
    if file.name.endswith(".parquet"):
        yield from _read_parquet(file)
    else:
        yield from read_lines(file, PARSER.name, _add_group, FACTS)


def _read_parquet(file: RunFile) -> Iterator[Piece]:
    found = schema_of(file)
    if found is None or not set(found[0].names) >= set(COLUMNS):
        yield cut_note(file)
        return
    samples, bad, done = Samples(file, PARSER.name), 0, 0
    try:
        with pq.ParquetFile(file.path) as parquet:
            for batch in parquet.iter_batches(batch_size=BATCH_ROWS, columns=list(COLUMNS)):
                rows = batch.to_pylist()
                done += len(rows)
                for row in rows:
                    bad += not attempt(_add_row, row, samples)
                yield from samples.take()
    except DAMAGE:  # a data page is damaged: what was read before it stands
        yield from samples.take()
        lost = max(0, found[1] - done)
        yield Lost(rows=lost, note=f"{file.rel}: its data is damaged; {lost} of {found[1]} row(s) are lost.")
    yield from samples.close()
    if bad:
        yield Lost(rows=bad, note=f"{file.rel}: {bad} row(s) hold no messages and do not count.")
    yield Context(facts=dict(FACTS))


def _add_row(row: dict[str, Any], samples: Samples) -> bool:
    messages = row["messages"]
    if not isinstance(messages, list):
        return False
    unpacked = [message | {"tool_calls": _json(message.get("tool_calls"))} for message in messages if message]
    return _add(unpacked, row, as_step(row["group_index"]), _json(row["metrics"]), samples)


def _add_group(row: dict[str, Any], samples: Samples) -> bool:
    if not _histories(row):
        return False
    for one in row["trajectories"]:
        found = one["messages_and_choices"]
        chat = [message.get("message", message) for message in found if isinstance(message, dict)]
        messages = [message for message in chat if isinstance(message, dict)]
        _add(messages, one, None, one.get("metrics"), samples)
    return True


def _add(
    messages: list[dict[str, Any]], row: dict[str, Any], group: int | None, metrics: Any, samples: Samples
) -> bool:
    *folders, name = samples.file.rel.split("/")
    step = as_step(name.partition(".")[0])
    split = {"train": "train", "val": "eval", "test": "eval"}.get(folders[-1] if folders else "", "unknown")
    reward = as_score(row.get("reward"))
    found = metrics.items() if isinstance(metrics, dict) else ()
    components = {name: score for name, value in found if (score := as_score(value)) is not None}
    asked = [message for message in messages if message.get("role") in ("system", "user")][:2]
    samples.add(
        Sample(
            step=step,
            split=split,
            completion=messages,
            identity=[step, split, group, messages, reward, components],
            prompt=asked,
            reward=reward,
            components=components,
            columns={"group_id": None if group is None else f"{step}-{group}"},
        )
    )
    if split == "eval":
        for metric, value in {"reward": reward, **components}.items():
            samples.mean(folders[-1], step, metric, value)
    return True


def _json(text: Any) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):  # damaged inside: the message counts without it
        return None


PARSER = Parser(
    name="art_trajectories",
    describes="ART's trajectories, Parquet and the older lines: trajectories, turns, tool calls, rewards, evaluations.",
    priority=10,
    recognises=recognises,
    read=read,
)
