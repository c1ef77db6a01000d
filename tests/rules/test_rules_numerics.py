"""Rules on numbers that are none: broken, healthy and not judged, and what healthy noise gives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from builders import Array, evidence_of
from rule_cases import finding, level
from slow_cases import first_fast

from ptt.diagnostics.evidence.algorithm import Algorithm, Family
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Broken, Healthy, Link, NotJudged, RuleVerdict, Severity
from ptt.diagnostics.rules import NUMERICS_RULES
from ptt.diagnostics.rules.interface import Rule
from ptt.diagnostics.schema import Flag

BY_ID = {rule.id: rule for rule in NUMERICS_RULES}
NAN = math.nan
Metrics = Mapping[str, Series | Array]


def ar(count: int, *, likeness: float, seed: int) -> Array:
    """AR(1) of variance 1."""
    shocks = np.random.default_rng(seed).normal(size=count)
    values = np.zeros(count)
    for place in range(1, count):
        values[place] = likeness * values[place - 1] + math.sqrt(1 - likeness**2) * shocks[place]
    return values


def run(rule: str, metrics: Metrics, *, family: Family | None = None, **context: Any) -> RuleVerdict:
    evidence = evidence_of(metrics=metrics)
    facts = replace(evidence.run, context=context)
    return BY_ID[rule].run(replace(evidence, run=facts, algorithm=Algorithm(family=family)))


STUCK = np.concatenate([level(1.0, 60), np.full(40, 0.75)])
DEAD_LOSS = np.concatenate([level(1.0, 60), np.zeros(40)])
DEAD_NORM = np.concatenate([level(1.0, 60), np.full(40, NAN)])


@pytest.mark.parametrize(
    ("metrics", "family"),
    [
        ({"loss/total": STUCK, "entropy": level(0.5)}, Family.ONLINE),
        ({"loss/total": DEAD_LOSS, "grad_norm": DEAD_NORM}, Family.ONLINE),
        ({"loss/total": DEAD_LOSS, "grad_norm": DEAD_LOSS}, Family.ONLINE),
        ({"loss/total": DEAD_LOSS, "sft/token_accuracy": level(0.5)}, Family.SUPERVISED),
        ({"loss/policy": STUCK, "kl/ref": level(0.5)}, Family.ONLINE),
    ],
)
def test_a_loss_that_stands_still_is_found(metrics: Metrics, family: Family) -> None:
    found = finding(run("frozen-loss", metrics, family=family))
    assert found.onset_step == 61
    assert found.observed == 40
    assert found.severity is Severity.HIGH
    assert found.confirm


def test_the_zero_loss_of_fresh_groups_is_no_frozen_loss() -> None:
    metrics = {"loss/total": np.zeros(100), "grad_norm": level(0.3), "entropy": level(0.5)}
    assert isinstance(run("frozen-loss", metrics, family=Family.ONLINE), Healthy)
    verdict = run("frozen-loss", {"loss/total": np.zeros(100), "entropy": level(0.5)}, family=Family.ONLINE)
    assert isinstance(verdict, NotJudged)
    assert verdict.missing == ("grad_norm",)
    near_zero = {"loss/total": np.repeat(level(0.0, 50) + 1e-9 * level(1.0, 50), 2), "grad_norm": level(0.3)}
    assert isinstance(run("frozen-loss", near_zero, family=Family.ONLINE), Healthy)


def test_gradients_that_vanish_are_found_with_what_they_mean() -> None:
    gone = np.concatenate([level(1.0, 25), level(0.001, 75)])
    lost = np.concatenate([level(0.8, 25), level(0.05, 75)])
    found = finding(run("gradient-vanished", {"grad_norm": gone, "reward/mean": lost}))
    assert found.severity is Severity.HIGH
    assert found.onset_step == pytest.approx(35, abs=12)
    assert found.onset_interval is not None
    assert found.onset_interval[0] == pytest.approx(26, abs=2)
    assert finding(run("gradient-vanished", {"grad_norm": gone})).severity is Severity.MEDIUM
    zeros = np.concatenate([level(1.0, 70), np.zeros(30)])
    assert finding(run("gradient-vanished", {"grad_norm": zeros})).onset_step == 71


def test_gradients_of_a_solved_task_are_a_note() -> None:
    gone = np.concatenate([level(1.0, 50), level(0.001, 50)])
    solved = run("gradient-vanished", {"grad_norm": gone, "reward/mean": np.linspace(0.1, 1.0, 100)})
    learnt = run("gradient-vanished", {"grad_norm": gone, "loss/total": np.geomspace(3.0, 0.01, 100)})
    for verdict in (solved, learnt):
        assert isinstance(verdict, Healthy)
        assert verdict.notes[0].severity is Severity.LOW
    assert isinstance(run("gradient-vanished", {"grad_norm": np.geomspace(1.0, 0.05, 200)}), Healthy)


@pytest.mark.parametrize("first", [0, 20, 60])
def test_zeros_that_end_are_a_note(first: int) -> None:
    norms = level(1.0)
    norms[first : first + 20] = 0.0
    verdict = run("gradient-vanished", {"grad_norm": norms, "reward/std": level(0.4)})
    assert isinstance(verdict, Healthy)
    assert [(note.onset_step, note.severity) for note in verdict.notes] == [(first + 1, Severity.LOW)]


def test_whether_zeros_matter_is_told_by_the_rewards_beside_them() -> None:
    norms = level(1.0)
    norms[65:95] = 0.0
    without = np.where((np.arange(100) >= 65) & (np.arange(100) < 95), 1.0, 0.2)
    rewards = np.concatenate([np.linspace(0.2, 0.9, 95), np.full(5, 0.1)])
    told = {"grad_norm": norms, "reward/zero_std_frac": without, "reward/mean": rewards}
    assert isinstance(run("gradient-vanished", told), Healthy)
    told["reward/zero_std_frac"] = np.where(without == 1.0, 0.0, 0.6)
    assert "rewards still differ within 100%" in finding(run("gradient-vanished", told)).claim


STANDS = 0.6 + 0.02 * np.sin(np.arange(100.0))
RISES = np.concatenate([np.linspace(0.2, 0.6, 50), STANDS[50:]])


@pytest.mark.parametrize(
    "signal",
    [
        {"reward/zero_std_frac": level(0.3)},
        {"reward/zero_std_frac": np.linspace(0.2, 0.7, 100)},
        {"reward/std": level(0.4)},
    ],
)
def test_a_gradient_that_vanishes_while_rewards_differ_is_no_solved_task(signal: Metrics) -> None:
    gone = np.concatenate([level(1.0, 50), level(1e-4, 50)])
    found = finding(run("gradient-vanished", {"grad_norm": gone, "reward/mean": RISES, **signal}))
    assert found.severity is Severity.MEDIUM
    assert "rewards still differ" in found.claim


def test_extremes_of_the_rewards_stand_for_their_spread() -> None:
    gone = np.concatenate([level(1.0, 50), level(1e-4, 50)])
    evidence = evidence_of(metrics={"grad_norm": gone, "reward/mean": RISES})
    other = {f"critic/score/{end}": value for end, value in (("min", np.zeros(100)), ("max", np.ones(100)))}
    told = evidence_of(metrics=other).metrics
    assert isinstance(BY_ID["gradient-vanished"].run(evidence), Healthy)
    assert isinstance(BY_ID["gradient-vanished"].run(replace(evidence, other=told)), Broken)


def test_groups_without_a_spread_leave_no_gradient() -> None:
    gone = np.concatenate([level(1.0, 50), level(0.005, 50)])
    alike = np.concatenate([np.linspace(0.2, 0.99, 50), np.full(50, 0.99)])
    verdict = run("gradient-vanished", {"grad_norm": gone, "reward/mean": RISES, "reward/zero_std_frac": alike})
    assert isinstance(verdict, Healthy)
    assert verdict.notes[0].severity is Severity.LOW


@pytest.mark.parametrize(("family", "word"), [(Family.ONLINE, "advantage"), (Family.SUPERVISED, "examples")])
def test_spikes_are_explained_by_what_the_run_trains_on(family: Family, word: str) -> None:
    values = level(1.0)
    values[[60, 70, 80]] = 100.0
    found = finding(run("gradient-spikes", {"grad_norm": values}, family=family))
    assert any(word in cause for cause in found.causes)
    assert family is Family.ONLINE or not any(
        "advantage" in told for told in (*found.causes, *found.confirm, *found.next)
    )


def test_one_clear_spike_is_noted_with_its_step() -> None:
    values = level(1.0)
    values[70] = 100.0
    verdict = run("gradient-spikes", {"grad_norm": values})
    assert isinstance(verdict, Healthy)
    assert [(note.onset_step, note.severity) for note in verdict.notes] == [(71, Severity.LOW)]


def test_a_filtered_loss_is_said_beside_the_gradient() -> None:
    verdict = run("metrics-lost", {"loss/total": DEAD_LOSS, "grad_norm": DEAD_NORM})
    found = finding(verdict)
    assert found.evidence["loss_shown_as_0"] == 40
    assert "shown as exactly 0" in found.claim


def test_what_moved_before_a_nan_is_told_in_order() -> None:
    ratio, norm, loss = level(1.2), level(0.5), level(0.1)
    ratio[80:] *= 50
    norm[84:] *= 40
    loss[88:] = NAN
    found = finding(run("nan-precursors", {"is/ratio_max": ratio, "grad_norm": norm, "loss/total": loss}))
    assert found.evidence["chain"] == "is/ratio_max@81 > grad_norm@85"
    assert found.onset_interval == (81, 89)
    assert found.evidence["first_not_a_number"] == 89


def test_a_run_that_dies_early_still_has_precursors() -> None:
    kl = np.array([0.0, 0.0, 0.07, 5.4, 6.0, 7.0, 1.7, 1.7, 1.6, 1.7, 1.7, NAN])
    found = finding(run("nan-precursors", {"kl/ref": kl}))
    assert found.onset_step == 4


def test_an_outlier_long_before_a_nan_is_none_of_its_precursors() -> None:
    norm, loss = level(0.5), level(0.1)
    norm[[40, 62]] = [9.0, 12.0]  # normal values follow for eighteen steps
    norm[80:] = NAN
    assert isinstance(run("nan-precursors", {"grad_norm": norm, "loss/total": loss}), Healthy)
    norm[[71, 74, 77]] = [20.0, 9.0, 12.0]  # one burst that reaches the NaN
    found = finding(run("nan-precursors", {"grad_norm": norm, "loss/total": loss}))
    assert found.evidence["chain"] == "grad_norm@72"


def test_a_nan_spelt_null_has_precursors_and_a_spike_that_came_back_is_none() -> None:
    norm, kl = level(0.5), level(0.05)
    kl[60] = 5.0
    norm[75:80] *= [4, 20, 80, 150, 300]
    norm[80:] = NAN
    series = evidence_of(metrics={"grad_norm": norm}).metrics["grad_norm"]
    null = replace(series, flags=np.where(np.isfinite(norm), Flag.FINITE, Flag.NULL_IN_SOURCE).astype(np.uint8))
    found = finding(run("nan-precursors", {"grad_norm": null, "kl/ref": kl}))
    assert found.evidence["chain"] == "grad_norm@76"
    assert found.evidence["first_not_a_number"] == 81
    single = null.values.copy()
    single[50:52] = NAN
    single[75:] = level(0.5)[75:]
    flags = np.where(np.isfinite(single), Flag.FINITE, Flag.NULL_IN_SOURCE).astype(np.uint8)
    verdict = run("nan-precursors", {"grad_norm": replace(null, values=single, flags=flags), "kl/ref": kl})
    assert isinstance(verdict, Healthy), "two nulls in the middle are rows without the metric"


def test_one_reward_that_is_no_number_is_the_reward_s_fault_at_its_own_step() -> None:
    reward, loss = level(0.7), level(0.1)
    reward[60] = np.inf
    loss[58] = 40.0  # a wild step shortly before, as a policy's loss has many
    metrics = {"reward/mean": reward, "loss/total": loss, "grad_norm": level(0.5)}
    assert isinstance(run("nan-precursors", metrics), Healthy)
    found = finding(run("metrics-lost", metrics))
    assert (found.link, found.onset_step, found.severity) == (Link.REWARD, 61, Severity.MEDIUM)


def test_a_lasting_rate_of_nan_begins_with_its_first_and_not_after_the_last_finite_value() -> None:
    norm = level(0.5)
    norm[[11, 30]] = NAN  # single ones, long before
    norm[60:] = NAN
    norm[[72, 90]] = 0.5
    found = finding(run("metrics-lost", {"grad_norm": norm, "loss/total": level(0.1)}))
    assert (found.onset_step, found.severity) == (61, Severity.CRITICAL)


def test_what_stays_as_it_was_after_a_nan_is_no_precursor_of_it() -> None:
    reward, falling = level(0.7), np.concatenate([level(0.5, 40), level(0.05, 60)])
    reward[70] = np.inf
    assert isinstance(run("nan-precursors", {"reward/mean": reward, "entropy": falling}), Healthy)
    hump = level(0.5)
    hump[60:70] *= 50
    found = finding(run("nan-precursors", {"reward/mean": reward, "grad_norm": hump}))
    assert found.evidence["chain"] == "grad_norm@61"


def test_a_nan_out_of_nothing_is_a_note_and_no_nan_is_healthy() -> None:
    loss = level(0.1)
    loss[88] = NAN
    verdict = run("nan-precursors", {"grad_norm": level(0.5), "loss/total": loss})
    assert isinstance(verdict, Healthy)
    assert verdict.notes[0].onset_step == 89
    verdict = run("nan-precursors", {"grad_norm": level(0.5), "loss/total": level(0.1)})
    assert isinstance(verdict, Healthy)
    assert not verdict.notes
    assert isinstance(run("nan-precursors", {"entropy": np.full(50, NAN)}), NotJudged)


def test_a_loss_on_given_data_that_rises_again_is_found() -> None:
    loss = np.concatenate([np.geomspace(3.0, 0.5, 100), np.linspace(0.5, 2.0, 100)]) * level(1.0, 200)
    found = finding(run("loss-divergence", {"loss/total": loss}, family=Family.SUPERVISED))
    assert found.onset_step == pytest.approx(140, abs=15)
    assert found.severity is Severity.MEDIUM
    worse = np.concatenate([loss, np.full(50, 9.0) * level(1.0, 50)])
    from_chance = np.concatenate([level(0.693, 80, share=0.01), np.linspace(0.693, 1.12, 60), level(1.12, 60)])
    assert finding(run("loss-divergence", {"loss/total": from_chance}, family=Family.PREFERENCE)).onset_step
    assert finding(run("loss-divergence", {"loss/total": worse}, family=Family.PREFERENCE)).severity is Severity.HIGH
    tiny = np.concatenate([np.geomspace(0.7, 0.001, 100), np.full(100, 0.01)]) * level(1.0, 200)
    assert isinstance(run("loss-divergence", {"loss/total": tiny}, family=Family.PREFERENCE), Healthy)


@pytest.mark.parametrize("before", [1, 4])
def test_a_few_rows_show_a_loss_that_is_gone(before: int) -> None:
    gone = np.concatenate([level(1.2, before), [4.8, 9.1, 8.7]])
    found = finding(run("loss-divergence", {"loss/total": gone}, family=Family.SUPERVISED))
    assert (found.onset_step, found.severity) == (before + 1, Severity.HIGH)
    for small in (level(1.2, 7), np.array([1.2, 1.3, 5.0, 1.2, 5.1, 5.2]), np.array([9.0, 9.1, 8.9, 9.0])):
        assert isinstance(run("loss-divergence", {"loss/total": small}, family=Family.SUPERVISED), NotJudged)
    assert isinstance(run("loss-divergence", {"loss/total": gone}, family=Family.ONLINE), NotJudged)


def test_a_policy_loss_is_judged_by_its_size_alone() -> None:
    small = np.random.default_rng(3).normal(size=200) * np.geomspace(0.005, 0.05, 200)
    assert isinstance(run("loss-divergence", {"loss/total": small}, family=Family.ONLINE), Healthy)
    blown = small.copy()
    blown[120:] *= 1e4
    found = finding(run("loss-divergence", {"loss/policy": blown}, family=Family.ONLINE))
    assert found.severity is Severity.HIGH
    assert found.onset_step == pytest.approx(125, abs=10)


def test_a_loss_scale_that_keeps_falling_is_found() -> None:
    often = np.concatenate([np.full(60, 65536.0), 65536.0 / 2.0 ** np.arange(6), np.full(40, 2048.0)])
    found = finding(run("loss-scale-drops", {"loss_scale": often}))
    assert (found.severity, found.onset_step) == (Severity.MEDIUM, 62)
    ended = np.concatenate([np.full(60, 16.0), 16.0 / 2.0 ** np.arange(5), np.full(40, 1.0)])
    assert finding(run("loss-scale-drops", {"loss_scale": ended})).severity is Severity.HIGH


def test_a_loss_scale_at_its_end_is_told_by_the_limit_in_force() -> None:
    ended = np.concatenate([np.full(60, 64.0), 64.0 / 2.0 ** np.arange(4), np.full(40, 8.0)])
    evidence = evidence_of(metrics={"loss_scale": ended}, limits={"loss-scale-drops": {"lowest": 8.0}})
    assert finding(BY_ID["loss-scale-drops"].run(evidence)).limit == 8.0


def test_a_loss_scale_that_finds_its_level_is_healthy_and_none_is_no_question_in_bfloat16() -> None:
    warm = np.concatenate([65536.0 / 2.0 ** np.arange(8), np.full(200, 512.0), np.full(200, 1024.0), np.full(9, 512.0)])
    assert isinstance(run("loss-scale-drops", {"loss_scale": warm}), Healthy)
    assert isinstance(run("loss-scale-drops", {"loss_scale": np.full(100, 1.0)}), Healthy)
    verdict = run("loss-scale-drops", {"grad_norm": level(1.0)}, bf16=True)
    assert isinstance(verdict, NotJudged)
    assert not verdict.applies


@pytest.mark.parametrize("rule", NUMERICS_RULES, ids=lambda rule: rule.id)
def test_too_few_values_are_not_judged(rule: Rule) -> None:
    metrics = {name: level(1.0, 9) for name in ("loss/total", "grad_norm", "loss_scale", "kl/ref")}
    assert isinstance(run(rule.id, metrics), NotJudged)


@pytest.mark.parametrize("likeness", first_fast([0.6, 0.0, 0.3, 0.8]))
@pytest.mark.parametrize("count", [40, 100, 300, 700])
@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 13), marks=pytest.mark.slow)])
def test_healthy_noise_and_drift_give_nothing(likeness: float, count: int, seeds: range) -> None:
    """Sixteen kinds of run times thirteen seeds: over two hundred."""
    for seed in seeds:
        drift = np.linspace(0, 1, count)
        metrics: Metrics = {
            "loss/total": (2.0 - drift) * np.exp(0.1 * ar(count, likeness=likeness, seed=seed)),
            "grad_norm": np.exp(0.5 * ar(count, likeness=likeness, seed=100 + seed) - 1.5 * drift),
            "entropy": (0.5 - 0.3 * drift) * np.exp(0.1 * ar(count, likeness=likeness, seed=200 + seed)),
            "reward/mean": 0.3 + 0.4 * drift + 0.05 * ar(count, likeness=likeness, seed=300 + seed),
            "kl/ref": 0.05 * drift * np.exp(0.3 * ar(count, likeness=likeness, seed=400 + seed)),
            "loss_scale": np.full(count, 65536.0),
        }
        for rule in NUMERICS_RULES:
            for family in (Family.ONLINE, Family.SUPERVISED):
                assert not isinstance(run(rule.id, metrics, family=family), Broken), (rule.id, seed)


def test_a_cross_entropy_below_zero_is_found_and_one_slip_is_not() -> None:
    losses = np.linspace(0.3, 0.001, 60)
    broken = losses.copy()
    broken[30:49] = -0.0002
    found = finding(run("loss-below-zero", {"loss/total": broken}, family=Family.SUPERVISED))
    assert (found.severity, found.onset_step) == (Severity.MEDIUM, 31)
    assert found.claim == "The loss is below 0 at 19 of 60 logged steps, which a cross entropy cannot be"
    slip = losses.copy()
    slip[30] = -0.0002
    assert isinstance(run("loss-below-zero", {"loss/total": slip}, family=Family.SUPERVISED), Healthy)
    assert isinstance(run("loss-below-zero", {"loss/total": -losses}), NotJudged)
    assert isinstance(run("loss-below-zero", {"grad_norm": losses}, family=Family.SUPERVISED), NotJudged)


@pytest.mark.parametrize("rows", [3, 50])
def test_given_answers_without_any_gradient_are_not_trained_on(rows: int) -> None:
    found = finding(run("gradient-vanished", {"grad_norm": np.zeros(rows)}, family=Family.PREFERENCE))
    assert found.severity is Severity.HIGH
    assert found.claim == f"The gradient norm is exactly 0 at all {rows} logged steps: nothing is trained"
    assert isinstance(run("gradient-vanished", {"grad_norm": np.zeros(3)}, family=Family.ONLINE), NotJudged)


def test_one_overflow_of_half_precision_is_a_note_and_a_column_never_filled_was_not_lost() -> None:
    norms = level(1.0, 70)
    norms[33] = NAN
    evidence = evidence_of(metrics={"grad_norm": norms, "loss/total": level(1.0, 70)})
    flags = np.where(np.isnan(norms), Flag.POS_INF, Flag.FINITE).astype(np.uint8)
    infinite = replace(evidence.metrics["grad_norm"], flags=flags)
    overflown = replace(evidence, metrics={**evidence.metrics, "grad_norm": infinite})
    assert finding(BY_ID["metrics-lost"].run(overflown)).severity is Severity.LOW
    empty = replace(infinite, name="kl/ref", values=np.full(70, NAN), flags=np.full(70, Flag.NULL_IN_SOURCE, np.uint8))
    unfilled = replace(evidence, metrics={"loss/total": evidence.metrics["loss/total"], "kl/ref": empty})
    assert isinstance(BY_ID["metrics-lost"].run(unfilled), Healthy)
