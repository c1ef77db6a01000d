"""The bench of a watch: its intervals, its runs, and that it tells healthy ones from others."""

import math

import numpy as np
import pytest

from benchmarks.fixed_limits import RIVALS, first_stop
from benchmarks.watch_calibration import METRICS, exact_interval, watch
from benchmarks.watch_runs import FAULTS, healthy, planted

SEED = 200_000


@pytest.mark.parametrize(("count", "total"), [(0, 600), (1, 600), (7, 40), (40, 40)])
def test_the_interval_is_where_the_binomial_tails_are_a_fortieth(count: int, total: int) -> None:
    low, high = exact_interval(count, total)

    def tail(share: float, hits: range) -> float:
        return sum(math.comb(total, k) * share**k * (1 - share) ** (total - k) for k in hits)

    assert low == 0.0 if count == 0 else tail(low, range(count, total + 1)) == pytest.approx(0.025, rel=1e-6)
    assert high == 1.0 if count == total else tail(high, range(count + 1)) == pytest.approx(0.025, rel=1e-6)


def test_healthy_runs_go_to_their_end() -> None:
    assert all(watch(healthy(SEED + number)).stopped is None for number in range(3))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_large_fault_is_stopped_after_it_began(fault: str) -> None:
    told = watch(planted(SEED, fault, 8.0))
    assert not told.early
    assert told.stopped is not None


def test_the_rules_with_fixed_limits_stop_what_they_say() -> None:
    made = planted(SEED, "kl", 4.0)
    series = {name: np.array([step.metrics[name] for step in made.steps]) for name in METRICS}
    assert first_stop(RIVALS[1], series, len(made.steps), made.onset or 0) is not None
