"""Traces that trackio keeps: messages of the OpenAI shape and metadata, logged at a step of a run.

Source: gradio-app/trackio at 2a02752, trackio/trace.py (`Trace`) and trackio/sqlite_storage.py (table `traces`;
`export_to_parquet` writes it to `{project}_traces.parquet`). The metadata is the user's own: what it calls the reward,
the task and so on is taken at its word.
"""

from __future__ import annotations

from typing import Any, Final

from ptt.diagnostics.parsers.io.answer_texts import success_of
from ptt.diagnostics.parsers.io.conversations import prompt_messages
from ptt.diagnostics.parsers.io.lines import parse_json
from ptt.diagnostics.parsers.io.message_shapes import definitions_in
from ptt.diagnostics.parsers.io.trajectories import EVALUATION, TRAINING, WORD, Sample, Samples
from ptt.diagnostics.parsers.io.values import (
    as_count,
    as_flag,
    as_label,
    as_name,
    as_score,
    as_step,
    dict_of,
    dicts_in,
)

COLUMNS: Final = ("id", "step", "key", "trace_index", "messages", "metadata")
NAMES: Final = {
    "task": ("task", "task_id", "example_id", "problem_id"),
    "group_id": ("group_id", "prompt_id", "uid"),
    "env": ("env", "environment"),
    "model": ("model", "model_name"),
    "stop_reason": ("stop_reason", "finish_reason"),
}
FLAGS: Final = ("success", "is_success", "resolved", "solved", "correct")


def add_logged(row: dict[str, Any], samples: Samples) -> bool:
    """Add one trace; False where it holds no messages."""
    messages, metadata = _read(row.get("messages")), dict_of(_read(row.get("metadata")))
    if not isinstance(messages, list) or len(dicts_in(messages)) < len(messages):
        return False
    scores = {
        name: score for name, value in metadata.items() if _is_score(name) and (score := as_score(value)) is not None
    }
    scores |= {name: score for name, value in dict_of(metadata.get("rewards")).items() if (score := as_score(value))}
    flags = [flag for name in FLAGS if (flag := as_flag(metadata.get(name))) is not None]
    samples.add(
        Sample(
            step=as_step(row.get("step")),
            split=_split(as_name(row.get("key")) or ""),
            completion=messages,
            identity=[as_name(row.get("id")), as_label(row.get("trace_index")), row.get("step"), messages],
            prompt=prompt_messages(messages),
            reward=as_score(metadata.get("reward")),
            components={name: score for name, score in scores.items() if name != "reward"},
            tools=definitions_in(metadata.get("tools")),
            columns={
                "success": flags[0] if flags else success_of(scores),
                "advantage": as_score(metadata.get("advantage")),
                "tokens_out": as_count(metadata.get("completion_tokens")),
                "truncated": as_flag(metadata.get("truncated")),
                **{
                    column: next((label for name in names if (label := as_label(metadata.get(name)))), None)
                    for column, names in NAMES.items()
                },
            },
        )
    )
    return True


def _read(found: Any) -> Any:
    return parse_json(found) if isinstance(found, (str, bytes)) else found


def _is_score(name: str) -> bool:
    words = set(WORD.findall(name.lower()))
    return bool(words & {"reward", "score", "correct", "correctness", "success"}) and name not in FLAGS


def _split(key: str) -> str:
    """Return the split that the name of a trace tells."""
    words = set(WORD.findall(key.lower()))
    return "eval" if words & EVALUATION else "train" if words & TRAINING else "unknown"
