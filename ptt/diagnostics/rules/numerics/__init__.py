"""The table of contents of the rules on numbers that are none, and what came before them."""

from ptt.diagnostics.rules.interface import Rule
from ptt.diagnostics.rules.numerics import (
    gradient_spikes,
    metrics_lost,
)

NUMERICS_RULES: tuple[Rule, ...] = (
    gradient_spikes.RULE,
    metrics_lost.RULE,
)
