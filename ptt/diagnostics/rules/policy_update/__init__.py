"""The table of contents of the rules on the size and direction of updates; tool_tail_growth stands apart."""

from ptt.diagnostics.rules.interface import Rule
from ptt.diagnostics.rules.policy_update import (
    clip_fraction_high,
    kl_over_target,
)

POLICY_UPDATE_RULES: tuple[Rule, ...] = (
    clip_fraction_high.RULE,
    kl_over_target.RULE,
)
