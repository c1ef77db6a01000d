"""Several runs in one file are told apart from a resumed run and from counters that begin again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from made_runs import Row, rows_of, write_jsonl

import ptt

Rows = list[Row]


def told(folder: Path, rows: Rows) -> tuple[list[str], tuple[int, int], set[str]]:
    write_jsonl(folder / "run" / "metrics.jsonl", rows)
    found = ptt.diagnose(folder / "run", out=folder / "out")
    notes = [source.note for source in found.sources if source.note and "This file holds" in source.note]
    assert found.run.first_step is not None
    assert found.run.last_step is not None
    return notes, (found.run.first_step, found.run.last_step), {finding.id for finding in found.findings}


def with_epochs(rows: Rows, *, first: float) -> Rows:
    return [{**row, "epoch": first + at / 10} for at, row in enumerate(rows)]


def falling(rows: Rows) -> Rows:
    return [{**row, "loss": 5 - row["step"] / 10} for row in rows]


SEVERAL: dict[str, Rows] = {
    "an epoch begins again": with_epochs(rows_of(1), first=0) + with_epochs(rows_of(2), first=0),
    "the loss begins again": falling(rows_of(1)) + falling(rows_of(2, last=29)),
    "another setting": [{**row, "batch": 256} for row in rows_of(1)] + [{**row, "batch": 32} for row in rows_of(2)],
    "the later one is longer": rows_of(1, last=12) + rows_of(2),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_the_last_whole_run_of_a_file_is_judged(tmp_path: Path, name: str) -> None:
    notes, steps, findings = told(tmp_path, SEVERAL[name])
    (note,) = notes
    assert "This file holds 2 runs" in note
    assert "run 2 of 2 is judged" in note
    assert steps == (1, max(int(row["step"]) for row in SEVERAL[name][31:]))
    assert "resumed-segments" not in findings


def test_a_last_start_that_hardly_began_is_not_the_one_that_is_judged(tmp_path: Path) -> None:
    (note,), steps, _ = told(tmp_path, falling(rows_of(1)) + falling(rows_of(2, last=5)))
    assert "run 1 of 2 is judged" in note
    assert steps == (1, 30)


def pieces(*, later: int, first: int = 1, last: int = 8) -> Rows:
    """Return a log that was cut at the front, and what was appended from an earlier state."""
    timed = [{**row, "_timestamp": 1.7e9 + at} for at, row in enumerate(rows_of(1, first=40, last=70))]
    again = rows_of(2, first=first, last=last)
    return timed + [{**row, "_timestamp": 1.7e9 + later + at} for at, row in enumerate(again)]


def test_what_was_appended_from_an_earlier_state_is_another_run(tmp_path: Path) -> None:
    (note,), steps, _ = told(tmp_path, pieces(later=50))
    assert "run 1 of 2 is judged" in note
    assert steps == (40, 70)
    outcome = ptt.diagnose(tmp_path / "run").outcome
    assert outcome is not None
    assert outcome.how_ended.startswith("The file holds 2 runs; number 1 is judged. That one ends at step 70")


def test_an_epoch_that_passes_the_steps_again_or_was_written_before_is_the_same_run(tmp_path: Path) -> None:
    assert not told(tmp_path / "passes", pieces(later=50, first=30, last=45))[0]
    assert not told(tmp_path / "before", pieces(later=-50))[0]


def resumed() -> Rows:
    return rows_of(1) + rows_of(2, first=20, last=40)


def epochs_of_steps() -> Rows:
    return with_epochs(rows_of(1, last=10), first=1) + with_epochs(rows_of(2, last=10), first=2)


def goes_on() -> Rows:
    later = [{**row, "loss": 2 - row["step"] / 10} for row in rows_of(2, last=20)]
    return falling(rows_of(1)) + later


def one_metric_after_another() -> Rows:
    shorter = [{"step": row["step"], "entropy": 1.0} for row in rows_of(2, last=10)]
    return falling(rows_of(1)) + shorter + [{"step": row["step"], "kl": 0.1} for row in rows_of(3)]


ONE: dict[str, Callable[[], Rows]] = {
    "a run that goes on from a checkpoint": resumed,
    "steps that begin again in each epoch": epochs_of_steps,
    "values that go on": goes_on,
    "metrics logged one after another": one_metric_after_another,
}


@pytest.mark.parametrize("name", ONE)
def test_one_run_stays_one(tmp_path: Path, name: str) -> None:
    assert told(tmp_path, ONE[name]())[0] == []


def test_starts_of_any_length_are_told_apart_where_most_are_short(tmp_path: Path) -> None:
    lengths = (1, 3, 3, 10, 2, 2, 1, 5, 10, 1, 1, 9, 3, 2)
    rows = [row for seed, length in enumerate(lengths) for row in rows_of(seed, last=length)]
    (note,), steps, _ = told(tmp_path, rows)
    assert "This file holds 14 runs" in note
    assert steps == (1, 9)
