"""The table of contents of all rules; `tool_tail_growth` stands apart because it needs the others' alarms."""

from ptt.diagnostics.rules import tool_tail_growth
from ptt.diagnostics.rules.critic import CRITIC_RULES
from ptt.diagnostics.rules.data_freshness import DATA_FRESHNESS_RULES
from ptt.diagnostics.rules.data_validity import VALIDITY_RULES
from ptt.diagnostics.rules.environment import ENVIRONMENT_RULES
from ptt.diagnostics.rules.evaluation import EVALUATION_RULES
from ptt.diagnostics.rules.exploration import EXPLORATION_RULES
from ptt.diagnostics.rules.interface import Rule
from ptt.diagnostics.rules.numerics import NUMERICS_RULES
from ptt.diagnostics.rules.policy_update import POLICY_UPDATE_RULES
from ptt.diagnostics.rules.post_training import POST_TRAINING_RULES
from ptt.diagnostics.rules.reward import REWARD_RULES
from ptt.diagnostics.rules.systems import SYSTEMS_RULES
from ptt.diagnostics.rules.training_signal import TRAINING_SIGNAL_RULES

RULES: tuple[Rule, ...] = (
    *VALIDITY_RULES,
    *ENVIRONMENT_RULES,
    *EVALUATION_RULES,
    *REWARD_RULES,
    *TRAINING_SIGNAL_RULES,
    *POLICY_UPDATE_RULES,
    *CRITIC_RULES,
    *EXPLORATION_RULES,
    *DATA_FRESHNESS_RULES,
    *NUMERICS_RULES,
    *SYSTEMS_RULES,
    *POST_TRAINING_RULES,
)

LIMITS = {rule.id: rule.limits for rule in RULES} | {tool_tail_growth.ID: tool_tail_growth.LIMITS}
"""Every limit that `ptt.toml` can set, with its default."""
