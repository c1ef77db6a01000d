"""Lists of a column as arrays laid end to end and back, without pandas, which costs each command half a second."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from builders import repeatable
from hypothesis import given
from hypothesis import strategies as st

from ptt.diagnostics.flat_lists import as_lists, flatten, list_offsets, take

SAMPLES = Path(__file__).parents[1] / "sample_logs"
KINDS = {
    pl.Float32: st.floats(width=32),
    pl.Float64: st.floats(),
    pl.Int32: st.integers(-(1 << 31), (1 << 31) - 1),
    pl.UInt8: st.integers(0, 255),
    pl.Boolean: st.booleans(),
}


@repeatable
@given(st.data(), st.sampled_from(sorted(KINDS, key=str)), st.integers(0, 9), st.integers(1, 4))
def test_what_is_laid_end_to_end_is_cut_into_the_same_lists(
    data: st.DataObject, kind: type[pl.DataType], cut: int, pieces: int
) -> None:
    lists = st.lists(st.lists(KINDS[kind], max_size=20), max_size=12)
    parts = [pl.Series("x", data.draw(lists), dtype=pl.List(kind)) for _ in range(pieces)]
    column = pl.concat(parts)[cut:]  # in pieces, and from the middle of a buffer and of its byte
    told = column.to_list()
    offsets, values = flatten(column)
    laid = [value for one in told for value in one]
    assert values.tolist() == pytest.approx(laid, nan_ok=True, rel=0, abs=0)
    assert (np.diff(offsets) == [len(one) for one in told]).all()
    assert (np.diff(list_offsets(column)) == [len(one) for one in told]).all()
    again = as_lists(values, offsets).alias("x").cast(pl.List(kind)) if len(column) else column
    assert again.equals(column, null_equal=True)


@repeatable
@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=9), min_size=1, max_size=9), st.data())
def test_what_is_hidden_is_null_and_absent_lists_are(lists: list[list[tuple[int, bool]]], data: st.DataObject) -> None:
    absent = np.array([data.draw(st.booleans()) for _ in lists])
    flat = [pair for one in lists for pair in one]
    hidden = np.array([hide for _, hide in flat], np.bool_)
    values = np.array([value for value, _ in flat], np.int64)
    offsets = np.cumsum([0, *map(len, lists)])
    cut = as_lists(values, offsets, hidden=hidden, absent=absent).alias("x")
    wanted = [
        None if gone else [None if hide else value for value, hide in one]
        for one, gone in zip(lists, absent, strict=True)
    ]
    assert cut.to_list() == wanted


def test_a_null_is_nan_and_among_truth_values_none() -> None:
    assert flatten(pl.Series([[1, None], [], [3]]))[1].tolist() == pytest.approx([1, np.nan, 3], nan_ok=True)
    numbers, flags = pl.Series([[1.5, None], [2.5]]), pl.Series([[True, None], [False]])
    assert flatten(numbers)[1].tolist() == pytest.approx([1.5, np.nan, 2.5], nan_ok=True)
    assert flatten(flags)[1].tolist() == [True, None, False]


@repeatable
@given(st.lists(st.lists(st.floats(width=32, allow_nan=False)), min_size=1, max_size=20), st.data())
def test_rows_are_copied_as_they_are(lists: list[list[float]], data: st.DataObject) -> None:
    column = pl.Series("x", lists, dtype=pl.List(pl.Float32))
    rows = np.array(data.draw(st.lists(st.integers(0, len(lists) - 1), min_size=1, max_size=9)), np.int64)
    assert take(column, rows).to_pylist() == [column.to_list()[row] for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("sample", ["tool_tail_growth", "healthy"])
def test_judging_a_run_imports_no_pandas(sample: str, tmp_path: Path) -> None:
    package, marker = tmp_path / "pandas", tmp_path / "imported"
    package.mkdir()
    (package / "__init__.py").write_text(f"open({str(marker)!r}, 'w').close()\n__version__ = '2.3.0'\n")
    root = SAMPLES.parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(root)])}
    command = [sys.executable, "-m", "ptt", "diagnose", str(SAMPLES / sample), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (tmp_path / "out" / "report.html").exists(), done.stderr
    assert not marker.exists()
