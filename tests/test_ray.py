"""Work on a Ray cluster: the same to the byte as on one machine, whatever dies; and clear errors where it cannot be."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import ray_tasks
from builders import Story, rising, sequences_of, write_recorder_run
from processes import exit_code, started, until_spawned
from ray_clusters import cluster_with, complete, on_ray
from slow_cases import first_fast
from typer.testing import CliRunner

import ptt
from ptt import api
from ptt.cli.app import app
from ptt.diagnostics.budget_limits import DEFAULT_LIMITS
from ptt.diagnostics.engines import local
from ptt.diagnostics.engines.pieces import Piece
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.parsers import RunFile
from ptt.diagnostics.statistics import merge_tree
from ptt.diagnostics.statistics.token_pass import PassPlan
from ptt.diagnostics.store import file_readings
from ptt.diagnostics.store.deduplicate_sources import SequenceFile
from ptt.diagnostics.store.file_readings import Task
from ptt.diagnostics.store.ingest import PIECES
from ptt.executors import Engine, executor, ray_cluster, ray_driver
from ptt.processes import Died

without_ray = pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
SAMPLES = Path(__file__).parents[1] / "sample_logs"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    with cluster_with(cores=1) as started:
        yield started


@pytest.fixture
def cluster(nodes: Any) -> Any:
    """A cluster of three nodes, in which those that the test before has lost are there again."""
    complete(nodes)
    return nodes


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run in eight pieces, which goes apart however short it is."""
    monkeypatch.setattr(local, "APART_FROM", 1)
    monkeypatch.setattr(local, "batch_rows", lambda tokens_per_row: 8)
    story = Story(steps=64, sequences=16, post=rising(0.05, 1.5))
    return write_recorder_run(tmp_path / "run", sequences_of(story))


def findings(run: Path, engine: Any = None, **options: Any) -> str:
    return api.diagnose(run, executor=engine, **options).to_json()


def tear(damaged: Path) -> None:
    content = bytearray(damaged.read_bytes())
    content[200:-2000] = bytes(len(content) - 2200)  # its footer is sound
    damaged.write_bytes(content)


def losing_a_node(cluster: Any) -> Callable[[str, int, int], None]:
    """Remove a worker node once tokens are read."""
    left = [next(iter(cluster.worker_nodes))]

    def lose(stage: str, done: int, of: int) -> None:
        if stage == "reading tokens" and left:
            cluster.remove_node(left.pop(), allow_graceful=False)

    return lose


@on_ray
def test_findings_are_the_same_to_the_byte_though_a_node_is_lost_on_the_way(cluster: Any, run_dir: Path) -> None:
    here = findings(run_dir)
    nodes = len(cluster.worker_nodes)
    with executor(Engine.RAY, cluster.address) as engine:
        assert findings(run_dir, engine) == here
        assert findings(run_dir, engine, progress=losing_a_node(cluster)) == here
    assert len(cluster.worker_nodes) == nodes - 1


@on_ray
def test_a_damaged_file_fails_alone(cluster: Any, run_dir: Path) -> None:
    tear(run_dir / "tokens" / "step_000030.parquet")
    here = findings(run_dir)
    assert "step_000030" in here
    with executor(Engine.RAY, cluster.address) as engine:
        assert findings(run_dir, engine) == here


