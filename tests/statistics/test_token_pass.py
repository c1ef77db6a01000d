"""The token pass: what it adds up, what it refuses to fill, and that no cut changes it."""

from __future__ import annotations

import math
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from builders import POLICY_REF, Story, frame_of, repeatable, sequences_of, steady, tables_of, write_recorder_run
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from ptt.diagnostics.statistics import bins, slices, token_pass, token_sums
from ptt.diagnostics.statistics.cells import (
    POWER_SUMS,
    SEQUENCE,
    SEQUENCE_SUMS,
    SIGNED_CELL,
    STEP_LIMIT,
    SUMS,
    cell_key,
)
from ptt.diagnostics.statistics.logprob_pairs import PAIRS, available_pairs
from ptt.diagnostics.statistics.partial_tables import TokenTables, finish_cells

NAN = math.nan
INF = math.inf
EACH = ("cells", "sequences", "rows", "bad")


def made(**changes: Any) -> pl.DataFrame:
    usual: dict[str, Any] = {"steps": 5, "sequences": 7, "post": steady(0.8), "nan_share": 0.02}
    return sequences_of(Story(**(usual | changes)))


def same_up_to_the_order_of_adding(found: TokenTables, wanted: TokenTables) -> None:
    """Counts must agree exactly; sums as closely as floating point lets them."""
    for name in EACH:
        assert_frame_equal(getattr(found, name), getattr(wanted, name), rel_tol=1e-12, abs_tol=1e-12)


def powers(r: np.typing.NDArray[np.float64]) -> dict[str, np.typing.NDArray[np.float64]]:
    rho = np.exp(r)
    return {
        "s_rho": rho,
        "s_rho2": rho**2,
        "s_r": r,
        "s_r2": r**2,
        "s_abs": np.abs(r),
        "s_inv": 1 / rho,
        "s_inv2": 1 / rho**2,
    }


def test_cells_and_sequences_are_the_sums_of_a_plain_loop_over_tokens() -> None:
    frame = made()
    tables = tables_of(frame)
    tokens: list[tuple[int, int, int, float]] = []
    bad: dict[tuple[int, int], int] = {}
    for row in frame.to_dicts():
        post = 0
        for place, is_model in enumerate(row["model_mask"]):
            post = post or int(not is_model)
            if not is_model:
                continue
            r = row["policy_logp"][place] - row["ref_logp"][place]
            if math.isfinite(r):
                tokens.append((row["seq"], row["step"], post, r))
            else:
                bad[row["step"], post] = bad.get((row["step"], post), 0) + 1
    seq, step, part, r = (np.array(column) for column in zip(*tokens, strict=True))
    weights = powers(r)
    index = bins.bin_of(np.abs(r))
    assert tables.cells["n"].sum() == len(r)
    for row in tables.cells.to_dicts():
        mine = (step == row["step"]) & (part == row["slice"]) & (index == row["bin"])
        assert row["n"] == mine.sum()
        for name in SUMS:
            within = 1e-12 if name in ("s_r", "s_abs") else 1e-5 * max(1.0, float(np.abs(r[mine]).max()) ** 2)
            assert row[name] == pytest.approx(weights[name][mine].sum(), rel=within), name
    assert tables.sequences["n"].sum() == len(r)
    for row in tables.sequences.to_dicts():
        mine = (seq == row["seq"]) & (part == row["slice"])
        assert row["n"] == mine.sum()
        assert [row[name] for name in SEQUENCE_SUMS] == pytest.approx(
            [weights[name][mine].sum() for name in SEQUENCE_SUMS], rel=1e-11, abs=1e-12
        )
        assert (row["min_r"], row["max_r"]) == (r[mine].min(), r[mine].max())
        coarse, count = np.unique(bins.coarse_bin_of(index[mine]), return_counts=True)
        assert row["coarse_bin"] == coarse.tolist()
        assert row["coarse_n"] == count.tolist()
    assert {(row["step"], row["slice"]): row["n_bad"] for row in tables.bad.to_dicts()} == bad
    assert tables.sequences["n_bad"].sum() == sum(bad.values())


def test_rows_tell_length_model_tokens_and_observations_of_every_sequence() -> None:
    frame = made(sequences=4, tool_share=steady(0.5))
    rows = tables_of(frame).rows
    assert rows["seq"].to_list() == frame["seq"].to_list()
    assert rows["length"].to_list() == frame["model_mask"].list.len().to_list()
    assert rows["n_model"].to_list() == frame["model_mask"].list.sum().to_list()
    assert rows["n_obs"].to_list() == [1, 1, 0, 0] * 5
    assert rows["ok"].all()


@pytest.mark.slow
@repeatable
@given(st.sets(st.integers(1, 34)), st.integers(1, 800))
def test_no_cut_into_batches_chunks_or_files_changes_the_tables(cuts: set[int], chunk: int) -> None:
    frame = made()
    whole = tables_of(frame)
    bounds = [0, *sorted(cuts), frame.height]
    files = [frame[start:stop].lazy() for start, stop in pairwise(bounds)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "CHUNK_TOKENS", chunk)
        patch.setattr(token_pass, "BATCH_TOKENS", chunk)
        same_up_to_the_order_of_adding(tables_of(pl.concat(files)), whole)


