"""`ptt compare` as a user runs it: what it prints, writes and ends with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ptt.cli.app import app

SAMPLES = Path(__file__).parents[2] / "sample_logs"
BASE, ARM = SAMPLES / "tool_tail_growth", SAMPLES / "kl_penalised"


def ptt(*args: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ptt", *map(str, args)]
    environment = {**os.environ, "COLUMNS": "100"}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, env=environment)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


@pytest.mark.slow
def test_compare_writes_its_files_and_a_second_time_the_same_bytes(tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (*BASE.rglob("*"), *ARM.rglob("*"))}
    first = ptt("compare", BASE, ARM, "--jobs", "2", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "kl_penalised has lighter" in first.stdout
    assert "\x1b" not in first.stdout
    out = tmp_path / "ptt-report"
    assert {path.name for path in out.iterdir()} == {"compare", "tool_tail_growth", "kl_penalised"}
    written = files(out / "compare")
    assert set(written) == {"compare.html", "compare.json", "compare.md"}
    assert b"/sample_logs" not in b"".join(written.values())
    again = ptt("compare", BASE, ARM, "--jobs", "1", "--json", cwd=tmp_path)
    assert again.stdout.encode() == written["compare.json"]
    assert files(out / "compare") == written
    assert before == {path: path.stat().st_mtime_ns for path in (*BASE.rglob("*"), *ARM.rglob("*"))}
    stores = ptt("compare", out / "tool_tail_growth", out / "kl_penalised" / "store", "--out", "o", cwd=tmp_path)
    assert stores.returncode == 0, stores.stderr
    held, expected = json.loads((tmp_path / "o" / "compare.json").read_text("utf-8")), json.loads(again.stdout)
    assert held["differences"] == expected["differences"]
    assert held["aggregate_differences"] == expected["aggregate_differences"]


def test_wrong_usage_ends_with_two_before_any_run_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for args, says in (
        ([BASE], "at least two"),
        ([BASE, BASE], "given twice"),
        ([BASE, ARM, "--group", "kl"], "NAME=RUN,RUN"),
        ([BASE, ARM, "--group", "a=tool_tail_growth", "--group", "a=kl_penalised"], "given twice"),
        ([BASE, ARM, "--baseline", "x"], "no arm has that name"),
        ([BASE, ARM, "--out", BASE / "o"], "never written to"),
    ):
        done = CliRunner().invoke(app, ["compare", *map(str, args)])
        assert done.exit_code == 2, args
        assert says in done.stderr
        assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_unreadable_run_ends_with_five(tmp_path: Path) -> None:
    missing = ptt("compare", BASE, tmp_path / "nowhere", cwd=tmp_path)
    assert missing.returncode == 5
    assert "nowhere" in missing.stderr
    broken = tmp_path / "broken.tar.zst"
    broken.write_bytes(b"no archive")
    done = ptt("compare", BASE, broken, "--jobs", "1", cwd=tmp_path)
    assert done.returncode == 5
    assert "broken.tar.zst" in done.stderr


@pytest.mark.slow
def test_runs_of_which_nothing_is_known_end_with_four(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.txt").write_text(f"nothing of use, {name}", encoding="utf-8")
    done = ptt("compare", "one", "two", cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    assert "Nothing could be compared" in done.stdout
    assert (tmp_path / "ptt-report" / "compare" / "compare.json").exists()
