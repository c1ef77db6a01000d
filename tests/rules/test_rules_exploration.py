"""Entropy and length: each rule by what the reward did meanwhile."""

from __future__ import annotations

import numpy as np
import pytest
from builders import evidence_of
from rule_cases import broken, healthy, judged, jump, level, not_judged, wander

from ptt.diagnostics.model import Severity
from ptt.diagnostics.rules.reward_outcome import Outcome, outcome
from ptt.diagnostics.verdict.run_rules import aggregates_of

REWARDS = {
    Outcome.FELL: {"reward/mean": jump(0.8, 0.1)},
    Outcome.FLAT: {"reward/mean": level(0.5)},
    Outcome.ROSE: {"reward/mean": jump(0.3, 0.9)},
    Outcome.TOO_FEW: {"reward/mean": level(0.5, 9)},
    Outcome.UNKNOWN: {},
}
BY_OUTCOME = [
    (Outcome.FELL, Severity.HIGH),
    (Outcome.FLAT, Severity.MEDIUM),
    (Outcome.ROSE, Severity.LOW),
    (Outcome.TOO_FEW, Severity.LOW),
    (Outcome.UNKNOWN, Severity.LOW),
]


@pytest.mark.parametrize("reward", list(Outcome))
def test_what_the_reward_did_is_told_from_its_beginning(reward: Outcome) -> None:
    assert outcome(evidence_of(metrics=REWARDS[reward])) is reward


def test_a_reward_that_rose_slowly_rose_and_one_that_lost_a_third_fell() -> None:
    assert outcome(evidence_of(metrics={"reward/mean": np.linspace(0.2, 0.9, 200) * level(1.0, 200)})) is Outcome.ROSE
    assert outcome(evidence_of(metrics={"reward/mean": jump(0.9, 0.6)})) is Outcome.FELL
    assert outcome(evidence_of(metrics={"reward/mean": -jump(0.9, 0.3)})) is Outcome.ROSE  # penalties, getting fewer


@pytest.mark.parametrize(("reward", "severity"), BY_OUTCOME)
def test_entropy_that_rises_matters_by_the_reward(reward: Outcome, severity: Severity) -> None:
    broken(judged("entropy-explosion", {"entropy": jump(0.3, 1.2)} | REWARDS[reward]), severity=severity, near=51)


def test_rewards_that_are_too_few_after_a_change_are_not_called_missing() -> None:
    moved = {"length-collapse": ("len/response_mean", 200, 40), "entropy-explosion": ("entropy", 0.3, 1.2)}
    for rewards, claim in ((level(0.5, 305), "too few rewards are logged"), (np.empty(0), "no reward is logged")):
        for rule, (metric, before, after) in moved.items():
            metrics = {metric: jump(before, after, at=300, count=400), "reward/mean": rewards}
            assert claim in broken(judged(rule, metrics), severity=Severity.LOW).claim


@pytest.mark.parametrize(("reward", "severity"), BY_OUTCOME)
def test_length_that_falls_matters_by_the_reward(reward: Outcome, severity: Severity) -> None:
    metrics = {"len/response_mean": jump(200, 40)} | REWARDS[reward]
    broken(judged("length-collapse", metrics), severity=severity, near=51)


@pytest.mark.parametrize(("reward", "severity"), BY_OUTCOME)
def test_entropy_that_is_gone_matters_by_the_reward(reward: Outcome, severity: Severity) -> None:
    broken(judged("entropy-collapse", {"entropy": jump(0.5, 0.005)} | REWARDS[reward]), severity=severity, near=60)


def test_entropy_that_fades_is_medium_only_beside_a_reward_that_stands_far_from_its_top() -> None:
    fading = {"entropy": np.geomspace(0.5, 0.002, 200)}
    broken(judged("entropy-collapse", fading | {"reward/mean": np.linspace(0.2, 0.8, 200)}), severity=Severity.LOW)
    broken(judged("entropy-collapse", fading | {"reward/mean": level(0.8, 200)}), severity=Severity.LOW)
    broken(judged("entropy-collapse", fading | {"reward/mean": level(0.5, 200)}), severity=Severity.MEDIUM)


