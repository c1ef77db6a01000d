"""Sums by group: of rows in any order the bits that adding them up one after the other gives."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from builders import repeatable
from hypothesis import given
from hypothesis import strategies as st

from ptt.diagnostics.statistics.cells import PART_ROWS, grouped_sums, in_parts, merge_cells
from ptt.diagnostics.statistics.percentiles import percentiles

KINDS = (pl.Int64, pl.UInt8, pl.UInt32, pl.Int32)


def frame_of(seed: int, rows: int, ranges: list[int], scale: int) -> pl.DataFrame:
    generator = np.random.default_rng(seed)
    by = {
        f"by_{at}": pl.Series(generator.integers(0, most, rows) * (scale if at == 0 else 1), dtype=KINDS[at])
        for at, most in enumerate(ranges)
    }
    n, bins = generator.integers(1, 9, rows), generator.integers(0, 50, rows)
    return pl.DataFrame(
        {
            **by,
            "bin": pl.Series(bins, dtype=pl.UInt16),
            "n": pl.Series(n, dtype=pl.UInt32),
            "s_abs": generator.standard_normal(rows),
        }
    )


def one_after_the_other(frame: pl.DataFrame, by: list[str]) -> list[tuple[float, ...]]:
    sums: dict[tuple[int, ...], tuple[int, float]] = {}
    for *group, n, s_abs in frame.select(*by, "n", "s_abs").iter_rows():
        before = sums.get(tuple(group), (0, 0.0))
        sums[tuple(group)] = before[0] + n, before[1] + s_abs
    return [(*group, *sums[group]) for group in sorted(sums)]


@repeatable
@given(
    st.integers(0, 1 << 30),
    st.integers(0, 80),
    st.lists(st.sampled_from([1, 3, 40, 250]), min_size=1, max_size=4),
    st.sampled_from([1, 1, 1 << 40, 1 << 60]),
    st.booleans(),
)
def test_sums_are_those_of_adding_row_after_row(
    seed: int, rows: int, ranges: list[int], scale: int, ordered: bool
) -> None:
    frame = frame_of(seed, rows, [min(ranges[0], 7), *ranges[1:]], scale)
    by = [name for name in frame.columns if name.startswith("by_")]
    frame = frame.sort(by, maintain_order=True) if ordered else frame
    found = grouped_sums(frame, by, ("n", "s_abs"))
    assert found.rows() == one_after_the_other(frame, by)
    assert [found.schema[name] for name in by] == [frame.schema[name] for name in by]


@pytest.mark.parametrize("group", [700, PART_ROWS // 2 + 1, PART_ROWS + 9])
def test_groups_of_many_rows_are_never_cut(group: int) -> None:
    rows = 3 * PART_ROWS + 5
    frame = frame_of(8, rows, [1, 2, 3], 1).with_columns(by_0=pl.int_range(rows) // group)
    by = ["by_0", "by_1", "by_2"]
    assert grouped_sums(frame, by, ("n", "s_abs")).rows() == one_after_the_other(frame, by)
    parts = list(in_parts(frame, "by_0"))
    assert not any(before["by_0"][-1] == part["by_0"][0] for before, part in pairwise(parts))
    assert pl.concat(parts).equals(frame)
    assert len(parts) > 1


def test_percentiles_of_many_steps_are_those_of_each_step() -> None:
    frame = frame_of(9, 3 * PART_ROWS, [1], 1).with_columns(
        step=pl.int_range(3 * PART_ROWS) // 30_000, s_abs=pl.col("s_abs").abs()
    )
    expected = pl.concat([percentiles(part, by=["step"]) for part in frame.partition_by("step", maintain_order=True)])
    assert percentiles(frame, by=["step"]).equals(expected)


@pytest.mark.parametrize("ordered", [False, True])
def test_cells_of_a_group_and_bin_are_one(ordered: bool) -> None:
    frame = frame_of(5, 400, [6, 2], 1)
    frame = frame.unique(["by_0", "by_1", "bin"]).sort("by_0", "by_1", "bin") if ordered else frame
    merged = merge_cells(frame, by=["by_0", "by_1"])
    expected = one_after_the_other(frame, ["by_0", "by_1", "bin"])
    assert list(zip(merged.bin.tolist(), merged.n.tolist(), strict=True)) == [row[2:4] for row in expected]
    assert merged.s_abs == pytest.approx([row[4] for row in expected], rel=1e-13, abs=1e-13)
    assert merged.groups.rows() == [row[:3] for row in one_after_the_other(frame, ["by_0", "by_1"])]
