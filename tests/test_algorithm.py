"""What kind of training a run is told to be: by settings, by names, and over every format that is read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest
from builders import evidence_of
from parser_samples import SAMPLES
from samples_carriers import OF_GIVEN_DATA
from slow_cases import first_fast

from ptt.diagnostics.evidence.algorithm import Algorithm, Family, detect_algorithm
from ptt.diagnostics.evidence.series import read_series, training_metric_names
from ptt.diagnostics.metrics.aliases import canonical
from ptt.diagnostics.pipeline import RunLocation, ingest
from ptt.diagnostics.rules import RULES
from ptt.diagnostics.store.scan import read_table
from ptt.diagnostics.store.wide_metrics import read_wide

REWARDS = ["rewards/chosen", "rewards/rejected", "rewards/margins", "logps/chosen", "logps/rejected"]
PAIRS = [*REWARDS, "rewards/accuracies"]
GROUPS = ["reward", "reward_std", "frac_reward_zero_std", "completions/mean_length", "kl", "entropy"]

LOGGED: dict[str, tuple[list[str], str | None, Family | None]] = {
    "TRL DPO": ([*PAIRS, "mean_token_accuracy", "entropy"], "dpo", Family.PREFERENCE),
    "TRL DPO before 1.0": (PAIRS, "dpo", Family.PREFERENCE),
    "TRL KTO": ([*REWARDS, "kl", "entropy"], "kto", Family.PREFERENCE),
    "KTO with both sides' losses": ([*PAIRS, "kl", "desirable_loss", "undesirable_loss"], "kto", Family.PREFERENCE),
    "TRL BCO": ([*REWARDS, "delta"], "bco", Family.PREFERENCE),
    "TRL ORPO": ([*PAIRS, "nll_loss", "log_odds_ratio", "log_odds_chosen"], "orpo", Family.PREFERENCE),
    "TRL CPO, or DPO with an SFT part": ([*PAIRS, "nll_loss"], None, Family.PREFERENCE),
    "TRL SFT": (["mean_token_accuracy", "entropy", "num_tokens"], "sft", Family.SUPERVISED),
    "TRL reward": (["accuracy", "margin", "min_reward", "mean_reward", "max_reward"], "reward_model",
                   Family.REWARD_MODEL),
    "TRL GRPO": (GROUPS, "grpo", Family.ONLINE),
    "TRL online DPO": ([*PAIRS, "objective/kl", "objective/scores", "objective/scores_margin",
                        "objective/rlhf_reward"], "online_dpo", Family.ONLINE),
    "TRL XPO": ([*PAIRS, "loss/dpo", "loss/xpo", "objective/kl"], "xpo", Family.ONLINE),
    "TRL Nash-MD": (["loss/score", "rewards/probabilities", "objective/kl"], "nash_md", Family.ONLINE),
    "TRL PPO": (["objective/rlhf_reward", "policy/approxkl_avg", "loss/value_avg"], "ppo", Family.ONLINE),
    "TRL RLOO before 0.21": (["objective/rlhf_reward", "policy/approxkl_avg", "loss/policy_avg"], "rloo",
                             Family.ONLINE),
    "Unsloth GRPO": (["reward", "completion_length", "kl"], "grpo", Family.ONLINE),
    "OpenRLHF SFT": (["gpt_loss", "lr"], "sft", Family.SUPERVISED),
    "OpenRLHF DPO or reward model": (["loss", "acc", "chosen_reward", "reject_reward"], None, None),
    "NeMo-RL DPO": (["loss", "sft_loss", "preference_loss", "accuracy", "rewards_chosen_mean",
                     "rewards_rejected_mean", "num_valid_samples"], "dpo", Family.PREFERENCE),
    "NeMo-RL reward model": (["loss", "accuracy", "rewards_chosen_mean", "rewards_rejected_mean",
                              "num_valid_samples"], "reward_model", Family.REWARD_MODEL),
    "veRL PPO": (["actor/pg_loss", "actor/ppo_kl", "critic/vf_loss", "critic/score/mean"], None, Family.ONLINE),
    "plain language modelling": (["loss", "grad_norm", "learning_rate"], None, Family.SUPERVISED),
    "anything with an accuracy": (["loss", "accuracy"], None, None),
}  # fmt: skip


def told(raws: Collection[str], facts: dict[str, str] | None = None) -> Algorithm:
    names = {name for raw in raws if (name := canonical(raw)) is not None}
    return detect_algorithm(facts or {}, names, logged=raws)


@pytest.mark.parametrize("prefix", ["", "train/"])
@pytest.mark.parametrize("case", LOGGED)
def test_the_algorithm_is_told_by_the_names_only_it_logs(case: str, prefix: str) -> None:
    raws, name, family = LOGGED[case]
    found = told([prefix + raw for raw in raws])
    assert (found.name, found.family) == (name, family)


@pytest.mark.parametrize(
    ("setting", "value", "name", "critic", "groups"),
    [
        ("adv_estimator", "gae", "ppo", True, False),
        ("adv_estimator", "grpo", "grpo", False, True),
        ("adv_estimator", "rloo", "rloo", False, True),
        ("adv_estimator", "reinforce_plus_plus", "reinforce_plus_plus", False, False),
        ("advantage_estimator", "group_norm", "grpo", False, True),
        ("advantage_estimator", "reinforce-baseline", "reinforce_baseline", False, False),
        ("loss_type", "dr_grpo", "dr_grpo", False, True),
        ("loss_mode", "gspo", "gspo", False, True),
        ("importance_sampling_level", "sequence", "gspo", False, True),
        ("rlhf_type", "grpo", "grpo", False, True),
    ],
)
def test_a_setting_counts_more_than_names(setting: str, value: str, name: str, critic: bool, groups: bool) -> None:
    found = told(GROUPS if groups else ["actor/pg_loss", "actor/ppo_kl"], {setting: value})
    assert (found.name, found.family) == (name, Family.ONLINE)
    assert (found.critic, found.groups) == (critic, groups)


def test_a_loss_counts_more_than_the_estimator_beside_it() -> None:
    assert told(GROUPS, {"adv_estimator": "grpo", "loss_mode": "gspo"}).name == "gspo"
    assert told(GROUPS, {"adv_estimator": "grpo", "loss_mode": "vanilla"}).name == "grpo"
    assert told(PAIRS, {"rlhf_type": "dpo", "pref_loss": "simpo"}).name == "simpo"
    assert told(GROUPS, {"importance_sampling_level": "token"}).name == "grpo"


def test_a_loss_type_that_names_no_algorithm_counts_for_nothing() -> None:
    assert told(PAIRS, {"loss_type": "sigmoid"}).name == "dpo"
    assert told([], {"loss_type": "nll"}) == Algorithm()


def test_a_logged_critic_means_that_no_group_is_compared() -> None:
    found = told(LOGGED["veRL PPO"][0])
    assert (found.critic, found.groups) == (True, False)


def test_logprobs_of_an_engine_prove_that_something_was_sampled() -> None:
    assert detect_algorithm({}, (), sampled=True).family is Family.ONLINE
    assert detect_algorithm({}, ("dpo/margin",), sampled=True).family is Family.PREFERENCE


@pytest.mark.parametrize("sample", first_fast(sorted(SAMPLES.keys() - OF_GIVEN_DATA), 40))
def test_no_sample_of_an_rl_framework_is_taken_for_anything_else(
    samples: dict[str, Path], tmp_path: Path, sample: str
) -> None:
    manifest = ingest(RunLocation(run=samples[sample], store=tmp_path / "store", name="made"), copy=False)
    metrics, wide = read_table(tmp_path / "store", "metrics"), read_wide(tmp_path / "store", manifest)
    series = read_series(metrics, wide) if "priority" in metrics.columns else {}
    family = detect_algorithm(manifest.facts, series, logged=training_metric_names(metrics, wide, ranks=True)).family
    assert family in ((Family.CLASSIC_RL,) if sample.startswith("sb3/") else (None, Family.ONLINE))


def test_what_does_not_apply_is_said_of_the_kind_of_training() -> None:
    evidence = evidence_of()
    for rule in RULES:
        for family in set(Family) - rule.families:
            verdict = rule.run(replace(evidence, algorithm=Algorithm(family=family)))
            assert "does not apply to" in getattr(verdict, "reason", "")
