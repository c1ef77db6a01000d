"""The table of contents of the rules on machines: time, memory, ranks."""

from ptt.diagnostics.rules.interface import Rule
from ptt.diagnostics.rules.systems import (
    idle_rollout,
    memory_growth,
    memory_imbalance,
    out_of_memory,
    run_cut_short,
    stragglers,
    throughput_drop,
)

SYSTEMS_RULES: tuple[Rule, ...] = (
    stragglers.RULE,
    idle_rollout.RULE,
    throughput_drop.RULE,
    memory_imbalance.RULE,
    memory_growth.RULE,
    out_of_memory.RULE,
    run_cut_short.RULE,
)
