"""Runs of trainers that sample nothing, from their logs on disk to what the user reads."""

from __future__ import annotations

import json
import math
import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ptt.cli.app import app

pytestmark = pytest.mark.slow

STEPS = 300
BETA = 0.1


def dpo(*, share: float, rejected: float, margin: float) -> list[dict[str, float]]:
    """Give the log of TRL's DPO trainer: 16 pairs a step, an evaluation every 50."""
    generator = np.random.default_rng(7)
    rows: list[dict[str, float]] = []
    for step in range(1, STEPS + 1):
        done = 1 - math.exp(-step / 60)
        own = 9.0 * (1 + 0.05 * generator.normal())
        right = generator.binomial(16, 0.5 + (share - 0.5) * done) / 16
        figures = {
            "loss": math.log1p(math.exp(-margin * done)) * (1 + 0.02 * generator.normal()),
            "rewards/accuracies": right,
            "rewards/margins": margin * done + 0.1 * generator.normal(),
            "rewards/chosen": 0.0,
            "rewards/rejected": BETA * (rejected + 9.0) * done,
            "logps/chosen": -10.0 * (1 + 0.05 * generator.normal()),
            "logps/rejected": -own + (rejected + 9.0) * done,
            "grad_norm": 2.0 * math.exp(-3 * done) * (1 + 0.1 * generator.normal()),
            "entropy": 0.5 - 0.05 * done,
            "mean_token_accuracy": 0.8,
        }
        figures["rewards/chosen"] = figures["rewards/rejected"] + figures["rewards/margins"]
        rows.append({"step": step, **figures})
        if step % 50 == 0:
            rows.append({"step": step, "eval_loss": figures["loss"], "eval_rewards/accuracies": right})
    return rows


def sft(*, overfit: bool) -> list[dict[str, float]]:
    """Give the log of TRL's SFT trainer: a loss every step, an evaluation every 25."""
    generator = np.random.default_rng(8)
    rows: list[dict[str, float]] = []
    for step in range(1, STEPS + 1):
        loss = (0.002 if overfit else 0.2) + 5.0 * math.exp(-step / 40)
        noise = 1 + 0.03 * generator.normal()
        rows.append(
            {
                "step": step,
                "loss": loss * noise,
                "grad_norm": noise,
                "mean_token_accuracy": max(0.1, 1.0 - loss),
                "entropy": 0.3,
            }
        )
        if step % 25 == 0:
            above = max(0.0, step - 100) / 250 if overfit else 0.0
            rows.append({"step": step, "eval_loss": max(loss, 0.9 if overfit else 0.0) + above})
    return rows


RUNS: dict[str, tuple[list[dict[str, float]], str, str, list[str]]] = {
    "dpo that learns": (dpo(share=0.98, rejected=-60.0, margin=5.0), "dpo", "healthy", []),
    "dpo at chance": (dpo(share=0.5, rejected=-10.0, margin=0.0), "dpo", "suspect", ["at-chance"]),
    "dpo that destroys": (dpo(share=1.0, rejected=-240.0, margin=5.0), "dpo", "suspect", ["rejected-collapse"]),
    "sft that learns": (sft(overfit=False), "sft", "healthy", []),
    "sft that overfits": (sft(overfit=True), "sft", "suspect", ["overfitting"]),
}


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict[str, Any], str, str]]:
    """Give findings, terminal and page (its text alone) of each run."""
    found = {}
    for name, (rows, _, _, _) in RUNS.items():
        run, out = tmp_path_factory.mktemp("run") / "made", tmp_path_factory.mktemp("out")
        run.mkdir()
        (run / "trainer_state.json").write_text(json.dumps({"global_step": STEPS, "log_history": rows}))
        done = CliRunner().invoke(app, ["diagnose", str(run), "--out", str(out)])
        assert done.exit_code == 0, done.output
        page = (out / "report.html").read_text(encoding="utf-8")
        page = re.sub(r"<(style|svg).*?</\1>", "", page, flags=re.DOTALL)
        text = unescape(re.sub(r"<[^>]*>", " ", page))
        found[name] = (json.loads((out / "findings.json").read_text(encoding="utf-8")), done.output, text)
    return found


@pytest.mark.parametrize("name", RUNS)
def test_the_verdict_is_what_is_true_of_the_run(read: dict[str, tuple[dict[str, Any], str, str]], name: str) -> None:
    _, algorithm, status, ids = RUNS[name]
    findings = read[name][0]
    assert findings["run"]["algorithm"] == algorithm
    assert findings["verdict"]["status"] == status
    serious = [one["id"] for one in findings["findings"] if one["severity"] in ("critical", "high", "medium")]
    assert serious == ids


@pytest.mark.parametrize("name", RUNS)
def test_nobody_is_told_to_record_what_such_training_does_not_have(
    read: dict[str, tuple[dict[str, Any], str, str]], name: str
) -> None:
    findings, terminal, page = read[name]
    advice = " ".join([*findings["verdict"]["next"], *(one["enable"] for one in findings["not_judged"])])
    for word in ("GRPO", 'tokens"', "rollout", "tool call", "reference"):
        assert word not in advice
    assert "GRPO" not in terminal
    assert "after tool calls could not be judged" not in terminal + page
    assert "does not apply" in page


@pytest.mark.parametrize("name", ["dpo that learns", "sft that learns"])
def test_a_healthy_run_is_told_what_was_seen_and_what_no_curve_shows(
    read: dict[str, tuple[dict[str, Any], str, str]], name: str
) -> None:
    findings, terminal, page = read[name]
    assert "held-out prompts" in findings["verdict"]["next"][0]
    told = " ".join(terminal.split())
    assert ("preference accuracy rose" if "dpo" in name else "Evaluation loss fell") in told
    assert "Growth: cannot say" not in page


def test_sources_asks_such_a_run_no_question_about_samples(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    rows = RUNS["dpo that learns"][0]
    (tmp_path / "run" / "trainer_state.json").write_text(json.dumps({"global_step": STEPS, "log_history": rows}))
    done = CliRunner().invoke(app, ["sources", str(tmp_path / "run")])
    assert "DPO training samples nothing" in done.output
    assert "GRPO" not in done.output
    assert "Are tools called" not in done.output
