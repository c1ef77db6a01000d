"""NeMo: rollouts of NeMo-Gym, and NeMo-RL's tokens of training and conversations of validation.

Rows of `ng_collect_rollouts` (NVIDIA-NeMo/Gym nemo_gym/rollout_collection.py, 07d6b0d): responses_create_params,
response, reward, and what the verifier of the environment adds; `_ng_task_index` names the task and
`_ng_rollout_index` the attempt. Read in resources_servers/*/data/example_rollouts.jsonl and
responses_api_agents/*/data/example_rollouts*.jsonl there. What the model reasons, says and calls between two inputs is
one turn; what stands in the request is the prompt, earlier turns of the model too.

`train_data_step{N}.jsonl`, which NeMo-RL writes by default, holds log-probabilities of engine and trainer. One row a
sample, each field in a list of one; all lists cover prompt and response and are padded to the longest row of the batch.
Entry t is the log-probability of token t, 0.0 where nothing was generated. Written from nemo_rl/algorithms/grpo.py by
`Logger.log_batched_dict_as_jsonl` (NVIDIA-NeMo/RL, nemo_rl/utils/logger.py).

`val_data_step{N}.jsonl` (its `validate`) has one row a sample: `content` a list of messages, or one within a list of
one, `rewards` and `idx`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import polars as pl

from ptt.diagnostics.flat_lists import as_lists, flatten
from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, Rows, RunFile, lost_notes
from ptt.diagnostics.parsers.io.lines import first_objects, line_objects
from ptt.diagnostics.parsers.io.message_graphs import call_rows, turn_rows
from ptt.diagnostics.parsers.io.record_files import holds, records, splits
from ptt.diagnostics.parsers.io.record_labels import CUT_SHORT, STEPS, labels_of, split_of, step_of, tools_of
from ptt.diagnostics.parsers.io.response_items import messages_of_items
from ptt.diagnostics.parsers.io.token_lines import Shape, frames, lost_rows, responses
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, messages_of, read_samples
from ptt.diagnostics.parsers.io.values import (
    as_error,
    as_flag,
    as_hash,
    as_json,
    as_label,
    as_name,
    as_number,
    as_plain_number,
    as_score,
    dict_of,
    dicts_in,
    nested,
)
from ptt.diagnostics.schema import SEQUENCES
from ptt.diagnostics.wording import counted

REQUEST: Final = "responses_create_params"
GYM_KEYS: Final = frozenset({REQUEST, "response", "reward"})
TRAJECTORY: Final = "ng_trajectory"  # a record of its own beside the response, with the outcomes of calls
CALL_IDS: Final = ("call_id", "tool_call_id", "id")
OUTCOMES: Final = {"completed": False, "failed": True, "error": True, "timeout": True, "timed_out": True}
PARTS: Final = "reward_components"
TIMEOUTS: Final = ("agent_timed_out", "eval_timed_out", "container_timed_out")
ERRORS: Final = (
    "agent_error_kind",
    "error_kind",
    "failure_kind",
    "exception_type",
    "failure_reason",
    "_ng_failure_class",
)
NO_ROLLOUT: Final = "row(s) skipped: no response with a list of output."


def recognises_gym(file: RunFile) -> bool:
    """Recognise rows by request, response and reward."""
    return holds(file, _is_row)


def _is_row(found: Any) -> bool:
    if not isinstance(found, dict) or not found.keys() >= GYM_KEYS - {REQUEST}:
        return False
    return isinstance(found.get(REQUEST), dict) or isinstance(nested(found, TRAJECTORY, "invocations"), list)


def read_gym(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a rollout."""
    yield from read_samples(Samples(file, GYM.name), records(file, _is_row), _add, NO_ROLLOUT)
    yield Context(facts={"framework": "nemo-gym"})


