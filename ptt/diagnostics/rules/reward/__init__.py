"""The table of contents of the rules on the reward."""

from ptt.diagnostics.rules.interface import Rule

REWARD_RULES: tuple[Rule, ...] = ()
