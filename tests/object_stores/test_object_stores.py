"""Runs and output in an object store: the same answer, few bytes, clear errors, and nothing half-written."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from s3_server import BUCKET, Bucket, Server
from typer.testing import CliRunner, Result

import ptt
from ptt.cli.app import app
from ptt.object_stores.remote_paths import RemotePaths

pytestmark = pytest.mark.s3
SECRET = "verysecretvalue"
LEFT_OUT = ("token_ids", "entropy", "advantage", "hidden")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Server]:
    pytest.importorskip("moto", reason="needs moto, which `make test-s3` installs")
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def server(s3_server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    s3_server.reset()
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    given = {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "verysecretvalue",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": s3_server.url,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/nonexistent/config",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent/credentials",
        "NO_PROXY": "127.0.0.1",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return s3_server


@pytest.fixture
def bucket(server: Server) -> Bucket:
    import botocore.session

    client = botocore.session.Session().create_client("s3", region_name="us-east-1")
    client.create_bucket(Bucket=BUCKET)
    held = Bucket(client)
    for key in held.sizes():
        client.delete_object(Bucket=BUCKET, Key=key)
    server.reset()
    return held


def command(*words: object) -> Result:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert SECRET not in result.output
    assert "Traceback" not in result.output
    assert "ptt-s3-" not in result.output, "a scratch folder is nothing to the user"
    return result


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose token dumps hold more than judging reads."""
    rng = np.random.default_rng(7)
    folder = tmp_path / "made"
    (folder / "tokens").mkdir(parents=True)
    rows, tokens = 64, 600
    for step in range(1, 6):
        logp = rng.normal(-1.0, 0.4, (rows, tokens))
        lists = {
            "policy_logp": logp,
            "ref_logp": logp + rng.normal(0, 0.05, logp.shape),
            "entropy": rng.uniform(0, 2, logp.shape),
            "advantage": rng.normal(0, 1, logp.shape),
            "hidden": rng.normal(0, 1, logp.shape),
        }
        frame = pl.DataFrame(
            {
                "step": pl.Series([step] * rows, dtype=pl.Int64),
                "sample_id": [f"{step}-{row}" for row in range(rows)],
                "group_id": [f"{step}-{row // 8}" for row in range(rows)],
                "data_set": ["math" if row % 2 else "code" for row in range(rows)],
                "token_ids": rng.integers(0, 50_000, logp.shape).astype(np.int32).tolist(),
                "model_mask": np.ones(logp.shape, dtype=bool).tolist(),
                **{name: values.astype(np.float32).tolist() for name, values in lists.items()},
            },
            schema_overrides={name: pl.List(pl.Float32) for name in lists} | {"token_ids": pl.List(pl.Int32)},
        )
        frame.write_parquet(folder / "tokens" / f"step_{step:06}.parquet")
    lines = [{"step": step, "reward": 0.1 * step, "kl": 0.01, "loss": 1.0} for step in range(1, 9)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def needed_bytes(run: Path) -> int:
    """Count the bytes of what judging reads: chunks of its columns, and files that are no token dumps."""
    total = sum(path.stat().st_size for path in run.rglob("*") if path.is_file() and path.suffix != ".parquet")
    for path in run.rglob("*.parquet"):
        meta = pq.ParquetFile(path).metadata
        for group in map(meta.row_group, range(meta.num_row_groups)):
            chunks = map(group.column, range(group.num_columns))
            total += sum(
                one.total_compressed_size for one in chunks if one.path_in_schema.partition(".")[0] not in LEFT_OUT
            )
    return total


def test_the_findings_are_those_of_the_local_run(bucket: Bucket, run: Path) -> None:
    bucket.put_folder(run, "team/made")
    assert ptt.diagnose("s3://runs/team/made").to_json() == ptt.diagnose(run).to_json()
    assert ptt.diagnose(Path("s3://runs/team/made/")).to_json() == ptt.diagnose(run).to_json()


def test_only_the_columns_that_judging_reads_are_read(bucket: Bucket, server: Server, run: Path) -> None:
    bucket.put_folder(run, "made")
    server.reset()
    ptt.diagnose("s3://runs/made")
    everything = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    assert needed_bytes(run) < 0.6 * everything
    assert server.sent <= 1.1 * needed_bytes(run)


def test_an_archive_and_a_single_file_are_read(bucket: Bucket, run: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "made.tar.gz", "w:gz") as archive:
        archive.add(run, "made")
    bucket.put("made.tar.gz", (tmp_path / "made.tar.gz").read_bytes())
    bucket.put("alone/metrics.jsonl", (run / "metrics.jsonl").read_bytes())
    assert ptt.diagnose("s3://runs/made.tar.gz").to_json() == ptt.diagnose(tmp_path / "made.tar.gz").to_json()
    alone = ptt.diagnose("s3://runs/alone/metrics.jsonl").to_json()
    assert alone == ptt.diagnose(run / "metrics.jsonl").to_json()


def test_a_store_made_of_a_remote_run_holds_every_column(bucket: Bucket, run: Path, tmp_path: Path) -> None:
    bucket.put_folder(run, "made")
    assert command("ingest", "s3://runs/made", "-o", "s3://runs/out").exit_code == 0
    ptt.ingest(run, out=tmp_path / "local")
    local = tmp_path / "local" / "store"
    names = {path.relative_to(local).as_posix() for path in local.rglob("*.parquet")}
    assert names <= {key.removeprefix("out/store/") for key in bucket.sizes("out/store/")}
    for name in names:
        assert bucket.read(f"out/store/{name}") == (local / name).read_bytes(), name
    with RemotePaths() as remote:
        from ptt import api

        kept = api.open_run(remote.run(Path("s3://runs/out/store")), out=tmp_path / "kept")
        assert kept.kind == "store"


def test_what_is_kept_in_the_store_is_read_again(bucket: Bucket, server: Server, run: Path) -> None:
    bucket.put_folder(run, "made")
    assert command("diagnose", "s3://runs/made", "-o", "s3://runs/out").exit_code == 0
    first = bucket.read("out/findings.json")
    written = bucket.sizes("out/")
    assert {"out/report.html", "out/store/manifest.json", "out/store/kept/diagnosis.json"} <= set(written)
    assert not any(key.endswith((".part", ".lock")) for key in written)
    server.reset()
    result = command("diagnose", "s3://runs/made", "-o", "s3://runs/out", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["schema_version"] >= 1
    assert bucket.read("out/findings.json") == first
    puts = [path for method, path in server.requests if method == "PUT"]
    assert not [path for path in puts if "/kept/" in path or "/tokens/" in path], "nothing was judged again"


def test_a_changed_object_is_another_run(bucket: Bucket, run: Path) -> None:
    bucket.put_folder(run, "made")
    with RemotePaths() as remote:
        before = (remote.run(Path("s3://runs/made")) / "metrics.jsonl").stat().st_mtime_ns
    with RemotePaths() as remote:
        assert (remote.run(Path("s3://runs/made")) / "metrics.jsonl").stat().st_mtime_ns == before
    content = bucket.read("made/metrics.jsonl")
    bucket.put("made/metrics.jsonl", content.replace(b"0.01", b"0.02"))
    with RemotePaths() as remote:
        changed = remote.run(Path("s3://runs/made")) / "metrics.jsonl"
        assert changed.stat().st_size == len(content)
        assert changed.stat().st_mtime_ns != before


@pytest.mark.parametrize("key", ["../evil", "a/../../evil", "/evil", "a//b", "./evil", "x/.."])
def test_no_key_leads_out_of_the_scratch_folder(bucket: Bucket, run: Path, key: str) -> None:
    bucket.put_folder(run, "made")
    bucket.put("made/sub/", b"")
    bucket.put(f"made/{key}", b"evil")
    with RemotePaths() as remote:
        home = remote.run(Path("s3://runs/made"))
        found = {path for path in home.parent.parent.rglob("*") if path.is_file() and path.read_bytes() == b"evil"}
        assert not found


def test_a_key_whose_place_is_taken_is_named(bucket: Bucket, run: Path) -> None:
    bucket.put_folder(run, "made")
    bucket.put("made/metrics.jsonl/more", b"x")
    diagnosis = ptt.diagnose("s3://runs/made")
    assert "whose place another one takes" in diagnosis.to_json()


def test_an_object_that_vanishes_or_changes_meanwhile_is_left_out(bucket: Bucket, server: Server, run: Path) -> None:
    bucket.put_folder(run, "made")
    server.after_listing = lambda: bucket.client.delete_object(Bucket="runs", Key="made/tokens/step_000003.parquet")
    assert "disappeared before reading" in ptt.diagnose("s3://runs/made").to_json()
    server.after_listing = lambda: bucket.put("made/tokens/step_000004.parquet", b"PAR1 of another time")
    assert "changed between listing and reading" in ptt.diagnose("s3://runs/made").to_json()


def test_one_object_that_may_not_be_read_is_named_and_costs_no_other(bucket: Bucket, server: Server, run: Path) -> None:
    bucket.put_folder(run, "made")
    server.refuse = lambda method, path: (
        ("403 Forbidden", "InvalidObjectState") if method == "GET" and path.endswith("step_000002.parquet") else None
    )
    text = ptt.diagnose("s3://runs/made").to_json()
    assert "archive tier" in text
    assert "step_000002.parquet" in text


REFUSED = {
    "InvalidAccessKeyId": "does not accept the credentials",
    "SignatureDoesNotMatch": "does not accept the credentials",
    "ExpiredToken": "no longer valid",
    "AccessDenied": "access is denied",
    "PermanentRedirect": "another region",
}


@pytest.mark.parametrize(("code", "words"), REFUSED.items())
def test_refusals_say_what_to_do(bucket: Bucket, server: Server, tmp_path: Path, code: str, words: str) -> None:
    server.refuse = lambda _method, _path: ("403 Forbidden", code)
    result = command("diagnose", "s3://runs/made", "-o", tmp_path / "out")
    assert result.exit_code == 5
    assert words in result.output
    assert not (tmp_path / "out").exists()
    result = command("diagnose", tmp_path, "-o", "s3://runs/out")
    assert result.exit_code == 2
    assert words in result.output


def test_what_is_missing_is_said(bucket: Bucket, run: Path, tmp_path: Path) -> None:
    for url, words in (
        ("s3://nosuchbucket/run", "there is no bucket nosuchbucket"),
        ("s3://runs/nothing", "there is no object of this name"),
    ):
        result = command("diagnose", url, "-o", tmp_path / "out")
        assert result.exit_code == 5, result.output
        assert words in result.output
    assert command("diagnose", run, "-o", "s3://nosuchbucket/out").exit_code == 2
    assert command("diagnose", "gs://runs/made").exit_code == 2
    assert command("diagnose", "s3://").exit_code in {2, 5}
    assert not (tmp_path / "out").exists()


def test_without_credentials_it_says_which(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    result = command("diagnose", "s3://runs/made")
    assert result.exit_code == 2
    assert "AWS_ACCESS_KEY_ID" in result.output


def test_no_server_is_said_with_its_host_alone(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://user:{SECRET}@127.0.0.1:9")
    result = command("diagnose", "s3://runs/made")
    assert result.exit_code == 5
    assert "127.0.0.1:9" in result.output


def test_a_connection_cut_in_the_middle_is_taken_up_again_or_said(
    bucket: Bucket, server: Server, run: Path, tmp_path: Path
) -> None:
    bucket.put_folder(run, "made")
    whole = ptt.diagnose(run).to_json()
    once: set[str] = set()

    def first(method: str, path: str) -> bool:
        fresh = method == "GET" and path.endswith("step_000005.parquet") and path not in once
        once.add(path)
        return fresh

    server.cut = first
    assert ptt.diagnose("s3://runs/made").to_json() == whole
    server.refuse = lambda method, path: (
        ("500 Internal Server Error", "InternalError") if path.endswith("step_000005.parquet") else None
    )
    result = command("diagnose", "s3://runs/made", "-o", tmp_path / "out")
    assert result.exit_code == 5
    assert "try again later" in result.output
    assert not (tmp_path / "out").exists()


def test_a_cut_upload_leaves_no_half_store(bucket: Bucket, server: Server, run: Path) -> None:
    bucket.put_folder(run, "made")
    assert command("ingest", "s3://runs/made", "-o", "s3://runs/out").exit_code == 0
    lines = bucket.read("made/metrics.jsonl")
    bucket.put("made/metrics.jsonl", lines + b'{"step": 9, "reward": 1.0, "kl": 0.01, "loss": 1.0}\n')
    server.refuse = lambda method, path: (
        ("503 Slow Down", "SlowDown") if method == "PUT" and "/store/metrics" in path else None
    )
    result = command("ingest", "s3://runs/made", "-o", "s3://runs/out")
    assert result.exit_code == 2
    assert "out/store/manifest.json" not in bucket.sizes("out/")
    server.reset()
    assert command("ingest", "s3://runs/made", "-o", "s3://runs/out").exit_code == 0
    assert "out/store/manifest.json" in bucket.sizes("out/")


def test_output_never_goes_into_a_run(bucket: Bucket, run: Path) -> None:
    bucket.put_folder(run, "made")
    result = command("diagnose", "s3://runs/made", "-o", "s3://runs/made/report")
    assert result.exit_code == 2
    assert "never written to" in result.output
    assert set(bucket.sizes()) == {
        f"made/{path.relative_to(run).as_posix()}" for path in run.rglob("*") if path.is_file()
    }


def test_a_gate_reads_and_writes_there_and_one_run_that_is_missing_stops_no_other(bucket: Bucket, run: Path) -> None:
    bucket.put_folder(run, "made")
    result = command(
        "gate", "s3://runs/made", "s3://runs/nothing", "-o", "s3://runs/gate", "--reports", "none", "--quiet"
    )
    assert result.exit_code == 5, result.output
    told: dict[str, Any] = json.loads(bucket.read("gate/gate.json"))
    assert {one["name"]: one["path"] for one in told["runs"]} == {
        "made": "s3://runs/made",
        "nothing": "s3://runs/nothing",
    }
    assert "no object of this name" in json.dumps(told)
