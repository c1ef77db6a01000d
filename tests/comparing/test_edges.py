"""Runs that can hardly be compared, or not at all: no crash, no figure that is none, and words that say so."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from judged_runs import judged_run
from rich.console import Console
from slow_cases import first_fast
from typer.testing import CliRunner

from ptt import api
from ptt.cli.app import app
from ptt.diagnostics.compare.comparison import Comparison, blind, late_words
from ptt.reports.compare.html import render_compare_page
from ptt.reports.compare.markdown import compare_markdown
from ptt.reports.compare.terminal import print_comparison
from ptt.reports.compare.texts import compare_json

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "sample_logs"
FIXTURES = ROOT / "tests" / "fixtures" / "runs"
STEPS = 240
Values = Callable[[np.random.Generator, int], float]


def run(
    folder: Path, first: int = 1, last: int = STEPS, *, seed: int = 0, more: dict[str, Values] | None = None
) -> Path:
    """Write a run of logged metrics."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng([seed, 3])
    usual: dict[str, Values] = {
        "reward": lambda rng, _: 0.5 + 0.05 * rng.normal(),
        "kl": lambda rng, _: 0.05 * math.exp(0.3 * rng.normal()),
        "loss": lambda rng, _: 0.05 * rng.normal(),
        "entropy": lambda rng, _: 0.4 + 0.02 * rng.normal(),
    }
    rows = [
        {"step": step, **{name: value(generator, step) for name, value in (usual | (more or {})).items()}}
        for step in range(first, last + 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def outputs(found: Comparison, width: int = 100) -> str:
    """Make every output; give what a person reads in the terminal."""
    out = io.StringIO()
    print_comparison(found, Console(file=out, width=width), "compare.html")
    assert "</html>" in render_compare_page(found).text
    assert compare_markdown(found).endswith("\n")
    json.loads(compare_json(found, "0"), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    return " ".join(out.getvalue().split())


@pytest.mark.slow
def test_findings_alone_show_verdicts_side_by_side_and_what_is_missing(tmp_path: Path) -> None:
    places = []
    for name in ("healthy", "collapse"):
        place = tmp_path / name / "findings.json"
        place.parent.mkdir()
        place.write_text(judged_run(name).to_json(), encoding="utf-8")
        places.append(str(place))
    done = CliRunner().invoke(app, ["compare", *places, "--out", str(tmp_path / "out")])
    assert done.exit_code == 4, done.output
    text = " ".join(done.stdout.split())
    assert "Nothing could be compared: healthy, the baseline: findings.json has no tokens" in text
    assert "healthy Healthy" in text
    assert "collapse Unstable" in text
    marked = (tmp_path / "out" / "compare.md").read_text(encoding="utf-8")
    assert "| healthy | Healthy |" in marked
    assert "findings.json has no logged series" in marked
    mixed = CliRunner().invoke(app, ["compare", str(SAMPLES / "collapse"), places[0], "--out", str(tmp_path / "mixed")])
    assert mixed.exit_code == 4, mixed.output
    assert "Each run by itself" in mixed.stdout


@pytest.mark.slow
def test_a_run_and_its_own_store_are_said_to_hold_the_same_files(tmp_path: Path) -> None:
    api.open_run(SAMPLES / "healthy", out=tmp_path / "kept")
    found = api.compare([SAMPLES / "healthy", tmp_path / "kept" / "store"])
    text = outputs(found)
    assert "has the same files as" in text
    assert set(found.tables["aggregate_differences"]["words"]) <= {"alike", "cannot_say"}
    assert found.tables["divergence"]["what"].to_list() == ["identical"]


def test_steps_that_do_not_overlap_leave_nothing_to_compare(tmp_path: Path) -> None:
    found = api.compare([run(tmp_path / "base"), run(tmp_path / "later", 500, 700)])
    assert blind(found.tables)
    assert "steps 500 to 700 of later do not overlap with those of base" in outputs(found)


@pytest.mark.parametrize("last", first_fast([1, 3]))
def test_an_arm_of_few_steps_is_told_of_nothing(tmp_path: Path, last: int) -> None:
    found = api.compare([run(tmp_path / "base"), run(tmp_path / "short", last=last, seed=1)])
    text = outputs(found)
    assert blind(found.tables)
    assert "differs from" not in text
    assert "no metric" not in " ".join(found.sentences)
    assert found.tables["divergence"].is_empty()


@pytest.mark.slow
def test_a_run_with_too_few_recorded_steps_is_named(tmp_path: Path) -> None:
    found = api.compare([FIXTURES / "nan.tar.zst", SAMPLES / "collapse"], out=tmp_path)
    why = {item.what: item.reason for item in found.not_compared}
    assert "collapse recorded only 2 steps; at least 6 are needed" in why["tails over steps"]
    assert "collapse recorded only 4 steps; at least 6 are needed" in why["tails over tokens"]
    assert "collapse recorded only 2 steps; at least 60 are needed" in why["when the tails of collapse left"]
    assert not any("gaps" in reason for reason in why.values())


def test_values_that_are_nowhere_numbers_are_no_likeness(tmp_path: Path) -> None:
    lost: dict[str, Values] = dict.fromkeys(("reward", "kl", "loss", "entropy"), lambda _, __: math.nan)
    found = api.compare([run(tmp_path / "base"), run(tmp_path / "nan", more=lost)])
    assert set(found.tables["aggregate_differences"]["words"]) == {"cannot_say"}
    assert blind(found.tables)
    assert "no clear difference" in outputs(found)
    assert not any("alike" in line for line in found.sentences)


def test_names_are_never_changed_by_a_capital(tmp_path: Path) -> None:
    found = api.compare([run(tmp_path / "base"), run(tmp_path / "three", last=100, seed=1)])
    outputs(found)
    assert "Three" not in compare_markdown(found)
    assert "Three" not in render_compare_page(found).text


@pytest.mark.slow
def test_hostile_and_equal_names_are_told_apart_and_harmless(tmp_path: Path) -> None:
    names = ["<img src=x>\x1b[31m|`x`", "-rf", "one two"]
    runs = [run(tmp_path / name / "same", seed=place) for place, name in enumerate(names)]
    found = api.compare(runs)
    assert len({arm.name for arm in found.arms}) == 3
    for width in (40, 100):
        assert "\x1b" not in outputs(found, width)
    assert "<img" not in render_compare_page(found).text


def test_schedules_are_settings_and_clocks_stand_apart(tmp_path: Path) -> None:
    def logged(rate: float, clock: float) -> dict[str, Values]:
        return {
            "learning_rate": lambda _, step: rate * (1 - step / STEPS),
            "step_time": lambda rng, _: clock + 0.01 * rng.normal(),
        }

    found = api.compare(
        [run(tmp_path / "base", more=logged(1e-4, 1.0)), run(tmp_path / "arm", seed=1, more=logged(2e-4, 2.0))]
    )
    assert found.tables["divergence"].is_empty()
    assert set(late_words(found.tables, found.arms[1]).values()) <= {"alike", "cannot_say"}
    rows = found.tables["settings"].filter(key="learning rate, as logged")
    assert rows["differs"].to_list() == [True, True]
    assert json.loads(rows["value"][1]) == "0.000199 → 0"
    assert any("on the machine side, time a step higher (2 against 1)" in line for line in found.sentences)
    text = outputs(found)
    assert "0 differ" in text
    alone: dict[str, Values] = dict.fromkeys(("reward", "kl", "loss", "entropy"), lambda _, __: math.nan)
    clocks = [run(tmp_path / f"c{at}", more=alone | logged(1e-4, 1.0 + at)) for at in (0, 1)]
    only = api.compare(clocks)
    assert blind(only.tables)
    assert only.tables["settings"].filter(key="learning rate, as logged")["differs"].to_list() == [False, False]


def test_one_run_in_two_precisions_is_one_run(tmp_path: Path) -> None:
    def kept(single: bool) -> dict[str, Values]:
        def value(_: np.random.Generator, step: int) -> float:
            exact = 1 / (step + 7)
            return float(np.float32(exact)) if single else exact

        return {"loss": value, "reward": lambda _, __: float(np.float32(0.1)) if single else 0.1}

    found = api.compare([run(tmp_path / "base", more=kept(True)), run(tmp_path / "arm", more=kept(False))])
    assert found.tables["divergence"].filter(pl.col("what") != "identical").is_empty()
    assert late_words(found.tables, found.arms[1])["reward/mean"] == "alike"


@pytest.mark.parametrize(
    ("base", "arm"),
    first_fast([("trl_dpo_healthy", "trl_grpo_slow_env"), ("trl_sft_healthy", "trl_sft_overfit")]),
)
def test_other_kinds_of_training_are_compared_in_what_they_share(base: str, arm: str, tmp_path: Path) -> None:
    found = api.compare([FIXTURES / f"{name}.tar.zst" for name in (base, arm)], out=tmp_path)
    text = outputs(found)
    assert "no value" not in text
    algorithms = found.tables["settings"].filter(key="algorithm")
    assert algorithms.is_empty() or algorithms.height == 2
    assert found.not_compared


@pytest.mark.slow
def test_more_than_four_arms_keep_their_cautions_in_sight(tmp_path: Path) -> None:
    names = ("tool_tail_growth", "healthy", "kl_penalised", "collapse")
    found = api.compare([*(SAMPLES / name for name in names), run(tmp_path / "bare"), run(tmp_path / "more")])
    assert any("an easier task drifts less by itself" in line for line in found.cautions)
    page = render_compare_page(found).text
    shown = page[: page.index('<dl class="facts"')]
    for folded in shown.split("<details>")[1:]:
        assert "easier task" not in folded.split("</details>")[0]
    assert "easier task" in shown
    assert "easier task" in outputs(found)
