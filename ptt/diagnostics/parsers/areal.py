"""AReaL: performance traces, and rollouts that are dumped as text.

Durations, one file a rank, after `areal/utils/perf_tracer.py` of inclusionAI/AReaL: `traces-r{rank}.jsonl` holds Chrome
trace events, whose times count from the tracer's start; `sessions-r{rank}.jsonl` (before: `requests-r{rank}.jsonl`) one
record a session.

Rollouts, one file a task, in a folder named by the policy version that finished it
(areal/infra/workflow_executor.py, `rollout.dump_to_file`): `{rollout|eval-rollout}/{tail_version}/{task_id}.jsonl`.
`head_version` counts the prompt's tokens in and is then always -1, so it is not used; the version that finished a
sample stands for the step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, RunFile, any_line, lost_notes
from ptt.diagnostics.parsers.io.lines import begins_with, line_objects
from ptt.diagnostics.parsers.io.telemetry import MachineLog
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, read_lines, split_of_path
from ptt.diagnostics.parsers.io.values import as_label, as_score, as_seconds, as_step

NAME = re.compile(r"(traces|sessions|requests)-r(\d{1,6})\.jsonl(?:\.gz|\.zst)?")
SESSION_KEYS = frozenset({"rank", "status", "submit_ts"})
PHASE, SESSION = "phase/", "session/"
NEITHER = "line(s) skipped: neither a trace event nor a session."
SECONDS = "_s"  # what a record's durations end with


def recognises_perf(file: RunFile) -> bool:
    """Recognise the file name with trace events or session records on the first lines."""
    name = NAME.fullmatch(file.name)
    return name is not None and begins_with(file, _is_event if name[1] == "traces" else _is_session)


def _is_event(row: dict[str, Any]) -> bool:
    return isinstance(row.get("ph"), str) and isinstance(row.get("name"), str)


def _is_session(row: dict[str, Any]) -> bool:
    return row.keys() >= SESSION_KEYS


def read_perf(file: RunFile) -> Iterator[Piece]:
    """Yield a row for each duration, in seconds; lines that are neither an event nor a session are counted."""
    name = NAME.fullmatch(file.name)
    machine = MachineLog(file, rank=int(name[2]) if name else None)
    bad = 0
    for row in line_objects(file):
        if isinstance(row, Lost):
            yield row
        elif row is not None and _is_event(row):
            bad += not _add_event(row, machine)
        elif row is not None and _is_session(row):
            _add_session(row, machine)
        else:
            bad += 1
        yield from machine.flush()
    yield from machine.pieces()
    yield from lost_notes(file, {NEITHER: bad})
    yield Context(facts={"framework": "areal"})


def _add_event(row: dict[str, Any], machine: MachineLog) -> bool:
    """Take a complete event, and return whether it is sound; marks and names of threads have no duration."""
    duration, args = row.get("dur"), row.get("args")
    if row["ph"] != "X":
        return True
    if isinstance(duration, bool) or not isinstance(duration, (int, float)):
        return False
    step = as_step(args.get("global_step")) if isinstance(args, dict) else None
    machine.add(step, None, PHASE + row["name"], float(duration) / 1e6 if abs(duration) < 1e18 else None)
    return True


def _add_session(row: dict[str, Any], machine: MachineLog) -> None:
    wall_time = as_seconds(row.get("finalized_ts", row["submit_ts"]))
    for name, value in row.items():
        if name.endswith(SECONDS) and isinstance(value, float):
            machine.add(None, wall_time, SESSION + name, value)


PERF = Parser(
    name="areal_perf",
    describes="AReaL's perf_tracer, a file a rank: durations of phases and of rollout sessions by rank.",
    held_against="source: inclusionAI/AReaL `areal/utils/perf_tracer.py`",
    priority=10,
    of_training=False,
    recognises=recognises_perf,
    read=read_perf,
)


KEYS: Final = frozenset({"task_id", "sample_idx", "tail_version", "reward", "completion"})


def recognises_rollouts(file: RunFile) -> bool:
    """Recognise lines with the keys of a dumped rollout."""
    return begins_with(file, lambda row: row.keys() >= KEYS)


def read_rollouts(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a row; of evaluation rollouts also the mean reward."""
    yield from read_lines(file, ROLLOUTS.name, _add, {"framework": "areal"})


def _add(row: dict[str, Any], samples: Samples) -> bool:
    version, completion = as_step(row.get("tail_version")), row.get("completion")
    if version is None or not isinstance(completion, str):
        return False
    split, reward = split_of_path(samples.file.rel), as_score(row.get("reward"))
    task = as_label(row.get("task_id"))
    samples.add(
        Sample(
            step=version,
            split=split,
            completion=completion,
            identity=[version, split, task, as_label(row.get("sample_idx")), row.get("prompt"), completion, reward],
            prompt=row.get("prompt"),
            reward=reward,
            asked=row.get("prompt"),
            columns={"group_id": task, "task": task, "policy_version": version},
        )
    )
    if split == "eval":
        samples.mean("eval-rollout", version, "reward", reward)
    return True


ROLLOUTS = Parser(
    name="areal_rollouts",
    describes="AReaL's rollout dumps: trajectories with reward and policy version.",
    held_against="source: inclusionAI/AReaL `areal/infra/workflow_executor.py`",
    priority=10,
    of_training=False,
    splits=any_line,
    recognises=recognises_rollouts,
    read=read_rollouts,
)
