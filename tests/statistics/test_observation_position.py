"""Where large log-ratios sit, against a plain loop over tokens."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from builders import POLICY_REF, Story, frame_of, growing, repeatable, sequences_of, steady, tables_of
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from ptt.diagnostics.statistics import bins, observation_position, slices, token_pass
from ptt.diagnostics.statistics.observation_position import DISTANCES, FLOOR


def octave(distance: int) -> int:
    """Give the place in DISTANCES by reading its names."""
    for place, name in enumerate(DISTANCES[1:], start=1):
        low, _, high = name.removesuffix("+").partition("-")
        if distance <= int(high or low) or name.endswith("+"):
            return place
    raise AssertionError(distance)


def by_hand(rows: list[dict[str, Any]], shortest: int = 4) -> list[dict[str, Any]]:
    """Walk every token of every row."""
    found: dict[tuple[int, int, int], dict[str, Any]] = {}
    for row in rows:
        lists = [row["model_mask"], row["policy_logp"], row["ref_logp"]]
        if any(part is None for part in lists) or len(set(map(len, lists))) > 1:
            continue
        turn, end, gap, started = 0, 0, 0, False
        least = {None: shortest, 0: 10**9}.get(row.get("tool_count"), 1)
        for at, (model, top, low) in enumerate(zip(*lists, strict=True)):
            if not model:
                gap += 1
                continue
            if started and gap >= least:
                turn, end = turn + 1, at
            started, gap = True, 0
            if top is None or low is None or not math.isfinite(top - low):
                continue
            r = abs(top - low)
            key = row["seq"], turn, octave(at - end) if turn else 0
            mine = found.setdefault(key, {"n": 0, "peak": 0.0, "peak_at": 0, "bins": {}})
            mine["n"] += 1
            if r >= FLOOR:
                coarse = int(bins.coarse_bin_of(bins.bin_of(np.array([r])))[0])
                mine["bins"][coarse] = mine["bins"].get(coarse, 0) + 1
                if r > mine["peak"]:
                    mine["peak"], mine["peak_at"] = r, at
    return [
        {
            **dict(zip(("seq", "turn", "distance"), key, strict=True)),
            **{name: mine[name] for name in ("n", "peak", "peak_at")},
            "coarse_bin": sorted(mine["bins"]),
            "coarse_n": [mine["bins"][coarse] for coarse in sorted(mine["bins"])],
        }
        for key, mine in sorted(found.items())
    ]


LOGP = st.one_of(
    st.none(),
    st.just(math.nan),
    st.just(-math.inf),
    st.sampled_from([-0.25, -0.75, -2.0, -2.5, -4.25]),  # r of exactly 0.5, and many equal peaks
    st.floats(-8.0, -0.0625, width=32).filter(lambda value: value != -1.0),
)


@st.composite
def a_row(draw: st.DrawFn) -> dict[str, Any]:
    runs = draw(st.lists(st.tuples(st.booleans(), st.sampled_from([1, 2, 3, 4, 5, 9, 40, 150])), max_size=7))
    mask = [token for token, length in runs for _ in range(length)]
    pattern = draw(st.lists(st.tuples(LOGP, LOGP), min_size=1, max_size=9))
    top, low = ([pattern[at % len(pattern)][side] for at in range(len(mask))] for side in (0, 1))
    row: dict[str, Any] = {"model_mask": mask, "policy_logp": top, "ref_logp": low}
    row["tool_count"] = draw(st.sampled_from([None, None, 0, 2]))
    fault = draw(st.sampled_from(["", "", "", "", "ragged", "no ref"]))
    if fault == "ragged":
        row["policy_logp"] = [*top, -0.5]
    if fault == "no ref":
        row["ref_logp"] = None
    return row


@pytest.mark.slow
@repeatable
@given(st.lists(a_row(), min_size=1, max_size=7), st.sampled_from([1, 90, 1 << 20]), st.sampled_from([1, 1 << 22]))
def test_stretches_are_those_of_a_plain_loop_whatever_the_batches(
    rows: list[dict[str, Any]], chunk: int, gathered: int
) -> None:
    frame = frame_of(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "CHUNK_TOKENS", chunk)
        patch.setattr(token_pass, "BATCH_TOKENS", chunk)
        patch.setattr(observation_position, "MAX_GATHERED_TOKENS", gathered)
        tables = tables_of(frame)
    spoilt = set(tables.anomalies["seq"].to_list())  # values taken for placeholders: the pass leaves them out
    wanted = [row for row in by_hand(frame.to_dicts()) if row["seq"] not in spoilt]
    found = tables.stretches.filter(~pl.col("seq").is_in(sorted(spoilt)))
    assert found.to_dicts() == wanted


def test_every_finite_token_is_in_one_stretch_and_slices_agree() -> None:
    tables = tables_of(sequences_of(Story(steps=6, post=steady(1.5), nan_share=0.05, tail=200)))
    after = tables.stretches.group_by("seq", (pl.col("turn") > 0).cast(pl.UInt8).alias("slice"))
    summed = after.agg(pl.col("n").sum(), pl.col("peak").max()).sort("seq", "slice")
    held = tables.sequences.with_columns(top=pl.max_horizontal(-pl.col("min_r"), "max_r"))
    assert_frame_equal(summed.select("seq", "slice", "n"), held.select("seq", "slice", "n"))
    large = held["top"] >= FLOOR
    assert summed["peak"].filter(large).to_list() == held["top"].filter(large).to_list()
    assert set(summed["peak"].filter(~large)) <= {0.0}
    assert tables.stretches["distance"].max() == len(DISTANCES) - 1


def test_the_order_of_files_changes_nothing() -> None:
    frame = growing(steps=6)
    turned = token_pass.token_pass(frame.reverse().lazy(), pairs=(POLICY_REF,), min_observation=4)
    assert_frame_equal(turned.stretches, tables_of(frame).stretches)


def test_a_gap_that_is_no_observation_counts_as_distance_and_joins_its_sides() -> None:
    mask = [True] + [False] * 4 + [True, False, True, False, False, True]
    found = tables_of(frame_of([{"model_mask": mask, "r": [1.5] * 11}])).stretches
    assert found.select("turn", "distance", "n", "peak_at").rows() == [
        (0, 0, 1, 0),
        (1, 1, 1, 5),
        (1, 3, 1, 7),
        (1, 4, 1, 10),
    ]
    assert [DISTANCES[place] for place in found["distance"]] == ["none", "0", "2-3", "4-7"]


def test_without_tokens_there_are_no_stretches() -> None:
    assert tables_of(frame_of([])).stretches.is_empty()
    small = tables_of(frame_of([{"r": [0.25, 0.4999]}])).stretches
    assert small.select("n", "peak", "peak_at").rows() == [(2, 0.0, 0)]
    assert small["coarse_bin"].to_list() == [[]]
