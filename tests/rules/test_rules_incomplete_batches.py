"""Batches of which only a part is recorded: told by the log's means, by prompt groups, or by what jumps with rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from builders import Story, sequences_of, steady, write_recorder_run

import ptt
from ptt.diagnostics.model import Finding

STEPS, ROWS, GROUP, SINCE = 40, 16, 4, 25
ID = "incomplete-batches"


def batches(seed: int = 0) -> pl.DataFrame:
    """Give a sound run with prompt groups, rewards, and tails that differ from sequence to sequence."""
    generator = np.random.default_rng(seed)
    frame = sequences_of(Story(steps=STEPS, sequences=ROWS, post=steady(0.2), likeness=0.8, seed=seed))
    group = pl.int_range(pl.len()) // GROUP
    return frame.with_columns(
        pl.concat_str(pl.lit("g"), group).alias("group_id"),
        pl.Series(
            "reward", (generator.random(frame.height) < 0.5).astype(float) + 0.1 * generator.random(frame.height)
        ),
    )


def logged(folder: Path, frame: pl.DataFrame, **changed: pl.Expr) -> None:
    """Write what the trainer logs of whole batches, as TRL does."""
    lengths = pl.col("model_mask").list.sum().mean()
    means = frame.group_by("step").agg(pl.col("reward").mean(), lengths.alias("completions/mean_length")).sort("step")
    with (folder / "metrics.jsonl").open("w", encoding="utf-8") as lines:
        for row in means.with_columns(**changed).iter_rows(named=True):
            lines.write(json.dumps(row) + "\n")


def diagnosed(folder: Path, recorded: pl.DataFrame, whole: pl.DataFrame | None, **changed: pl.Expr) -> ptt.Diagnosis:
    folder.mkdir()
    write_recorder_run(folder, recorded)
    if whole is not None:
        logged(folder, whole, **changed)
    return ptt.diagnose(folder)


def found(diagnosis: ptt.Diagnosis) -> Finding:
    (finding,) = [one for one in diagnosis.findings if one.id == ID]
    assert diagnosis.signature.status != "found"
    return finding


def worst(frame: pl.DataFrame, by: pl.Expr, *, since: int = SINCE, share: float = 0.25) -> pl.DataFrame:
    rank = by.rank("ordinal", descending=True).over("step")
    return frame.filter((pl.col("step") < since) | (rank <= share * pl.len().over("step")))


def with_distance(frame: pl.DataFrame) -> pl.DataFrame:
    sizes = [
        float(np.abs(np.subtract(policy, ref)).mean())
        for policy, ref in frame.select("policy_logp", "ref_logp").iter_rows()
    ]
    return frame.with_columns(pl.Series("distance", sizes))


def test_means_that_part_from_the_log_tell_since_when_and_what_is_kept(tmp_path: Path) -> None:
    whole = batches()
    kept = worst(whole, -pl.col("reward")).drop("group_id")
    finding = found(diagnosed(tmp_path / "run", kept, whole))
    assert finding.onset_step == SINCE
    assert finding.onset_interval is not None
    assert finding.onset_interval[0] >= SINCE - 1
    assert f"From step {SINCE} on only part of each batch is recorded: 4.0 rows a step instead of 16" in finding.claim
    assert "where the log says" in finding.claim
    assert finding.evidence["contaminates"] == "all"


def test_groups_that_are_cut_short_tell_it_without_a_log(tmp_path: Path) -> None:
    finding = found(diagnosed(tmp_path / "run", worst(batches(), -pl.col("reward"), share=0.5).drop("reward"), None))
    assert finding.onset_step == SINCE
    assert "prompt groups of" in finding.claim


def test_rows_that_fall_while_the_tail_jumps_tell_it_without_groups_or_log(tmp_path: Path) -> None:
    kept = worst(with_distance(batches()), pl.col("distance")).drop("group_id", "reward", "distance")
    finding = found(diagnosed(tmp_path / "run", kept, None))
    assert finding.onset_step == SINCE
    assert "mean |r|" in finding.claim


def test_a_part_up_to_a_step_has_no_onset(tmp_path: Path) -> None:
    whole = batches()
    worse = pl.col("reward").rank("ordinal").over("step") <= 4
    finding = found(diagnosed(tmp_path / "run", whole.filter((pl.col("step") >= SINCE) | worse), whole))
    assert (finding.onset_step, finding.held_from_step) == (None, 1)
    assert finding.claim.startswith(f"Up to step {SINCE - 1} only part")


def test_tokens_that_the_log_does_not_count_are_told_as_such(tmp_path: Path) -> None:
    whole = batches()
    padded = pl.when(pl.col("step") >= SINCE).then(pl.lit([True] * 6)).otherwise(pl.lit([], pl.List(pl.Boolean)))
    value = pl.when(pl.col("step") >= SINCE).then(pl.lit([-2.5] * 6)).otherwise(pl.lit([], pl.List(pl.Float64)))
    longer = whole.with_columns(
        pl.concat_list("model_mask", padded).alias("model_mask"),
        pl.concat_list("policy_logp", value).alias("policy_logp"),
        pl.concat_list("ref_logp", value).alias("ref_logp"),
    )
    finding = found(diagnosed(tmp_path / "run", longer, whole))
    assert finding.onset_step == SINCE
    assert "tokens in the mean where the log says" in finding.claim


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda frame: frame, id="nothing", marks=pytest.mark.slow),
        pytest.param(
            lambda frame: frame.filter((pl.col("step") < SINCE) | (pl.int_range(pl.len()) % 16 < 8)),
            id="batch",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            lambda frame: frame.filter((pl.col("step") < SINCE) | (pl.int_range(pl.len()) % 4 < 2)), id="group"
        ),
    ],
)
def test_another_batch_or_group_size_that_the_log_follows_is_no_fault(change: object, tmp_path: Path) -> None:
    trained = change(batches())  # type: ignore[operator]
    for name, whole in (("log", trained), ("no log", None)):
        diagnosis = diagnosed(tmp_path / name, trained, whole)
        told = [one for one in diagnosis.findings if one.id == ID]
        assert {str(one.severity) for one in told} <= {"info"}


def test_a_reward_that_the_log_scales_anew_is_no_fault(tmp_path: Path) -> None:
    whole = batches()
    scaled = pl.when(pl.col("step") >= SINCE).then(2 * pl.col("reward")).otherwise(pl.col("reward"))
    assert ID not in {one.id for one in diagnosed(tmp_path / "run", whole, whole, reward=scaled).findings}
