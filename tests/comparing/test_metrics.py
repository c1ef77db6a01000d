"""Logged metrics, settings and the first diverging step, on made runs whose answer is known."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from builders import healthy_diagnosis, run_of
from rich.console import Console
from scipy.signal import lfilter

from ptt import api
from ptt.diagnostics.compare import compare
from ptt.diagnostics.compare.comparison import Arm, Comparison, Member, blind
from ptt.diagnostics.compare.confounders import compare_settings
from ptt.diagnostics.compare.divergence_onset import Statistic, onset_between
from ptt.diagnostics.compare.metric_differences import compare_levels
from ptt.diagnostics.evidence.logged_metrics import Logged
from ptt.diagnostics.model import JsonScalar
from ptt.diagnostics.statistics.autocorrelated_mean import estimate_means
from ptt.reports.compare.markdown import compare_markdown
from ptt.reports.compare.terminal import print_comparison
from ptt.reports.compare.texts import compare_json

STEPS = 240


def write_run(folder: Path, metrics: Mapping[str, np.ndarray]) -> Path:
    """Write a run of metrics alone, as a trainer logs them."""
    folder.mkdir(parents=True)
    rows = [
        json.dumps({"step": step, **{name: float(values[step - 1]) for name, values in metrics.items()}})
        for step in range(1, 1 + len(next(iter(metrics.values()))))
    ]
    (folder / "metrics.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


def made(seed: int, *, reward: float = 0.5, left: int | None = None, by: float = 0.0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    loss = 0.05 * generator.normal(size=STEPS)
    if left is not None:
        loss[left - 1 :] += by
    return {
        "reward": reward + 0.05 * generator.normal(size=STEPS),
        "grad_norm": np.exp(0.2 * generator.normal(size=STEPS)),
        "entropy": 0.4 + 0.02 * generator.normal(size=STEPS),
        "kl": 0.05 * np.exp(0.3 * generator.normal(size=STEPS)),
        "loss": loss,
    }


def late(comparison: Comparison) -> dict[str, str]:
    table = comparison.tables["aggregate_differences"].filter(window="late")
    return dict(table.select("metric", "words").iter_rows())


def test_two_seeds_of_one_setting_differ_in_nothing(tmp_path: Path) -> None:
    wrong = 0
    for seed in (0, 2):
        runs = [write_run(tmp_path / f"{seed}-{one}", made(seed + one)) for one in (0, 1)]
        found = api.compare(runs)
        wrong += found.tables["aggregate_differences"].filter(pl.col("words").is_in(["higher", "lower"])).height
        wrong += found.tables["divergence"].height
    assert wrong == 0


def test_metrics_that_differ_are_told_and_the_step_they_left_at(tmp_path: Path) -> None:
    one = write_run(tmp_path / "base", made(1))
    other = write_run(tmp_path / "arm", made(2, reward=0.8, left=120, by=0.4))
    found = api.compare([one, other])
    words = late(found)
    assert words["reward/mean"] == "higher"
    assert words["loss/total"] == "higher"
    assert words["entropy"] == "alike"
    table = found.tables["divergence"]
    assert table["what"].to_list() == ["reward/mean", "loss/total"]
    assert table["step"].to_list()[0] <= 3
    left = table.row(1, named=True)
    assert left["low"] <= 120 <= left["high"]
    assert abs(left["step"] - 120) <= 3


def test_noise_that_grows_with_its_level_does_not_leave() -> None:
    left = 0
    for seed in (47, 80, 84, 87, 107):  # of 250: there the level alone would be said to leave
        generator = np.random.default_rng([seed, 7])
        members = []
        for _ in range(2):
            noise = lfilter([0.6], [1.0, -0.8], generator.normal(size=180))[100:]
            values = np.linspace(0.01, 0.4, 80) * np.exp(0.35 * noise)
            steps = np.arange(1, 81)
            members.append(Statistic(what="kl/ref", slice=None, steps=steps, ends=steps, values=values))
        left += onset_between(members[:1], members[1:]) is not None
    assert left == 0


def test_runs_that_are_one_up_to_a_step_are_said_to_be_identical_up_to_it(tmp_path: Path) -> None:
    same = made(5)
    other = {name: values.copy() for name, values in same.items()}
    generator = np.random.default_rng(9)
    for values in other.values():
        values[60:] *= np.exp(0.01 * generator.normal(size=STEPS - 60))
    found = api.compare([write_run(tmp_path / "base", same), write_run(tmp_path / "arm", other)])
    (row,) = found.tables["divergence"].filter(what="identical").iter_rows(named=True)
    assert row["step"] == 60
    assert any("identical to the last digit up to step 60" in line for line in found.sentences)


def test_equal_shares_and_schedules_do_not_make_two_runs_one(tmp_path: Path) -> None:
    one, other = made(1), made(2)
    for metrics in (one, other):
        metrics["learning_rate"] = np.linspace(1e-4, 0, STEPS)
        metrics["clip_ratio/region_mean"] = np.full(STEPS, 0.25)
    found = api.compare([write_run(tmp_path / "base", one), write_run(tmp_path / "arm", other)])
    assert "identical" not in found.tables["divergence"]["what"].to_list()


def test_values_that_are_no_numbers_are_neither_alike_nor_different(tmp_path: Path) -> None:
    broken = made(2)
    broken["loss"][150:] = math.nan
    found = api.compare([write_run(tmp_path / "base", made(1)), write_run(tmp_path / "arm", broken)])
    assert late(found)["loss/total"] == "cannot_say"
    row = found.tables["aggregates"].filter(arm="arm", metric="loss/total", window="late").row(0, named=True)
    assert row["mean"] is None


def test_metrics_of_one_arm_alone_are_listed(tmp_path: Path) -> None:
    one, other = made(1), made(2)
    del other["kl"]
    found = api.compare([write_run(tmp_path / "base", one), write_run(tmp_path / "arm", other)])
    (said,) = [item for item in found.not_compared if item.what == "metrics of some arms"]
    assert "mean KL (base)" in said.reason
    assert "kl/ref" not in late(found)


def test_an_arm_that_died_early_does_not_cut_the_others_short(tmp_path: Path) -> None:
    short = {name: values[:25] for name, values in made(3).items()}
    runs = [write_run(tmp_path / name, metrics) for name, metrics in
            {"base": made(1), "arm": made(2), "dead": short}.items()]  # fmt: skip
    found = api.compare(runs)
    assert any(item.what == "all steps of dead" and "steps 1 to 25" in item.reason for item in found.not_compared)
    rows = found.tables["aggregates"].filter(arm="arm", window="late")
    assert rows["step_last"].max() == STEPS
    alone = api.compare([runs[0], runs[2]])
    assert alone.tables["aggregates"].height > 0


def arm_of(name: str, **context: JsonScalar) -> Arm:
    diagnosis = healthy_diagnosis(replace(run_of(), context=context))
    return Arm(name=name, members=(Member(name=name, diagnosis=diagnosis, profile=None),))


def test_settings_are_the_same_different_or_recorded_by_some() -> None:
    table, said = compare_settings([
        arm_of("base", beta=0.001, num_generations=8, loss_type="dapo"),
        arm_of("arm", beta=0.05, num_generations=8, epsilon=0.2, loss_type="grpo"),
    ])  # fmt: skip
    held = {(row["key"], row["arm"]): (row["value"], row["differs"]) for row in table.iter_rows(named=True)}
    assert held["beta", "base"] == ("0.001", True)
    assert held["loss_type", "arm"] == ('"grpo"', True)
    assert held["num_generations", "arm"] == ("8", False)
    assert held["epsilon", "base"] == (None, None)
    assert held["epsilon", "arm"] == ("0.2", None)
    assert "settings that are not listed may differ" in said[0].reason


def test_seeds_that_differ_in_a_setting_show_all_its_values() -> None:
    seeds = tuple(member for seed in (1, 2) for member in arm_of(f"s{seed}", seed=seed, beta=0.1).members)
    table, _ = compare_settings([Arm(name="base", members=seeds), arm_of("arm", seed=3, beta=0.1)])
    held = {(row["key"], row["arm"]): row["value"] for row in table.iter_rows(named=True)}
    assert held["seed", "base"] == "[1, 2]"
    assert held["beta", "base"] == "0.1"


def test_where_nothing_can_be_compared_it_is_said_in_every_output() -> None:
    found = compare([arm_of("base"), arm_of("arm")])
    assert blind(found.tables)
    assert found.headline.startswith("Nothing could be compared")
    assert {item.what for item in found.not_compared} >= {"tails", "metrics"}
    assert "Nothing could be compared" in compare_markdown(found)
    out = io.StringIO()
    print_comparison(found, Console(file=out), "compare.html")
    assert "Nothing could be compared" in out.getvalue()
    assert json.loads(compare_json(found, "0"))["differences"] == []


def parts(values: np.ndarray) -> list[Logged]:
    found = []
    for place, piece in enumerate(np.array_split(values, 3)):
        steps = np.arange(len(piece)) + place * len(piece)
        found.append(Logged(logged_as="x", steps=steps, values=piece, bad=np.zeros(len(piece), np.bool_)))
    return found


def told(arm: np.ndarray, base: np.ndarray) -> str:
    pieces = parts(arm), parts(base)
    mine, theirs = (estimate_means([piece.values for piece in run]) for run in pieces)
    return compare_levels(2, [mine[2]], [theirs[2]], [pieces[0]], [pieces[1]]).words


def test_alike_needs_an_interval_within_the_margin_and_never_the_mere_lack_of_a_difference() -> None:
    generator = np.random.default_rng(3)
    quiet = 1.0 + 0.02 * generator.normal(size=(2, 300))
    wild = np.exp(1.5 * generator.normal(size=(2, 75)))
    assert told(*quiet) == "alike"
    assert told(*wild) == "cannot_say"


def test_one_spike_of_a_long_tailed_metric_decides_nothing() -> None:
    generator = np.random.default_rng(4)
    base, arm = np.exp(0.1 * generator.normal(size=(2, 300)))
    base[250] = 1e6
    assert told(arm, base) in ("alike", "cannot_say")


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_swapping_the_sides_swaps_the_words(factor: float) -> None:
    generator = np.random.default_rng(5)
    base, arm = np.exp(0.1 * generator.normal(size=(2, 300)))
    words = {told(factor * arm, base), told(base, factor * arm)}
    assert words == {"higher", "lower"}


def test_a_schedule_that_is_another_is_told_however_small() -> None:
    base = np.linspace(1e-4, 5e-5, 300)
    assert told(base * 1.001, base) == "higher"
    assert told(base, base) == "alike"
