"""The grid that numbers lie on is told from the numbers alone."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.data_faults import rounded
from ptt.diagnostics.statistics.fill_values import Grid, grid_of

LOGPROBS = -np.random.default_rng(4).exponential(1.0, 2000)


@pytest.mark.parametrize(
    ("precision", "name", "decimals"),
    [("bfloat16", "bfloat16", 0), ("float16", "float16", 0), ("four decimals", "decimals", 4)],
)
def test_a_coarse_type_is_named(precision: str, name: str, decimals: int) -> None:
    grid = grid_of(rounded(LOGPROBS, precision))
    assert grid is not None
    assert (grid.name, grid.decimals, grid.share) == (name, decimals, 1.0)


def test_float32_and_few_or_tiny_numbers_have_no_grid_that_could_be_told() -> None:
    assert grid_of(LOGPROBS.astype(np.float32)) is None
    assert grid_of(np.full(10, -0.5, np.float32)) is None
    assert grid_of(-np.arange(1000, dtype=np.float32) * 2**-24) is None


@pytest.mark.parametrize("value", [-0.02, -0.3, -1.1, -1.7, -9.0])
def test_the_spacing_is_that_of_neighbouring_numbers(value: float) -> None:
    half = np.float16(value)
    assert Grid("float16").spacing(float(half)) == pytest.approx(abs(float(np.spacing(half))))
    assert Grid("bfloat16").spacing(value) == 8 * Grid("float16").spacing(value)
    assert Grid("decimals", 3).spacing(value) == pytest.approx(1e-3)
