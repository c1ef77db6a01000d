"""A critic that is wrong: each rule broken, healthy and not judged; without a critic none is asked."""

from __future__ import annotations

import numpy as np
import pytest
from rule_cases import GRPO, PPO, broken, healthy, judged, jump, level, not_judged

from ptt.diagnostics.model import Severity

RULES = ("value-loss-rising", "value-loss-flat", "explained-variance-low", "value-scale")
NAMES = ("critic/value_loss", "critic/explained_variance", "critic/value_mean", "critic/return_mean")
FALLING = np.geomspace(0.09, 0.008, 200)


def test_a_value_loss_that_rises_matters_by_what_the_critic_still_explains() -> None:
    broken(judged("value-loss-rising", {"critic/value_loss": jump(0.1, 0.4)}), severity=Severity.MEDIUM, near=51)
    broken(judged("value-loss-rising", {"critic/value_loss": jump(0.1, 4.0)}), severity=Severity.HIGH)
    follows = {"critic/value_loss": jump(0.1, 4.0), "critic/explained_variance": level(0.6)}
    broken(judged("value-loss-rising", follows), severity=Severity.LOW)
    lost = {"critic/value_loss": jump(0.1, 0.4), "critic/explained_variance": jump(0.6, 0.01)}
    broken(judged("value-loss-rising", lost), severity=Severity.MEDIUM)
    sparse = {"critic/value_loss": jump(0.01, 0.2), "reward/mean": jump(0.02, 0.5)}
    broken(judged("value-loss-rising", sparse), severity=Severity.LOW)
    healthy(judged("value-loss-rising", {"critic/value_loss": FALLING}))
    healthy(judged("value-loss-rising", {"critic/value_loss": np.r_[level(0.1, 40), level(9, 20), level(0.1, 60)]}))
    not_judged(judged("value-loss-rising", {"critic/value_loss": level(0.1, 29)}))


def test_a_value_loss_that_begins_with_the_first_successes_is_no_rise() -> None:
    for late in (0.02, 0.2):
        healthy(judged("value-loss-rising", {"critic/value_loss": np.r_[np.zeros(60), level(late, 60)]}))
    healthy(judged("value-loss-rising", {"critic/value_loss": jump(0.0001, 0.02)}))


def test_a_reward_excuses_no_more_than_its_own_growth() -> None:
    grown = {"critic/value_loss": jump(0.1, 0.8), "reward/mean": jump(0.4, 0.8)}
    broken(judged("value-loss-rising", grown), severity=Severity.MEDIUM, near=51)
    unbounded = {"critic/value_loss": jump(0.1, 0.8), "reward/mean": jump(4.0, 14.0)}
    broken(judged("value-loss-rising", unbounded), severity=Severity.LOW)


def test_a_critic_that_forgot_the_returns_needs_no_floor() -> None:
    small = jump(0.001, 0.008)
    healthy(judged("value-loss-rising", {"critic/value_loss": small}))
    healthy(judged("value-loss-rising", {"critic/value_loss": small, "critic/explained_variance": level(0.02)}))
    forgot = {"critic/value_loss": small, "critic/explained_variance": jump(0.6, 0.01)}
    broken(judged("value-loss-rising", forgot), severity=Severity.MEDIUM, near=51)


def test_a_value_loss_that_never_falls_is_held_against_what_is_explained() -> None:
    flat, rule = {"critic/value_loss": level(2.04)}, "value-loss-flat"
    broken(judged(rule, flat), severity=Severity.LOW)
    broken(judged(rule, flat | {"critic/explained_variance": level(0.01)}), severity=Severity.MEDIUM)
    healthy(judged(rule, flat | {"critic/explained_variance": level(0.6)}))
    healthy(judged(rule, flat | {"reward/mean": jump(0.2, 0.8)}))
    healthy(judged(rule, {"critic/value_loss": FALLING}))
    healthy(judged(rule, {"critic/value_loss": level(0.02)}))
    healthy(judged(rule, {"critic/value_loss": jump(0.1, 4.0)}))  # it rose: the other rule's
    not_judged(judged(rule, {"critic/value_loss": level(2.04, 49)}))
    assert "hardly fell" in broken(judged(rule, {"critic/value_loss": jump(2.04, 1.98)})).claim
    wild = np.exp(np.random.default_rng(1).normal(size=60)) * 2
    assert "noisy" in not_judged(judged(rule, {"critic/value_loss": wild})).reason


def test_explained_variance_below_zero_is_worse_than_nothing_learnt() -> None:
    name = "critic/explained_variance"
    broken(judged("explained-variance-low", {name: jump(0.4, -0.6)}), severity=Severity.MEDIUM, near=51)
    broken(judged("explained-variance-low", {name: level(-2.0)}), severity=Severity.MEDIUM)
    around = 0.02 * np.random.default_rng(1).normal(size=100)
    broken(judged("explained-variance-low", {name: around}), severity=Severity.LOW)
    healthy(judged("explained-variance-low", {name: np.r_[np.full(15, -3.0), level(0.4, 85)]}))  # warm-up
    healthy(judged("explained-variance-low", {name: np.r_[level(0.4, 40), level(-1, 20), level(0.4, 60)]}))
    healthy(judged("explained-variance-low", {name: around[:30]}))  # may still be learning
    not_judged(judged("explained-variance-low", {name: level(-1.0, 9)}))


@pytest.mark.parametrize("scale", [0.01, 1.0, 300.0])
def test_values_on_another_scale_than_returns_whatever_the_scale(scale: float) -> None:
    off = {"critic/value_mean": scale * level(0.2), "critic/return_mean": scale * level(0.9)}
    broken(judged("value-scale", off), severity=Severity.MEDIUM)
    other_sign = {"critic/value_mean": scale * level(0.9), "critic/return_mean": -scale * level(0.9)}
    broken(judged("value-scale", other_sign))
    near = scale * 0.9 * (1 - np.exp(-np.arange(100) / 10)) * level(1.0)
    healthy(judged("value-scale", {"critic/value_mean": near, "critic/return_mean": scale * level(0.9)}))
    around = {"critic/value_mean": scale * level(0.2), "critic/return_mean": scale * (level(20.0) - 20)}
    assert "scatters" in not_judged(judged("value-scale", around)).reason


def test_too_few_values_are_not_judged() -> None:
    for rule in RULES:
        not_judged(judged(rule, {name: level(1.0, 9) for name in NAMES}))
        not_judged(judged(rule, {name: np.full(100, np.nan) for name in NAMES}))
        not_judged(judged(rule, {}, algorithm=PPO))
    not_judged(judged("value-scale", {"critic/value_mean": level(1.0), "critic/return_mean": level(1.0, 20)}))


@pytest.mark.parametrize("rule", RULES)
def test_without_a_critic_the_question_is_not_asked(rule: str) -> None:
    not_judged(judged(rule, {name: jump(0.1, 9.0) for name in NAMES}, algorithm=GRPO), applies=False)
