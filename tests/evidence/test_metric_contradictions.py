"""Every identity between metrics: a run that breaks it is found, and a sound one beside it is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Formatter
from typing import Any

import numpy as np
import pytest
from builders import Array

from ptt.diagnostics.evidence.contradictions import Contradiction, find_contradictions
from ptt.diagnostics.evidence.series import Series, finite_series
from ptt.diagnostics.metrics.aliases import canonical
from ptt.diagnostics.metrics.identities import Identity, identities
from ptt.diagnostics.model import Agreement
from ptt.diagnostics.statistics.arrays import IntArray
from ptt.diagnostics.statistics.relations import parse_relation, symbols_of

STEPS = 40
NOISE = np.random.default_rng(1).normal(scale=1e-3, size=STEPS)
"""What gives each logged number all its digits."""
RISING = np.linspace(0.2, 0.8, STEPS) + 0.01 * np.sin(np.arange(STEPS))
WAVE = 0.5 + 0.2 * np.sin(np.arange(STEPS))
INDEX: Array = np.arange(STEPS, dtype=np.float64)
TRL, VERL = {"framework": "trl"}, {"framework": "verl"}
Logged = Mapping[str, Array | float]


def series(logged: Logged, *, every: int = 1, steps: IntArray | None = None) -> dict[str, Series]:
    """Give metrics as a writer logs them; a number stands for a constant."""
    made = {}
    for raw, values in logged.items():
        array = np.full(STEPS, values) if isinstance(values, float | int) else np.asarray(values, dtype=np.float64)
        at = np.arange(1, len(array) + 1, dtype=np.int64) * every if steps is None else steps
        made[raw] = finite_series(canonical(raw) or raw, at, array, raw_name=raw)
    return made


def found(
    logged: Logged, facts: Mapping[str, Any] | None = None, *, evaluated: bool = False
) -> dict[str, Contradiction]:
    """Return what holding these metrics against every identity gives, by its id."""
    made = series(logged)
    if evaluated:
        return {one.identity.id: one for one in find_contradictions({}, {}, facts or {}, made)}
    named = {one.name: one for raw, one in made.items() if canonical(raw)}
    other = {raw: one for raw, one in made.items() if not canonical(raw)}
    return {one.identity.id: one for one in find_contradictions(named, other, facts or {})}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One identity, metrics that break it, and what a sound run logs in their place."""

    id: str
    broken: Logged
    sound: Logged  # replaces what it names in `broken`
    facts: Mapping[str, Any] = field(default_factory=dict)
    evaluated: bool = False


def late(values: Array | float, factor: float, *, since: int = 25) -> Array:
    """Return values that are multiplied from an index on."""
    array = np.full(STEPS, values) if isinstance(values, float | int) else np.array(values)
    array[since:] *= factor
    return array


