"""What turned into NaN is never called healthy, and what came back is not said to stay."""

from __future__ import annotations

import numpy as np
import pytest
from builders import evidence_of
from numpy.typing import NDArray

from ptt.diagnostics.model import Broken, Healthy, NotJudged, Severity
from ptt.diagnostics.rules import RULES

BY_ID = {rule.id: rule for rule in RULES}
Array = NDArray[np.float64]


def noisy(level: float, count: int, seed: int = 0) -> Array:
    return level * np.exp(0.1 * np.random.default_rng(seed).normal(size=count))


@pytest.mark.parametrize(
    ("rule", "metric", "level"),
    [
        ("ratio-explosion", "is/ratio_max", 1.5),
        ("update-too-large", "kl/old", 0.001),
        ("value-loss-rising", "critic/value_loss", 0.5),
        ("explained-variance-low", "critic/explained_variance", 0.5),
        ("kl-over-target", "kl/ref", 0.01),
    ],
)
@pytest.mark.parametrize("lost", [np.nan, np.inf])
def test_a_metric_that_is_lost_for_good_is_not_healthy(rule: str, metric: str, level: float, lost: float) -> None:
    values = noisy(level, 200)
    assert isinstance(BY_ID[rule].run(evidence_of(metrics={metric: values})), Healthy)
    values[60:] = lost
    verdict = BY_ID[rule].run(evidence_of(metrics={metric: values}))
    assert isinstance(verdict, NotJudged)
    assert "NaN or infinite at 140 of 200 steps" in verdict.reason


def test_a_lost_metric_beside_sound_ones_is_a_finding_of_its_own() -> None:
    ratio = noisy(1.5, 200)
    ratio[60:] = np.inf
    metrics = {"grad_norm": noisy(1.0, 200), "is/ratio_max": ratio}
    verdict = BY_ID["metrics-lost"].run(evidence_of(metrics=metrics))
    assert isinstance(verdict, Broken)
    (found,) = verdict.findings
    assert (found.evidence["metric"], found.onset_step, found.severity) == ("is/ratio_max", 61, Severity.MEDIUM)


@pytest.mark.parametrize(
    ("rule", "metric", "usual", "high", "severity"),
    [
        ("kl-over-target", "kl/ref", 0.05, 0.6, Severity.LOW),
        ("kl-over-target", "kl/ref", 0.05, 3.0, Severity.MEDIUM),
        ("clip-fraction-high", "clip/frac", 0.05, 0.6, Severity.LOW),
        ("update-too-large", "kl/old", 0.001, 0.15, Severity.LOW),
        ("no-signal-groups", "reward/zero_std_frac", 0.1, 0.8, Severity.LOW),
    ],
)
def test_what_came_back_is_told_so_and_weighs_less(
    rule: str, metric: str, usual: float, high: float, severity: Severity
) -> None:
    values = noisy(usual, 600)
    values[100:140] = noisy(high, 40)
    verdict = BY_ID[rule].run(evidence_of(metrics={metric: values}))
    assert isinstance(verdict, Broken)
    (found,) = verdict.findings
    assert found.severity is severity
    assert "stays" not in found.claim


def test_a_kl_of_unknown_unit_is_medium_unless_it_is_too_much_for_any_and_weighs_less_once_back() -> None:
    rose = np.linspace(0.2, 0.8, 600) + noisy(0.01, 600)
    for high, lasting, severity in (
        (0.6, False, Severity.LOW),
        (3.0, True, Severity.MEDIUM),
        (100.0, True, Severity.CRITICAL),
    ):
        values = noisy(0.05, 600)
        values[100 : None if lasting else 140] = noisy(high, len(values[100 : None if lasting else 140]))
        verdict = BY_ID["kl-over-target"].run(evidence_of(metrics={"kl/ref": values, "reward/mean": rose}))
        assert isinstance(verdict, Broken)
        assert verdict.findings[0].severity is severity
        assert "does not say whether" in verdict.findings[0].claim


def test_a_clip_fraction_that_is_all_but_always_zero_is_judged() -> None:
    values = np.zeros(1000)
    values[[10, 500, 900]] = 0.01
    assert isinstance(BY_ID["clip-fraction-high"].run(evidence_of(metrics={"clip/frac": values})), Healthy)


@pytest.mark.parametrize("seed", range(10))
def test_noise_of_few_trials_is_no_fall_of_the_reward(seed: int) -> None:
    from ptt.diagnostics.rules.reward_outcome import Outcome, outcome

    reward = np.random.default_rng(seed).binomial(8, 0.5, 600) / 8
    assert outcome(evidence_of(metrics={"reward/mean": reward})) is Outcome.FLAT
