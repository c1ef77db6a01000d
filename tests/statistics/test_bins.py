"""Bins: where a magnitude falls, and what an edge is."""

from __future__ import annotations

import numpy as np
from builders import repeatable
from hypothesis import given
from hypothesis import strategies as st

from ptt.diagnostics.statistics import bins

EVERY = np.arange(1, bins.OVERFLOW + 1)


def test_edges_rise_from_zero_by_at_most_one_part_in_256() -> None:
    edges = bins.lower_edge(np.arange(bins.OVERFLOW + 1))
    assert edges[0] == 0.0
    assert edges[1] == 2.0**bins.LOWEST_EXPONENT
    assert edges[bins.OVERFLOW] == 2.0**bins.HIGHEST_EXPONENT
    assert (np.diff(edges) > 0).all()
    assert ((np.diff(edges[1:]) / edges[1:-1]) <= bins.WIDTH).all()
    assert bins.WIDTH <= 0.004


def test_a_lower_edge_lies_in_its_bin_and_the_number_below_it_does_not() -> None:
    edges = bins.lower_edge(EVERY)
    assert np.array_equal(bins.bin_of(edges), EVERY)
    assert np.array_equal(bins.bin_of(np.nextafter(edges, 0.0)), EVERY - 1)


@repeatable
@given(st.floats(min_value=2.0**-40, max_value=255.999, exclude_max=True))
def test_a_magnitude_lies_between_the_edges_of_its_bin(magnitude: float) -> None:
    index = int(bins.bin_of(np.array([magnitude]))[0])
    assert bins.lower_edge(index) <= magnitude < bins.lower_edge(index + 1)


def test_what_is_too_small_or_too_large_has_a_bin_of_its_own() -> None:
    small = np.array([0.0, 5e-324, 1e-300, np.nextafter(2.0**-40, 0)])
    large = np.array([256.0, 9999.0, 1e300, np.finfo(np.float64).max])
    assert (bins.bin_of(small) == bins.UNDERFLOW).all()
    assert (bins.bin_of(large) == bins.OVERFLOW).all()


def test_bin_of_writes_where_it_is_told_and_leaves_its_input() -> None:
    magnitude = np.array([0.5, 1.0, 2.0])
    out = np.empty(3, np.int64)
    given_back = bins.bin_of(magnitude, out=out)
    assert given_back is out
    assert magnitude.tolist() == [0.5, 1.0, 2.0]
    assert np.diff(out).tolist() == [bins.PER_OCTAVE, bins.PER_OCTAVE]


def test_coarse_edges_are_fine_edges_and_hold_what_coarse_of_puts_between_them() -> None:
    edges = bins.coarse_edges()
    assert len(edges) == bins.COARSE_COUNT + 1
    assert edges[0] == 0.0
    assert edges[1] == 2.0**bins.COARSE_LOWEST_EXPONENT
    assert edges[-1] == 2.0**bins.HIGHEST_EXPONENT
    coarse = bins.coarse_bin_of(np.arange(bins.OVERFLOW))
    lower, upper = bins.lower_edge(np.arange(bins.OVERFLOW)), bins.lower_edge(EVERY)
    assert (edges[coarse] <= lower).all()
    assert (upper <= edges[coarse + 1]).all()
    assert set(coarse.tolist()) == set(range(bins.COARSE_COUNT))
    assert bins.coarse_bin_of(np.array([bins.OVERFLOW]))[0] == bins.COARSE_COUNT - 1
