"""What the tests of rules on series share: made series, and what every finding must hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from builders import Array, evidence_of, series_of

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Algorithm, Family
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Broken, Diagnosis, Finding, Healthy, NotJudged, RuleVerdict, Severity
from ptt.diagnostics.rules import RULES

BY_ID = {rule.id: rule for rule in RULES}
Metrics = Mapping[str, Series | Array]
PPO = Algorithm(name="ppo", family=Family.ONLINE, critic=True, groups=False)
GRPO = Algorithm(name="grpo", family=Family.ONLINE, critic=False, groups=True)


def level(value: float, count: int = 100, *, seed: int = 1, share: float = 0.05) -> Array:
    """Return a value with a share of noise, of 5% where nothing else is said."""
    return value * (1 + share * np.random.default_rng(seed).normal(size=count))


def jump(early: float, late: float, *, at: int = 50, count: int = 100) -> Array:
    """Return one level, then another."""
    return np.concatenate([level(early, at), level(late, count - at, seed=2)])


def wander(seed: int, *, count: int, likeness: float) -> Array:
    """Return an AR(1) of unit variance."""
    draws = np.random.default_rng(seed).normal(size=count) * math.sqrt(1 - likeness**2)
    values = np.zeros(count)
    value = np.random.default_rng(seed + 1).normal()
    for index, draw in enumerate(draws):
        value = likeness * value + draw
        values[index] = value
    return values


def judged(rule: str, metrics: Metrics, **parts: Any) -> RuleVerdict:
    """Run a rule on metrics; `parts` replace other parts of the evidence, `limits` are those of the rule."""
    limits = {rule: parts.pop("limits", {})}
    return BY_ID[rule].run(replace(evidence_of(metrics=metrics, limits=limits), **parts))


def finding(verdict: RuleVerdict) -> Finding:
    """Check that a verdict is of findings, and return the first."""
    assert isinstance(verdict, Broken), verdict
    return verdict.findings[0]


def findings_of(found: Diagnosis, rule: str) -> list[Finding]:
    """Return what a rule finds in a diagnosis."""
    return [finding for finding in found.findings if finding.id == rule]


def broken(verdict: RuleVerdict, *, severity: Severity | None = None, near: int | None = None) -> Finding:
    """Check that a verdict is a finding with all that a finding must hold, and return it."""
    assert isinstance(verdict, Broken), verdict
    (finding,) = verdict.findings
    assert finding.link is BY_ID[finding.id].link
    assert severity is None or finding.severity is severity, finding
    assert finding.observed is not None
    assert math.isfinite(finding.observed)
    assert finding.limit is not None
    assert finding.claim
    assert not finding.claim.endswith(".")
    assert finding.unit
    assert finding.causes
    assert finding.confirm
    assert finding.next
    assert finding.evidence["metric"]
    if finding.onset_step is not None:
        assert finding.onset_interval is not None
        low, high = finding.onset_interval
        assert low <= finding.onset_step <= high
    if near is not None:
        assert finding.onset_step is not None
        assert abs(finding.onset_step - near) <= 20  # as long as a window is wide
    return finding


def healthy(verdict: RuleVerdict) -> Healthy:
    """Check that a verdict is healthy, and return it."""
    assert isinstance(verdict, Healthy), verdict
    assert verdict.reason
    return verdict


def not_judged(verdict: RuleVerdict, *, applies: bool = True) -> NotJudged:
    """Check that a rule could not be judged and says why, and return its verdict."""
    assert isinstance(verdict, NotJudged), verdict
    assert verdict.reason
    assert verdict.applies is applies
    assert not applies or (verdict.enable and verdict.missing)
    return verdict


def worst(evidence: Evidence, rules: list[str]) -> list[tuple[str, str]]:
    """Return what the rules find at or above medium."""
    verdicts = (BY_ID[name].run(evidence) for name in rules)
    findings = [finding for verdict in verdicts if isinstance(verdict, Broken) for finding in verdict.findings]
    return [(finding.id, finding.claim) for finding in findings if finding.severity.at_least(Severity.MEDIUM)]


def by_step(name: str, values: Array, *, steps: list[int] | None = None) -> Series:
    """Return a series of recorded tokens."""
    return series_of(name, values, steps=steps)
