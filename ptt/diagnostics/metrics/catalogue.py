"""What each canonical metric is called in prose, and what kind of figure it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

Kind = Literal["training", "schedule", "counter", "machine"]

PLAIN: Final[Mapping[str, str]] = {
    "kl/ref": "mean KL",
    "reward/mean": "reward",
    "entropy": "entropy",
    "grad_norm": "gradient norm",
    "loss/total": "loss",
    "loss/policy": "policy loss",
    "clip/frac": "clip fraction",
    # the others in the order of their names
    "advantage/mean": "mean advantage",
    "advantage/std": "advantage spread",
    "clip/frac_high": "fraction clipped above",
    "clip/frac_low": "fraction clipped below",
    "critic/explained_variance": "variance the critic explains",
    "critic/return_mean": "mean return",
    "critic/value_loss": "value loss",
    "critic/value_mean": "mean value",
    "dpo/accuracy": "preference accuracy",
    "dpo/logp_chosen": "logprob of chosen answers",
    "dpo/logp_rejected": "logprob of rejected answers",
    "dpo/margin": "reward margin",
    "dpo/reward_chosen": "implicit reward of chosen answers",
    "dpo/reward_rejected": "implicit reward of rejected answers",
    "eval/loss": "evaluation loss",
    "eval/reward": "evaluation reward",
    "idle/rollout": "idle share of the rollout side",
    "idle/trainer": "idle share of the trainer",
    "is/ess_frac": "effective sample size",
    "is/ratio_max": "largest importance ratio",
    "is/ratio_mean": "mean importance ratio",
    "is/ratio_min": "smallest importance ratio",
    "kl/old": "KL of the update",
    "kto/desirable_loss": "loss on desirable answers",
    "kto/undesirable_loss": "loss on undesirable answers",
    "len/clipped_frac": "share cut at the length limit",
    "len/empty_frac": "share of empty answers",
    "len/response_mean": "response length",
    "loss_scale": "loss scale",
    "lr": "learning rate",
    "mask/share": "masked share of the policy's tokens",
    "mem/host_gb": "host memory",
    "mem/peak_gb": "peak device memory",
    "mismatch/kl": "KL of trainer and engine",
    "mismatch/logp_abs_max": "largest logprob gap of trainer and engine",
    "mismatch/logp_abs_mean": "mean logprob gap of trainer and engine",
    "mismatch/prob_diff": "probability gap of trainer and engine",
    "mismatch/prob_error": "probability error of trainer and engine",
    "orpo/log_odds_ratio": "log odds ratio",
    "policy/cosine_to_ref": "cosine to the reference",
    "reward/std": "reward spread",
    "reward/zero_std_frac": "groups of one reward",
    "sft/perplexity": "perplexity",
    "sft/token_accuracy": "token accuracy",
    "staleness/max": "largest staleness",
    "staleness/mean": "mean staleness",
    "throughput/tokens": "tokens a second",
    "time/generation": "time of generation",
    "time/step": "time a step",
    "time/update": "time of the update",
    "time/wait_rollout": "wait for samples",
    "time/wait_trainer": "wait for weights",
    "tokens/seen": "tokens seen",
    "tokens/step": "tokens a step",
    "tools/call_frequency": "tool use",
    "tools/failure_frequency": "tool failures",
    "tools/latency_mean": "tool latency",
    "tools/malformed_frequency": "malformed tool calls",
    "turns/limit_frac": "share cut at the turn limit",
    "turns/mean": "turns",
}
SCHEDULES: Final = ("lr",)
"""Set beforehand: a choice like any setting, and nothing that training does."""
COUNTERS: Final = ("tokens/seen",)
"""Running totals: what they grow by is told by other metrics."""
MACHINE: Final = ("time/", "throughput/", "mem/", "idle/", "tools/latency", "loss_scale")
"""Clocks, memory and number formats: two runs of one seed on two machines differ in them."""


def kind_of(name: str) -> Kind:
    """Tell what kind of figure a metric is; what is not known otherwise is one of training."""
    if name in SCHEDULES:
        return "schedule"
    if name in COUNTERS:
        return "counter"
    return "machine" if name.startswith(MACHINE) else "training"
