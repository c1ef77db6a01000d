"""Work on a Ray cluster: the same to the byte as on one machine, whatever dies; and clear errors where it cannot be."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from builders import Story, rising, sequences_of, write_recorder_run
from ray_clusters import cluster_of_nodes, cluster_with, on_ray  # noqa: F401  a fixture
from typer.testing import CliRunner

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
from ptt.executors import Engine, executor, ray_cluster, remote_tasks
from ptt.processes import Died

without_ray = pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
SAMPLES = Path(__file__).parents[1] / "sample_logs"


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
    merge = ray_cluster.merge_or_none

    def merged(places: range, *given: Any) -> Any:
        (folder / f"{places.start} begun").touch()
        tables = merge(places, *given)
        (folder / f"{places.start} {'done' if tables is not None else 'not possible'}").touch()
        return tables

    monkeypatch.setattr(ray_cluster, "merge_or_none", merged)
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
    merge = ray_cluster.merge_or_none

    def dying(places: range, *given: Any) -> Any:
        mark = merges / f"{places.start} begun"
        if places.start == 0 or not mark.exists():  # the first group's workers die each time, the other's once
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return merge(places, *given)

    monkeypatch.setattr(ray_cluster, "merge_or_none", dying)
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
    monkeypatch.setattr(ray_cluster, "_cores", lambda ray: next(cores, 8))
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
    look, looks = ray_cluster._cores, []

    def looked(ray: Any) -> int:
        looks.append(ray)
        if len(looks) == 5:
            nodes.add_node(num_cpus=1, object_store_memory=100 << 20)
        return look(ray)

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
        monkeypatch.setattr(ray_cluster, "_cores", grown_at_the_fifth_look(nodes))
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
    monkeypatch.setattr("ptt.executors.ray_cluster.fold_or_say_why", not_here)
    with executor(Engine.RAY, cluster.address) as engine, pytest.raises(SettingsError, match=r"elsewhere.*shared file"):
        findings(run_dir, engine)


def not_here(piece: object) -> object:
    from ptt.executors.ray_cluster import Unseen

    return Unseen(node="elsewhere")


def once(task: tuple[Path, int]) -> int:
    """Answer; the first time that somebody is asked for number 3, the worker is killed."""
    folder, number = task
    if number == 3 and not (folder / "killed").exists():
        (folder / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def work(task: str) -> str:
    if task == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if task == "raises":
        raise ValueError("a bug")
    return os.environ["POLARS_MAX_THREADS"]


@on_ray
def test_a_task_is_done_again_where_its_worker_is_killed(cluster: Any, tmp_path: Path) -> None:
    with executor(Engine.RAY, cluster.address) as engine:
        tasks = [(tmp_path, number) for number in range(8)]
        answers = sorted(engine.run_tasks(once, tasks, jobs=None, writes_to=tmp_path))
        assert answers == [(number, number) for number in range(8)]
        assert (tmp_path / "killed").exists()
        told = dict(engine.run_tasks(work, ["killed", "raises", "fine"], jobs=2, writes_to=tmp_path))
    assert isinstance(told[0], Died)
    assert "died 4 times" in told[0].how
    assert isinstance(told[1], Died)
    assert "a bug" in told[1].how
    assert told[2] == "1"


@on_ray
def test_no_more_tasks_are_in_flight_than_there_is_room_for(cluster: Any, tmp_path: Path) -> None:
    with executor(Engine.RAY, cluster.address) as engine:
        tasks = [(tmp_path, number) for number in range(60)]
        with closing(engine.run_tasks(marked, tasks, jobs=6, writes_to=tmp_path)) as answers:
            assert next(answers)
            time.sleep(3)
            assert len(list(tmp_path.glob("done-*"))) <= 6
        time.sleep(1)
        begun = len(list(tmp_path.glob("done-*")))
    assert begun <= 7


def marked(task: tuple[Path, int]) -> int:
    (task[0] / f"done-{task[1]}").touch()
    return task[1]


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
    import ray

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    here = findings(run_dir)
    before = signal.getsignal(signal.SIGTERM)
    with executor(Engine.RAY) as engine:
        assert not ray.is_initialized()  # nothing is started before there is something to do
        assert findings(run_dir, engine) == here
    assert not ray.is_initialized()
    assert signal.getsignal(signal.SIGTERM) is before
    assert capfd.readouterr().out == ""


def test_a_worker_folds_and_reads_only_the_files_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "step_1.parquet"
    path.write_bytes(b"1234")
    file = SequenceFile(path=path, name=path.name, kind="recorder", first_row=0, start=0, rows=1, columns=())
    plan = PassPlan(pairs=(), min_observation=4, batch_rows=8)
    piece = Piece(files=(file,), first=0, end=1, columns=frozenset(), plan=plan)
    monkeypatch.setattr(ray_cluster, "fold_one", lambda _: "folded")
    monkeypatch.setattr(ray_cluster, "read_task", lambda _: "read")
    sized = remote_tasks.SizedPiece.of(piece)
    task = Task(files=(RunFile(path=path, rel=path.name, size=4),), limits=DEFAULT_LIMITS)

    def answers() -> tuple[object, object]:
        return ray_cluster.fold_or_say_why(sized), ray_cluster.read_or_say_why(task)

    assert answers() == ("folded", "read")
    path.write_bytes(b"another run's")
    assert answers() == (None, None)
    path.unlink()
    assert [*map(type, answers())] == [ray_cluster.Unseen] * 2
    assert remote_tasks.SizedPiece.of(piece).sizes == ()


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