@repeatable
@given(st.lists(st.booleans(), min_size=35, max_size=35), st.sampled_from([40, 300, 100_000]), st.booleans())
def test_single_sequences_that_are_not_kept_are_left_out_and_nothing_else_changes(
    wanted: list[bool], chunk: int, losing: bool
) -> None:
    frame, kept = made(nan_share=0.1 if losing else 0.0), np.array(wanted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "CHUNK_TOKENS", chunk)
        patch.setattr(token_pass, "BATCH_TOKENS", chunk)
        every = tables_of(frame)
        few = token_pass.token_pass(frame.lazy(), pairs=(POLICY_REF,), min_observation=4, kept=kept)
    for one in fields(TokenTables):
        table = getattr(every, one.name)
        if one.name in ("sequences", "stretches"):
            table = table.filter(kept[table["seq"].to_numpy()])
        assert getattr(few, one.name).equals(table), one.name


def test_chunks_hold_every_row_once_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "CHUNK_TOKENS", 500)
    frame = made()
    pieces = list(slices.chunks(frame))
    assert pl.concat(pieces).equals(frame)
    assert len(pieces) > 2
    longest = frame["model_mask"].list.len().max()
    assert isinstance(longest, int)
    assert all(piece["model_mask"].list.len().sum() <= 500 + longest for piece in pieces)


