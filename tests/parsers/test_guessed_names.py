"""The reading of names that no framework logs: by their words, and only where every word is explained."""

from __future__ import annotations

from ptt.diagnostics.metrics.aliases import canonical
from ptt.diagnostics.metrics.catalogue import document, metrics
from ptt.diagnostics.metrics.guessed_names import guess, near_names, told_by

READ = {
    "train_losses": "loss/total",
    "val_losses": "eval/loss",
    "reward_history": "reward/mean",
    "grad_norms": "grad_norm",
    "train_reward_mean": "reward/mean",
    "avg_reward": "reward/mean",
    "Average Reward": "reward/mean",
    "episode_reward": "reward/mean",
    "avg_ep_rew": "reward/mean",
    "récompense_moyenne": "reward/mean",
    "grpo/avg_reward": "reward/mean",
    "rl/loss": "loss/total",
    "mean_clipped_completion_ratio": "len/clipped_frac",
    "std_reward": "reward/std",
    "total_loss": "loss/total",
    "Loss/train": "loss/total",
    "train/loss_epoch": "loss/total",
    "perte": "loss/total",
    "grpo-loss": "loss/total",
    "loss_actor": "loss/policy",
    "policyGradientLoss": "loss/policy",
    "vf_loss": "critic/value_loss",
    "gradNorm": "grad_norm",
    "global-grad-norm": "grad_norm",
    "Learning Rate": "lr",
    "LR": "lr",
    "KL": "kl/ref",
    "KLDivergence": "kl/ref",
    "kl_ref_mean": "kl/ref",
    "approxKL": "kl/old",
    "entropy_mean": "entropy",
    "policy/entropy": "entropy",
    "clip_frac": "clip/frac",
    "pg_clipfrac": "clip/frac",
    "mean_response_length": "len/response_mean",
    "mean_completion_tokens": "len/response_mean",
    "tool_error_rate": "tools/failure_frequency",
    "avg_turns": "turns/mean",
    "adv_std": "advantage/std",
    "rewards/chosen_mean": "dpo/reward_chosen",
    "policy_rejected_logps": "dpo/logp_rejected",
    "Loss/test": "eval/loss",
    "valid/loss_mean": "eval/loss",
    "dev/reward_mean": "eval/reward",
    "val_accuracy": "eval/accuracy",
    "success_rate": "task/success",
    "ep_len_mean": "episode/length",
    "train/inference_kld": "mismatch/kl",
    "mismatch_kl": "mismatch/kl",
    "rollout_log_prob_abs_difference": "mismatch/logp_abs_mean",
    "vllm/logp_abs_diff": "mismatch/logp_abs_mean",
}  # fmt: skip

NOT_READ = (
    "train/inference_kld_max", "policy/logp_abs_diff", "inference/kl_std", "rollout_logp_diff",
    "format_reward", "rewards/accuracy/mean", "env_reward", "step_reward", "shaped_reward", "baseline_reward",
    "sft_reward", "ppo/reward",
    "reward_max", "reward_min", "reward_ema", "running_reward", "cumulative_reward", "reward_time", "reward_model_loss",
    "reward_clip_frac", "n_rewards", "mean_pos_adv", "returns", "score", "accuracy",
    "ref_kl_coef", "kl_coef", "target_kl", "init_kl_coef", "kl_max", "kl_beta", "kl_early_stop", "reverse_kl",
    "loss_scale_factor", "aux_loss", "loss_weight", "loss_0", "loss_std", "log_loss", "loss%", "loss(x100)",
    "train/lr(1e-3)", "min_lr", "base_lr", "critic_lr", "lr_scale", "warmup_lr", "lrm",
    "max_grad_norm", "clip_grad_norm", "grad_norm_std", "mean_grad", "critic/grad_norm", "param_norm",
    "entropy_coef", "entropy_bonus", "target_entropy", "entropy_std", "losses/entropy_bonus",
    "value_clip_frac", "clip_range", "clip_epsilon", "clip_ratio_low",
    "response_length_max", "prompt_length_mean", "max_response_length", "completion_tokens",
    "tool_success_rate", "tool_calls", "ref_chosen_logps", "reward_accuracy", "explained",
    "valid_reward", "train/eval_loss", "test_kl", "best_val_loss",
    "训练loss", "loss奖励", "step", "epoch", "iteration", "train", "mean", "eval", "x", "", "-", "loss " * 30,
)  # fmt: skip


def test_words_that_name_one_metric_and_leave_none_over_are_read() -> None:
    assert {raw: guess(raw) for raw in READ} == READ
    assert {raw: told_by(raw) for raw in READ} == READ
    assert [raw for raw in READ if canonical(raw) is not None] == []  # it stays a guess


def test_a_name_with_a_word_that_says_more_is_not_read() -> None:
    assert {raw: guess(raw) for raw in NOT_READ if guess(raw) is not None} == {}


def test_a_name_that_a_framework_logs_is_no_guess() -> None:
    aliases = [raw for metric in metrics().values() for raws in metric.aliases.values() for raw in raws]
    assert not [raw for raw in aliases if guess(raw) is not None]


def test_words_and_aliases_agree() -> None:
    """What the words of an alias say, spelt another way, is the metric of the alias."""
    for name, metric in metrics().items():
        for raw in (raw for raws in metric.aliases.values() for raw in raws):
            assert guess(raw.replace("/", " ").title()) in (name, None)


def test_near_names_are_those_whose_words_are_there_with_others() -> None:
    assert near_names("my_format_reward") == ["reward/mean"]
    assert near_names("grad_norm_before_clipping") == ["grad_norm"]
    assert near_names("gpu_memory") == []


def test_names_that_deny_a_reading_are_of_metrics_that_are_read() -> None:
    assert document()["words"]["not_beside"].keys() <= {name for name, metric in metrics().items() if metric.reads}
