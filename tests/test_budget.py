"""What reading a run may cost: limits that are passed end the reading of a file, are counted, and are reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import polars as pl
import pytest
from slow_cases import first_fast

from ptt import api
from ptt.diagnostics.budget_limits import BudgetLimits
from ptt.diagnostics.parsers import tensorboard
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
    assert "30 values lost: more than 5" in row["note"]


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
    with pytest.raises(BudgetSpent, match="a row takes 5 MB of memory; the limit is 1 MB"):
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


def sources_of(tmp_path: Path, name: str, data: bytes, **limits: int) -> tuple[dict[str, object], api.Diagnosis]:
    """Judge a run of one file, and return what is said of that file."""
    run = tmp_path / "run"
    run.mkdir(exist_ok=True)
    (run / name).write_bytes(data)
    settings = replace(api.Settings(), budget=BudgetLimits(**limits))
    found = api.diagnose(run, out=tmp_path / "out", settings=settings)
    (source,) = found.sources
    return asdict(source), found


def log_rows(count: int, **more: object) -> bytes:
    return b"".join(
        json.dumps({"step": step, "loss": 1 / (step + 1), **more}).encode() + b"\n" for step in range(count)
    )


@pytest.mark.parametrize("depth", [70, 250, 900])
def test_a_row_nested_deeper_than_any_logger_is_lost_and_the_others_are_read(tmp_path: Path, depth: int) -> None:
    deep = b'{"step": 50, "loss": 1.0, "x": ' + b'{"a": ' * depth + b"1" + b"}" * depth + b"}\n"
    source, _ = sources_of(tmp_path, "metrics.jsonl", log_rows(20) + deep + log_rows(20))
    assert (source["rows_ok"], source["rows_bad"]) == (40, 1)
    assert "deeper than 64 levels" in str(source["note"])


def test_brackets_in_texts_do_not_hide_depth(tmp_path: Path) -> None:
    hidden = b'{"step": 50, "t": "' + b"}" * 400 + b'", "x": ' + b'{"a": ' * 300 + b"1" + b"}" * 300 + b"}\n"
    source, _ = sources_of(tmp_path, "metrics.jsonl", log_rows(20) + hidden)
    assert (source["rows_ok"], source["rows_bad"]) == (20, 1)


@pytest.mark.slow
def test_rows_whose_names_never_recur_fill_no_columns(tmp_path: Path) -> None:
    rows = b"".join(
        json.dumps({"step": step, "loss": 1.0, **{f"m{step}_{name}": 1.0 for name in range(300)}}).encode() + b"\n"
        for step in range(400)
    )
    source, _ = sources_of(tmp_path, "metrics.jsonl", rows, names=1000)
    assert source["rows_ok"] == 1000 + 399
    assert "more than 1000 metrics" in str(source["note"])


@pytest.mark.parametrize(
    "line", first_fast([b'{"x": "' + b"y" * 80_000_000 + b'"}', b'{"x": [' + b"[]," * 8_000_000 + b"[]]}"])
)
def test_a_first_line_of_many_megabytes_costs_itself(tmp_path: Path, line: bytes) -> None:
    source, _ = sources_of(tmp_path, "metrics.jsonl", line + b"\n" + log_rows(30))
    assert (source["kind"], source["rows_ok"], source["rows_bad"]) == ("metrics_jsonl", 30, 1)
    assert "raise memory_mb under [budget]" in str(source["note"])


def test_the_salvage_of_a_torn_state_takes_as_long_as_its_text(tmp_path: Path) -> None:
    rows = ", ".join(json.dumps({"step": step, "loss": 0.5}) for step in range(30))
    torn = f'{{"global_step": 30, "log_history": [{rows}, {{"step": 31, '.encode() + b'{"a": ' * 300_000
    begin = time.process_time()
    source, _ = sources_of(tmp_path, "trainer_state.json", torn)
    assert source["rows_ok"] == 30
    assert int(str(source["bytes_lost"])) > 1_000_000
    assert time.process_time() - begin < 15


@pytest.mark.slow
def test_columns_of_millions_of_numbers_are_refused_with_the_reason(tmp_path: Path) -> None:
    data = b'{"loss": [' + b"1," * 2_000_000 + b'1], "reward": [' + b"1," * 2_000_000 + b"1]}"
    run = tmp_path / "run"
    run.mkdir()
    (run / "metrics.json").write_bytes(data)
    with pytest.raises(api.InputError, match="raise memory_mb under"):
        api.diagnose(run, out=tmp_path / "out")


@pytest.mark.slow
def test_a_table_of_many_columns_is_read_up_to_the_number_of_names(tmp_path: Path) -> None:
    header = "step,loss," + ",".join(f"column{number}" for number in range(9_998)) + "\n"
    rows = "".join(f"{step}," + ",".join(["0.5"] * 9_999) + "\n" for step in range(20))
    source, _ = sources_of(tmp_path, "metrics.csv", (header + rows).encode(), names=500)
    assert (source["kind"], source["rows_ok"]) == ("metrics_csv", 20 * 500)


def test_a_table_of_too_many_columns_says_so(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("step,loss," + ",".join(f"c{number}" for number in range(30_000)) + "\n1,2\n", encoding="utf-8")
    with pytest.raises(api.InputError, match="30002 columns"):
        api.diagnose(path, out=tmp_path / "out")


@pytest.mark.parametrize("rows", [1, 40])  # in a row group: of one row the footer tells the steps
def test_tokens_of_too_many_steps_are_lost(rows: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for name, first in (("a", 1), ("b", 41)):
        folder = run / "tokens"
        folder.mkdir(parents=True, exist_ok=True)
        steps = list(range(first, first + 40))
        frame = pl.DataFrame(
            {
                "step": steps,
                "sample_id": [f"s{step}" for step in steps],
                "model_mask": [[True] * 20] * 40,
                "policy_logp": [[-0.5] * 20] * 40,
                "ref_logp": [[-0.6] * 20] * 40,
            }
        )
        frame.write_parquet(folder / f"step_{name}.parquet", row_group_size=rows)
    with pytest.raises(api.InputError, match="tokens of more than 30 steps"):
        api.diagnose(run, out=tmp_path / "out", settings=replace(api.Settings(), budget=BudgetLimits(steps=30)))
    for limit, read in ((40, [40, 0]), (79, [40, 0]), (80, [40, 40])):
        settings = replace(api.Settings(), budget=BudgetLimits(steps=limit))
        found = api.diagnose(run, out=tmp_path / "out", settings=settings)
        assert [source.rows_ok for source in found.sources] == read


def test_one_event_that_holds_every_scalar_ends_with_the_time(tmp_path: Path) -> None:
    value = b"\x0a\x0b\x0a\x04loss\x15\0\0\x80?"
    count = 3 * tensorboard.TICK_FIELDS
    size = len(value) * count
    event = b"\x10\x01\x2a" + bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14]) + value * count
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(b"")
    file = RunFile(path=path, rel=path.name, size=0)
    assert sum(1 for _ in tensorboard.scalars(file, event, {})) == count
    spent = replace(file, budget=Budget(BudgetLimits(file_seconds=0.0)))
    spent.budget.begin(0)
    with pytest.raises(BudgetSpent):
        list(tensorboard.scalars(spent, event, {}))


@pytest.mark.slow
def test_judging_all_rows_that_a_small_file_may_hold_takes_little_memory(tmp_path: Path) -> None:
    run, rows = tmp_path / "run", 1_000_000
    run.mkdir()
    columns = {"step": pl.repeat(1, rows, eager=True), "loss": pl.repeat(0.5, rows, eager=True)}
    pl.DataFrame(columns).write_parquet(run / "history.parquet")
    code = "import sys; from ptt import api; api.diagnose(sys.argv[1], out=sys.argv[2]); "
    code += "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    command = [sys.executable, "-c", code, str(run), str(tmp_path / "out")]
    told = subprocess.run(
        command, env=os.environ | {"POLARS_MAX_THREADS": "1"}, capture_output=True, text=True, check=True
    )
    (rows_ok,) = read_table(tmp_path / "out" / "store", "sources")["rows_ok"]
    assert 600_000 < rows_ok <= BudgetLimits.rows
    assert int(told.stdout.split()[1]) < 500 << 10  # kB; more where rows are copied whole, or grouped in memory
