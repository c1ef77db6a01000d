"""The alias table: what each framework's name means, and which names mean nothing we know."""

from __future__ import annotations

import pytest

from ptt.diagnostics.metrics.aliases import canonical, framework_of, split_of
from ptt.diagnostics.metrics.catalogue import metrics

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
    "critic_score_mean": "reward/mean",
    "actor_pg_clipfrac": "clip/frac",
    "completions_mean_length": "len/response_mean",
}

UNKNOWN = (
    "train_loss",  # the mean over the run
    "train/train_loss",
    "actor/pg_clipfrac_lower",  # the dual clip
    "critic/rewards/mean",  # after the KL penalty
    "rewards/my_function/mean",
    "train/agg/effective/a/b/reward/mean",  # one segment too many
    "eval_kl",
    "epoch",
    "",
)


BETWEEN_TRAINER_AND_ENGINE = {  # as the sources of each framework log it; TorchForge logs none, Trinity-RFT veRL's
    "veRL": ("training/rollout_probs_diff_mean", "training/rollout_probs_diff_max",
             "training/rollout_actor_probs_pearson_corr", "rollout_corr/kl", "rollout_corr/log_ppl_abs_diff",
             "rollout_corr/chi2_token", "rollout_corr/rollout_is_ratio_fraction_high"),
    "TRL, Unsloth": ("sampling/sampling_logp_difference/mean", "sampling/sampling_logp_difference/max",
                     "sampling/importance_sampling_ratio/mean"),
    "OpenRLHF": ("vllm_kl",),
    "NeMo-RL": ("token_mult_prob_error", "train/gen_kl_error", "max_seq_mult_prob_error", "sampling_importance_ratio"),
    "SkyRL": ("policy/rollout_train_logprobs_abs_diff_mean", "policy/rollout_train_logprobs_abs_diff_std",
              "policy/minibatch_rollout_logprobs_abs_diff_mean", "policy/loss_metrics/is_ratio_mean",
              "policy/loss_metrics/tis_token_clip_high_ratio"),
    "slime, Miles": ("train/train_rollout_logprob_abs_diff", "train/train_rollout_kl", "train/mis_kl",
                     "train/mis_log_ppl_abs_diff", "train/tis", "train/tis_clipfrac", "train/mis_chi2_token",
                     "train/mis_tis_weight_before_bound", "train/mis_tis_truncate_fraction"),
    "prime-rl": ("mismatch_kl/all/mean", "mismatch_kl/mean"),
    "AReaL": ("ppo_actor/update/behave_approx_kl/avg", "ppo_actor/update/behave_imp_weight/avg"),
    "ROLL": ("actor/train_infer_ratio_token_mean", "actor/is_weight_clipfrac", "actor/tis_total_clipfrac"),
    "ms-swift": ("rollout_correction/kl", "rollout_correction/log_ppl_abs_diff", "rollout_correction/chi2_token"),
    "open-instruct": ("debug/vllm_vs_local_logprob_diff_mean", "debug/vllm_local_reverse_kl", "val/tis_clipfrac",
                      "val/rho_clipfrac", "val/rho_drop_low_frac", "val/rho_drop_high_frac"),
    "torchtitan": ("bit_wise/logprob_diff/mean", "bit_wise/logprob_diff/max"),
    "Tinker": ("optim/kl_sample_train_v1",),
    "rLLM": ("offpolicy/logprob_abs_diff/mean", "offpolicy/kl", "offpolicy/log_ppl_abs_diff", "offpolicy/chi2_token",
             "train/kl_sample_train_v1"),
    "XTuner": ("mismatch/mismatch_logprob_abs_diff", "mismatch/mismatch_kl", "mismatch/mismatch_log_ppl_abs_diff"),
}  # fmt: skip


@pytest.mark.parametrize("framework", BETWEEN_TRAINER_AND_ENGINE)
def test_what_compares_trainer_and_engine_is_read_of_each_framework(framework: str) -> None:
    for raw in BETWEEN_TRAINER_AND_ENGINE[framework]:
        assert (canonical(raw) or "").startswith(("mismatch/", "is/")), raw


@pytest.mark.parametrize(("raw", "name"), EXPECTED.items())
def test_a_known_spelling_has_its_canonical_name(raw: str, name: str) -> None:
    assert canonical(raw) == name


@pytest.mark.parametrize("raw", UNKNOWN)
def test_a_name_of_other_meaning_stays_unnamed(raw: str) -> None:
    assert canonical(raw) is None


