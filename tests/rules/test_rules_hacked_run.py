"""A run on disk whose reward rises, benchmark stays and outputs grow: named as such, with the next looks in order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ptt.diagnostics.config import Settings
from ptt.diagnostics.evidence.evaluation import gather_evaluation
from ptt.diagnostics.evidence.gather import SAMPLES_PER_KIND, audit_table
from ptt.diagnostics.evidence.rewards import gather_rewards, reward_component
from ptt.diagnostics.model import Diagnosis, Link, Severity, Status
from ptt.diagnostics.pipeline import RunLocation, judge_run
from ptt.diagnostics.schema import TABLES
from ptt.diagnostics.store.wide_metrics import WideMetrics

STEPS = 240
NO_WIDE = WideMetrics(Path())


def write_run(folder: Path, *, benchmark: tuple[float, float]) -> Path:
    """Write a Hugging Face trainer's state: reward up, length up, a benchmark every 20 steps."""
    generator = np.random.default_rng(11)
    history = []
    for step in range(1, STEPS + 1):
        done = (step - 1) / STEPS
        history.append(
            {
                "step": step,
                "reward": 0.3 + 0.6 * done + 0.03 * generator.normal(),
                "rewards/helpful_judge/mean": 0.2 + 0.6 * done + 0.03 * generator.normal(),
                "completions/mean_length": 180 + 600 * done + 20 * generator.normal(),
                "frac_reward_zero_std": 0.1,
                "kl": 0.02 + 0.02 * done,
                "entropy": 0.4,
            }
        )
        if step % 20 == 0:
            low, high = benchmark
            history.append({"step": step, "eval_accuracy": low + (high - low) * done + 0.01 * generator.normal()})
    folder.mkdir(parents=True)
    state = {"global_step": STEPS, "log_history": history, "max_steps": STEPS}
    (folder / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
    return folder


def diagnosed(run: Path, tmp_path: Path) -> Diagnosis:
    place = RunLocation(run=run, store=tmp_path / "store", name=run.name)
    return judge_run(place, Settings()).diagnosis


def test_reward_up_benchmark_flat_outputs_longer(tmp_path: Path) -> None:
    found = diagnosed(write_run(tmp_path / "run", benchmark=(0.42, 0.42)), tmp_path)
    assert found.verdict.status is Status.SUSPECT
    assert found.verdict.first_broken_link is Link.REWARD
    assert "The reward rose" in found.verdict.headline
    assert "eval_accuracy stayed flat" in found.verdict.headline
    hacked = next(one for one in found.findings if one.id == "reward-hacking")
    assert hacked.severity is Severity.HIGH
    assert hacked.consequence_of is None
    below = {one.id for one in found.findings if one.consequence_of == "reward-hacking"}
    assert {"eval-not-following", "length-inflation"} <= below
    orders = (
        "check the evaluation",
        "read the highest-reward samples",
        "split the reward",
        "look at KL and entropy",
    )
    assert all(said.startswith(wanted) for said, wanted in zip(found.verdict.next, orders, strict=False))
    assert "helpful_judge" in hacked.confirm[2]
    assert "penalty" in hacked.next[0]
    assert "private set" in hacked.next[1]


def test_a_benchmark_that_follows_leaves_the_run_alone(tmp_path: Path) -> None:
    found = diagnosed(write_run(tmp_path / "run", benchmark=(0.42, 0.8)), tmp_path)
    assert [one for one in found.findings if one.severity.at_least(Severity.MEDIUM)] == []


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("rewards/correct_reward/mean", "correct_reward"),
        ("train/rewards/correct_reward/mean", "correct_reward"),
        ("train/agg/effective/solver/rewards/exact/mean", "exact"),
        ("reward/format", "format"),
        ("reward/mean", None),
        ("rewards/chosen", None),
        ("rewards/margins", None),
        ("rewards/correct_reward/std", None),
        ("env/all/reward/total", None),
        ("reward/avg_raw_reward", None),
    ],
)
def test_a_part_of_the_reward_is_known_by_its_name(raw: str, name: str | None) -> None:
    assert reward_component(raw) == name


