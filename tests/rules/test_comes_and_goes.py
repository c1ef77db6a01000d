"""Faults that come and go: what a reward, a mismatch, a KL, an entropy, a length or a time does at some steps alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from builders import Array, evidence_of, series_of
from rule_cases import BY_ID, broken, healthy, level, not_judged
from slow_cases import first_fast

from ptt import api
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.evaluation import EvalMetric, Evaluation
from ptt.diagnostics.evidence.excursions import find_long_dip, gather_excursions
from ptt.diagnostics.evidence.machines import Event
from ptt.diagnostics.model import Broken, Finding, Healthy, Link, Severity
from ptt.diagnostics.rules import RULES
from ptt.diagnostics.verdict.green_light import left_level

COUNT = 120
AFTER_EVALUATION = list(range(10, COUNT - 1, 10))  # places of the steps 11, 21, ...
IRREGULAR = [7, 12, 13, 25, 40, 41, 58, 77, 90, 101, 111]
RULE_IDS = (
    "reward-dips",
    "mismatch-comes-and-goes",
    "kl-spikes",
    "entropy-excursions",
    "length-excursions",
    "slow-steps",
)


def at(values: Array, places: Sequence[int], value: float) -> Array:
    """Return values with others at some places."""
    changed = values.copy()
    changed[places] = value * level(1.0, len(places), seed=9)
    return changed


def reward() -> Array:
    return np.linspace(0.3, 0.6, COUNT) + 0.05 * np.random.default_rng(1).normal(size=COUNT)


def run_of(
    metrics: Mapping[str, Array],
    *,
    evaluated: Sequence[int] = (),
    events: tuple[Event, ...] = (),
    other: Mapping[str, Array] | None = None,
) -> Evidence:
    evidence = evidence_of(metrics=metrics)
    points = series_of("val/accuracy", np.linspace(0.2, 0.6, len(evaluated)), steps=evaluated)
    evaluation = Evaluation(figures=(EvalMetric(name="accuracy", split="val", outcome=True, series=points),))
    evidence = replace(
        evidence,
        evaluation=evaluation if evaluated else None,
        events=events,
        other={name: series_of(name, values) for name, values in (other or {}).items()},
    )
    found = gather_excursions(
        evidence.metrics,
        run=evidence.run,
        other=evidence.other,
        evaluation=evidence.evaluation,
        events=evidence.events,
    )
    return replace(evidence, excursions=found)


def findings_of(evidence: Evidence) -> list[Finding]:
    verdicts = [rule.run(evidence) for rule in RULES if rule.id in RULE_IDS]
    return [finding for verdict in verdicts if isinstance(verdict, Broken) for finding in verdict.findings]


def test_rewards_of_0_after_each_evaluation_are_one_finding_that_says_so() -> None:
    metrics = {
        "reward/mean": at(reward(), AFTER_EVALUATION, 0.0),
        "mismatch/prob_error": at(level(1.012, COUNT) ** 0.01 + 0.01, AFTER_EVALUATION, 150.0),
        "len/response_mean": at(level(2500, COUNT), AFTER_EVALUATION, 16384.0),
        "entropy": at(level(0.4, COUNT), AFTER_EVALUATION, 5.0),
        "time/step": at(level(300, COUNT), AFTER_EVALUATION, 800.0),
    }
    (finding,) = findings_of(run_of(metrics, evaluated=range(10, COUNT + 1, 10)))
    assert finding.id == "reward-dips"
    assert finding.severity is Severity.HIGH
    assert finding.link is Link.DATA_FRESHNESS
    assert finding.onset_step == 11
    assert "falls to 0 at steps 11, 21, 31, 41 and 7 more" in finding.claim
    assert "(one logged step after each evaluation; every 10 steps)" in finding.claim
    assert "there logged/mismatch/prob_error is 148 instead of 1.01" in finding.claim
    assert "evaluation" in finding.causes[0]
    assert finding.evidence["goes_with"] == "evaluation"
    assert finding.evidence["every_steps"] == 10


def test_a_single_low_reward_is_no_failure() -> None:
    evidence = run_of({"reward/mean": at(reward(), [60], 0.0)})
    healthy(BY_ID["reward-dips"].run(evidence))


@pytest.mark.parametrize(("answers", "found"), [(4, False), (64, True)])
def test_a_step_of_few_answers_fails_as_a_whole_by_chance(answers: int, found: bool) -> None:
    shares = at(np.round(answers * reward()) / answers, IRREGULAR, 0.0)
    verdict = BY_ID["reward-dips"].run(run_of({"reward/mean": at(reward(), IRREGULAR, 0.0), "task/success": shares}))
    assert isinstance(verdict, Broken) is found


def test_a_span_of_failed_rollouts_is_told_from_a_reward_that_fell() -> None:
    span = list(range(60, 80))
    metrics = {
        "reward/mean": at(np.full(COUNT, 0.4) + 0.12 * np.random.default_rng(3).normal(size=COUNT), span, 0.02),
        "len/response_mean": at(level(1800, COUNT), span, 100.0),
    }
    (finding,) = findings_of(run_of(metrics))
    assert finding.id == "reward-dips"
    assert finding.severity is Severity.HIGH
    assert "at steps 61 to 80" in finding.claim
    assert "logged/len/response_mean" in finding.claim
    healthy(BY_ID["reward-fell"].run(evidence_of(metrics=metrics)))


def test_after_a_restart_the_engine_is_suspected() -> None:
    places = [70, 71, 72]
    metrics = {
        "reward/mean": at(reward() + 0.3, places, 0.3),
        "mismatch/logp_abs_mean": at(level(0.012, COUNT), places, 0.3),
    }
    ended = Event(step=70, kind="last_line", text="saved", source="train_1.log")
    (finding,) = findings_of(run_of(metrics, events=(ended,)))
    assert finding.id == "reward-dips"
    assert finding.link is Link.DATA_FRESHNESS
    assert "at steps 71 to 73 (one logged step after a restart)" in finding.claim
    assert "reference" in finding.causes[0]


def test_a_mismatch_at_a_quarter_of_the_steps_is_found_though_its_median_is_low() -> None:
    generator = np.random.default_rng(4)
    places = np.sort(generator.choice(np.arange(5, 235), 58, replace=False))
    values = 1.012 + 0.001 * generator.normal(size=240)
    values[places] += generator.lognormal(0.5, 1, size=58)
    evidence = run_of({"mismatch/prob_error": values, "reward/mean": level(0.4, 240)})
    finding = broken(BY_ID["mismatch-comes-and-goes"].run(evidence), severity=Severity.HIGH)
    assert "disagree at 24" in finding.claim
    assert "every" not in finding.claim
    assert [one.id for one in findings_of(evidence)] == ["mismatch-comes-and-goes"]
    healthy(BY_ID["engine-mismatch"].run(evidence))


def test_a_lasting_mismatch_is_left_to_engine_mismatch() -> None:
    values = at(level(1.2, COUNT) ** 0.1 + 0.2, IRREGULAR, 40.0)
    evidence = run_of({"mismatch/prob_error": values})
    healthy(BY_ID["mismatch-comes-and-goes"].run(evidence))
    broken(BY_ID["engine-mismatch"].run(evidence))


@pytest.mark.parametrize(("places", "severity"), [(IRREGULAR, Severity.MEDIUM), ([60], None)])
def test_kl_spikes_are_a_pattern_and_one_is_a_note(places: list[int], severity: Severity | None) -> None:
    evidence = run_of({"kl/ref": at(0.03 * np.exp(0.3 * np.random.default_rng(5).normal(size=COUNT)), places, 12.0)})
    verdict = BY_ID["kl-spikes"].run(evidence)
    if severity is not None:
        finding = broken(verdict, severity=severity)
        assert "at steps 8, 13 to 14, 26, 41 to 42 and 5 more" in finding.claim
        return
    (note,) = healthy(verdict).notes
    assert note.severity is Severity.LOW
    assert "at step 61 and comes back" in note.claim


def test_small_kl_spikes_do_no_harm() -> None:
    healthy(BY_ID["kl-spikes"].run(run_of({"kl/ref": at(level(0.003, COUNT), IRREGULAR, 0.2)})))


@pytest.mark.parametrize("value", [0.1, 3.0])
def test_an_entropy_that_leaves_its_level_and_returns(value: float) -> None:
    evidence = run_of({"entropy": at(level(0.8, COUNT), IRREGULAR, value)})
    finding = broken(BY_ID["entropy-excursions"].run(evidence), severity=Severity.MEDIUM)
    assert ("falls" if value < 0.8 else "rises") in finding.claim


def test_answers_that_are_cut_short_for_a_span() -> None:
    evidence = run_of({"len/response_mean": at(level(900, COUNT), list(range(50, 58)), 20.0)})
    finding = broken(BY_ID["length-excursions"].run(evidence), severity=Severity.MEDIUM)
    assert "at steps 51 to 58" in finding.claim
    healthy(BY_ID["length-excursions"].run(run_of({"len/response_mean": at(level(900, COUNT), IRREGULAR, 1300.0)})))


def test_slow_steps_name_what_fails_with_them_and_are_quiet_where_they_are_by_design() -> None:
    span = list(range(60, 72))
    errors = at(level(0.02, COUNT), span, 0.9)
    evidence = run_of({"time/step": at(level(100, COUNT), span, 900.0)}, other={"env/error_rate": errors})
    note = broken(BY_ID["slow-steps"].run(evidence), severity=Severity.MEDIUM)
    assert "at steps 61 to 72" in note.claim
    assert "env/error_rate is 0.892 instead of 0.020" in note.claim
    by_design = run_of({"time/step": at(level(100, COUNT), list(range(9, COUNT, 10)), 500.0)})
    assert not healthy(BY_ID["slow-steps"].run(by_design)).notes


def test_steps_of_one_shard_are_laid_to_it() -> None:
    shard = np.arange(COUNT) // 3 % 8
    places = np.flatnonzero(shard == 5).tolist()
    evidence = run_of({"reward/mean": at(reward(), places, 0.02)}, other={"data/shard": shard.astype(float)})
    finding = broken(BY_ID["reward-dips"].run(evidence), severity=Severity.HIGH)
    assert finding.evidence["goes_with"] == "logged/data/shard 5"


@pytest.mark.parametrize(
    ("context", "other", "kind"),
    [
        ({"save_steps": 13}, {}, "checkpoint"),
        ({}, {"timing/save_checkpoint": np.where(np.arange(1, COUNT + 1) % 13 == 0, 40.0, 0.0)}, "checkpoint"),
        ({}, {"timing/weight_sync": np.where(np.arange(1, COUNT + 1) % 13 == 0, 4.0, np.nan)}, "weight sync"),
        ({}, {"epoch": np.arange(1, COUNT + 1) / 13}, "epoch"),
    ],
    ids=["by the settings", "by its time", "by the time of the update", "by the number of the epoch"],
)
def test_what_happens_now_and_then_is_read_from_settings_and_sparse_series(
    context: dict[str, int], other: dict[str, Array], kind: str
) -> None:
    metrics = {"reward/mean": series_of("reward/mean", at(reward(), list(range(12, COUNT - 3, 13)), 0.0))}
    run = replace(evidence_of(metrics=metrics).run, context=context)
    series = {name: series_of(name, values) for name, values in other.items()}
    (recurrence,) = gather_excursions(metrics, run=run, other=series)
    assert (recurrence.coincidences[0].kind, recurrence.coincidences[0].lag) == (kind, 0)
    assert recurrence.period is not None
    assert recurrence.period.every == 13


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        ("update_weights took 3.1 s", True),
        ("weight sync done: version 7", True),
        ("update_weights failed, took 600 s", False),
        ("weight sync timed out in 600 s", False),
        ("weight transfer not finished", False),
    ],
)
def test_only_weights_that_arrive_are_a_weight_sync(line: str, sent: bool) -> None:
    places = list(range(12, COUNT - 3, 13))
    metrics = {"reward/mean": series_of("reward/mean", at(reward(), places, 0.0))}
    events = [Event(step=place + 1, kind="stdout", text=line, source="train.log") for place in places]
    (recurrence,) = gather_excursions(metrics, run=evidence_of(metrics=metrics).run, events=events)
    assert [one.kind for one in recurrence.coincidences] == ["weight sync"] * sent


@pytest.mark.parametrize("rule", RULE_IDS)
def test_without_the_series_nothing_is_judged(rule: str) -> None:
    not_judged(BY_ID[rule].run(evidence_of(metrics={"lr": np.full(COUNT, 1e-6)})))


@pytest.mark.parametrize("seed", first_fast(range(20), 5))
def test_healthy_runs_with_heavy_tails_are_quiet(seed: int) -> None:
    generator = np.random.default_rng(seed)
    heavy = np.exp(0.5 * generator.standard_t(3, size=200))
    metrics = {
        "reward/mean": generator.binomial(64, np.linspace(0.2, 0.7, 200)) / 64,
        "kl/ref": 0.01 * heavy,
        "mismatch/kl": 0.001 * heavy[::-1],
        "entropy": np.linspace(0.9, 0.3, 200) + 0.03 * generator.standard_t(3, size=200),
        "len/response_mean": 900 * np.exp(0.1 * generator.standard_t(3, size=200)),
        "time/step": 100 * np.exp(0.1 * generator.standard_t(3, size=200)),
        "grad_norm": np.exp(generator.standard_t(2, size=200)),
    }
    assert not findings_of(run_of(metrics, evaluated=range(10, 201, 10)))


def test_a_run_is_judged_from_its_files(tmp_path: Path) -> None:
    values = at(reward(), AFTER_EVALUATION, 0.0)
    rows: list[dict[str, float]] = []
    for place, value in enumerate(values):
        rows.append({"_step": place + 1, "train/reward": float(value), "train/grad_norm": 0.3})
        if (place + 1) % 10 == 0:
            rows[-1]["validation/accuracy"] = 0.3 + place / 1000
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    diagnosis = api.diagnose(folder)
    (finding,) = [one for one in diagnosis.findings if one.id == "reward-dips"]
    assert "one logged step after" in finding.claim
    assert diagnosis.verdict.status == "suspect"


def long_dip_run(depth: float, shorter: float) -> Evidence:
    """A reward that climbs, and lies lower for 48 of 140 steps in which answers are shorter."""
    apart = (np.arange(140) >= 47) & (np.arange(140) < 95)
    generator = np.random.default_rng(8)
    metrics = {
        "reward/mean": np.linspace(0.4, 0.6, 140) - depth * apart + 0.03 * generator.normal(size=140),
        "len/response_mean": np.linspace(800, 900, 140) - shorter * apart + 20 * generator.normal(size=140),
    }
    evidence = evidence_of(metrics=metrics)
    points = series_of("val/accuracy", np.linspace(0.4, 0.6, 14), steps=list(range(10, 141, 10)))
    evaluation = Evaluation(figures=(EvalMetric(name="accuracy", split="val", outcome=True, series=points),))
    return replace(evidence, evaluation=evaluation, long_dip=find_long_dip(evidence.metrics, {}))


def test_a_reward_that_leaves_its_level_with_the_lengths_is_a_note_with_its_steps() -> None:
    evidence = long_dip_run(0.2, 150)
    verdict = BY_ID["reward-dips"].run(evidence)
    assert isinstance(verdict, Healthy)
    (note,) = verdict.notes
    assert note.severity is Severity.LOW
    assert note.onset_step is not None
    assert abs(note.onset_step - 48) <= 3
    assert "len/response_mean" in note.claim
    assert "val/accuracy rose 0.446" in note.claim
    question = left_level(evidence.long_dip, evidence.metrics["reward/mean"])
    assert question is not None
    assert not question.judged


def test_a_reward_and_lengths_that_fall_by_the_same_share_look_like_empty_samples() -> None:
    evidence = long_dip_run(0.1, 180)
    found = broken(BY_ID["reward-dips"].run(evidence), severity=Severity.MEDIUM, near=48)
    assert "both fall by the same share" in found.context[0]
    assert "empty rows with reward 0" in found.context[1]
    unevaluated = BY_ID["reward-dips"].run(replace(evidence, evaluation=None))
    assert isinstance(unevaluated, Healthy)


@pytest.mark.parametrize(("depth", "shorter"), [(0.0, 150), (0.12, 0)], ids=["lengths alone", "reward alone"])
def test_one_of_both_alone_is_no_long_dip(depth: float, shorter: float) -> None:
    assert long_dip_run(depth, shorter).long_dip is None


def test_the_return_from_a_long_dip_is_no_late_understanding() -> None:
    place, noise = np.arange(160), np.random.default_rng(7).normal(size=(2, 160))
    apart = (place >= 40) & (place < 110)
    metrics = {
        "reward/mean": np.select([place < 40, apart], [0.46, 0.43], 0.65) + 0.02 * noise[0],
        "len/response_mean": 900 - 300 * apart + 10 * noise[1],
    }
    evidence = evidence_of(metrics=metrics)
    dipped = replace(evidence, long_dip=find_long_dip(evidence.metrics, {}))
    assert dipped.long_dip is not None
    for seen, notes in ((evidence, 1), (dipped, 0)):
        verdict = BY_ID["reward-jump"].run(seen)
        assert isinstance(verdict, Healthy)
        assert len(verdict.notes) == notes
