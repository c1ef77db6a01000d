"""A run of which nothing could be judged: the headline says what its files are."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest
from builders import evidence_of
from typer.testing import CliRunner

import ptt
from ptt.cli.app import app
from ptt.diagnostics.gate.judge import decide
from ptt.diagnostics.gate.results import Outcome
from ptt.diagnostics.model import Status
from ptt.diagnostics.store.wide_metrics import WideMetrics
from ptt.diagnostics.verdict.headline import why_nothing_was_judged

DUMPS = Path(__file__).parents[1] / "fixtures" / "dumps"
METRICS = pl.DataFrame(schema={"name_raw": pl.String})


def headline(*kinds: str, metrics: pl.DataFrame = METRICS) -> str:
    rows = {"kind": kinds, "path": [f"metrics_{number}.json" for number in range(len(kinds))]}
    sources = pl.DataFrame(rows, schema={"kind": pl.String, "path": pl.String}).with_columns(
        note=pl.lit(None, pl.String)
    )
    return why_nothing_was_judged(sources, metrics, WideMetrics(Path()), evidence_of()).headline


@pytest.mark.parametrize(
    ("kinds", "text"),
    [
        (["unrecognised"] * 2, "No training log was found: 2 files in unknown formats."),
        (["unrecognised", "unreadable"], "No training log was found: 1 file in unknown formats; 1 file that"),
        (["unrecognised", "run_settings"], "No training log was found: 1 file in unknown formats; 1 file of settings."),
        (["git_lfs_pointer"] * 12, "12 files are Git LFS pointers: run `git lfs pull`."),
        (["git_lfs_pointer", "unrecognised"], "1 file is a Git LFS pointer: run `git lfs pull`."),
        (["mlflow_files"] * 3, "MLflow store with parameters only: no metric was logged."),
        (["inspect_log", "inspect_log"], "Evaluation logs only (Inspect): no training metrics."),
        (["inspect_log", "swe_agent"], "Samples, traces or evaluations only (inspect_log, swe_agent): no training"),
        ([], "The run contains no files."),
        (["wandb"], "Cannot say: no metric was logged in what was read (wandb)."),
    ],
)
def test_files_that_hold_no_training_are_called_what_they_are(kinds: list[str], text: str) -> None:
    assert headline(*kinds).startswith(text)


def test_metrics_under_unknown_names_are_counted() -> None:
    metrics = pl.DataFrame({"name_raw": ["a", "a", "b"]})
    assert headline("wandb", metrics=metrics).startswith(
        "Cannot say: 2 metrics were logged, but no rule knows the names"
    )


def test_a_folder_without_a_log_is_blind(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("nothing\n", encoding="utf-8")
    done = CliRunner().invoke(app, ["diagnose", str(tmp_path / "run"), "--out", str(tmp_path / "out")])
    assert done.exit_code == 4
    assert "No training log was found: 1 file in unknown formats" in " ".join(done.output.split())
    assert "could not be judged. No file" not in " ".join(done.output.split())


def test_an_mlflow_store_of_parameters_is_read_and_said_to_hold_no_metric(tmp_path: Path) -> None:
    run = tmp_path / "mlruns" / "1" / ("a" * 32)
    (run / "params").mkdir(parents=True)
    (run / "metrics").mkdir()
    (run / "params" / "learning_rate").write_text("0.001", encoding="utf-8")
    (run / "meta.yaml").write_text("run_id: " + "a" * 32 + "\nstatus: 3\n", encoding="utf-8")
    found = ptt.diagnose(tmp_path)
    assert found.verdict.status is Status.CANNOT_SAY
    assert found.verdict.headline == "MLflow store with parameters only: no metric was logged."


def test_a_run_without_a_metric_is_told_by_how_it_ended_and_leaves_the_gate_blind(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    lines = ["loading the model", "Traceback (most recent call last):", "KeyboardInterrupt"]
    (tmp_path / "run" / "train.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = ptt.diagnose(tmp_path / "run")
    assert found.verdict.status is Status.CANNOT_SAY
    assert "no metric was logged" in found.verdict.headline
    assert "stopped by hand" in found.verdict.headline
    assert decide(found, fail_on=None) is Outcome.BLIND


def test_of_tokens_that_make_no_pair_the_reason_and_the_line_that_records_the_other_are_said(tmp_path: Path) -> None:
    shutil.copytree(DUMPS / "verl" / "5", tmp_path / "run" / "5")
    verdict = ptt.diagnose(tmp_path / "run").verdict
    assert verdict.status is Status.CANNOT_SAY
    assert "a log-ratio takes two" in verdict.headline
    assert "from ptt.recorders.verl import record" in verdict.next[0]
