"""What each framework calls the curves of a made run, and what Microsoft's toolkit called them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_HF: Final = {"loss": "loss", "grad_norm": "grad_norm", "lr": "learning_rate", "num_tokens": "num_tokens",
              "entropy": "entropy"}  # fmt: skip
TRL_GRPO: Final = _HF | {
    "reward": "reward", "reward_std": "reward_std", "zero_std": "frac_reward_zero_std",
    "r_correct": "rewards/correct_reward/mean", "r_format": "rewards/format_reward/mean", "kl": "kl",
    "len": "completions/mean_length", "len_max": "completions/max_length", "len_min": "completions/min_length",
    "len_clipped": "completions/clipped_ratio", "clip": "clip_ratio/region_mean", "clip_low": "clip_ratio/low_mean",
    "clip_high": "clip_ratio/high_mean", "step_time": "step_time",
    "mm_mean": "sampling/sampling_logp_difference/mean", "mm_max": "sampling/sampling_logp_difference/max",
    "is_mean": "sampling/importance_sampling_ratio/mean", "is_min": "sampling/importance_sampling_ratio/min",
    "is_max": "sampling/importance_sampling_ratio/max", "tool_calls": "tools/call_frequency",
    "tool_fail": "tools/failure_frequency",
}  # fmt: skip
TRL_DPO: Final = _HF | {
    "margin": "rewards/margins", "accuracy": "rewards/accuracies", "r_chosen": "rewards/chosen",
    "r_rejected": "rewards/rejected", "lp_chosen": "logps/chosen", "lp_rejected": "logps/rejected",
    "lg_chosen": "logits/chosen", "lg_rejected": "logits/rejected", "token_accuracy": "mean_token_accuracy",
}  # fmt: skip
TRL_SFT: Final = _HF | {"token_accuracy": "mean_token_accuracy"}
VERL: Final = {
    "loss": "actor/pg_loss", "grad_norm": "actor/grad_norm", "lr": "actor/lr", "reward": "critic/score/mean",
    "score_max": "critic/score/max", "score_min": "critic/score/min", "kl": "actor/reward_kl_penalty",
    "entropy": "actor/entropy", "len": "response_length/mean", "len_max": "response_length/max",
    "len_min": "response_length/min", "len_clipped": "response_length/clip_ratio", "clip": "actor/pg_clipfrac",
    "ppo_kl": "actor/ppo_kl", "step_time": "perf/time_per_step", "throughput": "perf/throughput",
    "mm_kl": "rollout_corr/kl", "is_mean": "rollout_corr/rollout_is_mean", "is_min": "rollout_corr/rollout_is_min",
    "is_max": "rollout_corr/rollout_is_max", "adv_mean": "critic/advantages/mean", "adv_max": "critic/advantages/max",
    "adv_min": "critic/advantages/min", "return_mean": "critic/returns/mean", "value_mean": "critic/values/mean",
    "vf_loss": "critic/vf_loss", "ev": "critic/vf_explained_var", "critic_grad": "critic/grad_norm",
    "turns": "num_turns/mean", "mem": "perf/max_memory_reserved_gb", "tool_calls": "tool_call_counts/mean",
}  # fmt: skip
PRIME: Final = {
    "loss": "loss/mean", "grad_norm": "optim/grad_norm", "lr": "optim/lr", "reward": "reward/all/mean",
    "entropy": "entropy/all/mean", "mm_kl": "mismatch_kl/all/mean", "len": "num_output_tokens/all/mean",
    "len_clipped": "is_truncated/all/mean", "clip": "is_masked/all/mean", "clip_low": "is_masked_low/all/mean",
    "clip_high": "is_masked_high/all/mean", "step_time": "time/step", "mem": "perf/peak_memory",
    "throughput": "perf/throughput", "kl": "ref_kl/all/mean", "zero_std": "frac_reward_zero_std",
    "reward_std": "reward_std",
}  # fmt: skip
DIALECTS: Final[Mapping[str, Mapping[str, str]]] = {
    "trl": TRL_GRPO, "trl-dpo": TRL_DPO, "trl-sft": TRL_SFT, "verl": VERL, "prime": PRIME,
}  # fmt: skip
SPOKEN: Final[Mapping[str, tuple[str, ...]]] = {
    "sft": ("trl-sft",), "dpo": ("trl-dpo",), "ppo": ("verl",), "grpo": ("trl", "verl", "prime"),
    "grpo-tools": ("trl",),
}  # fmt: skip
EVALUATED: Final[Mapping[str, Mapping[str, str]]] = {
    "trl": {"correct": "eval_rewards/correct_reward/mean", "reward": "eval_reward"},
    "trl-dpo": {name: f"eval_{raw}" for name, raw in TRL_DPO.items()},
    "trl-sft": {name: f"eval_{raw}" for name, raw in TRL_SFT.items()},
    "verl": {"correct": "val-core/sums/acc/mean@1"},
    "prime": {"correct": "eval/sums/avg@1"},
}

# Microsoft's toolkit: canonical names by ours. Its callback maps fewer; giving it all of them is to its advantage.
RIVAL: Final = {
    "reward": "reward_mean", "kl": "kl", "entropy": "entropy", "len": "output_length_mean", "grad_norm": "grad_norm",
    "clip": "clip_fraction", "ppo_kl": "approx_kl", "vf_loss": "value_loss", "ev": "explained_variance",
    "value_mean": "value_mean", "return_mean": "returns_mean", "margin": "reward_margin", "accuracy": "win_rate",
    "r_chosen": "rewards_chosen", "r_rejected": "rewards_rejected", "lp_chosen": "logps_chosen",
    "lp_rejected": "logps_rejected", "is_min": "importance_sampling_ratio", "len_clipped": "truncation_rate",
}  # fmt: skip
RIVAL_LOSS: Final = {"sft": "sft_loss", "dpo": "dpo_loss", "ppo": "ppo_loss", "grpo": "grpo_loss",
                     "grpo-tools": "grpo_loss"}  # fmt: skip
RIVAL_GRPO: Final = {"reward": "group_reward_mean", "reward_std": "group_reward_std", "len": "completion_length"}
