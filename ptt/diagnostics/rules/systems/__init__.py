"""The table of contents of the rules on machines: time, memory, ranks."""

from ptt.diagnostics.rules.interface import Rule

SYSTEMS_RULES: tuple[Rule, ...] = ()
