"""The command as a user runs it: what it prints, writes and ends with."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest
from judged_runs import kept_folder
from made_runs import rows_of, write_state
from processes import LINUX, exit_code, started, until_spawned
from typer.testing import Result

SAMPLES = Path(__file__).parents[1] / "sample_logs"
HEALTHY, BROKEN = SAMPLES / "healthy", SAMPLES / "tool_tail_growth"


def ptt(*args: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ptt", *map(str, args)]
    environment = {**os.environ, "COLUMNS": "100", "PYTHONWARNINGS": "default"}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, env=environment)


def test_diagnose_writes_report_findings_and_store_and_prints_the_verdict(tmp_path: Path) -> None:
    rows = [row | {"loss": math.nan if row["step"] > 20 else row["loss"]} for row in rows_of(0)]
    done = ptt("diagnose", write_state(tmp_path / "run", rows), cwd=tmp_path)
    out = tmp_path / "ptt-report" / "run"
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "Unstable" in done.stdout
    assert "\x1b" not in done.stdout  # no colour where output is piped
    assert "report.html" in done.stdout
    assert {path.name for path in out.iterdir()} == {"report.html", "findings.json", "store"}
    findings = json.loads((out / "findings.json").read_text(encoding="utf-8"))
    assert findings["schema_version"] == 1
    assert findings["verdict"]["status"] == "unstable"


def test_json_goes_to_standard_output_alone(invoke: Callable[..., Result], tmp_path: Path) -> None:
    run = write_state(tmp_path / "run", rows_of(0))
    done = invoke("diagnose", run, "--json", "--out", tmp_path / "o")
    assert done.stdout == (tmp_path / "o" / "findings.json").read_text(encoding="utf-8")


@pytest.mark.slow
def test_figures_are_written_as_svg_and_png(invoke: Callable[..., Result], tmp_path: Path) -> None:
    invoke("diagnose", BROKEN, "--figures", tmp_path / "figures", "--out", kept_folder(BROKEN.name))
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    for figure in ("tail_emergence", "windowed_cdf", "effective_sample_size"):
        assert {f"{figure}.svg", f"{figure}.png"} <= names


@pytest.mark.slow
def test_fail_on_ends_with_three_when_a_finding_is_as_bad(invoke: Callable[..., Result], tmp_path: Path) -> None:
    assert invoke("diagnose", BROKEN, "--fail-on", "critical", "--out", kept_folder(BROKEN.name)).exit_code == 3


@pytest.mark.slow
def test_fail_on_passes_a_healthy_run(invoke: Callable[..., Result]) -> None:
    assert invoke("diagnose", HEALTHY, "--fail-on", "medium", "--out", kept_folder(HEALTHY.name)).exit_code == 0


@pytest.mark.slow
def test_settings_are_read_from_the_current_folder(invoke: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "ptt.toml").write_text('[diagnose]\nfail_on = "high"\n[limits.kl-over-target]\nlimit = 9.0\n')
    done = invoke("diagnose", BROKEN, "--json")
    assert done.exit_code == 3
    assert "kl-over-target" not in {finding["id"] for finding in json.loads(done.stdout)["findings"]}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[diagnose]\nfailon = 'high'\n", "unknown key 'failon'"),
        ("[limits.kl-over-target]\nlimt = 1\n", "unknown key 'limt'"),
        ("[limits.kl]\n", "unknown key 'kl'"),
        ("[limits.kl-over-target]\nlimit = 'x'\n", "limits.kl-over-target.limit must be a number"),
        ("[diagnose]\nfail_on = 'bad'\n", "it can be never"),
        ("[diagnose]\nkeep_text = 'yes'\n", "must be true or false"),
        ("[slices]\nmin_observation = 0\n", "min_observation is 0; it must be a whole number of at least 1"),
        ("nonsense", "cannot be read as TOML"),
    ],
)
def test_a_wrong_setting_is_named_and_ends_with_two(
    text: str, says: str, invoke: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / "ptt.toml").write_text(text)
    done = invoke("diagnose", HEALTHY)
    assert (done.exit_code, done.stdout) == (2, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_that_is_not_there_is_unreadable(invoke: Callable[..., Result], tmp_path: Path) -> None:
    done = invoke("diagnose", tmp_path / "nowhere")
    assert done.exit_code == 5
    assert "there is no such file or folder" in done.stderr


@pytest.mark.slow
def test_output_never_goes_into_the_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(HEALTHY, run)
    assert ptt("diagnose", ".", cwd=run).returncode == 0  # the default goes beside it instead
    assert not (run / "ptt-report").exists()
    assert (tmp_path / "ptt-report" / "run" / "report.html").exists()
    for option in ("--out", "--figures"):
        done = ptt("diagnose", run, option, run / "inside", cwd=tmp_path)
        assert done.returncode == 2
        assert option in done.stderr
    assert not (run / "inside").exists()


@pytest.mark.parametrize("name", ["run.tar.gz", "notes.txt"])
def test_a_file_in_no_known_format_is_refused(name: str, invoke: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / name).write_text("not a run")
    assert invoke("diagnose", name).exit_code == 5


@pytest.mark.slow
def test_an_empty_folder_leaves_it_blind_and_says_what_to_record(invoke: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    done = invoke("diagnose", "run")
    assert done.exit_code == 4
    assert "annot say" in done.stdout
    assert (tmp_path / "ptt-report" / "run" / "report.html").exists()


@pytest.mark.slow
def test_foreign_files_leave_it_blind_and_are_listed(invoke: Callable[..., Result], tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "notes.txt").write_text("nothing to see")
    (run / "model.safetensors").write_bytes(b"\0" * 100)
    pl.DataFrame({"a": [1]}).write_parquet(run / "other.parquet")
    done = invoke("diagnose", run, "--json")
    assert done.exit_code == 4
    kinds = {source["path"]: source["kind"] for source in json.loads(done.stdout)["sources"]}
    assert kinds == {
        "notes.txt": "unrecognised",
        "model.safetensors": "unrecognised",
        "other.parquet": "unrecognised",
    }


def test_ingest_makes_a_store_that_stands_alone(invoke: Callable[..., Result], tmp_path: Path) -> None:
    done = invoke("ingest", HEALTHY, "--out", tmp_path / "o")
    assert done.exit_code == 0, done.stderr
    rows = pl.read_parquet(tmp_path / "o" / "store" / "recorded.parquet")
    assert rows.height == 2048
    assert "rows" in done.stdout


def test_judging_imports_no_library_that_only_odd_files_need() -> None:
    program = "import sys; from ptt import api; print(sorted({'pyarrow.compute', 'matplotlib'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_version_and_help_import_neither_polars_nor_matplotlib() -> None:
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom ptt.cli.app import app\n"
        "for word in ('--help', '--version'):\n    assert CliRunner().invoke(app, [word]).exit_code == 0\n"
        "CliRunner().invoke(app, ['diagnose', '--help'])\n"
        "print(sorted({'polars', 'matplotlib', 'numpy', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_completion_can_be_installed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ptt", "--show-completion", "bash"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )
    assert "complete" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not LINUX, reason="looks for processes in /proc")
@pytest.mark.parametrize("wait", [0.0, 0.2, 0.4])
def test_the_process_that_draws_leaves_ctrl_c_to_its_parent(
    wait: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    process = started("diagnose", str(BROKEN), "--out", "o")
    (drawing,) = until_spawned(process, 1)
    time.sleep(wait)  # into the start of its interpreter, or what it imports
    os.kill(drawing, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")
    assert Path("o/report.html").is_file()


@pytest.mark.slow
@pytest.mark.skipif(not LINUX, reason="looks for processes in /proc")
def test_ctrl_c_takes_the_process_that_draws_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    process = started("diagnose", str(BROKEN), "--out", "o")
    (drawing,) = until_spawned(process, 1)
    while process.poll() is None:  # Python loses the first where it falls into the clearing up of an object
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=3)
    _, said = process.communicate(timeout=60)
    assert exit_code(process) == 130
    assert said.endswith("ptt: stopped.\n")
    assert not Path(f"/proc/{drawing}").exists()
    assert list(Path("tmp").iterdir()) == []
