"""Each rule on made metrics: broken, healthy, not judged, and never healthy for want of a number."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
from builders import Array, Story, evidence_of, sequences_of, series_of, steady
from rule_cases import finding

from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Broken, Healthy, Link, NotJudged, RuleVerdict, Severity
from ptt.diagnostics.rules import RULES

BY_ID = {rule.id: rule for rule in RULES}
NAN = math.nan
Metrics = Mapping[str, Series | Array]


def level(value: float, count: int = 100) -> Array:
    return value * (1 + 0.05 * np.random.default_rng(1).normal(size=count))


def jump(early: float, late: float, *, at: int = 50, count: int = 100) -> Array:
    return np.concatenate([level(early, at), level(late, count - at)])


def with_at(values: Array, places: list[int], value: float) -> Array:
    changed = values.copy()
    changed[places] = value
    return changed


def lasting(metric: str) -> Series:
    return series_of(metric, level(1.0))


BROKEN: dict[str, dict[str, tuple[Metrics, Severity, int | None]]] = {
    "kl-over-target": {
        "over the limit": ({"kl/ref": jump(0.02, 0.6)}, Severity.MEDIUM, 51),
        "far over it": ({"kl/ref": jump(0.02, 1.5)}, Severity.HIGH, None),
        "nothing left of the reference": ({"kl/ref": jump(0.02, 5.0)}, Severity.CRITICAL, None),
        "from the start, in a short run": ({"kl/ref": level(3.0, 12)}, Severity.CRITICAL, 5),
        "with holes in the log": (
            {"kl/ref": with_at(jump(0.02, 0.6), list(range(51, 100, 3)), NAN)},
            Severity.MEDIUM,
            None,
        ),
        "after one huge value": ({"kl/ref": with_at(jump(0.02, 0.6), [0], 1e22)}, Severity.MEDIUM, None),
    },
    "clip-fraction-high": {"for long": ({"clip/frac": jump(0.1, 0.6)}, Severity.HIGH, None)},
    "entropy-collapse": {
        "with the reward": (
            {"entropy": jump(0.5, 0.005), "reward/mean": jump(0.8, 0.1)},
            Severity.HIGH,
            None,
        ),
        "while the reward rose": (
            {"entropy": jump(0.5, 0.005), "reward/mean": jump(0.3, 0.8)},
            Severity.LOW,
            None,
        ),
        "fast, before anything was learnt": (
            {"entropy": jump(0.5, 0.005), "reward/mean": level(0.8)},
            Severity.MEDIUM,
            None,
        ),
        "where no reward is logged": ({"entropy": jump(0.5, 0.005)}, Severity.LOW, None),
    },
    "no-signal-groups": {
        "while the reward is lost": (
            {"reward/zero_std_frac": jump(0.2, 0.9), "reward/mean": jump(0.8, 0.1)},
            Severity.HIGH,
            None,
        ),
        "while the task is solved": (
            {"reward/zero_std_frac": jump(0.2, 0.9), "reward/mean": jump(0.3, 0.95)},
            Severity.LOW,
            None,
        ),
        "where no reward is logged": ({"reward/zero_std_frac": jump(0.2, 0.9)}, Severity.MEDIUM, None),
    },
    "gradient-spikes": {
        "again and again": (
            {"grad_norm": with_at(level(1.0), [60, 70, 80, 90], 30.0)},
            Severity.MEDIUM,
            61,
        )
    },
    "metrics-lost": {
        "NaN to the end": (
            {"loss/total": with_at(level(1.0), list(range(80, 100)), NAN)},
            Severity.CRITICAL,
            81,
        ),
        "NaN in between": ({"grad_norm": with_at(level(1.0), [40], NAN)}, Severity.MEDIUM, 41),
        "infinite once": ({"kl/ref": with_at(level(1.0), [40], math.inf)}, Severity.MEDIUM, 41),
        "NaN throughout": ({"entropy": np.full(100, NAN)}, Severity.CRITICAL, 1),
        "gone while others go on": (
            {"loss/total": series_of("loss/total", level(1.0, 60)), "tools/call_frequency": level(1.0)},
            Severity.HIGH,
            61,
        ),
    },
    "tool-use-vanished": {"by the logged frequency": ({"tools/call_frequency": jump(0.6, 0.02)}, Severity.HIGH, None)},
}

HEALTHY: dict[str, dict[str, Metrics]] = {
    "kl-over-target": {
        "low": {"kl/ref": level(0.05)},
        "just below": {"kl/ref": np.full(100, 0.299)},
        "one spike": {"kl/ref": with_at(level(0.05), [50], 40.0)},
        "a few spikes": {"kl/ref": with_at(level(0.05), [20, 50, 51, 80], 40.0)},
    },
    "clip-fraction-high": {
        "low": {"clip/frac": level(0.1)},
        "once": {"clip/frac": with_at(level(0.1), [40, 41], 1.0)},
        "none by construction": {"clip/frac": np.zeros(50)},
    },
    "entropy-collapse": {
        "steady": {"entropy": level(0.3)},
        "falling to what is normal": {"entropy": jump(0.5, 0.04)},
        "low from the start": {"entropy": level(0.01)},
        "dipped and came back": {"entropy": np.concatenate([level(0.5, 40), level(0.001, 30), level(0.5, 40)])},
    },
    "no-signal-groups": {
        "few": {"reward/zero_std_frac": level(0.2)},
        "for a while": {"reward/zero_std_frac": with_at(level(0.2), [50, 51, 52], 1.0)},
    },
    "gradient-spikes": {
        "level": {"grad_norm": level(1.0)},
        "one spike": {"grad_norm": with_at(level(1.0), [70], 500.0)},
        "rising slowly": {"grad_norm": np.geomspace(0.1, 10, 200)},
        "ordinary after a task is solved": {"grad_norm": with_at(jump(1.0, 0.001), [80, 85, 90, 95], 1.0)},
    },
    "metrics-lost": {
        "all there": {"loss/total": level(1.0), "reward/mean": level(1.0)},
        "logged every tenth step": {
            "loss/total": series_of("loss/total", level(1.0, 20), steps=list(range(5, 205, 10))),
            "reward/mean": level(1.0, 200),
        },
        "logged so seldom that the next value is not due": {
            "loss/total": series_of("loss/total", level(1.0, 10), steps=list(range(1, 101, 10))),
            "reward/mean": level(1.0, 116),
        },
    },
    "tool-use-vanished": {
        "used": {"tools/call_frequency": level(0.6)},
        "a dip": {"tools/call_frequency": with_at(level(0.6), list(range(30, 45)), 0.0)},
    },
}

METRIC = {
    "kl-over-target": "kl/ref",
    "clip-fraction-high": "clip/frac",
    "entropy-collapse": "entropy",
    "no-signal-groups": "reward/zero_std_frac",
    "gradient-spikes": "grad_norm",
    "metrics-lost": "loss/total",
    "tool-use-vanished": "tools/call_frequency",
}


def run(rule: str, metrics: Metrics, **limits: float) -> RuleVerdict:
    return BY_ID[rule].run(evidence_of(metrics=metrics, limits={rule: limits}))


def test_every_rule_has_a_broken_a_healthy_and_a_not_judged_case() -> None:
    on_metrics = {name for name, rule in BY_ID.items() if rule.link is not Link.DATA_VALIDITY}
    assert set(BROKEN) == set(HEALTHY) == set(METRIC) <= on_metrics


@pytest.mark.parametrize(("rule", "case"), [(rule, case) for rule, cases in BROKEN.items() for case in cases], ids=str)
def test_a_rule_finds_its_failure(rule: str, case: str) -> None:
    metrics, severity, onset = BROKEN[rule][case]
    found = finding(run(rule, metrics))
    assert found.id == rule
    assert found.link is BY_ID[rule].link
    assert found.severity is severity
    assert found.onset_step is not None
    if onset is not None:
        assert found.onset_step == pytest.approx(onset, abs=5)
    assert found.observed is not None
    assert math.isfinite(found.observed)
    assert found.limit is not None
    assert found.claim
    assert found.unit
    assert found.causes
    assert found.next
    assert found.evidence["metric"] in metrics


@pytest.mark.parametrize(("rule", "case"), [(rule, case) for rule, cases in HEALTHY.items() for case in cases], ids=str)
def test_a_rule_lets_pass_what_is_no_failure(rule: str, case: str) -> None:
    verdict = run(rule, HEALTHY[rule][case])
    assert isinstance(verdict, Healthy), verdict
    assert verdict.reason
    assert verdict.id == rule


@pytest.mark.parametrize("rule", METRIC)
def test_too_few_values_are_not_judged(rule: str) -> None:
    verdict = run(rule, {METRIC[rule]: level(0.1, 9)})
    assert isinstance(verdict, NotJudged), verdict
    assert verdict.reason
    assert verdict.enable


@pytest.mark.parametrize("rule", METRIC)
@pytest.mark.parametrize("value", [NAN, math.inf, -math.inf])
def test_a_metric_without_a_finite_value_never_reads_as_healthy(rule: str, value: float) -> None:
    verdict = run(rule, {METRIC[rule]: np.full(100, value)})
    assert not isinstance(verdict, Healthy), verdict


@pytest.mark.parametrize(
    ("rule", "metrics", "limits"),
    [
        ("kl-over-target", {"kl/ref": level(0.05)}, {"limit": 0.02}),
        ("clip-fraction-high", {"clip/frac": level(0.1)}, {"limit": 0.05}),
        ("entropy-collapse", {"entropy": jump(0.5, 0.04)}, {"floor": 0.1, "left_of_early": 0.5}),
        ("no-signal-groups", {"reward/zero_std_frac": level(0.2)}, {"limit": 0.1}),
        ("gradient-spikes", {"grad_norm": with_at(level(1.0), [60, 70, 80], 5.0)}, {"times_median": 3.0}),
        (
            "metrics-lost",
            {"loss/total": series_of("loss/total", level(1.0, 90)), "reward/mean": level(1.0)},
            {"last_part": 0.05},
        ),
        ("tool-use-vanished", {"tools/call_frequency": level(0.3)}, {"gone": 0.5}),
    ],
    ids=str,
)
def test_a_limit_set_by_the_user_is_the_one_in_force(rule: str, metrics: Metrics, limits: dict[str, float]) -> None:
    assert isinstance(run(rule, metrics), Healthy)
    assert finding(run(rule, metrics, **limits)).id == rule


def test_a_limit_of_one_rule_is_none_of_another() -> None:
    evidence = evidence_of(metrics={"kl/ref": level(0.05)}, limits={"clip-fraction-high": {"limit": 0.01}})
    assert isinstance(BY_ID["kl-over-target"].run(evidence), Healthy)


def test_tool_use_is_taken_from_the_sequences_where_no_frequency_is_logged() -> None:
    story = Story(steps=40, sequences=8, tool_share=lambda done: 0.75 if done < 0.5 else 0.0)
    found = finding(BY_ID["tool-use-vanished"].run(evidence_of(sequences_of(story))))
    assert found.onset_step == pytest.approx(21, abs=5)
    assert found.evidence["best"] == 0.75
    used = Story(steps=40, sequences=8, tool_share=steady(0.75))
    assert isinstance(BY_ID["tool-use-vanished"].run(evidence_of(sequences_of(used))), Healthy)
    short = Story(steps=9, sequences=8)
    assert isinstance(BY_ID["tool-use-vanished"].run(evidence_of(sequences_of(short))), NotJudged)


def test_several_metrics_that_are_lost_are_several_findings() -> None:
    metrics = {"loss/total": with_at(level(1.0), [99], NAN), "grad_norm": with_at(level(1.0), [50], NAN)}
    verdict = run("metrics-lost", metrics)
    assert isinstance(verdict, Broken)
    assert [(one.evidence["metric"], one.severity) for one in verdict.findings] == [
        ("loss/total", Severity.CRITICAL),
        ("grad_norm", Severity.MEDIUM),
    ]


def test_tools_that_were_never_used_cannot_vanish() -> None:
    """Neither broken nor healthy: a run without tools must not look judged for having none."""
    assert isinstance(run("tool-use-vanished", {"tools/call_frequency": level(0.05)}), NotJudged)
    assert isinstance(run("tool-use-vanished", {"tools/call_frequency": jump(0.15, 0.02)}), NotJudged)
    lower = {"tools/call_frequency": jump(0.15, 0.02)}
    assert isinstance(run("tool-use-vanished", lower, was_used=0.1), Broken)
