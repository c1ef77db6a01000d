"""The table of contents of the rules on what the policy still tries."""

from ptt.diagnostics.rules.exploration import (
    entropy_collapse,
    template_collapse,
    tool_diversity,
)
from ptt.diagnostics.rules.interface import Rule

EXPLORATION_RULES: tuple[Rule, ...] = (
    entropy_collapse.RULE,
    template_collapse.RULE,
    tool_diversity.RULE,
)
