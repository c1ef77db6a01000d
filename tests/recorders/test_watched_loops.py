"""A recorder that is watched: training never waits for the watch, never dies of it, and hears what it tells."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from growing_runs import GrowingRun

from ptt.recorders import Recorder, watch_process
from ptt.recorders.watch_process import WatchProcess

NAN = float("nan")


def wait_for(condition, seconds: float = 60.0) -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


@pytest.fixture
def run(tmp_path: Path) -> GrowingRun:
    return GrowingRun(tmp_path / "run")


def test_a_loop_hears_a_stop_and_finds_the_report(
    run: GrowingRun, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = run.recorder
    recorder.watch(tmp_path / "report")
    for step in range(1, 200):
        run.record(step)
        recorder.log(step, {"loss": NAN if step > 10 else 0.5, "grad_norm": 1.0, "note": "text", "flag": True})
        time.sleep(0.1)
        if recorder.should_stop:
            break
    assert step < 199
    assert recorder.watcher is not None
    assert [alarm["kind"] for alarm in recorder.watcher.new_alarms()] == ["warning", "stop"]
    assert recorder.watcher.new_alarms() == []
    assert recorder.finish() == 3
    said = caplog.text
    assert "ptt: step 13: stop: metrics-lost since step 11" in said
    assert {path.suffix for path in (run.folder / "tokens").iterdir()} == {".parquet"}
    assert {"findings.json", "report.html"} <= {path.name for path in (tmp_path / "report").iterdir()}


def test_a_watch_that_hangs_or_dies_costs_no_time(
    run: GrowingRun, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = run.recorder
    recorder.watch(tmp_path / "report")
    assert recorder.watcher is not None
    process = recorder.watcher._process
    os.kill(process.pid, signal.SIGSTOP)
    begun = time.monotonic()
    for step in range(3000):  # more than a pipe holds
        recorder.log(step, {f"metric/{number}": 0.5 for number in range(20)})
    assert time.monotonic() - begun < 2.0
    process.kill()
    wait_for(lambda: "training, which goes on unwatched" in caplog.text)
    recorder.log(3001, {"loss": 0.5})
    assert not recorder.should_stop
    assert recorder.failures == 0
    assert recorder.finish() == -signal.SIGKILL


def test_where_it_cannot_be_started_training_goes_on(
    run: GrowingRun, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(run.folder / "tokens")
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    recorder.watch()
    assert recorder.watcher is None
    assert "No such file or directory" in caplog.text
    assert not recorder.should_stop
    assert recorder.finish() is None


def test_only_the_first_rank_watches(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "tokens", rank=1)
    recorder.watch()
    assert recorder.watcher is None


def test_metrics_that_fill_more_than_a_line_come_in_several() -> None:
    written: list[bytes] = []
    process = WatchProcess.__new__(WatchProcess)
    process._write = written.append  # type: ignore[assignment]
    process.log(7, {f"a/rather/long/name/of/a/metric/{number}": 1 / 3 for number in range(300)})
    assert len(written) > 1
    assert all(len(line) <= watch_process.PIPE_BYTES and line.endswith(b"\n") for line in written)


@pytest.mark.parametrize(
    ("arguments", "why"), [({"watch": True, "stop": "high"}, "give 'critical'"), ({"stop": "critical"}, "watch=True")]
)
def test_a_stop_that_means_nothing_is_refused_before_training(arguments: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        watch_process.check_stop(arguments.get("stop"), watch=bool(arguments.get("watch")))  # type: ignore[arg-type]
