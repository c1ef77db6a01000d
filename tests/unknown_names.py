"""Spellings that no alias lists, run by run: written down before it was looked at how they are read.

`TUNED` was looked at while the reading was made, `HELD_OUT` afterwards, once; `FOUND` are spellings of public training
scripts, looked at last. Each run: the kind of training that it
shows, and of each spelling the metric it stands for (None: none), its first value and its last.
"""

from __future__ import annotations

from typing import Final

Spelling = tuple[str | None, float, float]
Run = tuple[str, dict[str, Spelling]]

TUNED: Final[dict[str, Run]] = {
    "groups of a home-made loop": ("online", {
        "avg_ret": ("reward/mean", 0.2, 0.6),
        "solve_rate": ("task/success", 0.1, 0.5),
        "H": ("entropy", 1.2, 0.8),
        "frac_zero_var_groups": ("reward/zero_std_frac", 0.3, 0.4),
        "resp_len": ("len/response_mean", 300.0, 420.0),
        "gnorm": ("grad_norm", 0.5, 0.4),
        "kl_to_ref": ("kl/ref", 0.001, 0.05),
    }),
    "given answers": ("supervised", {
        "train_mean_nll": ("loss/total", 2.1, 1.4),
        "eval_gsm8k_loss": ("eval/loss", 1.9, 1.6),
        "ppl": ("sft/perplexity", 8.2, 4.1),
        "tok_acc": ("sft/token_accuracy", 0.5, 0.7),
        "tok/s": ("throughput/tokens", 12000.0, 12500.0),
        "cur_lr": ("lr", 1e-5, 1e-7),
    }),
    "pairs": ("preference", {
        "dpo_train_loss": ("loss/total", 0.693, 0.4),
        "pair_acc": ("dpo/accuracy", 0.5, 0.8),
        "chosen_rewards_avg": ("dpo/reward_chosen", 0.0, 0.3),
        "avg_margin": ("dpo/margin", 0.0, 1.2),
        "logp_of_chosen": ("dpo/logp_chosen", -180.0, -190.0),
        "logp_of_rejected": ("dpo/logp_rejected", -190.0, -220.0),
    }),
    "an environment without language": ("classic_rl", {
        "ep_rew_mean": ("reward/mean", 20.0, 180.0),
        "ep_len_mean": ("episode/length", 22.0, 180.0),
        "train_entropy_loss": ("entropy", -1.4, -0.7),
        "explained_var": ("critic/explained_variance", 0.1, 0.8),
        "fps": ("throughput/fps", 900.0, 880.0),
        "value_fn_loss": ("critic/value_loss", 12.0, 3.0),
    }),
    "a proxy and the truth": ("online", {
        "proxy_score": ("reward/mean", 0.2, 0.7),
        "gold_reward": ("reward/true", 0.2, 0.1),
        "format_reward": (None, 0.2, 1.0),
        "completion_tokens": ("len/response_mean", 120.0, 480.0),
        "truncated_frac": ("len/clipped_frac", 0.1, 0.4),
    }),
}  # fmt: skip

