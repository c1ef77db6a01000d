"""`ptt gate` as CI runs it: what it ends with, what it leaves, and that one bad run costs no other."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from processes import LINUX, exit_code, started, until_spawned
from slow_cases import first_fast
from typer.testing import CliRunner, Result

from ptt.cli import gate as gate_module
from ptt.cli.app import app
from ptt.cli.many_runs import Output
from ptt.diagnostics.gate.judge import judge
from ptt.reports.gate import markdown

ROOT = Path(__file__).parents[2]
REAL = ROOT / "tests" / "fixtures" / "runs"
HEALTHY, BROKEN, DPO = "trl_sft_healthy.tar.zst", "trl_sft_overfit.tar.zst", "trl_dpo_healthy.tar.zst"
OUT = Path("ptt-report/gate")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with archives of a healthy run, a broken one, and a torn one, and a run without a file; gated once."""
    place = tmp_path_factory.mktemp("made")
    (place / "runs" / "empty").mkdir(parents=True)
    for name in (HEALTHY, BROKEN):
        shutil.copy2(REAL / name, place / "runs" / name)
    (place / "runs" / "torn.tar.zst").write_bytes((REAL / DPO).read_bytes()[:100] + bytes(100))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        assert gate("runs/*", "--jobs", "1", "--reports", "none").exit_code == 3
    return place


@pytest.fixture(autouse=True)
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That folder, where what was judged is kept; a test of the first pass takes another --out."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def gate(*words: str, text: str | None = None) -> Result:
    return CliRunner().invoke(app, ["gate", *words], input=text, catch_exceptions=False)


def told() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((OUT / "gate.json").read_text(encoding="utf-8"))
    return found


def outcomes() -> dict[str, str]:
    return {run["name"]: run["outcome"] for run in told()["runs"]}


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runs", "code", "outcome"),
    [
        ([HEALTHY], 0, "passed"),
        ([HEALTHY, BROKEN], 3, "failed"),
        ([HEALTHY, "empty"], 4, "blind"),
        (["torn.tar.zst", "empty", HEALTHY], 5, "unreadable"),
        (["nowhere", HEALTHY], 5, "unreadable"),
        ([BROKEN, "torn.tar.zst"], 3, "failed"),
    ],
)
def test_it_ends_with_the_code_of_the_worst_and_leaves_the_evidence(runs: list[str], code: int, outcome: str) -> None:
    files_asked = ("--junit", "ci/junit.xml", "--sarif", "ci/gate.sarif")
    done = gate(*(f"runs/{name}" for name in runs), *files_asked, "--jobs", "1", "--quiet")
    assert done.exit_code == code, done.stderr
    assert (told()["outcome"], told()["exit_code"]) == (outcome, code)
    assert files(Path("ci")) == {"junit.xml", "gate.sarif"}
    assert files(OUT) >= {"gate.json", "index.html"}


def test_a_bad_archive_is_told_and_the_others_are_judged() -> None:
    done = gate("runs/*", "--jobs", "1")
    assert done.exit_code == 3
    assert outcomes() == {
        "empty": "blind",
        "torn": "unreadable",
        "trl_sft_healthy": "passed",
        "trl_sft_overfit": "failed",
    }
    torn = told()["runs"][1]
    assert torn["error"].startswith("torn.tar.zst: ")
    assert torn["path"] == "runs/torn.tar.zst"
    assert "[4/4] failed: trl_sft_overfit" in done.stderr
    assert files(OUT / "trl_sft_overfit") == {"findings.json", "report.html", "store"}
    assert files(OUT / "trl_sft_healthy") == {"findings.json", "store"}
    page = (OUT / "index.html").read_text(encoding="utf-8")
    assert 'href="trl_sft_overfit/report.html"' in page
    assert page.index("trl_sft_overfit") < page.index("torn") < page.index(">empty<") < page.index("trl_sft_healthy")


