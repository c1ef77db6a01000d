"""The levels before and after a change are measured before and after it, wherever in a run it comes."""

from __future__ import annotations

import numpy as np
import pytest
from builders import Array, series_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rule_cases import broken, judged

from ptt.diagnostics.evidence.baseline_shift import change_since_best, change_since_start, lasting_fall, lasting_rise
from ptt.diagnostics.model import Severity

BEFORE, AFTER, SD = 0.9, 0.2, 0.04
WITHIN = 0.08  # of a level: four standard errors of the mean of five such values, and what a best window gains


def drawn(levels: Array, seed: int) -> Array:
    noisy: Array = levels + SD * np.random.default_rng(seed).normal(size=len(levels))
    return noisy


def step_at(place: int, count: int) -> Array:
    return np.where(np.arange(count) < place, BEFORE, AFTER)


@settings(max_examples=40, deadline=None)
@given(count=st.integers(40, 400), share=st.floats(0.0, 1.0), seed=st.integers(0, 1000), rises=st.booleans())
@example(count=60, share=0.0, seed=261, rises=False)  # the first value after the step lies 2.7 SD above its level
def test_levels_beside_a_step(count: int, share: float, seed: int, *, rises: bool) -> None:
    place = 6 + round(share * (count - 18))  # six values before it and twelve after it at least
    values = drawn(step_at(place, count), seed)
    before, after, values = (-BEFORE, -AFTER, -values) if rises else (BEFORE, AFTER, values)
    series = series_of("made", values)
    changes = [change_since_start(series)] if rises else [change_since_start(series), change_since_best(series)]
    for change in changes:
        assert change is not None
        if change.onset is not None:
            assert change.start == pytest.approx(before, abs=WITHIN)
            assert change.late == pytest.approx(after, abs=WITHIN)
    shift = lasting_rise(series, floor=-np.inf) if rises else lasting_fall(series, ceiling=np.inf)
    if shift is not None and not shift.ended:
        assert shift.early == pytest.approx(before, abs=WITHIN)
        assert shift.last == pytest.approx(after, abs=WITHIN)


@pytest.mark.parametrize("count", [60, 120, 300])
@pytest.mark.parametrize("ramp", [0.3, 0.45, 0.6])
def test_the_level_after_a_ramp_is_near_its_end(count: int, ramp: float) -> None:
    length = round(ramp * count)
    for plateau in (0, count // 5):  # values after it
        begin = count - length - plateau
        levels = BEFORE + (AFTER - BEFORE) * np.clip((np.arange(count) - begin + 1) / length, 0.0, 1.0)
        for seed in range(5):
            change = change_since_best(series_of("made", drawn(levels, seed)))
            assert change is not None
            assert change.onset is not None
            assert change.late == pytest.approx(AFTER, abs=(BEFORE - AFTER) / 3)


def test_wild_values_date_no_change() -> None:
    values = drawn(step_at(60, 120), seed=1)
    values[118], values[30] = 1.5, -0.5
    change = change_since_best(series_of("made", values))
    assert change is not None
    assert change.start == pytest.approx(BEFORE, abs=WITHIN)
    assert change.late == pytest.approx(AFTER + (1.5 - AFTER) / 20, abs=WITHIN)  # one in twenty of the last window


def test_a_fall_in_the_middle_of_sixty_values_is_as_severe_as_it_is() -> None:
    """Over the last forty of the values the mean would be 0.43, and the fall one of medium severity."""
    reward = series_of("reward/mean", drawn(step_at(30, 60), seed=2), steps=list(range(2, 122, 2)))
    finding = broken(judged("reward-fell", {"reward/mean": reward}))
    assert finding.severity is Severity.HIGH
    assert finding.evidence["best"] == pytest.approx(BEFORE, abs=WITHIN)
    assert finding.evidence["last"] == pytest.approx(AFTER, abs=WITHIN)


@pytest.mark.parametrize("left", [12, 30])
def test_a_level_past_a_given_limit_is_that_after_it_was_passed(left: int) -> None:
    """Twelve values above the limit at the end of sixty are no mean of twenty with eight that lie below it."""
    kl = np.concatenate([np.full(60 - left, 0.1), np.full(left, 9.0)])
    finding = broken(judged("kl-over-target", {"kl/ref": kl}))
    assert finding.evidence["last_mean"] == pytest.approx(9.0)