HELD_OUT: Final[dict[str, Run]] = {
    "groups of a home-made loop": ("online", {
        "meanReward": ("reward/mean", 0.2, 0.6),
        "train/pass_at_1": ("task/success", 0.1, 0.5),
        "policy_ent": ("entropy", 1.2, 0.8),
        "ratio_clip_fraction": ("clip/frac", 0.01, 0.03),
        "kl_from_base": ("kl/ref", 0.001, 0.05),
        "gradient_l2_norm": ("grad_norm", 0.5, 0.4),
        "avg_gen_len": ("len/response_mean", 300.0, 420.0),
        "pct_degenerate_groups": ("reward/zero_std_frac", 20.5, 41.5),
    }),
    "given answers": ("supervised", {
        "nll_per_token": ("loss/total", 2.1, 1.4),
        "heldout_nll": ("eval/loss", 2.0, 1.6),
        "next_token_accuracy": ("sft/token_accuracy", 0.5, 0.7),
        "tokens_per_sec": ("throughput/tokens", 12000.0, 12500.0),
        "max_lr_reached": (None, 1e-5, 1e-5),
        "dev_acc": ("eval/accuracy", 0.4, 0.6),
    }),
    "pairs": ("preference", {
        "pref_loss_avg": ("loss/total", 0.693, 0.4),
        "preference_acc_train": ("dpo/accuracy", 0.5, 0.8),
        "reward_gap": ("dpo/margin", 0.0, 1.2),
        "r_chosen": ("dpo/reward_chosen", 0.0, 0.3),
        "r_rejected": ("dpo/reward_rejected", 0.0, -0.9),
        "chosen_logprob_mean": ("dpo/logp_chosen", -180.0, -190.0),
    }),
    "an environment without language": ("classic_rl", {
        "episodic_return_avg": ("reward/mean", 20.0, 180.0),
        "mean_episode_len": ("episode/length", 22.0, 180.0),
        "expl_var": ("critic/explained_variance", 0.1, 0.8),
        "steps_per_second": ("throughput/fps", 900.0, 880.0),
        "exploration_eps": ("exploration/epsilon", 1.0, 0.05),
        "critic_mse": ("critic/value_loss", 12.0, 3.0),
        "actor_loss_mean": ("loss/policy", 0.1, -0.1),
    }),
    "a proxy and the truth": ("online", {
        "rm_score_mean": ("reward/mean", 0.2, 0.7),
        "true_return": ("reward/true", 0.2, 0.1),
        "len_penalty": (None, -0.1, -0.3),
        "max_reward": (None, 1.0, 1.0),
        "cut_off_rate": ("len/clipped_frac", 0.1, 0.4),
        "kl_coefficient": (None, 0.1, 0.2),
    }),
}  # fmt: skip

FOUND: Final[dict[str, Run]] = {
    "episodes": ("classic_rl", {
        "Reward per episode": ("reward/mean", 20.0, 90.0),
        "Number of steps per episode": ("episode/length", 20.0, 90.0),
        "Epsilon decay": ("exploration/epsilon", 1.0, 0.05),
        "finished_amount": (None, 0.0, 9.0),
        "distance_to_goal": (None, 9.0, 1.0),
    }),
    "a summary of an environment": ("online", {
        "mean_reward": ("reward/mean", 0.2, 0.6),
        "success_rate": ("task/success", 0.2, 0.6),
        "mean_length": (None, 20.0, 90.0),
        "min_length": (None, 2.0, 9.0),
        "final_reward_mean_10": (None, 0.2, 0.6),
        "best_reward": (None, 0.2, 0.6),
    }),
    "an update of PPO": ("online", {
        "policy_loss": ("loss/policy", 0.1, -0.1),
        "om_loss": (None, 2.0, 1.0),
        "om_accuracy": (None, 0.2, 0.9),
        "explained_var": ("critic/explained_variance", 0.1, 0.7),
        "critic_grad_norm": (None, 2.0, 1.0),
        "gradient_norm": ("grad_norm", 2.0, 1.0),
        "ratio_mean": (None, 1.0, 1.01),
        "aux_loss": (None, 2.0, 1.0),
        "return_mean": (None, 2.0, 9.0),
        "value_mean": ("critic/value_mean", 2.0, 9.0),
    }),
    "given data": ("supervised", {
        "average_epoch_loss": ("loss/total", 2.1, 1.4),
        "min_valid_loss": (None, 2.0, 1.5),
        "valid_loss": ("eval/loss", 2.0, 1.5),
        "Train Steps/Sec": (None, 2.1, 2.2),
        "perplexity/val": ("eval/perplexity", 9.1, 4.2),
    }),
    "evaluations": ("online", {
        "Evaluation Average Reward:": ("eval/reward", 20.0, 90.0),
        "Mean Reward Score in buffer:": (None, 0.2, 0.6),
        "Lower/Average_Reward": ("reward/mean", 2.0, 9.0),
        "kl_ref": ("kl/ref", 0.01, 0.1),
        "prey_alive": (None, 3.0, 4.0),
    }),
}  # fmt: skip