@pytest.mark.slow
@pytest.mark.parametrize(("which", "drawn"), [("all", 2), ("failed", 1), ("none", 0)])
def test_reports_are_drawn_of_those_that_were_asked_for(which: str, drawn: int) -> None:
    gate(f"runs/{HEALTHY}", f"runs/{BROKEN}", "--reports", which, "--jobs", "1")
    assert len(list(OUT.glob("*/report.html"))) == drawn
    assert sum(run["report"] is not None for run in told()["runs"]) == drawn


def test_a_report_that_is_no_longer_true_is_taken_away() -> None:
    gate(f"runs/{HEALTHY}", "--reports", "all")
    report = OUT / "trl_sft_healthy" / "report.html"
    drawn = report.stat().st_mtime_ns
    gate(f"runs/{HEALTHY}", "--reports", "all")
    assert report.stat().st_mtime_ns == drawn  # unchanged: not drawn again
    shutil.copy2(REAL / BROKEN, f"runs/{HEALTHY}")
    gate(f"runs/{HEALTHY}", "--reports", "none")
    assert not report.exists()
    Path("runs", HEALTHY).write_bytes(b"torn")
    assert gate(f"runs/{HEALTHY}").exit_code == 5
    assert files(OUT / "trl_sft_healthy") == {"store"}  # no findings.json of what can no longer be read


def test_a_second_pass_reads_what_is_kept_and_opens_no_archive() -> None:
    assert gate("runs/trl*").exit_code == 3
    before = {name: (OUT / name).read_bytes() for name in ("gate.json", "index.html")}
    kept = OUT / "trl_sft_healthy" / "store" / "kept" / "diagnosis.json"
    written = kept.stat().st_mtime_ns
    for path in Path("runs").glob("trl*"):  # other bytes between the ends, of the same length and time: no one looks
        held, content = path.stat(), path.read_bytes()
        path.write_bytes(content[:4096] + b"x" * (held.st_size - 8192) + content[-4096:])
        os.utime(path, ns=(held.st_atime_ns, held.st_mtime_ns))
    assert gate("runs/trl*", "--jobs", "2").exit_code == 3
    assert before == {name: (OUT / name).read_bytes() for name in before}
    assert kept.stat().st_mtime_ns == written
    os.utime(f"runs/{HEALTHY}")
    assert gate(f"runs/{HEALTHY}").exit_code == 5  # a new time: opened again


def test_what_the_gate_wrote_can_be_gated_without_the_runs() -> None:
    gate("runs/trl*")
    first = outcomes()
    shutil.rmtree("runs")
    assert gate("ptt-report/gate/trl*", "--out", "second").exit_code == 3
    assert {run["name"]: run["outcome"] for run in json.loads(Path("second/gate.json").read_text())["runs"]} == first
    held = (OUT / "trl_sft_overfit" / "findings.json").read_bytes()
    assert gate("ptt-report/gate/trl_sft_overfit").exit_code == 3  # lies where its own output would go
    assert (OUT / "trl_sft_overfit" / "findings.json").read_bytes() == held


@pytest.mark.parametrize("name", ["trl_sft_healthy", "trl_sft_overfit"])
def test_a_store_is_gated_as_its_run_is(name: str, here: Path) -> None:
    bound = '[[gate.bound]]\nname = "loss"\nmetric = "loss"\nmax = 9\n'
    Path("ptt.toml").write_text(f'[gate]\nrequire = ["metrics-lost"]\n{bound}')
    code = gate(f"runs/{name}.tar.zst").exit_code
    of_run = told()["runs"][0]["checks"]
    assert {"required:metrics-lost", "bound:loss"} <= {check["id"] for check in of_run}
    for place in (OUT / name / "store", OUT / name):
        assert gate(str(place), "--out", "again").exit_code == code
        (run,) = json.loads(Path("again/gate.json").read_text())["runs"]
        assert run["name"] == name
        assert run["checks"] == of_run
        assert run["notes"] == []