@pytest.mark.parametrize("sequences", [60, 720])
def test_both_ways_of_adding_up_cells_agree(sequences: int, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = made(steps=1, sequences=sequences)
    monkeypatch.setattr(token_sums, "SPARSE", 0)
    sparse = tables_of(frame)
    monkeypatch.setattr(token_sums, "SPARSE", math.inf)
    same_up_to_the_order_of_adding(tables_of(frame), sparse)


def test_a_run_read_from_files_gives_the_tables_of_the_frame(tmp_path: Path) -> None:
    frame = made()
    folder = write_recorder_run(tmp_path / "run", frame)
    files = sorted((folder / "tokens").iterdir())
    assert len(files) == 5
    scan = pl.scan_parquet(files, row_index_name="seq").with_columns(pl.col("seq").cast(pl.UInt32))
    same_up_to_the_order_of_adding(tables_of(scan), tables_of(frame))


def test_the_same_input_gives_the_same_bits() -> None:
    first, second = tables_of(made()), tables_of(made())
    for name in EACH:
        assert_frame_equal(getattr(first, name), getattr(second, name), check_exact=True)


def test_tokens_without_a_finite_ratio_are_counted_and_never_filled() -> None:
    rows: list[dict[str, Any]] = [
        {"policy_logp": [-0.25, None, NAN, -0.5], "ref_logp": [-0.75, -0.75, -0.75, None]},
        {"policy_logp": [INF, -INF, -INF, -0.25], "ref_logp": [-0.5, -0.5, -INF, -1.25]},
        {"policy_logp": [None, None], "ref_logp": [-0.75, -0.75]},
    ]
    tables = tables_of(frame_of(rows))
    assert tables.cells["n"].sum() == 2
    assert tables.cells["s_r"].sum() == 1.5
    assert tables.bad.to_dicts() == [{"pair": 0, "step": 1, "slice": 0, "n_bad": 8}]
    held = tables.sequences.select("seq", "n", "n_bad").rows()
    assert held == [(0, 1, 3), (1, 1, 3)]
    assert tables.rows["n_model"].to_list() == [4, 4, 2]


def test_values_under_the_mask_do_not_count_whatever_they_are() -> None:
    mask = [True, False, False, False, False, True]
    row = {"model_mask": mask, "policy_logp": [-0.25, NAN, -9999.0, INF, None, -0.5]}
    tables = tables_of(frame_of([row]))
    assert tables.bad.is_empty()
    assert tables.cells.select("slice", "n", "s_r").rows() == [(0, 1, 0.5), (1, 1, 0.25)]


UNSOUND = {
    "a logprob list shorter than the mask": {"policy_logp": [-0.5], "model_mask": [True, True]},
    "a logprob list longer than the mask": {"policy_logp": [-0.5, -0.5], "model_mask": [True]},
    "two logprob lists of unlike length": {"policy_logp": [-0.5, -0.5], "ref_logp": [-0.75]},
    "no mask": {"policy_logp": [-0.5], "model_mask": None},
    "a hole in the mask": {"policy_logp": [-0.5, -0.5], "model_mask": [True, None]},
    "no step": {"policy_logp": [-0.5], "step": None},
    "a step below 0": {"policy_logp": [-0.5], "step": -1},
    "a step that is no step": {"policy_logp": [-0.5], "step": STEP_LIMIT},
}


@pytest.mark.parametrize("fault", UNSOUND.values(), ids=UNSOUND)
def test_a_row_that_does_not_fit_together_is_counted_and_costs_no_other(fault: dict[str, Any]) -> None:
    sound = [{"r": [0.25, 0.5]}, {"r": [1.0]}]
    frame = frame_of([sound[0], fault, sound[1]])
    tables = tables_of(frame)
    assert tables.rows.sort("seq")["ok"].to_list() == [True, False, True]
    alone = tables_of(frame.filter(pl.col("seq") != 1))
    assert_frame_equal(tables.cells, alone.cells)
    assert_frame_equal(tables.sequences, alone.sequences)
    assert tables.bad.is_empty()


def test_a_row_without_one_logprob_counts_for_the_pairs_it_has() -> None:
    logps = ("policy_logp", "old_logp", "rollout_logp", "ref_logp")
    rows: list[dict[str, Any]] = [
        {"policy_logp": [-0.25], "old_logp": [-0.5], "rollout_logp": [-0.75], "ref_logp": [-0.75]},
        {"policy_logp": [-0.25], "old_logp": None, "rollout_logp": [-0.625], "ref_logp": [-0.75]},
        {"policy_logp": [-0.25], "old_logp": [-0.375], "rollout_logp": [None], "ref_logp": None},
        {
            "policy_logp": None,
            "old_logp": None,
            "rollout_logp": None,
            "ref_logp": [-0.75],
            "model_mask": [True],
        },
    ]
    frame = frame_of(rows, logps=logps).with_columns(model_mask=pl.Series([[True]] * 4))
    pairs = available_pairs(set(logps))
    assert [pair.name for pair in pairs] == ["policy/ref", "policy/rollout", "old/rollout", "policy/old"]
    tables = tables_of(frame, pairs=pairs)
    summed = tables.cells.group_by("pair").agg(pl.col("n").sum(), pl.col("s_r").sum()).sort("pair")
    assert summed.rows() == [(0, 2, 1.0), (1, 2, 0.875), (2, 1, 0.25), (3, 2, 0.375)]
    assert tables.rows["ok"].to_list() == [True] * 4
    assert tables.sequences["seq"].to_list() == [0, 1]  # those of the first pair
    assert tables.bad.select("pair", "n_bad").rows() == [(1, 1), (2, 1)]


def test_a_logprob_that_no_row_holds_leaves_its_pair_empty() -> None:
    frame = frame_of([{"policy_logp": [-0.5], "old_logp": None}], logps=("old_logp",))
    tables = tables_of(frame, pairs=(POLICY_REF, PAIRS[4]))
    assert tables.cells["pair"].to_list() == [0]


@pytest.mark.parametrize("rows", [[], [{"policy_logp": []}], [{"policy_logp": [-0.5], "model_mask": [False]}]])
def test_without_model_tokens_there_are_no_cells_but_every_row(rows: list[dict[str, Any]]) -> None:
    tables = tables_of(frame_of(rows))
    assert tables.cells.is_empty()
    assert tables.sequences.is_empty()
    assert tables.rows.height == len(rows)
    assert tables.sequences.schema == pl.Schema(SEQUENCE)


def test_float32_logprobs_are_subtracted_in_float64() -> None:
    frame = frame_of([{"policy_logp": [-16.1], "ref_logp": [-0.1]}])
    narrow = frame.with_columns(pl.col("policy_logp", "ref_logp").cast(pl.List(pl.Float32)))
    wanted = float(np.float64(np.float32(-16.1)) - np.float64(np.float32(-0.1)))
    assert wanted != float(np.float32(-16.1) - np.float32(-0.1))
    assert tables_of(narrow).cells["s_r"].to_list() == [wanted]


def test_progress_hears_of_every_row() -> None:
    frame = made(steps=9)
    heard: list[int] = []
    token_pass.token_pass(
        frame.lazy(), pairs=(POLICY_REF,), min_observation=4, tokens_per_row=1e6, on_rows=heard.append
    )
    assert sum(heard) == frame.height
    assert len(heard) > 1


@repeatable
@given(
    st.integers(0, 4), st.integers(0, STEP_LIMIT - 1), st.integers(0, 1), st.integers(0, bins.OVERFLOW), st.booleans()
)
def test_a_cell_key_gives_back_what_it_was_made_of(pair: int, step: int, part: int, index: int, below: bool) -> None:
    key = cell_key(pair, np.array([step]), np.array([part]), np.array([2 * index + below]))
    signed = pl.DataFrame({"key": key, "n": [1], "s_abs": [0.5]}, schema=SIGNED_CELL)
    powers = pl.DataFrame([(pair, step, part, 1.0, 1.0, 0.25)], schema=POWER_SUMS, orient="row")
    cells = finish_cells(signed, powers)
    assert cells.select("pair", "step", "slice", "bin", "n", "s_r").row(0) == (
        pair, step, part, index, 1, -0.5 if below else 0.5
    )  # fmt: skip


def test_old_stands_in_for_policy_only_where_policy_is_missing() -> None:
    assert [pair.name for pair in available_pairs({"old_logp", "ref_logp", "rollout_logp"})] == [
        "old/ref",
        "old/rollout",
    ]
    assert available_pairs({"policy_logp"}) == ()
    assert POLICY_REF.inverse == "ref/policy"
