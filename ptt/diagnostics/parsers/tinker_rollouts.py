"""Tinker's rollout summaries: trajectories with rewards, turns and the age of the sampler, without tokens.

Rows of `iteration_*/{train,eval_*}_rollout_summaries.jsonl`: tinker_cookbook/rl/rollout_logging.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, Final

from ptt.diagnostics.parsers.io.calls import lost_rows, table_rows
from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.lines import blocks, first_objects, is_torn, json_object, torn_line
from ptt.diagnostics.parsers.io.values import as_int32, as_int64, as_number

KEYS: Final = frozenset({"split", "iteration", "group_idx", "traj_idx", "total_reward", "steps"})


def recognises(file: RunFile) -> bool:
    """Say yes by the keys of the first row."""
    found = first_objects(file, 1)
    return bool(found) and found[0].keys() >= KEYS


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a row, its turns by the number of their tokens, and the parts of its reward."""
    bad = 0
    for block in blocks(file):
        if isinstance(block, Lost):
            yield block
            continue
        found: dict[str, list[dict[str, Any]]] = {"trajectories": [], "turns": [], "rewards": []}
        for line in filter(bytes.strip, block.split(b"\n")):
            row = json_object(line)
            if row is None and is_torn(block):
                yield torn_line(file, line)
            elif row is None or not _add(file, row, found):
                bad += 1
        for table, listed in found.items():
            yield from table_rows(table, listed)
    yield from lost_rows(bad, f"{file.rel}: {bad} row(s) lack their iteration, group or trajectory.")
    yield Context(facts={"framework": "tinker"})


def _add(file: RunFile, row: dict[str, Any], tables: dict[str, list[dict[str, Any]]]) -> bool:
    step, group, place = (as_int64(row.get(name)) for name in ("iteration", "group_idx", "traj_idx"))
    split, steps = row.get("split"), row.get("steps")
    if step is None or group is None or place is None or not isinstance(split, str) or not isinstance(steps, list):
        return False
    turns = [turn for turn in steps if isinstance(turn, dict)]
    folder = PurePosixPath(file.rel).parent
    root = str(folder.parent if folder.name.startswith("iteration_") else folder)
    key = {"trajectory_id": f"{root}:{split}/{step}/{group}/{place}"}
    total, final = as_number(row.get("total_reward")), as_number(row.get("final_reward"))
    tags = row.get("tags")
    tables["trajectories"].append(
        {
            **key,
            "step": step,
            "split": "train" if split == "train" else "eval",
            "reward": total,
            "n_turns": len(turns),
            "group_id": f"{root}:{split}/{step}/{group}",
            "env": next((tag for tag in tags if isinstance(tag, str)), None) if isinstance(tags, list) else None,
            "policy_version": as_int64(row.get("sampling_client_step")),
            "source": file.rel,
        }
    )
    parts = {"steps": None if total is None or final is None else total - final, "final": final}
    tables["rewards"] += [{**key, "name": name, "score": score} for name, score in parts.items() if score is not None]
    for at, turn in enumerate(turns):
        tables["turns"].append(
            {**key, "turn_idx": at, "role": "assistant", "n_tokens": as_int32(turn.get("ac_len"))},
        )
    return True


PARSER = Parser(
    name="tinker_rollouts",
    describes="Tinker's rollout summaries: trajectories with rewards, turn lengths and the sampler's step; no tokens.",
    priority=10,
    recognises=recognises,
    read=read,
)
