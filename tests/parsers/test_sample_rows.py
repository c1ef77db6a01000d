"""Samples dumped a row each: what is their reward, which rows are turns of one episode, and what is no sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from parser_samples import parser_named, run_file, table, takers
from samples_calls import jsonl


def trajectories(path: Path, rows: list[dict[str, Any]]) -> Any:
    path.write_bytes(jsonl(rows))
    assert takers(run_file(path))[0] == "sample_rows"
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


def turn(step: int, at: int, reward: float, **named: Any) -> dict[str, Any]:
    return {"step": step, "turn": at, "reward": reward, "tokens_out": 10, "prompt": "p", "response": f"a{at}", **named}


EPISODES = [(step, sample, float((step + sample) % 2)) for step in (1, 2, 3) for sample in range(4)]
TURNS = {
    "alternate": [turn(step, at, right * (at == 2), rollout_id=f"s{step}r{sample}")
                  for now in (1, 2, 3) for at in range(3) for step, sample, right in EPISODES if step == now],
    "the step's": [turn(step, at, right * (at == 2), rollout_id=step, sample_index=sample)
                   for step, sample, right in EPISODES for at in range(3)],
    "anew at each step": [turn(step, at, right * (at == 2), rollout_id=sample)
                          for step, sample, right in EPISODES for at in range(3)],
    "again within a step": [turn(step, at, right * (at == 2), rollout_id=0)
                            for step, _, right in EPISODES for at in range(3)],
}  # fmt: skip


@pytest.mark.parametrize("ids", sorted(TURNS))
def test_turns_of_one_episode_are_joined_whatever_their_ids_and_order(tmp_path: Path, ids: str) -> None:
    found = trajectories(tmp_path / "rollouts.jsonl", TURNS[ids])
    assert found["n_turns"].to_list() == [3] * 12
    assert found["tokens_out"].to_list() == [30] * 12
    assert found["trajectory_id"].n_unique() == 12
    assert sorted(found.select("step", "reward").rows()) == sorted((step, right) for step, _, right in EPISODES)


@pytest.mark.parametrize(("name", "total"), [("completion_tokens", 30), ("response_length", 30), ("unknown", None)])
def test_an_episode_has_the_tokens_of_all_turns_under_whatever_name(tmp_path: Path, name: str, total: Any) -> None:
    rows = [{"step": 1, "turn": at, "reward": 1.0, "rollout_id": "a", name: 10} for at in range(3)]
    assert trajectories(tmp_path / "rollouts.jsonl", rows)["tokens_out"].to_list() == [total]


@pytest.mark.parametrize(
    ("tasks", "times", "named", "taken"),
    [
        (("gsm8k", "math", "aime"), 1, {}, False),
        (("gsm8k", "math", "aime"), 1, {"rollout_id": "a"}, True),
        (("gsm8k", "math", "aime"), 1, {"idx": 3}, True),
        (("gsm8k", "math", "aime"), 4, {}, True),
        (("gsm8k",), 4, {}, True),
    ],
)
def test_one_score_a_benchmark_and_step_is_no_sample(
    tmp_path: Path, tasks: tuple[str, ...], times: int, named: dict[str, Any], *, taken: bool
) -> None:
    path = tmp_path / "results.jsonl"
    rows = [{"step": step, "task": task, "score": 0.5, **named}
            for step in (100, 200, 300) for task in tasks for _ in range(times)]  # fmt: skip
    path.write_bytes(jsonl(rows))
    assert takers(run_file(path))[0] == ("sample_rows" if taken else "metrics_jsonl")


def test_tasks_that_never_come_again_are_samples(tmp_path: Path) -> None:
    rows = [{"step": at // 4, "task_id": f"q{at}", "reward": at % 2} for at in range(80)]
    assert trajectories(tmp_path / "samples.jsonl", rows).height == 80
