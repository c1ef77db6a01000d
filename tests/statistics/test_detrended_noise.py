"""A line is that of least squares, and what it leaves of noise is what drawn noise shows."""

from __future__ import annotations

import numpy as np
import pytest
from builders import repeatable
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import lfilter
from slow_cases import first_fast

from ptt.diagnostics.statistics.small_sample import AR1_GRID, fit_line, residual_moments


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=200))
@repeatable
def test_the_line_is_that_of_least_squares(values: list[float]) -> None:
    held, position = np.array(values), np.arange(len(values))
    found, (slope, start) = fit_line(held), np.polyfit(position, held, 1)
    size = float(np.abs(held).max()) + 1e-9
    assert found.slope == pytest.approx(slope, abs=1e-9 * size)
    assert np.allclose(found.residual, held - start - slope * position, atol=1e-9 * size)
    assert found.squares == pytest.approx(np.square(found.residual).sum())


@pytest.mark.parametrize("likeness", first_fast([0.0, 0.4, 0.8], 2))
@pytest.mark.parametrize("count", [20, 26])
def test_what_a_line_leaves_of_noise_is_what_made_noise_shows(likeness: float, count: int) -> None:
    rng = np.random.default_rng(4)
    made = lfilter([np.sqrt(1 - likeness**2)], [1, -likeness], rng.normal(size=(40_000, 60 + count)))[:, 60:]
    steps = np.arange(count)
    slope, start = np.polyfit(steps, made.T, 1)
    rests = made - start[:, None] - slope[:, None] * steps
    left = residual_moments(count)
    squares, of_mean, freedom = left.at(likeness)
    seen = np.square(rests).sum(axis=1)
    neighbours = float(np.interp(likeness, AR1_GRID, left.neighbours))
    assert seen.mean() == pytest.approx(squares, rel=0.05)
    assert (rests[:, 1:] * rests[:, :-1]).sum(axis=1).mean() == pytest.approx(neighbours, rel=0.05, abs=0.1)
    assert made.mean(axis=1).var() == pytest.approx(of_mean, rel=0.1)
    assert 2 * seen.mean() ** 2 / seen.var() == pytest.approx(freedom, rel=0.12)


def test_white_noise_loses_two_degrees_of_freedom() -> None:
    squares, of_mean, freedom = residual_moments(30).at(0.0)
    assert (squares, of_mean, freedom) == pytest.approx((28.0, 1 / 30, 28.0))
