"""What moved between baselines, and drift that no single run shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from measured_runs import baseline_with, curves_at, made, measured, noisy, with_tails

from ptt.diagnostics.gate.against_baseline import against
from ptt.diagnostics.gate.baseline.measure import Measured
from ptt.diagnostics.gate.baseline.moves import changes, drift, drifted
from ptt.diagnostics.gate.baseline.values import Baseline
from ptt.diagnostics.statistics.tail_growth import FLOOR
from ptt.diagnostics.statistics.windows import Span


def run(seed: int, level: float = 1.0, **changes: Any) -> Measured:
    rng = np.random.default_rng(seed)
    metrics = {
        "grad_norm": level * noisy(rng, noise=0.1),
        "entropy": noisy(rng, shape="falling", noise=0.1),
        "loss/total": noisy(rng) - 1,
    }
    return measured(metrics, name=f"run {seed}", **changes)


BASE = made(*[run(seed) for seed in (100, 101, 102)])


def test_passing_runs_that_moved_together_are_told() -> None:
    runs = [run(seed, 1.12) for seed in range(5)]
    for one in runs:
        assert {found.outcome for found in against(one, BASE)} <= {"passed", "shown"}
    found = drift(BASE, runs)
    assert [one.statistic for one in found] == ["grad_norm"]
    assert found[0].after / found[0].before == pytest.approx(1.12, rel=0.05)
    assert found[0].low > 0
    told = drifted(found, len(runs))
    assert "grad_norm" in told
    assert "ptt baseline update" in told


def test_runs_that_did_not_move_are_not() -> None:
    told = [drift(BASE, [run(10 * block + seed) for seed in range(5)]) for block in range(20)]
    assert sum(map(bool, told)) <= 1
    assert drifted((), 5) == ""


def test_a_sure_but_tiny_move_is_not_worth_a_renewal() -> None:
    base = made(*[measured({"grad_norm": 1 + 0.001 * noisy(np.random.default_rng(n))}, name=f"{n}") for n in range(3)])
    runs = [measured({"grad_norm": 1.01 + 0.001 * noisy(np.random.default_rng(n))}, name=f"{n}") for n in range(10, 15)]
    assert drift(base, runs) == ()
    assert changes(base, runs)[0].beyond_noise is True


def test_one_run_and_the_baselines_own_are_no_drift() -> None:
    assert drift(BASE, [run(1, 1.12)]) == ()
    assert drift(BASE, [run(100), run(101), run(102), run(1, 1.2)]) == ()
    assert drift(BASE, []) == ()


def test_the_order_of_runs_does_not_matter() -> None:
    runs = [run(seed, 1.12) for seed in range(4)]
    assert drift(BASE, runs) == drift(BASE, runs[::-1])


def test_tails_that_moved_together_are_told() -> None:
    levels = np.linspace(1.0, 2.0, 12)

    def tail(seed: int, factor: float) -> Any:
        noise = np.exp(0.02 * np.random.default_rng(seed).normal(size=12))
        return with_tails(f"run {seed}", curves_at(factor * levels * noise, noise=0.02))

    base = baseline_with(*[tail(seed, 1.0) for seed in range(3)])
    assert [one.slice for one in drift(base, [tail(seed, 1.2) for seed in range(10, 14)])] == ["post_tool"]
    assert drift(base, [tail(seed, 1.0) for seed in range(20, 24)]) == ()


def test_tails_that_count_as_their_floor_are_told_as_they_are() -> None:
    low = np.full(12, 0.1)
    before = baseline_with(with_tails("before", curves_at(low)))
    (found,) = changes(before, baseline_with(with_tails("after", curves_at(3 * low))))
    assert found.after == pytest.approx(1.0, abs=0.01)
    assert "A p95 below 0.35 or a p99 below 0.69 nats counts as that much" in found.note
    assert "As measured, p95 is 0.30 against 0.10 nats (3.0 times)" in found.note
    assert "at least" not in found.note
    nothing = curves_at(np.full(12, FLOOR))  # what a percentile of 0 is kept as
    (least,) = changes(baseline_with(with_tails("start", nothing)), baseline_with(with_tails("after", curves_at(low))))
    assert "geometric means over spans of steps, each span counted as at least 0.001 nats" in least.note
    (plain,) = changes(before, baseline_with(with_tails("after", curves_at(np.full(12, np.nan)))))
    assert plain.note == ""


def by_name(old: Baseline, new: Any) -> dict[str, Any]:
    return {one.slice or one.statistic: one for one in changes(old, new)}


def test_changes_name_what_moved_and_what_did_not() -> None:
    found = by_name(BASE, made(*[run(seed, 1.5) for seed in range(3)]))
    assert found["grad_norm"].beyond_noise is True
    assert found["entropy"].beyond_noise is False
    assert found["loss/total"].beyond_noise is False  # shown as well, although a gate does not judge it


def test_files_of_other_steps_are_shown_and_not_judged() -> None:
    other = replace(BASE, steps=Span(1, 200))
    found = by_name(BASE, other)
    assert {one.beyond_noise for one in found.values()} == {None}
    assert found["grad_norm"].words == "different steps"


def test_what_is_logged_on_one_side_only_is_said() -> None:
    alone = measured({"entropy": noisy(np.random.default_rng(5), shape="falling")}, name="alone")
    found = by_name(BASE, made(alone))
    assert found["grad_norm"].words == "no longer logged"
    assert by_name(made(alone), BASE)["grad_norm"].words == "not logged before"
    tails = baseline_with(with_tails("run", curves_at(np.linspace(1, 2, 12))))
    assert by_name(BASE, tails)["post_tool"].words == "on one side only"


def test_tails_of_which_nothing_can_be_told_are_not_within_noise() -> None:
    short = [*np.linspace(1, 2, 4), *[np.nan] * 8]
    before = baseline_with(with_tails("before", curves_at(np.linspace(1, 2, 12))))
    after = baseline_with(with_tails("after", curves_at(short)))
    (found,) = changes(before, after)
    assert found.beyond_noise is None
    assert found.words == "too few values to judge"


def test_why_tails_were_not_compared_is_said() -> None:
    before = baseline_with(with_tails("before", curves_at(np.linspace(1, 2, 12))))
    other = baseline_with(with_tails("after", curves_at(np.linspace(1, 2, 12)), pair="policy/rollout"))
    assert [one.words for one in changes(before, other)] == ["different pair"]
    assert [one.words for one in changes(before, replace(before, steps=Span(1, 240)))] == ["different steps"]
