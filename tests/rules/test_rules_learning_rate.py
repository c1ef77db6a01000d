"""The learning rate: jumps, zeros, rates far above what is usual, and a warm-up that never ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from builders import Array, run_of, series_of
from rule_cases import GRPO, broken, healthy, judged, level, not_judged

from ptt.diagnostics.evidence.algorithm import Algorithm, Family
from ptt.diagnostics.model import Healthy, JsonScalar, Run, Severity

SFT = Algorithm(name="sft", family=Family.SUPERVISED)
PEAK = 2e-5


def schedule(count: int = 200, *, warmup: int = 20, peak: float = PEAK) -> Array:
    """Return a linear warm-up and a cosine decay to 0."""
    steps = np.arange(count)
    decay = 0.5 * (1 + np.cos(np.pi * np.clip((steps - warmup) / (count - warmup), 0, 1)))
    return peak * np.minimum(steps / warmup, decay)


def planned(steps: int) -> Run:
    context: dict[str, JsonScalar] = {"max_steps": steps}
    return replace(run_of(last_step=steps), context=context)


def restarts(count: int = 200) -> Array:
    return PEAK * 0.5 * (1 + np.cos(2 * np.pi * (np.arange(count) % 50) / 100))


# --- jumps


@pytest.mark.parametrize(("times", "severity"), [(6.0, Severity.MEDIUM), (2000.0, Severity.HIGH)])
def test_a_rate_above_all_before_it_is_a_jump_at_its_step(times: float, severity: Severity) -> None:
    rates = np.full(200, PEAK)
    rates[120:] *= times
    finding = broken(judged("learning-rate-jump", {"lr": rates}), severity=severity)
    assert finding.onset_step == 121
    assert finding.onset_interval == (120, 121)
    assert finding.observed == pytest.approx(times)


@pytest.mark.parametrize(
    "rates",
    [
        schedule(),
        restarts(),
        np.full(200, PEAK),
        schedule()[::25],  # eight rows of which the first is 0
        np.concatenate([[0.0, 1e-7], np.full(40, PEAK)]),  # a warm-up shorter than the logging interval
        PEAK * np.exp(-np.arange(40)[::-1].clip(20) / 2.0),  # exponential warm-up
    ],
)
def test_no_schedule_is_a_jump(rates: Array) -> None:
    healthy(judged("learning-rate-jump", {"lr": rates}))


def test_without_a_logged_rate_no_question_is_answered() -> None:
    for rule in ("learning-rate-jump", "learning-rate-zero", "learning-rate-high", "warmup-unfinished"):
        not_judged(judged(rule, {"kl/ref": level(0.1)}))


# --- zero


def test_a_rate_of_zero_throughout_trains_nothing() -> None:
    metrics = {"lr": np.zeros(100), "loss/total": level(0.3)}
    assert broken(judged("learning-rate-zero", metrics), severity=Severity.HIGH).onset_step == 1


def test_a_schedule_that_ends_long_before_the_run_is_dated() -> None:
    rates = np.concatenate([schedule(100), np.zeros(60)])
    finding = broken(judged("learning-rate-zero", {"lr": rates}), severity=Severity.MEDIUM)
    assert finding.onset_step == 101


def test_a_schedule_that_ends_at_zero_is_healthy() -> None:
    healthy(judged("learning-rate-zero", {"lr": np.append(schedule(), [0.0, 0.0])}))


def test_a_log_of_three_decimals_cannot_show_a_small_rate() -> None:
    rounded = {"lr": np.zeros(100), "loss/total": np.round(level(0.3), 3), "kl/ref": np.round(level(0.01), 3)}
    not_judged(judged("learning-rate-zero", rounded))


def test_a_trainer_that_rounds_its_loss_writes_the_rate_in_full() -> None:
    rounded = {"lr": np.zeros(100), "loss/total": np.round(level(1.3), 4)}
    not_judged(judged("learning-rate-zero", rounded))
    broken(judged("learning-rate-zero", {**rounded, "grad_norm": level(2.5)}), severity=Severity.HIGH)
    by_trainer = replace(run_of(last_step=100), framework="transformers")
    broken(judged("learning-rate-zero", rounded, run=by_trainer), severity=Severity.HIGH)


# --- far above what is usual


def test_a_rate_far_above_is_a_note_until_something_breaks_under_it() -> None:
    verdict = judged("learning-rate-high", {"lr": schedule(peak=0.02), "loss/total": level(2.0)}, algorithm=SFT)
    assert isinstance(verdict, Healthy)
    assert [note.severity for note in verdict.notes] == [Severity.LOW]


def test_a_loss_that_rose_under_it_and_came_back_is_a_finding() -> None:
    loss = np.concatenate([level(2.0, 20), level(7.0, 60), level(2.2, 120)])
    finding = broken(
        judged("learning-rate-high", {"lr": schedule(peak=0.02), "loss/total": loss}, algorithm=SFT),
        severity=Severity.MEDIUM,
    )
    assert "loss rose from 2" in finding.claim


def test_an_evaluation_loss_that_peaked_under_it_is_a_finding() -> None:
    metrics = {"lr": schedule(peak=0.2), "loss/total": level(2.0)}
    peaked = series_of("eval/loss", [1.5, 2.77, 1.9, 1.6, 1.4], steps=[40, 80, 120, 160, 200])
    found = broken(judged("learning-rate-high", metrics, algorithm=SFT, eval_loss=peaked), severity=Severity.MEDIUM)
    assert "the evaluation loss rose from 1.5 to 2.77 under it" in found.claim
    falling = series_of("eval/loss", [2.77, 1.9, 1.6, 1.5, 1.4], steps=[40, 80, 120, 160, 200])
    assert healthy(judged("learning-rate-high", metrics, algorithm=SFT, eval_loss=falling)).notes


@pytest.mark.parametrize(("algorithm", "peak"), [(SFT, 1e-3), (GRPO, 5e-4), (GRPO, 1e-6)])
def test_usual_rates_and_those_of_adapters_are_healthy(algorithm: Algorithm, peak: float) -> None:
    healthy(judged("learning-rate-high", {"lr": schedule(peak=peak)}, algorithm=algorithm))


def test_classical_control_has_rates_of_its_own() -> None:
    rate = replace(series_of("lr", np.full(50, 3e-3)), raw_name="charts/learning_rate")
    not_judged(judged("learning-rate-high", {"lr": rate}, algorithm=GRPO), applies=False)


# --- warm-up


def test_a_warm_up_as_long_as_the_run_is_a_note() -> None:
    rising = PEAK * np.arange(1, 101) / 100
    verdict = judged("warmup-unfinished", {"lr": rising}, run=planned(100))
    assert isinstance(verdict, Healthy)
    assert [note.id for note in verdict.notes] == ["warmup-unfinished"]


@pytest.mark.parametrize(("rates", "steps"), [(schedule(), 200), (PEAK * np.arange(1, 101) / 100, 4000)])
def test_a_warm_up_that_ended_or_was_stopped_is_none(rates: Array, steps: int) -> None:
    assert healthy(judged("warmup-unfinished", {"lr": rates}, run=planned(steps))).notes == ()
