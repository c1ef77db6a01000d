"""What is taken from the small files of Microsoft's toolkit, and what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
from parser_samples import CRITICAL, MICROSOFT_RUN, POSTMORTEM, RESUMED, facts_of, pieces_of, table

from ptt.diagnostics.parsers import Lost


def written(folder: Path, name: str, found: dict[str, Any]) -> Path:
    path = folder / name
    path.write_text(json.dumps(found, indent=2), encoding="utf-8")
    return path


def said(path: Path) -> list[tuple[int | None, str, str]]:
    events: pl.DataFrame = table(pieces_of(path), "events")
    return [(step, kind, text) for step, kind, text in events.select("step", "kind", "text").iter_rows()]


def test_settings_versions_and_status_are_taken_and_nothing_private(tmp_path: Path) -> None:
    facts = facts_of(written(tmp_path, "run_metadata_final.json", MICROSOFT_RUN))
    assert facts == {
        "algorithm": "grpo",
        "status": "completed",
        "seed": 7,
        "learning_rate": 1e-6,
        "world_size": 2,
        "git_sha": "0123abc",
        "git_dirty": True,
        "gpu_count": 2,
        "gpu_memory_gb": 79.5,
        "trl_version": "1.16.0",
        "torch_version": "2.13.0+cpu",
    }
    assert "secret" not in str(facts)


def test_the_file_of_the_start_says_nothing_of_the_end(tmp_path: Path) -> None:
    path = written(tmp_path, "run_metadata_start.json", MICROSOFT_RUN | {"status": "running"})
    assert "status" not in facts_of(path)
    assert said(path) == [(None, "stdout", "run status: running")]


def test_a_postmortem_tells_the_reason_and_its_last_words(tmp_path: Path) -> None:
    path = written(tmp_path, "postmortem.json", POSTMORTEM)
    assert facts_of(path) == {"exit_reason": "oom"}
    assert said(path)[0] == (2, "exit", "exit reason: oom")
    assert (2, "stderr", "torch.OutOfMemoryError: CUDA out of memory.") in said(path)


def test_a_critical_failure_and_a_resume_are_events(tmp_path: Path) -> None:
    failed, resumed = (
        written(tmp_path, "critical_failure.json", CRITICAL),
        written(tmp_path, "resume_validation.json", RESUMED),
    )
    assert facts_of(failed) == {"last_good_step": 1}
    assert said(failed) == [(2, "alert", "critical failure: loss is inf")]
    assert facts_of(resumed) == {"resumed_from_step": 1, "resume_valid": True}
    assert said(resumed)[1] == (1, "alert", "on resume, warning: seed differs")


def test_a_torn_file_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "postmortem.json"
    path.write_text(json.dumps(POSTMORTEM)[:-9], encoding="utf-8")
    assert [type(piece) for piece in pieces_of(path)] == [Lost]
