"""verifiers' `results.jsonl` (up to 0.3) and prime-rl's `train_rollouts.jsonl` of that time: one rollout a line.

Texts, rewards and how a rollout ended; the tokens some columns may hold come with the engine's log-probabilities alone,
which make no pair, and are passed over. Fields as in verifiers' `RolloutOutput` (PrimeIntellect-ai/verifiers,
verifiers/legacy/types.py and legacy/utils/save_utils.py at a60a606), and as vf-eval of 0.1 wrote them, where the
example is `id` and each reward function is a column (willccbb/verifiers at 39f0675,
environments/math_python/outputs/evals/math-python--gpt-4.1-mini/dbaac595/results.jsonl).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ptt.diagnostics.parsers.io.answer_texts import success_of
from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.json_documents import members
from ptt.diagnostics.parsers.io.lines import first_objects, line_objects, parse_json, text_head
from ptt.diagnostics.parsers.io.message_graphs import step_of_folder
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, messages_of, read_samples
from ptt.diagnostics.parsers.io.values import (
    as_count,
    as_flag,
    as_id,
    as_name,
    as_plain_number,
    dict_of,
    dicts_in,
    nested,
)

KEYS: Final = frozenset({"prompt", "completion", "reward"})
EXAMPLE: Final = "example_id"
EARLIER: Final = frozenset({"info", "answer", "generation_ms"})  # one of them, and `task`, where there is no example
OWN: Final = frozenset(
    {"id", EXAMPLE, "reward", "generation_ms", "scoring_ms", "total_ms", "is_completed", "is_truncated", "advantage"}
)
DOCUMENT: Final = re.compile(rb"\s*+\{\s*+\"(?:metadata|outputs)\"\s*+:")
DOCUMENT_KEYS: Final = (b'"completion"', b'"prompt"', b'"reward"')
TRAINING: Final = "train_rollouts.jsonl"
NO_ROLLOUT: Final = "line(s) skipped: no rollout."


def recognises(file: RunFile) -> bool:
    """Recognise a file by the keys of the first row, or a document by those in its head."""
    return _is_document(file) or any(_is_rollout(record.keys()) for record in first_objects(file, 1))


def _is_document(file: RunFile) -> bool:
    """Return whether this is one document of `metadata` and `outputs`, as later versions dump it."""
    head = text_head(file)
    return DOCUMENT.match(head) is not None and all(key in head for key in DOCUMENT_KEYS)


def _rollouts(file: RunFile) -> Iterator[dict[str, Any] | Piece | None]:
    """Yield the rollouts of a document."""
    for member in members(file, frozenset({"outputs"})):
        if isinstance(member, Lost):
            yield member
        elif member[0] == "outputs":
            yield member[1] if isinstance(member[1], dict) else None


def _is_rollout(keys: Any) -> bool:
    return keys >= KEYS and (EXAMPLE in keys or ("task" in keys and not EARLIER.isdisjoint(keys)))


def read(file: RunFile) -> Iterator[Piece]:
    """Yield trajectories, turns, tool calls and reward components."""
    rows = _rollouts(file) if _is_document(file) else line_objects(file)
    yield from read_samples(Samples(file, PARSER.name), rows, _add, NO_ROLLOUT)
    yield Context(facts={"framework": "prime-rl" if file.name == TRAINING else "verifiers"})


def _add(record: dict[str, Any], samples: Samples) -> bool:
    """Add one rollout to the tables; False where it holds no messages."""
    prompt, completion = _messages(record.get("prompt"), "user"), _messages(record.get("completion"), "assistant")
    if prompt is None or completion is None:
        return False
    example = record.get(EXAMPLE, record.get("id"))
    error, step = record.get("error"), step_of_folder(samples.file)
    scores = _scores(record)
    tools = dicts_in(record.get("tool_defs")) or dicts_in(record.get("oai_tools"))
    tools = tools or dicts_in(nested(record, "info", "oai_tools"))
    usage = dict_of(record.get("token_usage"))
    samples.add(
        Sample(
            step=step,
            split="train" if samples.file.name == TRAINING else "eval",
            completion=[*prompt, *completion],
            identity=[example, prompt, completion, record.get("reward"), step],
            prompt=prompt,
            reward=as_plain_number(record.get("reward")),
            components=scores,
            tools=tools,
            columns={
                "n_turns": sum(message.get("role") == "assistant" for message in completion),
                "group_id": as_id(example),
                "task": as_id(example),
                "env": as_name(record.get("task")) or as_name(record.get("env_id")),
                "model": as_name(record.get("model")),
                "advantage": as_plain_number(record.get("advantage")),
                "success": success_of(scores),
                "tokens_in": as_count(usage.get("input_tokens")),
                "tokens_out": as_count(usage.get("output_tokens")),
                "truncated": as_flag(record.get("is_truncated")),
                "stop_reason": as_name(record.get("stop_condition")),
                "error_type": as_name(error.get("error") if isinstance(error, dict) else error),
            },
        )
    )
    return True


def _scores(record: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the reward functions' scores: `metrics`, or all columns of numbers that are none of the rollout's own."""
    if metrics := dict_of(record.get("metrics")):
        return {name: as_plain_number(score) for name, score in metrics.items()}
    numbers = ((name, as_plain_number(score)) for name, score in record.items() if name not in OWN)
    return {name: score for name, score in numbers if score is not None}


def _messages(content: Any, role: str) -> list[dict[str, Any]] | None:
    """Return messages, with calls that were written as texts of JSON unpacked."""
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    messages = messages_of([] if content is None else content)
    for message in messages or ():
        if isinstance(calls := message.get("tool_calls"), list):
            message["tool_calls"] = [_unpacked(call) for call in calls]
    return messages


def _unpacked(call: Any) -> Any:
    if not isinstance(call, str):
        return call
    found = parse_json(call)  # a text of some other kind: no call that could be named
    return found if isinstance(found, dict) else {}


def _between_rollouts(before: bytes, after: bytes) -> bool:
    """Let a file be cut between two rollouts, and a document nowhere."""
    return before.startswith(b"{") and after.startswith(b"{")


PARSER = Parser(
    name="verifiers_results",
    describes="verifiers' results.jsonl (up to 0.3): trajectories, turns, tool calls, rewards; texts on request.",
    held_against="real: vf-eval 0.1 results; source: PrimeIntellect-ai/verifiers, legacy types",
    priority=12,
    of_training=False,
    splits=_between_rollouts,
    recognises=recognises,
    read=read,
)
