"""Episodes without their messages, a row each: reward, how the episode ended, and whether it counts in the loss.

What is left where texts are not saved: rLLM's workflow episodes (`termination_reason`, `is_correct`, `trajectories`
with a reward each; rllm-org/rllm, rllm/types.py), NeMo-Gym's rollouts without request (`_ng_task_index`,
`failure_reason`, `mask_sample`; NVIDIA-NeMo/Gym, nemo_gym/rollout_collection.py), slime's and miles' samples (`status`,
`rollout_id`, `weight_versions`; THUDM/slime, slime/utils/types.py), and home-made rows of the same names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.io.interface import Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.record_files import holds, records, splits
from ptt.diagnostics.parsers.io.record_labels import REWARDS, dumped_at, labels_of, split_of, step_of
from ptt.diagnostics.parsers.io.trajectories import Samples, read_samples
from ptt.diagnostics.parsers.io.values import (
    as_error,
    as_flag,
    as_int64,
    as_label,
    as_name,
    as_number,
    as_step,
    dict_of,
    dicts_in,
    digest,
    nested,
)

ENDINGS: Final = (
    "failure_reason", "termination_reason", "stop_condition", "stop_reason", "exit_status", "error_type", "error",
    "status",
)  # fmt: skip
ERRORS: Final = ("failure_reason", "error_type", "exception_type", "error", "failure_class", "_ng_failure_class")
MASKS: Final = ("mask_sample", "masked", "is_masked")
TURNS: Final = ("num_steps", "num_turns", "n_turns")
CALLS: Final = ("num_tool_calls", "n_tool_calls", "total_tool_calls")
STEPS: Final = ("step", "rollout_id")
DEFAULT: Final = "default"  # SGLang's weight version before the first update
TEXTS: Final = frozenset(
    {"messages", "conversations", "conversation", "prompt", "completion", "responses_create_params", "trajectory",
     "history", "steps", "traces", "nodes", "output", "text", "input_prompt", "output_response"}
)  # fmt: skip
"""Members that hold what was said: another parser's rows."""
NO_EPISODE: Final = "row(s) skipped: no episode with a step and an end."


def recognises(file: RunFile) -> bool:
    """Recognise rows with a step, of their own or of the file's path, a reward and an ending, and without texts."""
    return holds(file, lambda found: _is_row(file, found))


def _is_row(file: RunFile, found: Any) -> bool:
    if not isinstance(found, dict) or found.keys() & TEXTS or not found.keys() & {*ENDINGS, *MASKS}:
        return False
    rewarded = bool(found.keys() & {*REWARDS, "is_correct"})
    return (
        rewarded
        and _step(file, found) is not None
        and not any("steps" in part for part in dicts_in(found.get("trajectories")))
    )


def _step(file: RunFile, row: dict[str, Any]) -> int | None:
    step = step_of(row)
    if step is None:
        step = next((count for key in STEPS if (count := as_step(row.get(key))) is not None), None)
    return dumped_at(file, row) if step is None else step


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory an episode."""
    yield from read_samples(
        Samples(file, PARSER.name), records(file, lambda found: _is_row(file, found)), _add, NO_EPISODE
    )


def _add(row: dict[str, Any], samples: Samples) -> bool:
    if not _is_row(samples.file, row):
        return False
    labels = labels_of(row)
    named = labels.columns
    task = as_label(row.get("_ng_task_index")) or named["task"]
    env = as_name(nested(row, "agent_ref", "name")) or named["env"]
    attempt = as_label(row.get("_ng_rollout_index"))
    identity = named["sample_id"] or (None if attempt is None or task is None else f"{task}/{attempt}")
    step = _step(samples.file, row)
    samples.put(
        samples.new_id(digest([PARSER.name, step, env, identity])),
        {
            **named,
            "sample_id": identity,
            "step": step,
            "split": _split(samples.file, row),
            "reward": _reward(row, labels.reward),
            "group_id": named["group_id"] or task,
            "task": task,
            "env": env,
            "n_turns": count_in(row, TURNS),
            "n_tool_calls": count_in(row, CALLS),
            "error_type": next((name for key in ERRORS if (name := as_error(row.get(key)))), None),
            "masked": next((flag for key in MASKS if (flag := as_flag(row.get(key))) is not None), None),
            "tokens_out": _tokens(row) if named["tokens_out"] is None else named["tokens_out"],
            "stop_reason": named["stop_reason"] or as_label(row.get("status")),
            "policy_version": _version(row),
        },
    )
    return True


def _split(file: RunFile, row: dict[str, Any]) -> str:
    split = split_of(file, row)
    return "train" if split == "unknown" and file.name.startswith("train") else split


def _reward(row: dict[str, Any], own: float | None) -> float | None:
    """Return the episode's reward: its own, else the sum over its agents; None of an episode that never began."""
    if own is not None or "trajectories" not in row:
        return own
    parts = [as_number(part.get("reward")) for part in dicts_in(row["trajectories"])]
    given = [part for part in parts if part is not None]
    return sum(given) if given else None


def count_in(row: dict[str, Any], names: tuple[str, ...]) -> int | None:
    """Return the first of these members that is a count."""
    return next((count for name in names if (count := as_step(row.get(name))) is not None), None)


def _version(row: dict[str, Any]) -> int | None:
    """Return the oldest version that sampled the episode; an engine that got no weights yet calls its own `default`."""
    told = row.get("weight_versions", row.get("weight_version"))
    versions = [0 if one == DEFAULT else as_int64(one) for one in (told if isinstance(told, list) else [told])]
    return min((one for one in versions if one is not None), default=None)


def _tokens(row: dict[str, Any]) -> int | None:
    return as_step(nested(dict_of(row.get("response")), "usage", "output_tokens"))


PARSER = Parser(
    name="episode_ledger",
    describes="Episodes without messages, a row each (rLLM's workflows, NeMo-Gym, home-made): reward, end, mask.",
    held_against="source: rllm-org/rllm `rllm/types.py` and NVIDIA-NeMo/Gym `nemo_gym/rollout_collection.py`",
    priority=10,
    of_training=False,
    splits=splits,
    recognises=recognises,
    read=read,
)
