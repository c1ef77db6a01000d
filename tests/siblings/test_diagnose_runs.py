"""`ptt diagnose` of several runs: each judged, one index with the worst first, and the exit code of the worst."""

from __future__ import annotations

import json
import shutil
from io import StringIO
from pathlib import Path
from typing import Any, cast

import pytest
from made_runs import Row, pack, rows_of, write_jsonl, write_state, write_wandb
from rich.console import Console
from typer.testing import CliRunner, Result

import ptt
from ptt.cli.app import app
from ptt.diagnostics.errors import InputError, SeveralRunsError
from ptt.diagnostics.gate.judge import decide
from ptt.diagnostics.model import Link, Status
from ptt.reports.run.index import DiagnosedRun, RunsIndex, index_html, index_json, print_index, worst_first


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs, one of which dies, and beside them what is no run."""
    monkeypatch.chdir(tmp_path)
    write_state(tmp_path / "runs" / "seed_1", rows_of(1))
    write_state(tmp_path / "runs" / "seed_2", dying(rows_of(2)))
    (tmp_path / "runs" / "README.md").write_text("two seeds", encoding="utf-8")
    return tmp_path


def dying(rows: list[Row]) -> list[Row]:
    return [row | {"loss": float("nan"), "grad_norm": float("nan")} if row["step"] > 12 else row for row in rows]


def ptt_says(*words: str) -> Result:
    jobs = ("--jobs", "1") if words[0] in {"diagnose", "gate"} and "--jobs" not in words else ()  # in this process
    return CliRunner().invoke(app, [*words, *jobs], catch_exceptions=False, env={"COLUMNS": "200"})


def index(base: str = "ptt-report/runs") -> dict[str, Any]:
    content: dict[str, Any] = json.loads((Path(base) / "index.json").read_text(encoding="utf-8"))
    return content


def names(base: str = "ptt-report/runs") -> list[str]:
    return [run["name"] for run in index(base)["runs"]]


def test_a_folder_of_runs_gives_a_verdict_each_and_one_index() -> None:
    done = ptt_says("diagnose", "runs")
    assert done.exit_code == 0, done.stderr
    assert names() == ["seed_2", "seed_1"]
    for name in names():
        run = Path("ptt-report/runs") / name
        assert {path.name for path in run.iterdir()} >= {"report.html", "findings.json", "store"}
        assert json.loads((run / "findings.json").read_text(encoding="utf-8"))["run"]["name"] == name
    page = Path("ptt-report/runs/index.html").read_text(encoding="utf-8")
    assert page.index("seed_2/report.html") < page.index("seed_1/report.html")
    lines = done.stdout.splitlines()
    assert " ".join(line.strip() for line in lines[:2]) == (
        "2 runs, not one: seed_1 and seed_2 each have trainer_state.json from the start on, with different values."
    )
    assert lines[2].startswith(("▲", "■"))
    assert "seed_2: " in lines[2]
    assert any("Not part of any run: README.md" in line for line in lines)
    assert lines[-1] == "Index  ptt-report/runs/index.html"


@pytest.mark.slow
def test_the_index_says_what_each_run_came_to() -> None:
    done = ptt_says("diagnose", "runs", "--json")
    assert json.loads(done.stdout) == index()
    worst = index()["runs"][0]
    assert worst["status"] in {"unstable", "suspect"}
    assert worst["first_broken_link"]
    assert worst["onset_step"] == 13
    assert worst["steps"] == {"first": 1, "last": 30, "count": 30}
    assert worst["framework"] == "transformers"
    assert worst["path"] == "runs/seed_2"
    assert sum(worst["findings"].values())


@pytest.mark.slow
def test_several_paths_are_several_runs() -> None:
    done = ptt_says("diagnose", "runs/seed_1", "runs/seed_2")
    assert done.exit_code == 0, done.stderr
    assert sorted(names("ptt-report/diagnose")) == ["seed_1", "seed_2"]
    assert index("ptt-report/diagnose")["reason"] == ""


@pytest.mark.slow
def test_runs_of_one_name_get_folders_of_their_own(here: Path) -> None:
    shutil.move(here / "runs", here / "a" / "runs")
    write_state(here / "b" / "seed_1", rows_of(5))
    ptt_says("diagnose", "a/runs/seed_1", "b/seed_1", "a/runs/seed_2")
    assert sorted(names("ptt-report/diagnose")) == ["b-seed_1", "runs-seed_1", "seed_2"]


@pytest.mark.slow
def test_a_folder_nested_one_deeper_is_the_same(here: Path) -> None:
    shutil.move(here / "runs", here / "sweep" / "experiment")
    assert ptt_says("diagnose", "sweep").exit_code == 0
    assert sorted(names("ptt-report/sweep")) == ["seed_1", "seed_2"]


@pytest.mark.slow
def test_one_run_joins_them(here: Path) -> None:
    done = ptt_says("diagnose", "runs", "--one-run")
    assert done.exit_code == 0, done.stderr
    assert (here / "ptt-report/runs/report.html").is_file()
    assert not (here / "ptt-report/runs/index.html").exists()


@pytest.mark.slow
def test_one_run_among_others_that_cannot_be_read_costs_its_line_and_the_exit_code(here: Path) -> None:
    (here / "runs" / "torn.tar.gz").write_bytes(b"\x1f\x8b" + bytes(50))
    done = ptt_says("diagnose", "runs/seed_1", "runs/torn.tar.gz")
    assert done.exit_code == 5
    by_name = {run["name"]: run for run in index("ptt-report/diagnose")["runs"]}
    assert by_name["torn"]["outcome"] == "unreadable"
    assert by_name["torn"]["error"]
    assert by_name["torn"]["report"] is None
    assert by_name["seed_1"]["status"]


@pytest.mark.slow
def test_fail_on_applies_to_each_and_outranks_what_cannot_be_read(here: Path) -> None:
    assert ptt_says("diagnose", "runs", "--fail-on", "high").exit_code == 3
    assert index()["outcome"] == "failed"
    assert {run["name"]: run["outcome"] for run in index()["runs"]} == {"seed_2": "failed", "seed_1": "passed"}
    (here / "torn.zip").write_bytes(b"PK")
    assert ptt_says("diagnose", "runs", "torn.zip", "--fail-on", "high").exit_code == 3


@pytest.mark.slow
def test_a_second_call_reads_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    ptt_says("diagnose", "runs")
    first = Path("ptt-report/runs/index.json").read_bytes()
    page = Path("ptt-report/runs/seed_1/report.html").stat().st_mtime_ns

    def judged_again(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr("ptt.api.open_run", judged_again)
    assert ptt_says("diagnose", "runs").exit_code == 0
    assert Path("ptt-report/runs/index.json").read_bytes() == first
    assert Path("ptt-report/runs/seed_1/report.html").stat().st_mtime_ns == page


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def stop(*given: Any, **named: Any) -> Any:
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return decide(*given, **named)

    monkeypatch.setattr("ptt.cli.diagnose.decide", stop)
    done = ptt_says("diagnose", "runs", "--jobs", "1")
    assert done.exit_code == 130
    assert "stopped after 1 of 2 runs" in done.stderr
    assert not Path("ptt-report/runs/index.json").exists()


@pytest.mark.slow
def test_a_crash_of_ours_costs_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(diagnosis: ptt.Diagnosis, **named: Any) -> Any:
        if diagnosis.run.name == "seed_1":
            raise ValueError("odd")
        return decide(diagnosis, **named)

    monkeypatch.setattr("ptt.cli.diagnose.decide", faulty)
    assert ptt_says("diagnose", "runs", "--jobs", "1").exit_code == 1
    assert [run["outcome"] for run in index()["runs"]] == ["crashed", "passed"]
    assert "ValueError: odd" in index()["runs"][0]["error"]


@pytest.mark.slow
def test_two_folders_of_one_name_are_not_mixed(here: Path) -> None:
    ptt_says("diagnose", "runs")
    shutil.copytree(here / "runs", here / "later" / "runs")
    ptt_says("diagnose", "later/runs")
    assert (here / "ptt-report" / "later-runs" / "index.json").is_file()


def test_nothing_is_written_into_the_folder_of_runs(here: Path) -> None:
    done = ptt_says("diagnose", "runs", "--out", "runs/out")
    assert done.exit_code == 2
    assert "lies inside runs" in done.stderr
    assert ptt_says("diagnose", "runs", "--figures", "runs/figures").exit_code == 2
    assert {path.name for path in (here / "runs").iterdir()} == {"seed_1", "seed_2", "README.md"}


@pytest.mark.slow
def test_figures_go_into_a_folder_a_run(here: Path) -> None:
    ptt_says("diagnose", "runs", "--figures", "figures")
    assert sorted(path.name for path in (here / "figures").iterdir()) == ["seed_1", "seed_2"]
    assert list((here / "figures" / "seed_1").glob("*.svg"))


@pytest.mark.slow
def test_archives_in_a_folder_are_judged_each(here: Path) -> None:
    for name in ("seed_1", "seed_2"):
        pack(here / "runs" / name)
        shutil.rmtree(here / "runs" / name)
    done = ptt_says("diagnose", "runs")
    assert done.exit_code == 0, done.stderr
    assert names() == ["seed_2", "seed_1"]


@pytest.mark.slow
def test_an_archive_of_several_runs_is_judged_run_by_run(here: Path) -> None:
    pack(here / "runs")
    done = ptt_says("diagnose", "runs.tar.gz")
    assert done.exit_code == 0, done.stderr
    assert names() == ["seed_2", "seed_1"]
    assert [run["path"] for run in index()["runs"]] == [None, None]
    with pytest.raises(SeveralRunsError, match="contains 2 runs"):
        ptt.diagnose("runs.tar.gz", out="kept")
    assert ptt.diagnose("runs.tar.gz", out="kept", one_run=True).run.step_count == 30
    with pytest.raises(SeveralRunsError):
        ptt.diagnose("runs.tar.gz", out="kept")


@pytest.mark.parametrize("command", ["sources", "ingest", "report"])
def test_other_commands_name_the_runs_and_what_to_give(command: str, here: Path) -> None:
    done = ptt_says(command, "runs")
    assert done.exit_code == 2
    assert "runs: contains 2 runs, not one: seed_1, seed_2" in done.stderr
    assert "give one of them, as runs/seed_1" in done.stderr
    assert not list((here / "runs").glob("**/store"))


@pytest.mark.slow
def test_compare_names_the_runs() -> None:
    done = ptt_says("compare", "runs", "runs/seed_1")
    assert done.exit_code == 2
    assert "runs: contains 2 runs" in done.stderr


@pytest.mark.parametrize("command", ["sources", "ingest"])
def test_other_commands_join_them_where_asked(command: str) -> None:
    assert ptt_says(command, "runs", "--one-run").exit_code == 0


def test_the_gate_judges_each() -> None:
    done = ptt_says("gate", "runs", "--quiet")
    assert done.exit_code == 3
    told = json.loads(Path("ptt-report/gate/gate.json").read_text(encoding="utf-8"))
    assert [run["name"] for run in told["runs"]] == ["seed_1", "seed_2"]
    assert any("runs contains 2 runs; each is gated" in note for note in told["notes"])
    assert ptt_says("gate", "runs", "--one-run", "--quiet", "--out", "joined").exit_code in {0, 3, 4}
    told = json.loads(Path("joined/gate.json").read_text(encoding="utf-8"))
    assert [run["name"] for run in told["runs"]] == ["runs"]


@pytest.mark.slow
def test_a_folder_read_as_one_run_says_why(here: Path) -> None:
    write_jsonl(here / "resumed" / "part_a" / "metrics.jsonl", rows_of(1, last=20))
    write_jsonl(here / "resumed" / "part_b" / "metrics.jsonl", rows_of(2, first=15, last=40))
    done = ptt_says("diagnose", "resumed")
    assert done.exit_code == 0, done.stderr
    assert done.stderr.startswith("ptt: Read as one run: part_a and part_b are parts of one history")


def test_the_door_for_notebooks_refuses_and_offers(here: Path) -> None:
    with pytest.raises(SeveralRunsError, match=r"ptt\.diagnose_runs") as refused:
        ptt.diagnose("runs")
    assert refused.value.runs == ("seed_1", "seed_2")
    assert isinstance(refused.value, InputError)
    assert ptt.diagnose("runs", one_run=True).run.name == "runs"
    (here / "torn.zip").write_bytes(b"PK")
    judged = ptt.diagnose_runs(["runs", "torn.zip"], out="kept")
    assert list(judged) == ["runs/seed_1", "runs/seed_2", "torn.zip"]
    assert isinstance(judged["torn.zip"], InputError)
    assert isinstance(judged["runs/seed_1"], ptt.Diagnosis)
    assert sorted(path.name for path in Path("kept").iterdir()) == ["seed_1", "seed_2"]
    assert [run.rel for run in ptt.runs_in("runs").runs] == ["seed_1", "seed_2"]
    assert ptt.runs_in("kept/seed_1").runs == ()


@pytest.mark.slow
def test_runs_of_a_sweep_are_named_after_the_tracker(here: Path) -> None:
    for run in ("a1b2c3d4", "e5f6a7b8"):
        write_wandb(here / "sweep", run, rows_of(ord(run[0])))
    assert ptt_says("diagnose", "sweep/wandb").exit_code == 0
    assert sorted(names("ptt-report/wandb")) == ["run-20260101_120000-a1b2c3d4", "run-20260101_120000-e5f6a7b8"]


def row(name: str, outcome: str, **changes: Any) -> DiagnosedRun:
    return DiagnosedRun(name=name, path=None, outcome=outcome, **changes)


def test_the_worst_stands_first_whatever_the_order() -> None:
    runs = [
        row("fine", "passed", status=Status.HEALTHY),
        row("dark", "blind", status=Status.CANNOT_SAY),
        row("gone", "unreadable", error="no file"),
        row("mild", "passed", status=Status.SUSPECT, findings={"medium": 3}),
        row("hard", "passed", status=Status.SUSPECT, findings={"high": 1}),
        row("worst", "failed", status=Status.UNSTABLE, findings={"critical": 1}),
        row("ours", "crashed", error="ValueError"),
    ]
    assert [run.name for run in worst_first(runs)] == ["ours", "worst", "hard", "mild", "gone", "dark", "fine"]


def test_rows_without_steps_are_called_rows() -> None:
    run = row(
        "home-made", "passed", status=Status.SUSPECT, headline="It fell.", first_broken_link=Link.REWARD, onset_step=7,
        first_step=1, last_step=90, step_count=90, step_unit="row",
    )  # fmt: skip
    told = RunsIndex(title="", runs=(run,), outcome="passed", exit_code=0)
    assert json.loads(index_json(told, "1"))["runs"][0]["steps"] == {"first": 1, "last": 90, "count": 90, "unit": "row"}
    page = index_html(told)
    assert "row 7" in page
    assert "rows 1 to 90" in page


def test_a_terminal_has_one_line_a_run_and_a_pipe_the_whole_headline() -> None:
    long = row("long", "blind", status=Status.CANNOT_SAY, headline="word " * 60)
    gone = row("gone", "unreadable", error="gone: none of its files could be read")
    told = RunsIndex(title="", runs=(long, gone), outcome="unreadable", exit_code=5)
    for terminal in (True, False):
        console = Console(file=StringIO(), width=100, force_terminal=terminal, no_color=True, color_system=None)
        print_index(told, console, "index.html")
        lines = cast("StringIO", console.file).getvalue().splitlines()
        assert len(lines) == 4
        assert lines[0].endswith("gone: None of its files could be read.")
        assert (len(lines[1]) == 100) is terminal
        assert lines[-1] == "Index  index.html"


def test_the_page_takes_names_as_texts_and_is_the_same_each_time() -> None:
    hostile = row(
        "<script>x</script>", "passed", status=Status.SUSPECT, headline="<b>odd</b>", first_broken_link=Link.REWARD,
        onset_step=7, report="a b/report.html",
    )  # fmt: skip
    told = RunsIndex(title="<i>", runs=(hostile,), outcome="passed", exit_code=0, reason="two")
    page = index_html(told)
    assert page == index_html(told)
    assert "<script>x" not in page
    assert "<b>odd" not in page
    assert 'href="a%20b/report.html"' in page
    assert index_json(told, "1") == index_json(told, "1")
