"""What `make bench` measures: its data, its tokens' slices, and a page that follows from its results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from benchmarks import contenders, data, metric_logs, page, suite

SHAPE = data.Shape(name="tokens", steps=6, sequences=8, distinct=3)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "HOME", tmp_path)
    monkeypatch.setattr(suite, "HOME", tmp_path)


def test_steps_beyond_the_distinct_ones_repeat_their_neighbours_under_names_of_their_own(tmp_path: Path) -> None:
    folder = data.write_run(SHAPE)
    rows = pl.read_parquet(folder / "*.parquet").sort("step")
    assert rows["step"].unique().sort().to_list() == [1, 2, 3, 4, 5, 6]
    assert rows["sample_id"].n_unique() == rows.height
    first, second, third = (rows.filter(pl.col("step") == step)["policy_logp"] for step in (1, 2, 3))
    assert first.equals(second)
    assert not second.equals(third)


def test_the_token_pass_finds_the_slices_that_the_labelled_files_tell(tmp_path: Path) -> None:
    folder = data.write_run(SHAPE)
    data.write_labelled(SHAPE)
    done = contenders.spent(contenders.token_pass, folder)  # ends where a slice has other tokens than its labels
    assert done.error is not None
    assert 0 < done.error["p50"] < 0.005
    assert done.cpu > 0


def test_polars_finds_the_same_slices_from_the_mask(tmp_path: Path) -> None:
    folder = data.write_run(SHAPE)
    data.write_labelled(SHAPE)
    for work in (contenders.polars_exact, contenders.polars_exact_labelled):
        error = contenders.spent(work, folder).error
        assert error is not None
        assert max(error.values()) < 1e-9


@pytest.mark.parametrize("name", ["duckdb_exact", "duckdb_exact_labelled", "pandas_exact", "pandas_exact_labelled"])
def test_other_tools_find_the_same_slices(name: str) -> None:
    pytest.importorskip(name.split("_")[0], reason="group `bench`: make bench installs it")
    folder = data.write_run(SHAPE)
    data.write_labelled(SHAPE)
    error = contenders.spent(contenders.WORK[name], folder).error
    assert error is not None
    assert max(error.values()) < 1e-9


def test_a_percentile_that_is_off_is_told(tmp_path: Path) -> None:
    folder = data.write_run(SHAPE)
    exact = pl.read_parquet(data.write_labelled(SHAPE) / data.TRUTH)
    off = exact.drop("n").with_columns(pl.when(step=3).then(1.5 * pl.col("p99")).otherwise("p99").alias("p99"))
    error = contenders.error_of(off, folder)
    assert error is not None
    assert error["p99"] == pytest.approx(0.5)
    assert error["p50"] == 0
    for nothing in (None, float("nan")):
        lacking = exact.drop("n").with_columns(pl.when(step=3).then(nothing).otherwise("p99").alias("p99"))
        with pytest.raises(SystemExit, match="p99 of some steps"):
            contenders.error_of(lacking, folder)


def test_a_measurement_is_a_process_of_its_own(tmp_path: Path) -> None:
    case = suite.contender("tokens", "six steps", 1, "bare", data.write_run(SHAPE))
    (row,) = suite.in_turn([case], 2)
    assert row["rounds"] == 2
    assert row["seconds"] > 0
    assert row["peak_mb"] > 20


def test_what_fails_is_shown_as_not_done(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    case = suite.contender("tokens", "none", 1, "bare", tmp_path / "nothing")
    (row,) = suite.in_turn([case], 1)
    assert row["rounds"] == 0
    assert "nothing" in capsys.readouterr().err, "the reason is printed"
    assert "not done" in page.render({"rows": [row]})


def test_ratios_of_the_page_follow_from_its_rows() -> None:
    def row(name: str, cores: int, seconds: float) -> dict[str, object]:
        told = {"section": "tokens", "data": "20M", "cores": cores, "name": name, "rounds": 3}
        return told | {"seconds": seconds, "cpu": 2 * seconds, "peak_mb": 100, "least": seconds}

    rows = [row("bare", 1, 2.0), row("bare", 2, 1.0), row("token_pass", 1, 3.4), row("token_pass", 2, 2.0)]
    text = page.render({"rows": [*rows, row("duckdb_approx", 2, 9.0)]})
    assert "| DuckDB `approx_quantile` | 2 | 9.00 | 18.00 | 9.00 | 9.00 | 4.50 | 4.50 | 100 |  |" in text
    assert "| **token pass** | 2 | 2.00 | 4.00 | 2.00 | 2.00 | 1.00 | 1.00 | 100 |  |" in text
    assert "takes 9.0 times as long as the bare scan (CPU 9.0 times)" in text
    assert "Speed on 2 cores over one: bare scan and sum (Polars) 2.00x, **token pass** 1.70x." in text


@pytest.mark.parametrize("key", metric_logs.LOGS)
def test_metric_logs_hold_the_same_values_in_each_shape(
    key: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(metric_logs, "HOME", tmp_path)
    folder = metric_logs.write_log(key, 200)
    log = metric_logs.LOGS[key]
    (path,) = folder.iterdir()
    frame = pl.read_csv(path) if log.ending == "csv" else pl.read_ndjson(path)
    wide = frame.pivot("name", index="step", values="value", maintain_order=True) if log.long else frame
    assert wide.shape == (max(1, 200 * log.thousandths // 1000), 1 + log.metrics)
    assert wide["loss"][0] == pytest.approx(0.0191, abs=0.0005)
    assert metric_logs.write_log(key, 200) == folder
    assert contenders.spent(contenders.bare_log, folder).cpu > 0


def test_the_page_is_made_from_the_results_that_are_kept() -> None:
    kept = json.loads(page.RESULTS.read_text(encoding="utf-8"))
    assert page.PAGE.read_text(encoding="utf-8") == page.render(kept)


def test_the_suite_says_what_it_can_measure() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.suite", "--help"], capture_output=True, text=True, check=True
    )
    assert "--page" in done.stdout
