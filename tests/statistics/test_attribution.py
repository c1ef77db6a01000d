"""Shares of the tail against counting tokens one by one."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from builders import Story, frame_of, growing, repeatable, sequences_of, tables_of
from hypothesis import given
from hypothesis import strategies as st

from ptt.diagnostics.statistics.attribution import (
    TOP_GROUPS,
    add_tail_counts,
    attribution,
    bin_limit,
    tail_limit,
    top_sequences,
)
from ptt.diagnostics.statistics.percentiles import percentiles


def test_the_limit_is_the_coarse_edge_next_to_the_late_post_tool_p99() -> None:
    cells = tables_of(growing()).cells.filter(pl.col("step") > 40)
    p99 = percentiles(cells.filter(pl.col("slice") == 1), by=["pair"])["p99"][0]
    limit = bin_limit(tail_limit(cells))
    assert 0.87 < limit / p99 < 1.15
    text = cells.filter(pl.col("slice") == 0)
    assert bin_limit(tail_limit(text)) < limit / 5  # nothing after tools: all late tokens


def test_without_any_difference_the_limit_is_the_lowest_edge() -> None:
    cells = tables_of(frame_of([{"policy_logp": [-0.5] * 9, "ref_logp": [-0.5] * 9}])).cells
    assert tail_limit(cells) == 1
    assert bin_limit(1) == 2.0**-10


@repeatable
@given(
    st.lists(st.lists(st.floats(-20, 20), min_size=1, max_size=12), min_size=1, max_size=8),
    st.integers(1, 60),
)
def test_tail_tokens_are_those_at_or_above_the_edge(rows: list[list[float]], first_bin: int) -> None:
    sequences = tables_of(frame_of([{"r": r} for r in rows])).sequences
    found = add_tail_counts(sequences, first_bin)
    limit = bin_limit(first_bin)
    assert found["tail"].to_list() == [sum(abs(value) >= limit for value in r) for r in rows]


def made(groups: int = 30) -> tuple[pl.DataFrame, float]:
    """Late rows of a run with groups, of which the first holds most of the tail."""
    frame = sequences_of(Story(steps=12, sequences=20, seed=3))
    first_bin = 1 + 4 * 5  # 2^-5 nats
    rows = add_tail_counts(tables_of(frame).sequences, first_bin)
    return rows.with_columns(group=pl.format("g{}", pl.col("seq") % groups)), bin_limit(first_bin)


def test_shares_equal_counts_and_sum_to_one() -> None:
    rows, limit = made()
    found = attribution(rows, {"group": pl.col("group"), "slice": pl.col("slice")}, limit=limit)
    tail, tokens = int(rows["tail"].sum()), int(rows["n"].cast(pl.Int64).sum())
    for by in ("group", "slice"):
        part = found.filter(pl.col("by") == by)
        assert part["tail_share"].sum() == pytest.approx(1)
        assert part["token_share"].sum() == pytest.approx(1)
        assert part["tail"].sum() == tail
    groups = found.filter(pl.col("by") == "group")
    assert groups["rest"].to_list() == [False] * TOP_GROUPS + [True]
    assert groups["value"][-1] is None
    assert groups["tail"][:TOP_GROUPS].is_sorted(descending=True)
    for row in groups.filter(~pl.col("rest")).iter_rows(named=True):
        mine = rows.filter(pl.col("group") == row["value"])
        assert row["tail"] == mine["tail"].sum()
        assert row["n_sequences"] == mine["seq"].n_unique()
        assert row["tail_sequences"] == mine.filter(pl.col("tail") > 0)["seq"].n_unique()
        assert row["lift"] == pytest.approx(int(mine["tail"].sum()) * tokens / tail / int(mine["n"].sum()))
    assert set(found["limit"]) == {limit}


def test_unknown_values_are_a_row_of_their_own() -> None:
    rows, limit = made()
    unsure = pl.when(pl.col("seq") % 2 == 0).then(pl.col("group"))
    found = attribution(rows, {"group": unsure}, limit=limit)
    unknown = found.filter((pl.col("by") == "group") & pl.col("value").is_null() & ~pl.col("rest"))
    assert unknown["tail"].to_list() == [rows.filter(pl.col("seq") % 2 == 1)["tail"].sum()]
    assert found.filter(pl.col("by") == "group")["tail_share"].sum() == pytest.approx(1)


def test_concentration_counts_the_sequences_with_most_tail() -> None:
    rows, limit = made()
    by_sequence = rows.group_by("seq").agg(pl.col("tail").sum())["tail"].sort(descending=True)
    found = attribution(rows, {}, limit=limit)
    assert found["value"].to_list() == ["0.1 %", "1 %"]
    assert found["n_sequences"].to_list() == [1, 3]  # of 240
    assert found["tail"].to_list() == [by_sequence[0], by_sequence[:3].sum()]


def test_a_tail_without_tokens_has_no_lift() -> None:
    rows, limit = made()
    found = attribution(rows.with_columns(tail=pl.lit(0, pl.Int64)), {"slice": pl.col("slice")}, limit=limit)
    assert found["lift"].null_count() == found.height
    assert found["tail_share"].sum() == 0
    assert attribution(rows.clear(), {}, limit=limit).is_empty()


def test_top_sequences_name_file_and_row() -> None:
    r = [[0.1, 5.0], [6.0, 7.0], [0.1, 0.2], [0.1, 9.0], [5.5, 5.5]]
    tables = tables_of(frame_of([{"r": values, "step": 4} for values in r]))
    sequences, where = tables.sequences, tables.stretches
    first_bin = int(np.flatnonzero([bin_limit(k) == 4.0 for k in range(1, 73)])[0]) + 1
    identity = pl.DataFrame({"seq": pl.Series(range(5), dtype=pl.UInt32), "reward": [0.0, 1.0, 2.0, 3.0, 4.0]})
    found = top_sequences(
        add_tail_counts(sequences, first_bin), identity, where, [("a.parquet", 0, 0), ("b.parquet", 3, 0)]
    )
    assert found.select("path", "row", "tail", "max_abs_r", "max_at", "max_turn", "reward").rows() == [
        ("a.parquet", 1, 2, 7.0, 1, 0, 1.0),
        ("b.parquet", 1, 2, 5.5, 0, 0, 4.0),
        ("b.parquet", 0, 1, 9.0, 1, 0, 3.0),
        ("a.parquet", 0, 1, 5.0, 1, 0, 0.0),
    ]
    assert found["tail_share"].sum() == pytest.approx(1)
    assert found["sample_id"].null_count() == 4
    assert top_sequences(add_tail_counts(sequences, first_bin), identity, where.clear(), [])["path"].null_count() == 4
