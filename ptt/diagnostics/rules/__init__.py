"""The table of contents of all rules; `tool_tail_growth` stands apart because it needs the others' alarms."""

from ptt.diagnostics.rules import tool_tail_growth
from ptt.diagnostics.rules.critic import (
    explained_variance_low,
    reward_oscillates,
    value_loss_flat,
    value_loss_rising,
    value_scale,
)
from ptt.diagnostics.rules.data_freshness import (
    engine_mismatch,
    mismatch_after_tools,
    old_logprobs_off,
    rank_mismatch,
    stale_rollouts,
    versions_unknown,
)
from ptt.diagnostics.rules.data_validity import (
    copied_logprobs,
    filled_rows,
    missing_logprobs,
    missing_parts,
    mixed_temperatures,
    placeholder_logprobs,
    repeated_sequences,
    resumed_segments,
    retokenised_turns,
    rounded_logprobs,
    scaled_logprobs,
    shifted_logprobs,
    truncated_support,
    unmasked_tools,
)
from ptt.diagnostics.rules.environment import (
    failures_under_load,
    failures_unrecovered,
    malformed_calls,
    pseudo_success,
    repeated_calls,
    runaway_episodes,
    tool_failures,
    tool_latency,
    tool_use_vanished,
    underused_tools,
    void_turns,
)
from ptt.diagnostics.rules.evaluation import (
    eval_not_following,
    eval_protocol_changed,
    eval_spikes,
    eval_unlike_training,
    split_gap,
)
from ptt.diagnostics.rules.exploration import (
    entropy_collapse,
    entropy_explosion,
    entropy_high,
    equal_lengths,
    length_collapse,
    negative_entropy_bonus,
    template_collapse,
    tool_diversity,
)
from ptt.diagnostics.rules.interface import Rule
from ptt.diagnostics.rules.numerics import (
    frozen_loss,
    gradient_spikes,
    gradient_vanished,
    loss_below_zero,
    loss_divergence,
    loss_scale_drops,
    metrics_lost,
    nan_precursors,
)
from ptt.diagnostics.rules.policy_update import (
    clip_fraction_high,
    kl_over_target,
    kl_zero,
    learning_rate_high,
    learning_rate_jump,
    learning_rate_zero,
    moving_reference,
    one_sided_clipping,
    policy_drift,
    ratio_explosion,
    update_too_large,
    warmup_unfinished,
)
from ptt.diagnostics.rules.post_training import (
    at_chance,
    kto_imbalance,
    likelihood_falls,
    loss_plateau,
    margin_collapse,
    odds_ratio_unstable,
    overfitting,
    perplexity_spikes,
    preference_plateau,
    preference_saturated,
    preference_unstable,
    rejected_collapse,
)
from ptt.diagnostics.rules.reward import (
    calls_inflation,
    components_diverge,
    judge_spikes,
    length_inflation,
    refusals_rise,
    repetition_rise,
    reward_fell,
    reward_follows_length,
    reward_hacking,
    reward_jump,
    reward_outliers,
    reward_revised,
    reward_shape,
    reward_sign,
    reward_stuck,
    reward_variance,
    slice_degradation,
)
from ptt.diagnostics.rules.systems import (
    gpu_utilisation_fell,
    idle_rollout,
    memory_growth,
    memory_imbalance,
    out_of_memory,
    run_cut_short,
    stragglers,
    throughput_drop,
)
from ptt.diagnostics.rules.training_signal import (
    advantage_scale,
    advantages_without_baseline,
    empty_responses,
    masked_share,
    no_signal_groups,
    truncated_share,
)