RATIOS = {"sampling/importance_sampling_ratio/min": 0.9 + NOISE, "sampling/importance_sampling_ratio/max": 1.1 + NOISE}
GAPS = {
    "sampling/sampling_logp_difference/mean": 0.002 + NOISE / 10,
    "sampling/sampling_logp_difference/max": 0.1 + NOISE,
}
PAIRS: Logged = {"rewards/margins": RISING, "rewards/chosen": RISING - 0.1, "rewards/rejected": -0.1}
MIX = 0.7 * RISING + 0.3 * WAVE
CASES = [
    Case(
        id="share-outside-0-1", broken={"clip_ratio/region_mean": late(0.4, 3.0)}, sound={"clip_ratio/region_mean": 0.4}
    ),
    Case(id="size-below-zero", broken={"reward_std": late(0.4, -1.0, since=39)}, sound={"reward_std": 0.0}),
    Case(
        id="figure-beyond-its-bound",
        broken={"critic/vf_explained_var": late(0.9, 1.5)},
        sound={"critic/vf_explained_var": -3.0},
    ),
    Case(
        id="figure-beyond-its-bound",
        broken={"rollout_corr/training_ppl": 0.4},
        sound={"rollout_corr/training_ppl": 1.0},
    ),
    Case(id="figure-beyond-its-bound", broken={"token_mult_prob_error": 0.9}, sound={"token_mult_prob_error": 1.02}),
    Case(id="entropy-out-of-range", broken={"entropy": late(2.0, 8.0)}, sound={"entropy": 11.0}, facts=TRL),
    Case(id="entropy-out-of-range", broken={"entropy": 8.0}, sound={"entropy": 6.0}, facts={**TRL, "vocab_size": 1000}),
    Case(
        id="k3-below-zero",
        broken={"rollout_corr/k3_kl": late(0.01, -1.0)},
        sound={"rollout_corr/k3_kl": 0.01},
        facts=VERL,
    ),
    Case(id="kl-turns-negative", broken={"kl": late(0.01, -1.0)}, sound={"kl": 0.01 * WAVE}, facts=TRL),
    Case(
        id="kl-loss-below-zero",
        broken={"actor/kl_loss": late(0.01, -1.0)},
        sound={"actor/kl_loss": 0.01},
        facts={**VERL, "kl_loss_type": "low_var_kl"},
    ),
    Case(
        id="mean-outside-extremes",
        broken={**RATIOS, "sampling/importance_sampling_ratio/mean": late(1.0, 8.0)},
        sound={"sampling/importance_sampling_ratio/mean": 1.0},
    ),
    Case(id="mean-outside-extremes", broken={"score_mean": 1.0, "score_min": 2.0}, sound={"score_min": 0.5}),
    Case(id="spread-above-range", broken={"x/min": 0.0, "x/max": 1.0, "x/std": 0.9}, sound={"x/std": 0.7}),
    Case(
        id="terminated-longer-than-all",
        broken={
            "completions/mean_length": 100.0 * WAVE,
            "completions/mean_terminated_length": 60.0 * WAVE,
            "completions/clipped_ratio": 0.0,
        },
        sound={"completions/mean_terminated_length": 100.0 * WAVE},
    ),
    Case(
        id="cut-without-limit",
        broken={"response_length/clip_ratio": 0.5, "response_length/max": 100.0},
        sound={"response_length/max": 512.0},
        facts={"max_response_length": 512},
    ),
    Case(
        id="cut-without-limit",
        broken={
            "completions/mean_length": 100.0,
            "completions/mean_terminated_length": 120.0,
            "completions/clipped_ratio": 0.25,
            "completions/max_length": 500.0,
        },
        sound={"completions/mean_length": 215.0},
    ),
    Case(
        id="reward-unlike-parts",
        broken={"reward": late(MIX, 0.8), "rewards/a/mean": RISING, "rewards/b/mean": WAVE},
        sound={"reward": MIX},
        facts=TRL,
    ),
    Case(id="reward-unlike-parts", broken={"reward": late(WAVE, 1.3), "env/accuracy": WAVE}, sound={"reward": WAVE}),
    Case(
        id="spread-zero-in-varied-groups",
        broken={"reward_std": late(0.3 + NOISE, 0.0), "frac_reward_zero_std": 0.25},
        sound={"reward_std": 0.3 + NOISE},
        facts=TRL,
    ),
    Case(
        id="spread-in-groups-of-one-reward",
        broken={"reward_std": 0.3, "frac_reward_zero_std": 1.0},
        sound={"reward_std": 0.0},
        facts={**TRL, "trl_version": "0.19.1"},
    ),
    Case(
        id="reward-unlike-score",
        broken={"critic/rewards/mean": WAVE - 0.1, "critic/score/mean": WAVE},
        sound={"critic/rewards/mean": WAVE},
        facts=VERL,
    ),
    Case(
        id="kl-penalty-unlike-reward",
        broken={
            "critic/rewards/mean": WAVE - 0.8,
            "critic/score/mean": WAVE,
            "actor/reward_kl_penalty": 0.1 + NOISE,
            "actor/reward_kl_penalty_coeff": 0.01,
            "response_length/mean": 200.0 * (1 + NOISE),
        },
        sound={"critic/rewards/mean": WAVE - 0.25},
        facts=VERL,
    ),
    Case(
        id="ratio-unlike-gap",
        broken={**GAPS, "sampling/importance_sampling_ratio/mean": 0.57},
        sound={"sampling/importance_sampling_ratio/mean": 0.95},
        facts=TRL,
    ),
    Case(
        id="gap-unlike-ratio-range",
        broken={**RATIOS, "sampling/sampling_logp_difference/max": 12.0},
        sound={"sampling/sampling_logp_difference/max": 0.6},
        facts=TRL,
    ),
    Case(
        id="ratio-beyond-gap",
        broken={**RATIOS, "sampling/sampling_logp_difference/max": 0.02},
        sound={"sampling/sampling_logp_difference/max": 0.11},
        facts={**TRL, "vllm_importance_sampling_mode": "token_truncate"},
    ),
    Case(
        id="squares-below-squared-mean",
        broken={"optim/kl_sample_train_v1": 0.4, "optim/kl_sample_train_v2": 0.01},
        sound={"optim/kl_sample_train_v2": 0.09},
        facts={"framework": "tinker"},
    ),
    Case(
        id="squares-below-squared-mean",
        broken={"rollout_corr/chi2_token": -0.5, "rollout_corr/k3_kl": 0.01, "rollout_corr/kl": 0.02},
        sound={"rollout_corr/chi2_token": 0.01},
        facts=VERL,
    ),
    Case(
        id="sample-size-unlike-weights",
        broken={
            "rollout_corr/rollout_is_eff_sample_size": 0.5,
            "rollout_corr/rollout_is_mean": 1.0,
            "rollout_corr/rollout_is_std": 0.1,
            "rollout_corr/rollout_is_min": 0.7,
            "rollout_corr/rollout_is_max": 1.4,
        },
        sound={"rollout_corr/rollout_is_eff_sample_size": 1 / 1.01},
        facts=VERL,
    ),
    Case(
        id="clip-parts-unlike-whole",
        broken={
            "clip_ratio/region_mean": 0.03 * WAVE,
            "clip_ratio/low_mean": 0.02 * WAVE,
            "clip_ratio/high_mean": 0.02 * WAVE,
        },
        sound={"clip_ratio/region_mean": 0.04 * WAVE},
    ),
    Case(
        id="nothing-clipped-beyond-bounds",
        broken={"clip_fraction": 0.0, "ratio/min": 0.3, "ratio/max": 1.9},
        sound={"ratio/max": 1.15},
    ),
    Case(
        id="nothing-clipped-at-large-kl",
        broken={"losses/clipfrac": 0.0, "losses/approx_kl": 0.2},
        sound={"losses/approx_kl": 0.02},
    ),
    Case(
        id="advantages-not-whitened",
        broken={"critic/advantages/mean": 0.3 * WAVE},
        sound={"critic/advantages/mean": 1e-7},
        facts={**VERL, "adv_estimator": "gae"},
    ),
    Case(
        id="advantages-beyond-group",
        broken={"critic/advantages/min": -2.0, "critic/advantages/max": 3.5},
        sound={"critic/advantages/max": 2.47},
        facts={**VERL, "adv_estimator": "grpo", "rollout_n": 8},
    ),
    Case(
        id="loss-unlike-parts",
        broken={"train/loss": late(WAVE + 0.01 * RISING, 1.2), "train/pg_loss": WAVE, "train/kl_loss": RISING},
        sound={"train/loss": WAVE + 0.01 * RISING},
    ),
    Case(
        id="perplexity-unlike-loss",
        broken={"perplexity": np.exp(WAVE) * 1.6, "loss": WAVE + 1.0},
        sound={"perplexity": np.exp(WAVE + 1.0)},
    ),
    Case(id="accuracy-unlike-loss", broken={"loss": WAVE / 8, "mean_token_accuracy": 0.6}, sound={"loss": WAVE + 0.5}),
    Case(
        id="gradient-zero-while-loss-moves",
        broken={"grad_norm": 0.0, "learning_rate": 1e-5, "loss": WAVE, "frac_reward_zero_std": 0.0},
        sound={"grad_norm": WAVE},
    ),
    Case(
        id="clipped-norm-above-limit",
        broken={"grad_norm_clipped": 2.0 + WAVE, "grad_norm": 5.0},
        sound={"grad_norm_clipped": 1.0},
        facts={"max_grad_norm": 1.0},
    ),
    Case(id="margin-unlike-rewards", broken={**PAIRS, "rewards/margins": RISING / 2}, sound=PAIRS),
    Case(
        id="accuracy-unlike-margin",
        broken={"rewards/accuracies": 1.0, "rewards/margins": -RISING},
        sound={"rewards/margins": RISING},
    ),
    Case(
        id="preference-loss-below-margin",
        broken={
            "loss": np.concatenate([[0.693], np.full(STEPS - 1, 0.05)]),
            "rewards/margins": np.linspace(0, 1, STEPS),
        },
        sound={"loss": np.log1p(np.exp(-np.linspace(0, 1, STEPS)))},
        facts=TRL,
    ),
    Case(
        id="learning-rate-off-schedule",
        broken={"learning_rate": 1e-4 * np.clip(1 - np.arange(1, STEPS + 1) / 20, 0, 1)},
        sound={"learning_rate": 1e-4 * (1 - np.arange(1, STEPS + 1) / 40)},
        facts={**TRL, "lr_scheduler_type": "linear", "learning_rate": 1e-4, "max_steps": 40, "warmup_steps": 0},
    ),
    Case(
        id="learning-rate-off-schedule",
        broken={"learning_rate": 1e-4},
        sound={"learning_rate": 0.5e-4 * (1 + np.cos(np.pi * np.arange(STEPS) / 40))},
        facts={**TRL, "lr_scheduler_type": "cosine", "learning_rate": 1e-4, "max_steps": 40, "warmup_steps": 0},
    ),
    Case(
        id="token-counter-too-slow",
        broken={"num_tokens": 5000.0, "completions/max_length": 80.0},
        sound={"num_tokens": 5000.0 * INDEX},
        facts=TRL,
    ),
    Case(
        id="epoch-unlike-steps",
        broken={"epoch": np.cumsum(np.where(np.arange(STEPS) > 30, 0.1, 0.01))},
        sound={"epoch": 0.01 * INDEX},
    ),
    Case(
        id="counts-disagree",
        broken={
            "env/all/by_group/frac_all_bad": 0.5,
            "env/all/by_group/frac_all_good": 0.4,
            "env/all/by_group/frac_mixed": 0.4,
        },
        sound={"env/all/by_group/frac_mixed": 0.1},
    ),
    Case(
        id="tokens-unlike-lengths",
        broken={
            "perf/total_num_tokens": np.round(32 * 150.0 * WAVE) * 1.013,
            "prompt_length/mean": 50.0 * WAVE,
            "response_length/mean": 100.0 * WAVE,
        },
        sound={"perf/total_num_tokens": 32 * 150.0 * WAVE},
        facts=VERL,
    ),
    Case(
        id="pass-at-more-below-fewer",
        broken={"val-core/math/acc/best@2/mean": 0.7, "val-core/math/acc/best@4/mean": 0.5},
        sound={"val-core/math/acc/best@4/mean": 0.75},
        evaluated=True,
    ),
    Case(
        id="pass-at-more-below-fewer",
        broken={"reward/pass_at_1": 0.7, "reward/pass_at_8": 0.5},
        sound={"reward/pass_at_8": 0.7},
    ),
]


