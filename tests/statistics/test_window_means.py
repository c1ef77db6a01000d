"""Means over windows, and whether their errors hold for noise that follows itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from builders import repeatable
from hypothesis import given
from hypothesis import strategies as st
from measured_runs import SHAPES, ar1

from ptt.diagnostics.statistics.autocorrelated_mean import window_means
from ptt.diagnostics.statistics.group_difference import t_quantile
from ptt.diagnostics.statistics.windows import Span

WINDOWS = (Span(1, 40), Span(41, 80), Span(81, 120))


@repeatable
@given(
    values=st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), min_size=120, max_size=120),
)
def test_mean_and_count_are_those_of_the_finite_values(values: list[float]) -> None:
    held = np.array(values)
    for found, part in zip(window_means(np.arange(1, 121), held, WINDOWS), np.split(held, 3), strict=True):
        finite = part[np.isfinite(part)]
        assert found.n == len(finite)
        assert found.mean == pytest.approx(finite.mean(), rel=1e-9, abs=1e-6) if found.n else math.isnan(found.mean)
        assert not found.error < 0


@pytest.mark.slow
@pytest.mark.parametrize("likeness", [0.0, 0.4, 0.8])
@pytest.mark.parametrize("shape", list(SHAPES))
def test_interval_holds_the_true_late_mean(likeness: float, shape: str) -> None:
    rng = np.random.default_rng(7)
    base = SHAPES[shape](np.linspace(0, 1, 120))
    held = 0
    for _ in range(300):
        found = window_means(np.arange(1, 121), base + 0.2 * ar1(rng, 120, likeness), WINDOWS)[2]
        held += abs(found.mean - base[80:].mean()) < t_quantile(0.025, found.freedom) * found.error
    assert held / 300 >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 300)


def test_error_of_a_long_window_is_that_of_its_blocks() -> None:
    values = np.random.default_rng(1).normal(size=12_000)
    found = window_means(np.arange(12_000), values, (Span(0, 11_999),))[0]
    assert found.error == pytest.approx(1 / math.sqrt(12_000), rel=0.6)
    assert found.scatter == pytest.approx(1.0, rel=0.03)


def test_too_few_values_have_a_mean_and_no_error() -> None:
    found = window_means(np.arange(5), np.arange(5.0), (Span(0, 4),))[0]
    assert found.mean == 2.0
    assert math.isnan(found.error)
    assert found.freedom == 0


def test_a_line_has_no_noise_and_a_constant_no_error() -> None:
    flat = window_means(np.arange(30), np.full(30, 0.25), (Span(0, 29),))[0]
    assert (flat.mean, flat.error) == (0.25, 0.0)
    line = window_means(np.arange(30), np.arange(30.0), (Span(0, 29),))[0]
    assert line.error == pytest.approx(0.0, abs=1e-9)


def test_an_empty_window_has_no_mean() -> None:
    found = window_means(np.arange(30), np.arange(30.0), (Span(50, 60),))[0]
    assert math.isnan(found.mean)
    assert found.n == 0
