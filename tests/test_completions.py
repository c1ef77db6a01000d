"""TRL completions over a whole run: repeats counted once, rows an evaluation may have written marked."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

import ptt


def write_file(run: Path, step: int, samples: list[str]) -> None:
    rows = {
        "step": [step] * len(samples),
        "prompt": [[{"role": "user", "content": "6 x 7?"}]] * len(samples),
        "completion": [[{"role": "assistant", "content": text}] for text in samples],
        "right": [float(text.endswith("42")) for text in samples],
        "advantage": [0.5] * len(samples),
    }
    (run / "completions").mkdir(exist_ok=True)
    pl.DataFrame(rows).write_parquet(run / "completions" / f"completions_{step:05d}.parquet")


def test_repeats_count_once_and_rows_near_an_evaluation_stay_unknown(tmp_path: Path) -> None:
    write_file(tmp_path, 1, ["it is 42", "it is 42", "it is 41"])  # two samples alike are two samples
    write_file(tmp_path, 2, ["it is 42", "it is 42", "it is 41"])  # the same generation, logged again
    write_file(tmp_path, 3, ["asked in evaluation: 42"])
    write_file(tmp_path, 4, ["asked in evaluation: 42", "new: 42"])
    write_file(tmp_path, 5, ["fresh: 42"])
    history = [{"step": step, "loss": 0.1, "reward": 1.0} for step in range(1, 6)] + [{"step": 3, "eval_reward": 1.0}]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": history, "global_step": 5}))
    found = ptt.diagnose(tmp_path)
    table = found.tables["trajectories"].sort("step", "trajectory_id")
    assert table.group_by("step").len().sort("step").rows() == [(1, 3), (3, 1), (4, 1), (5, 1)]
    splits = dict(table.select("step", "split").unique().rows())
    assert splits == {1: "train", 3: "unknown", 4: "unknown", 5: "train"}
    notes = {source.path: source.note for source in found.sources}
    assert "3 rows also in an earlier file" in (notes["completions/completions_00002.parquet"] or "")


def test_short_answers_that_two_models_give_alike_count_for_both(tmp_path: Path) -> None:
    def results(model: str, rewards: list[float], turns: int = 1) -> None:
        rows = [
            {
                "question": f"{number} + 1?",
                "messages": [{"role": "user", "content": f"{number} + 1?"}]
                + [{"role": "assistant", "content": f"It is {number + 1}."}] * turns,
                "reward": reward,
            }
            for number, reward in enumerate(rewards)
        ]
        (tmp_path / f"{model}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    results("first", [1.0, 0.0, 1.0])
    results("second", [1.0, 0.0, 1.0])
    found = ptt.diagnose(tmp_path)
    assert found.tables["trajectories"].group_by("source").len().sort("source").rows() == [
        ("first.jsonl", 3),
        ("second.jsonl", 3),
    ]
    assert found.tables["trajectories"]["trajectory_id"].n_unique() == 6
    results("first", [1.0, 0.0, 1.0], turns=4)
    results("second", [1.0, 0.0, 1.0], turns=4)  # long episodes alike are copies
    assert ptt.diagnose(tmp_path).tables["trajectories"].height == 3
