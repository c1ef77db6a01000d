"""What a comparison must not say of an arm: another arm's reason, a step no interval dates, a merit it has not."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import comparisons
import numpy as np
import polars as pl
import pytest
from judged_runs import compared_runs
from shared_folder import shared_folder
from typer.testing import CliRunner

from ptt import api
from ptt.cli.app import app
from ptt.diagnostics.compare.comparison import Arm, Comparison, Member, NotCompared, Tail, pair, ratio_words
from ptt.diagnostics.compare.divergence_onset import Statistic, divergence_table
from ptt.diagnostics.compare.sentences import headline_of, sentences_of
from ptt.diagnostics.statistics.autocorrelated_mean import estimate_means, subtract_means
from ptt.reports.compare.html import growth_tables
from ptt.reports.compare.markdown import compare_markdown
from ptt.reports.compare.texts import arm_rows, divergence_rows, metrics_counted
from ptt.reports.figures.compare.arms import arm_styles
from ptt.reports.figures.compare.forest import FIGURE

SAMPLES = Path(__file__).parents[2] / "sample_logs"
STEPS = 240
Values = Callable[[np.random.Generator, int], float]


@pytest.fixture(scope="module")
def kept() -> Path:
    return shared_folder()


@pytest.fixture(scope="module")
def pair_alone() -> Comparison:
    return compared_runs("tool_tail_growth", "kl_penalised")


@pytest.fixture(scope="module")
def with_third() -> Comparison:
    return compared_runs("tool_tail_growth", "kl_penalised", "collapse")


def run(folder: Path, steps: range, *, seed: int = 0, more: dict[str, Values] | None = None) -> Path:
    """Write a run of logged metrics."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng([seed, 11])
    usual: dict[str, Values] = {
        "loss": lambda rng, _: 0.05 * rng.normal(),
        "reward": lambda rng, _: 0.5 + 0.05 * rng.normal(),
        "entropy": lambda rng, _: 0.4 + 0.02 * rng.normal(),
    }
    rows = [
        {"step": step, **{name: value(generator, step) for name, value in (usual | (more or {})).items()}}
        for step in steps
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def of(table: pl.DataFrame, arm: str) -> list[tuple[object, ...]]:
    return table.filter(arm=arm).rows()


@pytest.mark.slow
def test_what_moved_first_in_an_arm_does_not_depend_on_who_else_is_there(
    pair_alone: Comparison, with_third: Comparison
) -> None:
    alone = of(pair_alone.tables["divergence"], "kl_penalised")
    assert alone == of(with_third.tables["divergence"], "kl_penalised")
    known = pair_alone.tables["divergence"]["slice"].drop_nulls().to_list()
    undated = [item for item in pair_alone.not_compared if item.what == "when the tails of kl_penalised left"]
    assert known or undated, "tails that cannot be dated are said to be so"


def test_ranges_stand_beside_the_numbers(pair_alone: Comparison) -> None:
    tails = next(line for line in pair_alone.sentences if "p95 of |r|" in line)
    metrics = next(line for line in pair_alone.sentences if "late in the run" in line)
    windows = pair_alone.tables["windows"].filter(axis="steps", window="late")
    assert f"(steps {math.ceil(windows['x_first'][0])} to {math.floor(windows['x_last'][0])})" in tails
    means = pair_alone.tables["aggregates"].filter(window="late")
    assert f"(steps {means['step_first'][0]} to {means['step_last'][0]})" in metrics
    for words in pair_alone.tables["divergence"].filter(pl.col("what") != "identical")["words"]:
        assert "on average over steps" in words
    marked = compare_markdown(pair_alone)
    assert f"late third (steps {means['step_first'][0]} to {means['step_last'][0]})" in marked.replace("\\", "")


def test_a_departure_that_nothing_dates_gives_no_step() -> None:
    generator = np.random.default_rng(5)
    steps = np.arange(1, 301)
    base = generator.normal(size=300)
    drifting = base + generator.normal(size=300) + np.linspace(0.0, 4.0, 300)

    def held(values: np.ndarray) -> dict[str, Statistic]:
        return {"grad_norm": Statistic(what="grad_norm", slice=None, steps=steps, ends=steps, values=values)}

    arms = [Arm(name=name, members=(member(name),)) for name in ("base", "slow", "sudden")]
    sudden = base + generator.normal(size=300) + 4.0 * (steps > 150)
    figures = {
        "slow": {"base": held(base), "slow": held(drifting)},
        "sudden": {"base": held(base), "sudden": held(sudden)},
    }
    table = divergence_table(arms, figures, (1, 300))
    for row in table.iter_rows(named=True):
        wide = row["high"] - row["low"] > 0.5 * 299
        assert (row["step"] is None) == wide
        assert ("since an unknown step" in row["words"]) == wide
    assert table.filter(arm="sudden")["step"][0] == pytest.approx(151, abs=3)


def test_an_undated_departure_is_told_as_one() -> None:
    made = comparisons.two_arms()
    undated = made.tables["divergence"].with_columns(pl.lit(None, dtype=pl.Int64).alias("step"), low=7, high=690)
    found = comparisons.made(comparisons.BASELINE, comparisons.KL)
    tables = {**found.tables, "divergence": undated}
    held = Comparison(**{**vars(found), "tables": tables})
    assert all("step unknown (7 to 690)" in row[2] for row in divergence_rows(held, most=2))


def member(name: str) -> Member:
    """Give a run of which nothing is known but its name."""
    return (
        comparisons.made(
            comparisons.Made(name=name, no_tails=True), comparisons.Made(name="other", no_tails=True), bare=True
        )
        .arms[0]
        .members[0]
    )


def test_an_arm_that_starts_high_suppresses_nothing() -> None:
    high = comparisons.Made(name="saturated", post=(90.0, 110.0, 140.0), left_at=9)
    made = comparisons.made(comparisons.BASELINE, high)
    said = sentences_of(made.arms, made.tables, {"saturated": ("post_tool",), "baseline": ("post_tool",)})
    growth = next(line for line in said.sentences if "growth, late over early" in line)
    assert "suppressed" not in growth
    assert "less" in growth
    assert any("it grew by less because it started high" in line for line in said.cautions)


def test_an_arm_that_ends_lower_is_said_to_suppress(pair_alone: Comparison) -> None:
    assert any("suppressed ×" in line for line in pair_alone.sentences)


def test_every_arm_is_given_its_own_reason() -> None:
    made = comparisons.nothing()
    arms = [Arm(name=name, members=made.arms[0].members) for name in ("base", "a", "b")]
    not_compared = [
        NotCompared(what="tails of a", reason="its logprobs are old/ref"),
        NotCompared(what="late post-tool tails of b", reason="too few are left"),
    ]
    words = pl.DataFrame(
        [{"arm": arm, "metric": "reward/mean", "window": "late", "words": "lower"} for arm in ("a", "b")]
    )
    tables = {
        "windows": pl.DataFrame(schema={"slice": pl.String}),
        "aggregate_differences": words,
        "divergence": pl.DataFrame(schema={"arm": pl.String, "what": pl.String, "step": pl.Int64, "high": pl.Int64}),
    }
    said = headline_of(arms, tables, not_compared)
    assert "a: its logprobs are old/ref; b: too few are left" in said


def test_a_group_without_tails_says_why(tmp_path: Path, kept: Path) -> None:
    growth, collapse = SAMPLES / "tool_tail_growth", SAMPLES / "collapse"
    found = api.compare([], groups={"a": [growth, SAMPLES / "kl_penalised"], "b": [collapse]}, out=kept)
    assert "tails after tools were not compared." not in found.headline
    assert "too few post-tool tokens are left" in found.headline


def test_runs_that_log_at_another_cadence_are_compared_without_a_crash(tmp_path: Path) -> None:
    found = api.compare([run(tmp_path / "every", range(1, 301)), run(tmp_path / "tenth", range(10, 3001, 10), seed=1)])
    assert set(found.tables["aggregate_differences"]["words"]) <= {"alike", "cannot_say", "higher", "lower"}
    assert any("it ends at step 3000, every at 300" in line for line in found.cautions)


def test_a_difference_of_which_one_side_is_hardly_known_has_no_interval() -> None:
    few, many = estimate_means([np.arange(5.0)])[0], estimate_means([np.random.default_rng(0).normal(size=90)])[0]
    for found in (subtract_means(few, many), subtract_means(many, few)):
        assert math.isnan(found.error)
        assert math.isfinite(found.mean)
        assert found.exceeds_zero() == 0


def test_another_reward_function_is_always_a_caution(tmp_path: Path) -> None:
    def logged(name: str) -> dict[str, Values]:
        return {f"rewards/{name}/mean": lambda rng, _: 0.3 + 0.05 * rng.normal()}

    base = run(tmp_path / "base", range(1, STEPS), more=logged("correct_reward"))
    other = run(tmp_path / "other", range(1, STEPS), seed=1, more=logged("proxy_reward"))
    same = run(tmp_path / "same", range(1, STEPS), seed=2, more=logged("correct_reward"))
    found = api.compare([base, other, same])
    (said,) = [line for line in found.cautions if "different reward functions" in line]
    assert said.startswith(
        "other: different reward functions: proxy_reward is logged by other and not by base, correct_reward is"
    )


@pytest.mark.slow
def test_a_run_and_its_copy_are_identical_and_nothing_else_is_said(tmp_path: Path, kept: Path) -> None:
    compared_runs("tool_tail_growth", "kl_penalised")
    found = api.compare([SAMPLES / "tool_tail_growth", kept / "tool_tail_growth" / "store"])
    assert "are identical to the last digit in all that both log" in found.headline
    assert not any("lower" in line or "higher" in line for line in (found.headline, *found.sentences))
    (row,) = divergence_rows(found, most=3)
    assert row[1] == "none"


def test_factors_are_told_one_way_in_words_and_in_tables() -> None:
    worse = comparisons.Made(name="worse", post=(4.0, 12.0, 60.0))
    rows = arm_rows(comparisons.made(comparisons.BASELINE, comparisons.KL, worse))
    assert [("lower" in row.ratio[0], "higher" in row.ratio[0]) for row in rows[1:]] == [(True, False), (False, True)]
    assert all(float(row.short[0].split()[0].lstrip("×")) >= 1 for row in rows[1:])


@pytest.mark.parametrize("ratio", [1.0, 0.97, 1.03])
def test_a_factor_that_rounds_to_one_has_no_side(ratio: float) -> None:
    numbers = dict.fromkeys(Tail.__dataclass_fields__, math.nan) | {"ratio": ratio, "low": 0.8, "high": 1.2, "tests": 1}
    assert ratio_words(Tail(**numbers)) == "×1, ×1.2 higher to ×1.2 lower"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ratio", "low", "high", "said"),
    [
        (3.0, 2.0, 4.0, "×3 lower, ×2 to ×4"),
        (1 / 3, 1 / 4, 1 / 2, "×3 higher, ×2 to ×4"),
        (2.2, 0.96, 5.1, "×2.2 lower, ×1.04 higher to ×5.1 lower"),
        (1 / 2.2, 1 / 5.1, 2.0, "×2.2 higher, ×2 lower to ×5.1 higher"),
        (1.0, 0.9999, 1.0001, "×1, ×1 to ×1"),
        (0.5, 0.0, 2.0, "×2 higher, ×2 lower to ×∞ higher"),
    ],
)
def test_an_interval_on_both_sides_of_one_names_both(ratio: float, low: float, high: float, said: str) -> None:
    numbers = dict.fromkeys(Tail.__dataclass_fields__, math.nan) | {"ratio": ratio, "low": low, "high": high}
    assert ratio_words(Tail(**numbers)) == said  # type: ignore[arg-type]


