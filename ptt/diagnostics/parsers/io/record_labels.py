"""Read a record's labels, besides its messages: reward, success, task, model, cost, tools, step and split.

Trace writers name the same things differently. A label is taken only under an unambiguous name, from the record itself
or from the metadata object beside its messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.parsers.io.answer_texts import as_success
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.parsers.io.lines import parse_json
from ptt.diagnostics.parsers.io.trajectories import EVALUATION, TRAINING, split_of_path
from ptt.diagnostics.parsers.io.values import (
    as_count,
    as_int64,
    as_label,
    as_name,
    as_number,
    as_score,
    as_seconds,
    as_step,
    dict_of,
    dicts_in,
    nested,
)

Found = TypeVar("Found")
REWARDS: Final = ("reward", "total_reward", "final_reward", "reward_score", "score", "return", "episode_reward",
                  "cumulative_reward", "episode_return", "total_return", "final_score", "total_score",
                  "overall_score")  # fmt: skip
NAMES: Final[dict[str, tuple[str, ...]]] = {
    "reward": REWARDS,
    "success": ("success", "is_success", "successful", "succeeded", "resolved", "is_resolved", "solved", "is_solved",
                "passed", "is_correct", "correct", "task_success", "is_successful", "is_passed", "task_completed",
                "goal_achieved", "goal_reached", "exact_match", "em", "win", "won", "utility"),
    "sample_id": ("trajectory_id", "conversation_id", "session_id", "rollout_id", "sample_id", "uuid", "uid", "id"),
    "group_id": ("group_id", "prompt_group", "prompt_uid"),
    "task": ("task_id", "task", "instance_id", "example_id", "problem_id", "question_id", "task_name", "prompt_id"),
    "env": ("env", "env_name", "env_id", "environment", "domain", "dataset", "data_source", "source"),
    "model": ("model", "model_name", "model_id", "model_name_or_path", "llm"),
    "stop_reason": ("finish_reason", "stop_reason", "termination_reason", "stop_condition", "exit_status",
                    "exit_reason"),
    "truncated": ("truncated", "is_truncated"),
    "error_type": ("error_type", "exception_type"),
    "tokens_in": ("prompt_tokens", "input_tokens", "total_input_tokens", "tokens_in"),
    "tokens_out": ("completion_tokens", "output_tokens", "total_output_tokens", "tokens_out",
                   "response_tokens", "response_length", "num_output_tokens", "generated_tokens", "gen_tokens"),
    "duration_s": ("duration_s", "duration", "elapsed_s", "elapsed", "wall_time_s", "wall_clock_s", "total_time_s"),
    "cost_usd": ("cost_usd", "total_cost_usd", "total_cost", "response_cost", "cost"),
    "components": ("rewards", "reward_components", "reward_breakdown", "scores", "metrics"),
}  # fmt: skip
"""The names of each label, the clearest first."""
MAX_NAMES: Final = 100  # more than any label has
RANKS: Final = {name: (label, rank) for label, names in NAMES.items() for rank, name in enumerate(names)}
BESIDE: Final = ("metadata", "info", "meta", "extra_info", "extra", "annotations", "labels", "outcome", "evaluation",
                 "eval", "result", "grading", "usage")  # fmt: skip
TOTALS: Final = ("rewards", "scores", "raw_reward")  # a number, or a list of one
IN_PATH: Final = re.compile(r"(?:^|[^a-z])(?:global_?|train_?)?step[_=-]?(\d{1,9})(?!\d)", re.IGNORECASE)
MATCHES: Final = ("_match", "_matches", "_matched")  # how checks against what was expected end: all must hold
STEPS: Final = ("training_step", "train_step", "global_step", "policy_step")
CUT_SHORT: Final = frozenset(
    {"length", "max_tokens", "MAX_TOKENS", "max_steps", "max_turns", "max_output_tokens", "model_length"}
)
"""What models and frameworks call an end at a limit."""
TOOLS: Final = ("tools", "functions", "tool_definitions", "available_tools", "tools_schema")
TIMES: Final = ("timestamp", "started_at", "start_time", "created_at", "created", "time", "date", "datetime")
"""When a record says that it was made; its messages may not."""
MAX_NAME: Final = 300  # characters of a task's or a model's name; longer ones are the prompt itself


@dataclass(frozen=True, kw_only=True)
class Labels:
    """A record's labels; `columns` belong to the table of trajectories, null where not given."""

    reward: float | None
    components: dict[str, float]
    columns: dict[str, Any]


def labels_of(record: Mapping[str, Any]) -> Labels:
    """Read the labels of a record: its own before those of the metadata in it, the plainest name first."""
    found: dict[str, list[tuple[int, Any]]] = {}
    for base, place in enumerate((record, *(record[key] for key in BESIDE if isinstance(record.get(key), dict)))):
        for key in RANKS.keys() & place.keys():
            label, rank = RANKS[key]
            found.setdefault(label, []).append((base * MAX_NAMES + rank, place[key]))
    columns: dict[str, Any] = dict.fromkeys(READ)
    columns |= {label: _first(values, READ[label]) for label, values in found.items() if label in READ}
    if columns["success"] is None:
        places = [record, *(record[key] for key in BESIDE if isinstance(record.get(key), dict))]
        matches = [place[key] for place in places for key in place
                   if isinstance(key, str) and key.endswith(MATCHES) and isinstance(place[key], bool)]  # fmt: skip
        columns["success"] = all(matches) if matches else None
    stop = columns["stop_reason"]
    if columns["truncated"] is None and stop is not None:
        columns["truncated"] = stop in CUT_SHORT
    return Labels(
        reward=_first(found.get("reward", []), as_number),
        components=_first(found.get("components", []), _as_components) or {},
        columns=columns,
    )