def _add(row: dict[str, Any], samples: Samples) -> bool:
    request, response = dict_of(row.get(REQUEST)), dict_of(row.get("response"))
    output, reward = response.get("output"), as_number(row.get("reward"))
    recorded = dict_of(row.get(TRAJECTORY))
    if not isinstance(output, list):  # of some agents the record alone has it
        output = nested(next(iter(dicts_in(recorded.get("invocations"))), None), "conversation")
    if not isinstance(output, list):
        return False
    if output and isinstance(output[-1], list):  # Aviary's agent gives the conversation as it stood after each step
        output = output[-1]
    asked = _asked(request)
    messages = _with_outcomes(messages_of_items(samples.objects(output)), dicts_in(recorded.get("tool_calls")))
    agent, number = as_label(nested(row, "agent_ref", "name")), as_label(row.get("_ng_task_index"))
    attempt = as_label(row.get("_ng_rollout_index"))
    columns = labels_of(row).columns
    task = columns["task"] or (None if number is None else f"{agent or 'task'}/{number}")
    stop = as_name(nested(response, "incomplete_details", "reason"))
    samples.add(
        Sample(
            step=step_of(row) if row.keys() & set(STEPS) else None,
            split=split_of(samples.file, row),
            completion=messages,
            identity=[agent, number, attempt, asked, messages, reward],
            prompt=[[message.get("role"), message.get("content")] for message in asked],
            reward=reward,
            components={name: as_score(value) for name, value in dict_of(row.get(PARTS)).items()},
            asked=asked,
            tools=tools_of([response, request]),
            columns=columns
            | {
                "sample_id": None if number is None else f"{agent or 'task'}/{number}/{attempt}",
                "group_id": columns["group_id"] or (None if number is None else f"{agent or 'task'}/{number}"),
                "env": agent or columns["env"],
                "task": task,
                "model": as_label(response.get("model") or request.get("model")),
                "truncated": _truncated(row, stop),
                "stop_reason": stop or as_name(response.get("native_finish_reason")),
                "error_type": _error(row, response),
                "masked": as_flag(row.get("mask_sample")),
                "tokens_in": _tokens(response, "input_tokens"),
                "tokens_out": _tokens(response, "output_tokens"),
                "cost_usd": as_number(nested(response, "usage", "cost")),
                "tools_required": _required(row),
            },
        )
    )
    return True


def _asked(request: dict[str, Any]) -> list[dict[str, Any]]:
    found, system = request.get("input"), request.get("instructions")
    messages = [{"role": "user", "content": found}] if isinstance(found, str) else messages_of_items(dicts_in(found))
    return [{"role": "system", "content": system}, *messages] if isinstance(system, str) and system else messages


