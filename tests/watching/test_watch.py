"""`ptt watch` on runs that are being written: it reads what is new, survives what happens, and judges the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from growing_runs import GrowingRun
from typer.testing import CliRunner

from ptt.cli.app import app
from ptt.diagnostics.config import Settings
from ptt.diagnostics.parsers import run_files
from ptt.diagnostics.watch.monitor import Alarm
from ptt.diagnostics.watch.observed import ObservedStep
from ptt.watching.kept import KeptWatch
from ptt.watching.listing import Folder, Mode
from ptt.watching.reading import read_new
from ptt.watching.watcher import Watcher

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\nValueError: no reward\n'


class Clock:
    """A clock that the test moves; files are written at the real time."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


def watcher_of(folder: Path, **options: float | int | Clock) -> Watcher:
    return Watcher(Folder(folder), Settings(), **options)  # type: ignore[arg-type]


def observed(watcher: Watcher, *, closed: bool = False) -> list[tuple[int, tuple[str, ...], bool]]:
    """Look once, and give each step that is tested, with its metrics and whether it has tails."""
    steps = []
    observe = watcher.monitor.observe

    def note(step: ObservedStep) -> tuple[Alarm, ...]:
        steps.append((step.step, tuple(sorted(step.metrics)), step.tails is not None))
        return observe(step)

    watcher.monitor.observe = note  # type: ignore[method-assign]
    list(watcher.look(closed=closed))
    watcher.monitor.observe = observe  # type: ignore[method-assign]
    return steps


METRICS = ("entropy", "grad_norm", "kl/ref", "loss/total", "lr", "reward/mean")


@pytest.fixture
def run(tmp_path: Path) -> GrowingRun:
    return GrowingRun(tmp_path / "run")


def test_each_step_is_tested_once_with_its_metrics_and_tails(run: GrowingRun) -> None:
    run.write(1, 6)
    watcher = watcher_of(run.folder)
    assert observed(watcher) == [(step, METRICS, True) for step in range(1, 6)]
    assert observed(watcher) == []
    run.write(7, 8)
    assert observed(watcher) == [(step, METRICS, True) for step in (6, 7)]
    assert observed(watcher, closed=True) == [(8, METRICS, True)]


def test_only_new_lines_of_a_log_are_read(run: GrowingRun) -> None:
    run.write(1, 12)
    watcher = watcher_of(run.folder)
    list(watcher.look())
    log = run.folder / "metrics.jsonl"
    assert watcher.files["metrics.jsonl"].mode is Mode.LINES
    content = log.read_bytes()
    with log.open("r+b") as file:  # what was read is not looked at again: it could not be read now
        file.write(b"\0" * (len(content) - 10))
    run.write(13, 14)
    assert [step for step, metrics, _ in observed(watcher) if metrics == METRICS] == [12, 13]


def test_a_torn_last_line_waits_for_its_end(run: GrowingRun) -> None:
    run.write(1, 8)
    watcher = watcher_of(run.folder)
    list(watcher.look())
    run.record(9)
    run.record(10)
    log = run.folder / "metrics.jsonl"
    with log.open("a") as file:
        file.write('{"step": 9, "loss": 0.5, "rew')
    list(watcher.look())
    with log.open("a") as file:
        file.write('ard": 0.25}\n{"step": 10, "loss": 0.1}\n{"step": 11, "loss": 0.1}\n')
    assert (9, ("loss/total", "reward/mean"), True) in observed(watcher)


def test_a_log_that_numbers_its_rows_by_place_is_read_whole(run: GrowingRun) -> None:
    run.folder.mkdir()
    log = run.folder / "log.csv"
    log.write_text("loss,reward\n" + "".join(f"0.{n},0.5\n" for n in range(10, 30)))
    watcher = watcher_of(run.folder)
    first = observed(watcher)
    assert watcher.files["log.csv"].mode is Mode.WHOLE
    with log.open("a") as file:
        file.write("0.5,0.5\n" * 5)
    watcher._read_again.clear()  # the time that is waited for after a look
    assert [step for step, _, _ in first + observed(watcher)] == list(range(1, 25))


