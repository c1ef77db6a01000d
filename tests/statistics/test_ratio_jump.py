"""Two accounts of one quantity: where they part it is found at its step, and sound ones hardly ever part."""

from __future__ import annotations

import numpy as np
import pytest
from slow_cases import first_fast

from ptt.diagnostics.statistics.level_jump import RatioJump, find_ratio_jump

Array = np.ndarray
ESTIMATORS = ("k3", "k2", "size", "a sequence", "times beta")


def course(generator: np.random.Generator, count: int) -> Array:
    """Give a KL that stands, climbs, settles or leaps, under AR(1) noise."""
    u = np.linspace(0, 1, count)
    forms = (
        np.ones(count),
        1 + 15 * u,
        np.maximum(1 - np.exp(-u / 0.1), 1e-3),
        np.exp(3 * np.clip((u - 0.5) / 0.1, 0, 1)),
        np.where(u < 0.6, 1.0, 5.0),
    )
    noise, push = np.zeros(count), generator.normal(size=count)
    for at in range(1, count):
        noise[at] = 0.7 * noise[at - 1] + 0.7 * push[at]
    form = forms[int(generator.integers(len(forms)))]
    return np.asarray(generator.uniform(0.005, 0.2) * form * np.exp(generator.uniform(0.05, 0.3) * noise))


def accounts(seed: int, estimator: str, *, share: float = 1.0) -> tuple[Array, dict[str, tuple[Array, float]]]:
    """Give what a trainer logs of heavy-tailed log-ratios, and the estimates of a dump that holds a share of them."""
    generator = np.random.default_rng(seed)
    count = int(generator.integers(16, 200))
    scale = np.sqrt(2 * course(generator, count))
    tokens = int(generator.integers(300, 3000))
    length = 60 * np.exp(0.1 * generator.normal(size=count))
    r = np.clip(generator.standard_t(4, (count, tokens)) * scale[:, None], -12, 6)
    dumped = r[:, : max(50, int(share * tokens))]

    def estimates(of: Array) -> dict[str, Array]:
        k3 = np.mean(np.expm1(-of) + of, axis=1)
        return {"k3": k3, "k2": np.mean(of**2, axis=1) / 2, "size": np.abs(of).mean(axis=1), "a sequence": k3 * length}

    powers = {"k3": 1.0, "k2": 1.0, "size": 0.5, "a sequence": 1.0}
    logged = estimates(r) | {"times beta": 0.001 * estimates(r)["k3"]}
    return logged[estimator], {name: (values, powers[name]) for name, values in estimates(dumped).items()}


def jump_of(logged: Array, measures: dict[str, tuple[Array, float]]) -> RatioJump | None:
    return find_ratio_jump(np.arange(1, len(logged) + 1), logged, measures)


def off_by(measures: dict[str, tuple[Array, float]], factor: float, at: int) -> dict[str, tuple[Array, float]]:
    return {
        name: (np.where(np.arange(len(values)) >= at, values * factor**power, values), power)
        for name, (values, power) in measures.items()
    }


@pytest.mark.parametrize("estimator", first_fast(ESTIMATORS))
@pytest.mark.parametrize("share", [1.0, 0.2])
def test_sound_accounts_do_not_part_whatever_is_logged(estimator: str, share: float) -> None:
    parted = [seed for seed in range(25) if jump_of(*accounts(seed, estimator, share=share)) is not None]
    assert len(parted) <= 1


@pytest.mark.parametrize("estimator", first_fast(ESTIMATORS, 2))
def test_a_measure_that_is_off_from_a_step_on_is_found_there(estimator: str) -> None:
    right = 0
    for seed in range(20):
        logged, measures = accounts(seed, estimator)
        at = len(logged) * 2 // 3
        jump = jump_of(logged, off_by(measures, 50.0, at))
        if jump is not None and abs(jump.span.since - (at + 1)) <= 1:
            right += 1
            assert jump.measured_moved
            assert jump.span.since_interval[0] <= jump.span.since <= jump.span.since_interval[1]
    assert right >= 15


def test_copies_up_to_a_step_are_what_is_off() -> None:
    logged, measures = accounts(3, "k3")
    third = len(logged) // 3
    copied = {name: (np.where(np.arange(len(v)) < third, 0.0, v), power) for name, (v, power) in measures.items()}
    jump = jump_of(logged, copied)
    assert jump is not None
    assert (jump.span.since, jump.span.until) == (1, third)
    assert jump.span.from_start


def test_a_kl_that_leaps_in_both_is_no_parting() -> None:
    logged, measures = accounts(5, "k3")
    at = len(logged) // 2
    leap = np.where(np.arange(len(logged)) >= at, 40.0, 1.0)
    assert jump_of(logged * leap, off_by(measures, 40.0, at)) is None


def test_a_report_that_follows_some_steps_later_is_no_parting() -> None:
    count = np.arange(80)
    noise = np.exp(0.05 * np.random.default_rng(1).normal(size=80))
    measured, logged = (0.05 * np.where(count >= at, 30.0, 1.0) * noise for at in (40, 46))
    assert jump_of(logged, {"k3": (measured, 1.0)}) is None


def test_a_drift_of_the_ratio_is_no_jump() -> None:
    logged, measures = accounts(7, "k3")
    ramp = np.exp(3.0 * np.linspace(0, 1, len(logged)))
    assert jump_of(logged, {name: (values * ramp**power, power) for name, (values, power) in measures.items()}) is None


def test_a_report_that_moves_alone_is_told_from_a_measure_that_does() -> None:
    logged, measures = accounts(5, "k3")
    at = len(logged) // 2
    jump = jump_of(np.where(np.arange(len(logged)) >= at, 20 * logged, logged), measures)
    assert jump is not None
    assert not jump.measured_moved


def test_a_run_of_many_steps_is_searched_in_parts() -> None:
    noise = np.exp(0.05 * np.random.default_rng(2).normal(size=9_000))
    measured = 0.02 * noise * np.where(np.arange(9_000) >= 6_000, 12.0, 1.0)
    jump = jump_of(0.02 * noise, {"k3": (measured, 1.0)})
    assert jump is not None
    assert abs(jump.span.since - 6_001) <= 9
