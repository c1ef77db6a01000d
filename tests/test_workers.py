"""Processes that die one by one: whose task it was is known, and the others go on."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from slow_cases import first_fast

from ptt.processes import TASKS_PER_PROCESS, Died, in_workers

Task = tuple[str, int]


def work(task: Task) -> str:
    """What a task asks for: to die in some way, to wait, or to answer."""
    how, number = task
    match how:
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "exit":
            os._exit(7)
        case "sleep":
            time.sleep(600)
        case "who":
            return str(os.getpid())
        case "environment":
            return os.environ["POLARS_MAX_THREADS"]
    return f"{how} {number}"


def test_answers_come_with_the_number_of_their_task() -> None:
    tasks = [("done", number) for number in range(7)]
    assert sorted(in_workers(work, tasks, jobs=2)) == [(number, f"done {number}") for number in range(7)]


@pytest.mark.parametrize(
    ("how", "says"), first_fast([("killed", "SIGKILL"), ("segfault", "SIGSEGV"), ("exit", "code 7")])
)
def test_a_dead_process_is_told_with_its_task_and_the_others_go_on(how: str, says: str) -> None:
    tasks = [("done", 0), (how, 1), ("done", 2), (how, 3), ("done", 4)]
    answers = dict(in_workers(work, tasks, jobs=2))
    assert {number for number, answer in answers.items() if isinstance(answer, Died)} == {1, 3}
    dead = answers[1]
    assert isinstance(dead, Died)
    assert says in dead.how
    assert answers[4] == "done 4"


@pytest.mark.slow
def test_a_process_is_replaced_before_it_has_gathered_much() -> None:
    tasks = [("who", number) for number in range(2 * TASKS_PER_PROCESS + 1)]
    answers = [answer for _, answer in sorted(in_workers(work, tasks, jobs=1))]
    assert [answers.count(who) for who in dict.fromkeys(answers)] == [TASKS_PER_PROCESS, TASKS_PER_PROCESS, 1]


@pytest.mark.slow
def test_no_task_is_begun_far_ahead_of_one_that_takes_long(tmp_path: Path) -> None:
    tasks = [(tmp_path, number) for number in range(12)]
    order = [number for number, _ in in_workers(marked, tasks, jobs=3, ahead=4)]
    assert sorted(order) == list(range(12))
    assert set(order[:3]) == {1, 2, 3}  # and no other before the first of all is done
    assert order[3] == 0


def marked(task: tuple[Path, int]) -> int:
    """Do a task; the first one waits until the third one is done, and a while longer."""
    folder, number = task
    (folder / str(number)).touch()
    end = time.monotonic() + 30
    while number == 0 and not (folder / "3").exists() and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(1.0 if number == 0 else 0)
    return number


def test_memory_is_named_where_a_process_was_killed() -> None:
    ((_, dead),) = in_workers(work, [("killed", 0)], jobs=1)
    assert isinstance(dead, Died)
    assert "memory runs out" in dead.how


def test_closing_ends_all_processes_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    before = multiprocessing.active_children()
    with closing(in_workers(work, [("done", 0), ("sleep", 1), ("sleep", 2)], jobs=2)) as answers:
        assert next(answers) == (0, "done 0")
    assert multiprocessing.active_children() == before
    assert list(tmp_path.iterdir()) == []


def test_processes_share_the_cores_and_what_the_user_set_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POLARS_MAX_THREADS", raising=False)
    ((_, shared),) = in_workers(work, [("environment", 0)], jobs=1)
    assert shared == str(os.cpu_count() or 1)
    assert "POLARS_MAX_THREADS" not in os.environ
    monkeypatch.setenv("POLARS_MAX_THREADS", "3")
    assert list(in_workers(work, [("environment", 0)], jobs=1)) == [(0, "3")]


STARTED = """
import sys
from multiprocessing import spawn
from pathlib import Path

from ptt.processes import in_workers

if __name__ == "__main__":
    spawn.set_executable(sys.argv[1])
    assert len(list(in_workers(abs, [-1, -2, -3], jobs=2))) == 3
"""

LOOKING = """#!{python} -IS
import os, sys

if any("spawn_main" in word for word in sys.argv):
    with open("/proc/self/status") as status, open({masks!r}, "a") as masks:
        masks.writelines(line for line in status if line.startswith("SigBlk"))
os.execv({python!r}, [{python!r}, *sys.argv[1:]])
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for the mask in /proc")
def test_no_process_hears_ctrl_c_before_it_can_clean_up(tmp_path: Path) -> None:
    """Every process is started with both signals held back, the first one too: an interpreter dies of them aloud."""
    script, python, masks = tmp_path / "started.py", tmp_path / "python", tmp_path / "masks"
    script.write_text(STARTED, encoding="utf-8")
    python.write_text(LOOKING.format(python=sys.executable, masks=str(masks)), encoding="utf-8")
    python.chmod(0o755)
    subprocess.run([sys.executable, script, python], check=True, timeout=120)
    held = [int(line.split()[1], 16) for line in masks.read_text(encoding="utf-8").splitlines()]
    assert len(held) == 2
    for one in (signal.SIGINT, signal.SIGTERM):
        assert all(mask >> (one - 1) & 1 for mask in held), (one.name, held)


SLOW_TO_IMPORT = """
import os, sys, time
from pathlib import Path

from ptt.processes import in_workers

if __name__ == "__main__":
    list(in_workers(abs, [-1], jobs=1))
else:
    Path(sys.argv[1]).write_text(str(os.getpid()))
    time.sleep(600)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have no such signal")
def test_a_killed_parent_takes_along_a_process_that_still_imports(tmp_path: Path) -> None:
    script, told = tmp_path / "slow.py", tmp_path / "pid"
    script.write_text(SLOW_TO_IMPORT, encoding="utf-8")
    parent = subprocess.Popen([sys.executable, script, told])
    end = time.monotonic() + 60
    while not (told.exists() and told.read_text()) and time.monotonic() < end:
        time.sleep(0.01)
    words = Path("/proc", told.read_text(), "cmdline")
    assert b"spawn_main" in words.read_bytes()
    parent.kill()
    parent.wait()
    end = time.monotonic() + 5
    while words.exists() and words.read_bytes() and time.monotonic() < end:
        time.sleep(0.01)
    assert not (words.exists() and words.read_bytes())
