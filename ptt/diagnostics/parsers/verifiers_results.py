"""verifiers' `results.jsonl` (up to 0.3) and prime-rl's `train_rollouts.jsonl` of that time: one rollout a line.

Texts, rewards and how a rollout ended; the tokens some columns may hold come with the engine's log-probabilities alone,
which make no pair, and are passed over. Fields as in verifiers' `RolloutOutput` (PrimeIntellect-ai/verifiers,
verifiers/types.py before 0.4).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, Rows, RunFile
from ptt.diagnostics.parsers.io.lines import blocks, first_objects, is_torn, json_object, torn_line
from ptt.diagnostics.parsers.io.message_graphs import call_rows, step_of_folder, turn_rows
from ptt.diagnostics.parsers.io.trajectories import messages_of
from ptt.diagnostics.parsers.io.values import as_hash, as_json, as_name, as_plain_number, as_step
from ptt.diagnostics.schema import TABLES

KEYS: Final = frozenset({"example_id", "prompt", "completion", "reward"})
TRAINING: Final = "train_rollouts.jsonl"


def recognises(file: RunFile) -> bool:
    """Say yes by the keys of the first row."""
    return any(found.keys() >= KEYS for found in first_objects(file, 1))


def read(file: RunFile) -> Iterator[Piece]:
    """Yield trajectories, turns, tool calls and reward components."""
    bad = 0
    seen: Counter[str] = Counter()
    for block in blocks(file):
        if isinstance(block, Lost):
            yield block
            continue
        rows: dict[str, list[dict[str, Any]]] = {n: [] for n in ("trajectories", "rewards", "turns", "tool_calls")}
        for line in block.split(b"\n"):
            if not line.strip():
                continue
            found = json_object(line)
            if found is None and is_torn(block):
                yield torn_line(file, line)
            elif found is None or not _add(found, rows, seen, file):
                bad += 1
        for table, held in rows.items():
            if held:
                yield Rows(table=table, frame=pl.DataFrame(held, schema=TABLES[table], orient="row"))
    if bad:
        yield Lost(rows=bad, note=f"{file.rel}: {bad} line(s) hold no rollout and do not count.")
    yield Context(facts={"framework": "prime-rl" if file.name == TRAINING else "verifiers"})


def _add(found: dict[str, Any], rows: dict[str, list[dict[str, Any]]], seen: Counter[str], file: RunFile) -> bool:
    """Add one rollout to the tables; False where it holds no messages."""
    prompt, completion = _messages(found.get("prompt"), "user"), _messages(found.get("completion"), "assistant")
    if prompt is None or completion is None:
        return False
    example = found.get("example_id")
    step = step_of_folder(file)
    digest = f"{as_hash(as_json([example, prompt, completion, found.get('reward'), step])):016x}"
    repeat, seen[digest] = seen[digest], seen[digest] + 1
    key = f"{digest}-{repeat}" if repeat else digest
    nodes = [{"message": message} for message in (*prompt, *completion)]
    calls = call_rows(nodes)
    metrics = found.get("metrics")
    scores = metrics.items() if isinstance(metrics, dict) else ()
    rows["rewards"] += [{"trajectory_id": key, "name": name, "score": as_plain_number(score)} for name, score in scores]
    rows["turns"] += [{"trajectory_id": key, **turn} for turn in turn_rows(nodes, keep_text=file.keep_text)]
    rows["tool_calls"] += [{"trajectory_id": key, "step": step, **call} for call in calls]
    rows["trajectories"].append(
        {
            "trajectory_id": key,
            "step": step,
            "split": "train" if file.name == TRAINING else "eval",
            "prompt_hash": as_hash(as_json(prompt)),
            "reward": as_plain_number(found.get("reward")),
            "n_turns": sum(message.get("role") == "assistant" for message in completion),
            "n_tool_calls": len(calls),
            "n_tool_fail": sum(call["ok"] is False for call in calls),
            "group_id": None if as_step(example) is None and not isinstance(example, str) else str(example),
            "env": as_name(found.get("task")),
            "truncated": found["is_truncated"] if isinstance(found.get("is_truncated"), bool) else None,
            "stop_reason": as_name(found.get("stop_condition")),
            "error_type": _error(found.get("error")),
            "source": file.rel,
        }
    )
    return True


def _messages(found: Any, role: str) -> list[dict[str, Any]] | None:
    """Return messages, with calls that were written as texts of JSON unpacked."""
    if isinstance(found, str):
        return [{"role": role, "content": found}]
    messages = messages_of([] if found is None else found)
    for message in messages or ():
        if isinstance(calls := message.get("tool_calls"), list):
            message["tool_calls"] = [_unpacked(call) for call in calls]
    return messages


def _unpacked(call: Any) -> Any:
    if not isinstance(call, str):
        return call
    try:
        return json.loads(call)
    except (ValueError, RecursionError):  # a text of some other kind: no call that could be named
        return {}


def _error(found: Any) -> str | None:
    return as_name(found.get("error")) if isinstance(found, dict) else as_name(found)


PARSER = Parser(
    name="verifiers_results",
    describes="verifiers' results.jsonl (up to 0.3): trajectories, turns, tool calls, rewards; texts on request.",
    priority=12,
    recognises=recognises,
    read=read,
)
