"""Aggregates: quiet, alarming or unknown, and who raised the alarm first."""

from __future__ import annotations

import math

import numpy as np
from builders import Array, evidence_of

from ptt.diagnostics.model import Aggregates, Broken, Finding, Link, Severity
from ptt.diagnostics.rules import RULES
from ptt.diagnostics.verdict.run_rules import WATCHED, aggregates_of


def noise(count: int = 120) -> Array:
    return np.random.default_rng(1).normal(size=count)


def judged(**metrics: Array) -> Aggregates:
    evidence = evidence_of(metrics={name.replace("_", "/", 1): values for name, values in metrics.items()})
    return aggregates_of(evidence, [rule.run(evidence) for rule in RULES])


def test_without_a_watched_metric_nothing_can_be_said() -> None:
    found = judged()
    assert found.status == "cannot_say"
    assert set(found.metrics) == set(WATCHED)
    assert set(found.metrics.values()) == {"cannot_say"}
    assert judged(reward_mean=noise(9)).status == "cannot_say"
    assert judged(reward_mean=np.full(100, math.nan)).status != "quiet"


def test_metrics_that_raise_no_alarm_are_quiet_and_their_movement_is_told() -> None:
    found = judged(reward_mean=np.linspace(0, 10, 120) + noise(), loss_total=5 + noise(), kl_ref=0.01 * noise() ** 2)
    assert found.status == "quiet"
    assert found.alarms == {}
    assert found.metrics["reward/mean"] == "rose"
    assert found.metrics["loss/total"] == "flat"
    assert found.metrics["entropy"] == "cannot_say"


def test_an_alarm_is_the_onset_of_a_rule_on_that_metric() -> None:
    found = judged(kl_ref=np.r_[np.full(60, 0.01), np.full(60, 0.9)])
    assert found.status == "alarming"
    assert list(found.alarms) == ["kl/ref"]
    assert 61 <= found.alarms["kl/ref"] <= 75


def test_a_mean_that_single_steps_lift_over_its_limit_is_told_beside_the_alarm() -> None:
    values = np.full(160, 0.1)
    values[30:70:10] = 3.0  # one in ten: the mean passes 0.3, most steps do not
    values[120:] = 0.9
    found = judged(kl_ref=values)
    assert 121 <= found.alarms["kl/ref"] <= 131
    assert 31 <= found.means_passed["kl/ref"] <= 50
    assert judged(kl_ref=np.r_[np.full(60, 0.01), np.full(60, 0.9)]).means_passed == {}


def test_an_alarm_s_interval_holds_where_the_true_mean_passes_and_is_narrow_without_noise() -> None:
    sharp = judged(kl_ref=np.r_[np.full(60, 0.01), np.full(60, 0.9)])
    assert sharp.alarm_intervals["kl/ref"][0] <= sharp.alarms["kl/ref"] <= sharp.alarm_intervals["kl/ref"][1]
    assert np.ptp(sharp.alarm_intervals["kl/ref"]) <= 1
    held, wide = 0, []
    for seed in range(20):
        true = 0.05 * 30 ** np.linspace(0, 1, 300)  # the mean over 20 steps passes 0.3 at step 167
        noisy = true * np.exp(0.4 * np.random.default_rng(seed).normal(size=300))
        means = np.convolve(true * math.exp(0.4**2 / 2), np.full(20, 1 / 20), mode="valid")
        passes = 20 + int(np.argmax(means > 0.3))
        low, high = judged(kl_ref=noisy).alarm_intervals["kl/ref"]
        held += low <= passes <= high
        wide.append(high - low)
    assert held >= 17
    assert max(wide) < 60


def finding(severity: Severity, onset: int | None, metric: str = "entropy") -> Finding:
    return Finding(
        id="any",
        severity=severity,
        link=Link.EXPLORATION,
        claim="",
        observed=1.0,
        limit=0.0,
        unit="",
        onset_step=onset,
        evidence={"metric": metric},
    )


def test_of_several_alarms_the_first_counts_and_harmless_or_undated_or_foreign_ones_do_not() -> None:
    found = aggregates_of(
        evidence_of(),
        [
            Broken(findings=tuple(finding(Severity.HIGH, onset) for onset in (50, 40, 60))),
            Broken(findings=(finding(Severity.LOW, 10), finding(Severity.CRITICAL, None))),
            Broken(findings=(finding(Severity.CRITICAL, 5, metric="tool_use"),)),
        ],
    )
    assert found.alarms == {"entropy": 40}


def test_a_logged_metric_counts_as_judged_even_if_its_movement_cannot_be_said() -> None:
    short = 5 + 0.1 * noise(11)  # enough values to raise an alarm on, too few to tell a trend
    found = judged(reward_mean=short, loss_total=short, kl_ref=0.001 * short)
    assert set(found.metrics.values()) == {"cannot_say"}
    assert found.status == "quiet"