def test_a_rotated_log_is_not_read_twice(run: GrowingRun) -> None:
    run.write(1, 10)
    watcher = watcher_of(run.folder)
    before = observed(watcher)
    (run.folder / "metrics.jsonl").rename(run.folder / "metrics.jsonl.1")
    run.write(11, 16)
    after = observed(watcher)
    assert [step for step, _, _ in before + after] == list(range(1, 16))
    assert all(metrics == METRICS for _, metrics, _ in after)


def test_a_resumed_run_is_told_and_its_steps_are_not_tested_twice(run: GrowingRun) -> None:
    run.write(1, 20)
    watcher = watcher_of(run.folder)
    list(watcher.look())
    run.write(11, 14)
    notices = list(watcher.look())
    run.write(15, 22)
    assert [notice.rule for notice in notices] == ["resumed"]
    assert "step 11 was written after step 19 had been tested" in notices[0].line
    assert [step for step, _, _ in observed(watcher)] == [20, 21]


def test_a_run_that_begins_again_in_the_same_folder_is_watched_anew(run: GrowingRun) -> None:
    run.write(1, 20, loss=float("nan"))
    watcher = watcher_of(run.folder)
    assert [notice.kind for notice in watcher.look()] == ["warning", "stop"]
    run.write(1, 3)
    (begun,) = watcher.look()
    assert begun.line == "step 1: the run began again: the watch starts anew"
    assert (watcher.course.tested, watcher.stopped) == (2, False)
    run.write(4, 6, loss=float("nan"))
    assert [(notice.kind, notice.since_step) for notice in watcher.look(closed=True)][:2] == [
        ("warning", 4),
        ("stop", 4),
    ]


def test_a_rank_that_is_late_is_waited_for(run: GrowingRun) -> None:
    both = [GrowingRun(run.folder, rank=rank) for rank in (0, 1)]
    watcher = watcher_of(run.folder)
    for step in range(1, 7):
        both[0].record(step)
        if step < 5:
            both[1].record(step)
    assert [step for step, _, _ in observed(watcher)] == [1, 2, 3, 4]
    for rank, step in ((1, 5), (1, 6), (0, 7)):
        both[rank].record(step)
    assert [step for step, _, _ in observed(watcher)] == [5, 6]


def test_the_files_of_all_ranks_are_one_step(run: GrowingRun) -> None:
    for rank in (0, 1):
        GrowingRun(run.folder, rank=rank).record(5)
    (step,) = read_new(run_files(run.folder)[0], run.folder, Settings()).steps
    assert step.tails is not None
    assert {name: tail.tokens for name, tail in step.tails.items()} == {
        "text_only": 2 * 8 * 30,
        "post_tool": 2 * 8 * 30,
    }


def test_a_hung_run_is_told_once_and_then_taken_as_ended(run: GrowingRun) -> None:
    clock = Clock()
    watcher = watcher_of(run.folder, clock=clock)
    for step in range(1, 8):
        run.write(step, step)
        time.sleep(0.02)
        list(watcher.look())
    clock.ahead = 70.0
    (hung,) = watcher.look()
    assert (hung.kind, hung.rule) == ("warning", "hung-step")
    assert list(watcher.look()) == []
    clock.ahead = 700.0
    (end,) = [notice for notice in watcher.look() if notice.kind == "end"]
    assert "nothing was written for 700 s" in end.line


def test_an_exception_in_the_log_is_told_and_ends_the_run(run: GrowingRun) -> None:
    clock = Clock()
    watcher = watcher_of(run.folder, clock=clock)
    run.write(1, 8)
    (run.folder / "train.log").write_text("step 8 done\n" + TRACEBACK)
    (raised,) = watcher.look()
    assert (raised.kind, raised.rule) == ("warning", "exception")
    assert "ValueError: no reward" in raised.line
    clock.ahead = 30.0
    assert "ended: exception" in list(watcher.look())[-1].line


def test_what_a_watch_told_the_trackers_is_no_series(run: GrowingRun) -> None:
    for step in range(1, 9):
        run.log(step, **{"ptt/stop/kl-over-target": 1.0, "train/ptt/warning/loss": float("nan")})
    judged = CliRunner().invoke(app, ["diagnose", str(run.folder), "-o", str(run.folder.parent / "out")])
    assert judged.exit_code == 0
    assert "ptt/" not in (run.folder.parent / "out" / "findings.json").read_text()


