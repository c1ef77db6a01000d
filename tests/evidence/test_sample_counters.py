"""Counters of samples are read as counts of a step and as shares, whatever the framework's way of counting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from builders import series_of

from ptt.diagnostics.evidence.prompt_groups import gather_groups
from ptt.diagnostics.evidence.sample_counters import (
    SampleCounters,
    cause_of,
    count_episodes,
    counts_of_total,
    gather_counters,
    is_fault,
)
from ptt.diagnostics.metrics.aliases import canonical
from ptt.diagnostics.schema import TABLES
from ptt.diagnostics.store.wide_metrics import WideMetrics

STEPS = 40
NONE = pl.DataFrame(schema=TABLES["trajectories"])


def metrics_of(values: Mapping[tuple[str, str], Any], steps: Sequence[int] | None = None) -> pl.DataFrame:
    """Return rows of the table of metrics: values by spelling and file."""
    rows = [
        {"step": step, "split": "train", "name_raw": raw, "name": canonical(raw), "value": float(value), "flag": 0,
         "seq": at, "source": source, "priority": 0}
        for (raw, source), series in values.items()
        for at, (step, value) in enumerate(zip(steps or range(1, len(series) + 1), series, strict=True))
    ]  # fmt: skip
    return pl.DataFrame(rows, schema={**TABLES["metrics"], "priority": pl.Int32()}, orient="row")


def counted(values: Mapping[str, Any], **settings: Any) -> SampleCounters:
    """Read counters of one file."""
    metrics = metrics_of({(raw, "metrics.jsonl"): series for raw, series in values.items()})
    found = gather_counters(metrics, WideMetrics(Path()), NONE, settings, np.arange(1, STEPS + 1))
    assert found is not None
    return found


def test_a_running_total_becomes_what_each_step_adds_and_starts_anew_after_a_fall() -> None:
    total = series_of("samples/dropped", [3, 5, 5, 9, 2, 4])
    assert counts_of_total(total).values.tolist() == [3, 2, 0, 4, 2, 2]
    late = series_of("samples/dropped", [100, 104, 110], steps=[50, 52, 55])
    rates = counts_of_total(late)
    assert (rates.steps.tolist(), rates.values.tolist()) == ([52, 55], [2.0, 2.0])


def test_a_share_is_of_what_was_left_and_lost() -> None:
    found = counted(
        {"rollout/committed_total": np.cumsum([30] * STEPS), "rollout/infra_drops_total": np.cumsum([10] * STEPS)}
    )
    assert np.allclose(found.shares["dropped"].values, 0.25)
    assert np.allclose(found.shares["lost"].values, 0.25)


def test_a_total_is_not_added_to_its_parts_and_parts_alone_make_a_total() -> None:
    both = {
        "rollout/infra_drops_total": np.cumsum([5] * STEPS),
        "rollout/infra_drops_total/Timeout": np.cumsum([3] * STEPS),
        "rollout/infra_drops_total/Refused": np.cumsum([2] * STEPS),
    }
    assert np.allclose(counted(both).counts["dropped"].values, 5)
    assert set(counted(both).causes["dropped"]) == {"Timeout", "Refused"}
    parts = {raw: values for raw, values in both.items() if raw.count("/") == 2}
    assert np.allclose(counted(parts).counts["dropped"].values, 5)


def test_counts_of_ranks_are_summed_once() -> None:
    raw = "generate/num_error_trajectories"
    by_rank = {(raw, f"rank_{rank}/metrics.jsonl"): [rank + 1.0] * STEPS for rank in range(3)}
    sizes = {"train_batch_size": 8, "n_samples_per_prompt": 2}
    logged = np.arange(1, STEPS + 1)
    found = gather_counters(metrics_of(by_rank), WideMetrics(Path()), NONE, sizes, logged)
    assert found is not None
    assert np.allclose(found.counts["failed"].values, 6)
    assert np.allclose(found.shares["failed"].values, 6 / 16)
    whole = metrics_of({**by_rank, (raw, "metrics.jsonl"): [6.0] * STEPS})
    again = gather_counters(whole, WideMetrics(Path()), NONE, sizes, logged)
    assert again is not None
    assert np.allclose(again.counts["failed"].values, 6)


def test_a_counter_that_is_left_out_at_zero_counts_zero_there() -> None:
    metrics = metrics_of({("training/rollout_failure/evicted_samples", "metrics.jsonl"): [4.0, 6.0]}, steps=[10, 20])
    logged = np.arange(1, STEPS + 1)
    found = gather_counters(metrics, WideMetrics(Path()), NONE, {"train_batch_size": 16}, logged)
    assert found is not None
    assert found.counts["failed"].values.sum() == 10
    assert len(found.counts["failed"].values) == STEPS
    assert found.shares["failed"].values.max() == 6 / 22  # failed groups are sampled anew


def test_shares_in_percent_and_what_was_kept() -> None:
    assert np.allclose(counted({"dynamic_filtering_pass_rate": [75.0] * STEPS}).shares["filtered"].values, 0.25)
    assert np.allclose(counted({"async/keep_rate": [0.75] * STEPS}).shares["filtered"].values, 0.25)


def test_the_environments_fault_is_told_from_the_policys() -> None:
    for error in (
        "SandboxError",
        "session reset failed: no free browser session (64 in use)",
        "agent_timeout",
        "OSError",
    ):
        assert is_fault(error), error
    for error in ("parse_error", "max_prompt_length_exceeded", "invalid_tool_call", "MaxTurns: too many turns"):
        assert not is_fault(error), error
    assert cause_of("no free session (64 in use)") == cause_of("no free session (63 in use)")


def episodes(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return trajectories of training, each of its own id."""
    made = [{"trajectory_id": str(at), "split": "train", **row} for at, row in enumerate(rows)]
    return pl.DataFrame(made, schema=TABLES["trajectories"], orient="row")


