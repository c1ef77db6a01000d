"""The table of contents of the rules on what the policy still tries."""

from ptt.diagnostics.rules.exploration import (
    entropy_collapse,
    entropy_explosion,
    length_collapse,
)
from ptt.diagnostics.rules.interface import Rule

EXPLORATION_RULES: tuple[Rule, ...] = (
    entropy_collapse.RULE,
    entropy_explosion.RULE,
    length_collapse.RULE,
)