def test_every_identity_has_a_case() -> None:
    assert {case.id for case in CASES} == set(identities())


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.id} {'+'.join(case.sound)}"[:90])
def test_a_broken_identity_is_found_and_a_sound_one_is_not(case: Case) -> None:
    broken = found(case.broken, case.facts, evaluated=case.evaluated)
    assert [name for name, one in broken.items() if one.breaks] == [case.id]
    row = broken[case.id].row
    assert row.agreement is Agreement.DIFFERS
    assert 0 <= row.agreeing < row.steps
    assert row.since == broken[case.id].breaks[0].since
    assert row.reason
    assert "{" not in row.said

    sound = found({**case.broken, **case.sound}, case.facts, evaluated=case.evaluated)
    assert not [one.breaks[0].claim for one in sound.values() if one.breaks]
    assert sound[case.id].row.agreement is Agreement.AGREES
    assert sound[case.id].row.agreeing == sound[case.id].row.steps


def test_a_break_says_since_when_and_at_how_many_steps() -> None:
    logged = {**RATIOS, "sampling/importance_sampling_ratio/mean": late(1.0, 8.0)}
    worst = found(logged)["mean-outside-extremes"].breaks[0]
    assert (worst.since, worst.until, worst.before, worst.steps, worst.broken) == (26, 40, 25, 40, 15)
    assert worst.claim.endswith("at all steps from step 26 on")
    assert "sampling/importance_sampling_ratio/mean is 8.0" in worst.claim


