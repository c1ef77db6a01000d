"""Advantages recomputed from rewards: which estimator gives them, whose are wrong, and what cannot be told."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from slow_cases import first_fast

import ptt
from ptt.diagnostics.model import Agreement, AuditRow, Finding, Severity

STEPS, GROUPS, SIZE = 24, 4, 8
MIDDLE = 13
Array = npt.NDArray[np.float64]
RULES = {
    "advantages-against-rewards", "advantages-of-other-samples", "groups-of-other-prompts", "groups-of-one",
    "batch-wide-advantages", "advantages-off-centre",
}  # fmt: skip


@cache
def rollouts(*, lost: float = 0.0, seed: int = 11) -> pl.DataFrame:
    """Give samples of prompts of different difficulty, in the order of the dump; some get lost before training."""
    generator = np.random.default_rng(seed)
    rows = []
    for step in range(1, STEPS + 1):
        for group in range(GROUPS):
            ability = generator.uniform(0.15, 0.85)
            for place in range(SIZE):
                right = generator.random() < ability
                formed = generator.random() < 0.7
                policy = -generator.exponential(size=12)
                rows.append(
                    {
                        "step": step,
                        "sample_id": f"{step}-{group * SIZE + place}",
                        "group_id": f"{step}-{group}",
                        "place": group * SIZE + place,
                        "model_mask": [True] * 12,
                        "policy_logp": policy.tolist(),
                        "ref_logp": (policy + 0.01 * generator.normal(size=12)).tolist(),
                        "reward": 1.0 * right + 0.1 * formed,
                    }
                )
    frame = pl.DataFrame(rows)
    kept = generator.random(frame.height) >= lost
    return frame.filter(pl.Series(kept))


def within(keys: list[str], frame: pl.DataFrame) -> Array:
    """Return GRPO's advantages over groups by these keys."""
    found = frame.select(
        (pl.col("reward") - pl.col("reward").mean().over(keys))
        / (pl.col("reward").std().fill_null(0.0).over(keys) + 1e-4)
    )
    return found["reward"].to_numpy()


def own(frame: pl.DataFrame) -> Array:
    return within(["group_id"], frame)


