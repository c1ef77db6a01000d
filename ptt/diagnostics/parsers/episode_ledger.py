"""Episodes without their messages, a row each: reward, how the episode ended, and whether it counts in the loss.

What is left where texts are not saved: rLLM's workflow episodes (`termination_reason`, `is_correct`, `trajectories`
with a reward each; rllm-org/rllm, rllm/types.py), NeMo-Gym's rollouts without request (`_ng_task_index`,
`failure_reason`, `mask_sample`; NVIDIA-NeMo/Gym, nemo_gym/rollout_collection.py), slime's and miles' samples (`status`,
`rollout_id`, `weight_versions`; THUDM/slime, slime/utils/types.py), and home-made rows of the same names.

Samples without an ending, with or without their texts, a row each: what trainers and scripts dump by step, in rows or
files that name it. Rows of one rollout's turns make one episode.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.io.answer_texts import is_right
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.lines import first_objects
from ptt.diagnostics.parsers.io.record_files import holds, records, splits
from ptt.diagnostics.parsers.io.record_labels import REWARDS, dumped_at, labels_of, reward_of, split_of, step_of
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, objects, read_samples
from ptt.diagnostics.parsers.io.values import (
    as_error,
    as_flag,
    as_int64,
    as_label,
    as_name,
    as_number,
    as_score,
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
     "history", "steps", "traces", "nodes", "output", "text"}
)  # fmt: skip
"""Members that hold what was said: another parser's rows."""
NO_EPISODE: Final = "row(s) skipped: no episode with a step and an end."


def recognises(file: RunFile) -> bool:
    """Recognise rows with a step, a reward and an ending, and without texts."""
    return holds(file, _is_row)


def _is_row(found: Any) -> bool:
    if not isinstance(found, dict) or found.keys() & TEXTS or not found.keys() & {*ENDINGS, *MASKS}:
        return False
    rewarded = bool(found.keys() & {*REWARDS, "is_correct"})
    return (
        rewarded
        and _step(found) is not None
        and not any("steps" in part for part in dicts_in(found.get("trajectories")))
    )


def _step(row: dict[str, Any]) -> int | None:
    step = step_of(row)
    return (
        next((count for key in STEPS if (count := as_step(row.get(key))) is not None), None) if step is None else step
    )


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory an episode."""
    yield from read_samples(Samples(file, PARSER.name), records(file, _is_row), _add, NO_EPISODE)


def _add(row: dict[str, Any], samples: Samples) -> bool:
    if not _is_row(row):
        return False
    labels = labels_of(row)
    named = labels.columns
    task = as_label(row.get("_ng_task_index")) or named["task"]
    env = as_name(nested(row, "agent_ref", "name")) or named["env"]
    attempt = as_label(row.get("_ng_rollout_index"))
    identity = named["sample_id"] or (None if attempt is None or task is None else f"{task}/{attempt}")
    step = _step(row)
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
            "n_turns": _count(row, TURNS),
            "n_tool_calls": _count(row, CALLS),
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


def _count(row: dict[str, Any], names: tuple[str, ...]) -> int | None:
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


SAID: Final = ("response", "completion", "output", "generation", "answer_text")
ASKED: Final = ("prompt", "question", "problem", "input", "instruction", "query")
EXPECTED: Final = ("ground_truth", "gts", "expected_answer", "reference_answer", "gold_answer")
EXTRACTED: Final = ("extracted_answer", "extracted", "predicted_answer", "prediction", "pred")
TASKS: Final = ("task_index", "prompt_index", "prompt_idx", "sample_index", "index", "idx")
ROLLOUTS: Final = ("rollout_id", "trajectory_id", "episode_id", "traj_uid")
TURN_NUMBERS: Final = ("turn", "turn_idx", "turn_index", "turn_id")
NUMBERS: Final = frozenset(
    {*STEPS, *TASKS, *TURNS, "turn", "advantage", "advantages", "entropy", "global_step", "length", "epoch"}
)
"""Numbers of a sample that are no part of its reward."""
COUNTS: Final = re.compile(r"tokens|length|_len$|count|_id$|time|seconds|logp|version|weight|rank")
NO_SAMPLE: Final = "row(s) skipped: no sample with a step and a reward."


def recognises_samples(file: RunFile) -> bool:
    """Recognise rows with a reward and a text, or with a name of their sample where several are of one step."""
    rows = first_objects(file)
    if not rows or not all(_is_sample(file, row) for row in rows):
        return False
    if all(_text(row, SAID) is not None and _text(row, ASKED) is not None for row in rows):
        return True
    several = len(rows) == 1 or max(Counter(dumped_at(file, row) for row in rows).values()) > 1
    return several and all(_names_sample(row) for row in rows)


def _is_sample(file: RunFile, row: dict[str, Any]) -> bool:
    return dumped_at(file, row) is not None and _score(row)[0] is not None


def _names_sample(row: dict[str, Any]) -> bool:
    named = labels_of(row).columns
    return any(named[label] is not None for label in ("sample_id", "group_id", "task")) or bool(row.keys() & {*TASKS})


def _text(row: dict[str, Any], names: Iterable[str]) -> str | None:
    return next((found for name in names if isinstance(found := row.get(name), str)), None)


def _score(row: dict[str, Any]) -> tuple[float | None, dict[str, float]]:
    """Return the reward of a sample and its parts; beside texts any number may be one."""
    own = reward_of(row)
    if own is not None or _text(row, SAID) is None:
        return own, {}
    parts = {
        name: value
        for name, found in row.items()
        if name not in NUMBERS and not COUNTS.search(name) and (value := as_score(found)) is not None
    }
    return (sum(parts.values()) if parts else None), parts


def read_sample_rows(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a sample, or a rollout where the rows are its turns."""
    yield from read_samples(Samples(file, SAMPLES.name), _joined(objects(file)), _add_sample, NO_SAMPLE)


