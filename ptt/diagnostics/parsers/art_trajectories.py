"""Trajectories of ART: chats with tool calls, rewards and metrics, one file a step.

Source: openpipe-art 0.5.18 art/utils/trajectory_logging.py (`write_trajectory_groups_parquet`) and, for the older lines
of one group each, art/utils/trajectory_migration.py (`trajectory_group_to_dict`): `trajectories/{split}/{step}.parquet`
or `.jsonl`. Logprobs are dropped by the writer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.io.answer_texts import success_of
from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.lines import first_objects, parse_json
from ptt.diagnostics.parsers.io.parquet_files import DAMAGE, batches, cut_note, is_cut, schema_of
from ptt.diagnostics.parsers.io.record_labels import labels_of
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, read_lines, read_samples
from ptt.diagnostics.parsers.io.values import as_score, as_step, dict_of, dicts_in, nested

COLUMNS: Final = ("group_index", "reward", "metrics", "messages")
MORE: Final = ("metadata", "tools")
BATCH_ROWS: Final = 256
FACTS: Final = {"framework": "art"}
SPLITS: Final = {"train": "train", "val": "eval", "test": "eval"}
NO_MESSAGES: Final = "row(s) skipped: no messages."


def recognises(file: RunFile) -> bool:
    """Recognise a file by columns, by place where the footer is gone, and lines that hold groups of trajectories."""
    if file.name.endswith(".parquet"):
        if not is_cut(file):
            return False
        schema = schema_of(file)
        return "trajectories" in file.rel.split("/")[:-1] if schema is None else set(schema[0].names) >= set(COLUMNS)
    rows = first_objects(file)
    return bool(rows) and all(_histories(row) for row in rows)


def _histories(row: dict[str, Any]) -> bool:
    group = row.get("trajectories")
    return isinstance(group, list) and all(
        isinstance(nested(trajectory, "messages_and_choices"), list) and "reward" in trajectory for trajectory in group
    )


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a row."""
    if not file.name.endswith(".parquet"):
        yield from read_lines(file, PARSER.name, _Groups().add, FACTS)
        return
    schema = schema_of(file)
    if schema is None or not set(schema[0].names) >= set(COLUMNS):
        yield cut_note(file)
        return
    wanted = [name for name in (*COLUMNS, *MORE) if name in schema[0].names]
    yield from read_samples(Samples(file, PARSER.name), _rows(file, wanted, schema[1]), _add_row, NO_MESSAGES)
    yield Context(facts=dict(FACTS))


def _rows(file: RunFile, columns: list[str], total: int) -> Iterator[Any]:
    done = 0
    try:
        for batch in batches(file, columns, rows=BATCH_ROWS):
            done += batch.num_rows
            yield from batch.to_pylist()
    except DAMAGE:  # a data page is damaged: keep what was read before it
        lost = max(0, total - done)
        yield Lost(rows=lost, note=f"{file.rel}: its data is damaged; rows lost: {lost} of {total}.")


def _add_row(row: dict[str, Any], samples: Samples) -> bool:
    messages = row["messages"]
    if not isinstance(messages, list) or (messages and not dicts_in(messages)):
        return False
    found = samples.objects(messages)
    unpacked = [message | {"tool_calls": parse_json(message.get("tool_calls"))} for message in found]
    told = row | {name: parse_json(row.get(name)) for name in ("metrics", *MORE)}
    return _add(unpacked, told, as_step(row["group_index"]), samples)


class _Groups:
    """Counts the groups of a file: one per line."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, row: dict[str, Any], samples: Samples) -> bool:
        """Add the trajectories of one group."""
        if not _histories(row):
            return False
        for trajectory in row["trajectories"]:
            turns = samples.objects(trajectory["messages_and_choices"])
            messages = [message.get("message", message) for message in turns]
            _add(samples.objects(messages), trajectory, self.count, samples)
        self.count += 1
        return True


def _add(messages: list[dict[str, Any]], row: dict[str, Any], group: int | None, samples: Samples) -> bool:
    *folders, name = samples.file.rel.split("/")
    step = as_step(name.partition(".")[0])
    split, reward = SPLITS.get(folders[-1] if folders else "", "unknown"), as_score(row.get("reward"))
    components = {
        name: score for name, value in dict_of(row.get("metrics")).items() if (score := as_score(value)) is not None
    }
    prompt = [message for message in messages if message.get("role") in ("system", "user")][:2]
    samples.add(
        Sample(
            step=step,
            split=split,
            completion=messages,
            identity=[step, split, group, messages, reward, components],
            prompt=prompt,
            reward=reward,
            components=components,
            tools=dicts_in(row.get("tools")),
            columns={
                "group_id": None if group is None else f"{step}-{group}",
                "task": labels_of(dict_of(row.get("metadata"))).columns["task"],
                "success": success_of(components),
                "model": folders[-3] if len(folders) > 2 and folders[-2] == "trajectories" else None,
            },
        )
    )
    if split == "eval":
        for metric, value in {"reward": reward, **components}.items():
            samples.mean(folders[-1], step, metric, value)
    return True


PARSER = Parser(
    name="art_trajectories",
    describes="ART's trajectories, Parquet and the older lines: trajectories, turns, tool calls, rewards, evaluations.",
    held_against="real: ART 0.5.18",
    priority=10,
    of_training=False,
    recognises=recognises,
    read=read,
)