def test_no_table_and_no_figure_has_a_factor_below_one() -> None:
    sure = comparisons.made(comparisons.BASELINE, comparisons.KL)
    frame = sure.tables["growth"]
    grown = frame.with_columns(
        pl.when(pl.col("suppression").is_not_null()).then(value).otherwise(None).alias(name)
        for name, value in (("suppression", 0.99), ("suppression_lo", 0.73), ("suppression_hi", 1.3))
    )
    ratios = sure.tables["differences"].with_columns(ratio=pl.lit(1.3), lo=pl.lit(0.8), hi=pl.lit(2.1))
    found = replace(sure, tables={**sure.tables, "growth": grown, "differences": ratios})
    (cell,) = {table.rows[1].cells[4] for table in growth_tables(found)}
    assert cell == ("×1", "1.37 more to 1.3 less")
    assert arm_rows(found)[1].ratio[0] == "×1.3 lower (1.25 higher to 2.1 lower)"
    assert arm_rows(found)[1].short[0] == "×1.3 lower [1.2 higher–2.1 lower]"
    (table,) = FIGURE.data(found)
    assert {row[5:7] for row in table.rows} == {("×1.3 lower", "1.2 higher–2.1 lower")}


def test_numbers_that_differ_are_never_written_alike() -> None:
    assert pair(0.00020001, 0.0002) == "0.00020001 against 0.0002"
    assert pair(0.5, 0.25) == "0.5 against 0.25"


def test_pairs_of_an_arm_and_a_metric_are_called_so() -> None:
    assert "pairs of an arm and a metric" in metrics_counted(comparisons.missing_tails())
    assert metrics_counted(comparisons.two_arms()).startswith("of 8 metrics")


def test_ten_arms_are_drawn_in_ten_ways() -> None:
    drawn = arm_styles(comparisons.ten_arms()).values()
    assert len({style.colour for style in drawn}) == len(drawn)


def test_all_paths_are_looked_for_before_any_run_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptt.api.sets_of_runs.open_run", lambda *_, **__: pytest.fail("a run was opened"))
    place = str(tmp_path / "nowhere")
    done = CliRunner().invoke(app, ["compare", str(SAMPLES / "healthy"), place, "--out", str(tmp_path / "out")])
    assert done.exit_code == 5
    assert "there is no such file or folder" in done.output.replace("\n", " ")
