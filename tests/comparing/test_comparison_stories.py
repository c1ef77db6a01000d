"""Real runs side by side: what a comparison of them must say, and must not."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from judged_runs import compared_runs
from shared_folder import shared_folder

from ptt import api
from ptt.diagnostics.compare.comparison import Comparison, late_words, tail_of

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "sample_logs"


@pytest.fixture(scope="module")
def kept() -> Path:
    """Where runs are kept, so that each is judged once."""
    return shared_folder()


@pytest.fixture(scope="module")
def suppressed() -> Comparison:
    return compared_runs("tool_tail_growth", "kl_penalised")


def row(table: pl.DataFrame, **where: object) -> dict[str, object]:
    found = table.filter(**where)
    assert found.height == 1
    return found.row(0, named=True)


def test_a_kl_penalty_suppresses_the_tails_and_the_interval_leaves_out_one(suppressed: Comparison) -> None:
    late = row(suppressed.tables["differences"], axis="steps", slice="post_tool", q="p95", window="late")
    assert 4 < float(str(late["ratio"])) < 7
    assert float(str(late["lo"])) > 2.5
    grown = row(suppressed.tables["growth"], axis="steps", slice="post_tool", q="p95", arm="kl_penalised")
    assert 1.4 < float(str(grown["growth"])) < 2.5
    assert float(str(grown["suppression_lo"])) > 1
    base = row(suppressed.tables["growth"], axis="steps", slice="post_tool", q="p95", arm="tool_tail_growth")
    assert 4.5 < float(str(base["growth"])) < 6.5
    assert base["suppression"] is None
    assert "kl_penalised has lighter late post-tool tails than tool_tail_growth" in suppressed.headline


def test_level_and_growth_are_both_told_and_so_is_a_tail_that_is_rarer_rather_than_smaller(
    suppressed: Comparison,
) -> None:
    said = " ".join(suppressed.sentences)
    assert "growth, late over early: p95 ×2 against ×5.5 (suppressed ×2.8" in said
    assert "rarer rather than smaller" in said
    assert "One run on either side" in said


def test_the_same_reward_is_alike_and_a_smaller_kl_is_lower(suppressed: Comparison) -> None:
    words = late_words(suppressed.tables, suppressed.arms[1])
    assert words["reward/mean"] == "alike"
    assert words["kl/ref"] == "lower"
    assert set(words.values()) <= {"higher", "lower", "alike", "cannot_say"}


def test_tails_of_both_axes_are_told(suppressed: Comparison) -> None:
    assert set(suppressed.matched) == {"steps", "tokens"}
    for axis in ("steps", "tokens"):
        assert suppressed.matched[axis] is not None
        late = row(suppressed.tables["differences"], axis=axis, slice="post_tool", q="p95", window="late")
        assert float(str(late["lo"])) > 1


def test_intervals_hold_their_values_and_nothing_is_not_a_number(suppressed: Comparison) -> None:
    for name, (value, low, high) in {
        "curves": ("value", "lo", "hi"),
        "windows": ("value", "lo", "hi"),
        "differences": ("ratio", "lo", "hi"),
        "growth": ("growth", "lo", "hi"),
        "aggregates": ("mean", "lo", "hi"),
        "aggregate_differences": ("difference", "lo", "hi"),
        "divergence": ("step", "low", "high"),
    }.items():
        table = suppressed.tables[name].drop_nulls([value, low, high])
        assert table.height > 0, name
        outside = table.filter((pl.col(low) > pl.col(value)) | (pl.col(value) > pl.col(high)))
        assert outside.height == 0, name
        for column in table.columns:
            if table.schema[column] == pl.Float64:
                assert table[column].is_nan().sum() == 0, (name, column)


def test_windows_are_the_percentiles_of_the_tokens_in_them(suppressed: Comparison) -> None:
    """The files themselves, read anew: every token of the late steps, by numpy."""
    late = row(
        suppressed.tables["windows"], arm="tool_tail_growth", axis="steps", slice="post_tool", q="p95", window="late"
    )
    ratios: dict[int, np.ndarray] = {}
    for path in sorted((SAMPLES / "tool_tail_growth" / "tokens").iterdir()):
        frame = pl.read_parquet(path)
        found = []
        for mask, policy, ref in frame.select("model_mask", "policy_logp", "ref_logp").iter_rows():
            model = np.array(mask)
            seen = np.cumsum(~model & (np.cumsum(model) > 0)) > 0
            apart = np.array(policy, dtype=np.float64) - np.array(ref, dtype=np.float64)
            found.append(apart[model & seen])
        ratios[int(frame["step"][0])] = np.abs(np.concatenate(found))
    tokens = int(str(late["n_tokens"]))
    reach = suppressed.matched["steps"]
    assert reach is not None
    steps = sorted(step for step in ratios if step <= reach[1])
    held = next(
        values
        for first in range(len(steps))
        if len(values := np.concatenate([ratios[step] for step in steps[first:]])) <= tokens
    )
    assert len(held) == tokens
    assert float(np.quantile(held, 0.95)) == pytest.approx(float(str(late["value"])), rel=0.004)


def test_tools_that_vanish_are_no_improvement() -> None:
    found = compared_runs("tool_tail_growth", "collapse")
    late = row(found.tables["differences"], axis="steps", slice="post_tool", q="p95", window="late")
    assert late["ratio"] is None
    (said,) = [item for item in found.not_compared if "late post-tool tails of collapse" in item.what]
    assert "no improvement" in said.reason
    assert "has lighter" not in found.headline
    words = late_words(found.tables, found.arms[1])
    assert words["reward/mean"] == "lower"


@pytest.mark.slow
def test_two_halves_of_one_run_show_no_difference(kept: Path, tmp_path: Path) -> None:
    for name, wanted in (("one", (0, 1)), ("two", (8, 9))):
        (tmp_path / name / "tokens").mkdir(parents=True)
        for path in (SAMPLES / "tool_tail_growth" / "tokens").iterdir():
            step = re.search(r"\d+", path.name)
            if step is not None and (int(step.group()) - 1) % 16 in wanted:
                shutil.copy(path, tmp_path / name / "tokens" / path.name)
    found = api.compare([tmp_path / "one", tmp_path / "two"], out=kept)
    table = found.tables["differences"].drop_nulls("lo")
    assert table.height >= 16
    assert table.filter((pl.col("lo") > 1) | (pl.col("hi") < 1)).height == 0
    assert found.tables["divergence"].height == 0
    assert "no clear difference" in found.headline or "equally heavy" in found.headline
    assert any(item.what == "metrics" for item in found.not_compared)


@pytest.mark.slow
def test_a_copy_of_a_run_is_told_to_be_one(kept: Path, tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "healthy", tmp_path / "copy")
    found = api.compare([SAMPLES / "healthy", tmp_path / "copy"], out=kept)
    assert any("has the same files as healthy" in line for line in found.sentences)
    assert found.tables["differences"].drop_nulls("lo").filter((pl.col("lo") > 1) | (pl.col("hi") < 1)).height == 0
    assert set(found.tables["aggregate_differences"]["words"]) <= {"alike", "cannot_say"}
    assert found.tables["aggregate_differences"]["difference"].drop_nulls().abs().max() == 0
    assert found.tables["divergence"]["what"].to_list() == ["identical"]


@pytest.mark.slow
def test_an_easier_task_is_named_as_a_caution(kept: Path) -> None:
    found = api.compare([SAMPLES / "tool_tail_growth", SAMPLES / "healthy"], out=kept)
    assert any("an easier task drifts less by itself" in line for line in found.sentences)
    tail = tail_of(found.tables, found.arms[1], found.arms[0], "post_tool", "p95")
    assert tail.words == "lower"
    assert tail.growth_words == "cannot_say"
    assert any("lies lower from the start" in line for line in found.sentences)


@pytest.mark.slow
def test_seeds_of_a_group_are_pooled_and_how_far_they_lie_apart_counts(kept: Path) -> None:
    runs = [SAMPLES / name for name in ("tool_tail_growth", "kl_penalised", "healthy")]
    alone = api.compare(runs[:2], out=kept)
    pooled = api.compare(runs, groups={"guarded": ("kl_penalised", "healthy")}, out=kept)
    assert [arm.name for arm in pooled.arms] == ["tool_tail_growth", "guarded"]

    def late(comparison: Comparison, arm: str) -> dict[str, object]:
        return row(comparison.tables["windows"], arm=arm, axis="steps", slice="post_tool", q="p95", window="late")

    one, both = late(alone, "kl_penalised"), late(pooled, "guarded")
    assert both["runs"] == 2
    width = [float(str(held["hi"])) / float(str(held["lo"])) for held in (one, both)]
    assert width[1] > 5 * width[0]
    assert not any("One run on either side" in line for line in pooled.sentences)


@pytest.mark.slow
def test_the_same_comparison_gives_the_same_tables(suppressed: Comparison, kept: Path) -> None:
    again = api.compare([SAMPLES / "tool_tail_growth", SAMPLES / "kl_penalised"], out=kept)
    assert again.headline == suppressed.headline
    assert again.sentences == suppressed.sentences
    for name, table in suppressed.tables.items():
        assert table.equals(again.tables[name]), name


@pytest.mark.slow
def test_runs_of_other_pairs_and_frameworks_are_compared_in_what_they_share(kept: Path) -> None:
    archive = ROOT / "tests" / "fixtures" / "runs" / "verl_ppo_healthy.tar.zst"
    found = api.compare([SAMPLES / "healthy", archive], out=kept)
    assert any("tails" in item.what for item in found.not_compared)
    assert any("a different framework" in line for line in found.sentences)
    assert found.tables["aggregate_differences"].height > 0
    settings = found.tables["settings"].filter(key="framework")
    assert settings["differs"].to_list() == [True, True]
