"""Cutting the recorded steps of a run."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
import pytest
from builders import repeatable
from hypothesis import given
from hypothesis import strategies as st

from ptt.diagnostics.statistics.windows import (
    Span,
    bursts,
    join_spans,
    label_spans,
    sliding_windows,
    split_steps,
    whole_periods,
)

steps_strategy = st.lists(st.integers(0, 10_000), unique=True, min_size=1, max_size=60).map(sorted)


@repeatable
@given(steps_strategy, st.integers(1, 50))
def test_parts_hold_every_step_once_and_differ_by_at_most_one_step(steps: list[int], count: int) -> None:
    spans = split_steps(steps, count)
    held = [[step for step in steps if span.first <= step <= span.last] for span in spans]
    assert [step for part in held for step in part] == steps
    assert len(spans) == min(count, len(steps))
    assert max(map(len, held)) - min(map(len, held)) <= 1
    assert all(part[0] == span.first and part[-1] == span.last for part, span in zip(held, spans, strict=True))


def test_without_steps_there_are_no_parts() -> None:
    assert split_steps([], 3) == ()
    assert sliding_windows([], width=3, stride=1) == ()


@repeatable
@given(steps_strategy, st.integers(1, 20), st.integers(1, 20))
def test_sliding_windows_have_one_width_and_reach_the_last_step(steps: list[int], width: int, stride: int) -> None:
    spans = sliding_windows(steps, width=width, stride=stride)
    assert spans[0].first == steps[0]
    assert spans[-1].last == steps[-1]
    places = [(steps.index(span.first), steps.index(span.last)) for span in spans]
    assert all(last - first + 1 == min(width, len(steps)) for first, last in places)
    gaps = [after[0] - before[0] for before, after in pairwise(places)]
    assert all(gap == stride for gap in gaps[:-1])
    assert all(1 <= gap <= stride for gap in gaps[-1:])


def test_label_gives_each_row_its_span_and_drops_rows_between_them() -> None:
    frame = pl.DataFrame({"step": [9, 1, 4, 5, 6, 10, 20, 21]})
    spans = (Span(1, 4), Span(6, 9), Span(20, 20))
    found = label_spans(frame, spans, name="span")
    assert found["step"].to_list() == [9, 1, 4, 6, 20]
    assert found["span"].to_list() == [1, 0, 0, 1, 2]


@pytest.mark.parametrize(("steps", "spans"), [([], (Span(1, 2),)), ([1, 2], ())])
def test_label_without_rows_or_spans_gives_no_rows(steps: list[int], spans: tuple[Span, ...]) -> None:
    found = label_spans(pl.DataFrame({"step": steps}, schema={"step": pl.Int64}), spans, name="span")
    assert found.columns == ["step", "span"]
    assert found.is_empty()


@repeatable
@given(st.lists(st.integers(-1, 30), max_size=40), st.lists(st.integers(0, 30), unique=True, max_size=8), st.booleans())
def test_rows_in_the_order_of_steps_are_labelled_as_rows_in_any_order(
    steps: list[int], ends: list[int], ordered: bool
) -> None:
    bounds = sorted(ends)
    spans = tuple(Span(first, last - 1) for first, last in pairwise(bounds)) if len(bounds) % 3 else ()
    frame = pl.DataFrame({"step": pl.Series(sorted(steps) if ordered else steps, dtype=pl.Int64)}).with_row_index()
    expected = [
        (row, step, at)
        for row, step in frame.iter_rows()
        for at, span in enumerate(spans)
        if span.first <= step <= span.last
    ]
    labelled = label_spans(frame, spans, name="part")
    assert labelled.rows() == expected
    assert labelled.schema["part"] == pl.Int32


def test_the_middle_of_a_span_lies_between_its_ends() -> None:
    assert Span(3, 8).middle == 5.5


def test_a_recorder_that_changed_its_spacing_has_single_steps_not_one_long_burst() -> None:
    steps = [*range(1, 41), *range(48, 129, 8)]
    assert len(bursts(steps)) == len(steps)
    assert join_spans(bursts(steps), 5) == split_steps(steps, 5)
    assert bursts([1, 2, 9, 10, 17]) == (Span(1, 2), Span(9, 10), Span(17, 17))
    assert bursts([]) == ()


def test_whole_periods_end_before_the_next_one_and_a_begun_one_is_left_out() -> None:
    steps = list(range(1, 131))
    assert whole_periods(steps, (51, 101)) == (Span(1, 50), Span(51, 100))
    assert whole_periods(steps[:148], (41, 81, 121)) == (Span(1, 40), Span(41, 80), Span(81, 120))
    assert whole_periods(list(range(1, 160)), (41, 81, 121))[-1] == Span(121, 159)  # nearly whole
    assert whole_periods(steps, ()) == (Span(1, 130),)
    spans = whole_periods(list(range(1, 161)), (41, 81, 121))
    assert join_spans(spans, 3) == (Span(1, 80), Span(81, 120), Span(121, 160))