def watch(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["watch", *words])
    return done.exit_code, done.output


def test_it_ends_with_the_run_and_judges_as_diagnose_does(run: GrowingRun, tmp_path: Path) -> None:
    run.write(1, 30)
    code, said = watch(str(run.folder), "-o", str(tmp_path / "out"), "--idle", "0.5", "--every", "0.1")
    judged = CliRunner().invoke(app, ["diagnose", str(run.folder), "-o", str(tmp_path / "other")])
    assert "the run has ended (nothing was written for" in said
    assert code == judged.exit_code
    for name in ("findings.json", "report.html"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_a_fault_is_told_its_command_run_and_the_exit_code_3(run: GrowingRun, tmp_path: Path) -> None:
    run.write(1, 20)
    run.write(21, 30, loss=float("nan"))
    for step in (10, 20, 30):
        (run.folder / f"checkpoint-{step}").mkdir()
        (run.folder / f"checkpoint-{step}" / "model.safetensors").write_bytes(b"weights")
    save = f"{sys.executable} -c \"import sys; open(sys.argv[1], 'w').write(sys.stdin.read())\""
    told = [f"--on-{kind}={save} {tmp_path / kind}" for kind in ("warning", "stop")]
    code, said = watch(str(run.folder), "-o", str(tmp_path / "out"), "--idle", "0.5", "--every", "0.1", *told)
    assert code == 3
    (stop,) = [line for line in said.splitlines() if "STOP" in line]
    assert stop.startswith("ptt: step 23: STOP metrics-lost since step 21: ")
    assert stop.endswith("; the last checkpoint before that is checkpoint-20")
    given = json.loads((tmp_path / "stop").read_text())
    assert (given["kind"], given["step"], given["since_step"], given["run"]) == ("stop", 23, 21, str(run.folder))
    assert given["guards"][0].startswith("go back to the last checkpoint before step 21")
    assert json.loads((tmp_path / "warning").read_text())["kind"] == "warning"


def test_steps_of_a_warm_up_are_not_tested(run: GrowingRun, tmp_path: Path) -> None:
    run.write(1, 10, loss=float("nan"))
    run.write(11, 20)
    code, said = watch(str(run.folder), "-o", str(tmp_path / "out"), "--once", "--after", "10", "--json")
    assert (code, said) == (0, "")


def test_once_looks_once_and_goes_on_the_next_time(run: GrowingRun, tmp_path: Path) -> None:
    run.write(1, 6)
    words = (str(run.folder), "-o", str(tmp_path / "out"), "--once")
    assert watch(*words) == (0, "")
    kept = KeptWatch(tmp_path / "out", str(run.folder))
    watcher = watcher_of(run.folder)
    assert kept.restore(watcher)
    assert watcher.course.tested == 5
    assert not (tmp_path / "out" / "findings.json").exists()
    run.write(7, 7)
    assert observed(watcher) == [(6, METRICS, True)]


def test_what_was_delivered_is_not_sent_again_the_next_time(run: GrowingRun, tmp_path: Path) -> None:
    run.write(1, 20, loss=float("nan"))
    count = f"{sys.executable} -c \"import sys; open(sys.argv[1], 'a').write('x')\" {tmp_path / 'count'}"
    for _ in range(3):
        assert watch(str(run.folder), "-o", str(tmp_path / "out"), "--once", f"--on-stop={count}")[0] == 3
    assert (tmp_path / "count").read_text() == "x"


def test_a_report_is_made_while_the_run_goes_on(run: GrowingRun, tmp_path: Path) -> None:
    run.write(1, 12)
    assert watch(str(run.folder), "-o", str(tmp_path / "out"), "--once", "--report")[0] == 0
    assert (tmp_path / "out" / "report.html").is_file()


def test_the_run_folder_is_never_written_to(run: GrowingRun, tmp_path: Path) -> None:
    run.write(1, 6)
    code, said = watch(str(run.folder), "-o", str(run.folder / "out"), "--once")
    assert code == 2
    assert "lies inside the run" in said
    watch(str(run.folder), "-o", str(tmp_path / "out"), "--once")
    assert sorted(path.name for path in run.folder.iterdir()) == ["metrics.jsonl", "tokens"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is Linux'")
def test_a_full_disk_costs_the_state_and_not_the_watch(run: GrowingRun, tmp_path: Path) -> None:
    run.write(1, 6)
    state = tmp_path / "out" / "watch" / "state.json"
    state.parent.mkdir(parents=True)
    state.symlink_to("/dev/full")
    code, said = watch(str(run.folder), "-o", str(tmp_path / "out"), "--once")
    assert code == 0
    assert "No space left on device; the watch goes on" in said


def test_a_look_that_fails_is_tried_again(run: GrowingRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run.write(1, 20, loss=float("nan"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))  # where new lines are taken apart

    def repair() -> None:
        time.sleep(1.0)
        (tmp_path / "gone").mkdir()

    threading.Thread(target=repair).start()
    code, said = watch(str(run.folder), "-o", str(tmp_path / "out"), "--idle", "4", "--every", "0.1")
    assert code == 3
    assert said.count("a look failed, the next one tries again: ") == 1
    assert said.count("STOP metrics-lost since step 1") == 1


@pytest.mark.parametrize("harm", ["torn", "foreign", "record"])
def test_a_state_that_is_not_sound_is_not_gone_on_from(run: GrowingRun, tmp_path: Path, harm: str) -> None:
    run.write(1, 6)
    watch(str(run.folder), "-o", str(tmp_path / "out"), "--once")
    folder = tmp_path / "out" / "watch"
    if harm == "torn":
        (folder / "state.json").write_bytes((folder / "state.json").read_bytes()[:-9])
    elif harm == "foreign":
        (folder / "state.json").write_text('{"mark": 3}')
    else:
        (folder / "files.jsonl").write_bytes(b"")
    watcher = watcher_of(run.folder)
    assert not KeptWatch(tmp_path / "out", str(run.folder)).restore(watcher)
    assert [step for step, _, _ in observed(watcher)] == [1, 2, 3, 4, 5]


def started(run: Path, out: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ptt", "watch", str(run), "-o", str(out), "--every", "0.1", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_any_time_and_started_again_it_says_the_same(tmp_path: Path, seed: int) -> None:
    run = GrowingRun(tmp_path / "run")
    run.write(1, 3)

    def train() -> None:
        for step in range(4, 60):
            time.sleep(0.08)
            run.write(step, step, **({"loss": float("nan")} if step >= 20 else {}))

    trainer = threading.Thread(target=train)
    trainer.start()
    through = started(run.folder, tmp_path / "through", "--idle", "4")
    times = [0.9, 1.7, 2.3, 1.2] if seed == 0 else [0.5 + 0.4 * seed] * 5
    for seconds in times:
        killed = started(run.folder, tmp_path / "killed", "--idle", "60")
        time.sleep(seconds)
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
    trainer.join()
    last = started(run.folder, tmp_path / "killed", "--idle", "4")
    told = [_told(process.communicate(timeout=300)[0]) for process in (through, last)]
    assert through.returncode == last.returncode
    assert told[0] == told[1] != []
    assert (tmp_path / "through/findings.json").read_bytes() == (tmp_path / "killed/findings.json").read_bytes()


def _told(output: str) -> list[str]:
    return [line for line in output.splitlines() if "WARNING" in line or "STOP" in line]


@pytest.mark.slow
def test_a_trainer_that_ends_is_heard_through_the_pipe(run: GrowingRun, tmp_path: Path) -> None:
    command = ["watch", str(run.folder), "-o", str(tmp_path / "out"), "--json", "--from-trainer"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ptt", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ
    )
    run.write(1, 12)
    out, _ = process.communicate(b'{"step": 12, "metrics": {"loss": 0.5}}\nno json\n', timeout=300)
    assert [json.loads(line)["kind"] for line in out.splitlines()] == ["end"]
    assert process.returncode == 0
    assert (tmp_path / "out" / "report.html").is_file()
