"""Departures from a run's own early behaviour: noise passes for none, real ones are dated."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from builders import series_of
from scipy.signal import lfilter

from ptt.diagnostics.evidence.baseline_shift import (
    MAX_POINTS,
    MIN_VALUES,
    lasting_fall,
    lasting_rise,
    ranked_rise,
    step_noise,
)
from ptt.diagnostics.evidence.series import condense

pytestmark = pytest.mark.slow

Array = npt.NDArray[np.float64]


def noise(seed: int, count: int, likeness: float) -> Array:
    """An AR(1) of unit variance, begun in its long run."""
    drawn = np.random.default_rng(seed).normal(size=count + 200) * np.sqrt(1 - likeness**2)
    found: Array = lfilter([1.0], [1.0, -likeness], drawn)[200:]
    return found


@pytest.mark.parametrize("count", [60, 200, 700])
@pytest.mark.parametrize("likeness", [0.0, 0.5, 0.8])
def test_noise_is_no_departure(count: int, likeness: float) -> None:
    found = 0
    for seed in range(100):
        series = series_of("made", np.exp(0.5 * noise(seed, count, likeness)))
        found += lasting_rise(series, floor=0.0) is not None
        found += lasting_fall(series, ceiling=np.inf) is not None
    assert found <= (6 if count == 60 and likeness == 0.8 else 2)  # of 200 questions


@pytest.mark.parametrize(("likeness", "least"), [(0.3, 96), (0.8, 60)])
def test_a_doubled_level_is_found_and_dated(likeness: float, least: int) -> None:
    late = []
    for seed in range(100):
        values = np.exp(0.2 * noise(seed, 700, likeness))
        values[350:] *= 2
        found = lasting_rise(series_of("made", values), floor=0.0)
        late += [] if found is None else [found.onset - 351]
    assert len(late) >= least
    assert -5 <= float(np.median(late)) <= 20


def test_a_fall_is_the_mirror_of_a_rise() -> None:
    values = 5 + 0.2 * noise(3, 400, 0.3)
    values[200:] -= 2
    fell = lasting_fall(series_of("made", values), ceiling=9.0)
    rose = lasting_rise(series_of("made", -values), floor=-9.0)
    assert fell is not None
    assert rose is not None
    assert (fell.onset, fell.interval) == (rose.onset, rose.interval)
    assert fell.extreme == pytest.approx(-rose.extreme)
    assert fell.early == pytest.approx(5, abs=0.2)
    assert fell.last == pytest.approx(3, abs=0.2)
    assert not fell.ended


def test_what_came_back_is_said_to_have_ended() -> None:
    values = np.where((np.arange(600) >= 200) & (np.arange(600) < 400), 10.0, 1.0) + 0.05 * noise(1, 600, 0.0)
    found = lasting_rise(series_of("made", values), floor=0.0)
    assert found is not None
    assert found.ended
    assert found.ratio == pytest.approx(10, rel=0.05)


def test_floor_factor_and_margin_hold_a_rise_back() -> None:
    values = np.where(np.arange(400) >= 200, 0.2, 0.1) * np.exp(0.05 * noise(2, 400, 0.0))
    series = series_of("made", values)
    assert lasting_rise(series, floor=0.0) is not None
    assert lasting_rise(series, floor=0.5) is None
    assert lasting_rise(series, floor=0.0, factor=3.0) is None
    assert lasting_rise(series, floor=0.0, margin=0.3) is None


def test_too_short_a_series_gives_none() -> None:
    values = np.r_[np.ones(MIN_VALUES // 2), np.full(MIN_VALUES // 2 - 1, 100.0)]
    assert lasting_rise(series_of("made", values), floor=0.0) is None
    assert lasting_fall(series_of("made", -values), ceiling=0.0) is None


@pytest.mark.parametrize("likeness", [0.3, 0.6, 0.8])
def test_noise_is_measured_whatever_trend_lies_under_it(likeness: float) -> None:
    values = 3.0 * noise(5, 20_000, likeness) + np.linspace(0, 50, 20_000)
    values[8000:] += 40
    spread, found = step_noise(values)
    assert spread == pytest.approx(3.0, rel=0.05)
    assert found == pytest.approx(likeness, abs=0.05)


def test_a_long_series_is_judged_by_the_means_of_blocks() -> None:
    values = np.random.default_rng(0).normal(size=3 * MAX_POINTS + 1)
    values[7] = np.nan
    small = condense(series_of("made", values), MAX_POINTS)
    assert small.count == len(values)
    assert small.steps[~np.isfinite(small.values)].tolist() == [8]
    steps, means = small.finite()
    assert len(means) <= MAX_POINTS
    finite = np.delete(values, 7)
    size = -(-len(finite) // MAX_POINTS)
    blocks = [finite[start : start + size] for start in range(0, len(finite), size)]
    np.testing.assert_allclose(means, [block.mean() for block in blocks], atol=1e-12)
    assert steps[-1] == len(values)


def test_a_few_nan_in_a_long_series_do_not_make_it_lost() -> None:
    values = np.ones(100_000)
    values[::50] = np.nan  # two in a hundred: more points than the blocks that are left
    assert not condense(series_of("made", values), 1000).lost
    values[::4] = np.nan
    assert condense(series_of("made", values), 1000).lost


@pytest.mark.parametrize("at", [14, 19, 24])
def test_a_rise_of_few_values_is_found_by_their_ranks(at: int) -> None:
    drawn = 0.3 * noise(at, 38, 0.0) + np.where(np.arange(38) < at, 0.0, 0.95)
    rise = ranked_rise(series_of("x", drawn), floor=0.5, margin=0.4)
    assert rise is not None
    assert abs(rise.onset - (at + 1)) <= 2
    assert ranked_rise(series_of("x", drawn[:20]), floor=0.5) is None
    assert ranked_rise(series_of("x", drawn), floor=1.5) is None


def test_few_values_of_noise_do_not_rise_by_their_ranks() -> None:
    found = [ranked_rise(series_of("x", noise(seed, 38, 0.3)), floor=-9.0) for seed in range(400)]
    assert sum(rise is not None for rise in found) <= 4
