"""The table of contents of the rules on how old the rollouts are, and who sampled them."""

from ptt.diagnostics.rules.interface import Rule

DATA_FRESHNESS_RULES: tuple[Rule, ...] = ()
