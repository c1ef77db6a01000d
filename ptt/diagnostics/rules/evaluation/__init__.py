"""The table of contents of the rules on evaluation beside training."""

from ptt.diagnostics.rules.evaluation import eval_not_following, eval_protocol_changed, eval_spikes, split_gap
from ptt.diagnostics.rules.interface import Rule

EVALUATION_RULES: tuple[Rule, ...] = (
    eval_protocol_changed.RULE,
    eval_not_following.RULE,
    eval_spikes.RULE,
    split_gap.RULE,
)
