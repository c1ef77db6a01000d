"""verifiers' `traces.jsonl`, also below prime-rl's `rollouts/`: one episode a line, each message with its tokens.

Written by `write_episode` (PrimeIntellect-ai/verifiers, verifiers/v1/utils/trace_store.py; fields in episode.py,
trace.py and graph.py). prime-rl keeps the episodes of a step twice: `all` as they ended and `effective` as they were
trained on (prime-rl, monitors/file.py). From 0.4 on floats have four decimals.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import polars as pl

from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, Rows, RunFile
from ptt.diagnostics.parsers.io.lines import blocks, first_objects, is_torn, json_object, torn_line
from ptt.diagnostics.parsers.io.message_graphs import (
    COMPACT,
    BadGraphError,
    call_rows,
    sequences,
    step_of_folder,
    turn_rows,
)
from ptt.diagnostics.parsers.io.token_lines import listed
from ptt.diagnostics.parsers.io.values import as_hash, as_json, as_name, as_plain_number, as_step
from ptt.diagnostics.schema import SEQUENCES, TABLES

TWICE: Final = {"all": "effective", "effective": "all"}
ROUNDED: Final = "rounded4"  # logp_kind
ROUNDS_SINCE: Final = (0, 4)
FLOATS: Final = tuple(COMPACT.values())


def recognises(file: RunFile) -> bool:
    """Say yes by the first row: an episode with traces of nodes."""
    return any(_traces(found) for found in first_objects(file, 1))


def _traces(episode: dict[str, Any]) -> list[dict[str, Any]]:
    """Give the traces of an episode that hold nodes."""
    traces = episode.get("traces")
    found = traces if isinstance(traces, list) else []
    return [trace for trace in found if isinstance(trace, dict) and isinstance(trace.get("nodes"), list)]


def read(file: RunFile) -> Iterator[Piece]:
    """Yield trajectories with turns, calls and rewards, and the sequences of those that were trained on."""
    if other := _better(file):
        yield Lost(note=f"{file.rel} holds the episodes that {other} holds too: those are counted.")
        return
    bad = broken = 0
    for block in blocks(file):
        if isinstance(block, Lost):
            yield block
            continue
        tables = _Tables(file)
        for line in block.split(b"\n"):
            if not line.strip():
                continue
            episode = json_object(line)
            if episode is None and is_torn(block):
                yield torn_line(file, line)
            elif episode is None or not isinstance(episode.get("traces"), list):
                bad += 1
            else:
                broken += tables.add(episode)
        yield from tables.pieces()
    if bad:
        yield Lost(rows=bad, note=f"{file.rel}: {bad} line(s) are no episodes and do not count.")
    if broken:
        yield Lost(rows=broken, note=f"{file.rel}: the message graphs of {broken} trace(s) do not hold together.")
    yield Context(facts={"framework": "prime-rl" if _of_prime(file) else "verifiers"})


def _better(file: RunFile) -> str | None:
    """Name the file of the same episodes that is read instead: in training what was trained on, else all."""
    kind, split = file.path.parent.name, file.path.parent.parent.name
    if not _of_prime(file) or kind == ("all" if split == "eval" else "effective"):
        return None
    other = file.path.parent.parent / TWICE[kind] / file.name
    return "/".join(other.parts[-4:]) if other.is_file() and not other.is_symlink() else None


def _of_prime(file: RunFile) -> bool:
    folder = file.path.parent
    return folder.name in TWICE and folder.parent.name in ("train", "eval")


class _Tables:
    """Rows of one block, table by table."""

    def __init__(self, file: RunFile) -> None:
        self.file = file
        self.rows: dict[str, list[dict[str, Any]]] = {
            name: [] for name in ("sequences", "trajectories", "rewards", "turns", "tool_calls")
        }

    def add(self, episode: dict[str, Any]) -> int:
        """Add the traces of an episode; returns how many hold nodes that do not fit together."""
        return sum(not self._add(episode, trace) for trace in _traces(episode))

    def _add(self, episode: dict[str, Any], trace: dict[str, Any]) -> bool:
        nodes = trace["nodes"]
        if not all(isinstance(node, dict) for node in nodes):
            return False
        about = _about(episode, trace, self.file)
        key = about["trajectory_id"]
        calls = call_rows(nodes)
        try:
            paths = list(sequences(nodes)) if about["step"] is not None and _trained(about, trace) else []
        except BadGraphError:
            return False
        version = {"logp_kind": ROUNDED} if _rounds(trace) else {}
        shared = {
            name: about[name] for name in ("step", "trajectory_id", "group_id", "env", "reward", "policy_version")
        }
        self.rows["sequences"] += [
            {**shared, **version, **row, "sample_id": key if len(paths) == 1 else f"{key}/{number}"}
            for number, row in enumerate(paths)
        ]
        self.rows["turns"] += [{"trajectory_id": key, **row} for row in turn_rows(nodes, keep_text=self.file.keep_text)]
        self.rows["tool_calls"] += [{"trajectory_id": key, "step": about["step"], **call} for call in calls]
        self.rows["rewards"] += [{"trajectory_id": key, **row} for row in _rewards(trace)]
        self.rows["trajectories"].append(
            {
                **about,
                "sample_id": key,
                "token_hash": paths[0]["token_hash"] if paths else None,
                "n_turns": sum(node.get("sampled") is True for node in nodes),
                "n_tool_calls": len(calls),
                "n_tool_fail": sum(call["ok"] is False for call in calls),
                "source": self.file.rel,
            }
        )
        return True

    def pieces(self) -> Iterator[Rows]:
        """Give what was added, as frames."""
        for table, rows in self.rows.items():
            if rows and table == "sequences":
                yield Rows(table=table, frame=_sequence_frame(rows))
            elif rows:
                yield Rows(table=table, frame=pl.DataFrame(rows, schema=TABLES[table], orient="row"))


def _about(episode: dict[str, Any], trace: dict[str, Any], file: RunFile) -> dict[str, Any]:
    """Say what a trace is: of which step and policy, how it ended, what it earned."""
    run, env, group = (_dict(episode.get(name)) for name in ("run", "env", "group"))
    work, info = _dict(run.get("work")), _dict(trace.get("info"))
    policy = _dict(work.get("policy"))
    scores = [row["score"] * row["weight"] for row in _rewards(trace) if row["score"] is not None]
    errors = [one for one in (trace.get("errors"), episode.get("errors")) if isinstance(one, list) and one]
    identity = as_name(trace.get("id"))
    return {
        "trajectory_id": identity or f"{as_hash(as_json(trace)):016x}",
        "step": _step(file, work, info),
        "split": _split(file, run, work),
        "prompt_hash": as_hash(as_json(_dict(trace.get("task")).get("data"))),
        "reward": sum(scores) if scores else None,
        "advantage": as_plain_number(info.get("advantage")),
        "group_id": as_name(group.get("id")),
        "env": as_name(env.get("name")) or as_name(env.get("id")),
        "policy_version": as_step(policy.get("start", info.get("policy_version"))),
        "truncated": True if trace.get("is_timeout") is True else _cut(trace),
        "stop_reason": as_name(trace.get("stop_condition")),
        "error_type": as_name(_dict(errors[0][-1]).get("type")) if errors else None,
    }


def _step(file: RunFile, work: dict[str, Any], info: dict[str, Any]) -> int | None:
    """Give the step: the folder's, which is that of training; an episode's own is that of its dispatch."""
    step = step_of_folder(file)
    return as_step(work.get("step", info.get("step"))) if step is None else step


def _split(file: RunFile, run: dict[str, Any], work: dict[str, Any]) -> str:
    if _of_prime(file):
        return file.path.parent.parent.name
    if run.get("type") == "eval" or work.get("type") == "eval":
        return "eval"
    return "train"


def _trained(about: dict[str, Any], trace: dict[str, Any]) -> bool:
    return about["split"] == "train" and _dict(trace.get("agent")).get("trainable") is not False


def _cut(trace: dict[str, Any]) -> bool | None:
    """Whether the last call ended by length, where calls are recorded."""
    calls = trace.get("calls")
    last = _dict(calls[-1]) if isinstance(calls, list) and calls else {}
    reason = last.get("finish_reason")
    return reason == "length" if isinstance(reason, str) else None


def _rewards(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """Give the components of the reward; one that was never scored has no score."""
    found = []
    for name, reward in _dict(trace.get("rewards")).items():
        weight = as_plain_number(_dict(reward).get("weight", 1.0))
        score = as_plain_number(reward if isinstance(reward, int | float) else _dict(reward).get("score"))
        found.append({"name": name, "score": score, "weight": 1.0 if weight is None else weight})
    return found


def _rounds(trace: dict[str, Any]) -> bool:
    version = as_name(_dict(trace.get("verifiers")).get("version")) or ""
    parts = re.match(r"(\d{1,6})\.(\d{1,6})", version, re.ASCII)
    return parts is not None and (int(parts[1]), int(parts[2])) >= ROUNDS_SINCE


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _sequence_frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Put sequences into columns; lists go in as arrays end to end, and what is no number is null."""
    columns: dict[str, pl.Series] = {}
    offsets = np.cumsum([0, *(len(row["token_ids"]) for row in rows)])
    for name, kind in SEQUENCES.items():
        if all(row.get(name) is None for row in rows):
            continue
        if name not in (*FLOATS, "token_ids", "model_mask", "train_mask"):
            columns[name] = pl.Series(name, [row.get(name) for row in rows], dtype=kind)
            continue
        blank = np.full(int(max(np.diff(offsets))), np.nan, np.float32)
        parts = [blank[: len(row["token_ids"])] if row.get(name) is None else row[name] for row in rows]
        columns[name] = listed(np.concatenate(parts), offsets, kind).alias(name)
        if name in FLOATS:
            columns[name] = columns[name].list.eval(pl.element().fill_nan(None))
    return pl.DataFrame(columns)


PARSER = Parser(
    name="verifiers_traces",
    describes="verifiers' traces.jsonl, also of prime-rl: log-probabilities, tools, turns, calls, rewards, versions.",
    priority=12,
    recognises=recognises,
    read=read,
)
