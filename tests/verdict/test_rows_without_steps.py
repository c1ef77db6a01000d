"""A log that numbers no steps: its rows are called what they are, wherever a step would be named."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from builders import aggregates, evidence_of
from typer.testing import CliRunner

from ptt.cli.app import app
from ptt.diagnostics.evidence.gather import describe_run
from ptt.diagnostics.model import Answer, Diagnosis, Signature, in_unit
from ptt.diagnostics.rules import RULES
from ptt.diagnostics.verdict.headline import verdict_of
from ptt.reports.figures import FIGURES
from ptt.reports.run.findings_json import findings_json
from ptt.reports.run.html import render_html
from ptt.reports.run.postmortem import postmortem

ROWS = 120
NUMBERED = re.compile(r"\b[Ss]teps? \d")


@pytest.mark.parametrize(
    ("text", "numbered", "counted"),
    [
        ("since step 10", "since row 10", "since row 10"),
        ("Steps 3 to 7", "Rows 3 to 7", "Rows 3 to 7"),
        ("at 7 of 28 logged steps", None, "at 7 of 28 logged rows"),
        ("the 20-step mean", None, "the 20-row mean"),
        ("a step takes 3 s; log every step: logging_steps=1", None, None),
        ("step 1 000", "row 1 000", "row 1 000"),
    ],
)
def test_only_steps_with_a_number_are_rows(text: str, numbered: str | None, counted: str | None) -> None:
    assert in_unit(text, "row") == (numbered or text)
    assert in_unit(text, "row", counts=True) == (counted or text)
    assert in_unit(text, "step", counts=True) == text


def diagnosis(unit: str) -> Diagnosis:
    """Judge a run whose KL and gradient norm leave their level at row 61."""
    rows = np.arange(ROWS)
    metrics = {
        "kl/ref": np.where(rows < 60, 0.02, 1.5) * (1 + 0.05 * np.random.default_rng(1).normal(size=ROWS)),
        "grad_norm": np.where(rows % 20 == 19, 80.0, 1.0),
        "reward/mean": np.linspace(0.2, 0.6, ROWS),
    }
    evidence = evidence_of(metrics=metrics)
    run = describe_run("made", {"row_unit": unit, "rows_placed_by": None}, evidence.metrics, None)
    signature = Signature(status=Answer.CANNOT_SAY, reason="no tokens", pair=None, aggregates=aggregates())
    verdicts = [rule.run(replace(evidence, run=run)) for rule in RULES]
    return verdict_of(run=run, signature=signature, verdicts=verdicts, crashes=(), sources=(), tables={})


@pytest.mark.parametrize("unit", ["row", "episode", "epoch"])
def test_headline_findings_and_reports_speak_of_them(unit: str) -> None:
    found = diagnosis(unit)
    assert found.run.step_unit == unit
    assert re.search(rf", since {unit} 6\d\.$", found.verdict.headline)
    assert json.loads(findings_json(found, "1"))["run"]["steps"]["unit"] == unit
    page = re.sub(r"<(style|svg|code).*?</\1>|<[^>]*>", " ", render_html(found), flags=re.DOTALL)
    for text in (found.verdict.headline, unescape(page), postmortem(found, {})):
        assert not NUMBERED.search(text), NUMBERED.search(text)
        assert f"{unit} 6" in text
    for finding in found.findings:
        assert not NUMBERED.search(" ".join([finding.claim, *finding.confirm, *finding.next]))
    alts = [panel.alt for figure in FIGURES for panel in figure.panels(found)]
    assert alts
    assert not any(NUMBERED.search(alt) for alt in alts)


def test_a_unit_that_nobody_logs_by_is_none_and_steps_are_not_named_in_the_document() -> None:
    assert describe_run("made", {"row_unit": "banana"}, {}, None).step_unit == "step"
    steps = json.loads(findings_json(diagnosis("step"), "1"))["run"]["steps"]
    assert list(steps) == ["first", "last", "count"]


def test_a_console_log_without_steps_is_told_in_rows(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    noise = np.random.default_rng(3).normal(size=(ROWS, 2))
    lines = [
        {"loss": float(2.0 - row / ROWS + 0.05 * a), "grad_norm": float(80.0 if row % 20 == 19 else 1 + 0.05 * b)}
        for row, (a, b) in enumerate(noise)
    ]
    (tmp_path / "run" / "train.log").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    done = CliRunner().invoke(app, ["diagnose", str(tmp_path / "run"), "--out", str(tmp_path / "out")])
    shown = " ".join(done.output.split())
    assert "since row 60" in shown
    assert not NUMBERED.search(shown)
    steps = json.loads((tmp_path / "out" / "findings.json").read_text(encoding="utf-8"))["run"]["steps"]
    assert steps == {"first": 1, "last": ROWS, "count": ROWS, "unit": "row"}
