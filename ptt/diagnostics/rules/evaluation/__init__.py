"""The table of contents of the rules on evaluation beside training."""

from ptt.diagnostics.rules.interface import Rule

EVALUATION_RULES: tuple[Rule, ...] = ()
