"""What must have been judged before a run is called healthy, and that a fault of the stated size would have shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import Array, evidence_of
from rule_cases import BY_ID, GRPO, PPO, wander
from typer.testing import CliRunner

import ptt
from ptt.cli.app import app
from ptt.diagnostics.evidence.algorithm import Algorithm, Family
from ptt.diagnostics.model import Broken, CoreQuestion, Status
from ptt.diagnostics.rules import LIMITS
from ptt.diagnostics.verdict.coverage import LOSS, REWARD, VALUE_LOSS, Way

SFT = Algorithm(name="sft", family=Family.SUPERVISED, critic=False, groups=False)
RUNS = 40
LEAST_SEEN = 0.7  # of forty runs: four of five are meant, less what forty leave open


@pytest.mark.slow
@pytest.mark.parametrize("likeness", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("count", [100, 250])
@pytest.mark.parametrize(
    ("way", "algorithm", "level", "noise", "sign"),
    [(REWARD, GRPO, 0.5, 0.1, -1), (LOSS, SFT, 2.0, 0.2, 1), (VALUE_LOSS, PPO, 1.0, 0.15, 1)],
)
def test_the_rule_reports_a_change_of_the_stated_size_in_four_of_five_runs(
    way: Way, algorithm: Algorithm, level: float, noise: float, sign: int, count: int, likeness: float
) -> None:
    seen = []
    for seed in range(RUNS):
        values = level + noise * wander(1000 + 7 * seed, count=count, likeness=likeness)
        quiet = replace(evidence_of(metrics={way.metric: values}), algorithm=algorithm)
        size = way.size(quiet.metrics[way.metric], quiet, LIMITS[way.rule])
        if size is None:
            continue
        changed = values + sign * size * (np.arange(count) >= count * (0.4 + 0.2 * (seed % 2)))
        evidence = replace(evidence_of(metrics={way.metric: changed}), algorithm=algorithm)
        seen.append(isinstance(BY_ID[way.rule].run(evidence), Broken))
    assert len(seen) > RUNS / 2
    assert np.mean(seen) >= LEAST_SEEN


Columns = Mapping[str, Array | float]


def state(folder: Path, columns: Columns, *, rows: int = 120) -> Path:
    """Write a trainer state with these columns."""
    folder.mkdir()
    written = [
        {"step": step + 1} | {name: float(np.broadcast_to(values, rows)[step]) for name, values in columns.items()}
        for step in range(rows)
    ]
    document = {"global_step": rows, "max_steps": rows, "log_history": written}
    (folder / "trainer_state.json").write_text(json.dumps(document), encoding="utf-8")
    return folder


def noisy(level: float, *, seed: int, rows: int = 120, share: float = 0.05) -> Array:
    return level * (1 + share * np.random.default_rng(seed).normal(size=rows))


def grpo(rows: int = 120) -> dict[str, Array | float]:
    rising = np.linspace(0.3, 0.7, rows)
    return {
        "loss": noisy(0.02, seed=1, rows=rows),
        "grad_norm": noisy(1.0, seed=2, rows=rows),
        "reward": rising + noisy(0.05, seed=3, rows=rows),
        "completions/mean_length": noisy(100, seed=4, rows=rows),
        "kl": noisy(0.02, seed=5, rows=rows),
        "entropy": noisy(0.6, seed=6, rows=rows),
        "frac_reward_zero_std": 0.1,
    }


def dpo(rows: int) -> dict[str, Array | float]:
    learnt = np.linspace(0, 1, rows)
    return {
        "loss": 0.69 - 0.4 * learnt + noisy(0.02, seed=1, rows=rows),
        "grad_norm": noisy(2.0, seed=2, rows=rows),
        "rewards/accuracies": np.minimum(0.55 + 0.4 * learnt, 0.95),
        "rewards/margins": 2 * learnt + noisy(0.05, seed=3, rows=rows),
        "rewards/chosen": learnt + noisy(0.05, seed=3, rows=rows),
        "rewards/rejected": -learnt,
        "logps/chosen": -100 - learnt,
        "logps/rejected": -100 - 5 * learnt,
    }


def core(diagnosis: ptt.Diagnosis) -> dict[str, CoreQuestion]:
    assert diagnosis.verdict.coverage is not None
    return {question.question: question for question in diagnosis.verdict.coverage.core}


def test_curves_alone_make_a_run_healthy_where_they_cover_what_matters(tmp_path: Path) -> None:
    found = ptt.diagnose(state(tmp_path / "run", grpo()))
    assert found.verdict.status is Status.HEALTHY
    assert found.verdict.headline.startswith("Reward rose from 0.3")
    assert "No fault seen in " in found.verdict.headline
    assert "tails after tool calls were not recorded" in found.verdict.headline
    assert all(question.judged and question.rows == 120 for question in core(found).values())
    assert found.verdict.coverage is not None
    assert found.verdict.coverage.judged == len(found.healthy)


@pytest.mark.parametrize(
    ("absent", "question"),
    [
        ("kl", "distance from the reference"),
        ("entropy", "entropy or token tails"),
        ("reward", "reward"),
    ],
)
def test_without_one_of_them_it_is_said_what_is_missing(tmp_path: Path, absent: str, question: str) -> None:
    columns = grpo()
    del columns[absent]
    found = ptt.diagnose(state(tmp_path / "run", columns))
    assert found.verdict.status is Status.CANNOT_SAY
    assert "No fault seen in " in found.verdict.headline
    assert f"not judged: {question} not recorded." in found.verdict.headline
    assert "would have shown" in found.verdict.headline
    assert not core(found)[question].judged


def test_a_loss_or_a_gradient_norm_is_enough_of_the_update(tmp_path: Path) -> None:
    columns = grpo()
    del columns["loss"]
    assert ptt.diagnose(state(tmp_path / "run", columns)).verdict.status is Status.HEALTHY


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "status"), [(4, "cannot_say"), (20, "cannot_say"), (120, "healthy")])
def test_four_rows_earn_no_green_light(tmp_path: Path, rows: int, status: str) -> None:
    run = state(tmp_path / "run", dpo(rows), rows=rows)
    done = CliRunner().invoke(app, ["diagnose", str(run), "--out", str(tmp_path / "out")])
    findings = json.loads((tmp_path / "out" / "findings.json").read_text(encoding="utf-8"))
    assert findings["verdict"]["status"] == status
    assert done.exit_code == 0
    assert ("only 4 rows" in findings["verdict"]["headline"]) == (rows == 4)
    judged = [question["judged"] for question in findings["verdict"]["coverage"]["core"]]
    assert all(judged) == (status == "healthy")


def test_a_reward_that_noise_rules_could_not_have_shown_its_fall(tmp_path: Path) -> None:
    columns = grpo(60) | {"reward": 0.5 + wander(6, count=60, likeness=0.5)}
    question = core(ptt.diagnose(state(tmp_path / "run", columns, rows=60)))["reward"]
    assert not question.judged
    assert question.rows == 60
    assert "noisy" in question.why


@pytest.mark.parametrize("columns", [{"loss": 0.0, "learning_rate": 1e-5}, {"loss": 0.0, "grad_norm": 1.0}])
def test_a_loss_with_nothing_of_rl_beside_it_is_supervised(tmp_path: Path, columns: dict[str, Any]) -> None:
    columns["loss"] = 1.0 + np.linspace(1, 0, 120) + noisy(0.1, seed=1)
    columns["grad_norm"] = noisy(1.0, seed=2)
    found = ptt.diagnose(state(tmp_path / "run", columns))
    assert found.verdict.status is Status.HEALTHY
    assert found.verdict.headline.startswith("Loss fell from 2.1 to 1.1")
    assert found.verdict.headline.endswith(f" No fault seen in {len(found.healthy)} checks of loss and gradients.")
    advice = " ".join([*found.verdict.next, *(item.enable for item in found.not_judged if item.applies)])
    for word in ("GRPO", "tool", "rollout", "reward", "reference", "Recorder"):
        assert word not in advice


def test_a_loss_beside_names_of_rl_stays_open(tmp_path: Path) -> None:
    columns = {"loss": noisy(1.0, seed=1), "grad_norm": noisy(1.0, seed=2), "train/policy_entropy": noisy(1.0, seed=3)}
    found = ptt.diagnose(state(tmp_path / "run", columns))
    assert found.verdict.status is Status.CANNOT_SAY
    assert "kind of training" in found.verdict.headline


def test_a_finding_is_told_whatever_is_covered(tmp_path: Path) -> None:
    columns = {
        "reward": grpo()["reward"],
        "kl": np.linspace(0.02, 1.4, 120) + noisy(0.02, seed=5),
        "completions/mean_length": noisy(100, seed=4),
    }
    found = ptt.diagnose(state(tmp_path / "run", columns))
    assert found.verdict.status is Status.SUSPECT
    assert found.verdict.coverage is not None
    assert not found.verdict.coverage.complete
