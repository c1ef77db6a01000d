"""The alias table: what each framework's name means, and which names mean nothing we know."""

from __future__ import annotations

import tomllib
from importlib import resources

import polars as pl
import pytest

from ptt.diagnostics.parsers.aliases import annotate, canonical, split_of

EXPECTED = {
    "loss": "loss/total",
    "train/loss": "loss/total",
    "policy_loss": "loss/policy",
    "actor/pg_loss": "loss/policy",
    "kl": "kl/ref",
    "train/kl": "kl/ref",
    "actor/ppo_kl": "kl/old",
    "sampling/sampling_logp_difference/max": "mismatch/logp_abs_max",
    "train/sampling/importance_sampling_ratio/mean": "is/ratio_mean",
    "rollout_corr/rollout_is_eff_sample_size": "is/ess_frac",
    "mismatch_kl/all/mean": "mismatch/kl",
    "clip_ratio/region_mean": "clip/frac",
    "entropy_loss": "entropy",
    "reward": "reward/mean",
    "critic/score/mean": "reward/mean",
    "train/agg/effective/solver/reward/mean": "reward/mean",
    "frac_reward_zero_std": "reward/zero_std_frac",
    "completions/clipped_ratio": "len/clipped_frac",
    "learning_rate": "lr",
    "rewards/margins": "dpo/margin",
    "mean_token_accuracy": "sft/token_accuracy",
    "eval_loss": "eval/loss",
    "eval/loss": "eval/loss",
    "eval/reward": "eval/reward",
    "tools/call_frequency": "tools/call_frequency",
    "perf/time_per_step": "time/step",
}

UNKNOWN = (
    "train_loss",  # the mean over the run
    "train/train_loss",
    "training/rollout_probs_diff_mean",  # probabilities
    "actor/pg_clipfrac_lower",  # the dual clip
    "critic/rewards/mean",  # after the KL penalty
    "rewards/my_function/mean",
    "train/agg/effective/a/b/reward/mean",  # one segment too many
    "eval_kl",
    "epoch",
    "",
)


@pytest.mark.parametrize(("raw", "name"), EXPECTED.items())
def test_a_known_spelling_has_its_canonical_name(raw: str, name: str) -> None:
    assert canonical(raw) == name


@pytest.mark.parametrize("raw", UNKNOWN)
def test_a_name_of_other_meaning_stays_unnamed(raw: str) -> None:
    assert canonical(raw) is None


def test_a_star_stands_for_one_segment_and_only_patterns_hold_one() -> None:
    text = resources.files("ptt.diagnostics.parsers").joinpath("aliases.toml").read_text("utf-8")
    for name, frameworks in tomllib.loads(text)["names"].items():
        assert "*" not in name
        for raws in frameworks.values():
            assert len(raws) == len(set(raws))
            for raw in raws:
                assert canonical(raw.replace("*", "anything")) == name


@pytest.mark.parametrize(
    ("raw", "split"),
    [
        ("eval_loss", "eval"),
        ("eval/x", "eval"),
        ("val-core/gsm8k/acc", "eval"),
        ("val/ratio", "train"),
        ("kl", "train"),
    ],
)
def test_the_spelling_tells_training_from_evaluation(raw: str, split: str) -> None:
    assert split_of(raw) == split


def test_a_frame_gets_its_names_and_null_where_there_is_none() -> None:
    frame = annotate(pl.DataFrame({"name_raw": ["loss", "mystery", "loss"]}))
    assert frame["name"].to_list() == ["loss/total", None, "loss/total"]
    assert annotate(frame.clear()).height == 0
