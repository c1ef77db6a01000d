"""Runs in an object store on a Ray cluster: each node reads its part there, by credentials of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import Story, rising, sequences_of, write_recorder_run
from ray_clusters import cluster_of_nodes, on_ray  # noqa: F401  a fixture
from s3_fixtures import empty_bucket, reset_server, start_server  # noqa: F401  by their names
from s3_server import SECRET, Bucket, Server, command

import ptt
from ptt import api
from ptt.diagnostics.engines import local
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.store import file_readings
from ptt.executors import Engine, executor, ray_cluster, ray_driver
from ptt.executors.ray_cluster import origin_of

pytestmark = pytest.mark.s3
NAMES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


@pytest.fixture
def run_dir(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run in sixteen pieces, in a folder and in the bucket; fixtures that come later see the bucket's environment."""
    monkeypatch.setattr(local, "APART_FROM", 1)
    monkeypatch.setattr(local, "batch_rows", lambda tokens_per_row: 8)
    story = Story(steps=64, sequences=32, post=rising(0.05, 1.5))
    run = write_recorder_run(tmp_path / "run", sequences_of(story))
    bucket.put_folder(run, "run")
    return run


@pytest.fixture(autouse=True)
def none_of_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command be on none of the nodes, which are all on one machine and would see what it laid out."""
    monkeypatch.setattr(ray_cluster, "origin_of", lambda task, _: origin_of(task, "another machine"))


def reads_of_tokens(server: Server) -> int:
    return sum(method == "GET" and "/tokens/" in path for method, path in server.requests)


@on_ray
def test_each_node_reads_its_pieces_and_finds_the_same(
    run_dir: Path, cluster: Any, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = api.diagnose(run_dir).to_json()
    server.requests.clear()
    assert ptt.diagnose("s3://runs/run").to_json() == wanted
    alone = reads_of_tokens(server)
    sent: list[bytes] = []
    begin = ray_driver.Driver.begin

    def begun(self: Any, task: bytes, after: Sequence[int] = ()) -> int:
        sent.append(task)
        return begin(self, task, after)

    monkeypatch.setattr(ray_driver.Driver, "begin", begun)
    server.requests.clear()
    with executor(Engine.RAY, cluster.address) as engine:
        assert ptt.diagnose("s3://runs/run", executor=engine).to_json() == wanted
    assert reads_of_tokens(server) >= 2 * alone
    assert len(sent) >= 16
    assert not any(SECRET.encode() in content or os.environ[NAMES[0]].encode() in content for content in sent)


@on_ray
def test_an_object_that_changes_on_the_way_is_folded_as_it_was(run_dir: Path, cluster: Any, bucket: Bucket) -> None:
    wanted = api.diagnose(run_dir).to_json()

    def change(stage: str, done: int, of: int) -> None:
        bucket.put("run/tokens/step_000060.parquet", b"PAR1 of another time PAR1")

    with executor(Engine.RAY, cluster.address) as engine:
        assert ptt.diagnose("s3://runs/run", executor=engine, progress=change).to_json() == wanted


@on_ray
def test_many_runs_and_a_store_are_those_of_one_machine(
    run_dir: Path, cluster: Any, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(file_readings, "TASK_BYTES", 50_000)
    other = run_dir.rename(tmp_path / "other")
    (other / "tokens" / "step_000030.parquet").write_bytes(b"PAR1 no parquet PAR1")
    bucket.put_folder(other, "other")
    ray = ["--engine", "ray", "--ray-address", cluster.address]
    runs = ["s3://runs/run", "s3://runs/other", "s3://runs/missing"]
    gates = {}
    for out, more in {"alone": [], "nodes": ray}.items():
        called = command("gate", *runs, "--out", out, "--quiet", *more)
        files = {path.relative_to(out): path.read_bytes() for path in Path(out).rglob("findings.json")}
        gates[out] = (
            called.exit_code,
            called.stdout.replace(out, ""),
            files,
            json.loads(Path(out, "gate.json").read_text()),
        )
        assert command("ingest", "s3://runs/other", "--out", f"s3://runs/{out}", *more).exit_code == 0
    assert len(gates["alone"][2]) == 2
    assert gates["nodes"] == gates["alone"]
    stores = [[bucket.read(key) for key in bucket.sizes(f"{out}/") if key.endswith(".parquet")] for out in gates]
    assert len(stores[0]) >= 2
    assert stores[0] == stores[1]


@on_ray
def test_a_node_without_the_folder_in_which_output_is_made_says_what_to_do(
    run_dir: Path, cluster: Any, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bucket.put_folder(run_dir, "other")
    make = ray_cluster.RayCluster._call

    def elsewhere(*given: Any) -> Any:
        """Let the worker look where its own machine has nothing."""
        made = make(*given)
        return made if made.writes_to is None else replace(made, writes_to=f"{made.writes_to}-of-another-machine")

    monkeypatch.setattr(ray_cluster.RayCluster, "_call", elsewhere)
    before = set(bucket.sizes(""))
    ray = ["--engine", "ray", "--ray-address", cluster.address]
    called = command("gate", "s3://runs/run", "s3://runs/other", "--out", "s3://runs/out", *ray)
    assert called.exit_code == 2
    said = " ".join(called.stderr.split())
    assert "s3://runs/out" in said
    assert "set TMPDIR to a folder that all nodes share" in said
    assert set(bucket.sizes("")) == before


@pytest.fixture
def without_credentials(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Take the credentials away before the nodes start."""
    held = {name: os.environ[name] for name in NAMES}
    for name in NAMES:
        monkeypatch.delenv(name)
    return held


@on_ray
def test_a_node_without_credentials_is_named(
    without_credentials: dict[str, str], cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in without_credentials.items():
        monkeypatch.setenv(name, value)
    with executor(Engine.RAY, cluster.address) as engine, pytest.raises(SettingsError) as raised:
        ptt.diagnose("s3://runs/run", executor=engine)
    assert "cannot read the run: s3://runs/run" in str(raised.value)
    assert "AWS_ACCESS_KEY_ID" in str(raised.value)
    assert SECRET not in str(raised.value)
