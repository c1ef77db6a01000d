"""Distribution functions at bin edges are exact."""

from __future__ import annotations

import numpy as np
import pytest
from builders import frame_of_r, growing, tables_of

from ptt.diagnostics.statistics.percentiles import POINTS_PER_OCTAVE, ecdf

CASES = {
    "a heavy tail": np.random.default_rng(1).standard_t(3, size=5000) * 0.1,
    "one token": np.array([0.37]),
    "tokens on edges": np.array([0.25, 0.5, 0.5, 1.0, 2.0]),
    "zeros among others": np.array([0.0, 0.0, 0.0, 0.125, -3.0]),
    "beyond the last edge": np.array([0.1, 0.2, 999.0]),
    "next to an edge": np.nextafter([1.0, 1.0, 2.0], [0.0, 2.0, 0.0]),
}


@pytest.mark.parametrize("r", CASES.values(), ids=CASES)
def test_at_every_edge_the_function_is_the_exact_share_of_tokens_below_it(
    r: np.typing.NDArray[np.float64],
) -> None:
    found = ecdf(tables_of(frame_of_r(r)).cells, by=["slice"])
    below = np.searchsorted(np.sort(np.abs(r)), found["x"].to_numpy(), side="left")
    assert np.array_equal(found["cdf"].to_numpy(), below / len(r))
    assert (found["n_tokens"] == len(r)).all()


def test_the_edges_stand_eight_an_octave_and_span_all_tokens() -> None:
    r = CASES["a heavy tail"]
    found = ecdf(tables_of(frame_of_r(r)).cells, by=["slice"])
    x, cdf = found["x"].to_numpy(), found["cdf"].to_numpy()
    # eight equal steps within each octave
    mantissa = np.frexp(x)[0] * 2 * POINTS_PER_OCTAVE
    assert np.array_equal(mantissa, np.round(mantissa))
    assert np.unique(np.diff(mantissa) % POINTS_PER_OCTAVE).tolist() == [1.0]
    assert cdf[0] == 0.0
    assert cdf[-1] == 1.0
    assert x[0] <= np.abs(r).min()
    assert x[-1] > np.abs(r).max()
    assert (np.diff(cdf) >= 0).all()


def test_exact_zeros_give_a_function_that_is_one_from_its_first_edge() -> None:
    found = ecdf(tables_of(frame_of_r([0.0, 0.0])).cells, by=["slice"])
    assert found["cdf"].unique().to_list() == [1.0]


def test_groups_are_told_apart() -> None:
    frame = growing(steps=3, sequences=8)
    cells = tables_of(frame).cells
    together = ecdf(cells, by=["step", "slice"])
    for (step, part), group in together.group_by("step", "slice"):
        alone = ecdf(cells.filter((cells["step"] == step) & (cells["slice"] == part)), by=["slice"])
        assert group["x"].to_list() == alone["x"].to_list()
        assert group["cdf"].to_list() == alone["cdf"].to_list()
    assert together.select("step", "slice").n_unique() == 6


def test_no_cells_give_no_points() -> None:
    found = ecdf(tables_of(frame_of_r([0.5])).cells.clear(), by=["slice"])
    assert found.is_empty()
    assert found.columns == ["slice", "x", "cdf", "n_tokens"]
