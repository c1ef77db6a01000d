"""What is missing from the records, or there again: ranks, environments, tools, whole batches, with their steps."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from builders import Story, sequences_of, steady, write_recorder_run
from slow_cases import first_fast

import ptt
from ptt.diagnostics.model import Finding

STEPS, SINCE = 40, 25
LATE = pl.col("step") >= SINCE


def batches(values: list[object], column: str) -> pl.DataFrame:
    """Give a sound run whose sequences have these values in turn."""
    frame = sequences_of(Story(steps=STEPS, sequences=12, post=steady(0.2)))
    place = pl.int_range(pl.len()) % len(values)
    return frame.with_columns(
        pl.Series("sample_id", [f"s{number}" for number in range(frame.height)]),
        place.replace_strict(dict(enumerate(values))).alias(column),
    )


def diagnosed(folder: Path, frame: pl.DataFrame, log: str = "") -> ptt.Diagnosis:
    write_recorder_run(folder, frame)
    with (folder / "metrics.jsonl").open("w", encoding="utf-8") as lines:
        for step in range(1, STEPS + 1):
            lines.write(json.dumps({"step": step, "loss": 0.1} | ({log: 1.0 + step % 3} if log else {})) + "\n")
    return ptt.diagnose(folder)


def only(diagnosis: ptt.Diagnosis, name: str) -> Finding:
    (finding,) = [one for one in diagnosis.findings if one.id == name]
    assert diagnosis.signature.status != "found"
    return finding


@pytest.mark.slow
def test_a_rank_that_comes_late_is_told_with_the_step_it_is_missing_up_to(tmp_path: Path) -> None:
    frame = batches([0, 1, 2], "rank").filter(LATE | (pl.col("rank") != 2))
    finding = only(diagnosed(tmp_path, frame), "missing-parts")
    assert finding.claim == f"Rank 2 of 3 is missing up to step {SINCE - 1} (24 recorded steps)"
    assert (finding.onset_step, finding.held_from_step) == (None, 1)


def test_a_rank_that_vanishes_is_told_with_the_step_from_which_on(tmp_path: Path) -> None:
    frame = batches([0, 1, 2], "rank").filter(~LATE | (pl.col("rank") != 2))
    finding = only(diagnosed(tmp_path, frame), "missing-parts")
    assert f"missing from step {SINCE} on" in finding.claim
    assert finding.onset_step == SINCE


def test_a_run_that_continues_on_more_ranks_with_the_same_batch_is_a_note(tmp_path: Path) -> None:
    few, many = batches([0, 1], "rank").filter(~LATE), batches([0, 1, 2, 3], "rank").filter(LATE)
    finding = only(diagnosed(tmp_path, pl.concat([few, many])), "missing-parts")
    assert finding.severity == "info"
    assert finding.claim.startswith(f"2 of 4 ranks record up to step {SINCE - 1}, as many sequences a step")


@pytest.mark.parametrize(
    ("logged", "severity"), first_fast([("env/maze/reward", "medium"), ("env/shop/reward", "info"), ("", "info")], 2)
)
def test_an_environment_that_vanishes_is_a_fault_only_while_the_log_goes_on_with_it(
    logged: str, severity: str, tmp_path: Path
) -> None:
    frame = batches(["maze", "shop"], "env").filter(~LATE | (pl.col("env") != "maze"))
    finding = only(diagnosed(tmp_path, frame, logged), "missing-parts")
    assert f"environment `maze` is recorded from step {SINCE} on" in finding.claim
    assert (finding.severity, finding.onset_step) == (severity, SINCE)
    assert ("while the log has `env/maze/reward` there" in finding.claim) == (severity == "medium")


def test_a_batch_that_is_recorded_again_under_new_ids_is_named_with_its_step(tmp_path: Path) -> None:
    frame = batches(["a"], "env")
    old = frame.filter(pl.col("step") == SINCE - 1)
    again = [old.with_columns(step=pl.lit(step, pl.Int64)) for step in range(SINCE, STEPS + 1)]
    stuck = pl.concat([frame.filter(~LATE), *again])
    stuck = stuck.with_columns(pl.Series("sample_id", [f"t{number}" for number in range(stuck.height)]))
    finding = only(diagnosed(tmp_path, stuck), "repeated-sequences")
    assert (
        finding.claim
        == f"100% of the sequences recorded from step {SINCE} on are those of earlier steps, token for token"
    )
    assert finding.onset_step == SINCE
    assert finding.evidence["contaminates"] == "all"


def test_one_sample_recorded_for_several_prompts_is_named(tmp_path: Path) -> None:
    frame = batches(["a"], "env").with_columns(pl.concat_str(pl.lit("g"), pl.int_range(pl.len())).alias("group_id"))
    lists = ("policy_logp", "ref_logp", "model_mask")
    same = (pl.when(LATE).then(pl.col(name).first().over("step")).otherwise(pl.col(name)).alias(name) for name in lists)
    finding = only(diagnosed(tmp_path, frame.with_columns(*same)), "repeated-sequences")
    assert "are those of other prompts" in finding.claim


def test_equal_answers_to_one_prompt_are_no_repeats(tmp_path: Path) -> None:
    frame = batches(["a"], "env").with_columns(
        pl.concat_str(pl.lit("g"), pl.int_range(pl.len()) // 4).alias("group_id")
    )
    same = frame.with_columns(pl.col("policy_logp", "ref_logp", "model_mask").first().over("group_id"))
    assert "repeated-sequences" not in {one.id for one in diagnosed(tmp_path, same).findings}


def test_an_old_policy_scores_the_rollouts_of_two_steps_once(tmp_path: Path) -> None:
    """They are recorded at both, and are equal."""
    frame = batches(["a"], "env").rename({"policy_logp": "old_logp"})
    twice = frame.with_columns(2 * ((pl.col("step") + 1) // 2) - 1)
    pairs = pl.concat(
        [twice.filter(pl.int_range(pl.len()) % 24 < 12).with_columns(step=pl.col("step") + at) for at in (0, 1)]
    )
    named = pairs.sort("step", maintain_order=True)
    assert "repeated-sequences" not in {one.id for one in diagnosed(tmp_path, named).findings}
