"""A watch over a run: silent on a healthy one, sure of what goes wrong, and the same after a restart."""

import json
import math
from collections.abc import Iterable, Mapping

import numpy as np
import pytest

from ptt.diagnostics.watch.monitor import Alarm, Monitor
from ptt.diagnostics.watch.observed import ObservedStep, StepTail
from ptt.diagnostics.watch.watched import STOPPING, WARNING


def tail(p95: float, *, tokens: int = 400) -> StepTail:
    return StepTail(tokens=tokens, p95=p95, p99=2 * p95)


def growing(size: float, *, base: float = 0.3, onset: int = 60, count: int = 160, seed: int = 1) -> list[ObservedStep]:
    """Let the tail after tool calls grow by `size` at once."""
    noise = np.exp(0.1 * np.random.default_rng(seed).normal(size=(count, 2)))
    return [
        ObservedStep(
            step=step,
            metrics={"kl/ref": 0.02 * other, "tools/call_frequency": 0.4},
            tails={"post_tool": tail(base * one * (size if step > onset else 1.0)), "text_only": tail(0.2 * other)},
        )
        for step, (one, other) in enumerate(noise.tolist(), start=1)
    ]


def logged(name: str, values: Iterable[float], **others: float) -> list[ObservedStep]:
    return [ObservedStep(step=step, metrics={name: value, **others}) for step, value in enumerate(values, start=1)]


def alarms(steps: Iterable[ObservedStep], *, limits: Mapping[str, Mapping[str, float]] | None = None) -> list[Alarm]:
    monitor = Monitor.start(limits=limits)
    return [alarm for step in steps for alarm in monitor.observe(step)]


def stops(steps: Iterable[ObservedStep]) -> list[str]:
    return [alarm.rule for alarm in alarms(steps) if alarm.kind == "stop"]


def test_a_tail_that_grows_is_warned_of_and_then_stopped_with_what_to_set() -> None:
    warning, stop = (alarm for alarm in alarms(growing(6.0)) if alarm.rule == "tool-tail-growth")
    assert (warning.kind, stop.kind) == ("warning", "stop")
    assert 60 < warning.step <= stop.step < 90
    assert 60 <= stop.since_step <= 63
    assert stop.value > stop.limit == 1.0
    assert stop.share == 0.4
    guards = {guard.name: guard for guard in stop.guards}
    assert guards.keys() == {"rollback", "kl-cap", "tail-cap", "curriculum"}
    assert guards["kl-cap"].value == pytest.approx(0.04, rel=0.1)  # twice what it was before
    assert guards["rollback"].value == stop.since_step
    assert "40% of the answers" in guards["curriculum"].says


def test_a_tail_that_is_high_from_the_start_or_grows_without_harm_is_no_stop() -> None:
    assert stops(growing(1.0, base=3.0)) == []
    assert stops(growing(6.0, base=0.05)) == []  # from 0.05 to 0.3 nats
    few = [ObservedStep(step=step.step, tails={"post_tool": tail(9.0, tokens=3)}) for step in growing(1.0)]
    assert stops(few) == []


def test_a_limit_of_the_user_counts() -> None:
    told = alarms(growing(6.0), limits={"tool-tail-growth": {"high_p95": 2.5}})
    assert [alarm.kind for alarm in told if alarm.rule == "tool-tail-growth"] == ["warning"]


@pytest.mark.parametrize(
    ("name", "before", "after", "rule"),
    [
        ("kl/ref", 0.05, 1.5, "kl-over-target"),
        ("reward/mean", 0.6, 0.01, "reward-fell"),
        ("entropy", 0.5, 4.0, "entropy-explosion"),
        ("grad_norm", 0.5, 40.0, "gradient-spikes"),
        ("loss/total", 0.9, 5.0, "loss-divergence"),
    ],
)
def test_each_series_stops_a_run_by_its_own_limit(name: str, before: float, after: float, rule: str) -> None:
    noise = np.exp(0.1 * np.random.default_rng(5).normal(size=120))
    level = np.where(np.arange(120) < 60, before, after)
    assert stops(logged(name, (level * noise).tolist())) == [rule]
    assert stops(logged(name, (before * noise).tolist())) == []


def test_entropy_may_go_where_the_task_is_solved_and_where_it_is_that_of_a_density() -> None:
    falls = [0.4] * 40 + [0.001] * 60
    assert stops(logged("entropy", falls)) == []  # nothing is known of a reward
    for reward, told in ((0.3, ["entropy-collapse"]), (0.95, [])):
        steps = [
            ObservedStep(step=step, metrics={"entropy": value, "reward/mean": reward + 0.001 * (step % 7)})
            for step, value in enumerate(falls, start=1)
        ]
        assert stops(steps) == told
    assert stops(logged("entropy", [0.4] * 40 + [-1.0] * 60, **{"reward/mean": 0.3})) == []


def test_a_reward_that_may_be_negative_has_no_share_to_lose() -> None:
    assert stops(logged("reward/mean", [-1.0 + 0.01 * step for step in range(80)] + [-5.0] * 60)) == []


@pytest.mark.parametrize(
    ("name", "value", "after"),
    [("loss/total", math.nan, 3), ("grad_norm", math.nan, 3), ("lr", 0.0, 10), ("mismatch/kl", 4.0, 3)],
)
def test_what_needs_no_test_is_told_at_once(name: str, value: float, after: int) -> None:
    told = alarms(logged(name, [value] * 12, entropy=0.123456))
    assert [(alarm.kind, alarm.share) for alarm in told] == [("warning", 0.0), ("stop", 0.0)]
    assert told[0].step <= 3
    assert told[1].step == after


def test_a_learning_rate_that_ends_at_zero_is_no_stop_and_a_gap_is_not_counted_as_nan() -> None:
    assert stops(logged("lr", [1e-5] * 50 + [0.0] * 30)) == []
    assert stops(logged("loss/total", [math.nan, math.nan, 1.0] * 20)) == []


def test_a_learning_rate_that_a_console_rounds_to_zero_is_no_stop() -> None:
    assert alarms(logged("lr", [0.0] * 12, entropy=0.123)) == []


def test_a_reward_that_never_moved_is_told() -> None:
    told = alarms(logged("reward/mean", [0.0] * 260))
    assert [(alarm.kind, alarm.rule, alarm.step) for alarm in told] == [
        ("warning", "reward-stuck", 20),
        ("stop", "reward-stuck", 250),
    ]
    assert alarms(logged("reward/mean", [0.0] * 60, **{"kl/teacher": 1.0})) == []  # distillation has none


def test_the_shares_add_up_to_the_budget() -> None:
    assert sum(series.share for series in STOPPING) == pytest.approx(1.0)
    assert sum(series.share for series in WARNING) == pytest.approx(1.0)


def test_a_watch_that_is_restored_says_the_same_and_no_step_counts_twice() -> None:
    steps = growing(6.0)
    whole = alarms(steps)
    monitor = Monitor.start()
    told: list[Alarm] = []
    for step in steps:
        told += monitor.observe(step)
        assert monitor.observe(step) == ()
        monitor = Monitor.restored(json.loads(json.dumps(monitor.state())))
    assert told == whole
    with pytest.raises(ValueError, match="another version"):
        Monitor.restored({**monitor.state(), "version": 0})
