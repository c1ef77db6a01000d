"""The split of E[w^2] is exact, is the mean over all orders, and its inputs equal plain sums over tokens."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import polars as pl
import pytest
from builders import Array, Story, frame_of, repeatable, sequences_of, steady, stepped, tables_of
from hypothesis import given
from hypothesis import strategies as st

from ptt.diagnostics.statistics.attribution import (
    PARTS,
    exposure_intensity,
    moment_factors,
    resample_units,
    shapley_split,
)
from ptt.diagnostics.statistics.bootstrap import DRAWS
from ptt.diagnostics.statistics.partial_tables import TokenTables
from ptt.diagnostics.statistics.windows import Span, split_steps

moments = st.floats(1e-6, 1e12)
shares = st.floats(0, 1)


def total(alpha: float, text: float, tool: float) -> float:
    return (1 - alpha) * text + alpha * tool


def over_all_orders(early: list[float], late: list[float]) -> list[float]:
    """Shapley by its definition: change one factor after the other, in each of the six orders."""
    parted = [0.0, 0.0, 0.0]
    for order in permutations(range(3)):
        now = list(early)
        for factor in order:
            before = total(*now)
            now[factor] = late[factor]
            parted[factor] += (total(*now) - before) / 6
    return parted


@repeatable
@given(st.tuples(shares, moments, moments), st.tuples(shares, moments, moments))
def test_the_split_is_shapleys_and_adds_up(early: tuple[float, float, float], late: tuple[float, float, float]) -> None:
    ends = [np.array([*values, total(*values)]) for values in (early, late)]
    change, *found = shapley_split(*ends).tolist()
    scale = max(*early[1:], *late[1:])
    assert found == pytest.approx(over_all_orders(list(early), list(late)), rel=1e-9, abs=1e-12 * scale)
    assert sum(found) == pytest.approx(change, rel=1e-12, abs=1e-12 * scale)


@repeatable
@given(shares, moments, moments, st.floats(1, 100))
def test_only_the_factor_that_moved_gets_a_part(alpha: float, text: float, tool: float, by: float) -> None:
    early = np.array([alpha, text, tool, total(alpha, text, tool)])
    late = np.array([alpha, text, by * tool, total(alpha, text, by * tool)])
    change, exposed, of_text, of_tool = shapley_split(early, late)
    assert (exposed, of_text) == (0, 0)
    assert of_tool == pytest.approx(change, rel=1e-9, abs=1e-12 * (text + by * tool))


def test_what_comes_with_a_new_slice_is_exposure() -> None:
    early, late = moment_factors(np.array([[100.0, 0, 200, 0], [50.0, 50, 100, 400]]))
    assert np.isnan(early[2])
    assert shapley_split(early, late).tolist() == pytest.approx([3.0, 3.0, 0.0, 0.0])


def both(story: Story) -> tuple[pl.DataFrame, TokenTables]:
    frame = sequences_of(story)
    return frame, tables_of(frame)


def r_of(frame: pl.DataFrame, span: Span) -> tuple[Array, Array]:
    """Log-ratios of model tokens of a window, text-only and post-tool, row by row."""
    sides: tuple[list[float], list[float]] = ([], [])
    for row in frame.filter(pl.col("step").is_between(span.first, span.last)).iter_rows(named=True):
        seen = False
        for model, top, low in zip(row["model_mask"], row["policy_logp"], row["ref_logp"], strict=True):
            seen = seen or not model
            if model:
                sides[seen].append(top - low)
    return np.array(sides[0]), np.array(sides[1])


def test_every_number_equals_plain_sums() -> None:
    frame, tables = both(Story(text=steady(0.4), post=stepped(0.5, 2.5), steps=30, likeness=0.5))
    windows = split_steps(list(range(1, 31)), 3)
    cells, sequences = tables.cells, tables.sequences.with_columns(unit=pl.col("seq"))
    found = exposure_intensity(cells, sequences, windows, pair="policy/ref", inverse="ref/policy")
    assert found.select("weights", "cap").rows() == [
        ("policy/ref", None), ("ref/policy", None), ("policy/ref", 10.0), ("ref/policy", 10.0),
    ]  # fmt: skip
    for row in found.iter_rows(named=True):
        sign = 1 if row["weights"] == "policy/ref" else -1
        tolerance = 1e-9 if row["cap"] is None else 2e-3
        for name, span in (("early", windows[0]), ("late", windows[-1])):
            sides = [np.minimum(np.exp(sign * r), row["cap"] or np.inf) ** 2 for r in r_of(frame, span)]
            every = np.concatenate(sides)
            assert row[f"alpha_{name}"] == pytest.approx(len(sides[1]) / len(every))
            assert row[f"m_text_{name}"] == pytest.approx(sides[0].mean(), rel=tolerance)
            assert row[f"m_tool_{name}"] == pytest.approx(sides[1].mean(), rel=tolerance)
            assert row[f"total_{name}"] == pytest.approx(every.mean(), rel=tolerance)
            assert row[f"top_token_{name}"] == pytest.approx(every.max() / every.sum(), rel=tolerance)
        assert row["change"] == pytest.approx(row["total_late"] - row["total_early"], rel=1e-12)
        assert sum(row[name] for name in PARTS[1:]) == pytest.approx(row["change"], rel=1e-9)
        for name in PARTS:
            assert row[f"{name}_lo"] <= row[f"{name}_hi"]
        assert row["tool_lo"] <= row["tool"] <= row["tool_hi"]


def test_more_tools_are_exposure_and_heavier_tails_are_not() -> None:
    windows = split_steps(list(range(1, 61)), 3)
    for story, name in (
        (Story(post=steady(0.6), tool_share=stepped(0.2, 0.9)), "exposure"),
        (Story(post=stepped(0.3, 0.7)), "tool"),
        (Story(text=stepped(0.3, 0.7)), "text"),
    ):
        tables = both(story)[1]
        sequences = tables.sequences.with_columns(unit=pl.col("seq"))
        found = exposure_intensity(tables.cells, sequences, windows, pair="a/b", inverse="b/a")
        for row in found.filter(pl.col("cap").is_not_null()).iter_rows(named=True):
            assert row[name] > 0.85 * row["change"] > 0
            assert row[f"{name}_lo"] > 0
            assert row[f"{name}_share"] == pytest.approx(row[name] / row["change"])
            assert 0 < row[f"{name}_share_lo"] < row[f"{name}_share"] < row[f"{name}_share_hi"]


def test_of_a_change_that_may_be_none_there_is_no_share() -> None:
    tables = tables_of(frame_of([{"r": [0.5] * 4, "step": step} for step in range(1, 31)]))
    sequences = tables.sequences.with_columns(unit=pl.col("seq"))
    found = exposure_intensity(tables.cells, sequences, split_steps(list(range(1, 31)), 3), pair="a/b", inverse="b/a")
    assert found["change"].to_list() == [0, 0, 0, 0]
    assert found.select("tool_share", "tool_share_lo", "tool_share_hi").null_count().row(0) == (4, 4, 4)


def test_one_token_that_holds_half_of_the_sum_is_said() -> None:
    rows = [{"r": [0.1] * 29 + ([8.0] if step == 20 else [0.1]), "step": step} for step in range(1, 22)]
    tables = tables_of(frame_of(rows))
    sequences = tables.sequences.with_columns(unit=pl.col("seq"))
    windows = split_steps(list(range(1, 22)), 3)
    found = exposure_intensity(tables.cells, sequences, windows, pair="a/b", inverse="b/a")
    assert found["dominated"].to_list() == [True, False, False, False]
    assert found["top_sequence_late"][0] > found["top_token_late"][0] > 0.99
    assert found["top_token_late"][2] == pytest.approx(100 / (100 + 209 * np.exp(0.2)), rel=1e-3)


def test_too_few_steps_have_no_split_or_no_interval() -> None:
    tables = tables_of(frame_of([{"r": [0.5, 1.0], "step": step} for step in (1, 2, 3)]))
    sequences = tables.sequences.with_columns(unit=pl.col("seq"))
    one = exposure_intensity(tables.cells, sequences, split_steps([1], 3), pair="a/b", inverse="b/a")
    assert one.is_empty()
    few = exposure_intensity(tables.cells, sequences, split_steps([1, 2, 3], 3), pair="a/b", inverse="b/a")
    assert few["change_lo"].null_count() == 2  # cut weights are redrawn by steps, of which a window has one
    assert few["m_tool_early"].null_count() == 4


def test_redrawing_keeps_units_whole_and_is_repeatable() -> None:
    values = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0]])
    block = np.array([0, 0, 1, 1])
    drawn = resample_units(values, block, seed=1)
    assert drawn.shape == (DRAWS, 2)
    assert (drawn[:, 1] == 10 * drawn[:, 0]).all()
    assert set(drawn[:, 0]) <= {float(total) for total in range(4, 17)}
    assert drawn[:, 0].mean() == pytest.approx(10, rel=0.05)
    assert (resample_units(values, block, seed=1) == drawn).all()
