"""Seeded damage of every format: nothing crashes, hangs, fills the memory or loses rows without a word."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ptt
from benchmarks import fuzz
from benchmarks.mutations import Mutant, mutate
from ptt.diagnostics.parsers import PARSERS, run_files
from ptt.diagnostics.store.ingest import ingest
from ptt.diagnostics.store.scan import read_table

SEED = 1
STEPS = range(50)


@pytest.mark.slow
def test_damaged_files_of_every_format_are_read_and_judged(capfd: pytest.CaptureFixture[str]) -> None:
    done, failed = fuzz.fuzz(seed=SEED, first=0, cases=150, judged=0.05)
    assert (done, failed) == (150, [])


def test_the_same_seed_damages_a_file_alike() -> None:
    data = b"".join(json.dumps({"step": step, "loss": 0.5}).encode() + b"\n" for step in STEPS)
    made = [[mutate("a.jsonl", data, random.Random(f"1:{number}")) for number in range(30)] for _ in range(2)]
    assert made[0] == made[1]
    assert sum(mutant.data != data for mutant in made[0]) > 20


@pytest.mark.parametrize(
    ("rows", "told", "held", "silent"),
    [(8, False, True, True), (8, True, True, False), (8, False, False, False), (10, False, True, False)],
)
def test_rows_that_go_without_a_word_are_silent(rows: int, told: bool, held: bool, silent: bool) -> None:
    sound = fuzz.Outcome("metrics_jsonl", 10, told=False, faults="")
    read = fuzz.Outcome("metrics_jsonl", rows, told, faults="")
    assert fuzz.is_silent(sound, read, Mutant(b"", "torn line 3", held)) == silent


def nested(depth: int, value: float) -> Any:
    return value if depth == 0 else {"n": nested(depth - 1, value)}


@pytest.mark.parametrize("depth", [3, 17, 40, 60])
def test_metrics_are_read_however_deep_the_budget_lets_them_nest(tmp_path: Path, depth: int) -> None:
    rows = [{"step": step, "loss": 0.5, "kl": nested(depth, 0.1)} for step in STEPS]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (source,) = ptt.diagnose(tmp_path).sources
    assert (source.rows_ok, source.rows_bad) == (2 * len(STEPS), 0)


@pytest.mark.parametrize("name", ["trainer_state.json", "metrics.jsonl"])
def test_a_long_key_above_many_values_is_not_repeated_for_each(tmp_path: Path, name: str) -> None:
    log: list[dict[str, Any]] = [{"step": step, "loss": 0.5} for step in STEPS]
    log.append({"step": len(STEPS), "k" * 20_000: {f"a{number}": 1.0 for number in range(300)}})
    as_state = json.dumps({"global_step": 50, "max_steps": 50, "log_history": log})
    text = as_state if name.endswith(".json") else "".join(json.dumps(row) + "\n" for row in log)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_text(text)
    files, notes = run_files(tmp_path / "run")
    ingest(files, notes=notes, parsers=PARSERS, folder=tmp_path / "store", ptt_version="0")
    metrics = read_table(tmp_path / "store", "metrics")
    assert metrics.height == len(STEPS) + 300
    assert metrics["name_raw"].str.len_chars().max() < 600  # type: ignore[operator]
    assert metrics["name_raw"].n_unique() == 301


def test_a_list_of_bare_numbers_is_called_that(tmp_path: Path) -> None:
    (tmp_path / "numbers.json").write_text(json.dumps([0.5, 1.5, 2.5] * 1000))
    (source,) = ptt.diagnose(tmp_path).sources
    assert source.note == "It is a JSON list of numbers without names."
    with pytest.raises(ptt.InputError, match="a JSON list of numbers"):
        ptt.diagnose(tmp_path / "numbers.json")


def test_an_export_of_runs_without_a_row_is_read(tmp_path: Path) -> None:
    table = pa.table({"run_name": ["a"], "step": [1], "train/loss": [0.5]})
    pq.write_table(table.slice(0, 0), tmp_path / "p.parquet")
    found = ptt.diagnose(tmp_path)
    assert ([source.rows_ok for source in found.sources], found.crashes) == ([0], ())


@pytest.mark.parametrize("runs", [[["a"], ["a"]], [{"id": 1}, {"id": 2}]])
def test_runs_that_a_list_or_an_object_names_are_one(tmp_path: Path, runs: list[Any]) -> None:
    pq.write_table(pa.table({"run_name": runs, "step": [1, 2], "train/loss": [0.5, 0.25]}), tmp_path / "p.parquet")
    found = ptt.diagnose(tmp_path)
    assert ([source.rows_ok for source in found.sources], found.crashes) == ([2], ())


@pytest.mark.parametrize("end", [b"\r", b"  ", b"\x0c"])
def test_a_block_of_nothing_but_white_space_ends_a_log(tmp_path: Path, end: bytes) -> None:
    rows = [json.dumps({"step": step, "train/loss": 0.5}).encode() + b"\n" for step in STEPS]
    (tmp_path / "metrics.jsonl").write_bytes(b"".join(rows) + end)
    found = ptt.diagnose(tmp_path)
    assert ([source.rows_ok for source in found.sources], found.crashes) == ([len(STEPS)], ())
