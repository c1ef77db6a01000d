"""Runs and output in an object store: the same answer, few bytes, clear errors, and nothing half-written."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from s3_fixtures import empty_bucket, made_run, reset_server, start_server  # noqa: F401  by their names
from s3_server import SECRET, Bucket, Server, command

import ptt
from ptt.object_stores.remote_paths import RemotePaths

pytestmark = pytest.mark.s3
LEFT_OUT = ("token_ids", "entropy", "advantage", "hidden")


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
    changes = [(method, path) for method, path in server.requests if method in {"PUT", "DELETE", "POST"}]
    assert changes == [], "nothing was judged or written again"


def test_an_earlier_store_of_which_an_object_cannot_be_read_is_made_anew(
    bucket: Bucket, server: Server, run: Path
) -> None:
    bucket.put_folder(run, "made")
    assert command("diagnose", "s3://runs/made", "-o", "s3://runs/out").exit_code == 0
    written = bucket.sizes("out/store/")
    archived = next(key for key in written if "/metrics/" in key)
    server.refuse = lambda method, path: (
        ("403 Forbidden", "InvalidObjectState") if method == "GET" and path.endswith(archived) else None
    )
    assert command("diagnose", "s3://runs/made", "-o", "s3://runs/out").exit_code == 0
    assert bucket.sizes("out/store/").keys() == written.keys()
    server.refuse = lambda method, path: (
        ("403 Forbidden", "AccessDenied") if method == "GET" and path.endswith(archived) else None
    )
    denied = command("diagnose", "s3://runs/made", "-o", "s3://runs/out")
    assert (denied.exit_code, "access is denied" in denied.output) == (2, True)
    assert bucket.sizes("out/store/").keys() == written.keys()


@pytest.mark.parametrize("name", ["x/..", "n" * 300])
def test_a_run_whose_name_no_folder_can_have_is_refused(bucket: Bucket, run: Path, tmp_path: Path, name: str) -> None:
    bucket.put_folder(run, "made")
    refused = command("diagnose", f"s3://runs/{name}", "-o", tmp_path / "out")
    assert (refused.exit_code, "no folder here can have this name" in refused.output) == (5, True)
    assert command("diagnose", run, "-o", f"s3://runs/{name}").exit_code == 2
    result = command("gate", f"s3://runs/{name}", "s3://runs/made", "-o", tmp_path / "gate", "--quiet")
    assert result.exit_code == 5
    told: dict[str, Any] = json.loads((tmp_path / "gate/gate.json").read_text())
    assert sorted(one["outcome"] for one in told["runs"])[-1] == "unreadable"


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
    unnamed = command("diagnose", "s3://")
    assert (unnamed.exit_code, "names no bucket" in unnamed.output) == (2, True)
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


def test_a_store_that_ignores_ranges_is_refused(bucket: Bucket, server: Server, run: Path, tmp_path: Path) -> None:
    bucket.put_folder(run, "made")
    server.ignores_ranges = True
    result = command("diagnose", "s3://runs/made", "-o", tmp_path / "out")
    assert (result.exit_code, "the middle of an object" in result.output) == (5, True)
    once: set[str] = set()

    def first(method: str, path: str) -> bool:
        fresh = method == "GET" and path.endswith("metrics.jsonl") and path not in once
        once.add(path)
        return fresh

    server.cut = first
    result = command("diagnose", "s3://runs/made/metrics.jsonl", "-o", tmp_path / "out")
    assert result.exit_code == 5, "the half that came is not followed by the first half again"


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
