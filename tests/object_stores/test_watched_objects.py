"""`ptt watch` on a run that is being written to an object store: only what is new is fetched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from growing_runs import GrowingRun
from s3_fixtures import empty_bucket, reset_server, start_server  # noqa: F401  by their names
from s3_server import Bucket, Server, command

pytestmark = pytest.mark.s3


def test_only_new_objects_are_fetched_and_the_end_is_judged(bucket: Bucket, server: Server, tmp_path: Path) -> None:
    run, out = GrowingRun(tmp_path / "run"), tmp_path / "out"
    run.write(1, 20)
    bucket.put_folder(run.folder, "run")
    assert command("watch", "s3://runs/run", "-o", out, "--once").exit_code == 0
    run.write(21, 21)
    new = run.folder / "tokens" / "step_000021.parquet"
    bucket.put("run/tokens/step_000021.parquet", new.read_bytes())
    log = (run.folder / "metrics.jsonl").read_bytes()
    bucket.put("run/metrics.jsonl", log)
    server.reset()
    assert command("watch", "s3://runs/run", "-o", out, "--once").exit_code == 0
    once = (run.folder / "tokens" / "step_000020.parquet").stat().st_size  # complete only now: it is read then
    assert server.sent <= 2 * new.stat().st_size + once + 2 * len(log)
    state = json.loads((out / "watch" / "state.json").read_text())
    assert state["watch"]["course"]["tested"] == 20
    ended = command("watch", "s3://runs/run", "-o", out, "--idle", "0.5", "--every", "0.1")
    assert "the run has ended (nothing was written for" in ended.output
    other = command("diagnose", "s3://runs/run", "-o", tmp_path / "other")
    assert ended.exit_code == other.exit_code
    assert (out / "findings.json").read_bytes() == (tmp_path / "other" / "findings.json").read_bytes()