def cut_by_place(frame: pl.DataFrame) -> Array:
    blocks = frame.with_columns(block=pl.int_range(pl.len()).over("step") // SIZE)
    return within(["step", "block"], blocks)


def shuffled(frame: pl.DataFrame) -> Array:
    order = frame.with_row_index("at").select(pl.col("at").shuffle(seed=4).over("step"))["at"].to_numpy()
    return np.asarray(own(frame)[order])


def stale(frame: pl.DataFrame) -> Array:
    right = own(frame)
    return np.concatenate([right[: GROUPS * SIZE], right[: -GROUPS * SIZE]])


Wrong = Callable[[pl.DataFrame], Array]
FAULTS: dict[str, tuple[Wrong, float, str]] = {
    "sign": (lambda frame: -own(frame), 0.0, "advantages-against-rewards"),
    "shuffle": (shuffled, 0.0, "advantages-of-other-samples"),
    "stale": (stale, 0.0, "advantages-of-other-samples"),
    "stride": (cut_by_place, 0.1, "groups-of-other-prompts"),
    "batch": (lambda frame: within(["step"], frame), 0.0, "batch-wide-advantages"),
}


def written(folder: Path, frame: pl.DataFrame, advantage: Array | None = None, *, grpo: bool = False) -> Path:
    """Write a run as the recorder does, a file a step; `grpo`: with a metric that only GRPO logs."""
    if advantage is not None:
        frame = frame.with_columns(advantage=pl.Series(advantage.astype(np.float32)).cast(pl.Float64))
    tokens = folder / "run" / "tokens"
    tokens.mkdir(parents=True)
    for part in frame.drop("place", strict=False).partition_by("step"):
        part.write_parquet(tokens / f"step_{part['step'][0]:06d}.parquet")
    if grpo:
        lines = (f'{{"step": {step}, "frac_reward_zero_std": 0.1, "reward": 0.5}}\n' for step in range(1, STEPS + 1))
        (folder / "run" / "metrics.jsonl").write_text("".join(lines), encoding="ascii")
    return folder / "run"


def audited(path: Path) -> tuple[AuditRow, list[Finding]]:
    found = ptt.diagnose(path)
    assert found.audit is not None
    assert not found.crashes
    row = next(row for row in found.audit if row.quantity == "advantage")
    return row, [finding for finding in found.findings if finding.id in RULES]


def test_a_sound_run_names_its_estimator_and_finds_nothing(tmp_path: Path) -> None:
    frame = rollouts()
    row, findings = audited(written(tmp_path, frame, own(frame)))
    assert (row.agreement, row.formula, row.agreeing, row.steps) == (Agreement.AGREES, "grpo", STEPS, STEPS)
    assert row.said.endswith("(n - 1), plus 1e-4")
    assert not findings


def test_lost_samples_are_no_fault_where_the_rest_makes_the_group(tmp_path: Path) -> None:
    frame = rollouts(lost=0.15)
    row, findings = audited(written(tmp_path, frame, own(frame)))
    assert (row.agreement, row.formula) == (Agreement.AGREES, "grpo")
    assert not findings


@pytest.mark.parametrize("form", ["list", "jsonl"])
def test_advantages_a_token_and_rounded_lines_are_read_too(tmp_path: Path, form: str) -> None:
    frame = rollouts()
    given = frame.with_columns(advantage=pl.Series(own(frame).round(4)))
    if form == "list":
        given = given.with_columns(pl.col("advantage").cast(pl.Float32).repeat_by(12))
        path = written(tmp_path, given)
    else:
        path = tmp_path / "run"
        path.mkdir()
        given.drop("place").write_ndjson(path / "steps.jsonl")
    row, findings = audited(path)
    assert (row.agreement, row.formula) == (Agreement.AGREES, "grpo")
    assert not findings


PARTS = {
    "every fourth row": lambda frame: frame.gather_every(4),
    "half of each step": lambda frame: frame.filter(pl.col("place") < GROUPS * SIZE // 2 - 4),
    "half of each group": lambda frame: frame.filter(pl.col("place") % 2 == 0),
    "one row a group": lambda frame: frame.filter(pl.col("place") % SIZE == 3),
    "nine rows in ten": lambda frame: frame.sample(fraction=0.9, seed=5).sort("step", "place"),
    "whole for a while, then mostly half": lambda frame: frame.filter(
        (pl.col("step") < MIDDLE - 3) | (pl.col("place") % 2 == 0)
    ),
    "whole, then half": lambda frame: frame.filter((pl.col("step") < MIDDLE) | (pl.col("place") % 2 == 0)),
}


@pytest.mark.parametrize("part", first_fast(PARTS, 2))
def test_parts_of_groups_are_never_accused(tmp_path: Path, part: str) -> None:
    frame = rollouts()
    whole = frame.with_columns(advantage=pl.Series(own(frame)))
    row, findings = audited(written(tmp_path, PARTS[part](whole)))
    assert not findings
    assert row.agreement is not Agreement.DIFFERS or row.formula == "grpo"


@pytest.mark.parametrize(
    ("fault", "since"), first_fast([*((fault, MIDDLE) for fault in FAULTS), ("sign", 1), ("stale", 1)], 3)
)
def test_wrong_advantages_are_found_with_their_first_step_and_all_their_rows(
    tmp_path: Path, fault: str, since: int
) -> None:
    wrong, lost, rule = FAULTS[fault]
    frame = rollouts(lost=lost)
    right, planted = own(frame), wrong(frame)
    late = (frame["step"] >= since).to_numpy()
    given = np.where(late, planted, right)
    path = written(tmp_path, frame, given, grpo=True)
    row, findings = audited(path)
    assert [finding.id for finding in findings] == [rule]
    differing = np.abs(given - right) > 1e-4
    first = int(frame["step"].to_numpy()[differing].min())
    (finding,) = findings
    assert row.finding == rule
    assert finding.severity is Severity.HIGH
    assert (finding.onset_step or finding.held_from_step) == first
    assert finding.evidence["samples"] == pytest.approx(differing.sum(), rel=0.01)


def test_one_rank_of_two_is_found_alone(tmp_path: Path) -> None:
    frame = rollouts().with_columns(rank=(pl.col("place") >= GROUPS * SIZE // 2).cast(pl.Int64))
    second = frame["rank"].to_numpy() == 1
    row, (finding,) = audited(written(tmp_path, frame, np.where(second, -own(frame), own(frame))))
    assert row.formula == "grpo"
    assert finding.id == "advantages-against-rewards"
    assert finding.evidence["ranks"] == "1"
    assert "on rank 1" in finding.claim


def test_advantages_of_nothing_known_are_found_where_the_estimator_was_known_before(tmp_path: Path) -> None:
    frame = rollouts()
    noise = np.random.default_rng(8).normal(size=frame.height)
    late = (frame["step"] >= MIDDLE).to_numpy()
    _, (finding,) = audited(written(tmp_path, frame, np.where(late, noise, own(frame))))
    assert (finding.id, finding.onset_step) == ("advantages-against-rewards", MIDDLE)


def test_another_reward_than_the_recorded_one_is_no_fault(tmp_path: Path) -> None:
    frame = rollouts()
    other = frame.with_columns(pl.Series("reward", np.random.default_rng(9).random(frame.height)))
    row, findings = audited(written(tmp_path, frame, own(other)))
    assert (row.agreement, row.formula) == (Agreement.DIFFERS, None)
    assert not findings


def test_a_component_that_advantages_come_from_is_named(tmp_path: Path) -> None:
    frame = rollouts()
    parts = frame.with_columns(
        rewards=pl.struct(right=(pl.col("reward") >= 1).cast(pl.Float64), formed=pl.col("reward") % 1)
    )
    of_part = frame.with_columns(reward=(pl.col("reward") >= 1).cast(pl.Float64))
    row, findings = audited(written(tmp_path, parts, own(of_part)))
    assert (row.agreement, row.formula) == (Agreement.AGREES, "grpo")
    assert "rewards/right" in row.said
    assert not findings


def test_a_baseline_that_is_off_is_found_where_groups_of_the_size_were_right_before(tmp_path: Path) -> None:
    frame = rollouts()
    late = (frame["step"] >= MIDDLE).to_numpy()
    _, (finding,) = audited(written(tmp_path, frame, own(frame) + np.where(late, 0.6, 0.0)))
    assert (finding.id, finding.onset_step) == ("advantages-off-centre", MIDDLE)


def test_a_group_id_a_sample_leaves_groups_of_one(tmp_path: Path) -> None:
    frame = rollouts()
    alone = pl.when(pl.col("step") >= MIDDLE).then(pl.col("sample_id")).otherwise(pl.col("group_id"))
    frame = frame.with_columns(group_id=alone)
    _, (finding,) = audited(written(tmp_path, frame, own(frame)))
    assert (finding.id, finding.onset_step) == ("groups-of-one", MIDDLE)


def test_whole_batch_normalisation_is_a_fact_where_nothing_says_that_groups_are_compared(tmp_path: Path) -> None:
    frame = rollouts()
    path = written(tmp_path, frame, within(["step"], frame))
    row, findings = audited(path)
    assert row.formula == "batch_whitening"
    assert row.finding is None
    assert not findings


def test_rewards_taken_for_advantages_are_found_once(tmp_path: Path) -> None:
    frame = rollouts()
    path = written(tmp_path, frame, frame["reward"].to_numpy(), grpo=True)
    row, findings = audited(path)
    assert (row.formula, row.finding) == ("reward", "advantages-without-baseline")
    assert not findings


def test_samples_without_group_are_cut_by_their_order(tmp_path: Path) -> None:
    frame = rollouts()
    row, findings = audited(written(tmp_path, frame.drop("group_id"), own(frame)))
    assert (row.agreement, row.formula) == (Agreement.AGREES, "grpo")
    assert row.said.endswith("of every 8 samples in their order")
    assert not findings


def test_a_critics_advantages_are_held_against_values_and_returns(tmp_path: Path) -> None:
    frame = rollouts()
    generator = np.random.default_rng(6)
    value = generator.normal(size=(frame.height, 12))
    returns = np.repeat(frame["reward"].to_numpy()[:, None], 12, axis=1)
    columns = {"advantage": returns - value, "value": value, "return": returns}
    lists = [pl.Series(name, values.tolist(), dtype=pl.List(pl.Float32)) for name, values in columns.items()]
    row, findings = audited(written(tmp_path, frame.with_columns(lists)))
    assert (row.agreement, row.formula) == (Agreement.AGREES, "gae")
    assert not findings


def test_a_dump_with_verls_names_tells_its_critics_advantages(tmp_path: Path) -> None:
    generator = np.random.default_rng(8)
    for step in range(1, 9):
        value, old = generator.normal(size=(32, 12)), -generator.exponential(size=(32, 12))
        reference = old - generator.normal(0.05, 0.2, size=old.shape)
        reward = np.zeros(old.shape)
        reward[:, -1] = generator.integers(0, 2, 32)
        raw, after = np.zeros(old.shape), np.zeros(32)
        for at in reversed(range(12)):
            ahead = value[:, at + 1] if at < 11 else 0.0
            after = reward[:, at] - 0.02 * (old - reference)[:, at] + ahead - value[:, at] + 0.95 * after
            raw[:, at] = after
        names = {
            "responses": generator.integers(5, 99, (32, 12)), "response_mask": np.ones((32, 12), np.uint8),
            "old_log_probs": old, "log_probs": old, "ref_log_prob": reference, "values": value,
            "returns": raw + value, "advantages": (raw - raw.mean()) / raw.std(), "token_level_scores": reward,
        }  # fmt: skip
        kept = {name: array.astype(np.float32) if array.dtype == np.float64 else array for name, array in names.items()}
        np.savez(tmp_path / f"{step}.npz", **kept)
    row, findings = audited(tmp_path)
    assert (row.agreement, row.formula) == (Agreement.AGREES, "gae")
    assert "whitened over each step, gamma 1.0 and lambda 0.95, 0.020 times k1 of old/ref" in row.said
    assert not findings


def test_a_prompt_that_a_batch_holds_twice_makes_two_groups(tmp_path: Path) -> None:
    frame = rollouts()
    right = own(frame)
    twice = (pl.col("step") % 3 > 0) & (pl.col("place") >= GROUPS * SIZE // 2)
    prompt = pl.when(twice).then(pl.format("{}-twice", "step")).otherwise(pl.col("group_id"))
    row, findings = audited(written(tmp_path, frame.with_columns(group_id=prompt), right))
    assert (row.agreement, row.formula) == (Agreement.AGREES, "grpo")
    assert row.said.endswith("of every 8 samples of a prompt")
    assert not findings


def test_the_rows_of_a_trajectory_count_once(tmp_path: Path) -> None:
    frame = rollouts().with_columns(trajectory_id=pl.col("sample_id"), advantage=pl.Series(own(rollouts())))
    turns = pl.concat([frame, frame.filter(pl.col("place") % 3 == 0)]).sort("step", "place")
    turns = turns.with_columns(sample_id=pl.format("{}/{}", "step", pl.int_range(pl.len())))
    row, findings = audited(written(tmp_path, turns))
    assert (row.agreement, row.formula) == (Agreement.AGREES, "grpo")
    assert not findings


def test_groups_spread_over_the_steps_of_one_generation_are_joined(tmp_path: Path) -> None:
    frame = rollouts()
    right = own(frame)
    spread = frame.with_columns(step=2 * pl.col("step") + pl.col("place") % 2, advantage=pl.Series(right))
    row, findings = audited(written(tmp_path, spread.sort("step", maintain_order=True)))
    assert (row.agreement, row.formula) == (Agreement.AGREES, "grpo")
    assert not findings


def test_huge_rewards_and_odd_settings_cost_no_topic(tmp_path: Path) -> None:
    frame = rollouts()
    path = written(tmp_path, frame.with_columns(pl.col("reward") * 1e200), own(frame), grpo=True)
    (path / "trainer_state.json").write_text('{"log_history": [{"step": 1, "num_generations": 1e30, "loss": 1}]}')
    (path / "config.yaml").write_text("num_generations: 1.0e+30\nwarmup_ratio: 1.0e+308\nmax_steps: 100\n")
    assert not ptt.diagnose(path).crashes
