"""Traces are read in spans and by several processes, and what is found is the same."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from planted_secrets import secrets

from ptt import api
from ptt.diagnostics.parsers import run_files
from ptt.diagnostics.store import file_readings
from ptt.diagnostics.store.scan import read_table
from ptt.diagnostics.traces_pipeline import diagnose_traces
from ptt.processes import Died

TABLES = ("trajectories", "turns", "tool_calls", "answers", "rewards", "evals", "sources")


def steps_of(name: str, rng: random.Random) -> list[dict[str, Any]]:
    """Return the steps of one episode, in Microsoft's shape."""
    steps: list[dict[str, Any]] = [{"type": "user_message", "content": f"task {rng.randrange(9)}"}]
    for _ in range(rng.randint(1, 4)):
        steps += [
            {"type": "tool_call", "tool": rng.choice(["look", "add"]), "args": {"key": rng.randrange(99)}},
            {"type": "tool_result", "result": f"value {rng.random()}"},
        ]
    steps += [{"type": "assistant_message", "content": f"it is {rng.random()}"}]
    steps += [{"type": "episode_end", "success": rng.random() < 0.5, "reward": rng.random()}]
    return [{"episode_id": name, "step": at, **step} for at, step in enumerate(steps)]


def episodes(count: int) -> list[list[dict[str, Any]]]:
    rng = random.Random(7)
    return [steps_of(f"episode {number}", rng) for number in range(count)]


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def read(run: Path, out: Path, jobs: int = 1) -> dict[str, pl.DataFrame]:
    api.traces(run, out=out, jobs=jobs)
    return {name: read_table(out / "store", name) for name in TABLES}


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut files into spans of a few episodes."""
    monkeypatch.setattr(file_readings, "TASK_BYTES", 4000)


def test_a_file_that_is_called_as_a_mask_is_read_beside_the_one_that_is_masked(tmp_path: Path) -> None:
    key = next(secret.hidden[0] for secret in secrets() if secret.kind == "github")
    run = tmp_path / "run"
    run.mkdir()
    for name, episode in zip((key, "[github-pat-1]", "z"), episodes(3), strict=True):
        (run / f"{name}.jsonl").write_text(lines(episode))
    found = read(run, tmp_path / "out")
    assert found["sources"].select(pl.col("path").n_unique(), pl.col("rows_ok").sum()).row(0) == (3, 3)
    assert found["trajectories"].select(pl.col("source").n_unique(), pl.len()).row(0) == (3, 3)


@pytest.mark.usefixtures("small_tasks")
def test_processes_find_what_one_finds(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for number in range(3):
        (run / f"log_{number}.jsonl").write_text(lines([row for steps in episodes(40 + number) for row in steps]))
    (run / "notes.txt").write_text("nothing to read\n")
    alone, together = read(run, tmp_path / "alone"), read(run, tmp_path / "together", jobs=2)
    for name in TABLES:
        assert alone[name].equals(together[name]), name
    # the first forty episodes stand in all three files, and count once
    assert alone["trajectories"].height == 42


def test_a_file_in_spans_holds_what_it_holds_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(lines([row for steps in [*episodes(60), *episodes(30)] for row in steps]))  # thirty twice
    whole = read(log, tmp_path / "whole")
    monkeypatch.setattr(file_readings, "TASK_BYTES", 3000)
    spans = file_readings.plan_tasks(run_files(log)[0], api.Settings().budget)
    assert len(spans) > 5
    cuts = [span for task in spans if (span := task.files[0].span) is not None]
    assert [start for start, _ in cuts[1:]] == [stop for _, stop in cuts[:-1]]
    cut = read(log, tmp_path / "cut")
    for name in set(TABLES) - {"answers"}:  # a draw, of each span
        assert whole[name].equals(cut[name]), name


@pytest.mark.usefixtures("small_tasks")
def test_episodes_that_run_side_by_side_are_read_whole(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    waiting = episodes(40)
    rows = [steps[at] for at in range(max(map(len, waiting))) for steps in waiting if at < len(steps)]
    log.write_text(lines(rows))
    found = read(log, tmp_path / "out")["trajectories"]
    assert found.height == 40
    assert found["n_tool_calls"].sum() == sum(row["type"] == "tool_call" for row in rows)


@pytest.mark.usefixtures("small_tasks")
def test_means_of_an_evaluation_are_of_the_whole_file(tmp_path: Path) -> None:
    rows = [
        {"input": f"question {at}", "output": "an answer", "gts": "x", "score": at / 100, "step": 5, "reward": at / 100}
        for at in range(100)
    ]
    (tmp_path / "run" / "val").mkdir(parents=True)
    (tmp_path / "run" / "val" / "5.jsonl").write_text(lines(rows))
    found = read(tmp_path / "run", tmp_path / "out")["evals"].filter(pl.col("metric") == "score")
    assert found["n"].to_list() == [100]
    assert found["value"][0] == pytest.approx(0.495)


@pytest.mark.usefixtures("small_tasks")
def test_a_process_that_dies_costs_its_files_alone(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"log_{number}.jsonl").write_text(
            lines([row for steps in episodes(40 + number)[-10:] for row in steps])
        )
    files = run_files(tmp_path)[0]

    def outcomes(tasks: Sequence[file_readings.Task]) -> Any:
        for number, task in enumerate(tasks):
            dies = task.files[0].rel == "log_1.jsonl"
            yield number, Died(how="its process was killed (SIGKILL)") if dies else file_readings.read_task(task)

    apart = file_readings.ReadApart(run_tasks=partial(outcomes))
    readings = [list(found) for found in apart.readings(files, frozenset())]
    assert [bool(found[0].died) for found in readings] == [False, True, False]
    store = tmp_path.parent / "store"
    diagnose_traces(files, name="run", store=store, run_tasks=outcomes)
    sources = read_table(store, "sources")
    assert sources.filter(pl.col("kind") == "unreadable")["path"].to_list() == ["log_1.jsonl"]
    assert "killed" in sources.filter(pl.col("path") == "log_1.jsonl")["note"][0]
