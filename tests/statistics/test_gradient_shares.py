"""Shares of an update, how concentrated it is, and what a guard takes, against loops and closed forms."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from ptt.diagnostics.statistics.gradient_shares import (
    Attribute,
    Contributions,
    effective_number,
    heaviest,
    part_taken,
    same_for_each_step,
    score_factors,
    share_holding,
    shares_by,
)

RNG = np.random.default_rng(5)
SIZE = RNG.exponential(1.0, 400) ** 2
SIGN = np.where(RNG.random(400) < 0.4, -1.0, 1.0)
TAKEN = RNG.random(400)
WINDOW = np.repeat([0, 1], 200)
CODE = RNG.integers(-1, 15, 400)
HELD = Contributions(size=SIZE, signed=SIZE * SIGN, kl=SIZE / 4, masked=TAKEN, truncated=TAKEN / 2, clipped=TAKEN / 4)
NAMES = [f"v{number}" for number in range(15)]


def test_the_heaviest_tokens_are_the_fewest_that_hold_half() -> None:
    held, count = 0.0, 0
    for size in sorted(SIZE.tolist(), reverse=True):
        if held >= SIZE.sum() / 2:
            break
        held, count = held + size, count + 1
    assert share_holding(SIZE) == pytest.approx(count / 400)
    marked = heaviest(SIZE)
    assert marked.sum() == count
    assert SIZE[marked].min() >= SIZE[~marked].max()


def test_equal_tokens_hold_half_with_half_of_them_and_count_one_each() -> None:
    assert share_holding(np.ones(10)) == 0.5
    assert effective_number(np.ones(10)) == pytest.approx(10)
    assert effective_number(np.array([1.0, 0.0, 0.0])) == pytest.approx(1)
    assert math.isnan(share_holding(np.zeros(3)))
    assert math.isnan(effective_number(np.zeros(3)))
    assert not heaviest(np.zeros(3)).any()


def test_each_step_counts_the_same() -> None:
    step = np.repeat([0, 1, 2], [100, 250, 50])
    scaled = same_for_each_step(SIZE, SIZE, step)
    assert [scaled[step == one].sum() for one in range(3)] == pytest.approx([1, 1, 1])
    assert same_for_each_step(np.ones(2), np.zeros(2), np.array([0, 0])).tolist() == [1.0, 1.0]


def test_shares_agree_with_sums_of_single_tokens() -> None:
    table = shares_by(HELD, [Attribute("tool name", CODE, NAMES)], WINDOW, ("early", "late"))
    for window, chosen in (("early", WINDOW == 0), ("late", WINDOW == 1), ("all", WINDOW >= 0)):
        rows = table.filter(pl.col("window") == window)
        assert rows["share"].sum() == pytest.approx(1)
        assert rows["token_share"].sum() == pytest.approx(1)
        assert rows["tokens"].sum() == chosen.sum()
        assert rows["rest"].to_list() == [False] * 10 + [True]
        for row in rows.filter(~pl.col("rest")).iter_rows(named=True):
            code = -1 if row["value"] is None else NAMES.index(row["value"])
            own = chosen & np.isin(CODE, code)
            whole = SIZE[own].sum() + 1.75 * TAKEN[own].sum()
            assert row["share"] == pytest.approx(SIZE[own].sum() / SIZE[chosen].sum())
            assert row["signed"] == pytest.approx((SIZE * SIGN)[own].sum() / SIZE[chosen].sum())
            assert row["kl_share"] == pytest.approx(0.25)
            assert row["masked"] == pytest.approx(TAKEN[own].sum() / whole)
            assert row["clipped"] == pytest.approx(TAKEN[own].sum() / 4 / whole)
            assert row["lift"] == pytest.approx(row["share"] / row["token_share"])


def test_factors_of_scores_are_found_from_gradient_norms() -> None:
    squares = RNG.exponential(1.0, (60, 3)) * np.array([1.0, 4.0, 0.5])
    true = np.array([2.0, 3.0, 8.0])
    norm = np.sqrt(squares @ true**2)
    assert score_factors(squares, norm) == pytest.approx(true, rel=0.05)
    noisy = norm * np.exp(0.2 * RNG.normal(size=60))
    assert score_factors(squares, noisy) == pytest.approx(true, rel=0.4)
    absent = np.column_stack([squares, np.zeros(60)])
    assert np.isfinite(score_factors(absent, norm)).all()


def test_a_guard_takes_between_what_the_scores_norms_allow() -> None:
    after = np.where(TAKEN < 0.3, 0.0, np.where(TAKEN < 0.6, SIZE / 2, SIZE))
    bounds = part_taken(SIZE, after, math.sqrt(2))
    for _ in range(200):
        norm = RNG.uniform(1, math.sqrt(2), 400)
        taken = 1 - (norm * after).sum() / (norm * SIZE).sum()
        assert bounds.low <= taken <= bounds.high
    same = part_taken(SIZE, after, 1.0)
    assert same.low == pytest.approx(same.high) == pytest.approx(1 - after.sum() / SIZE.sum())
    assert part_taken(SIZE, np.zeros(400), math.sqrt(2)).low == pytest.approx(1)
    grown = part_taken(SIZE, 2 * SIZE, math.sqrt(2))
    assert grown.low <= -1 <= grown.high < 0
    assert math.isnan(part_taken(np.zeros(2), np.zeros(2), 1.4).low)
