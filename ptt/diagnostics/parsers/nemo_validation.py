"""NeMo-RL's `val_data_step{N}.jsonl`: the conversations of a validation and their rewards.

One row a sample: `content` a list of messages, or one within a list of one, `rewards` and `idx` (NVIDIA-NeMo/RL,
nemo_rl/algorithms/grpo.py, `validate`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, Rows, RunFile
from ptt.diagnostics.parsers.io.lines import blocks, first_objects, is_torn, json_object, torn_line
from ptt.diagnostics.parsers.io.message_graphs import call_rows, turn_rows
from ptt.diagnostics.parsers.io.trajectories import messages_of
from ptt.diagnostics.parsers.io.values import as_hash, as_json, as_plain_number
from ptt.diagnostics.schema import TABLES

NAME: Final = re.compile(r"val_data_step(\d{1,15})\.jsonl(?:\.gz|\.zst)?", re.ASCII)
KEYS: Final = frozenset({"content", "rewards"})


def recognises(file: RunFile) -> bool:
    """Say yes by the name, which holds the step, and the keys of the first row."""
    return NAME.fullmatch(file.name) is not None and any(found.keys() >= KEYS for found in first_objects(file, 1))


def read(file: RunFile) -> Iterator[Piece]:
    """Yield trajectories of the evaluation split with their turns, and the mean reward."""
    named = NAME.fullmatch(file.name)
    if named is None:
        yield Lost(bytes=file.size, note=f"{file.rel}: its name holds no step, so its rows do not count.")
        return
    step, bad = int(named[1]), 0
    rewards: list[float] = []
    count = 0
    for block in blocks(file):
        if isinstance(block, Lost):
            yield block
            continue
        rows: dict[str, list[dict[str, Any]]] = {name: [] for name in ("trajectories", "turns", "tool_calls")}
        for line in block.split(b"\n"):
            if not line.strip():
                continue
            found = json_object(line)
            if found is None and is_torn(block):
                yield torn_line(file, line)
                continue
            messages = None if found is None else _messages(found.get("content"))
            if found is None or messages is None:
                bad += 1
                continue
            row = _add(messages, _first(found.get("rewards")), f"val-{step}-{count}", step, rows, file)
            rewards += [] if row is None else [row]
            count += 1
        for table, held in rows.items():
            if held:
                yield Rows(table=table, frame=pl.DataFrame(held, schema=TABLES[table], orient="row"))
    if rewards:
        mean = {"suite": "validation", "step": step, "metric": "reward", "value": sum(rewards) / len(rewards)}
        row_of = {**mean, "n": len(rewards), "source": file.rel}
        yield Rows(table="evals", frame=pl.DataFrame([row_of], schema=TABLES["evals"], orient="row"))
    if bad:
        yield Lost(rows=bad, note=f"{file.rel}: {bad} line(s) hold no conversation and do not count.")
    yield Context(facts={"framework": "nemo-rl"})


def _add(
    messages: list[dict[str, Any]],
    reward: float | None,
    key: str,
    step: int,
    rows: dict[str, list[dict[str, Any]]],
    file: RunFile,
) -> float | None:
    nodes = [{"message": message, "token_ids": message.get("token_ids")} for message in messages]
    calls = call_rows(nodes)
    rows["turns"] += [{"trajectory_id": key, **turn} for turn in turn_rows(nodes, keep_text=file.keep_text)]
    rows["tool_calls"] += [{"trajectory_id": key, "step": step, **call} for call in calls]
    rows["trajectories"].append(
        {
            "trajectory_id": key,
            "step": step,
            "split": "eval",
            "prompt_hash": as_hash(as_json(messages[0].get("content"))) if messages else None,
            "reward": reward,
            "n_turns": sum(message.get("role") == "assistant" for message in messages),
            "n_tool_calls": len(calls),
            "n_tool_fail": sum(call["ok"] is False for call in calls),
            "source": file.rel,
        }
    )
    return reward


def _messages(content: Any) -> list[dict[str, Any]] | None:
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], list):
        content = content[0]
    return messages_of(content)


def _first(found: Any) -> float | None:
    return as_plain_number(found[0] if isinstance(found, list) and len(found) == 1 else found)


PARSER = Parser(
    name="nemo_validation",
    describes="NeMo-RL's val_data_step*.jsonl: conversations of a validation, rewards and their mean.",
    priority=12,
    recognises=recognises,
    read=read,
)
