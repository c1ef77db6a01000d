"""The table of contents of the rules on what the reward is turned into."""

from ptt.diagnostics.rules.interface import Rule
from ptt.diagnostics.rules.training_signal import (
    advantage_scale,
    empty_responses,
    masked_share,
    no_signal_groups,
    truncated_share,
)

TRAINING_SIGNAL_RULES: tuple[Rule, ...] = (
    advantage_scale.RULE,
    empty_responses.RULE,
    masked_share.RULE,
    no_signal_groups.RULE,
    truncated_share.RULE,
)
