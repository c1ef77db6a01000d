"""Student's t against scipy."""

from __future__ import annotations

import math

import pytest
from builders import repeatable
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ptt.diagnostics.statistics.group_difference import t_quantile, t_survival

FREEDOM = st.floats(0.5, 5000)


@repeatable
@given(t=st.floats(-1e4, 1e4), freedom=FREEDOM)
def test_probability_is_scipys(t: float, freedom: float) -> None:
    wanted = stats.t.sf(t, freedom)
    assert t_survival(t, freedom) == pytest.approx(wanted, rel=1e-7, abs=1e-300)


@repeatable
@given(share=st.floats(1e-6, 0.5), freedom=st.floats(1, 5000))
def test_quantile_is_scipys(share: float, freedom: float) -> None:
    assert t_quantile(share, freedom) == pytest.approx(stats.t.isf(share, freedom), rel=1e-6, abs=1e-9)


def test_freedom_without_end_is_the_normal() -> None:
    assert t_survival(1.7, math.inf) == pytest.approx(stats.norm.sf(1.7))
    assert t_quantile(0.025, math.inf) == pytest.approx(stats.norm.isf(0.025))


def test_what_is_no_number_gives_none() -> None:
    assert math.isnan(t_survival(math.nan, 3))
    assert math.isnan(t_survival(1.0, 0))
    assert math.isnan(t_survival(1.0, math.nan))
    assert math.isnan(t_quantile(0.0, 3))
    assert math.isinf(t_quantile(1e-6, 0.5))  # lies too far out to mean anything