def test_a_star_stands_for_one_segment_and_only_patterns_hold_one() -> None:
    for name, metric in metrics().items():
        assert "*" not in name
        for raws in metric.aliases.values():
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


# One spelling a framework of every quantity it logs, as its reporters write it.
BY_FRAMEWORK: dict[str, dict[str, str]] = {
    "loss/policy": {
        "trl": "policy_loss", "verl": "actor/pg_loss", "openrlhf": "train/policy_loss", "skyrl": "policy/policy_loss",
        "slime": "train/pg_loss", "areal": "ppo_actor/update/actor_loss/avg", "open-instruct": "loss/policy_avg",
    },
    "loss/total": {"trl": "train/loss", "nemo-rl": "train/loss", "prime-rl": "loss/mean", "skyrl": "policy/final_loss"},
    "kl/ref": {
        "trl": "train/kl", "verl": "actor/kl_loss", "openrlhf": "train/kl", "skyrl": "policy/policy_kl",
        "nemo-rl": "train/kl_penalty", "prime-rl": "ref_kl/all/mean", "slime": "train/kl_loss",
        "areal": "ppo_actor/kl_rewards/avg", "open-instruct": "loss/kl_avg", "tinker": "kl_policy_base",
    },
    "kl/old": {
        "verl": "actor/ppo_kl", "openrlhf": "train/ppo_kl", "slime": "train/ppo_kl",
        "areal": "ppo_actor/update/approx_kl/avg",
    },
    "mismatch/logp_abs_mean": {
        "trl": "train/sampling/sampling_logp_difference/mean", "skyrl": "policy/rollout_train_logprobs_abs_diff_mean",
        "slime": "train/train_rollout_logprob_abs_diff", "open-instruct": "debug/vllm_vs_local_logprob_diff_mean",
    },
    "mismatch/logp_abs_max": {
        "trl": "sampling/sampling_logp_difference/max", "skyrl": "policy/rollout_train_logprobs_abs_diff_max",
        "open-instruct": "debug/vllm_vs_local_logprob_diff_max",
    },
    "mismatch/kl": {
        "verl": "rollout_corr/kl", "openrlhf": "train/vllm_kl", "nemo-rl": "train/gen_kl_error",
        "prime-rl": "mismatch_kl/all/mean", "areal": "ppo_actor/update/behave_approx_kl/avg",
        "open-instruct": "debug/vllm_local_reverse_kl", "tinker": "optim/kl_sample_train_v1",
    },
    "is/ratio_mean": {
        "trl": "sampling/importance_sampling_ratio/mean", "verl": "rollout_corr/rollout_is_mean",
        "skyrl": "policy/loss_metrics/is_ratio_mean", "nemo-rl": "train/sampling_importance_ratio",
        "slime": "train/tis", "areal": "ppo_actor/update/behave_imp_weight/avg", "open-instruct": "val/ratio",
        "ms-swift": "train/rollout_correction/is_weight_mean",
    },
    "is/ratio_min": {
        "trl": "sampling/importance_sampling_ratio/min", "verl": "rollout_corr/rollout_is_min",
        "skyrl": "policy/loss_metrics/is_ratio_min", "areal": "ppo_actor/update/behave_imp_weight/min",
    },
    "is/ratio_max": {
        "trl": "sampling/importance_sampling_ratio/max", "verl": "rollout_corr/rollout_is_max",
        "skyrl": "policy/loss_metrics/is_ratio_max", "areal": "ppo_actor/update/behave_imp_weight/max",
    },
    "is/ess_frac": {"verl": "rollout_corr/rollout_is_eff_sample_size", "ms-swift": "rollout_correction/ess"},
    "clip/frac": {
        "trl": "clip_ratio/region_mean", "verl": "actor/pg_clipfrac", "openrlhf": "train/ppo_clip_ratio",
        "skyrl": "policy/loss_metrics/clip_ratio", "prime-rl": "is_masked/mean", "slime": "train/pg_clipfrac",
        "areal": "ppo_actor/update/clip_ratio/avg", "open-instruct": "policy/clipfrac_avg",
    },
    "entropy": {
        "trl": "train/entropy", "verl": "actor/entropy", "openrlhf": "train/entropy_loss",
        "skyrl": "policy/policy_entropy", "nemo-rl": "train/approx_entropy", "prime-rl": "entropy/all/mean",
        "slime": "rollout/entropy", "areal": "ppo_actor/update/entropy/avg", "open-instruct": "policy/entropy_avg",
        "tinker": "optim/entropy",
    },
    "reward/mean": {
        "trl": "train/reward", "verl": "critic/score/mean", "openrlhf": "train/reward",
        "skyrl": "reward/avg_raw_reward", "nemo-rl": "train/reward",
        "prime-rl": "train/agg/effective/solver/reward/mean", "slime": "rollout/raw_reward",
        "areal": "ppo_actor/task_reward/avg", "open-instruct": "scores", "tinker": "env/all/reward/total",
    },
    "reward/std": {"trl": "reward_std"},
    "reward/zero_std_frac": {"trl": "train/frac_reward_zero_std"},
    "len/response_mean": {
        "trl": "completions/mean_length", "verl": "response_length/mean", "openrlhf": "train/response_length",
        "skyrl": "generate/avg_num_tokens", "nemo-rl": "train/mean_gen_tokens_per_sample",
        "prime-rl": "train/agg/effective/solver/num_output_tokens/mean", "slime": "rollout/response_len/mean",
        "areal": "ppo_actor/seq_len/avg", "open-instruct": "val/sequence_lengths",
        "tinker": "env/all/ac_tokens_per_turn",
    },
    "len/clipped_frac": {
        "trl": "completions/clipped_ratio", "verl": "response_length/clip_ratio",
        "openrlhf": "train/response_clip_ratio", "nemo-rl": "train/truncation_rate",
        "prime-rl": "is_truncated/all/mean", "slime": "rollout/truncated_ratio",
        "areal": "ppo_actor/no_eos_ratios/avg",
    },
    "grad_norm": {
        "trl": "train/grad_norm", "verl": "actor/grad_norm", "openrlhf": "train/actor_grad_norm",
        "skyrl": "policy/grad_norm", "nemo-rl": "train/grad_norm", "prime-rl": "optim/grad_norm",
        "slime": "train/grad_norm", "areal": "ppo_actor/update/grad_norm",
    },
    "critic/value_loss": {
        "trl": "loss/value_avg", "verl": "critic/vf_loss", "openrlhf": "train/critic_loss",
        "skyrl": "critic/critic_loss", "slime": "train/value_loss",
    },
    "critic/explained_variance": {"verl": "critic/vf_explained_var"},
    "tools/call_frequency": {"trl": "train/tools/call_frequency", "verl": "tool_call_counts/mean"},
    "mismatch/prob_diff": {"verl": "training/rollout_probs_diff_mean"},
    "mismatch/prob_error": {"nemo-rl": "train/token_mult_prob_error"},
    "len/empty_frac": {"verl": "response/aborted_ratio", "microsoft": "empty_response_rate"},
    "mask/share": {"verl": "rollout_corr/rollout_rs_masked_fraction"},
    "policy/cosine_to_ref": {"microsoft": "embedding_cosine_to_sft"},
    "tools/failure_frequency": {"trl": "tools/failure_frequency"},
    "tools/malformed_frequency": {"nemo-rl": "train/invalid_tool_call_rate"},
    "turns/limit_frac": {"trl": "tools/loop_exhausted_frac", "nemo-rl": "train/max_turns_reached_rate"},
    "tools/latency_mean": {"trl": "tools/latency_s", "verl": "timing_s/agent_loop/tool_calls/mean"},
    "turns/mean": {
        "verl": "num_turns/mean", "nemo-rl": "train/avg_turns_per_sample", "prime-rl": "num_turns/all/mean",
        "slime": "multi_turn_metric/round_number_mean", "tinker": "env/all/turns_per_episode",
    },
    "staleness/mean": {
        "trl": "sample/staleness_mean", "verl": "training/off_policy/trajectory_staleness/mean",
        "skyrl": "async/staleness_mean", "nemo-rl": "train/avg_trajectory_age", "prime-rl": "off_policy/mean",
        "areal": "version_stats/sample_staleness_theta_avg",
    },
    "staleness/max": {
        "trl": "sample/staleness_max", "verl": "training/off_policy/trajectory_staleness/max",
        "skyrl": "async/staleness_max", "prime-rl": "off_policy/max",
        "areal": "version_stats/sample_staleness_theta_max",
    },
    "time/step": {
        "trl": "train/step_time", "verl": "perf/time_per_step", "openrlhf": "train/timing/step_total",
        "skyrl": "timing/step", "nemo-rl": "timing/train/total_step_time", "prime-rl": "time/step",
        "slime": "perf/step_time", "tinker": "time/total",
    },
    "mem/peak_gb": {"verl": "perf/max_memory_reserved_gb", "prime-rl": "perf/peak_memory", "ms-swift": "memory(GiB)"},
    "samples/attempted": {"prime-rl": "progress/rollouts", "skyrl": "generate/batch_num_seq"},
    "samples/finished": {"verl": "fully_async/count/total_generated_samples", "nemo-rl": "rollout/committed_total"},
    "samples/failed": {
        "verl": "training/rollout_failure/evicted_samples", "nemo-rl": "rollout/data_failures_total",
        "skyrl": "generate/num_error_trajectories", "miles": "rollout/fully_async/aborted_groups_filtered",
        "tinker": "rollout_errors/total",
    },
    "samples/failed_frac": {"prime-rl": "train/agg/all/agent/has_error/mean", "skyrl": "rollout_metrics/error_runtime"},
    "samples/dropped": {"nemo-rl": "rollout/infra_drops_total"},
    "samples/filtered": {
        "verl": "training/filter_groups/evicted_samples", "skyrl": "async/num_groups_dropped",
        "open-instruct": "batch/filtered_prompts", "roll": "scheduler/group_filter_count",
    },
    "samples/ended_frac": {"nemo-rl": "train/natural_termination_rate"},
    "samples/kept_frac": {"skyrl": "async/keep_rate", "openrlhf": "dynamic_filtering_pass_rate"},
    "samples/masked": {"nemo-rl": "train/num_mask_sample_filtered", "skyrl": "generate/num_masked_instances"},
    "samples/evicted": {
        "verl": "fully_async/count/dropped_stale_samples", "prime-rl": "off_policy/dropped",
        "miles": "rollout/fully_async/stale_groups_filtered", "open-instruct": "stale_results_dropped",
    },
    "groups/all_wrong_frac": {
        "nemo-rl": "train/baseline_reward/pct_0", "prime-rl": "train/agg/all/solved_none", "rllm": "batch/solve_none",
        "tinker": "env/all/by_group/frac_all_bad", "miles": "rollout/zero_std/all_zero_percentage",
    },
    "reward/unfiltered": {"prime-rl": "train/agg/all/agent/reward/mean"},
}  # fmt: skip

