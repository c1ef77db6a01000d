"""The table of contents of the rules on numbers that are none, and what came before them."""

from ptt.diagnostics.rules.interface import Rule
from ptt.diagnostics.rules.numerics import (
    frozen_loss,
    gradient_spikes,
    gradient_vanished,
    loss_divergence,
    loss_scale_drops,
    metrics_lost,
    nan_precursors,
)

NUMERICS_RULES: tuple[Rule, ...] = (
    gradient_spikes.RULE,
    gradient_vanished.RULE,
    frozen_loss.RULE,
    loss_divergence.RULE,
    loss_scale_drops.RULE,
    nan_precursors.RULE,
    metrics_lost.RULE,
)