def test_a_name_with_a_number_too_long_to_be_one_costs_nothing() -> None:
    logged = {"pass@" + "1" * 5000: np.full(STEPS, 0.5), "pass@2": np.full(STEPS, 0.4), **RATIOS}
    assert "size-below-zero" in found(logged)


def test_values_printed_with_few_digits_break_nothing() -> None:
    exact = {"rewards/margins": RISING, "rewards/chosen": RISING - 0.1, "rewards/rejected": np.full(STEPS, -0.1)}
    printed = {raw: np.round(values, 1) for raw, values in exact.items()}
    assert not found(printed)["margin-unlike-rewards"].breaks
    shares = {"clip_ratio/region_mean": np.round(0.037 * WAVE, 2), "clip_ratio/low_mean": np.round(0.018 * WAVE, 2),
              "clip_ratio/high_mean": np.round(0.019 * WAVE, 2)}  # fmt: skip
    assert not found(shares)["clip-parts-unlike-whole"].breaks


def test_a_few_odd_steps_break_no_identity_that_is_not_a_bound() -> None:
    reward = MIX.copy()
    reward[[27, 33]] += 0.5
    logged = {"reward": reward, "rewards/a/mean": RISING, "rewards/b/mean": WAVE}
    held = found(logged, TRL)["reward-unlike-parts"]
    assert not held.breaks
    assert (held.row.steps, held.row.agreeing) == (STEPS, STEPS - 2)


