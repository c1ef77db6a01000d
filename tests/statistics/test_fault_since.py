"""Since when a fault holds: windows against their promises, stretches against trying every one, steps against truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptt.diagnostics.statistics.change_point import SUPPORT_NATS
from ptt.diagnostics.statistics.fault_since import (
    FaultSpan,
    cut_windows,
    fault_span,
    locate_fault,
    weigh_counts,
    weigh_values,
    window_numbers,
)
from ptt.diagnostics.statistics.windows import Span

STEPS = st.lists(st.integers(0, 30), min_size=1, max_size=60)
WEIGHED = st.lists(st.tuples(st.integers(0, 12), st.sampled_from([-4.0, -1.0, 0.5, 2.0, math.nan])), max_size=25)


@given(STEPS, st.integers(1, 20), st.integers(1, 8))
def test_windows_hold_enough_are_few_and_cover_every_step(steps: list[int], least: int, most: int) -> None:
    of = np.array(steps)
    windows = cut_windows(of, least=least, most=most)
    held = np.bincount(window_numbers(of, windows), minlength=len(windows))
    assert 1 <= len(windows) <= most
    assert held.sum() == len(steps)
    assert len(windows) == 1 or held.min() >= max(least, len(steps) / most)
    for window, number in zip(windows, range(len(windows)), strict=True):
        inside = of[window_numbers(of, windows) == number]
        assert (inside.min(), inside.max()) == (window.first, window.last)


def test_no_sequences_make_no_window_and_no_fault() -> None:
    nothing = np.empty(0, np.int64)
    assert cut_windows(nothing) == ()
    assert fault_span(nothing, np.empty(0)) is None
    assert locate_fault(nothing, np.empty(0), (), ()) is None


@given(WEIGHED)
def test_the_stretch_is_the_best_of_all(weighed: list[tuple[int, float]]) -> None:
    steps = np.array([step for step, _ in weighed], dtype=np.int64)
    weights = np.array([weight for _, weight in weighed])
    distinct = np.unique(steps).tolist()
    of = {step: float(np.nansum(weights[steps == step])) for step in distinct}
    sums = {
        (one, two): sum(of[step] for step in distinct if one <= step <= two)
        for one in distinct
        for two in distinct
        if one <= two
    }
    found = fault_span(steps, weights)
    best = max(sums.values(), default=0.0)
    if best <= 0:
        assert found is None
        return
    assert found is not None
    assert sums[found.since, found.until] == pytest.approx(best)
    assert (found.from_start, found.to_end) == (found.since == distinct[0], found.until == distinct[-1])
    starts = [one for one in distinct if one <= found.until and sums[one, found.until] >= best - SUPPORT_NATS]
    ends = [two for two in distinct if two >= found.since and sums[found.since, two] >= best - SUPPORT_NATS]
    before = [step for step in distinct if step < starts[0]]
    after = [step for step in distinct if step > ends[-1]]
    assert found.since_interval == (before[-1] + 1 if before else distinct[0], starts[-1])
    assert found.until_interval == (ends[0], after[0] - 1 if after else distinct[-1])


def test_unrecorded_steps_before_the_first_faulty_one_are_in_its_interval() -> None:
    found = fault_span(np.array([10, 20, 30, 40]), np.array([-9.0, -9.0, 9.0, 9.0]))
    assert found == FaultSpan(
        since=30, since_interval=(21, 30), until=40, until_interval=(40, 40), from_start=False, to_end=True
    )


@given(st.integers(0, 2**32), st.integers(3, 37), st.integers(3, 37))
def test_a_fault_is_placed_to_the_step(seed: int, one: int, two: int) -> None:
    first, last = sorted((one, two))
    generator = np.random.default_rng(seed)
    steps = np.repeat(np.arange(41), 8)
    wrong = (steps >= first) & (steps <= last)
    values = np.where(wrong, 1.0, 0.0) + generator.normal(0, 0.1, len(steps))
    values[generator.random(len(steps)) < 0.1] = math.nan
    windows = cut_windows(steps)
    share = [wrong[window_numbers(steps, windows) == number].mean() for number in range(len(windows))]
    faulty = [one > 0.5 for one in share]
    if len(set(faulty)) < 2:
        return
    found = locate_fault(steps, values, windows, faulty)
    assert found is not None
    assert (found.since, found.until) == (first, last)
    assert found.since_interval == (first, first)


def test_a_fault_of_all_windows_holds_from_the_first_step_to_the_last() -> None:
    found = locate_fault(np.array([1, 2, 3]), np.zeros(3), (Span(1, 3),), (True,))
    assert found is not None
    assert found.from_start
    assert found.to_end


def test_values_that_do_not_tell_the_kinds_apart_leave_the_windows() -> None:
    steps, windows = np.arange(30), (Span(0, 9), Span(10, 19), Span(20, 29))
    found = locate_fault(steps, np.zeros(30), windows, (False, True, True))
    assert found is not None
    assert (found.since, found.since_interval, found.until) == (10, (0, 19), 29)
    assert locate_fault(steps, np.zeros(30), windows, (False, None, False)) is None


def test_a_wild_value_weighs_no_more_than_one_at_the_median() -> None:
    sound = np.array([True, True, True, False, False, False])
    values = np.array([0.0, 0.1, -0.1, 1.0, 1.1, 0.9])
    usual = weigh_values(values, sound, ~sound)
    wild = weigh_values(np.array([0.0, 0.1, -0.1, 1.0, 1.1, 1e9]), sound, ~sound)
    assert (usual[~sound] > 0).all()
    assert (usual[sound] < 0).all()
    assert wild[5] == pytest.approx(wild[4])


@given(st.integers(0, 20), st.integers(0, 20), st.floats(0.01, 0.4), st.floats(0.5, 0.99))
def test_counts_weigh_as_binomial_likelihoods_do(hits: int, misses: int, sound: float, faulty: float) -> None:
    found = weigh_counts(np.array([float(hits)]), np.array([float(hits + misses)]), sound, faulty)[0]
    expected = hits * math.log(faulty / sound) + misses * math.log((1 - faulty) / (1 - sound))
    assert found == pytest.approx(expected)
    assert weigh_counts(np.array([1.0]), np.array([1.0]), 0.0, 1.0)[0] == pytest.approx(math.log(999))
