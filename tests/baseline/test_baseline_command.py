"""`ptt baseline` as a user runs it, on the sample runs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from shared_folder import share_stores
from typer.testing import CliRunner

from ptt.cli.app import app
from ptt.diagnostics.gate.baseline.file import read_baseline

SAMPLES = Path(__file__).parents[2] / "sample_logs"
HEALTHY, BROKEN, PENALISED = SAMPLES / "healthy", SAMPLES / "tool_tail_growth", SAMPLES / "kl_penalised"
GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    share_stores(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


def ptt(*args: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["baseline", *map(str, args)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout + done.stderr


def recorded(name: str, actual: str) -> None:
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("PTT_RECORD_GOLDEN"):
        file.write_text(actual, encoding="utf-8")
    assert actual == file.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A baseline of two runs, one of which does not pass."""
    folder = tmp_path_factory.mktemp("both")
    file = folder / "both.toml"
    code, text = ptt("update", file, HEALTHY, PENALISED, "--yes-even-failed", "--out", folder / "stores")
    assert code == 0, text
    return file


def test_ctrl_c_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ptt.api.open_run", stop)
    code, text = ptt("update", "made.toml", HEALTHY)
    assert (code, text) == (130, "ptt: stopped.\n")
    assert not Path("made.toml").exists()


def test_update_writes_the_same_bytes_each_time_and_says_what_moved(tmp_path: Path) -> None:
    code, text = ptt("update", "made.toml", HEALTHY)
    assert code == 0
    assert "made.toml: baseline made of healthy, steps 1 to 500, 1 run." in text
    assert "three or more" in text
    first = Path("made.toml").read_bytes()
    code, text = ptt("update", "made.toml", HEALTHY)
    assert code == 0
    assert "0 of 17 figures moved beyond noise" in text
    assert Path("made.toml").read_bytes() == first
    assert str(tmp_path).encode() not in first
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["made.toml"]


@pytest.mark.slow
def test_an_archive_gives_the_same_baseline(tmp_path: Path) -> None:
    shutil.make_archive(str(tmp_path / "healthy"), "zip", HEALTHY)
    ptt("update", "folder.toml", HEALTHY, "--name", "x")
    ptt("update", "archive.toml", tmp_path / "healthy.zip", "--name", "x")
    assert Path("folder.toml").read_bytes() == Path("archive.toml").read_bytes()


@pytest.mark.slow
def test_a_run_with_high_findings_is_refused(tmp_path: Path) -> None:
    code, text = ptt("update", "made.toml", HEALTHY, BROKEN)
    assert code == 3
    assert "tool_tail_growth cannot be a baseline" in text
    assert "--yes-even-failed" in text
    assert not (tmp_path / "made.toml").exists()


def test_what_it_was_accepted_with_stands_in_the_file(both: Path) -> None:
    found = read_baseline(both)
    assert found.runs[0].accepted == ()
    assert found.runs[1].accepted == ("tool-tail-growth (post_tool)",)
    assert "by decision" in both.read_text(encoding="utf-8")


def test_a_run_of_which_nothing_can_be_said_is_refused_as_blind(tmp_path: Path) -> None:
    run = tmp_path / "short"
    run.mkdir()
    (run / "metrics.jsonl").write_text('{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.5}\n', encoding="utf-8")
    code, text = ptt("update", "made.toml", run)
    assert code == 4
    assert "nothing could be judged" in text


def test_the_run_is_never_written_to(tmp_path: Path) -> None:
    run = shutil.copytree(HEALTHY, tmp_path / "run")
    code, text = ptt("update", run / "baseline.toml", run)
    assert code == 2
    assert "never written to" in text
    assert not (run / "baseline.toml").exists()


@pytest.mark.slow
def test_one_run_is_no_two_seeds(tmp_path: Path) -> None:
    copy = shutil.copytree(HEALTHY, tmp_path / "copy")
    code, text = ptt("update", "made.toml", HEALTHY, copy)
    assert code == 2
    assert "give each run once" in text


def test_a_file_of_another_version_is_renewed_and_that_is_said() -> None:
    Path("made.toml").write_text("schema_version = 99\n", encoding="utf-8")
    assert ptt("show", "made.toml")[0] == 2
    code, text = ptt("update", "made.toml", HEALTHY)
    assert code == 0
    assert "Cannot say what moved" in text
    assert ptt("show", "made.toml")[0] == 0


@pytest.mark.parametrize("content", [b"[gate]\nmin_steps = 30\n", b"\x28\xb5\x2f\xfd an archive"])
def test_what_is_no_baseline_is_not_written_over(content: bytes) -> None:
    file = Path("run.tar.zst")
    file.write_bytes(content)
    code, text = ptt("update", file, HEALTHY)  # the baseline's file was forgotten
    assert code == 2
    assert "Give the baseline file first" in text
    assert file.read_bytes() == content


def test_show_is_the_recorded_one(both: Path) -> None:
    code, text = ptt("show", both)
    assert code == 0
    recorded("show", text)


@pytest.mark.slow
def test_diff_of_two_files_and_of_a_run(both: Path) -> None:
    ptt("update", "healthy.toml", HEALTHY, "--out", both.parent / "stores")
    code, text = ptt("diff", "healthy.toml", both)
    assert code == 0
    assert "17 figures moved beyond noise" in text
    ptt("update", "broken.toml", BROKEN, "--yes-even-failed", "--out", both.parent / "stores")
    code, text = ptt("diff", "healthy.toml", "broken.toml")
    assert code == 0
    assert "different steps" in text
    assert "is unclear" in text
    code, text = ptt("diff", "healthy.toml", "--against", BROKEN)
    assert code == 0
    recorded("diff", text)


def test_diff_wants_one_of_both(both: Path) -> None:
    assert ptt("diff", both)[0] == 2
    assert ptt("diff", both, both, "--against", HEALTHY)[0] == 2


def test_a_missing_run_is_unreadable() -> None:
    assert ptt("update", "made.toml", "none")[0] == 5