@pytest.mark.parametrize(("name", "code"), [("trl_sft_healthy", 0), ("trl_sft_overfit", 3)])
def test_a_findings_json_is_gated_by_what_it_found_and_that_is_told(name: str, code: int) -> None:
    done = gate(f"ptt-report/gate/{name}/findings.json", "--out", "again", "--explain")
    assert done.exit_code == code, done.stdout
    (run,) = json.loads(Path("again/gate.json").read_text())["runs"]
    assert (run["name"], run["status"] == "healthy") == (name, code == 0)
    assert run["notes"] == ["a findings.json counts as it was written, with the version, limits and rules of that time"]
    assert "counts as it was written" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("settings", "check", "code"),
    [
        ('[gate]\nrequire = ["metrics-lost"]\n', "required:metrics-lost", 4),  # what is healthy does not stand in it
        ('[[gate.bound]]\nname = "loss"\nmetric = "loss"\nmax = 9\n', "bound:loss", 4),
        ("[limits.reward-jump]\njump = 9\n", "settings", 4),
        ("[slices]\nmin_observation = 8\n", "settings", 4),
    ],
)
def test_what_a_findings_json_cannot_answer_is_blind(settings: str, check: str, code: int) -> None:
    Path("ptt.toml").write_text(settings)
    assert gate("ptt-report/gate/trl_sft_healthy/findings.json", "--out", "again").exit_code == code
    (run,) = json.loads(Path("again/gate.json").read_text())["runs"]
    (blind,) = [check for check in run["checks"] if check["outcome"] == "blind"]
    assert blind["id"] == check
    assert "give the run" in blind["next"][0]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema_version": 2}', '{"schema_version": 1}', "\x00\xff"])
def test_a_findings_json_that_is_none_cannot_be_read(content: str) -> None:
    Path("findings.json").write_text(content, encoding="utf-8")
    done = gate("findings.json")
    assert done.exit_code == 5, done.stdout
    assert outcomes() == {"findings": "unreadable"} or list(outcomes().values()) == ["unreadable"]


@pytest.mark.slow
def test_one_process_and_several_say_the_same_bytes() -> None:
    words = ("runs/*", "--reports", "none", "--as-of", "2026-01-31")
    for jobs in ("1", "3"):
        gate(*words, "--jobs", jobs, "--out", f"out{jobs}")
    for name in ("gate.json", "index.html", "trl_sft_overfit/findings.json"):
        assert Path("out1", name).read_bytes() == Path("out3", name).read_bytes()


def test_a_list_of_runs_is_read_from_a_file_and_from_standard_input() -> None:
    Path("runs/list.txt").write_text(f"# nightly\n{HEALTHY}\n\n./{HEALTHY}\n", encoding="utf-8")
    assert gate("--list", "runs/list.txt").exit_code == 0
    assert told()["notes"] == [f"Given more than once, counted once: {HEALTHY}."]
    assert gate("--list", "-", text=f"runs/{BROKEN}\n").exit_code == 3


def test_json_goes_to_standard_output_alone() -> None:
    done = gate(f"runs/{HEALTHY}", "--json")
    assert done.stdout == (OUT / "gate.json").read_text(encoding="utf-8")