def test_metrics_of_other_windows_are_not_held_against_each_other() -> None:
    often = series({"rewards/margins": RISING / 2, "rewards/chosen": RISING - 0.1})
    seldom = series({"rewards/rejected": np.full(4, -0.1)}, every=10)
    named = {one.name: one for one in {**often, **seldom}.values()}
    assert "margin-unlike-rewards" not in {one.identity.id for one in find_contradictions(named, {}, {})}


def test_names_that_were_only_guessed_are_left_out() -> None:
    guessed = finite_series("clip/frac", np.arange(1, 41), np.full(STEPS, 40.0), raw_name="my/clipped part")
    assert find_contradictions({"clip/frac": guessed}, {}, {}) == ()


def test_a_reward_with_a_growing_penalty_is_no_sum_that_broke() -> None:
    """As RLOO's, from which a KL is taken that is nearly nothing at first."""
    penalty = 1e-3 * np.arange(STEPS) ** 1.5
    logged = {"reward": MIX - penalty, "rewards/a/mean": RISING, "rewards/b/mean": WAVE}
    assert "reward-unlike-parts" not in found(logged, TRL)


def test_weights_are_learnt_from_the_steps_before() -> None:
    logged = {"reward": 2.0 * RISING + 0.5 * WAVE, "rewards/a/mean": RISING, "rewards/b/mean": WAVE}
    held = found(logged, TRL)["reward-unlike-parts"]
    assert held.row.agreeing == STEPS
    assert found({"reward": np.cos(np.arange(STEPS)), "rewards/a/mean": RISING}, TRL).get("reward-unlike-parts") is None


@pytest.mark.parametrize("identity", identities().values(), ids=identities())
def test_a_claim_has_only_what_every_relation_has(identity: Identity) -> None:
    shown = {field.partition(".")[0] for _, field, _, _ in Formatter().parse(identity.claim) if field}
    shown -= {"left", "right", "names"}
    figures = [symbols_of(text) for name, text in identity.figures.items() if name in shown]
    for relation in map(parse_relation, identity.relations):
        assert shown - identity.figures.keys() <= relation.symbols | identity.settings.keys()
        assert all(symbols <= relation.symbols | identity.settings.keys() for symbols in figures)
    symbols = {
        "x",
        "fewer",
        "more",
        "step",
        *identity.metrics,
        *identity.settings,
        *(s for stem in identity.stems for s in stem),
    }
    assert all(parse_relation(text).symbols <= symbols for text in identity.relations)


def test_metrics_without_a_partner_are_held_against_nothing() -> None:
    assert found({"speed": 3.0}) == {}