VALIDITY_RULES: tuple[Rule, ...] = (
    missing_logprobs.RULE,
    copied_logprobs.RULE,
    filled_rows.RULE,
    placeholder_logprobs.RULE,
    shifted_logprobs.RULE,
    scaled_logprobs.RULE,
    mixed_temperatures.RULE,
    truncated_support.RULE,
    unmasked_tools.RULE,
    retokenised_turns.RULE,
    rounded_logprobs.RULE,
    repeated_sequences.RULE,
    resumed_segments.RULE,
    missing_parts.RULE,
)
ENVIRONMENT_RULES: tuple[Rule, ...] = (
    tool_use_vanished.RULE,
    tool_failures.RULE,
    failures_under_load.RULE,
    underused_tools.RULE,
    tool_latency.RULE,
    malformed_calls.RULE,
    repeated_calls.RULE,
    failures_unrecovered.RULE,
    pseudo_success.RULE,
    void_turns.RULE,
    runaway_episodes.RULE,
)
EVALUATION_RULES: tuple[Rule, ...] = (
    eval_protocol_changed.RULE,
    eval_not_following.RULE,
    eval_spikes.RULE,
    eval_unlike_training.RULE,
    split_gap.RULE,
)
REWARD_RULES: tuple[Rule, ...] = (
    reward_sign.RULE,
    reward_stuck.RULE,
    reward_shape.RULE,
    reward_outliers.RULE,
    reward_revised.RULE,
    reward_hacking.RULE,
    components_diverge.RULE,
    judge_spikes.RULE,
    reward_fell.RULE,
    reward_follows_length.RULE,
    reward_variance.RULE,
    length_inflation.RULE,
    calls_inflation.RULE,
    refusals_rise.RULE,
    repetition_rise.RULE,
    slice_degradation.RULE,
    reward_jump.RULE,
)
TRAINING_SIGNAL_RULES: tuple[Rule, ...] = (
    advantage_scale.RULE,
    advantages_without_baseline.RULE,
    empty_responses.RULE,
    masked_share.RULE,
    no_signal_groups.RULE,
    truncated_share.RULE,
)
POLICY_UPDATE_RULES: tuple[Rule, ...] = (
    clip_fraction_high.RULE,
    kl_over_target.RULE,
    kl_zero.RULE,
    learning_rate_high.RULE,
    learning_rate_jump.RULE,
    learning_rate_zero.RULE,
    moving_reference.RULE,
    one_sided_clipping.RULE,
    policy_drift.RULE,
    ratio_explosion.RULE,
    update_too_large.RULE,
    warmup_unfinished.RULE,
)
CRITIC_RULES: tuple[Rule, ...] = (
    explained_variance_low.RULE,
    reward_oscillates.RULE,
    value_loss_flat.RULE,
    value_loss_rising.RULE,
    value_scale.RULE,
)
EXPLORATION_RULES: tuple[Rule, ...] = (
    entropy_collapse.RULE,
    entropy_explosion.RULE,
    entropy_high.RULE,
    equal_lengths.RULE,
    length_collapse.RULE,
    negative_entropy_bonus.RULE,
    template_collapse.RULE,
    tool_diversity.RULE,
)
DATA_FRESHNESS_RULES: tuple[Rule, ...] = (
    engine_mismatch.RULE,
    mismatch_after_tools.RULE,
    old_logprobs_off.RULE,
    rank_mismatch.RULE,
    stale_rollouts.RULE,
    versions_unknown.RULE,
)
NUMERICS_RULES: tuple[Rule, ...] = (
    gradient_spikes.RULE,
    gradient_vanished.RULE,
    frozen_loss.RULE,
    loss_below_zero.RULE,
    loss_divergence.RULE,
    loss_scale_drops.RULE,
    nan_precursors.RULE,
    metrics_lost.RULE,
)
SYSTEMS_RULES: tuple[Rule, ...] = (
    stragglers.RULE,
    idle_rollout.RULE,
    throughput_drop.RULE,
    gpu_utilisation_fell.RULE,
    memory_imbalance.RULE,
    memory_growth.RULE,
    out_of_memory.RULE,
    run_cut_short.RULE,
)
POST_TRAINING_RULES: tuple[Rule, ...] = (
    at_chance.RULE,
    preference_unstable.RULE,
    preference_plateau.RULE,
    preference_saturated.RULE,
    kto_imbalance.RULE,
    margin_collapse.RULE,
    likelihood_falls.RULE,
    rejected_collapse.RULE,
    overfitting.RULE,
    loss_plateau.RULE,
    perplexity_spikes.RULE,
    odds_ratio_unstable.RULE,
)
RULES: tuple[Rule, ...] = (
    *VALIDITY_RULES,
    *ENVIRONMENT_RULES,
    *EVALUATION_RULES,
    *REWARD_RULES,
    *TRAINING_SIGNAL_RULES,
    *POLICY_UPDATE_RULES,
    *CRITIC_RULES,
    *EXPLORATION_RULES,
    *DATA_FRESHNESS_RULES,
    *NUMERICS_RULES,
    *SYSTEMS_RULES,
    *POST_TRAINING_RULES,
)

LIMITS = {rule.id: rule.limits for rule in RULES} | {tool_tail_growth.ID: tool_tail_growth.LIMITS}
"""Every limit that `ptt.toml` can set, with its default."""
