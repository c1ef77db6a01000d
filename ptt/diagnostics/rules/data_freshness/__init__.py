"""The table of contents of the rules on how old the samples are, and whether they are the trainer's own."""

from ptt.diagnostics.rules.data_freshness import (
    engine_mismatch,
    old_logprobs_off,
    stale_rollouts,
    versions_unknown,
)
from ptt.diagnostics.rules.interface import Rule

DATA_FRESHNESS_RULES: tuple[Rule, ...] = (
    engine_mismatch.RULE,
    old_logprobs_off.RULE,
    stale_rollouts.RULE,
    versions_unknown.RULE,
)
