"""The table of contents of the rules on the reward."""

from ptt.diagnostics.rules.interface import Rule
from ptt.diagnostics.rules.reward import (
    components_diverge,
    judge_spikes,
    length_inflation,
    refusals_rise,
    repetition_rise,
    reward_fell,
    reward_hacking,
    reward_jump,
    reward_outliers,
    reward_shape,
    reward_sign,
    reward_variance,
    slice_degradation,
)

REWARD_RULES: tuple[Rule, ...] = (
    reward_sign.RULE,
    reward_shape.RULE,
    reward_outliers.RULE,
    reward_hacking.RULE,
    components_diverge.RULE,
    judge_spikes.RULE,
    reward_fell.RULE,
    reward_variance.RULE,
    length_inflation.RULE,
    refusals_rise.RULE,
    repetition_rise.RULE,
    slice_degradation.RULE,
    reward_jump.RULE,
)