def test_failed_episodes_are_counted_with_their_reward_and_their_distance_from_their_prompt() -> None:
    rows = [
        {"step": 1, "group_id": "a", "reward": 1.0},
        {"step": 1, "group_id": "a", "reward": 0.0, "error_type": "SandboxError"},
        {"step": 1, "group_id": "b", "reward": 0.0, "error_type": "SandboxError", "masked": True},
        {"step": 1, "group_id": "b", "reward": None, "error_type": "max_length"},
    ]
    found = count_episodes(episodes(rows))
    assert found is not None
    assert (found.asked[0], found.failed[0], found.trained[0], found.unscored[0]) == (4, 2, 1, 1)
    assert (found.clean_reward[0], found.failed_reward[0], found.asked_reward[0]) == (1.0, 0.0, 0.25)
    assert found.advantage[0] == -0.5
    assert found.causes == {"SandboxError": 2}
    assert count_episodes(episodes([{"step": 1, "reward": 1.0}])) is None


def test_prompt_groups_are_told_apart_by_what_their_attempts_earned() -> None:
    earned: dict[str, list[float]] = {"right": [1, 1], "wrong": [0, 0], "mixed": [0, 1], "clipped": [0.5, 0.5]}
    rows = [
        {"step": step, "group_id": name, "reward": float(reward)}
        for step in (1, 2)
        for name, rewards in earned.items()
        for reward in rewards
    ]
    trajectories = episodes(rows)
    clipped = trajectories.filter(pl.col("group_id") == "clipped")["trajectory_id"]
    parts = pl.DataFrame({"trajectory_id": clipped, "name": "length", "score": [0.1, 0.9, 0.2, 0.8]})
    groups = gather_groups({}, trajectories, parts.with_columns(weight=pl.lit(None, pl.Float64)))
    assert groups is not None
    for shares in (groups.right, groups.wrong, groups.equal, groups.mixed):
        assert shares.tolist() == [0.25, 0.25]
    assert np.isclose(groups.disguised, 1 / 3)


def test_logged_shares_of_groups_may_be_percent() -> None:
    logged = {
        "groups/all_right_frac": series_of("groups/all_right_frac", [25.0, 50.0]),
        "groups/all_wrong_frac": series_of("groups/all_wrong_frac", [50.0, 25.0]),
    }
    groups = gather_groups(logged, NONE, pl.DataFrame(schema=TABLES["rewards"]))
    assert groups is not None
    assert groups.right.tolist() == [0.25, 0.5]
    assert groups.mixed.tolist() == [0.25, 0.25]


def test_small_percents_are_told_by_the_share_of_the_other_groups() -> None:
    logged = {
        "groups/all_right_frac": series_of("groups/all_right_frac", [1.0, 1.0]),
        "groups/all_wrong_frac": series_of("groups/all_wrong_frac", [0.5, 0.5]),
        "groups/mixed_frac": series_of("groups/mixed_frac", [98.5, 98.5]),
    }
    groups = gather_groups(logged, NONE, pl.DataFrame(schema=TABLES["rewards"]))
    assert groups is not None
    assert groups.right.tolist() == [0.01, 0.01]
    assert np.allclose(groups.mixed, 0.985)


def test_counts_of_groups_that_sum_to_one_total_are_shares_of_it() -> None:
    logged = {
        "groups/all_right_frac": series_of("groups/all_right_frac", [1.0, 0.0]),
        "groups/all_wrong_frac": series_of("groups/all_wrong_frac", [2.0, 3.0]),
        "groups/mixed_frac": series_of("groups/mixed_frac", [1.0, 1.0]),
    }
    groups = gather_groups(logged, NONE, pl.DataFrame(schema=TABLES["rewards"]))
    assert groups is not None
    assert groups.right.tolist() == [0.25, 0.0]
    assert groups.wrong.tolist() == [0.5, 0.75]
    assert groups.equal.tolist() == [0.0, 0.0]
    assert groups.asked.tolist() == [4.0, 4.0]
