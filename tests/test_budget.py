"""What reading a run may cost: limits that are passed end the reading of a file, are counted, and are reported."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from ptt import api
from ptt.diagnostics.budget_limits import BudgetLimits
from ptt.diagnostics.parsers.io.budget import Budget, BudgetSpent
from ptt.diagnostics.parsers.io.interface import Parser, Piece, Rows, RunFile
from ptt.diagnostics.parsers.io.run_files import run_files
from ptt.diagnostics.store.ingest import ingest
from ptt.diagnostics.store.manifest import Manifest
from ptt.diagnostics.store.scan import read_table


def metric_rows(*, names: int, steps: int) -> pl.DataFrame:
    """Rows of so many metrics at so many steps each."""
    rows = [(step, f"m{name}", 1.0) for step in range(steps) for name in range(names)]
    return pl.DataFrame(rows, schema={"step": pl.Int64, "name_raw": pl.String, "value": pl.Float64}, orient="row")


def parser_of(*frames: pl.DataFrame, burn: float = 0.0) -> Parser:
    """A parser that reads these rows, after `burn` seconds of work each."""

    def read(file: RunFile) -> Iterator[Piece]:
        for frame in frames:
            end = time.process_time() + burn
            while time.process_time() < end:
                pass
            file.budget.tick()
            yield Rows(table="metrics", frame=frame)

    return Parser(
        name="made", describes="", held_against="", priority=1, recognises=lambda file: file.size > 0, read=read
    )


def read(tmp_path: Path, limits: BudgetLimits, parser: Parser, *, files: int = 1) -> tuple[Manifest, pl.DataFrame]:
    run = tmp_path / "run"
    run.mkdir(exist_ok=True)
    for number in range(files):
        (run / f"f{number}").write_bytes(b"x" * 100)
    manifest = ingest(
        run_files(run)[0],
        notes=[],
        parsers=(parser,),
        folder=tmp_path / "store",
        ptt_version="0",
        limits=limits,
    )
    return manifest, read_table(tmp_path / "store", "sources")


def test_rows_beyond_the_limit_are_lost_and_those_before_stand(tmp_path: Path) -> None:
    frame = metric_rows(names=1, steps=60)
    _, sources = read(tmp_path, BudgetLimits(rows=100), parser_of(frame, frame))
    (row,) = sources.iter_rows(named=True)
    assert row["rows_ok"] == 60
    assert row["bytes_lost"] == 100
    assert "more than 100 rows (raise rows under [budget] in ptt.toml" in row["note"]


def test_metrics_beyond_the_limit_are_lost_and_known_ones_go_on(tmp_path: Path) -> None:
    first, second = metric_rows(names=3, steps=10), metric_rows(names=8, steps=10)
    _, sources = read(tmp_path, BudgetLimits(names=5), parser_of(first, second))
    (row,) = sources.iter_rows(named=True)
    assert (row["rows_ok"], row["rows_bad"]) == (80, 30)
    assert "30 values of 3 metrics are lost" in row["note"]


def test_time_of_a_file_is_bounded_and_such_a_store_is_made_anew(tmp_path: Path) -> None:
    frame = metric_rows(names=1, steps=10)
    limits = BudgetLimits(file_seconds=0.05)
    manifest, sources = read(tmp_path, limits, parser_of(*[frame] * 20, burn=0.02))
    (row,) = sources.iter_rows(named=True)
    assert 0 < row["rows_ok"] < 100
    assert "s of CPU time (raise file_seconds" in row["note"]
    again, sources = read(tmp_path, limits, parser_of(frame))
    assert sources["rows_ok"].to_list() == [10]
    assert manifest.fingerprint != again.fingerprint


def test_time_of_a_run_is_bounded_over_all_files(tmp_path: Path) -> None:
    _, sources = read(tmp_path, BudgetLimits(seconds=0.1), parser_of(metric_rows(names=1, steps=10), burn=0.1), files=9)
    assert 0 < sources.filter(pl.col("rows_ok") > 0).height < 9
    assert sources["bytes_lost"].to_list()[-1] == 100


def test_raising_a_limit_reads_the_run_again(tmp_path: Path) -> None:
    frame = metric_rows(names=1, steps=60)
    read(tmp_path, BudgetLimits(rows=100), parser_of(frame, frame))
    _, sources = read(tmp_path, BudgetLimits(rows=200), parser_of(frame, frame))
    assert sources["rows_ok"].to_list() == [120]


def test_memory_is_asked_for_before_it_is_taken() -> None:
    budget = Budget(BudgetLimits(memory_mb=1))
    budget.take(nbytes=1 << 20, what="a row")
    with pytest.raises(BudgetSpent, match="a row takes 5 MB of memory, where 1 MB are allowed"):
        budget.take(nbytes=5 << 20, what="a row")


def test_a_file_by_itself_is_not_timed() -> None:
    budget = Budget(BudgetLimits(file_seconds=1e-9, seconds=1e-9))
    budget.tick()
    assert budget.seconds_left == 1e-9
    budget.begin(0)
    with pytest.raises(BudgetSpent):
        budget.tick()


def test_time_of_another_process_counts() -> None:
    budget = Budget()
    budget.begin(0)
    budget.charge(3600)
    assert budget.seconds_left == 0
    with pytest.raises(BudgetSpent, match="file_seconds"):
        budget.tick()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("memory_mb = 0", "budget.memory_mb"),
        ("seconds = -1", "budget.seconds"),
        ("seconds = nan", "budget.seconds"),
        ("depth = 100000", "budget.depth"),
        ("rows = 'many'", "budget.rows"),
        ("row = 5", "row"),
    ],
)
def test_a_budget_that_is_none_is_an_error(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "ptt.toml"
    path.write_text(f"[budget]\n{text}\n", encoding="utf-8")
    with pytest.raises(api.SettingsError, match=problem) as error:
        api.read_settings(path)
    assert str(path) in str(error.value)


def test_the_budget_of_the_settings_reaches_the_readers(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    rows = [{"step": step, "loss": 1.0 / (step + 1), "kl": 0.01} for step in range(50)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    toml = tmp_path / "ptt.toml"
    toml.write_text("[budget]\nnames = 1\n", encoding="utf-8")
    settings = api.read_settings(toml)
    assert settings == replace(api.Settings(), budget=BudgetLimits(names=1))
    found = api.diagnose(run, out=tmp_path / "out", settings=settings)
    assert [source.rows_bad for source in found.sources] == [50]
    assert [source.rows_bad for source in api.diagnose(run, out=tmp_path / "out").sources] == [0]
