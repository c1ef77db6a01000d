"""Which model tokens stand after an observation, against a plain loop."""

from __future__ import annotations

import numpy as np
import pytest
from builders import frame_of, repeatable, tables_of
from hypothesis import given
from hypothesis import strategies as st

from ptt.diagnostics.statistics.slices import ModelRuns, model_runs

Masks = list[list[bool]]


def runs_of(masks: Masks, shortest: list[int]) -> ModelRuns:
    offsets = np.cumsum([0, *map(len, masks)])
    flat = np.array([token for mask in masks for token in mask], np.bool_)
    return model_runs(flat, offsets, np.array(shortest, np.int64))


def by_hand(mask: list[bool], shortest: int) -> tuple[list[int], int]:
    """Give for each model token whether it stands after an observation, and their number."""
    slices: list[int] = []
    seen = gap = 0
    for token in mask:
        if not token:
            gap += 1
            continue
        if slices and gap >= shortest:
            seen += 1
        gap = 0
        slices.append(int(seen > 0))
    return slices, seen


rows = st.lists(
    st.tuples(
        st.lists(st.tuples(st.booleans(), st.integers(1, 6)), max_size=7).map(
            lambda runs: [token for token, length in runs for _ in range(length)]
        ),
        st.integers(1, 6),
    ),
    max_size=6,
)


@repeatable
@given(rows)
def test_slices_are_those_of_a_plain_loop_over_the_tokens(case: list[tuple[list[bool], int]]) -> None:
    found = runs_of([mask for mask, _ in case], [shortest for _, shortest in case])
    wanted = [by_hand(mask, shortest) for mask, shortest in case]
    assert found.observations.tolist() == [seen for _, seen in wanted]
    for number, (slices, _) in enumerate(wanted):
        mine = found.row == number
        assert np.repeat(found.post[mine], found.length[mine]).tolist() == slices


@pytest.mark.parametrize(
    ("mask", "shortest", "post", "observations"),
    [
        ("mmmoooommm", 4, "000111", 1),
        ("mmmooommm", 4, "000000", 0),  # too short to be an observation without proof
        ("mmmooommm", 1, "000111", 1),
        ("oooommm", 1, "000", 0),  # a prompt, not an observation
        ("mmmoooo", 1, "000", 0),  # nothing follows
        ("mooooomooooom", 4, "011", 2),
        ("moomooooom", 4, "001", 1),
        ("oooo", 1, "", 0),
        ("", 1, "", 0),
    ],
)
def test_an_observation_is_a_long_enough_gap_with_model_tokens_on_both_sides(
    mask: str, shortest: int, post: str, observations: int
) -> None:
    found = runs_of([[token == "m" for token in mask]], [shortest])
    assert np.repeat(found.post, found.length).tolist() == [int(digit) for digit in post]
    assert found.observations.tolist() == [observations]


def test_a_gap_that_two_rows_share_is_no_observation() -> None:
    ends, starts = [True, True, False, False, False], [False, False, False, True, True]
    found = runs_of([ends, starts, [], ends], [1, 1, 1, 1])
    assert found.post.tolist() == [0, 0, 0]
    assert found.row.tolist() == [0, 1, 3]
    assert found.observations.tolist() == [0, 0, 0, 0]


def test_a_row_that_names_its_tools_needs_no_long_gap_and_one_without_tools_has_none() -> None:
    short_gap = [True, False, True, True]
    long_gap = [True, *[False] * 9, True, True]
    rows = [
        {"model_mask": mask, "r": [0.5] * len(mask), "tool_count": count}
        for mask, count in ((short_gap, 1), (short_gap, None), (long_gap, 0), (long_gap, None))
    ]
    tables = tables_of(frame_of(rows))
    assert tables.rows["n_obs"].to_list() == [1, 0, 0, 1]
    held = {(row["seq"], row["slice"]): row["n"] for row in tables.sequences.to_dicts()}
    assert held == {(0, 0): 1, (0, 1): 2, (1, 0): 3, (2, 0): 3, (3, 0): 1, (3, 1): 2}


def test_the_shortest_observation_is_the_callers_to_set() -> None:
    frame = frame_of([{"model_mask": [True, False, False, True], "r": [0.5] * 4}])
    assert tables_of(frame, min_observation=2).rows["n_obs"].to_list() == [1]
    assert tables_of(frame, min_observation=3).rows["n_obs"].to_list() == [0]