def test_github_gets_annotations_and_a_summary_behind_what_stands_there(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("summary.md").write_text("before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    done = gate(f"runs/{BROKEN}", "--github")
    before, _, after = done.stdout.partition(f"\n::{done.stdout.split('::')[2].splitlines()[0]}::\n")
    assert before.startswith("::stop-commands::ptt-")
    assert "  FAIL  overfitting: " in before  # foreign text stands where the runner takes no commands
    assert after.startswith("::error")
    assert Path("summary.md").read_text(encoding="utf-8").startswith("before\n")
    assert "trl" in Path("summary.md").read_text(encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "runs")
    done = gate(f"runs/{BROKEN}", "--github")
    assert done.exit_code == 3  # the gate's answer stands
    assert "GITHUB_STEP_SUMMARY: cannot be written" in done.stderr


def test_what_github_has_no_room_for_is_told_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown, "MAX_PER_LEVEL", 1)  # which the outcome takes
    for summary, place in (
        ("", f"{OUT / 'gate.json'}."),
        ("runs", f"{OUT / 'gate.json'}."),
        ("s.md", "the job summary."),
    ):
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", summary)
        done = gate(f"runs/{BROKEN}", "--github")
        (told,) = [line for line in done.stdout.splitlines() if line.startswith("::error")]
        assert re.search(r" 1 check more in (.+)$", told), told
        assert told.endswith(f"more in {place}")
    assert (OUT / "gate.json").is_file()


@pytest.mark.parametrize(
    ("words", "settings", "says"),
    [
        ((), "", "no run given"),
        (("nope*",), "", "matches nothing"),
        (("runs/empty", "--json", "--github"), "", "standard output"),
        (("runs/empty", "--as-of", "tomorrow"), "", "not a date"),
        (("runs/empty", "--settings", "none.toml"), "", "no such settings file"),
        (("runs/empty",), "[gate]\nsevrity = 'high'\n", "sevrity"),
        (("runs/empty", "--out", "runs/empty/out"), "", "never written to"),
        (("runs/empty", "--junit", "runs/empty/junit.xml"), "", "--junit"),
        (("runs/empty", "--junit", "runs"), "", "is a folder"),
    ],
)
def test_wrong_usage_ends_with_two_before_any_run_is_opened(words: tuple[str, ...], settings: str, says: str) -> None:
    if settings:
        Path("ptt.toml").write_text(settings, encoding="utf-8")
    done = gate(*words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert says in done.stderr
    assert files(Path("runs/empty")) == set()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--junit", f"runs/../runs/{HEALTHY}"), "is one of the runs; give another file for --junit"),
        (("--sarif", "hard.tar.zst"), "is one of the runs; give another file for --sarif"),
        (("--markdown", "ptt.toml"), "is the settings file"),
        (("--settings", "my.toml", "--markdown", "my.toml"), "is the settings file"),
        (("--list", "list.txt", "--junit", "list.txt"), "is the list of runs"),
        (("--junit", "a.xml", "--sarif", "./a.xml"), "would be written twice"),
        (("--junit", "ptt-report/gate/gate.json"), "would be written twice"),
        (("--junit", "link.xml"), "is a link or a device"),
        (("--junit", "/dev/null"), "is a link or a device"),
    ],
)
def test_nothing_that_is_read_or_linked_to_is_written_over(words: tuple[str, ...], says: str, here: Path) -> None:
    os.link(f"runs/{HEALTHY}", "hard.tar.zst")
    Path("link.xml").symlink_to("elsewhere.xml")
    Path("elsewhere.xml").write_text("mine")
    Path("list.txt").write_text("runs/empty\n")
    for name in ("ptt.toml", "my.toml"):
        Path(name).write_text("[gate]\n")
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    done = gate(f"runs/{HEALTHY}", *words, "--out", "ptt-report/gate")
    assert done.exit_code == 2, done.stdout
    assert says in done.stderr
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.skipif(sys.platform == "win32", reason="locks are of POSIX")
def test_a_second_gate_does_not_write_into_the_folder_of_one_that_runs(here: Path) -> None:
    with Output.below(OUT, "ptt gate", ()).exclusive():
        done = gate("runs/empty")
        assert done.exit_code == 2
        assert "another ptt gate is writing there" in done.stderr
        assert gate("runs/empty", "--out", "elsewhere").exit_code == 4
    assert gate("runs/empty").exit_code == 4


def test_an_earlier_answer_does_not_outlive_a_gate_that_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    gate(f"runs/{HEALTHY}", "--junit", "junit.xml")

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gate_module, "judge", stop)
    done = gate(f"runs/{HEALTHY}", "--junit", "junit.xml")
    assert done.exit_code == 130
    assert "stopped after 0 of 1 run" in done.stderr
    assert not (OUT / "gate.json").exists()
    assert not Path("junit.xml").exists()


