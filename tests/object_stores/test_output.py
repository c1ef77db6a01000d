"""Output in an object store: what is unchanged is not made again, and nothing is written over or into what is read."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from s3_fixtures import empty_bucket, made_run, reset_server, start_server  # noqa: F401  by their names
from s3_server import BUCKET, Bucket, Server, command
from trace_stories import end, make, say, write_episodes

from ptt.diagnostics.errors import SettingsError
from ptt.object_stores import client
from ptt.object_stores.client import ObjectStore, Url

pytestmark = [pytest.mark.s3, pytest.mark.usefixtures("bucket")]
CHANGES = {"PUT", "DELETE", "POST"}


@pytest.fixture(name="two")
def two_runs(bucket: Bucket, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs of one name in two folders; of the second one token dump is missing."""
    monkeypatch.chdir(tmp_path)
    lines = [{"step": step, "reward": 0.5, "kl": 0.01 * step, "loss": 1 / step} for step in range(1, 16)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    bucket.put_folder(run, "a/run")
    other = Path(shutil.copytree(run, "other"))
    (other / "tokens" / "step_000003.parquet").unlink()
    bucket.put_folder(other, "b/run")


def changes(server: Server) -> set[str]:
    return {path.removeprefix(f"/{BUCKET}/") for method, path in server.requests if method in CHANGES}


SEVERAL = {
    "diagnose": ["diagnose", "s3://runs/a/run", "s3://runs/b/run", "--jobs", "1"],
    "gate": ["gate", "s3://runs/a/run", "s3://runs/b/run", "--jobs", "1", "--reports", "all", "--quiet"],
    "compare": ["compare", "s3://runs/a/run", "s3://runs/b/run", "--jobs", "1"],
    "baseline": ["baseline", "update", "base.toml", "s3://runs/a/run", "s3://runs/b/run", "--yes-even-failed"],
}


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("words", SEVERAL.values(), ids=SEVERAL)
def test_several_runs_that_have_not_changed_are_not_judged_or_written_again(
    words: list[object], bucket: Bucket, server: Server
) -> None:
    first = command(*words, "-o", "s3://runs/out")
    stores = {key for key in bucket.sizes("out/") if key.endswith("store/manifest.json")}
    assert {key.split("/")[-3] for key in stores} == {"a-run", "b-run"}, first.output
    before = {key: bucket.read(key) for key in bucket.sizes("out/")}
    server.reset()
    again = command(*words, "-o", "s3://runs/out")
    assert again.exit_code == first.exit_code
    assert changes(server) == set(), "nothing was written"
    assert {key: bucket.read(key) for key in bucket.sizes("out/")} == before
    assert sorted(again.stdout.splitlines()[:3]) == sorted(first.stdout.splitlines()[:3])


@pytest.mark.usefixtures("two")
def test_of_several_runs_only_the_one_that_changed_is_written_again(bucket: Bucket, server: Server) -> None:
    words = SEVERAL["gate"]
    assert command(*words, "-o", "s3://runs/out").exit_code in {0, 3, 4}
    lines = bucket.read("b/run/metrics.jsonl")
    bucket.put("b/run/metrics.jsonl", lines + b'{"step": 9, "reward": 1.0, "kl": 0.01, "loss": 1.0}\n')
    server.reset()
    command(*words, "-o", "s3://runs/out")
    assert {path.split("/")[1] for path in changes(server)} - {"gate.json", "index.html"} == {"b-run"}
    for key in bucket.sizes("a/run/"):
        bucket.client.delete_object(Bucket=BUCKET, Key=key)
    gone = command(*words, "-o", "s3://runs/out")
    assert gone.exit_code == 5
    left = {key for key in bucket.sizes("out/a-run/") if "/store/" not in key}
    assert left == set(), "a report of a run that could not be read would contradict the answer"


@pytest.mark.usefixtures("two")
def test_of_several_runs_a_store_of_which_an_object_cannot_be_read_is_made_anew(bucket: Bucket, server: Server) -> None:
    words = [*SEVERAL["gate"], "-o", "s3://runs/out"]
    command(*words)
    before = {key: bucket.read(key) for key in bucket.sizes("out/")}
    archived = next(key for key in before if "/a-run/store/metrics/" in key)
    server.refuse = lambda method, path: (
        ("403 Forbidden", "InvalidObjectState") if method == "GET" and path.endswith(archived) else None
    )
    command(*words)
    server.reset()
    assert {key: bucket.read(key) for key in bucket.sizes("out/") if key.endswith("findings.json")} == {
        key: content for key, content in before.items() if key.endswith("findings.json")
    }
    assert set(bucket.sizes("out/")) == set(before)


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("words", [["ingest"], ["report"], ["traces"], ["diagnose"]])
def test_no_command_writes_into_a_run(words: list[object], bucket: Bucket) -> None:
    before = bucket.sizes()
    for out in ("a/run", "a/run/deep/out"):
        refused = command(*words, "s3://runs/a/run", "-o", f"s3://runs/{out}")
        assert (refused.exit_code, "never written to" in refused.output) == (2, True), refused.output
    assert bucket.sizes() == before


@pytest.mark.usefixtures("two")
def test_a_report_is_not_written_over_what_it_is_made_from(bucket: Bucket) -> None:
    assert command("diagnose", "s3://runs/a/run", "-o", "s3://runs/out/judged").exit_code == 0
    before = {key: bucket.read(key) for key in bucket.sizes("out/")}
    for source in ("out/judged", "out/judged/store", "out/judged/findings.json"):
        for out in ("out/judged", "out/judged/store/shared"):
            refused = command("report", f"s3://runs/{source}", "--redact", "-o", f"s3://runs/{out}")
            assert (refused.exit_code, "is made from" in refused.output) == (2, True), (source, refused.output)
    assert {key: bucket.read(key) for key in bucket.sizes("out/")} == before
    assert command("report", "s3://runs/out/judged", "-o", "s3://runs/out/judged/shared").exit_code == 0
    assert "out/judged/shared/report.html" in bucket.sizes()


@pytest.mark.usefixtures("two")
def test_a_gate_of_what_was_judged_there_leaves_it_as_it_is_and_names_it_as_there(bucket: Bucket) -> None:
    assert command("diagnose", "s3://runs/a/run", "-o", "s3://runs/out/judged").exit_code == 0
    before = {key: bucket.read(key) for key in bucket.sizes("out/judged")}
    for source in ("out/judged/store", "out/judged/findings.json"):
        command("gate", f"s3://runs/{source}", "-o", "s3://runs/out", "--quiet", "--reports", "none")
        told = json.loads(bucket.read("out/gate.json"))
        assert [one["name"] for one in told["runs"]] == ["judged"], source
    assert {key: bucket.read(key) for key in bucket.sizes("out/judged")} == before
    assert "out/again/judged/findings.json" in bucket.sizes()


@pytest.mark.usefixtures("two")
def test_a_run_given_twice_is_one_and_several_are_called_after_none() -> None:
    twice = command("diagnose", "s3://runs/a/run", "s3://runs/a/run/", "--json")
    assert json.loads(twice.stdout)["run"]["name"] == "run"
    assert command("diagnose", "s3://runs/a/run", "s3://runs/b/run", "--jobs", "1").exit_code == 0
    assert Path("ptt-report/diagnose/index.html").is_file()
    assert not Path("ptt-report/runs-a-run/index.html").exists()


@pytest.mark.usefixtures("two")
def test_what_is_wrong_anyway_is_said_before_anything_is_read(server: Server) -> None:
    server.requests.clear()
    for words in (
        ["diagnose", "s3://runs/a/run", "--figures", "s3://runs/figures"],
        ["diagnose", "s3://runs/a/run", "--settings", "nothing.toml"],
        ["compare", "s3://runs/a/run", "s3://runs/b/run", "--settings", "nothing.toml"],
        ["report", "s3://runs/a/run", "--settings", "nothing.toml"],
    ):
        assert command(*words).exit_code == 2
    assert server.requests == []
    glob = command("gate", "s3://runs/*/run")
    assert glob.exit_code == 5
    assert "globs of s3:// paths are not expanded" in glob.output


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("name", ["diagnose", "gate"])
def test_a_command_that_is_stopped_writes_nothing_and_says_so(name: str, bucket: Bucket, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    words = [*SEVERAL[name], "-o", "s3://runs/out"]
    running = subprocess.Popen(
        [sys.executable, "-m", "ptt", *words],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(scratch)},
    )
    deadline = time.monotonic() + 120
    while not list(scratch.glob("ptt-s3-*/**/a-run/store/manifest.json")):
        assert time.monotonic() < deadline
        assert running.poll() is None
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    _, told = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "nothing was written to s3://runs/out" in told
    assert str(scratch) not in told
    assert bucket.sizes("out/") == {}
    assert list(scratch.glob("ptt-s3-*")) == []


def test_a_large_file_is_written_in_parts_and_a_cut_one_leaves_none(
    bucket: Bucket, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "WHOLE_BYTES", 1 << 20)
    monkeypatch.setattr(client, "PART_BYTES", 5 << 20)
    file = tmp_path / "large.parquet"
    file.write_bytes(os.urandom(11 << 20))
    url = Url(bucket=BUCKET, key="out/large.parquet")
    ObjectStore(url, writes=True).write(file, url)
    assert bucket.read("out/large.parquet") == file.read_bytes()
    puts = [path for method, path in server.requests if method == "PUT"]
    assert len(puts) == 3
    file.write_bytes(os.urandom(11 << 20))
    server.refuse = lambda method, _path: (
        ("403 Forbidden", "AccessDenied") if method == "PUT" and len(server.requests) % 3 == 0 else None
    )
    server.requests.clear()
    before = bucket.read("out/large.parquet")
    with pytest.raises(SettingsError, match="access is denied"):
        ObjectStore(url, writes=True).write(file, url)
    server.reset()
    assert bucket.read("out/large.parquet") == before
    assert not bucket.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads")


@pytest.mark.usefixtures("two")
def test_a_store_that_does_not_answer_is_not_waited_for_at_each_of_many_runs(
    bucket: Bucket, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [f"s3://runs/many/{number}" for number in range(20)]
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    tried: list[BaseException] = []
    failure = client._failure

    def count(error: BaseException) -> str:
        tried.append(error)
        return failure(error)

    monkeypatch.setattr(client, "_failure", count)
    for words in (["gate", "--quiet"], ["diagnose"]):
        tried.clear()
        given = command(*words, *runs, "s3://runs/a/run", "-o", "out")
        assert (given.exit_code, "127.0.0.1:9" in given.output) == (5, True), given.output
        assert len(tried) == 3
        assert not Path("out/index.html").exists()
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    missing = command("diagnose", *runs, "s3://runs/a/run", "-o", "out", "--jobs", "1", "--json")
    assert [one["outcome"] for one in json.loads(missing.stdout)["runs"]].count("unreadable") == len(runs)


@pytest.mark.usefixtures("two")
def test_output_that_cannot_be_written_is_said_before_the_runs_are_read(server: Server) -> None:
    server.requests.clear()
    for words in SEVERAL.values():
        refused = command(*words, "-o", "s3://nosuchbucket/out")
        assert (refused.exit_code, "there is no bucket nosuchbucket" in refused.output) == (2, True)
    assert not [path for method, path in server.requests if "/a/run/" in path]


FULL = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
from ptt.cli.app import main
main()
"""


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(
    "words", [["diagnose", "made"], ["gate", "made", "other", "--jobs", "1"], ["compare", "made", "other"]]
)
def test_where_no_more_can_be_written_here_it_is_this_disk_that_is_named(words: list[str], bucket: Bucket) -> None:
    given = [sys.executable, "-c", FULL, *words, "-o", "s3://runs/out"]
    result = subprocess.run(given, capture_output=True, text=True, check=False, timeout=120)
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    assert "s3://runs/out" in result.stderr
    assert "set TMPDIR to a larger disk" in result.stderr
    assert "give another --out" not in result.stderr
    assert bucket.sizes("out/") == {}


def test_what_a_cut_upload_left_of_an_earlier_store_goes_with_the_next(run: Path, bucket: Bucket) -> None:
    bucket.put_folder(run, "run")
    assert command("ingest", "s3://runs/run", "-o", "s3://runs/out").exit_code == 0
    whole = set(bucket.sizes("out/"))
    bucket.client.delete_object(Bucket=BUCKET, Key="out/store/manifest.json")
    bucket.put("out/store/turns/part-00003.parquet", b"rows of what the run was before")
    assert command("ingest", "s3://runs/run", "-o", "s3://runs/out").exit_code == 0
    assert set(bucket.sizes("out/")) == whole


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(("first", "then"), [("diagnose", "traces"), ("traces", "diagnose"), ("traces", "gate")])
def test_what_another_kind_of_command_wrote_there_stays(first: str, then: str, bucket: Bucket, tmp_path: Path) -> None:
    agents = tmp_path / "run"
    agents.mkdir()
    write_episodes(agents, make(6, lambda n: [*say("so"), *end(success=n % 2 == 0)]))
    command(first, agents, "-o", "s3://runs/out/run")
    before = {key: bucket.read(key) for key in bucket.sizes("out/")}
    assert any(key.endswith("findings.json") for key in before)
    refused = command(then, agents, "-o", "s3://runs/out" + ("" if then == "gate" else "/run"))
    assert refused.exit_code == 2, refused.output
    assert "s3://runs/out/run: holds what ptt" in refused.stderr
    assert {key: bucket.read(key) for key in bucket.sizes("out/")} == before
