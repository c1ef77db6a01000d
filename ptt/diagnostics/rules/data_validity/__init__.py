"""Link 0: can the logprobs be trusted at all. Judged before anything else."""

from ptt.diagnostics.rules.data_validity import (
    copied_logprobs,
    filled_rows,
    missing_logprobs,
    missing_parts,
    mixed_temperatures,
    placeholder_logprobs,
    repeated_sequences,
    resumed_segments,
    retokenised_turns,
    rounded_logprobs,
    scaled_logprobs,
    shifted_logprobs,
    truncated_support,
    unmasked_tools,
)
from ptt.diagnostics.rules.interface import Rule

VALIDITY_RULES: tuple[Rule, ...] = (
    missing_logprobs.RULE,
    copied_logprobs.RULE,
    filled_rows.RULE,
    placeholder_logprobs.RULE,
    shifted_logprobs.RULE,
    scaled_logprobs.RULE,
    mixed_temperatures.RULE,
    truncated_support.RULE,
    unmasked_tools.RULE,
    retokenised_turns.RULE,
    rounded_logprobs.RULE,
    repeated_sequences.RULE,
    resumed_segments.RULE,
    missing_parts.RULE,
)