def _joined(rows: Iterable[dict[str, Any] | Lost]) -> Iterator[dict[str, Any] | Lost]:
    """Put the rows of one rollout's turns, which follow each other, together: the last one's reward, all tokens."""
    held: dict[str, Any] = {}
    for row in rows:
        if isinstance(row, dict) and row.keys() & {*TURN_NUMBERS} and (name := _rollout(row)) is not None:
            if held and _rollout(held) == name:
                tokens = (labels_of(one).columns["tokens_out"] or 0 for one in (held, row))
                held = {**held, **row, "n_turns": held["n_turns"] + 1, "tokens_out": sum(tokens)}
                continue
            if held:
                yield held
            held = row | {"n_turns": 1}
            continue
        if held:
            yield held
            held = {}
        yield row
    if held:
        yield held


def _rollout(row: dict[str, Any]) -> str | None:
    return next((name for key in ROLLOUTS if (name := as_label(row.get(key))) is not None), None)


def _add_sample(row: dict[str, Any], samples: Samples) -> bool:
    step, (reward, parts) = dumped_at(samples.file, row), _score(row)
    if step is None or reward is None:
        return False
    named = labels_of(row).columns
    task = named["task"] or next((name for key in TASKS[:3] if (name := as_label(row.get(key))) is not None), None)
    said, asked, expected = _text(row, SAID), _text(row, ASKED), next((row[k] for k in EXPECTED if k in row), None)
    columns = {
        **{label: found for label, found in named.items() if found is not None},
        "group_id": named["group_id"] or task,
        "task": task,
        "env": as_name(nested(row, "agent_ref", "name")) or named["env"],
        "advantage": as_number(row.get("advantage")),
        "error_type": next((name for key in ERRORS if (name := as_error(row.get(key)))), None),
        "masked": next((flag for key in MASKS if (flag := as_flag(row.get(key))) is not None), None),
    }
    turns = _count(row, ("n_turns", *TURNS))
    columns |= {} if turns is None else {"n_turns": turns}
    split, identity = split_of(samples.file, row), [step, named["sample_id"], task, asked, said, reward]
    if said is None:
        given = as_label(row.get(next((key for key in EXTRACTED if row.get(key)), "")))
        right = None if expected is None or given is None else is_right(f"\\boxed{{{given}}}", expected)
        samples.put(
            samples.new_id(digest([SAMPLES.name, *identity])),
            {**columns, "step": step, "split": split, "reward": reward, "answer_right": right},
        )
        return True
    samples.add(
        Sample(
            step=step,
            split=split,
            completion=said,
            identity=identity,
            prompt=asked,
            reward=reward,
            components=parts,
            asked=asked,
            columns=columns,
            expected=expected,
        )
    )
    return True


SAMPLES = Parser(
    name="sample_rows",
    describes="Samples that a trainer or a script dumps, a row each: step (or in the file's name), reward, task, text.",
    held_against="source: alibaba/ROLL, NVIDIA-NeMo/RL and huggingface/trl, whose dumps have such rows",
    priority=95,
    general=True,
    of_training=False,
    recognises=recognises_samples,
    read=read_sample_rows,
)
