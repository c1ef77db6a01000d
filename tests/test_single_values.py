"""Single values of sequences that the check for secrets read are those that a look into the files gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from builders import Story, rising, sequences_of

from ptt.diagnostics.config import Settings
from ptt.diagnostics.engines.local import read_scalars, scalar_columns
from ptt.diagnostics.pipeline import RunLocation, ingest
from ptt.diagnostics.store.scan import SequenceScan, SingleValues, scan_sequences

STEPS = 6
SECRET = "sk-ant-api03-" + "Zx9qT4vLm2Rk7Wn3" * 3

Change = Callable[[pl.DataFrame, int], pl.DataFrame]


def usual(rows: pl.DataFrame, _: int) -> pl.DataFrame:
    return rows.with_columns(
        pl.lit("math").cast(pl.Categorical).alias("env"),
        (pl.col("seq") % 3).alias("rank"),
        (pl.col("seq") / 7).alias("reward"),
        pl.col("seq").cast(pl.Int16).alias("prompt_source"),
        pl.Series("tool_names", [["search"]] * rows.height),
        pl.Series("tool_failed", [[False]] * rows.height),
    )


def one_file_with_more(rows: pl.DataFrame, step: int) -> pl.DataFrame:
    return rows.with_columns(pl.lit(1).alias("shard")) if step == 2 else rows


def one_file_with_less(rows: pl.DataFrame, step: int) -> pl.DataFrame:
    return rows if step == 2 else rows.with_columns(pl.lit(1).alias("shard"))


def one_file_of_other_types(rows: pl.DataFrame, step: int) -> pl.DataFrame:
    return rows.with_columns(pl.lit("1" if step == 2 else 1).alias("shard"))


def one_file_with_a_secret(rows: pl.DataFrame, step: int) -> pl.DataFrame:
    return rows.with_columns(pl.lit(SECRET).alias("sample_id")) if step == 2 else rows


def read_both(tmp_path: Path, change: Change) -> tuple[SequenceScan, SingleValues]:
    run = tmp_path / "run"
    run.mkdir()
    rows = sequences_of(Story(steps=STEPS, sequences=4, post=rising(0.05, 0.8)))
    for step in rows["step"].unique():
        part = change(rows.filter(pl.col("step") == step), step).drop("seq")
        part.write_parquet(run / f"step_{step:06d}.parquet")
    single = SingleValues()
    location = RunLocation(run=run, store=tmp_path / "store", name="run")
    manifest = ingest(location, copy=False, settings=Settings(), single=single)
    scan = scan_sequences(location.store, manifest, run)
    assert scan is not None
    return scan, single


def test_values_that_were_read_before_are_those_of_the_files(tmp_path: Path) -> None:
    scan, single = read_both(tmp_path, usual)
    of_files = read_scalars(scan)
    assert {"seq", "step", "env", "rank", "reward", "tool_names", "attribute:prompt_source"} <= set(of_files.columns)
    held = single.take(scan, of_files.columns)
    assert held is not None
    assert held.collect().equals(of_files)
    assert held.collect_schema() == of_files.schema
    assert single.take(scan, of_files.columns) is None  # not held twice in memory


@pytest.mark.parametrize("change", [one_file_with_more, one_file_with_less, one_file_of_other_types])
def test_files_of_several_kinds_are_read_again(tmp_path: Path, change: Change) -> None:
    scan, single = read_both(tmp_path, change)
    assert single.take(scan, ["seq", *scalar_columns(scan)]) is None
    assert "attribute:shard" in read_scalars(scan, single).columns


def test_secrets_are_not_handed_on(tmp_path: Path) -> None:
    scan, single = read_both(tmp_path, one_file_with_a_secret)
    scalars = read_scalars(scan, single)
    assert scalars.height == scan.rows
    assert SECRET not in set(scalars["sample_id"])
    assert "sk-ant" not in str(scalars.to_dict(as_series=False))


def test_a_file_with_a_damaged_number_has_its_texts_looked_through(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    rows = sequences_of(Story(steps=STEPS, sequences=4, post=rising(0.05, 0.8)))
    rows = rows.with_columns(pl.lit(SECRET).alias("sample_id"), (pl.col("seq") / 7).alias("reward")).drop("seq")
    path = run / "step_000001.parquet"
    rows.write_parquet(path, compression="zstd")
    content, chunk = bytearray(path.read_bytes()), chunk_of(path, "reward")
    content[chunk[1] - 12 : chunk[1]] = b"\xff" * 12  # behind the header of the page
    path.write_bytes(content)
    location = RunLocation(run=run, store=tmp_path / "store", name="run")
    single = SingleValues()
    manifest = ingest(location, copy=False, settings=Settings(), single=single)
    assert not manifest.in_place  # it was to be masked, and could not be copied
    assert not any(SECRET.encode() in file.read_bytes() for file in location.store.rglob("*.*"))


def chunk_of(path: Path, column: str) -> tuple[int, int]:
    import pyarrow.parquet as pq

    group = pq.read_metadata(path).row_group(0)
    for at in range(group.num_columns):
        chunk = group.column(at)
        if chunk.path_in_schema == column:
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            return start, start + chunk.total_compressed_size
    raise AssertionError(column)
