"""Rows of training data: the columns of each export, and files of Parquet or JSON lines, a few megabytes at a time.

Messages are lists of `datasets.Json`: each message is one JSON text, and `load_dataset` gives back the object that was
written. As Arrow structs, every call would get the arguments of all tools, null where it has none of them, and every
message the keys of all messages; chat templates would then show these to the model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ptt.diagnostics.traces.exports.messages import Chat, Conversation, holds_template
from ptt.diagnostics.traces.exports.options import ExportKind, FileFormat
from ptt.diagnostics.traces.exports.pairs import Pair
from ptt.diagnostics.traces.exports.partition import Attempt

FLUSH_CHARS: Final = 8_000_000  # of texts held before they are written: a row group


class Column(Enum):
    """What a column holds: its Arrow type, and what `datasets` calls it."""

    MESSAGES = (pa.list_(pa.json_()), {"feature": {"_type": "Json"}, "_type": "List"})
    JSON = (pa.json_(), {"_type": "Json"})
    TEXT = (pa.string(), {"dtype": "string", "_type": "Value"})
    TEXTS = (pa.list_(pa.string()), {"feature": {"dtype": "string", "_type": "Value"}, "_type": "List"})
    NUMBER = (pa.float64(), {"dtype": "float64", "_type": "Value"})
    NUMBERS = (pa.list_(pa.float64()), {"feature": {"dtype": "float64", "_type": "Value"}, "_type": "List"})
    COUNT = (pa.int64(), {"dtype": "int64", "_type": "Value"})
    FLAG = (pa.bool_(), {"dtype": "bool", "_type": "Value"})
    FLAGS = (pa.list_(pa.bool_()), {"feature": {"dtype": "bool", "_type": "Value"}, "_type": "List"})


Row = Mapping[str, Any]
Columns = Mapping[str, Column]


class RowWriter(Protocol):
    """Takes rows into a file of its own."""

    def add(self, row: Row, chars: int) -> None:
        """Take a row; `chars`: about how long its texts are."""

    def close(self) -> None:
        """Finish the file."""


def open_writer(path: Path, columns: Columns, kind: FileFormat) -> RowWriter:
    """Open a file for rows of these columns; messages are given as JSON texts."""
    return ParquetRows(path, columns) if kind is FileFormat.PARQUET else JsonRows(path, columns)


class ParquetRows:
    """Rows as row groups."""

    def __init__(self, path: Path, columns: Columns) -> None:
        """Open the file, and say in it what `datasets` reads the columns as."""
        self._columns = columns
        features = {name: column.value[1] for name, column in columns.items()}
        fields = [(name, column.value[0]) for name, column in columns.items()]
        self._schema = pa.schema(fields, metadata={"huggingface": json.dumps({"info": {"features": features}})})
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")
        self._rows: list[Row] = []
        self._chars = 0

    def add(self, row: Row, chars: int) -> None:
        """Take a row; `chars`: about how long its texts are."""
        self._rows.append(row)
        self._chars += chars
        if self._chars >= FLUSH_CHARS:
            self._flush()

    def close(self) -> None:
        """Write what is left, and the footer."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            columns = [_array([row[name] for row in self._rows], kind) for name, kind in self._columns.items()]
            self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))
        self._rows.clear()
        self._chars = 0


