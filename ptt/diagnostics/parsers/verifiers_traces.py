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

from ptt.diagnostics.flat_lists import as_lists
from ptt.diagnostics.parsers.io.answer_texts import success_of
from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, Rows, RunFile, count_notes
from ptt.diagnostics.parsers.io.lines import first_objects, object_blocks
from ptt.diagnostics.parsers.io.message_graphs import (
    COMPACT,
    BadGraphError,
    call_rows,
    message_of,
    paths,
    sequences,
    step_of_folder,
    turn_rows,
)
from ptt.diagnostics.parsers.io.trajectories import Samples, tool_names
from ptt.diagnostics.parsers.io.values import (
    as_count,
    as_hash,
    as_json,
    as_label,
    as_name,
    as_plain_number,
    as_step,
    dict_of,
    dicts_in,
    nested,
)
from ptt.diagnostics.schema import SEQUENCES
from ptt.diagnostics.wording import counted

TWICE: Final = {"all": "effective", "effective": "all"}
ROUNDED: Final = "rounded4"  # logp_kind
ROUNDS_SINCE: Final = (0, 4)
FLOATS: Final = tuple(COMPACT.values())
SHARED: Final = ("step", "trajectory_id", "group_id", "env", "reward", "policy_version")  # by sequence and trajectory
NO_EPISODE: Final = "line(s) skipped: not an episode."


def recognises(file: RunFile) -> bool:
    """Recognise a file by the first row: an episode with traces of nodes."""
    return any(_traces(record) for record in first_objects(file, 1))


