"""The transcript of a sample: which logged trajectory it is, its messages, tool calls and parts of its reward."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import polars as pl

from ptt.diagnostics.samples.sample import ToolCall, Turn
from ptt.diagnostics.store.sample_rows import scan_table

NAMES: Final = ("trajectory_id", "sample_id", "step", "group_id", "prompt_hash", "token_hash", "source")
MAX_TURNS: Final = 5_000  # messages of one sample; beyond it no transcript is read


def trajectory_names(folder: Path) -> pl.DataFrame:
    """Read what tells the samples of a store apart, in the order of their files."""
    return scan_table(folder, "trajectories").select(NAMES).collect()


def tied_trajectory(row: Mapping[str, Any], index: pl.DataFrame, trajectories: pl.DataFrame) -> str | None:
    """Return the trajectory that a sequence is of: by its id, the hash of its tokens, or the sample's id.

    A sample's id ties at the same step; at another only where it is of one sequence and of one sample. An id that
    several samples carry ties nothing.
    """
    if row.get("trajectory_id") is not None:
        found = trajectories.filter(pl.col("trajectory_id") == row["trajectory_id"])
        if found.height == 1:
            return str(found["trajectory_id"][0])
    for column in ("token_hash", "sample_id"):
        value = row.get(column)
        if value is None:
            continue
        named = trajectories.filter(pl.col(column) == value)
        at_step = named.filter(pl.col("step") == row.get("step"))
        once = index.filter(pl.col(column) == value).height == 1
        for found in (at_step, named if once else at_step):
            if found.height == 1:
                return str(found["trajectory_id"][0])
    return None


def read_values(folder: Path, trajectory: str) -> dict[str, Any]:
    """Return the row of one trajectory; empty where it is not there."""
    rows = _rows(folder, "trajectories", trajectory)
    return rows.row(0, named=True) if rows.height else {}


def read_rewards(folder: Path, trajectory: str) -> dict[str, float | None]:
    """Return the parts of a sample's reward by name."""
    return {row["name"]: row["score"] for row in _rows(folder, "rewards", trajectory).to_dicts()}


def read_siblings(folder: Path, values: Mapping[str, Any]) -> pl.DataFrame:
    """Return the trajectories of the same prompt at the same step, in the order of their files."""
    key = next((name for name in ("group_id", "prompt_hash") if values.get(name) is not None), None)
    if key is None or values.get("step") is None:
        return pl.DataFrame(schema=scan_table(folder, "trajectories").collect_schema())
    same = (pl.col(key) == values[key]) & (pl.col("step") == values["step"])
    return scan_table(folder, "trajectories").filter(same).collect()


def read_turns(folder: Path, trajectory: str, *, texts: bool) -> tuple[Turn, ...]:
    """Return the messages of a sample, with what was said where that is asked for and kept."""
    rows = _rows(folder, "turns", trajectory).sort("turn_idx").head(MAX_TURNS)
    return tuple(
        Turn(
            number=row["turn_idx"],
            role=row["role"],
            letters=row["text_len"],
            tokens=row["n_tokens"],
            text=row["text"] if texts else None,
        )
        for row in rows.to_dicts()
    )


def read_calls(folder: Path, trajectory: str, *, texts: bool) -> tuple[ToolCall, ...]:
    """Return the tool calls of a sample in their order, with their arguments where texts are asked for."""
    rows = _rows(folder, "tool_calls", trajectory).sort("turn_idx", "call_idx").head(MAX_TURNS)
    return tuple(
        ToolCall(
            turn=row["turn_idx"],
            name=row["name"],
            ok=row["ok"] if row["ok_source"] != "unknown" or row["ok"] is False else None,
            error=row["error_type"],
            result_letters=row["result_len"],
            seconds=row["latency_s"],
            arguments=row["args_json"] if texts else None,
        )
        for row in rows.to_dicts()
    )


def _rows(folder: Path, table: str, trajectory: str) -> pl.DataFrame:
    return scan_table(folder, table).filter(pl.col("trajectory_id") == trajectory).collect()
