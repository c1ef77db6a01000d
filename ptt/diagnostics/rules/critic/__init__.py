"""The table of contents of the rules on the value head, where there is one."""

from ptt.diagnostics.rules.critic import (
    explained_variance_low,
    value_loss_rising,
    value_scale,
)
from ptt.diagnostics.rules.interface import Rule

CRITIC_RULES: tuple[Rule, ...] = (
    explained_variance_low.RULE,
    value_loss_rising.RULE,
    value_scale.RULE,
)