@pytest.mark.parametrize("fault", first_fast([ValueError("odd"), MemoryError(), BaseException("a panic")]))
def test_a_crash_of_ours_costs_one_run_and_the_exit_code(fault: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(*given: Any, **named: Any) -> Any:
        if named["name"] == "trl_sft_healthy":
            raise fault
        return judge(*given, **named)

    monkeypatch.setattr(gate_module, "judge", faulty)
    done = gate("runs/trl*", "--jobs", "1")
    assert done.exit_code == 1
    assert outcomes() == {"trl_sft_healthy": "crashed", "trl_sft_overfit": "failed"}
    assert type(fault).__name__ in told()["runs"][0]["error"]
    assert str(Path.cwd()) not in (OUT / "gate.json").read_text(encoding="utf-8")


def test_a_report_that_cannot_be_drawn_leaves_what_was_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(_: object) -> str:
        raise ValueError("no ink")

    monkeypatch.setattr("ptt.reports.run.html.render_page", faulty)
    assert gate(f"runs/{BROKEN}").exit_code == 1
    run = told()["runs"][0]
    assert "no ink" in run["error"]
    assert run["checks"]
    assert files(OUT / "trl_sft_overfit") >= {"findings.json"}


@pytest.mark.slow
@pytest.mark.skipif(not LINUX, reason="looks for processes in /proc")
def test_a_killed_process_costs_its_run_and_no_other() -> None:
    shutil.rmtree(OUT)
    process = started("gate", "runs/*", "--jobs", "2", "--reports", "none")
    os.kill(until_spawned(process, 2)[0], signal.SIGKILL)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1, said
    assert sorted(outcomes().values()) in (
        ["crashed", "failed", "passed", "unreadable"],  # it held the run without a file
        ["blind", "crashed", "failed", "passed"],
    )
    (killed,) = (run for run in told()["runs"] if run["outcome"] == "crashed")
    assert "SIGKILL" in killed["error"]
    assert list(Path("tmp").iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(not LINUX, reason="looks for processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_and_the_end_of_a_job_leave_no_process_and_no_file_behind(how: signal.Signals) -> None:
    shutil.rmtree(OUT)
    process = started("gate", "runs/*", "--jobs", "2")
    judging = until_spawned(process, 2)
    os.killpg(process.pid, how)
    _, said = process.communicate(timeout=60)
    assert exit_code(process) == 128 + how
    assert "the same command resumes from there" in said
    assert "Traceback" not in said
    assert not any(Path(f"/proc/{pid}").exists() for pid in judging)
    assert list(Path("tmp").iterdir()) == []
    assert not (OUT / "gate.json").exists()


@pytest.mark.parametrize(
    "error",
    first_fast(
        [
            OSError(28, "No space left on device"),
            pl.exceptions.ComputeError("sink: No space left on device (os error 28)"),
        ]
    ),
)
@pytest.mark.parametrize("when", ["open_run", "findings_json"])
def test_a_full_disk_is_one_sentence_about_the_place_and_no_fault_of_a_run(
    error: Exception, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(f"ptt.api.{when}" if when == "open_run" else f"ptt.cli.many_runs.{when}", full)
    done = gate(f"runs/{HEALTHY}", "--out", "new", "--jobs", "1", "--quiet")
    assert done.exit_code == 2
    assert done.stderr == "ptt: new: No space left on device; give another --out, or free some space.\n"


@pytest.mark.slow
@pytest.mark.skipif(not LINUX, reason="file names that are no text")
def test_runs_named_as_our_own_files_or_by_no_text_get_folders_of_their_own(here: Path) -> None:
    names = ["index.html", "gate.json", ".lock", "junit.xml", os.fsdecode(b"bad\xff"), "a\nb"]
    for name in names:
        (here / "odd" / name).mkdir(parents=True)
        (here / "odd" / name / "trainer_state.json").write_text('{"log_history": [{"step": 1, "loss": 1.0}]}')
    for _ in range(2):
        runs = [f"odd/{name}" for name in names]
        done = gate(*runs, "--out", "new", "--junit", "new/junit.xml", "--jobs", "1", "--quiet")
        assert done.exit_code == 4, done.stderr
        told = json.loads((here / "new" / "gate.json").read_text(encoding="utf-8"))
        assert [run["name"] for run in told["runs"]] == [
            "index.html-2", "gate.json-2", ".lock-2", "junit.xml-2", "bad_xff", "a_x0ab",
        ]  # fmt: skip
        assert all((here / "new" / run["name"] / "findings.json").is_file() for run in told["runs"])
    assert CliRunner().invoke(app, ["diagnose", runs[4], "--out", "one"]).exit_code == 0
