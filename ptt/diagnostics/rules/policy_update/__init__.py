"""The table of contents of the rules on the size and direction of updates; tool_tail_growth stands apart."""

from ptt.diagnostics.rules.interface import Rule
from ptt.diagnostics.rules.policy_update import (
    clip_fraction_high,
    kl_over_target,
    one_sided_clipping,
    policy_drift,
    ratio_explosion,
    update_too_large,
)

POLICY_UPDATE_RULES: tuple[Rule, ...] = (
    clip_fraction_high.RULE,
    kl_over_target.RULE,
    one_sided_clipping.RULE,
    policy_drift.RULE,
    ratio_explosion.RULE,
    update_too_large.RULE,
)