class JsonRows:
    """Rows as lines, messages and tools as the objects that they are."""

    def __init__(self, path: Path, columns: Columns) -> None:
        """Open the file."""
        self._file = path.open("wb")
        self._columns = columns

    def add(self, row: Row, chars: int) -> None:  # noqa: ARG002  # the file holds nothing back
        """Write a row."""
        self._file.write(msgspec.json.encode({name: _plain(row[name], kind) for name, kind in self._columns.items()}))
        self._file.write(b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _array(values: list[Any], column: Column) -> pa.Array:
    """Return the values of a column; Arrow makes no arrays of JSON from Python's objects itself."""
    if column is Column.JSON:
        return pa.ExtensionArray.from_storage(pa.json_(), pa.array(values, pa.string()))
    if column is Column.MESSAGES:
        lists = pa.array(values, pa.list_(pa.string()))
        return pa.ListArray.from_arrays(lists.offsets, pa.ExtensionArray.from_storage(pa.json_(), lists.values))
    return pa.array(values, column.value[0])


def _plain(value: Any, column: Column) -> Any:
    if value is None:
        return None
    if column is Column.MESSAGES:
        return [msgspec.Raw(text.encode()) for text in value]
    return msgspec.Raw(value.encode()) if column is Column.JSON else value


class Writers:
    """The files of an export: all of them appear at the end, or none does."""

    def __init__(self, folder: Path, part: Path, kind: FileFormat, columns: Mapping[str, Columns]) -> None:
        """Open a file in `part` for each name; `folder` is where they go."""
        self._folder, self._part = folder, part
        self.names = {name: f"{name}.{kind.value}" for name in columns}
        self._open = {name: open_writer(part / self.names[name], of, kind) for name, of in columns.items()}

    def __enter__(self) -> Writers:
        """Return what takes the rows."""
        return self

    def add(self, name: str, row: Row, chars: int) -> None:
        """Write a row to the file of that name."""
        self._open[name].add(row, chars)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close all files, and put them in place where nothing went wrong."""
        for writer in self._open.values():
            writer.close()
        if kind is None:
            for name in self.names.values():
                (self._part / name).replace(self._folder / name)


_KINDS: Final[Columns] = {
    **dict.fromkeys(("prompt", "completion", "chosen", "rejected"), Column.MESSAGES),
    "tools": Column.JSON,
    **dict.fromkeys(
        ("label_from", "task", "group", "split", "env", "trajectory_id", "sample_id", "source", "model"), Column.TEXT
    ),
    "trajectory_ids": Column.TEXTS,
    **dict.fromkeys(
        ("margin", "reward", "value", "success_rate", "reward_mean", "reward_std", "eval_overlap", "tail_share"),
        Column.NUMBER,
    ),
    "rewards": Column.NUMBERS,
    **dict.fromkeys(("step", "turn", "chars", "attempts", "labelled"), Column.COUNT),
    **dict.fromkeys(("label", "success", "truncated", "masked", "weak"), Column.FLAG),
    "successes": Column.FLAGS,
}
"""What each column holds; those of one side of a pair have its name in front: chosen_reward."""
_PLACE: Final = ("task", "group", "split", "env")
_SIDE: Final = ("trajectory_id", "sample_id", "source", "step", "model", "reward", "success", "truncated", "chars")
_SIDES: Final = tuple(f"{side}_{name}" for side in ("chosen", "rejected") for name in _SIDE)
_MARKS: Final = ("eval_overlap", "masked")
_PAIR: Final = (
    "prompt", "chosen", "rejected", "tools", "margin", "label_from",
    "turn", "chosen_attempts", "rejected_attempts", "weak", "chosen_value", "rejected_value",
)  # fmt: skip
COLUMNS: Final[Mapping[ExportKind, tuple[str, ...]]] = {
    ExportKind.PAIRS: (*_PAIR, *_PLACE, *_SIDES, *_MARKS),
    ExportKind.KTO: ("prompt", "completion", "label", "tools", "label_from", "turn", *_PLACE, *_SIDE, *_MARKS),
    ExportKind.SFT: ("prompt", "completion", "tools", "turn", *_PLACE, *_SIDE, *_MARKS),
    ExportKind.GRPO: (
        "prompt", "tools", "attempts", "labelled", "success_rate", "reward_mean", "reward_std", "rewards", "successes",
        "trajectory_ids", "task", "split", "env", "source", *_MARKS,
    ),
    ExportKind.STEPS: (*_PAIR, *_PLACE, *_SIDES, *_MARKS),
}  # fmt: skip
TAIL_SHARE: Final = "tail_share"
"""Of a pair with --from-tail: the share of all tail tokens of joined episodes that its two episodes hold."""

Overlap = Callable[[Sequence[Chat]], float | None]


def columns_of(kind: ExportKind, *, with_tail: bool) -> Columns:
    """Return the columns of an export."""
    names = (*COLUMNS[kind], *((TAIL_SHARE,) if with_tail and kind is ExportKind.PAIRS else ()))
    return {name: _KINDS[name.removeprefix("chosen_").removeprefix("rejected_")] for name in names}


def pair_row(pair: Pair, overlap: Overlap) -> dict[str, Any]:
    """Return the row of a pair; provenance is that of the episodes its sides are taken from."""
    return {
        "prompt": pair.prompt.texts,
        "chosen": pair.chosen.texts,
        "rejected": pair.rejected.texts,
        "tools": pair.better.tools,
        "margin": pair.margin,
        "label_from": pair.label_from,
        "turn": pair.turn,
        "chosen_attempts": pair.attempts[0],
        "rejected_attempts": pair.attempts[1],
        "weak": pair.is_weak,
        "chosen_value": pair.values[0],
        "rejected_value": pair.values[1],
        **_place(pair.better),
        **_side("chosen_", pair.better, pair.chosen),
        **_side("rejected_", pair.worse, pair.rejected),
        "eval_overlap": overlap((pair.prompt, pair.chosen, pair.rejected)),
        "masked": pair.better.masked + pair.worse.masked > 0,
    }


def episode_row(attempt: Attempt, chat: Conversation, turn: int | None, overlap: Overlap) -> dict[str, Any]:
    """Return the row of one episode, or of one turn of it, for SFT; KTO adds its label."""
    return {
        "prompt": chat.prompt.texts,
        "completion": chat.completion.texts,
        "tools": attempt.tools,
        "turn": turn,
        **_place(attempt),
        **_side("", attempt, chat.completion),
        "eval_overlap": overlap((chat.prompt, chat.completion)),
        "masked": attempt.masked > 0,
    }


@dataclass
class PromptRow:
    """One prompt with the outcomes of all attempts at it, for GRPO and other training on prompts."""

    attempt: Attempt  # the first
    rewards: list[float | None] = field(default_factory=list)
    successes: list[bool | None] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)

    def add(self, attempt: Attempt) -> None:
        """Take an attempt, whatever its outcome."""
        self.rewards.append(attempt.reward)
        self.successes.append(attempt.success)
        self.ids.append(attempt.trajectory_id)

    def row(self, overlap: Overlap) -> dict[str, Any]:
        """Return the row; what no file labels is null."""
        known = [success for success in self.successes if success is not None]
        rewards = [reward for reward in self.rewards if reward is not None]
        mean = sum(rewards) / len(rewards) if rewards else None
        spread = sum((reward - mean) ** 2 for reward in rewards) if mean is not None else 0.0
        facts = self.attempt.facts
        return {
            "prompt": self.attempt.chat.prompt.texts,
            "tools": self.attempt.tools,
            "attempts": len(self.ids),
            "labelled": sum(
                reward is not None or success is not None
                for reward, success in zip(self.rewards, self.successes, strict=True)
            ),
            "success_rate": sum(known) / len(known) if known else None,
            "reward_mean": mean,
            "reward_std": (spread / len(rewards)) ** 0.5 if rewards else None,
            "rewards": self.rewards,
            "successes": self.successes,
            "trajectory_ids": self.ids,
            **{name: facts[name] for name in ("task", "split", "env", "source")},
            "eval_overlap": overlap((self.attempt.chat.prompt,)),
            "masked": self.attempt.has_masked_prompt,
        }


def is_templated(prompt: Chat) -> bool:
    """Return whether a prompt holds markers of a chat template."""
    return any(map(holds_template, prompt.said))


def _place(attempt: Attempt) -> dict[str, Any]:
    facts = attempt.facts
    return {"task": facts["task"], "group": facts["group_id"], "split": facts["split"], "env": facts["env"]}


def _side(prefix: str, attempt: Attempt, completion: Chat) -> dict[str, Any]:
    facts = attempt.facts
    values = {
        "trajectory_id": attempt.trajectory_id,
        "reward": attempt.reward,
        "chars": completion.length,
        **{name: facts[name] for name in ("sample_id", "source", "step", "model", "success", "truncated")},
    }
    return {prefix + name: value for name, value in values.items()}
