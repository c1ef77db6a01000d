"""Which of a run's settings may become facts of the report: by name, and only numbers and short plain words.

Configurations hold host names, addresses, keys and paths; so there is a list of what is taken, and not of what is not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

Facts = dict[str, str | int | float | bool | None]

PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]{0,31}")
NUMBER: Final = re.compile(r"[+-]?(?:\d{1,18}|(?:\d{1,18}\.\d{0,18}|\.\d{1,18}|\d{1,18})(?:[eE][+-]?\d{1,3})?)")

# By the last part of a setting's name, so that `actor_rollout_ref.actor.clip_ratio` is found too.
SAFE: Final = frozenset(
    {
        "adv_estimator", "advantage_estimator", "algorithm", "beta", "bf16", "cliprange", "cliprange_value",
        "clip_ratio", "clip_ratio_high", "clip_ratio_low", "delta", "entropy_coeff", "eps_clip", "eps_clip_high",
        "epsilon", "epsilon_high", "fp16", "gamma",
        "generation_batch_size", "gradient_accumulation_steps", "gradient_checkpointing", "init_kl_coef",
        "kl_coef", "kl_loss_coef", "kl_loss_type", "kl_target", "lam", "lambd", "learning_rate", "logging_steps",
        "loss_agg_mode", "loss_type", "lr", "lr_scheduler_type", "mask_truncated_completions",
        "max_completion_length", "max_grad_norm", "max_prompt_length", "max_response_length", "max_steps",
        "max_tool_calling_iterations", "micro_batch_size", "mini_batch_size", "n_samples_per_prompt",
        "num_generations", "num_iterations", "num_samples_per_prompt", "per_device_train_batch_size",
        "policy_loss_type", "ppo_epochs", "ppo_mini_batch_size", "ratio_type", "reward_clip", "rollout_batch_size",
        "rollout_temperature", "save_steps", "scale_rewards", "seed", "steps_per_generation", "sync_ref_model",
        "target_kl", "temperature", "top_k", "top_p", "total_training_steps", "train_batch_size", "use_kl_in_reward",
        "use_kl_loss", "use_vllm", "vllm_importance_sampling_cap", "vllm_importance_sampling_correction",
        "vllm_importance_sampling_mode", "warmup_ratio", "warmup_steps", "weight_decay",
    }
)  # fmt: skip


def safe_settings(settings: Mapping[str, Any]) -> Facts:
    """Take the settings that are on the list, by their last part; the shortest name counts where two share it."""
    facts: Facts = {}
    for name in sorted(settings, key=lambda name: (name.count(".") + name.count("/"), name), reverse=True):
        last = re.split(r"[./]", name)[-1]
        if last in SAFE and (value := _plain(settings[name])) is not None:
            facts[last] = value
    return facts


def _plain(value: Any) -> str | int | float | bool | None:
    """Return a number, a boolean or one short word; None for anything else."""
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return _number(float(value))
    if not isinstance(value, str):
        return None
    text = value.strip()
    if text in ("True", "true", "False", "false"):
        return text in ("True", "true")
    if NUMBER.fullmatch(text):
        return _number(float(text))
    return text if PLAIN.fullmatch(text) and text not in ("None", "null", "nan", "inf") else None


def _number(value: float) -> int | float | None:
    if value != value or abs(value) == float("inf"):
        return None
    return int(value) if value.is_integer() and abs(value) < 1e15 else value