def metric_rows(logged: dict[str, list[tuple[int, float]]]) -> pl.DataFrame:
    rows = [
        {"step": step, "split": "eval", "name_raw": raw, "value": value, "flag": 0, "seq": place, "source": "m.jsonl"}
        for raw, points in logged.items()
        for place, (step, value) in enumerate(points)
    ]
    frame = pl.DataFrame(rows, schema=TABLES["metrics"], orient="row")
    return frame.with_columns(pl.lit(10, pl.Int32).alias("priority"))


def empty(table: str) -> pl.DataFrame:
    return pl.DataFrame(schema=TABLES[table])


def test_figures_and_settings_of_an_evaluation_are_told_by_their_names() -> None:
    logged = {
        "val-core/gsm8k/acc/mean@8": [(10, 0.4)],
        "val-core/gsm8k/acc/mean@16": [(20, 0.5)],
        "val-aux/gsm8k/acc/std@8": [(10, 0.1)],
        "eval_accuracy": [(10, 0.4), (20, 0.5)],
        "eval/accuracy": [(10, 0.4), (20, 0.5)],
        "eval_runtime": [(10, 4.0), (20, 2.0)],
        "eval_samples_per_second": [(10, 16.0), (20, 16.0)],
        "eval_frac_reward_zero_std": [(10, 0.1)],
        "eval_completions/mean_length": [(10, 90.0)],
        "eval_tools/call_success": [(10, 0.9)],
        "eval/slice_math": [(10, 0.4)],
    }
    found = gather_evaluation(metric_rows(logged), empty("evals"), empty("trajectories"), NO_WIDE)
    assert found is not None
    names = [(one.split, one.name) for one in found.figures if one.outcome]
    assert names == [("eval", "accuracy"), ("val-core", "gsm8k/acc/mean@16"), ("val-core", "gsm8k/acc/mean@8")]
    assert [one.raw_name for one in found.slices] == ["eval/slice_math"]
    settings = {(one.suite, one.name): one.points for one in found.settings}
    assert settings["eval", "samples"] == ((10, 64.0), (20, 32.0))
    assert settings["val-core/gsm8k/acc", "samples per prompt"] == ((10, 8.0), (20, 16.0))


def test_nothing_recorded_is_none() -> None:
    metrics = empty("metrics").with_columns(priority=pl.lit(0))
    assert gather_evaluation(metrics, empty("evals"), empty("trajectories"), NO_WIDE) is None
    assert gather_rewards(metrics, empty("trajectories"), empty("rewards"), NO_WIDE) is None


def trajectories(rewards: Sequence[float | None], *, split: str = "train") -> pl.DataFrame:
    rows = [
        {
            "trajectory_id": f"t{place:03d}",
            "step": 1 + place // 8,
            "split": split,
            "reward": reward,
            "source": "c.parquet",
        }
        for place, reward in enumerate(rewards)
    ]
    return pl.DataFrame(rows, schema=TABLES["trajectories"], orient="row")


def test_the_audit_names_highest_lowest_and_random_samples_once_each() -> None:
    rewards = [float(place) for place in range(96)]
    turns = pl.DataFrame(
        [{"trajectory_id": "t095", "role": "assistant", "text_len": 40, "n_tokens": 9}],
        schema=TABLES["turns"],
        orient="row",
    )
    table = audit_table(trajectories([*rewards, None, float("nan")]), turns)
    assert table["kind"].to_list() == [
        *["highest"] * SAMPLES_PER_KIND,
        *["lowest"] * SAMPLES_PER_KIND,
        *["random"] * SAMPLES_PER_KIND,
    ]
    assert table["trajectory_id"].n_unique() == table.height
    assert table["reward"].to_list()[:2] == [95.0, 94.0]
    assert table.filter(pl.col("kind") == "lowest")["reward"].to_list()[:2] == [0.0, 1.0]
    assert table.row(0, named=True)["length"] == 9
    assert table.equals(audit_table(trajectories([*rewards, None, float("nan")]).reverse(), turns))
    assert audit_table(empty("trajectories"), empty("turns")).is_empty()
    assert audit_table(trajectories(rewards, split="eval"), empty("turns")).is_empty()


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_the_audit_of_few_samples_names_none_twice(count: int) -> None:
    table = audit_table(trajectories([float(place) for place in range(count)]), empty("turns"))
    assert table["trajectory_id"].n_unique() == table.height