def _traces(episode: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the traces of an episode that hold nodes."""
    return [trace for trace in dicts_in(episode.get("traces")) if isinstance(trace.get("nodes"), list)]


def read(file: RunFile) -> Iterator[Piece]:
    """Yield trajectories with turns, calls and rewards, and the sequences of those that were trained on."""
    if other := _better(file):
        yield Lost(note=f"{file.rel} was skipped: {other} contains the same episodes.")
        return
    reader = _Reader(file)
    bad = broken = 0
    for block in object_blocks(file):
        for episode in block:
            if isinstance(episode, Lost):
                yield episode
            elif episode is None or not isinstance(episode.get("traces"), list):
                bad += 1
            else:
                broken += sum(not reader.add(episode, trace) for trace in _traces(episode))
        yield from reader.take()
    yield from count_notes(file, {NO_EPISODE: bad}, lost=(NO_EPISODE,))
    if broken:
        yield Lost(rows=broken, note=f"{file.rel}: {counted(broken, 'trace(s)')} skipped: inconsistent message graph.")
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


class _Reader:
    """Turns traces into the tables."""

    def __init__(self, file: RunFile) -> None:
        self._samples = Samples(file, PARSER.name)
        self._sequences: list[dict[str, Any]] = []

    def add(self, episode: dict[str, Any], trace: dict[str, Any]) -> bool:
        """Add a trace; False where its nodes do not fit together."""
        nodes, file = trace["nodes"], self._samples.file
        if not all(isinstance(node, dict) for node in nodes):
            return False
        columns = _columns(episode, trace, file)
        key = columns["trajectory_id"]
        calls = call_rows(nodes)  # names results in place, so before the turns are spelt out
        trained = columns["split"] == "train" and nested(trace, "agent", "trainable") is not False
        try:
            paths = list(sequences(nodes)) if columns["step"] is not None and trained else []
        except BadGraphError:
            return False
        shared = {name: columns[name] for name in SHARED} | ({"logp_kind": ROUNDED} if _rounds(trace) else {})
        self._sequences += [
            {**shared, **row, "sample_id": key if len(paths) == 1 else f"{key}/{at}"} for at, row in enumerate(paths)
        ]
        columns |= {
            "sample_id": key,
            "token_hash": paths[0]["token_hash"] if paths else None,
            "n_turns": sum(node.get("sampled") is True for node in nodes),
        }
        turns = turn_rows(nodes, keep_text=file.keep_text)
        self._samples.put(key, columns, turns=turns, calls=calls, rewards=_rewards(trace))
        self._keep_conversation(key, trace)
        return True

    def _keep_conversation(self, key: str, trace: dict[str, Any]) -> None:
        """Keep the messages of the last path: an agent that cleared its context begins another."""
        nodes = trace["nodes"]
        if self._samples.file.keep_messages and nodes:
            try:
                path = max(paths(nodes), key=lambda path: path[-1])
            except BadGraphError:
                return
            messages = [message_of(nodes[at]) for at in path]
            self._samples.keep_conversation(key, messages, tools=dicts_in(trace.get("tools")))

    def take(self) -> Iterator[Piece]:
        """Yield what was added, as frames, and start again empty."""
        if self._sequences:
            yield Rows(table="sequences", frame=_sequence_frame(self._sequences))
        self._sequences = []
        yield from self._samples.take()


def _columns(episode: dict[str, Any], trace: dict[str, Any], file: RunFile) -> dict[str, Any]:
    """Return the columns of a trace: which step and policy made it, how it ended, what it earned."""
    work, info = dict_of(nested(episode, "run", "work")), dict_of(trace.get("info"))
    policy = dict_of(work.get("policy"))
    scores = [row["score"] * row["weight"] for row in _rewards(trace) if row["score"] is not None]
    usage, tools = _usage(trace), dicts_in(trace.get("tools"))
    errors = [errors for errors in (trace.get("errors"), episode.get("errors")) if isinstance(errors, list) and errors]
    return {
        "trajectory_id": as_name(trace.get("id")) or f"{as_hash(as_json(trace)):016x}",
        "step": _step(file, work, info),
        "split": _split(file, nested(episode, "run", "type"), work),
        "prompt_hash": as_hash(as_json(nested(trace, "task", "data"))),
        "reward": sum(scores) if scores else None,
        "advantage": as_plain_number(info.get("advantage")),
        "group_id": as_name(nested(episode, "group", "id")),
        "env": as_name(nested(episode, "env", "name")) or as_name(nested(episode, "env", "id")),
        "policy_version": as_step(policy.get("start", info.get("policy_version"))),
        "task": _task(dict_of(trace.get("task"))),
        "tools_offered": tool_names(tools) if tools else None,
        "success": success_of({row["name"]: row["score"] for row in _rewards(trace)}),
        **usage,
        "truncated": True if trace.get("is_timeout") is True else _cut(trace),
        "stop_reason": as_name(trace.get("stop_condition")),
        "error_type": as_name(nested(errors[0][-1], "type")) if errors else None,
    }


def _task(task: dict[str, Any]) -> str | None:
    """Return what tells a task from others: its name, else its number or key."""
    data = dict_of(task.get("data"))
    return as_name(data.get("name")) or as_label(data.get("idx")) or as_name(task.get("key"))


def _usage(trace: dict[str, Any]) -> dict[str, Any]:
    """Return the model of the calls that were recorded, their tokens and costs together."""
    calls = dicts_in(trace.get("calls"))
    used = [dict_of(call.get("usage")) for call in calls]
    read, cached, written = (
        [count for usage in used if (count := as_count(usage.get(key))) is not None]
        for key in ("prompt_tokens", "cached_input_tokens", "completion_tokens")
    )
    costs = [cost for usage in used if (cost := as_plain_number(usage.get("cost"))) is not None]
    return {
        "model": next((name for call in calls if (name := as_name(call.get("model")))), None),
        "tokens_in": sum(read) + sum(cached) if read else None,
        "tokens_out": sum(written) if written else None,
        "cost_usd": sum(costs) if costs else None,
    }


def _step(file: RunFile, work: dict[str, Any], info: dict[str, Any]) -> int | None:
    """Return the step: the folder's, which is that of training; an episode's own is that of its dispatch."""
    step = step_of_folder(file)
    return as_step(work.get("step", info.get("step"))) if step is None else step


def _split(file: RunFile, run_type: Any, work: dict[str, Any]) -> str:
    if _of_prime(file):
        return file.path.parent.parent.name
    return "eval" if run_type == "eval" or work.get("type") == "eval" else "train"


def _cut(trace: dict[str, Any]) -> bool | None:
    """Return whether the last call ended by length, where calls are recorded."""
    calls = trace.get("calls")
    reason = nested(calls[-1], "finish_reason") if isinstance(calls, list) and calls else None
    return reason == "length" if isinstance(reason, str) else None


def _rewards(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the components of the reward; one that was never scored has no score."""
    rows = []
    for name, reward in dict_of(trace.get("rewards")).items():
        weight = as_plain_number(dict_of(reward).get("weight", 1.0))
        score = as_plain_number(reward if isinstance(reward, int | float) else nested(reward, "score"))
        rows.append({"name": name, "score": score, "weight": 1.0 if weight is None else weight})
    return rows


def _rounds(trace: dict[str, Any]) -> bool:
    """Return whether this version of the writer keeps four decimals of a float."""
    version = as_name(nested(trace, "verifiers", "version")) or ""
    parts = re.match(r"(\d{1,6})\.(\d{1,6})", version, re.ASCII)
    return parts is not None and (int(parts[1]), int(parts[2])) >= ROUNDS_SINCE


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
        columns[name] = pl.Series(name, as_lists(np.concatenate(parts), offsets)).cast(kind)
        if name in FLOATS:
            columns[name] = columns[name].list.eval(pl.element().fill_nan(None))
    return pl.DataFrame(columns)


PARSER = Parser(
    name="verifiers_traces",
    describes="verifiers' traces.jsonl, also of prime-rl: log-probabilities, tools, turns, calls, rewards, versions.",
    held_against="real: verifiers 0.4, replaying a recorded run",
    priority=12,
    recognises=recognises,
    read=read,
)
