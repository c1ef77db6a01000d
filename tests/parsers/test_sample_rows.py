"""Samples dumped a row each: what is their reward, which rows are turns of one episode, and what is no sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from parser_samples import parser_named, run_file, table, takers
from samples_calls import jsonl


def trajectories(path: Path, rows: list[dict[str, Any]]) -> Any:
    path.write_bytes(jsonl(rows))
    assert takers(run_file(path)) == ["sample_rows"]
    return table(list(parser_named("sample_rows").read(run_file(path))), "trajectories")


@pytest.mark.parametrize(
    ("numbers", "reward"),
    [
        ({"temperature": 0.7, "seed": 42, "top_p": 0.95}, None),
        ({"num_tools": 3, "beta": 0.04, "group_mean_reward": 0.5}, None),
        ({"accuracy_reward": 1.0, "format_reward": 0.5, "beta": 0.04, "num_tools": 3, "learning_rate": 1e-6}, 1.5),
        ({"acc": True, "rewards/length": -0.25, "seed": 42}, 0.75),
        ({"score": 0.25, "format_reward": 1.0}, 0.25),
    ],
)
def test_only_numbers_that_are_named_so_are_parts_of_a_reward(
    tmp_path: Path, numbers: dict[str, Any], reward: float | None
) -> None:
    rows = [{"step": 1, "prompt": f"what is {at}?", "completion": "x", **numbers} for at in range(4)]
    assert trajectories(tmp_path / "samples.jsonl", rows)["reward"].to_list() == [reward] * 4