def _as_short(found: Any) -> str | None:
    label = as_label(found)
    return label if label and len(label) <= MAX_NAME else None


def _as_components(found: Any) -> dict[str, float] | None:
    parts = ((name, as_score(raw)) for name, raw in dict_of(found).items())
    return {name: value for name, value in parts if value is not None} or None


READ: Final[dict[str, Callable[[Any], Any]]] = {
    "sample_id": as_label,
    "group_id": _as_short,
    "env": _as_short,
    "success": as_success,
    "truncated": as_success,
    "stop_reason": as_label,
    "error_type": as_label,
    "task": _as_short,
    "model": _as_short,
    "tokens_in": as_int64,
    "tokens_out": as_int64,
    "cost_usd": as_number,
    "duration_s": as_number,
}
"""How a label is read; what does not fit is passed over for the next name."""


def _first(ranked: list[tuple[int, Any]], read: Callable[[Any], Found | None]) -> Found | None:
    """Return the first value by rank that can be read."""
    in_order = ranked if len(ranked) == 1 else sorted(ranked, key=lambda entry: entry[0])
    return next((value for _, raw in in_order if (value := read(raw)) is not None), None)


def told_by(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an engine's answer says about its model, its tokens, how it ended and what failed."""
    told = {key: response[key] for key in ("model", "usage", "stop_reason") if response.get(key) is not None}
    stop = next((choice.get("finish_reason") for choice in dicts_in(response.get("choices"))), None)
    stop = as_name(stop) or as_name(nested(response.get("incomplete_details"), "reason"))
    error = as_name(nested(response, "error", "code")) or as_name(nested(response, "error", "type"))
    return told | ({"stop_reason": stop} if stop else {}) | ({"error_type": error} if error else {})


def step_of(record: Mapping[str, Any]) -> int | None:
    """Return the training step; a bare `step` counts only beside a reward, since it may be an agent's step."""
    step = next((step for key in STEPS if key in record and (step := as_step(record[key])) is not None), None)
    if step is None and "step" in record and any(as_number(record.get(key)) is not None for key in REWARDS):
        step = as_step(record["step"])
    return step


def reward_of(record: Mapping[str, Any]) -> float | None:
    """Return the reward of a sample: under its usual names, else one number under a name of several, or in a list."""
    own = labels_of(record).reward
    for name in TOTALS if own is None else ():
        listed = record.get(name)
        only = listed[0] if isinstance(listed, list) and len(listed) == 1 else listed
        own = as_score(only) if own is None else own
    return own


def dumped_at(file: RunFile, record: Mapping[str, Any]) -> int | None:
    """Return the training step of a dumped sample: its own, else the one that its file's path names."""
    own = step_of(record)
    if own is None:
        named = file.look("step in the path", lambda: [int(found) for found in IN_PATH.findall(file.rel)])
        own = as_step(record["step"]) if "step" in record else next(iter(reversed(named)), None)
    return own


def split_of(file: RunFile, record: Mapping[str, Any]) -> str:
    """Return the split that a record names, else the one that its file's path shows."""
    named = as_label(record.get("split"))
    if named is not None and named.lower() in EVALUATION:
        return "eval"
    if named is not None and named.lower() in TRAINING:
        return "train"
    return file.look("split", lambda: split_of_path(file.rel))


def tools_of(places: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the definitions of the tools offered, of the first place that has some; they may be spelt as JSON."""
    for place in places:
        for key in TOOLS:
            if key in place:
                found = place[key]
                found = parse_json(found) if isinstance(found, str) else found
                if tools := dicts_in(found):
                    return tools
    return []


def timing_of(messages: Sequence[Mapping[str, Any]], record: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return when each message was written and how long it is; where none says when, the time that `record` has."""
    if not any("timestamp" in message or "created_at" in message or "usage" in message for message in messages):
        return _begun(record or {})
    timing = [
        {
            "n_tokens": as_count(labels_of({"usage": message.get("usage")}).columns["tokens_out"]),
            "t_end": as_seconds(message.get("timestamp", message.get("created_at"))),
        }
        for message in messages
    ]
    if all(one["t_end"] is None for one in timing) and (begun := _begun(record or {})):
        timing[0] |= begun[0]
    return timing


def _begun(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the time that a record names, as that of its first message."""
    times = (
        as_seconds(place[key]) for place in (record, dict_of(record.get("metadata"))) for key in TIMES if key in place
    )
    begun = next((time for time in times if time is not None), None)
    return [] if begun is None else [{"t_start": begun}]
