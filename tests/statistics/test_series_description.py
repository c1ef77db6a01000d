"""What is said of a series: sizes by simulation, power, and every figure held against a calculation of its own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from measured_runs import ar1
from scipy import stats
from slow_cases import first_fast

from ptt.diagnostics.statistics.series_description import SeriesDescription, describe

Array = np.ndarray[Any, Any]
DRAWS = 1000


def drawn(count: int, likeness: float, draws: int = DRAWS) -> Array:
    rng = np.random.default_rng(count)
    return np.array([ar1(rng, count, likeness) for _ in range(draws)])


def missed(described: list[SeriesDescription], truth: Array | float) -> float:
    """Return the share of intervals that do not hold what they are of."""
    truths = np.broadcast_to(truth, len(described)).tolist()
    held = [
        one.change is not None and one.change[0] <= t <= one.change[1] for one, t in zip(described, truths, strict=True)
    ]
    return 1 - float(np.mean(held))


def moved(described: list[SeriesDescription]) -> float:
    return float(np.mean([one.movement in {"rose", "fell"} for one in described]))


@pytest.mark.parametrize("count", first_fast([5, 6, 8, 10, 12, 16, 20, 30, 60, 100, 300, 1000], 3))
def test_white_noise_moves_in_one_of_a_hundred_and_its_interval_holds_in_95(count: int) -> None:
    described = describe(drawn(count, 0.0))
    assert missed(described, 0.0) <= 0.065
    assert moved(described) <= 0.02


@pytest.mark.parametrize(
    ("count", "likeness", "most"),
    [(100, 0.3, 0.05), (100, 0.6, 0.08), (300, 0.6, 0.05), (1000, 0.9, 0.05), (20, 0.3, 0.1)],
)
def test_an_interval_allows_for_values_that_are_like_those_before(count: int, likeness: float, most: float) -> None:
    assert missed(describe(drawn(count, likeness)), 0.0) <= most


def test_of_a_walk_the_interval_holds_how_far_it_went() -> None:
    rng = np.random.default_rng(3)
    walks = rng.normal(size=(DRAWS, 200)).cumsum(axis=1)
    went = walks[:, -40:].mean(axis=1) - walks[:, :40].mean(axis=1)
    assert missed(describe(walks + rng.normal(size=walks.shape)), went) <= 0.05


@pytest.mark.parametrize("count", first_fast([10, 30, 100, 1000], 2))
def test_of_a_step_the_interval_holds_its_size(count: int) -> None:
    values = drawn(count, 0.0) + np.where(np.arange(count) < count // 2, 0.0, 3.0)
    described = describe(values)
    assert missed(described, 3.0) <= 0.065
    assert moved(described) >= (0.6 if count < 20 else 0.9)


@pytest.mark.parametrize(("count", "sds"), [(10, 4.4), (30, 2.2), (100, 1.5), (1000, 0.5)])
def test_what_is_told_from_noise(count: int, sds: float) -> None:
    """The size of a steady rise over the run that is said in four of five runs, in standard deviations of a value."""
    ramp = np.linspace(0.0, sds * (2.0 if count < 20 else 1.5 if count < 60 else 1.25), count)
    described = describe(drawn(count, 0.0) + ramp)
    assert np.mean([one.movement == "rose" for one in described]) >= 0.8


def test_a_few_rows_say_where_they_began_and_ended() -> None:
    (one,) = describe(np.array([[0.3, 0.5, 0.4]]))
    assert (one.first, one.last, one.low, one.high, one.high_at) == (0.3, 0.4, 0.3, 0.5, 1)
    assert one.change is None
    assert one.movement == "cannot_say"
    (alone,) = describe(np.array([[0.3]]))
    assert (alone.first, alone.last, alone.change) == (0.3, 0.3, None)


def test_a_constant_is_flat_and_a_schedule_moves_without_doubt() -> None:
    constant, ramp = describe(np.array([np.full(50, 0.1), np.linspace(0.0, 1e-5, 50)]))
    assert (constant.movement, constant.change, constant.bound) == ("flat", (0.0, 0.0), None)
    assert ramp.movement == "rose"


def test_what_happens_in_the_first_rows_is_seen() -> None:
    """An entropy that falls within four rows of a hundred, and a reward that is learnt as fast."""
    rng = np.random.default_rng(5)
    fall = 0.8 * np.exp(-np.arange(100) / 1.5) + 0.002 * rng.random(100)
    learnt = 1 - 0.35 * np.exp(-np.arange(100) / 1.5) + 0.004 * rng.normal(size=100)
    assert [one.movement for one in describe(np.array([fall, learnt]))] == ["fell", "rose"]


@pytest.mark.parametrize("wild", [19.4, 400.0])
def test_a_wild_first_value_hides_no_course(wild: float) -> None:
    rng = np.random.default_rng(6)
    loss = 3 - 2 * np.linspace(0, 1, 30) ** 0.5 + 0.05 * rng.normal(size=30)
    loss[0] = wild
    (one,) = describe(loss[None])
    assert one.movement == "fell"
    assert one.turn is None
    assert (one.noise or math.inf) < 0.5


def test_a_course_that_comes_back_turned_where_it_was_farthest() -> None:
    rng = np.random.default_rng(7)
    steps = np.linspace(-1, 1, 100)
    up, down = 1 - steps**2, steps**2 + 0.3 * steps
    described = describe(np.array([up, down]) + 0.02 * rng.normal(size=(2, 100)))
    assert [one.turn is not None and 40 <= (one.turn_at or 0) <= 60 for one in described] == [True, True]
    assert sum(one.turn is not None for one in describe(drawn(100, 0.3))) <= 10


def test_a_change_is_dated_where_it_lasts() -> None:
    rng = np.random.default_rng(8)
    step = np.where(np.arange(200) < 130, 0.0, 1.0) + 0.2 * rng.normal(size=200)
    (one,) = describe(step[None])
    assert one.changed_at == pytest.approx(130, abs=2)
    assert one.changed_interval is not None
    assert one.changed_interval[0] <= 130 <= one.changed_interval[1]
    still, over = describe(np.array([np.linspace(0, 1, 200), np.minimum(1, np.linspace(0, 3, 200))]))
    assert (still.still_moving, over.still_moving) == (True, False)


def test_spikes_zeros_and_bounds_are_counted() -> None:
    rng = np.random.default_rng(9)
    spiky = 1 + 0.01 * rng.normal(size=100)
    spiky[[20, 60]] = 5.0
    (one,) = describe(spiky[None])
    assert one.spikes == 2
    sparse = np.zeros(100)
    sparse[::8] = 0.4
    full = np.minimum(1.0, np.linspace(0.2, 2.0, 100))
    zero, bounded = describe(np.array([sparse, full]))
    assert zero.at_zero == pytest.approx(0.87)
    assert bounded.bound == 1.0
    assert bounded.at_bound == pytest.approx(0.56)


def test_a_spread_that_vanishes_is_measured() -> None:
    rng = np.random.default_rng(10)
    (one,) = describe((rng.normal(size=100) * np.linspace(1, 0.01, 100))[None])
    assert (one.spread_left or math.inf) < 0.25


def reference_interval(values: list[float]) -> tuple[float, float] | None:
    """Calculate the change and its interval anew, for courses that are straight within each end."""
    count = len(values)
    length = 0 if count < 4 else count // 2 if count < 20 else count // 3 if count < 60 else count // 5
    if not length:
        return None
    ends = [values[:length], values[-length:]]
    means = [sum(end) / length for end in ends]
    line = 1 if length < 6 else 2
    design = np.vander(np.arange(length), line)
    off = np.eye(length) - design @ np.linalg.pinv(design)
    residuals = [off @ np.array(end) for end in ends]
    if line == 1:
        variances, freedom = short_variances(values, residuals, length)
    else:
        variances, freedom = long_variances(off, residuals, length)
    table = stats.t.ppf(0.975, max(1, min(22, math.floor(freedom + 1e-9))))
    reach = float(table) * math.sqrt(sum(variances))
    return means[1] - means[0] - reach, means[1] - means[0] + reach


def short_variances(values: list[float], residuals: list[Array], length: int) -> tuple[list[float], float]:
    count = len(values)
    fit = stats.linregress(np.arange(count), values)
    about = np.array(values) - fit.intercept - fit.slope * np.arange(count)
    raw = sum(a * b for a, b in zip(about[1:], about[:-1], strict=True)) / sum(a * a for a in about)
    likeness = min(max(raw + (1 + 3 * raw) / count, 0.0), 0.8)
    freedom = 2 * (length - 1)
    pooled = sum(float(r @ r) for r in residuals) / freedom
    variance = pooled / length * (1 + likeness) / (1 - likeness)
    return [variance, variance], freedom


def long_variances(off: Array, residuals: list[Array], length: int) -> tuple[list[float], float]:
    grid = np.linspace(0.0, 0.95, 39)
    lag = np.abs(np.subtract.outer(np.arange(length), np.arange(length)))
    noises = [np.where(lag == 0, 1.0, likeness**lag) for likeness in grid]
    covered = [off @ noise @ off for noise in noises]
    squares = np.array([np.trace(one) for one in covered])
    table = np.array([np.trace(one, offset=1) for one in covered]) / squares
    freedoms = np.array([np.trace(one) ** 2 / np.trace(one @ one) for one in covered])
    shown = np.mean([float(r[1:] @ r[:-1]) / float(r @ r) for r in residuals])
    likeness = float(np.interp(shown, table, grid))
    if length >= 12:
        slope = max(1.0, float(np.interp(likeness, grid, np.gradient(grid, table))))
        likeness = min(0.95, likeness + slope * math.sqrt((1 - likeness**2) / (2 * length)))
    else:
        likeness = min(0.8, likeness)
    of_mean = np.interp(likeness, grid, [noise.mean() for noise in noises])
    variances = [float(r @ r) / np.interp(likeness, grid, squares) * of_mean for r in residuals]
    freedom = np.interp(likeness, grid, freedoms)
    return variances, freedom * sum(variances) ** 2 / sum(v * v for v in variances)


@pytest.mark.parametrize("seed", range(100))
def test_each_figure_is_that_of_a_plain_calculation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.choice([3, 4, 5, 7, 9, 12, 15, 19, 20, 31, 45, 59, 60, 100, 140]))
    values = [
        ar1(rng, count, float(rng.choice([0.0, 0.3, 0.6]))) * 0.1 + float(rng.normal()),
        ar1(rng, count, 0.2) + np.linspace(0, float(rng.normal()), count),
        np.where(np.arange(count) < count // 2, 0.0, 0.5) + ar1(rng, count, 0.3),
    ][seed % 3].tolist()
    (one,) = describe(np.array([values]))
    low = high = 0
    for at, value in enumerate(values):
        low, high = (at if value < values[low] else low), (at if value > values[high] else high)
    assert (one.first, one.last, one.count) == (values[0], values[-1], count)
    assert (one.low, one.low_at, one.high, one.high_at) == (values[low], low, values[high], high)
    expected = reference_interval(values)
    if expected is None:
        assert one.change is None
    # Student's t stands in a table of two digits, up to 22 degrees of freedom
    elif one.change != pytest.approx(expected, abs=0.005 * (expected[1] - expected[0])):
        length = len(values) // (2 if len(values) < 20 else 3 if len(values) < 60 else 5)
        first, last = values[:length], values[-length:]  # each value of one lies beyond all of the other
        assert max(first) < min(last) or min(first) > max(last)
        assert one.movement in {"rose", "fell"}


def test_a_series_settles_where_it_arrives_and_not_where_it_drifts_on() -> None:
    rng = np.random.default_rng(20_261_127)
    steps = np.arange(60)
    fallen = 2.0 * np.exp(-steps / 4) + 0.02 * rng.normal(size=60)
    drifting = 3.0 - 0.02 * steps + 0.02 * rng.normal(size=60)
    flat = 1.0 + 0.02 * rng.normal(size=60)
    spiked = fallen.copy()
    spiked[45] = 2.0
    settled, on, never, still = (one.settled_at for one in describe(np.stack([fallen, drifting, flat, spiked])))
    assert settled is not None
    assert 5 <= settled <= 15
    assert (on, never, still) == (None, None, settled)


def test_rare_high_values_that_come_together_are_no_turn() -> None:
    rare = 0.95 + 0.1 * np.random.default_rng(3).random(80)
    rare[[3, 23, 35, 45, 61, 62, 63, 68]] = 3.0  # what few samples earn
    raised = rare.copy()
    raised[30:50] = 3.0
    assert [one.turn is not None for one in describe(np.array([rare, raised]))] == [False, True]
