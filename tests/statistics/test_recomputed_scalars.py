"""Reductions of flat tokens, against plain loops over rows."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from ptt.diagnostics.statistics.recomputed_scalars import (
    Layout,
    RowSums,
    by_row,
    clamped_k3,
    constant_factor,
    fit,
    group_spreads,
    k3,
    mixed,
    one_a_row,
    padded,
    part_mean,
    resolution_of,
    sequence_mean,
    sequence_sum,
    spread,
    step_high,
    step_low,
    step_sum,
    sum_rows,
    token_mean,
    tolerance_of,
)

LENGTHS = [4, 0, 7, 3, 5, 6, 2]  # rows of two steps: three and four; one has no token
FIRSTS = np.array([0, 3])
STEPS = [range(3), range(3, 7)]


@pytest.fixture(name="case")
def made() -> tuple[np.ndarray, np.ndarray, Layout, RowSums]:
    """Give values and mask of the tokens, the layout of the rows, and their sums."""
    generator = np.random.default_rng(3)
    values = generator.normal(size=sum(LENGTHS))
    values[2] = np.nan
    counted = generator.random(len(values)) < 0.7
    layout = Layout(firsts=FIRSTS, lengths=np.array(LENGTHS))
    starts = np.append(0, np.cumsum(LENGTHS))
    counts = by_row(np.add, counted.astype(int), starts, 0.0)
    return values, counted, layout, sum_rows(values, counted, starts, counts, ends=True)


def tokens(case: tuple[np.ndarray, np.ndarray, Layout, RowSums], row: int) -> list[float]:
    values, counted, _, _ = case
    start = sum(LENGTHS[:row])
    places = range(start, start + LENGTHS[row])
    return [float(values[at]) for at in places if counted[at] and math.isfinite(values[at])]


def of_step(case: tuple[np.ndarray, np.ndarray, Layout, RowSums], step: int) -> Iterator[list[float]]:
    return (tokens(case, row) for row in STEPS[step])


def test_means_and_sums_are_those_of_loops(case: tuple[np.ndarray, np.ndarray, Layout, RowSums]) -> None:
    _, _, layout, sums = case
    for step in range(2):
        rows = list(of_step(case, step))
        every = [value for row in rows for value in row]
        held = [row for row in rows if row]
        assert token_mean(sums, layout)[step] == pytest.approx(sum(every) / len(every))
        assert step_sum(sums, layout)[step] == pytest.approx(sum(every))
        assert sequence_sum(sums, layout)[step] == pytest.approx(sum(every) / len(rows))
        assert sequence_mean(sums, layout)[step] == pytest.approx(sum(sum(row) / len(row) for row in held) / len(held))
        assert step_low(sums, layout)[step] == min(every)
        assert step_high(sums, layout)[step] == max(every)


def test_padding_counts_up_to_the_longest_row_of_a_step(case: tuple[np.ndarray, np.ndarray, Layout, RowSums]) -> None:
    _, _, layout, sums = case
    means = token_mean(padded(sums, layout.padding, 0.5), layout)
    for step in range(2):
        longest = max(LENGTHS[row] for row in STEPS[step])
        every = [value for row in of_step(case, step) for value in row]
        every += [0.5 for row in STEPS[step] for _ in range(longest - LENGTHS[row])]
        assert means[step] == pytest.approx(sum(every) / len(every))


def test_a_mean_of_parts_weighs_each_part_alike(case: tuple[np.ndarray, np.ndarray, Layout, RowSums]) -> None:
    _, _, layout, sums = case
    parts = layout.equal_parts(2)
    assert parts.tolist() == [0, 0, 1, 0, 0, 1, 1]
    second = [tokens(case, row) for row in STEPS[1]]
    halves = [[*second[0], *second[1]], [*second[2], *second[3]]]
    means = [sum(half) / len(half) for half in halves if half]
    assert part_mean(sums, layout, parts)[1] == pytest.approx(sum(means) / len(means))
    weights = np.array([1.0, 1.0, 1.0, 2.0, 3.0, 4.0, 5.0])  # of a step's second half: 9, of its first 5
    weighed = part_mean(sums, layout, parts, weights)[1]
    assert weighed == pytest.approx((5 * means[0] + 9 * means[1]) / 14 if all(halves) else means[0])


def test_other_sums_take_the_place_of_some_rows(case: tuple[np.ndarray, np.ndarray, Layout, RowSums]) -> None:
    _, _, layout, sums = case
    other = one_a_row(np.arange(7.0))
    there = np.array([False, False, True, False, False, False, True])
    both = mixed(sums, other, there)
    assert both.total[2] == 2.0
    assert both.count[6] == 1.0
    assert both.total[0] == sums.total[0]
    assert token_mean(both, layout)[0] == pytest.approx((sum(tokens(case, 0)) + 2.0) / (len(tokens(case, 0)) + 1))


def test_spreads_are_numpys(case: tuple[np.ndarray, np.ndarray, Layout, RowSums]) -> None:
    _, _, layout, _ = case
    rewards = np.array([0.0, 1.0, 0.5, 2.0, 2.0, 0.0, 1.0])
    for ddof in (0, 1):
        found = spread(one_a_row(rewards), one_a_row(rewards**2), layout, ddof=ddof)
        assert found == pytest.approx([rewards[:3].std(ddof=ddof), rewards[3:].std(ddof=ddof)])
        spreads, count = group_spreads(rewards, np.array([0, 0, 1, 1, 1, 2, 2]), ddof=ddof)
        assert spreads == pytest.approx([rewards[part].std(ddof=ddof) for part in (slice(2), slice(2, 5), slice(5, 7))])
        assert count.tolist() == [2, 3, 2]


def test_a_step_without_a_counted_token_has_no_mean() -> None:
    counted, starts = np.array([False, False, True]), np.array([0, 2, 3])
    sums = sum_rows(np.array([1.0, 2.0, 3.0]), counted, starts, np.array([0.0, 1.0]), ends=True)
    layout = Layout(firsts=np.array([0, 1]), lengths=np.array([2, 1]))
    assert np.isnan(token_mean(sums, layout)[0])
    assert np.isnan(step_high(sums, layout)[0])
    assert token_mean(sums, layout)[1] == 3.0


def test_k3_is_schulmans_and_clamps_far_out() -> None:
    r = np.array([0.3, -0.5, 1e-9])
    assert k3(r) == pytest.approx([math.exp(-x) - 1 + x for x in r], abs=1e-15)
    assert clamped_k3(np.array([-30.0]))[0] == 10.0
    assert np.isfinite(k3(np.array([-1e4]))).all()


def test_a_log_of_three_decimals_is_told_from_one_of_floats() -> None:
    assert resolution_of(np.array([0.123, 0.5, 2.25])) == pytest.approx(1e-3)
    assert resolution_of(np.array([3.0, 14.0])) == 0.0
    assert resolution_of(np.array([1 / 3])) == 0.0


def test_a_ratios_distance_to_one_scales_its_tolerance() -> None:
    logged = np.array([1.001])
    near = tolerance_of(logged, centre=1.0, resolution=0.0, floor=0.0)
    assert near[0] < 3e-6
    assert not fit(np.array([1.0005]), logged, near, centre=1.0).agrees[0]
    assert fit(np.array([1.001001]), logged, near, centre=1.0).agrees[0]
    assert not fit(np.array([np.nan]), logged, near, centre=1.0).agrees[0]


def test_a_constant_factor_needs_values_that_differ_to_be_telling() -> None:
    values = np.array([0.1, 0.2, 0.4, 0.3])
    found = constant_factor(values, 4 * values, resolution=0.0, share=0.9)
    assert found is not None
    assert found.factor == pytest.approx(4.0)
    assert found.telling
    level = constant_factor(np.full(4, 0.2), np.full(4, 0.7), resolution=0.0, share=0.9)
    assert level is not None
    assert not level.telling
    assert constant_factor(values, np.array([0.4, 0.1, 0.3, 0.2]), resolution=0.0, share=0.9) is None
