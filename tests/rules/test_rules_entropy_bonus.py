"""An entropy bonus of the wrong sign: a note, and a finding where entropy collapsed under it."""

from __future__ import annotations

import numpy as np
import pytest
from builders import Array, series_of
from rule_cases import broken, healthy, judged, level, not_judged

from ptt.diagnostics.model import Healthy, RuleVerdict, Severity


def verdict(coefficient: Array, entropy: Array | None) -> RuleVerdict:
    other = {"entropy_coef": series_of("entropy_coef", coefficient)}
    return judged("negative-entropy-bonus", {} if entropy is None else {"entropy": entropy}, other=other)


def fading(late: float) -> Array:
    return level(1.0) * np.geomspace(0.6, late, 100)


def test_entropy_that_collapsed_under_it_is_a_finding_since_the_sign_is_wrong() -> None:
    finding = broken(verdict(np.full(100, -2.0), fading(0.03)), severity=Severity.MEDIUM)
    assert finding.onset_step == 1
    assert "pays for certainty" in finding.claim


def test_a_sign_that_turned_in_mid_run_is_dated() -> None:
    coefficient = np.where(np.arange(100) < 30, 0.01, -0.5)
    entropy = np.concatenate([level(0.6, 30), level(1.0, 70) * np.geomspace(0.6, 0.03, 70)])
    finding = broken(verdict(coefficient, entropy))
    assert (finding.onset_step, finding.onset_interval) == (31, (30, 31))


@pytest.mark.parametrize("entropy", [None, level(0.5), fading(0.3)])
def test_the_sign_alone_is_a_note(entropy: Array | None) -> None:
    found = verdict(np.full(100, -0.01), entropy)
    assert isinstance(found, Healthy)
    assert [note.severity for note in found.notes] == [Severity.LOW]


@pytest.mark.parametrize("coefficient", [np.full(100, 0.01), np.zeros(100), np.linspace(0.01, -0.002, 100)])
def test_a_bonus_that_adapts_or_pays_for_spread_is_healthy(coefficient: Array) -> None:
    assert not healthy(verdict(coefficient, fading(0.03))).notes


def test_without_a_coefficient_nothing_is_said() -> None:
    not_judged(judged("negative-entropy-bonus", {"entropy": fading(0.03)}))
