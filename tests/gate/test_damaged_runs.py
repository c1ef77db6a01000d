"""A run of which a part is lost passes nothing, in a torn archive or with torn files; a single lost record is told."""

from __future__ import annotations

import io
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from gate_samples import check_of, gate_of, gated, healthy, opened, policy
from slow_cases import first_fast
from typer.testing import CliRunner

from ptt.cli.app import app
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.gate.results import GatedRun, Outcome
from ptt.diagnostics.model import Source
from ptt.diagnostics.parsers import PARSERS
from ptt.diagnostics.store.damage import SAMPLE_FORMATS

ROOT = Path(__file__).parents[2]
WELL = ROOT / "sample_logs" / "healthy"
ARCHIVED = ROOT / "tests" / "fixtures" / "runs" / "trl_sft_healthy.tar.zst"


def tar_of(folder: Path, place: Path) -> Path:
    """Pack small files first, so that what a tear loses is tokens."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for file in sorted((one for one in folder.rglob("*") if one.is_file()), key=lambda one: one.name, reverse=True):
            archive.add(file, file.relative_to(folder.parent).as_posix())
    place.write_bytes(content.getvalue())
    return place


def lost(*sources: Source, text: str = "", head: str = "") -> GatedRun:
    """Gate a run of one sound file and these."""
    run = opened(*healthy())
    sound = source("metrics.jsonl", kind="metrics_jsonl", rows_ok=1000)
    return gated(replace(run, diagnosis=replace(run.diagnosis, sources=(sound, *sources))), f"{head}{text}")


def source(
    path: str, *, kind: str = "recorder", size: int = 100_000, rows_ok: int = 0, rows_bad: int = 0, bytes_lost: int = 0
) -> Source:
    return Source(
        path=path, kind=kind, bytes=size, rows_ok=rows_ok, rows_bad=rows_bad, bytes_lost=bytes_lost, note=None
    )


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["tar", "tar.zst"])
def test_a_torn_archive_leaves_the_gate_blind_where_the_whole_one_passes(ending: str, tmp_path: Path) -> None:
    whole = tar_of(WELL, tmp_path / "run.tar") if ending == "tar" else ARCHIVED
    torn = tmp_path / f"torn.{ending}"
    torn.write_bytes(whole.read_bytes()[: whole.stat().st_size * 6 // 10])
    assert gate_of(whole, tmp_path / "a").outcome is Outcome.PASSED
    run = gate_of(torn, tmp_path / "b")
    assert run.outcome is Outcome.BLIND
    check = check_of(run, "extent:damage")
    assert check.claim.startswith("the archive is torn or damaged; what followed the damage is unknown")
    assert "max_lost = 1" in check.next[0]
    assert gate_of(torn, tmp_path / "b", "[gate]\nmax_lost = 0.9\n").outcome is Outcome.BLIND  # who knows?
    let = gate_of(torn, tmp_path / "b", "[gate]\nmax_lost = 1\n")
    assert check_of(let, "extent:damage").outcome is Outcome.PASSED
    assert any("which the policy accepts: the archive is torn" in note for note in let.notes)


@pytest.mark.parametrize("tear", first_fast([2000, None]))
def test_torn_files_of_tokens_leave_the_gate_blind_and_are_named(tear: int | None, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(WELL, run)
    file = sorted((run / "tokens").glob("*.parquet"))[3]
    file.write_bytes(file.read_bytes()[:-tear] if tear else b"")
    check = check_of(gate_of(run, tmp_path / "out"), "extent:damage")
    assert check.outcome is Outcome.BLIND
    assert f"a file of tokens or metrics is lost: tokens/{file.name}" in check.claim


def test_a_torn_run_is_no_baseline_unless_that_is_said(tmp_path: Path) -> None:
    torn = tmp_path / "torn.tar.zst"
    torn.write_bytes(ARCHIVED.read_bytes()[: ARCHIVED.stat().st_size * 6 // 10])
    words = ["baseline", "update", str(tmp_path / "b.toml"), str(torn), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 4
    assert "a part of it is lost: the archive is torn" in done.stdout.replace("\n", " ")
    assert not (tmp_path / "b.toml").exists()
    assert CliRunner().invoke(app, [*words, "--yes-even-failed"]).exit_code == 0
    assert CliRunner().invoke(app, ["baseline", "show", str(tmp_path / "b.toml")]).exit_code == 0


def test_a_record_lost_at_the_end_is_told_and_passes() -> None:
    run = lost(source("events", kind="tensorboard", rows_ok=5000, rows_bad=1, bytes_lost=30))
    assert run.outcome is Outcome.PASSED
    assert any("less than 0.1% of the bytes" in note for note in run.notes)


@pytest.mark.parametrize(
    ("most", "outcome"),
    [("", Outcome.BLIND), ("max_lost = 0.04\n", Outcome.BLIND), ("max_lost = 0.06\n", Outcome.PASSED)],
)
def test_the_share_that_may_be_lost_is_the_policys(most: str, outcome: Outcome) -> None:
    tenth = source("tokens/1.jsonl", kind="recorder_jsonl", rows_ok=90, rows_bad=10)  # of half of the bytes
    run = lost(tenth, text=f"[gate]\n{most}")
    assert run.outcome is outcome
    assert check_of(run, "extent:damage").observed == pytest.approx(0.05)


def test_weights_beside_the_logs_do_not_hide_what_the_logs_lost() -> None:
    tenth = source("tokens/1.jsonl", kind="recorder_jsonl", rows_ok=90, rows_bad=10)
    weights = source("checkpoint-1/model.safetensors", kind="unrecognised", size=10_000_000_000, rows_ok=0)
    assert lost(tenth).checks == lost(tenth, weights).checks
    assert lost(tenth, weights).outcome is Outcome.BLIND


def test_a_whole_file_lost_counts_whatever_its_share_and_samples_by_their_share_alone() -> None:
    tokens = source("tokens/1.parquet", size=50, bytes_lost=50)
    assert lost(tokens).outcome is Outcome.BLIND
    assert lost(tokens, text="[gate]\nmax_lost = 0.01\n").outcome is Outcome.PASSED  # written down and reviewed
    assert (
        lost(source("completions/1.parquet", kind="trl_completions", size=50, bytes_lost=50)).outcome is Outcome.PASSED
    )


def test_nothing_lost_is_said_where_the_policy_asks() -> None:
    assert [one.id for one in lost().checks] == ["severity", "extent:min_steps"]
    check = check_of(lost(text="[gate]\nmax_lost = 0\n"), "extent:damage")
    assert (check.outcome, check.claim) == (Outcome.PASSED, "every file could be read to its end")


@pytest.mark.parametrize("text", ["max_lost = -0.1", "max_lost = 1.5", "max_lost = nan", "max_lost = '1 %'"])
def test_a_share_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"\[gate\] max_lost"):
        policy(f"[gate]\n{text}\n")


def test_formats_beside_the_training_are_known_ones() -> None:
    assert {one.name for one in PARSERS} > SAMPLE_FORMATS
