"""Seeds pooled to arms: the factor and its interval, against every token read anew and scipy's t test."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from builders import Story, healthy_diagnosis, run_of, sequences_of, steady
from scipy import stats

from benchmarks.gate_calibration import profile_of
from ptt.diagnostics.compare import compare
from ptt.diagnostics.compare.comparison import Arm, Comparison, Member

STEPS = 60
OFFSETS = {"base": (0.25, -0.3, 0.1), "arm": (-0.2, 0.3, -0.05)}  # log-SD of 0.3: far beyond the noise within a run
LEVELS = {"base": 1.6, "arm": 0.4}


def member(name: str, frame: pl.DataFrame) -> Member:
    diagnosis = healthy_diagnosis(replace(run_of(), first_step=1, last_step=STEPS, step_count=STEPS))
    return Member(name=name, diagnosis=diagnosis, profile=profile_of(frame))


@pytest.fixture(scope="module")
def frames() -> dict[str, list[pl.DataFrame]]:
    return {
        name: [
            sequences_of(Story(steps=STEPS, post=steady(LEVELS[name] * math.exp(offset)), seed=10 * place + number))
            for number, offset in enumerate(OFFSETS[name])
        ]
        for place, name in enumerate(OFFSETS)
    }


@pytest.fixture(scope="module")
def pooled(frames: dict[str, list[pl.DataFrame]]) -> Comparison:
    return compare(
        [
            Arm(name=name, members=tuple(member(f"{name}{at}", frame) for at, frame in enumerate(held)))
            for name, held in frames.items()
        ]
    )


def late_p95(frame: pl.DataFrame, last_third: range) -> float:
    """Read every post-tool token of the late steps."""
    found = []
    for step, mask, policy, ref in frame.select("step", "model_mask", "policy_logp", "ref_logp").iter_rows():
        if step in last_third:
            model = np.array(mask)
            seen = np.cumsum(~model) > 0
            apart = np.array(policy, dtype=np.float32).astype(float) - np.array(ref, dtype=np.float32).astype(float)
            found.append(np.abs(apart[model & seen]))
    return float(np.quantile(np.concatenate(found), 0.95))


def test_the_pooled_factor_and_its_interval_are_those_of_the_seeds(
    pooled: Comparison, frames: dict[str, list[pl.DataFrame]]
) -> None:
    third = range(STEPS - STEPS // 3 + 1, STEPS + 1)
    logs = {name: np.log([late_p95(frame, third) for frame in held]) for name, held in frames.items()}
    row = pooled.tables["differences"].filter(arm="arm", axis="steps", slice="post_tool", q="p95", window="late")
    found = row.row(0, named=True)
    assert math.log(found["ratio"]) == pytest.approx(logs["base"].mean() - logs["arm"].mean(), abs=0.03)
    reference = stats.ttest_ind(logs["base"], logs["arm"]).confidence_interval()
    half = (reference.high - reference.low) / 2
    told = (math.log(found["hi"]) - math.log(found["lo"])) / 2
    assert 0.98 * half < told < 1.5 * half
    assert found["lo"] > 1
    windows = pooled.tables["windows"].filter(axis="steps", slice="post_tool", q="p95", window="late")
    for name, value, runs in windows.select("arm", "value", "runs").iter_rows():
        assert math.log(value) == pytest.approx(logs[name].mean(), abs=0.03)
        assert runs == 3


def test_growth_of_pooled_seeds_is_that_of_their_windows(pooled: Comparison) -> None:
    windows = pooled.tables["windows"].filter(axis="steps", slice="post_tool", q="p95")
    value = {(arm, window): level for arm, window, level in windows.select("arm", "window", "value").iter_rows()}
    grown = pooled.tables["growth"].filter(axis="steps", slice="post_tool", q="p95")
    growth = {row["arm"]: row for row in grown.iter_rows(named=True)}
    for name in ("base", "arm"):
        assert growth[name]["growth"] == pytest.approx(value[name, "late"] / value[name, "early"], rel=1e-9)
    assert growth["arm"]["suppression"] == pytest.approx(growth["base"]["growth"] / growth["arm"]["growth"], rel=1e-9)
    assert growth["arm"]["suppression_lo"] < 1 < growth["arm"]["suppression_hi"]


def test_more_than_one_seed_is_not_told_to_be_one(pooled: Comparison) -> None:
    assert not any("One run on either side" in line for line in pooled.sentences)
    assert "arm has lighter late post-tool tails than base" in pooled.headline
