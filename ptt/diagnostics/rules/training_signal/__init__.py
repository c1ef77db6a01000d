"""The table of contents of the rules on what the reward is turned into."""

from ptt.diagnostics.rules.interface import Rule
from ptt.diagnostics.rules.training_signal import (
    no_signal_groups,
)

TRAINING_SIGNAL_RULES: tuple[Rule, ...] = (no_signal_groups.RULE,)
