"""The table of contents of the rules on the value head, where there is one."""

from ptt.diagnostics.rules.interface import Rule

CRITIC_RULES: tuple[Rule, ...] = ()
