"""The table of contents of the rules on the environment and its tools."""

from ptt.diagnostics.rules.environment import (
    tool_use_vanished,
)
from ptt.diagnostics.rules.interface import Rule

ENVIRONMENT_RULES: tuple[Rule, ...] = (tool_use_vanished.RULE,)
