"""From seeds of one setting to a gate: their baseline is made, another seed passes, and a worse run does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import Story, sequences_of, steady, write_recorder_run
from typer.testing import CliRunner, Result

from ptt.cli.app import app

STEPS = 96
OUT = Path("ptt-report/gate")


def ptt(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def gate(*words: str) -> Result:
    return ptt("gate", *words, "--settings", "ptt.toml", "--jobs", "1", "--quiet", "--reports", "none")


def made(name: str, seed: int, *, tails: float = 1.0, kl: float = 0.05, reward: float = 0.5) -> None:
    """Write a run of the setting, with tails after tools so many times as high, and levels of its metrics."""
    drawn = np.random.default_rng(seed)
    levels = {"kl": (kl, 0.005), "reward": (reward, 0.02), "entropy": (1.0, 0.02)}
    metrics = {key: list(level + sd * drawn.standard_normal(STEPS)) for key, (level, sd) in levels.items()}
    story = Story(steps=STEPS, seed=seed, text=steady(0.3), post=steady(0.5 * tails))
    write_recorder_run(Path("runs") / name, sequences_of(story), metrics=metrics)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository: runs, a baseline of two seeds and one of three, and a policy."""
    place = tmp_path_factory.mktemp("repository")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for seed in range(1, 5):
            made(f"seed-{seed}", seed)
        made("worse", 5, tails=1.6)
        made("much-worse", 6, tails=2.5)
        for seed in (7, 8, 9):
            made(f"moved-{seed}", seed, kl=0.065)
        for count, file in ((2, "two.toml"), (3, "three.toml")):
            runs = [f"runs/seed-{seed}" for seed in range(1, count + 1)]
            assert ptt("baseline", "update", file, *runs).exit_code == 0
        Path("ptt.toml").write_text('[gate]\n[gate.baseline]\nfile = "three.toml"\n')
    return place


@pytest.fixture(autouse=True)
def _here(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


def told() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((OUT / "gate.json").read_text(encoding="utf-8"))
    return found


def checks(run: int = 0) -> dict[str, dict[str, Any]]:
    return {check["id"]: check for check in told()["runs"][run]["checks"]}


@pytest.mark.slow
@pytest.mark.parametrize("file", ["two.toml", "three.toml"])
def test_another_seed_of_the_setting_passes(file: str) -> None:
    done = gate("runs/seed-4", "--baseline", file)
    assert done.exit_code == 0, done.stdout
    held = [check for name, check in checks().items() if name.startswith("baseline:")]
    assert len(held) == 7
    assert {check["standing"] for check in held} == {"passed"}


@pytest.mark.slow
def test_tails_of_one_and_a_half_times_the_baselines_fail_it() -> None:
    done = gate("runs/worse", "runs/seed-4")
    assert done.exit_code == 3, done.stdout
    assert [run["outcome"] for run in told()["runs"]] == ["failed", "passed"]
    found = checks()
    assert {name for name, check in found.items() if check["standing"] == "failed"} == {
        "baseline:tails.post_observation.all", "baseline:tails.post_observation.late",
    }  # fmt: skip
    assert found["baseline:tails.post_observation.all"]["observed"] == pytest.approx(1.6, rel=0.05)


@pytest.mark.slow
def test_of_two_seeds_too_little_is_known_to_pass_such_a_run_and_a_worse_one_fails() -> None:
    assert gate("runs/worse", "--baseline", "two.toml").exit_code in (3, 4)
    assert gate("runs/much-worse", "--baseline", "two.toml").exit_code == 3


@pytest.mark.slow
def test_runs_that_passed_and_moved_away_together_are_told_everywhere() -> None:
    done = gate("runs/moved-*", "runs/seed-1", "runs/worse", "--markdown", "gate.md")
    assert done.exit_code == 3, done.stdout  # the one that failed and the baseline's own do not count
    (note,) = [note for note in told()["notes"] if "differ from the baseline" in note]
    assert note.startswith("3 passing runs together differ from the baseline beyond noise in kl/ref,")
    assert "ptt baseline update" in note
    assert "from the baseline beyond noise in kl/ref" in " ".join(done.stdout.split())
    for page in (OUT / "index.html", Path("gate.md")):
        assert "from the baseline beyond noise in kl/ref" in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_nothing_is_told_of_runs_that_did_not_move_nor_of_the_baselines_own() -> None:
    assert gate("runs/seed-1", "runs/seed-2", "runs/seed-3", "runs/seed-4").exit_code == 0
    assert not told()["notes"]
    gate("runs/moved-7", "runs/worse")  # one that passed is none with another
    assert not told()["notes"]


@pytest.mark.slow
def test_a_metric_that_turned_into_nan_is_no_noise(place: Path) -> None:
    made("nan", 4)
    log = place / "runs" / "nan" / "metrics.jsonl"
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    for row in rows[70:90]:
        row["entropy"] = float("nan")
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for head in ("", 'cannot_say = "pass"\n'):
        Path("nan.toml").write_text(f'[gate]\nseverity = "never"\n{head}[gate.baseline]\nfile = "three.toml"\n')
        assert ptt("gate", "runs/nan", "--settings", "nan.toml", "--quiet").exit_code == 4
        assert checks()["baseline:entropy"]["standing"] == "blind"
        assert "NaN or infinite" in checks()["baseline:entropy"]["claim"]


@pytest.mark.slow
def test_a_metric_that_the_run_does_not_log_any_more_blinds_the_gate_unless_the_policy_lets_it_pass(
    place: Path,
) -> None:
    made("lost", 4)
    log = place / "runs" / "lost" / "metrics.jsonl"
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    log.write_text("".join(json.dumps({k: v for k, v in row.items() if k != "entropy"}) + "\n" for row in rows))
    assert gate("runs/lost").exit_code == 4
    assert checks()["baseline:entropy"]["standing"] == "blind"
    assert "the run does not log entropy" in checks()["baseline:entropy"]["claim"]
    Path("lets.toml").write_text('[gate]\ncannot_say = "pass"\n[gate.baseline]\nfile = "three.toml"\n')
    assert ptt("gate", "runs/lost", "--settings", "lets.toml", "--quiet").exit_code == 0
    assert checks()["baseline:entropy"]["standing"] == "tolerated"
    accepted, but = told()["runs"][0]["notes"]
    assert accepted == "1 check had no data, which the policy accepts (cannot_say = 'pass')"
    assert but.startswith("passes, although the diagnosis cannot say")