OTHERWISE = (  # looks like one of the above, and is not: see the head of metrics.toml
    "train/batch/masked_token_frac",
    "train/probs_ratio",
    "train/probs_ratio_max",
    "rollout_corr/k3_kl",
    "train/is_filter_ratio",
    "rollout/accepted",
    "train/files-mcp/all/has_error/mean",
    "rollout/infra_drops_total/SandboxTimeout",
    "val/stop_rate",
    "timeperf/rollout",
    "optim/kl_sample_train_v2",
)


def test_each_frameworks_own_spelling_has_the_canonical_name() -> None:
    told = [(raw, name) for name, raws in BY_FRAMEWORK.items() for raw in raws.values()]
    assert [(raw, canonical(raw)) for raw, _ in told] == told


@pytest.mark.parametrize("raw", OTHERWISE)
def test_a_second_estimate_or_another_quantity_stays_unnamed(raw: str) -> None:
    assert canonical(raw) is None


def test_names_tell_the_framework_where_only_one_logs_them() -> None:
    assert framework_of(["actor/pg_loss", "actor/entropy", "epoch"]) == "verl"
    assert framework_of(["train/frac_reward_zero_std", "train/loss"]) == "trl"
    assert framework_of(["train/loss", "loss", "reward"]) is None
    assert framework_of(["actor/pg_loss", "policy/final_loss"]) is None


def test_a_framework_that_logs_another_s_names_too_is_told_by_its_own() -> None:
    assert framework_of(["actor/pg_loss", "actor/train_infer_diff_mean"]) == "roll"
    assert framework_of(["actor/pg_loss", "timing_s/gen", "training/n_rollouts_w_trace"]) == "agent-lightning"
    assert framework_of(["actor/pg_loss", "sample/model_version/mean"]) == "trinity-rft"
    assert framework_of(["actor_pg_loss", "actor_grad_norm"]) == "verl"
    assert framework_of(["actor_grad_norm"]) == "openrlhf"
