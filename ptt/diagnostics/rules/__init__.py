"""The table of contents of all rules; `tool_tail_growth` stands apart because it needs the others' alarms."""

from ptt.diagnostics.rules import (
    clip_fraction_high,
    entropy_collapse,
    gradient_spikes,
    kl_over_target,
    metrics_lost,
    no_signal_groups,
    tool_tail_growth,
    tool_use_vanished,
)
from ptt.diagnostics.rules.data_validity import VALIDITY_RULES
from ptt.diagnostics.rules.interface import Rule

RULES: tuple[Rule, ...] = (
    *VALIDITY_RULES,
    tool_use_vanished.RULE,
    no_signal_groups.RULE,
    kl_over_target.RULE,
    clip_fraction_high.RULE,
    entropy_collapse.RULE,
    metrics_lost.RULE,
    gradient_spikes.RULE,
)

LIMITS = {rule.id: rule.limits for rule in RULES} | {tool_tail_growth.ID: tool_tail_growth.LIMITS}
"""Every limit that `ptt.toml` can set, with its default."""
