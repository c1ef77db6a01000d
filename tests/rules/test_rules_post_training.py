"""The rules on pairs and on given answers: broken, healthy, not judged, and quiet on what is healthy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from builders import Array, evidence_of, series_of
from hypothesis import given
from hypothesis import strategies as st

from ptt.diagnostics.evidence.algorithm import Algorithm, Family
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Broken, Finding, Healthy, NotJudged, RuleVerdict, Severity
from ptt.diagnostics.rules import POST_TRAINING_RULES
from ptt.diagnostics.rules.post_training import (
    BLOCKS,
    level_of,
    overfitting,
    preference_unstable,
    start_of,
)

BY_ID = {rule.id: rule for rule in POST_TRAINING_RULES}
NAN = math.nan
DPO = Algorithm(name="dpo", family=Family.PREFERENCE, critic=False, groups=False)
ORPO = replace(DPO, name="orpo")
KTO = replace(DPO, name="kto")
SFT = Algorithm(name="sft", family=Family.SUPERVISED, critic=False, groups=False)
MODEL = Algorithm(name="reward_model", family=Family.REWARD_MODEL, critic=False, groups=False)
GRPO = Algorithm(name="grpo", family=Family.ONLINE, critic=False, groups=True)
Metrics = Mapping[str, Series | Array]
LN2 = math.log(2.0)


def drawn(share: float | Array, *, pairs: int = 16, count: int = 200, seed: int = 1) -> Array:
    """Give accuracies of batches of pairs."""
    values: Array = np.random.default_rng(seed).binomial(pairs, np.broadcast_to(share, count)) / pairs
    return values


def course(start: float, end: float, *, count: int = 200, noise: float = 0.05, seed: int = 2, by: float = 0.2) -> Array:
    """Give a course that reaches its end within the share `by` of the run, with noise in parts of the level."""
    done = 1 - np.exp(-np.arange(count) / (by * count))
    level = start + (end - start) * done
    values: Array = level * (1 + noise * np.random.default_rng(seed).normal(size=count))
    return values


def run(rule: str, metrics: Metrics, algorithm: Algorithm = DPO, **changes: Any) -> RuleVerdict:
    evidence = evidence_of(metrics=metrics)
    return BY_ID[rule].run(replace(evidence, algorithm=algorithm, **changes))


def sides(chosen: tuple[float, float], rejected: tuple[float, float], *, beta: float = 0.1) -> dict[str, Array]:
    """Give both sides' log-probabilities and rewards: beta times what they lie off the reference's."""
    held = {}
    for seed, (side, (first, last)) in enumerate({"chosen": chosen, "rejected": rejected}.items(), start=3):
        held[f"dpo/logp_{side}"] = course(first, last, seed=seed)
        held[f"dpo/reward_{side}"] = beta * (held[f"dpo/logp_{side}"] - course(first, first, seed=seed))
    return held


def hump(best: float, last: float) -> Array:
    return np.concatenate([course(0.01, best, count=100), course(best, last, count=100)])


def sorted_batches() -> Array:
    share = np.where(np.arange(200) // 3 % 2 == 0, 0.95, 0.45)
    return drawn(share)


def restless(at: int) -> Array:
    """Give accuracies that swing from batch to batch from one place on."""
    share = np.where((np.arange(200) >= at) & (np.arange(200) // 3 % 2 == 0), 0.35, 0.85)
    return drawn(share)


def with_leaps(*places: int, height: float = 2.0) -> Array:
    values = course(3.0, 1.0, count=400, noise=0.02)
    values[list(places)] += height
    return values


JITTER: Array = np.abs(np.random.default_rng(3).normal(size=200))
EVALS = list(range(50, 650, 50))
TRAIN = series_of("loss/total", course(2.0, 0.3, count=600))
GOES_ON = series_of(
    "loss/total", 2.0 * np.exp(-np.arange(600) / 250) * (1 + 0.02 * np.random.default_rng(7).normal(size=600))
)


def evals(*values: float) -> Series:
    noise = 1 + 0.003 * np.random.default_rng(5).normal(size=len(values))
    return series_of("eval/loss", np.array(values) * noise, steps=EVALS[: len(values)])


RISING = evals(1.5, 1.2, 1.0, 1.03, 1.12, 1.2, 1.3, 1.38, 1.45, 1.5, 1.54, 1.56)

APART = np.array([0.0, 26.7, 119.6, 141.7])

BROKEN: dict[str, dict[str, tuple[Metrics, Algorithm, dict[str, Any], Severity, int | None]]] = {
    "at-chance": {
        "by its accuracy": ({"dpo/accuracy": drawn(0.5), "loss/total": np.full(200, LN2)}, DPO, {}, Severity.HIGH, 1),
        "in a short run": ({"dpo/accuracy": drawn(0.5, pairs=64, count=60)}, DPO, {}, Severity.MEDIUM, 1),
        "worse than chance": ({"dpo/accuracy": drawn(0.4)}, DPO, {}, Severity.HIGH, 1),
        "by its loss alone": ({"loss/total": course(LN2, LN2, noise=0.01)}, DPO, {}, Severity.HIGH, 1),
        "a reward model": ({}, MODEL, {"other": {"accuracy": series_of("accuracy", drawn(0.5))}}, Severity.HIGH, 1),
        "a reward model on a dashboard": (
            {}, MODEL, {"other": {"train/accuracy": series_of("train/accuracy", drawn(0.5))}}, Severity.HIGH, 1
        ),
        "OpenRLHF, which does not say whether it is DPO": (
            {"dpo/reward_rejected": np.zeros(200)}, Algorithm(), {"other": {"acc": series_of("acc", drawn(0.5))}},
            Severity.HIGH, 1,
        ),
    },
    "margin-collapse": {
        "with the accuracy": (
            {"dpo/margin": hump(2.0, 0.05), "dpo/accuracy": drawn(np.repeat([0.9, 0.5], 100))}, DPO, {}, Severity.HIGH,
            None,
        ),
        "alone": ({"dpo/margin": hump(2.0, 0.05), "dpo/accuracy": drawn(0.9)}, DPO, {}, Severity.MEDIUM, None),
    },
    "likelihood-falls": {
        "to twice as far": (sides((-100, -260), (-110, -400)), DPO, {}, Severity.MEDIUM, None),
        "to five times as far": (sides((-100, -520), (-110, -700)), DPO, {}, Severity.HIGH, None),
        "per token": (sides((-0.8, -2.2), (-0.9, -3.0)), ORPO, {}, Severity.MEDIUM, None),
    },
    "rejected-collapse": {
        "far": (sides((-10, -12), (-9, -150)), DPO, {}, Severity.MEDIUM, None),
        "very far": (sides((-10, -12), (-9, -300)), DPO, {}, Severity.HIGH, None),
    },
    "preference-saturated": {
        "four rows": (
            {"dpo/margin": APART, "loss/total": np.array([LN2, 0.16, 0.0, 0.0])}, DPO, {}, Severity.CRITICAL, 2
        ),
        "less far, without a loss": ({"dpo/margin": 0.3 * APART}, DPO, {}, Severity.HIGH, None),
    },
    "preference-unstable": {
        "sorted batches": ({"dpo/accuracy": sorted_batches()}, DPO, {}, Severity.MEDIUM, 1),
        "wider swings of averages": (
            {"dpo/accuracy": 0.55 + np.repeat([0.05, 0.35], [150, 100]) * np.random.default_rng(4).normal(size=250)},
            DPO, {}, Severity.MEDIUM, 151,
        ),
    },
    "overfitting": {
        "far": ({"loss/total": GOES_ON}, SFT, {"eval_loss": RISING}, Severity.HIGH, 250),
        "by a fifth": (
            {"loss/total": GOES_ON}, DPO,
            {"eval_loss": evals(1.5, 1.2, 1.0, 1.01, 1.03, 1.1, 1.15, 1.18, 1.2, 1.2, 1.2)}, Severity.MEDIUM, 300,
        ),
        "memorised without a rise": (
            {"loss/total": series_of("loss/total", course(2.0, 0.001, count=600, by=0.05))}, SFT,
            {"eval_loss": evals(1.6, 1.4, 1.2, 1.2, 1.2, 1.2, 1.2)}, Severity.MEDIUM, None,
        ),
    },
    "perplexity-spikes": {
        "four leaps": ({"loss/total": with_leaps(100, 180, 250, 251)}, SFT, {}, Severity.MEDIUM, 101),
        "as perplexity": ({"sft/perplexity": np.exp(with_leaps(100, 180, 250))}, SFT, {}, Severity.MEDIUM, 101),
    },
    "odds-ratio-unstable": {
        "growing swings": (
            {"orpo/log_odds_ratio": -0.7 - np.repeat([0.05, 1.5], 100) * JITTER},
            ORPO, {}, Severity.MEDIUM, None,
        )
    },
    "kto-imbalance": {
        "the undesirable side alone": (
            {"kto/desirable_loss": course(0.5, 0.02), "kto/undesirable_loss": np.full(200, 0.5)}, KTO, {},
            Severity.MEDIUM, None,
        )
    },
}  # fmt: skip

HEALTHY: dict[str, dict[str, tuple[Metrics, Algorithm, dict[str, Any]]]] = {
    "at-chance": {
        "learnt": ({"dpo/accuracy": drawn(0.75)}, DPO, {}),
        "a little": ({"dpo/accuracy": drawn(0.56, pairs=64)}, DPO, {}),
        "noisy, but the loss fell": (
            {"dpo/accuracy": drawn(0.51), "loss/total": course(LN2, 0.6, noise=0.01)}, DPO, {},
        ),
        "by its loss alone": ({"loss/total": course(LN2, 0.5)}, DPO, {}),
        "a reward model": ({}, MODEL, {"other": {"accuracy": series_of("accuracy", drawn(0.7))}}),
    },
    "margin-collapse": {
        "growing": ({"dpo/margin": course(0.01, 3.0)}, DPO, {}),
        "noise about nothing": ({"dpo/margin": 0.1 * np.random.default_rng(1).normal(size=300)}, DPO, {}),
        "lower than its best": ({"dpo/margin": hump(2.0, 1.2)}, DPO, {}),
        "never positive": ({"dpo/margin": course(-0.01, -0.5)}, DPO, {}),
    },
    "likelihood-falls": {
        "steady": (sides((-100, -98), (-110, -150)), DPO, {}),
        "the chosen side rises": (sides((-100, -60), (-110, -300)), DPO, {}),
        "a fifth, as in most runs": (sides((-280, -330), (-260, -380)), DPO, {}),
    },
    "rejected-collapse": {
        "the ordinary fall": (sides((-10, -10), (-7, -61)), DPO, {}),
        "of long answers": (sides((-280, -330), (-260, -480)), DPO, {}),
        "while the chosen side is learnt": (sides((-60, -5), (-9, -150)), DPO, {}),
    },
    "preference-saturated": {
        "the usual end": ({"dpo/margin": course(0.0, 6.0), "loss/total": course(LN2, 0.01)}, DPO, {}),
        "another term still pulls": ({"dpo/margin": APART, "loss/total": np.array([LN2, 0.5, 0.4, 0.4])}, DPO, {}),
    },
    "preference-unstable": {
        "drawing sixteen": ({"dpo/accuracy": drawn(0.7)}, DPO, {}),
        "drawing two": ({"dpo/accuracy": drawn(0.7, pairs=2)}, DPO, {}),
        "rising": ({"dpo/accuracy": drawn(np.linspace(0.5, 0.95, 200), pairs=64)}, DPO, {}),
        "all right but one": ({"dpo/accuracy": np.append(np.ones(199), 0.5)}, DPO, {}),
    },
    "preference-plateau": {
        "learnt": ({"dpo/accuracy": np.ones(200)}, DPO, {}),
        "rising": ({"dpo/accuracy": drawn(np.linspace(0.5, 0.9, 200), pairs=256)}, DPO, {}),
    },
    "overfitting": {
        "falling": ({"loss/total": TRAIN}, SFT, {"eval_loss": evals(1.5, 1.2, 1.0, 0.9, 0.85, 0.82, 0.81)}),
        "flat": ({"loss/total": TRAIN}, SFT, {"eval_loss": evals(1.5, 1.2, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)}),
        "one bad evaluation": ({"loss/total": TRAIN}, SFT, {"eval_loss": evals(1.5, 1.2, 1.0, 1.4, 1.0, 1.0, 0.99)}),
        "a bad last one": ({"loss/total": TRAIN}, SFT, {"eval_loss": evals(1.5, 1.2, 1.0, 1.0, 1.0, 1.0, 1.4)}),
        "divergence is no overfitting": (
            {"loss/total": np.concatenate([course(2, 0.5, count=200), course(0.5, 3, count=400)])},
            SFT, {"eval_loss": RISING},
        ),
        "both nearly nothing": (
            {"loss/total": series_of("loss/total", course(0.7, 0.0001, count=600, by=0.05))}, DPO,
            {"eval_loss": evals(0.2, 0.1, 0.01, 0.005, 0.005, 0.005)},
        ),
        "a part of next to nothing": (
            {"loss/total": series_of("loss/total", course(0.7, 0.0001, count=600, by=0.05))}, DPO,
            {"eval_loss": evals(0.2, 0.1, 0.005, 0.007, 0.009, 0.012, 0.013)},
        ),
    },
    "perplexity-spikes": {
        "none": ({"loss/total": with_leaps()}, SFT, {}),
        "two": ({"loss/total": with_leaps(100, 200)}, SFT, {}),
        "small ones": ({"loss/total": with_leaps(100, 150, 200, 250, height=0.3)}, SFT, {}),
        "batches of one": ({"loss/total": np.random.default_rng(1).gamma(4.0, 0.5, size=400)}, SFT, {}),
    },
    "loss-plateau": {"falling": ({"loss/total": course(2.0, 1.5)}, SFT, {})},
    "odds-ratio-unstable": {
        "steady": ({"orpo/log_odds_ratio": course(-0.7, -0.3)}, ORPO, {}),
    },
    "kto-imbalance": {
        "two to one": ({"kto/desirable_loss": np.full(200, 0.5), "kto/undesirable_loss": np.full(200, 0.25)}, KTO, {}),
    },
}  # fmt: skip

SILENT: dict[str, tuple[Metrics, Algorithm]] = {
    "at-chance": ({"dpo/accuracy": drawn(0.5, pairs=2, count=40)}, DPO),
    "margin-collapse": ({"dpo/margin": np.full(200, NAN)}, DPO),
    "likelihood-falls": ({"dpo/logp_chosen": course(-1, -5)}, DPO),
    "rejected-collapse": ({"dpo/logp_rejected": course(-1, -50)}, DPO),
    "preference-saturated": ({"dpo/margin": APART[:2]}, DPO),
    "preference-unstable": ({"dpo/accuracy": np.random.default_rng(1).uniform(size=200)}, DPO),
    "preference-plateau": ({"dpo/accuracy": drawn(0.7, count=79)}, DPO),
    "overfitting": ({"loss/total": TRAIN}, SFT),
    "perplexity-spikes": ({"loss/total": course(2, 1, count=30)}, SFT),
    "loss-plateau": ({"loss/total": course(2, 1, count=99)}, SFT),
    "odds-ratio-unstable": ({}, ORPO),
    "kto-imbalance": ({"kto/desirable_loss": course(0.5, 0.1)}, KTO),
}

NOTED: dict[str, tuple[Metrics, Algorithm, dict[str, Any]]] = {
    "likelihood-falls": (sides((-100, -150), (-110, -300)), DPO, {}),
    "preference-plateau": ({"dpo/accuracy": drawn(0.7, pairs=512, count=400)}, DPO, {}),
    "loss-plateau": ({"loss/total": course(2.0, 2.0)}, SFT, {}),
    "overfitting": ({"loss/total": GOES_ON}, SFT, {"eval_loss": evals(1.5, 1.2, 1.0, 1.01, 1.04, 1.06, 1.07, 1.07)}),
}


def of(cases: Mapping[str, Mapping[str, object]]) -> list[tuple[str, str]]:
    return [(rule, case) for rule, held in cases.items() for case in held]


def test_every_rule_has_a_healthy_and_a_not_judged_case_and_a_broken_one_or_a_note() -> None:
    assert set(HEALTHY) == set(SILENT) == set(BROKEN) | set(NOTED) == set(BY_ID)


@pytest.mark.parametrize(("rule", "case"), of(BROKEN), ids=str)
def test_a_rule_finds_its_failure(rule: str, case: str) -> None:
    metrics, algorithm, more, severity, onset = BROKEN[rule][case]
    verdict = run(rule, metrics, algorithm, **more)
    assert isinstance(verdict, Broken), verdict
    finding = verdict.findings[0]
    assert (finding.id, finding.link, finding.severity) == (rule, BY_ID[rule].link, severity)
    if onset is not None:
        assert finding.onset_step == onset
    assert finding.observed is not None
    assert math.isfinite(finding.observed)
    assert finding.limit is not None
    assert finding.unit
    assert finding.causes
    assert finding.confirm
    assert finding.next
    assert not finding.claim.endswith(".")
    assert {"metric", "logged_as"} <= finding.evidence.keys()
    assert all(value is None or isinstance(value, str | int | float) for value in finding.evidence.values())


@pytest.mark.parametrize(("rule", "case"), of(HEALTHY), ids=str)
def test_a_rule_lets_pass_what_is_no_failure(rule: str, case: str) -> None:
    metrics, algorithm, more = HEALTHY[rule][case]
    verdict = run(rule, metrics, algorithm, **more)
    assert isinstance(verdict, Healthy), verdict
    assert verdict.reason
    assert not verdict.notes


@pytest.mark.parametrize("rule", SILENT)
def test_what_cannot_be_told_is_not_judged_and_says_what_to_record(rule: str) -> None:
    verdict = run(rule, *SILENT[rule])
    assert isinstance(verdict, NotJudged), verdict
    assert verdict.reason
    assert verdict.missing
    assert verdict.enable
    assert "GRPO" not in verdict.enable


@pytest.mark.parametrize("rule", NOTED)
def test_what_is_worth_knowing_is_a_note_of_a_healthy_verdict(rule: str) -> None:
    metrics, algorithm, more = NOTED[rule]
    verdict = run(rule, metrics, algorithm, **more)
    assert isinstance(verdict, Healthy), verdict
    assert [note.severity for note in verdict.notes] == [Severity.LOW]


@pytest.mark.parametrize("rule", BY_ID)
def test_no_rule_here_asks_training_that_samples_its_own_data(rule: str) -> None:
    verdict = run(rule, {}, GRPO)
    assert isinstance(verdict, NotJudged)
    assert not verdict.applies


@pytest.mark.parametrize(
    ("rule", "algorithm"),
    [("odds-ratio-unstable", DPO), ("kto-imbalance", ORPO), ("at-chance", KTO), ("preference-plateau", KTO)],
)
def test_a_question_to_one_algorithm_is_not_put_to_its_kin(rule: str, algorithm: Algorithm) -> None:
    verdict = run(rule, {}, algorithm)
    assert isinstance(verdict, NotJudged)
    assert not verdict.applies


def test_an_accuracy_of_supervised_training_is_none_of_pairs() -> None:
    other = {"accuracy": series_of("accuracy", drawn(0.5))}
    verdict = run("at-chance", {}, Algorithm(), other=other)
    assert isinstance(verdict, NotJudged)


@pytest.mark.parametrize(("last", "noted"), [((1.04, 1.2, 1.2), True), ((1.2, 1.0, 1.2), False)])
def test_a_rise_that_the_last_evaluations_do_not_agree_on_is_no_finding(
    last: tuple[float, ...], *, noted: bool
) -> None:
    held_out = series_of("eval/loss", [1.1, *[1.0] * 8, *last], steps=EVALS[:12])
    verdict = run("overfitting", {"loss/total": GOES_ON}, SFT, eval_loss=held_out)
    assert isinstance(verdict, Healthy), verdict
    assert [note.severity for note in verdict.notes] == [Severity.INFO] * noted
    assert "less than" not in verdict.reason


@pytest.mark.parametrize("algorithm", [DPO, ORPO])
def test_pairs_ranked_worse_than_chance_are_not_called_chance(algorithm: Algorithm) -> None:
    for share, worse in ((0.27, True), (0.5, False)):
        verdict = run("at-chance", {"dpo/accuracy": drawn(share)}, algorithm)
        assert isinstance(verdict, Broken)
        (found,) = verdict.findings
        assert ("worse than chance" in found.claim, "no better than chance" in found.claim) == (worse, not worse)
        assert ("swap chosen and rejected" in found.confirm[0]) is worse
        assert any("without a reference" in cause for cause in found.causes) is (worse and algorithm is ORPO)
    falls = {"dpo/accuracy": drawn(0.27), "loss/total": course(LN2, 0.3, noise=0.01)}
    verdict = run("at-chance", falls, DPO)
    assert isinstance(verdict, Broken)  # the loss learns what the share calls wrong
    assert "the loss falls below ln 2" in verdict.findings[0].causes[0]


def test_a_loss_that_is_no_sigmoid_has_no_level_for_chance() -> None:
    evidence = evidence_of(metrics={"loss/total": np.full(200, LN2)})
    facts = replace(evidence.run, context={"loss_type": "hinge"})
    verdict = BY_ID["at-chance"].run(replace(evidence, run=facts, algorithm=DPO))
    assert isinstance(verdict, NotJudged)


@pytest.mark.parametrize("seldom", [1, 5, 10])
def test_the_start_is_where_the_reward_is_nothing_however_seldom_it_is_logged(seldom: int) -> None:
    held = sides((-10, -12), (-9, -300))
    thinned = {name: values[: 20 * seldom * 2].reshape(-1, seldom).mean(axis=1) for name, values in held.items()}
    start = start_of(series_of("a", thinned["dpo/logp_rejected"]), series_of("b", thinned["dpo/reward_rejected"]))
    assert start == pytest.approx(-9, rel=0.1)


def test_without_a_reference_the_start_is_the_first_values() -> None:
    logp = course(-2.0, -4.0)
    assert start_of(series_of("a", logp), series_of("b", 0.1 * logp)) == start_of(series_of("a", logp))


def test_chance_is_told_at_the_promised_rate() -> None:
    """Of 300 runs that learnt to 0.65, none is called at chance; of 300 at chance, most are, and few healthy."""
    learnt = [run("at-chance", {"dpo/accuracy": drawn(0.65, seed=seed)}) for seed in range(300)]
    assert not any(isinstance(verdict, Broken) for verdict in learnt)
    chance = [run("at-chance", {"dpo/accuracy": drawn(0.5, seed=seed)}) for seed in range(300)]
    assert sum(isinstance(verdict, Broken) for verdict in chance) > 280
    assert sum(isinstance(verdict, Healthy) for verdict in chance) <= 6


@given(st.lists(st.floats(-1e3, 1e3), min_size=20, max_size=60))
def test_a_level_is_the_mean_with_the_error_of_ten_blocks(values: list[float]) -> None:
    held = np.array(values)
    level = level_of(held)
    size, more = divmod(len(values), BLOCKS)
    means, at = [], 0
    for block in range(BLOCKS):
        end = at + size + (block < more)
        means.append(sum(values[at:end]) / (end - at))
        at = end
    middle = sum(means) / BLOCKS
    error = math.sqrt(sum((mean - middle) ** 2 for mean in means) / (BLOCKS - 1) / BLOCKS)
    assert level.mean == pytest.approx(sum(values) / len(values), abs=1e-9)
    assert level.error == pytest.approx(error, abs=1e-9)


@given(st.integers(2, 300), st.integers(0, 2**32 - 1), st.booleans())
def test_the_number_of_pairs_is_one_that_all_shares_fit(pairs: int, seed: int, rounded: bool) -> None:
    values = drawn(0.6, pairs=pairs, count=100, seed=seed)
    found = preference_unstable.pairs_of(np.round(values, 6) if rounded else values)
    if found is None:  # as many as two decimals have steps
        assert pairs % 100 == 0
        return
    assert found <= pairs
    assert np.allclose(values * found, np.round(values * found), atol=3e-3)


@pytest.mark.parametrize("decimals", [2, 3])
def test_decimals_of_an_accuracy_are_no_number_of_pairs(decimals: int) -> None:
    assert preference_unstable.pairs_of(np.round(drawn(0.6, pairs=24, count=200, seed=1), decimals)) is None


def test_drawing_alone_has_the_variance_of_drawing() -> None:
    times = [preference_unstable.excess_swing(drawn(0.7, seed=seed), 16)[1] for seed in range(200)]
    assert np.mean(times) == pytest.approx(1.0, abs=0.03)


def test_the_scatter_of_evaluations_is_told_from_their_course() -> None:
    generator = np.random.default_rng(1)
    found = [overfitting.scatter(np.linspace(3, 1, 40) ** 2 + 0.1 * generator.normal(size=40)) for _ in range(200)]
    assert np.mean(found) == pytest.approx(0.1, rel=0.1)


def noise(generator: np.random.Generator, count: int, like: float) -> Array:
    """Give an AR(1) of unit variance."""
    steps = generator.normal(size=count) * math.sqrt(1 - like**2)
    values = np.empty(count)
    values[0] = generator.normal()
    for place in range(1, count):
        values[place] = like * values[place - 1] + steps[place]
    return values


def healthy_run(seed: int) -> tuple[dict[str, Array], Series]:
    """Give a run that learns, of some length, with noise that follows itself and batches of some size."""
    generator = np.random.default_rng([seed, 11])
    count = int(generator.choice([40, 120, 300, 1200]))
    like = float(generator.choice([0.0, 0.4, 0.8]))
    pairs = int(generator.choice([4, 16, 64]))
    done = 1 - np.exp(-np.arange(count) / (generator.uniform(0.1, 0.5) * count))
    reached = generator.uniform(0.68, 0.98)
    margin = generator.uniform(0.5, 6) * done
    scale = generator.uniform(0.05, 0.15)
    first = generator.uniform(-300, -1)
    metrics = {
        "dpo/accuracy": generator.binomial(pairs, 0.5 + (reached - 0.5) * done) / pairs,
        "dpo/margin": margin + 0.15 * (1 + margin) * noise(generator, count, like),
        "dpo/logp_chosen": first
        * (1 + generator.uniform(-0.3, 0.5) * done)
        * np.exp(scale * noise(generator, count, like)),
        "dpo/logp_rejected": first
        * (1 + generator.uniform(0.2, 6) * done)
        * np.exp(scale * noise(generator, count, like)),
        "loss/total": (0.2 + 2 * np.exp(-3 * done)) * np.exp(scale * noise(generator, count, like)),
        "orpo/log_odds_ratio": -0.7 * np.exp(-2 * done) * np.exp(scale * noise(generator, count, like)),
        "kto/desirable_loss": 0.5
        * np.exp(-done * generator.uniform(0, 1))
        * np.exp(scale * noise(generator, count, like)),
        "kto/undesirable_loss": 0.5
        * np.exp(-done * generator.uniform(0, 1))
        * np.exp(scale * noise(generator, count, like)),
    }
    places = np.unique(np.linspace(count // 10, count - 1, int(generator.integers(5, 25))).astype(int))
    held_out = (0.22 + 2 * np.exp(-3 * done[places])) * (
        1 + generator.uniform(0.002, 0.02) * generator.normal(size=len(places))
    )
    return metrics, series_of("eval/loss", held_out, steps=(places + 1).tolist())


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [DPO, ORPO, KTO, SFT, MODEL, Algorithm()], ids=lambda one: str(one.name))
def test_two_hundred_healthy_runs_give_no_alarm(algorithm: Algorithm) -> None:
    alarms: list[tuple[int, Finding]] = []
    for seed in range(200):
        metrics, held_out = healthy_run(seed)
        evidence = replace(evidence_of(metrics=metrics), algorithm=algorithm, eval_loss=held_out)
        for rule in POST_TRAINING_RULES:
            verdict = rule.run(evidence)
            if isinstance(verdict, Broken):
                alarms += [(seed, finding) for finding in verdict.findings]
    assert alarms == []


def test_pairs_that_were_ranked_well_are_at_chance_from_the_second_half_on() -> None:
    lost = np.concatenate([drawn(0.9, pairs=64, count=80), drawn(0.5, pairs=64, count=80)])
    verdict = run("at-chance", {"dpo/accuracy": lost}, DPO)
    assert isinstance(verdict, Broken)
    assert verdict.findings[0].onset_step == 81
    verdict = run("at-chance", {"dpo/accuracy": drawn(0.5, pairs=64, count=160)}, DPO)
    assert isinstance(verdict, Broken)
    assert verdict.findings[0].onset_step == 1


@pytest.mark.parametrize("at", [60, 95, 120])
def test_a_preference_that_turns_restless_is_dated_to_where_it_did(at: int) -> None:
    verdict = run("preference-unstable", {"dpo/accuracy": restless(at)})
    assert isinstance(verdict, Broken)
    found = verdict.findings[0]
    assert found.onset_step == pytest.approx(at + 1, abs=4)
    assert found.onset_interval is not None
    assert found.onset_interval[0] <= (found.onset_step or 0) <= found.onset_interval[1]


FALLING = {"loss/total": GOES_ON}


def few_evals(*values: float, name: str = "eval/loss") -> Series:
    return replace(
        series_of("eval/loss", values, steps=[100 * place for place in range(1, len(values) + 1)]), raw_name=name
    )


@pytest.mark.parametrize("values", [(1.64, 1.5, 1.3, 1.2, 1.9, 2.8), (1.1, 1.5, 2.75), (1.4, 1.1, 1.2, 2.0)])
def test_a_large_rise_shows_in_few_evaluations(values: tuple[float, ...]) -> None:
    verdict = run("overfitting", FALLING, SFT, eval_loss=few_evals(*values))
    assert isinstance(verdict, Broken), verdict
    assert verdict.findings[0].severity.at_least(Severity.MEDIUM)
    assert f"{min(values):.3g}" in verdict.findings[0].claim


@pytest.mark.parametrize("values", [(1.64, 1.55, 1.58), (1.2, 1.0, 0.9, 0.95), (1.5, 1.2, 1.0, 0.98, 0.97, 1.4)])
def test_a_small_rise_or_one_last_value_of_few_evaluations_is_none(values: tuple[float, ...]) -> None:
    verdict = run("overfitting", FALLING, SFT, eval_loss=few_evals(*values))
    assert isinstance(verdict, Healthy)
    assert not [note for note in verdict.notes if note.severity.at_least(Severity.MEDIUM)]


def test_the_data_set_whose_loss_rises_is_told_beside_one_whose_loss_falls() -> None:
    fine, worse = (
        evals(1.5, 1.2, 1.0, 0.9, 0.85, 0.82, 0.81),
        few_evals(1.6, 1.2, 1.5, 1.7, 1.9, 2.1, name="eval_code_loss"),
    )
    verdict = run("overfitting", FALLING, SFT, eval_loss=fine, eval_losses=(worse,))
    assert isinstance(verdict, Broken)
    assert verdict.findings[0].evidence["logged_as"] == "eval_code_loss"


def test_four_values_of_a_finished_run_show_chance_and_of_an_open_one_are_noted() -> None:
    pairs = {"dpo/accuracy": np.array([0.47, 0.466, 0.509, 0.48])}
    open_run = run("at-chance", pairs, DPO)
    assert isinstance(open_run, Healthy)
    assert [note.severity for note in open_run.notes] == [Severity.LOW]
    evidence = evidence_of(metrics=pairs)
    facts = replace(evidence.run, context={"max_steps": 4}, last_step=4)
    verdict = BY_ID["at-chance"].run(replace(evidence, run=facts, algorithm=DPO))
    assert isinstance(verdict, Broken)
    assert "all 4 logged values" in verdict.findings[0].claim


def test_four_values_that_rise_are_not_called_chance() -> None:
    assert not isinstance(run("at-chance", {"dpo/accuracy": np.array([0.5, 0.62, 0.71, 0.8])}, DPO), Broken)
    assert isinstance(run("at-chance", {"dpo/accuracy": np.array([0.8, 0.82, 0.81, 0.8])}, DPO), Healthy)
