"""A metric that the policy does not name and that is too noisy to tell: told, unless it is seen 1.6 times worse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gate_samples import TODAY, check_of, healthy, opened

from ptt.diagnostics.gate.against_baseline import NOT_DEMANDED
from ptt.diagnostics.gate.baseline.measure import baseline_of, measure
from ptt.diagnostics.gate.judge import judge
from ptt.diagnostics.gate.policy import AgainstBaseline, Policy
from ptt.diagnostics.gate.results import GatedRun, Outcome
from ptt.diagnostics.store.diagnosis import LoadedRun
from ptt.reports.gate.checks import measured

STEPS = 60


def run_of(source: str, **levels: tuple[float, float]) -> LoadedRun:
    """Make a run whose late thirds have these means to the digit, and so much scatter."""
    drawn = np.random.default_rng(int(source)).standard_normal(STEPS // 3)
    third = (drawn - drawn.mean()) / drawn.std()
    series = {name: [*([level] * (STEPS - len(third))), *(level + sd * third)] for name, (level, sd) in levels.items()}
    return replace(opened(*healthy(), series=series, steps=STEPS), source=source * 64)


def gate(
    run: LoadedRun, *held: LoadedRun, metrics: dict[str, str | None] | None = None, lets_pass: bool = False
) -> GatedRun:
    baseline = baseline_of([measure(one) for one in held], name="b", version="0")
    beside = AgainstBaseline(file=Path("b.toml"), held=baseline, metrics=metrics)
    return judge(run, Policy(baseline=beside, cannot_say_passes=lets_pass), name="a", today=TODAY)


@pytest.mark.parametrize(
    ("level", "outcome"),
    [(0.6, Outcome.PASSED), (0.4, Outcome.PASSED), (0.79, Outcome.PASSED), (0.82, Outcome.BLIND)],
)
def test_noise_is_let_pass_only_while_the_metric_does_not_look_worse(level: float, outcome: Outcome) -> None:
    sound = {"entropy": (1.0, 0.01)}  # something that can be told
    run = gate(run_of("2", kl=(level, 0.9), **sound), run_of("1", kl=(0.5, 0.9), **sound))
    check = check_of(run, "baseline:kl/ref")
    assert check.outcome is Outcome.BLIND
    assert "too wide to judge" in check.claim
    assert check.excused is (outcome is Outcome.PASSED)
    assert (NOT_DEMANDED in check.claim) is check.excused
    assert run.outcome is outcome
    assert any(NOT_DEMANDED in note for note in run.notes) is check.excused
    assert not any("cannot_say" in note for note in run.notes)


def test_a_metric_that_may_get_worse_both_ways_is_let_pass_between_both_limits() -> None:
    held = run_of("1", entropy=(1.0, 1.5), kl=(0.5, 0.01))
    for level, excused in ((0.63, True), (0.62, False), (1.59, True), (1.61, False)):
        run = gate(run_of("2", entropy=(level, 1.5), kl=(0.5, 0.01)), held)
        assert check_of(run, "baseline:entropy").excused is excused, level


def test_one_that_the_policy_names_is_demanded_and_cannot_say_lets_all_noise_pass() -> None:
    held, run = run_of("1", kl=(0.5, 0.9)), run_of("2", kl=(0.5, 0.9))
    named = gate(run, held, metrics={"kl/ref": None})
    assert (named.outcome, check_of(named, "baseline:kl/ref").excused) == (Outcome.BLIND, False)
    run = run_of("2", kl=(0.8, 0.9))
    check = check_of(gate(run, held, lets_pass=True), "baseline:kl/ref")
    assert check.excused
    assert NOT_DEMANDED not in check.claim  # it is cannot_say that lets it pass


def test_a_difference_is_told_as_one_with_both_of_its_limits() -> None:
    held = run_of("1", kl=(0.5, 0.01), entropy=(1.0, 0.01))
    run = gate(run_of("2", kl=(0.55, 0.01), entropy=(0.9, 0.01)), held)
    told = measured(check_of(run, "baseline:kl/ref"))
    assert told.startswith("0.05 higher than the baseline's 0.5 (95% interval of the difference ")
    assert told.endswith("; allowed: 0.125 higher)")
    assert measured(check_of(run, "baseline:entropy")).endswith("; allowed: 0.2 lower or 0.25 higher)")