def test_entropy_may_go_where_every_answer_is_right() -> None:
    solved = {"reward/mean": np.minimum(np.linspace(0.3, 2.0, 200), 0.99), "entropy": np.geomspace(0.5, 0.002, 200)}
    assert "solved" in healthy(judged("entropy-collapse", solved)).reason


def test_entropy_that_lost_nearly_all_of_what_it_began_with_is_gone_above_the_fixed_floor() -> None:
    found = broken(judged("entropy-collapse", {"entropy": jump(2.5, 0.03), "reward/mean": jump(0.6, 0.1)}))
    assert found.severity is Severity.HIGH
    healthy(judged("entropy-collapse", {"entropy": jump(0.6, 0.03), "reward/mean": jump(0.6, 0.1)}))


def test_an_entropy_of_densities_is_not_held_against_a_floor() -> None:
    assert "densities" in not_judged(judged("entropy-collapse", {"entropy": level(-30.0)})).reason


@pytest.mark.parametrize("low", [3, 8, 19, 30])
def test_entropy_that_drops_to_nothing_at_the_end_is_told_before_the_mean_shows_it(low: int) -> None:
    entropy = jump(0.4, 0.002, at=200 - low, count=200)
    for reward in ({}, {"reward/mean": level(0.6, 200)}, {"reward/mean": np.linspace(0.2, 0.9, 200)}):
        found = broken(judged("entropy-collapse", {"entropy": entropy} | reward), severity=Severity.MEDIUM)
        assert found.onset_step == 201 - low
    lost = {"reward/mean": jump(0.8, 0.1, at=200 - low, count=200)}
    broken(judged("entropy-collapse", {"entropy": entropy} | lost), severity=Severity.HIGH)
    alarms = aggregates_of(
        evidence_of(metrics={"entropy": entropy}), [judged("entropy-collapse", {"entropy": entropy})]
    )
    assert alarms.status == "alarming"


def test_a_low_batch_a_low_level_and_a_slow_fade_are_no_drop_at_the_end() -> None:
    noise = np.exp(0.4 * wander(3, count=200, likeness=0.6))
    dips = 0.4 * noise
    dips[-2:] = 0.001
    healthy(judged("entropy-collapse", {"entropy": dips}))
    healthy(judged("entropy-collapse", {"entropy": np.where(np.arange(200) < 40, 0.3, 0.03) * noise}))
    healthy(judged("entropy-collapse", {"entropy": np.geomspace(0.4, 0.025, 200) * noise}))


def test_ordinary_movements_pass() -> None:
    for values in (level(0.3), jump(0.05, 0.15), jump(0.3, 0.5), np.r_[level(0.3, 40), level(2, 20), level(0.3, 60)]):
        healthy(judged("entropy-explosion", {"entropy": values} | REWARDS[Outcome.FELL]))
    for values in (level(100), jump(100, 70), jump(100, 300), np.r_[level(90, 40), level(9, 20), level(90, 60)]):
        healthy(judged("length-collapse", {"len/response_mean": values} | REWARDS[Outcome.FELL]))


def test_too_few_values_are_not_judged() -> None:
    for rule, name in (("entropy-explosion", "entropy"), ("length-collapse", "len/response_mean")):
        not_judged(judged(rule, {name: level(1.0, 29)}))
        not_judged(judged(rule, {name: np.full(100, np.nan)}))


def test_an_entropy_that_stays_high_matters_where_nothing_is_learnt() -> None:
    high = {"entropy": level(3.0)}
    broken(judged("entropy-high", high | {"reward/mean": level(0.05)}), severity=Severity.LOW)
    healthy(judged("entropy-high", high | {"reward/mean": jump(0.05, 0.6)}))
    healthy(judged("entropy-high", {"entropy": level(0.8), "reward/mean": level(0.05)}))
    healthy(judged("entropy-high", {"entropy": np.linspace(3.5, 2.2, 100), "reward/mean": level(0.05)}))
    assert "no reward" in not_judged(judged("entropy-high", high)).reason


def test_answers_that_shrink_at_once_are_dated_by_the_step_at_which_they_do() -> None:
    found = broken(judged("length-collapse", {"len/response_mean": jump(380.0, 120.0, at=60, count=120)}))
    assert found.onset_step == 61
