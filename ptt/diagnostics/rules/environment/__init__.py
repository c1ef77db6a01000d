"""The table of contents of the rules on the environment and its tools."""

from ptt.diagnostics.rules.environment import (
    failures_under_load,
    failures_unrecovered,
    malformed_calls,
    pseudo_success,
    repeated_calls,
    runaway_episodes,
    tool_failures,
    tool_latency,
    tool_use_vanished,
    underused_tools,
    void_turns,
)
from ptt.diagnostics.rules.interface import Rule

ENVIRONMENT_RULES: tuple[Rule, ...] = (
    tool_use_vanished.RULE,
    tool_failures.RULE,
    failures_under_load.RULE,
    underused_tools.RULE,
    tool_latency.RULE,
    malformed_calls.RULE,
    repeated_calls.RULE,
    failures_unrecovered.RULE,
    pseudo_success.RULE,
    void_turns.RULE,
    runaway_episodes.RULE,
)
