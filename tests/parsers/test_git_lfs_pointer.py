"""Git LFS pointers: called what they are under any name, with the command that fetches their content."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from parser_samples import lfs_pointer, takers
from parser_samples import run_file as file_at
from typer.testing import CliRunner

import ptt
from ptt.cli.app import app
from ptt.diagnostics.gate.judge import decide
from ptt.diagnostics.gate.results import Outcome

SAMPLES = Path(__file__).parents[2] / "sample_logs"
NAMES = (
    "trainer_state.json", "events.out.tfevents.1.h.1.0", "run-a.wandb", "metrics.jsonl", "train.log", "log.csv",
    "tokens/step_1.parquet", "mlflow.db", "a.eval", "batch.pt", "tq_batch.pt", "x.dp", "x.pkl", "x.npz",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_pointer_is_one_under_any_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(lfs_pointer(17_735))
    assert takers(file_at(path, name)) == ["git_lfs_pointer"]


def test_a_file_that_only_begins_like_a_pointer_is_none(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(lfs_pointer(5) + b"prose\n" * 500)
    assert takers(file_at(path)) == []


def _checkpoints(run: Path, steps: range) -> Path:
    for step in steps:
        folder = run / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "trainer_state.json").write_bytes(lfs_pointer(17_735))
        (folder / "model.safetensors").write_bytes(lfs_pointer(10**9))
    return run


def test_a_run_of_pointers_alone_says_so_and_how_to_fetch_them(tmp_path: Path) -> None:
    run = _checkpoints(tmp_path / "run", range(100, 400, 100))
    found = ptt.diagnose(run)
    assert found.verdict.headline == "6 files are Git LFS pointers: run `git lfs pull`."
    assert 'git lfs pull --include="trainer_state.json"' in found.verdict.next[0]
    assert decide(found, fail_on=None) is Outcome.BLIND
    pointers = ptt.sources(run).pointers
    assert pointers is not None
    assert (pointers.files, pointers.command) == (6, 'git lfs pull --include="trainer_state.json"')
    shown = CliRunner().invoke(app, ["sources", str(run)]).stdout
    assert "6 Git LFS pointers, as checkpoint-100/trainer_state.json" in shown
    assert 'git lfs pull --include="trainer_state.json"' in shown
    assert json.loads(CliRunner().invoke(app, ["sources", str(run), "--json"]).stdout)["pointers"]["files"] == 6


def test_weights_that_were_not_fetched_cost_a_run_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(SAMPLES / "healthy" / "trainer_state.json", run)
    before = ptt.diagnose(run)
    for name in ("model.safetensors", "optimizer.pt", "tokenizer.json", "train.parquet"):
        (run / name).write_bytes(lfs_pointer(10**9))
    after = ptt.diagnose(run)
    assert after.verdict == before.verdict
    assert [source.bytes_lost for source in after.sources if source.kind == "git_lfs_pointer"] == [0, 0, 0, 0]


def test_a_log_that_was_not_fetched_is_lost(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(SAMPLES / "healthy" / "trainer_state.json", run)
    (run / "metrics.jsonl").write_bytes(lfs_pointer(10**6))
    (source,) = [source for source in ptt.diagnose(run).sources if source.kind == "git_lfs_pointer"]
    assert source.bytes_lost == source.bytes