def _with_outcomes(messages: list[dict[str, Any]], calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mark the results of calls whose outcome Gym recorded."""
    told: dict[str, Any] = {}
    for call in calls:
        name = next((as_name(call[key]) for key in CALL_IDS if as_name(call.get(key))), None)
        status = as_name(call.get("status"))
        if name is not None and status in OUTCOMES:
            told[name] = {"type": as_name(call.get("error_type"))} if OUTCOMES[status] else False
    return [
        one | {"error": told[one["tool_call_id"]]}
        if one.get("role") == "tool" and "error" not in one and one.get("tool_call_id") in told
        else one
        for one in messages
    ]


def _truncated(row: dict[str, Any], stop: str | None) -> bool | None:
    flag = as_flag(row.get("truncated"))
    return stop in CUT_SHORT if flag is None and stop is not None else flag


def _error(row: dict[str, Any], response: dict[str, Any]) -> str | None:
    named = next((kind for key in ERRORS if (kind := as_error(row.get(key)))), None)
    timeout = next((key.removesuffix("_timed_out") + "_timeout" for key in TIMEOUTS if row.get(key) is True), None)
    return named or timeout or as_name(nested(response, "error", "code"))


def _tokens(response: dict[str, Any], key: str) -> int | None:
    """Return a count of tokens; agents that do not count leave 0."""
    count = nested(response, "usage", key)
    return count if type(count) is int and 0 < count < 1 << 53 else None


def _required(row: dict[str, Any]) -> list[str] | None:
    """Return the tool of the step that a right answer makes, where the environment compares with one."""
    action = row.get("expected_action")
    name = as_name(nested(action, "name")) if nested(action, "type") == "function_call" else None
    return [name] if name else None


GYM = Parser(
    name="nemo_gym",
    describes="NeMo-Gym's collected rollouts: trajectories with rewards by task and attempt, turns, tool calls.",
    held_against="real: NeMo-Gym's example_rollouts.jsonl",
    priority=10,
    of_training=False,
    splits=splits,
    recognises=recognises_gym,
    read=read_gym,
)


TRAINING_NAME: Final = re.compile(r"train_data_step(\d{1,15})\.jsonl(?:\.gz|\.zst)?", re.ASCII)
TOKENS_KEYS: Final = frozenset({"token_ids", "token_loss_mask", "input_lengths"})
FLOATS: Final = pl.List(pl.List(pl.Float32))
SHAPE: Final[Shape] = {
    "idx": pl.Int64(),
    "input_lengths": pl.List(pl.Int64),
    "rewards": pl.List(pl.Float64),
    "sample_loss_mask": pl.List(pl.Float64),
    "token_ids": pl.List(pl.List(pl.Int32)),
    "token_loss_mask": FLOATS,
    "advantages": FLOATS,
    "generation_logprobs": FLOATS,
    "prev_logprobs": FLOATS,
}
WHOLE: Final = "whole"  # the token ids with the prompt
LISTS: Final = {
    "token_ids": "token_ids",
    "advantages": "advantage",
    "generation_logprobs": "rollout_logp",
    "prev_logprobs": "old_logp",
}


def recognises_tokens(file: RunFile) -> bool:
    """Recognise a file by the name, which holds the step, and the keys of the first row."""
    return TRAINING_NAME.fullmatch(file.name) is not None and any(
        record.keys() >= TOKENS_KEYS for record in first_objects(file, 1)
    )


def read_tokens(file: RunFile) -> Iterator[Piece]:
    """Yield sequences from the first generated token to the row's own length."""
    named = TRAINING_NAME.fullmatch(file.name)
    if named is None:
        yield Lost(bytes=file.size, note=f"{file.rel}: its name has no step, so its rows were skipped.")
        return
    step = int(named[1])
    wrong = empty = forced = rows = 0
    for frame in frames(file, SHAPE):
        if isinstance(frame, Lost):
            yield frame
            continue
        sequences, unequal, silent = _sequences(frame, step, rows)
        rows += frame.height
        wrong, empty = wrong + unequal, empty + silent
        if sequences.height and "old_logp" not in sequences.columns:
            forced += sequences.height
        if sequences.height:
            yield Rows(table="sequences", frame=sequences)
    yield from lost_rows(file, wrong, empty)
    if forced:
        note = (
            f"{file.rel}: prev_logprobs left out of {counted(forced, 'row(s)')}: they are 0 on every token, as NeMo-RL "
            "leaves them under loss_fn.force_on_policy_ratio=true."
        )
        yield Lost(note=note)
    yield Context(facts={"framework": "nemo-rl"})


def _sequences(frame: pl.DataFrame, step: int, before: int) -> tuple[pl.DataFrame, int, int]:
    """Unwrap the rows and bring them to canonical columns; `before` rows of the file were read already."""
    inner = [name for name in SHAPE if name != "idx"]
    frame = frame.with_row_index("_row", offset=before).with_columns(pl.col(inner).list.first())
    frame, wrong, empty = responses(
        frame.with_columns(pl.col("token_ids").alias(WHOLE)),
        mask="token_loss_mask",
        lists=tuple(LISTS),
        end="input_lengths",
    )
    if not frame.height:
        return frame, wrong, empty
    rows = frame.rename({**LISTS, "token_loss_mask": "model_mask", "rewards": "reward"}).with_columns(
        _prompt_groups(frame, step),
        _trained(frame),
        step=pl.lit(step, pl.Int64),
        sample_id=pl.format("{}-{}", pl.lit(step), pl.coalesce(pl.col("idx"), pl.col("_row").cast(pl.Int64))),
    )
    rows = rows.select(name for name in SEQUENCES if name in rows.columns)
    return rows if np.any(flatten(rows["old_logp"].fill_null([]))[1]) else rows.drop("old_logp"), wrong, empty


def _trained(frame: pl.DataFrame) -> pl.Series:
    """Mark the tokens that got gradient: the model's, of samples that were not masked out as a whole."""
    mask = frame["token_loss_mask"]
    if not (frame["sample_loss_mask"] == 0).any():
        return mask.alias("train_mask")
    offsets, values = flatten(mask.list.eval(pl.element().fill_null(value=False)))  # a null says nothing of a token
    counted = frame["sample_loss_mask"].fill_null(1.0).to_numpy() != 0
    return as_lists(values & np.repeat(counted, np.diff(offsets)), offsets).alias("train_mask")


def _prompt_groups(frame: pl.DataFrame, step: int) -> pl.Series:
    """Name groups by their prompt, which all generations of a group share; NeMo-RL itself names none."""
    offsets, values = flatten(frame[WHOLE])
    ends = (offsets[:-1] + frame["start"].to_numpy()).tolist()
    names = [
        f"{step}-{blake2b(values[start:end].tobytes(), digest_size=8).hexdigest()}" if end > start else None
        for start, end in zip(offsets[:-1].tolist(), ends, strict=True)
    ]
    return pl.Series("group_id", names, dtype=pl.String)


TOKENS = Parser(
    name="nemo_tokens",
    describes="NeMo-RL's train_data_step*.jsonl: log-probabilities of engine and trainer token by token, rewards.",
    held_against="real: NeMo-RL's own logger, replaying a recorded run",
    priority=10,
    recognises=recognises_tokens,
    read=read_tokens,
)


VALIDATION_NAME: Final = re.compile(r"val_data_step(\d{1,15})\.jsonl(?:\.gz|\.zst)?", re.ASCII)
BAD_LINES: Final = "line(s) skipped: no conversation."
VALIDATION_KEYS: Final = frozenset({"content", "rewards"})


def recognises_validation(file: RunFile) -> bool:
    """Recognise a file by the name, which holds the step, and the keys of the first row."""
    return VALIDATION_NAME.fullmatch(file.name) is not None and any(
        row.keys() >= VALIDATION_KEYS for row in first_objects(file, 1)
    )


def read_validation(file: RunFile) -> Iterator[Piece]:
    """Yield trajectories of the evaluation split with their turns, and the mean reward."""
    named = VALIDATION_NAME.fullmatch(file.name)
    if named is None:
        yield Lost(bytes=file.size, note=f"{file.rel}: its name has no step, so its rows were skipped.")
        return
    step, samples = int(named[1]), Samples(file, VALIDATION.name)
    count = bad = 0
    for row in line_objects(file):
        if isinstance(row, Lost):
            yield row
            continue
        messages = None if row is None else _messages(row.get("content"))
        if row is None or messages is None:
            bad += 1
            continue
        reward = _first(row.get("rewards"))
        nodes = [{"message": message, "token_ids": message.get("token_ids")} for message in messages]
        calls = call_rows(nodes)
        columns = {
            "step": step,
            "split": "eval",
            "prompt_hash": as_hash(as_json(messages[0].get("content"))) if messages else None,
            "reward": reward,
            "n_turns": sum(message.get("role") == "assistant" for message in messages),
        }
        turns = turn_rows(nodes, keep_text=file.keep_text)
        samples.put(f"val-{step}-{count}", columns, turns=turns, calls=calls)
        samples.keep_conversation(f"val-{step}-{count}", messages)
        samples.mean("validation", step, "reward", reward)
        count += 1
        if samples.full:
            yield from samples.take()
    yield from samples.close()
    yield from lost_notes(file, {BAD_LINES: bad})
    yield Context(facts={"framework": "nemo-rl"})


def _messages(content: Any) -> list[dict[str, Any]] | None:
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], list):
        content = content[0]
    return messages_of(content)


def _first(value: Any) -> float | None:
    return as_plain_number(value[0] if isinstance(value, list) and len(value) == 1 else value)


VALIDATION = Parser(
    name="nemo_validation",
    describes="NeMo-RL's val_data_step*.jsonl: conversations of a validation, rewards and their mean.",
    held_against="source: NVIDIA-NeMo/RL `nemo_rl/utils/logger.py`",
    priority=12,
    of_training=False,
    recognises=recognises_validation,
    read=read_validation,
)