@pytest.fixture
def merges(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let groups of three pieces be added up on the cluster; each leaves a file in a folder."""
    monkeypatch.setattr(merge_tree, "GROUP", 3)  # of the run's eight pieces two groups and two pieces
    monkeypatch.setattr(ray_cluster, "MERGE_FROM", 1)
    folder = tmp_path / "merges"
    folder.mkdir()
    monkeypatch.setattr(ray_cluster, "merge_or_none", partial(ray_tasks.merged, folder))
    return folder


def done_in(merges: Path) -> list[str]:
    return sorted(path.name for path in merges.iterdir() if "begun" not in path.name)


@on_ray
def test_groups_added_up_on_the_cluster_give_the_same_though_a_node_is_lost(
    cluster: Any, run_dir: Path, merges: Path, tmp_path: Path
) -> None:
    here = findings(run_dir)
    nodes = len(cluster.worker_nodes)
    with executor(Engine.RAY, cluster.address) as engine:
        assert findings(run_dir, engine, progress=losing_a_node(cluster), out=tmp_path / "out") == here
    assert len(cluster.worker_nodes) == nodes - 1
    assert done_in(merges) == ["0 done", "3 done"]
    assert len(list((tmp_path / "out" / "store" / PIECES).iterdir())) == 4  # two groups and two pieces
    shutil.rmtree(tmp_path / "out" / "store" / "tokens")
    assert findings(run_dir, out=tmp_path / "out") == here


@on_ray
def test_a_group_is_added_up_again_where_the_worker_is_killed_amid_it(
    cluster: Any, run_dir: Path, merges: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = findings(run_dir)
    monkeypatch.setattr(ray_cluster, "merge_or_none", partial(ray_tasks.dying, merges))
    with executor(Engine.RAY, cluster.address) as engine:
        assert findings(run_dir, engine) == here
    assert done_in(merges) == ["3 done"]


@on_ray
def test_groups_are_added_up_on_the_cluster_once_it_has_grown(
    cluster: Any, run_dir: Path, merges: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = findings(run_dir)
    monkeypatch.setattr(ray_cluster, "AHEAD", 1)
    cores = iter([3, 3])  # as the first pieces are handed out
    monkeypatch.setattr(ray_cluster, "MERGE_FROM", 8)
    monkeypatch.setattr(ray_cluster.RayCluster, "_cores", lambda self: next(cores, 8))
    with executor(Engine.RAY, cluster.address) as engine:
        assert findings(run_dir, engine) == here
    assert done_in(merges) == ["3 done"]


@pytest.mark.parametrize("function", [ray_cluster.fold_or_say_why, ray_cluster.merge_or_none])
def test_a_worker_of_another_version_does_nothing(function: Callable[..., Any], tmp_path: Path) -> None:
    given = ray_cluster.Call(function=function, task=None, folder=str(tmp_path), version="0.0.0")
    answer = ray_cluster.call(given)
    assert isinstance(answer, ray_cluster.Unfit)
    assert "this command is 0.0.0; install the same on all nodes" in answer.why


@on_ray
def test_groups_that_a_worker_of_another_version_would_add_up_end_the_command(
    cluster: Any, run_dir: Path, merges: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ray_cluster.RayCluster._call

    def of_another_version(self: Any, function: Any, *task: Any) -> Any:
        made = given(self, function, *task)
        return replace(made, version="0.0.0") if function is ray_cluster.merge_or_none else made

    monkeypatch.setattr(ray_cluster.RayCluster, "_call", of_another_version)
    with executor(Engine.RAY, cluster.address) as engine, pytest.raises(SettingsError, match="install the same on all"):
        findings(run_dir, engine)
    assert done_in(merges) == []


def tear_logprobs(damaged: Path) -> None:
    """Make the end of one column zeros: only who folds the file sees it."""
    group = pq.ParquetFile(damaged).metadata.row_group(0)
    columns = {column.path_in_schema.split(".")[0]: column for column in map(group.column, range(group.num_columns))}
    torn = columns["policy_logp"]
    end = (torn.dictionary_page_offset or torn.data_page_offset) + torn.total_compressed_size
    content = bytearray(damaged.read_bytes())
    content[end - 500 : end] = bytes(500)
    damaged.write_bytes(content)


@on_ray
def test_a_damaged_file_inside_a_group_fails_alone(cluster: Any, run_dir: Path, merges: Path) -> None:
    tear_logprobs(run_dir / "tokens" / "step_000030.parquet")  # in the fourth of the eight pieces
    here = findings(run_dir)
    assert "step_000030" in here
    with executor(Engine.RAY, cluster.address) as engine:
        assert findings(run_dir, engine) == here
    assert done_in(merges) == ["0 done", "3 not possible"]
    not_possible, again = (merges / name for name in ("3 not possible", "0 done"))
    assert again.stat().st_mtime_ns > not_possible.stat().st_mtime_ns  # without the file: the first of what is left


def grown_at_the_fifth_look(nodes: Any) -> Any:
    """Let a node with a core join a cluster that has none, once it has been looked at a few times."""
    look, looks = ray_cluster.RayCluster._cores, []

    def looked(self: Any) -> int:
        looks.append(self)
        if len(looks) == 5:
            nodes.add_node(num_cpus=1, object_store_memory=100 << 20)
        return look(self)

    return looked


@on_ray
def test_a_cluster_without_cores_is_waited_for_and_not_for_ever(
    run_dir: Path, merges: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    here = findings(run_dir)
    monkeypatch.setattr(ray_cluster, "LOOK_SECONDS", 0.5)
    monkeypatch.setattr(ray_cluster, "CORES_SECONDS", 5.0)
    with cluster_with(cores=0) as nodes:
        with executor(Engine.RAY, nodes.address) as engine:
            with pytest.raises(SettingsError, match=r"no node of the cluster.*has had a CPU"):
                findings(run_dir, engine)
            assert "has no CPUs; waiting for a node" in capfd.readouterr().err
        monkeypatch.setattr(ray_cluster, "CORES_SECONDS", 600.0)
        monkeypatch.setattr(ray_cluster.RayCluster, "_cores", grown_at_the_fifth_look(nodes))
        with executor(Engine.RAY, nodes.address) as engine:
            assert findings(run_dir, engine) == here
        assert "has no CPUs; waiting for a node" in capfd.readouterr().err
    assert done_in(merges) == ["0 done", "3 done"]


@on_ray
def test_a_store_is_made_on_the_cluster_as_here(
    cluster: Any, run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(file_readings, "TASK_BYTES", 50_000)  # a dozen tasks
    rows = [json.dumps({"step": step, "loss": 1 / step, "reward": step % 5}) for step in range(1, 3000)]
    (run_dir / "metrics.jsonl").write_text("\n".join([*rows, "{torn"]))
    (run_dir / "notes.txt").write_text("nothing to read\n")
    (run_dir / "tokens" / "step_000030.parquet").write_bytes(b"PAR1 no parquet PAR1")
    shutil.copytree(SAMPLES / "healthy" / "completions", run_dir / "completions")
    stores = {}
    for out, more in {"here": [], "there": ["--engine", "ray", "--ray-address", cluster.address]}.items():
        called = CliRunner().invoke(app, ["ingest", "run", "--keep-text", "--out", out, *more])
        assert called.exit_code == 0, called.output
        files = {path.relative_to(out): path.read_bytes() for path in Path(out).rglob("*") if path.is_file()}
        stores[out] = (files, called.stdout.replace(out, ""))
    assert len(stores["here"][0]) > 8
    assert stores["there"] == stores["here"]


@on_ray
def test_a_file_that_a_worker_does_not_see_is_named(
    cluster: Any, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cluster, "fold_or_say_why", ray_tasks.not_here)
    with executor(Engine.RAY, cluster.address) as engine, pytest.raises(SettingsError, match=r"elsewhere.*shared file"):
        findings(run_dir, engine)


@on_ray
def test_a_task_is_done_again_where_its_worker_is_killed(cluster: Any, tmp_path: Path) -> None:
    with executor(Engine.RAY, cluster.address) as engine:
        tasks = [(tmp_path, number) for number in range(8)]
        answers = sorted(engine.run_tasks(ray_tasks.once, tasks, jobs=None, writes_to=tmp_path))
        assert answers == [(number, number) for number in range(8)]
        assert (tmp_path / "killed").exists()
        told = dict(engine.run_tasks(ray_tasks.work, ["killed", "raises", "fine"], jobs=2, writes_to=tmp_path))
    assert isinstance(told[0], Died)
    assert "died 4 times" in told[0].how
    assert isinstance(told[1], Died)
    assert "a bug" in told[1].how
    assert told[2] == "1"


@on_ray
def test_no_more_tasks_are_in_flight_than_there_is_room_for(cluster: Any, tmp_path: Path) -> None:
    with executor(Engine.RAY, cluster.address) as engine:
        tasks = [(tmp_path, number) for number in range(60)]
        with closing(engine.run_tasks(ray_tasks.marked, tasks, jobs=6, writes_to=tmp_path)) as answers:
            assert next(answers)
            time.sleep(3)
            assert len(list(tmp_path.glob("done-*"))) <= 6
        time.sleep(1)
        begun = len(list(tmp_path.glob("done-*")))
    assert begun <= 7


@on_ray
def test_many_runs_are_judged_on_the_cluster_as_here(
    cluster: Any, run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = Path("runs")
    for number in range(3):
        shutil.copytree(run_dir, runs / f"seed_{number}")
    (runs / "seed_1" / "tokens" / "step_000030.parquet").write_bytes(b"PAR1 no parquet PAR1")
    written = {}
    for name, more in {"here": [], "there": ["--engine", "ray", "--ray-address", cluster.address]}.items():
        for command in ("gate", "diagnose"):
            out = f"{name}-{command}"
            paths = [str(runs / f"seed_{number}") for number in range(3)]
            called = CliRunner().invoke(app, [command, *paths, "--out", out, *more])
            assert called.exception is None or isinstance(called.exception, SystemExit), called.output
            wanted = sorted(Path(out).rglob("*.json")) + sorted(Path(out).rglob("*.html"))
            texts = {path.relative_to(out): path.read_bytes() for path in wanted if "store" not in path.parts}
            written[out] = (called.exit_code, called.stdout.replace(out, ""), texts)
    assert written["here-gate"] == written["there-gate"]
    assert written["here-diagnose"] == written["there-diagnose"]


@on_ray
def test_a_ray_of_our_own_is_stopped_again_and_says_nothing(
    run_dir: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    temporary = Path(tempfile.mkdtemp(prefix="", dir="/tmp"))  # short, for Ray's sockets
    here, before = findings(run_dir), multiprocessing.active_children()
    with monkeypatch.context() as patched:
        patched.setattr(tempfile, "tempdir", str(temporary))
        with executor(Engine.RAY) as engine:
            assert multiprocessing.active_children() == before  # nothing is started before there is something to do
            assert findings(run_dir, engine) == here
            assert len(list(temporary.iterdir())) == 1
    assert multiprocessing.active_children() == before
    temporary.rmdir()  # which is empty
    assert capfd.readouterr() == ("", "")


def test_a_worker_folds_and_reads_only_the_files_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "step_1.parquet"
    path.write_bytes(b"1234")
    file = SequenceFile(path=path, name=path.name, kind="recorder", first_row=0, start=0, rows=1, columns=())
    plan = PassPlan(pairs=(), min_observation=4, batch_rows=8)
    piece = Piece(files=(file,), first=0, end=1, columns=frozenset(), plan=plan)
    monkeypatch.setattr(ray_cluster, "fold_one", lambda _: "folded")
    monkeypatch.setattr(ray_cluster, "read_task", lambda _: "read")
    sized = ray_cluster.SizedPiece.of(piece)
    task = Task(files=(RunFile(path=path, rel=path.name, size=4),), limits=DEFAULT_LIMITS)

    def answers() -> tuple[object, object]:
        return ray_cluster.fold_or_say_why(sized), ray_cluster.read_or_say_why(task)

    assert answers() == ("folded", "read")
    path.write_bytes(b"another run's")
    assert answers() == (None, None)
    path.unlink()
    assert [*map(type, answers())] == [ray_cluster.Unseen] * 2
    assert ray_cluster.SizedPiece.of(piece).sizes == ()


def copies(count: int) -> list[str]:
    """Copy a sample so many times: work for a while that can be cut in the middle."""
    runs = [Path(f"runs/seed_{number}") for number in range(count)]
    for run in runs:
        shutil.copytree(SAMPLES / "healthy", run)
    return [str(run) for run in runs]


def judged(out: str) -> list[Path]:
    return sorted(Path(out).glob("*/findings.json"))


def until_judged(command: Any) -> None:
    """Wait until one of many runs is judged."""
    end = time.monotonic() + 300
    while not judged("out") and command.poll() is None and time.monotonic() < end:
        time.sleep(0.05)


def kill_all_of(node: Any) -> None:
    for processes in node.all_processes.values():
        for each in processes:
            each.process.kill()


def kill(what: str, nodes: Any, command: Any) -> None:
    match what:
        case "driver":
            (driver,) = until_spawned(command, 1)
            os.kill(driver, signal.SIGABRT)  # as Ray does where a check of its own fails
        case "head node":
            kill_all_of(nodes.head_node)
        case "gcs_server" | "raylet":
            for each in nodes.head_node.all_processes[what]:
                each.process.kill()
        case "worker nodes":
            for node in nodes.worker_nodes:
                kill_all_of(node)


def left_of(folder: Path) -> list[str]:
    """Name the processes that keep temporary files in a folder."""
    mark, found = f"TMPDIR={folder}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


@on_ray
@pytest.mark.parametrize("killed", ["driver", "head node", "gcs_server", "raylet", "worker nodes"])
def test_a_command_whose_ray_is_killed_ends_within_a_minute_and_says_what_to_do(
    killed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = copies(16)
    with cluster_with(cores=0) as lost:
        complete(lost)
        address = lost.address
        command = started("gate", *runs, "--out", "out", "--engine", "ray", "--ray-address", address)
        until_judged(command)
        since = time.monotonic()
        kill(killed, lost, command)
        out, err = command.communicate(timeout=120)
        seconds = time.monotonic() - since
    assert exit_code(command) == 2, err
    assert seconds < 60
    assert out == ""
    assert f"Ray at {address} is gone: " in err
    assert "run the same command again, which goes on from what is kept, or run it without --engine ray." in err
    assert left_of(tmp_path / "tmp") == []
    assert list(Path("tmp").iterdir()) == []
    assert 0 < len(judged("out")) < len(runs)
    assert all(json.loads(path.read_text()) for path in judged("out"))
    assert not Path("out", "gate.json").exists()
    if killed == "driver":
        CliRunner().invoke(app, ["gate", *runs, "--out", "fresh"])
        CliRunner().invoke(app, ["gate", *runs, "--out", "out"])
        assert Path("out", "gate.json").read_bytes() == Path("fresh", "gate.json").read_bytes()


@on_ray
@pytest.mark.parametrize(("ended", "code", "says"), [("driver", 2, "killed (SIGABRT"), ("command", 143, "stopped")])
def test_a_ray_of_our_own_leaves_nothing_behind(
    ended: str, code: int, says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    temporary = Path(tempfile.mkdtemp(prefix="", dir="/tmp"))  # short, for Ray's sockets
    command = started("gate", *copies(16), "--out", "out", "--engine", "ray", temporary=temporary)
    until_judged(command)
    since = time.monotonic()
    if ended == "driver":
        kill("driver", None, command)
    else:
        command.terminate()
    _, err = command.communicate(timeout=120)
    assert exit_code(command) == code, err
    assert time.monotonic() - since < 60
    assert says in err
    assert list(temporary.iterdir()) == []
    assert left_of(temporary) == []
    temporary.rmdir()


FAKE = """
import os, sys, time
from types import SimpleNamespace

class exceptions:
    class RayError(Exception): pass
    class RayTaskError(RayError): pass

def init(**_): pass
def get_runtime_context(): return SimpleNamespace(get_node_id=lambda: "node")
def cluster_resources(): return {"CPU": 2}
def remote(**_): return lambda function: SimpleNamespace(remote=lambda *given: Task(function, given))
def get(task): return task.function(*task.given)

class Task:
    def __init__(self, function, given): self.function, self.given = function, given
"""
CHECK = "[2026-01-01 10:00:00,000 C 7 7] task_manager.cc:991:  Check failed: it != end Tried to complete it twice."


def fake_ray(wait: str) -> str:
    """Put a module named ray into a folder; `wait`: what it does to wait for tasks."""
    folder = Path("fake").absolute()
    folder.mkdir()
    (folder / "ray.py").write_text(f"{FAKE}\ndef wait(tasks, num_returns=1, timeout=None): {wait}\n")
    return str(folder)


@pytest.mark.parametrize(
    ("wait", "says"),
    first_fast(
        [
            (
                f"print({CHECK!r}, file=sys.stderr, flush=True); os.abort()",
                "(SIGABRT) (task_manager.cc:991:  Check failed",
            ),
            ("time.sleep(60)", "did not answer for 1 s"),
            ("raise OSError('the raylet has closed the line')", "OSError: the raylet has closed the line"),
        ]
    ),
)
def test_what_ends_ray_ends_the_command_with_a_sentence(
    wait: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.syspath_prepend(fake_ray(wait))
    monkeypatch.setattr(ray_driver, "ANSWER_SECONDS", 0.9)
    monkeypatch.setattr(ray_cluster, "LOOK_SECONDS", 0.1)
    before = multiprocessing.active_children()
    called = CliRunner().invoke(app, ["gate", *copies(2), "--out", "out", "--engine", "ray"])
    assert called.exit_code == 2, called.output
    assert says in " ".join(called.stderr.split(" "))
    assert "run the same command again, which goes on from what is kept" in called.stderr
    assert judged("out") == []
    assert multiprocessing.active_children() == before


@pytest.mark.slow
def test_a_script_that_guards_nothing_is_not_run_again_by_the_process_that_talks_to_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    opened = "with executor(Engine.RAY) as engine:\n    print(*engine.run_tasks(abs, [-1, -2], jobs=2, writes_to=here))"
    imports = "from pathlib import Path\nfrom ptt.executors import Engine, executor\nhere = Path()"
    Path("script.py").write_text(f"{imports}\n{opened}\n")
    paths = [fake_ray("return tasks[:1], tasks[1:]"), str(Path(ptt.__file__).parents[1])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    environment.pop("RAY_ADDRESS", None)
    done = subprocess.run([sys.executable, "script.py"], env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("(0, 1) (1, 2)\n", "")


@without_ray
def test_a_missing_ray_is_named_with_the_way_to_install_it(tmp_path: Path) -> None:
    called = CliRunner().invoke(app, ["diagnose", str(tmp_path), "--engine", "ray"])
    assert called.exit_code == 2
    assert "ptt-forensics[ray]" in called.stderr


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("127.0.0.1:1", "nothing answers there"),
        ("[::1]:1", "nothing answers there"),
        ("6379", "not HOST:PORT"),
        ("no.such.host.invalid:6379", "nothing answers"),
    ],
)
def test_an_address_without_a_cluster_is_refused_at_once(
    address: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    with pytest.raises(SettingsError, match=says), executor(Engine.RAY, address):
        pass


def test_an_address_needs_the_engine(tmp_path: Path) -> None:
    called = CliRunner().invoke(app, ["gate", str(tmp_path), "--ray-address", "head:6379"])
    assert called.exit_code == 2
    assert "--engine ray" in called.stderr
