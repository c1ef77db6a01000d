"""Columns of Parquet files may be called anything: each stands for itself, and hides no secret of another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from metric_pieces import rows_and_losses
from planted_secrets import secrets
from typer.testing import CliRunner

from ptt.cli.app import app
from ptt.diagnostics.parsers import PARSERS, RunFile
from ptt.diagnostics.store.scan import ATTRIBUTE

METRICS = next(parser for parser in PARSERS if parser.name == "metrics_parquet")
RUNNER = CliRunner()
ODD = ["", "*", "^.*$", "^x.*$", "a.b", "column_0", "name_raw", "two\nlines"]
ROWS, TOKENS = 4, 8
SECRET = next(secret.hidden[0] for secret in secrets() if secret.kind == "github")


def write_tokens(run: Path, columns: Mapping[str, list[Any] | pa.Array], *, steps: int = 2) -> Path:
    """Write a run of recorder files that hold these columns beside the usual ones."""
    (run / "tokens").mkdir(parents=True)
    logps = [[-0.5 - token / 10 for token in range(TOKENS)]] * ROWS
    for step in range(1, steps + 1):
        usual = {"step": [step] * ROWS, "model_mask": [[True] * TOKENS] * ROWS, "policy_logp": logps, "ref_logp": logps}
        pq.write_table(pa.table({**usual, **columns}), run / "tokens" / f"step_{step:06d}.parquet")
    return run


def stored(run: Path, out: Path) -> list[pl.DataFrame]:
    """Ingest a run, and return the tables of sequences in its store."""
    result = RUNNER.invoke(app, ["ingest", str(run), "--out", str(out)])
    assert result.exit_code == 0, result.output
    frames = [pl.read_parquet(path, glob=False) for path in (out / "store").rglob("*.parquet")]
    return [frame for frame in frames if "model_mask" in frame.columns]


def masked_copies(out: Path) -> list[pl.DataFrame]:
    """Return the tables of a store, of which those with the sequences are masked copies of all of the run's."""
    paths = list((out / "store").rglob("*.parquet"))
    copies = [pl.read_parquet(path, glob=False) for path in paths if path.parent.name == "sequences"]
    assert sum(frame.height for frame in copies) == 2 * ROWS
    return [pl.read_parquet(path, glob=False) for path in paths]


@pytest.mark.parametrize("name", ODD)
def test_a_recorded_column_of_any_name_is_kept_as_it_is(name: str, tmp_path: Path) -> None:
    run = write_tokens(tmp_path / "run", {name: ["a"] * ROWS, "set": ["b"] * ROWS})
    (frame,) = stored(run, tmp_path / "out")
    assert frame.height == 2 * ROWS
    assert frame.get_column(ATTRIBUTE + name).to_list() == ["a"] * 2 * ROWS
    assert frame.get_column(ATTRIBUTE + "set").to_list() == ["b"] * 2 * ROWS


@pytest.mark.parametrize("value", ["a", ["a"]])
@pytest.mark.parametrize("name", ODD)
def test_a_name_hides_no_secret_of_another_column(name: str, value: object, tmp_path: Path) -> None:
    run = write_tokens(tmp_path / "run", {name: [value] * ROWS, "set": [f"{SECRET} {row}" for row in range(ROWS)]})
    frames = stored(run, tmp_path / "out")
    assert sum(frame.height for frame in frames) == 2 * ROWS
    assert not any(SECRET in str(frame.to_dict(as_series=False)) for frame in frames)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ODD, "^notes$", "^step$", "^[$"])
def test_what_is_judged_hides_its_secrets_whatever_their_column_is_called(name: str, tmp_path: Path) -> None:
    run = write_tokens(tmp_path / "run", {name: [f"{SECRET} {row}" for row in range(ROWS)]})
    judged = RUNNER.invoke(app, ["diagnose", str(run), "--out", str(tmp_path / "out")])
    assert (tmp_path / "out" / "report.html").exists(), judged.output
    frames = masked_copies(tmp_path / "out")
    assert not any(SECRET in str(frame.to_dict(as_series=False)) for frame in frames)
    shown = RUNNER.invoke(app, ["show", str(run), "1:1", "--json"])
    assert SECRET not in shown.output


TOLD = pa.array([f"{SECRET} {row}" for row in range(ROWS)])
LISTS = {
    "of one": pa.FixedSizeListArray.from_arrays(TOLD, 1),
    "of categories": pa.ListArray.from_arrays(list(range(ROWS + 1)), TOLD.dictionary_encode()),
}


@pytest.mark.slow
@pytest.mark.parametrize("lists", LISTS)
@pytest.mark.parametrize("judged", ["ingest", "diagnose"])
def test_secrets_in_lists_of_any_kind_are_masked(judged: str, lists: str, tmp_path: Path) -> None:
    run = write_tokens(tmp_path / "run", {"tool_names": LISTS[lists]})
    done = RUNNER.invoke(app, [judged, str(run), "--out", str(tmp_path / "out")])
    assert done.exit_code != 1, done.output
    frames = masked_copies(tmp_path / "out")
    assert not any(SECRET in str(frame.to_dict(as_series=False)) for frame in frames)


def test_of_two_columns_that_come_to_one_name_the_plain_one_is_kept(tmp_path: Path) -> None:
    run = write_tokens(tmp_path / "run", {"set": ["a"] * ROWS, ATTRIBUTE + "set": ["b"] * ROWS})
    (frame,) = stored(run, tmp_path / "out")
    assert frame.get_column(ATTRIBUTE + "set").to_list() == ["a"] * 2 * ROWS


@pytest.mark.parametrize("name", ODD)
def test_a_metric_of_any_name_is_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.parquet"
    values = {"step": list(range(9)), name: [row / 4 for row in range(9)], "loss": [1.5] * 9}
    pq.write_table(pa.table(values), path)
    assert METRICS.recognises(RunFile(path=path, rel=path.name, size=path.stat().st_size))
    found, lost, _, _ = rows_and_losses(METRICS, path)
    assert lost == []
    assert found.filter(pl.col("name_raw") == name)["value"].to_list() == values[name]
    assert found.filter(pl.col("name_raw") == "loss")["value"].to_list() == values["loss"]
